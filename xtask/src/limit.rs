//! A time limit for each test program, so that one test that hangs costs its target and not the whole run.
//!
//! Cargo starts every test program through a runner, and the runner is `xtask` itself: [`run`]. It starts the program,
//! by sudo where the caller is not root, waits for it, and kills it with all its descendants when the limit has passed.
//! The message names the target and the tests that were running.
//!
//! The run of all checks has a limit too ([`end_after`]): a kernel that hangs makes every program hang, and a run that is
//! ended from outside shows nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::step::Outcome;
use crate::system;

/// The chore that the runner is.
pub(crate) const CHORE: &str = "run-test";

/// How long a test program may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// How long a run of all checks may take.
const LIMIT_OF_ALL: Duration = Duration::from_secs(86 * 60);
/// How long a killed program has to end; one that hangs in the kernel does not.
const GRACE: Duration = Duration::from_secs(30);

/// The arguments that make cargo start test programs through the runner.
pub(crate) fn cargo_arguments() -> Result<[String; 2], String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot tell where xtask is: {e}"))?;
    let own = own.to_str().ok_or_else(|| format!("the path of xtask is not UTF-8: {}", own.display()))?;
    // A JSON array of strings is a TOML array, too.
    let runner = serde_json::json!([own, CHORE]);
    Ok(["--config".to_owned(), format!("target.{}.runner={runner}", system::host()?)])
}

/// Runs a test program; its exit code is the program's.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<ExitCode, String> {
    let by_sudo = !system::is_root()?;
    let mut command = if by_sudo {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "-E", program]);
        sudo
    } else {
        Command::new(program)
    };
    let child = command.args(args).spawn().map_err(|e| format!("cannot start {program}: {e}"))?;
    let status = wait(child, LIMIT, |first| kill_with_descendants(first, by_sudo))
        .map_err(|reason| format!("{} {reason}", target_name(program)))?;
    // A program that a signal ended has no code.
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Waits for a program, and calls `kill` with its process id when the limit has passed.
fn wait(mut child: Child, limit: Duration, kill: impl Fn(u32) -> Outcome) -> Result<ExitStatus, String> {
    let id = child.id();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(child.wait()));
    let exceeded = match end.recv_timeout(limit) {
        Ok(status) => return status.map_err(|e| format!("cannot be waited for: {e}")),
        Err(_) => format!("has taken more than {} s and was killed", limit.as_secs()),
    };
    let running = running_tests(id);
    kill(id)?;
    let outcome = match end.recv_timeout(GRACE) {
        Ok(_) => exceeded,
        Err(_) => format!("{exceeded}, but does not end"),
    };
    let running: Vec<String> = running.into_iter().collect();
    Err(format!("{outcome}; its threads (names are cut to 15 bytes): {}", running.join(", ")))
}

/// Ends this process when a run of all checks has taken too long, and says what was running.
pub(crate) fn end_after() {
    thread::spawn(|| {
        thread::sleep(LIMIT_OF_ALL);
        let own = std::process::id();
        println!("\n==> the run has taken more than {} minutes; still running:", LIMIT_OF_ALL.as_secs() / 60);
        for line in states(own) {
            println!("  {line}");
        }
        // Its descendants may hang in the kernel: nothing is waited for.
        for (child, _) in parents().into_iter().filter(|&(_, parent)| parent == own) {
            let _ = kill_with_descendants(child, false);
        }
        std::process::exit(1);
    });
}

/// A line for each thread of a process's descendants: process, state, name, and where it waits in the kernel.
fn states(first: u32) -> Vec<String> {
    let mut lines = Vec::new();
    for process in descendants(first, &parents()) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let stat = read("stat");
            let state =
                stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or("?");
            lines.push(format!("{process} {state} {} {}", read("comm").trim(), read("wchan").trim()));
        }
    }
    lines
}

/// The target's name: that of the file without the hash that cargo appends.
fn target_name(program: &str) -> &str {
    let file = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program);
    file.rsplit_once('-').map_or(file, |(target, _)| target)
}

/// What a process and its descendants call their threads: the test harness names a thread after its test.
fn running_tests(first: u32) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for process in descendants(first, &parents()) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for task in tasks.flatten() {
            names
                .extend(std::fs::read_to_string(task.path().join("comm")).map(|name| name.trim().to_owned()));
        }
    }
    names
}

/// Kills a process and all that descend from it, until none is left that a signal reaches.
fn kill_with_descendants(first: u32, by_sudo: bool) -> Outcome {
    // A process may have started another one between the listing and its end.
    const ROUNDS: u32 = 3;
    for _ in 0..ROUNDS {
        let ids: Vec<String> = descendants(first, &parents()).iter().map(u32::to_string).collect();
        let mut kill = Command::new(if by_sudo { "sudo" } else { "kill" });
        if by_sudo {
            kill.args(["-n", "kill"]);
        }
        // Some have ended already, which `kill` calls a failure.
        kill.arg("-KILL")
            .args(ids)
            .stderr(Stdio::null())
            .status()
            .map_err(|e| format!("cannot be killed: {e}"))?;
    }
    Ok(())
}

/// Each process of the system and its parent.
fn parents() -> BTreeMap<u32, u32> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent_in(&stat) {
            parents.insert(id, parent);
        }
    }
    parents
}

/// The parent in a line of `/proc/PID/stat`. The process's name, in parentheses, may have any bytes.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// A process and all that descend from it.
fn descendants(first: u32, parents: &BTreeMap<u32, u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([first]);
    loop {
        let known = found.len();
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| found.contains(parent))
                .map(|(id, _)| *id)
                .collect::<Vec<_>>(),
        );
        if found.len() == known {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_in_time_is_left_alone() {
        let child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let status = wait(child, LIMIT, |_| panic!("killed")).unwrap();
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn a_program_past_its_limit_is_killed_with_its_descendants() {
        let child = Command::new("sh").args(["-c", "sleep 1000 & sleep 2000; true"]).spawn().unwrap();
        let id = child.id();
        let killed = std::cell::RefCell::new(BTreeSet::new());
        let error = wait(child, Duration::from_millis(200), |first| {
            // The shell needs its time, on a loaded machine, to start both.
            while descendants(first, &parents()).len() < 3 {
                thread::yield_now();
            }
            *killed.borrow_mut() = descendants(first, &parents());
            kill_with_descendants(first, false)
        })
        .unwrap_err();
        assert!(error.contains("was killed") && !error.contains("does not end"), "{error}");
        assert!(killed.borrow().contains(&id));
        // One that waits to be reaped is dead: state Z.
        let alive = |id: &u32| {
            std::fs::read_to_string(format!("/proc/{id}/stat"))
                .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
        };
        while killed.borrow().iter().any(alive) {
            thread::yield_now();
        }
    }

    #[test]
    fn what_runs_is_listed_with_its_state() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let lines = states(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(&format!("{} ", child.id())), "{lines:?}");
    }

    #[test]
    fn targets_are_named_as_cargo_names_them() {
        assert_eq!(target_name("/a/target/debug/deps/undercroft_ext4-0123456789abcdef"), "undercroft_ext4");
        assert_eq!(target_name("/tmp/rustdoctest/rust_out"), "rust_out");
    }

    #[test]
    fn a_process_name_may_hold_parentheses() {
        assert_eq!(parent_in("12 (a) b) S 7 12 12 0"), Some(7));
    }
}
