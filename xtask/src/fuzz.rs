//! Fuzzing: every target in turn, or one for longer. Findings stay in `fuzz/artifacts`.

use crate::step::{self, Outcome, command};

const SECONDS: &str = "60";

/// `args`: a target and for how many seconds, both optional.
pub(crate) fn run(args: &[&str]) -> Outcome {
    let seconds = args.get(1).copied().unwrap_or(SECONDS);
    if seconds.parse::<u32>().is_err() {
        return Err(format!("{seconds} is no number of seconds"));
    }
    if step::output("cargo", &["fuzz", "--version"]).is_err() {
        command("cargo", &["install", "--locked", "cargo-fuzz"], &[])?;
    }
    let listed = step::output("cargo", &["fuzz", "list"])?;
    let targets: Vec<&str> = listed.lines().collect();
    let chosen = match args.first() {
        Some(target) if targets.contains(target) => vec![*target],
        Some(target) => return Err(format!("there is no target {target}; there are {}", targets.join(", "))),
        None => targets,
    };
    let limit = format!("-max_total_time={seconds}");
    for target in chosen {
        // A damaged image must be answered in little memory, and soon.
        let limits = ["--", limit.as_str(), "-rss_limit_mb=512", "-timeout=20"];
        command("cargo", &[&["+nightly", "fuzz", "run", target], &limits[..]].concat(), &[])?;
    }
    Ok(())
}
