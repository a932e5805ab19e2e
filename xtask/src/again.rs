//! A second try, alone, for tests that failed.
//!
//! Many tests share their two processors with the kernel's own threads and with each other, and one that leans on
//! what another is doing fails now and then. It deserves mending; it is no reason to throw away everything else that
//! was made. So continuous integration asks once more and says which tests needed it; a person's `cargo xtask test`
//! does not.

use std::collections::BTreeSet;

use crate::step::{self, Outcome};

/// What `cargo test --no-fail-fast` said of failures.
#[derive(Debug, Default, PartialEq)]
struct Failures {
    /// As cargo names them: `-p undercroft-ext4 --lib`.
    targets: Vec<String>,
    tests: BTreeSet<String>,
    /// The targets that lived to the end and counted failures there, and how many they counted.
    counted: (usize, usize),
}

impl Failures {
    fn read(output: &str) -> Self {
        let mut failures = Self::default();
        for line in output.lines() {
            if let Some(counts) = line.strip_prefix("test result: FAILED. ") {
                let failed =
                    counts.split("; ").find_map(|count| count.strip_suffix(" failed")?.parse::<usize>().ok());
                failures.counted.0 += 1;
                failures.counted.1 += failed.unwrap_or(0);
            }
            if let Some(target) = line.strip_prefix("    `").and_then(|rest| rest.strip_suffix('`')) {
                failures.targets.push(target.to_owned());
            }
            failures.tests.extend(verdict(line, "FAILED"));
        }
        failures
    }

    /// Whether each failure is known by name. It is not where a target died, or did not build, or where what a test
    /// printed came between its name and the verdict.
    fn all_have_names(&self) -> bool {
        self.counted == (self.targets.len(), self.tests.len()) && !self.tests.is_empty()
    }

    fn names(&self) -> String {
        self.tests.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// The name in a line `test NAME ... VERDICT`.
fn verdict(line: &str, wanted: &str) -> Option<String> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    // A test that should panic says so behind its name.
    let name = name.split_once(" - ").map_or(name, |(name, _)| name);
    (verdict == wanted).then(|| name.to_owned())
}

/// Runs `cargo test` with these arguments, and the tests that failed a second time, one target after the other. What
/// fails twice has failed, and so has what does not say which tests it ran.
pub(crate) fn test(args: &[&str], env: &[(&str, &str)]) -> Outcome {
    let first = step::watched("cargo", args, env)?;
    if first.status.success() {
        return Ok(());
    }
    let failures = Failures::read(&first.output);
    if !failures.all_have_names() {
        return Err(format!("`cargo {}` failed: {}", args.join(" "), first.status));
    }
    println!("\n==> again, alone: {}", failures.names());
    let mut passed = BTreeSet::new();
    for target in &failures.targets {
        let mut args = vec!["test", "--locked", "--all-features"];
        args.extend(target.split(' '));
        args.extend(["--", "--exact", "--test-threads=1"]);
        args.extend(failures.tests.iter().map(String::as_str));
        let second = step::watched("cargo", &args, env)?;
        if !second.status.success() {
            return Err(format!("{target} failed twice: {}", failures.names()));
        }
        passed.extend(second.output.lines().filter_map(|line| verdict(line, "ok")));
    }
    if !failures.tests.is_subset(&passed) {
        return Err(format!("not all of these ran a second time: {}", failures.names()));
    }
    println!("==> UNSTEADY, passed the second time, to be mended: {}", failures.names());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_as_cargo_and_libtest_print_them() {
        let output = "test a::fine ... ok\ntest a::broken ... FAILED\ntest b::dies - should panic ... FAILED\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
                      error: 1 target failed:\n    `-p undercroft-ext4 --lib`\n";
        let failures = Failures::read(output);
        assert!(failures.all_have_names());
        assert_eq!(failures.targets, ["-p undercroft-ext4 --lib"]);
        assert_eq!(failures.names(), "a::broken, b::dies");
    }

    #[test]
    fn a_target_that_died_has_no_second_try() {
        let output = "test a ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n\
                      error: 2 targets failed:\n    `-p one --lib`\n    `-p two --lib`\n";
        assert!(!Failures::read(output).all_have_names());
        assert!(!Failures::read("error: could not compile `one`\n").all_have_names());
    }
}
