//! Fuzzing: every target in turn, or one for longer, from seeds that are made first. What the fuzzer keeps lies in
//! `fuzz/corpus`, what it finds in `fuzz/artifacts`.

use std::{fs, io};

use crate::step::{self, Outcome, command};

const SECONDS: &str = "60";
const CORPUS: &str = "fuzz/corpus";

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
    let time = format!("-max_total_time={seconds}");
    for target in chosen {
        let corpus = format!("{CORPUS}/{target}");
        let seeds = ["run", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--example", "seeds", "--"];
        command("cargo", &[&seeds[..], &[target, &corpus]].concat(), &[])?;
        // What reaches past the longest structure of its kind would be thrown away by the target.
        let length = format!("-max_len={}", longest_seed(&corpus)?);
        // A damaged image must be answered in little memory, and soon.
        let limits = ["--", &time, &length, "-rss_limit_mb=512", "-timeout=20"];
        command("cargo", &[&["+nightly", "fuzz", "run", target], &limits[..]].concat(), &[])?;
    }
    Ok(())
}

fn longest_seed(corpus: &str) -> Result<u64, String> {
    let longest = || -> io::Result<u64> {
        let mut longest = 0;
        for entry in fs::read_dir(corpus)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b"seed-") {
                longest = longest.max(entry.metadata()?.len());
            }
        }
        Ok(longest)
    };
    longest().map_err(|error| format!("cannot read the seeds in {corpus}: {error}"))
}
