//! Steps: commands and checks that are announced, timed, and all run even when one fails, so that one round of
//! CI shows everything that is wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Outcome of a chore; the error is a sentence for people.
pub(crate) type Outcome = Result<(), String>;

/// Steps run so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration, Outcome)>,
}

impl Steps {
    /// Runs one step.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        println!("\n==> {name}");
        let start = Instant::now();
        let outcome = step();
        if let Err(error) = &outcome {
            println!("==> {name}: FAILED: {error}");
        }
        self.done.push((name.to_owned(), start.elapsed(), outcome));
    }

    /// Prints the summary.
    pub(crate) fn finish(self) -> Outcome {
        println!("\nSummary:");
        for (name, took, outcome) in &self.done {
            let result = if outcome.is_ok() { "ok" } else { "FAILED" };
            println!("  {result:<6} {:>7.1} s  {name}", took.as_secs_f64());
        }
        match self.done.iter().filter(|(_, _, outcome)| outcome.is_err()).count() {
            0 => Ok(()),
            failed => Err(format!("{failed} of {} steps failed", self.done.len())),
        }
    }
}

/// Runs a command with our output and without standard input.
pub(crate) fn command(program: &str, args: &[&str], env: &[(&str, &str)]) -> Outcome {
    let shown = format!("{program} {}", args.join(" "));
    println!("$ {shown}");
    let status = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .status()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}")) }
}

/// The standard output of a command.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cannot run {program}: {e}"))?;
    if !output.status.success() {
        return Err(format!("`{program} {}` failed: {}", args.join(" "), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{program} printed something that is not UTF-8"))
}

/// Where the repository lies.
pub(crate) fn repository_root() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_owned).ok_or_else(|| format!("{} has no parent", here.display()))
}
