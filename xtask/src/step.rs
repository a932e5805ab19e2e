//! Steps: commands and checks that are announced, timed, and all run even when one fails, so that one round of
//! CI shows everything that is wrong.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
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

/// How a command ended, and all it printed.
pub(crate) struct Watched {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

/// Runs a command without standard input; what it prints is printed, and kept.
pub(crate) fn watched(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Watched, String> {
    println!("$ {program} {}", args.join(" "));
    let failed = |e: std::io::Error| format!("cannot run {program}: {e}");
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(args).envs(env.iter().copied()).stdin(Stdio::null());
    let mut child =
        command.stdout(writer.try_clone().map_err(failed)?).stderr(writer).spawn().map_err(failed)?;
    // It holds the writing ends, and the output would never end.
    drop(command);
    let mut output = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        output.push_str(&line);
        output.push('\n');
    }
    Ok(Watched { status: child.wait().map_err(failed)?, output })
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
