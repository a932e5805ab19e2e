//! Commands that are killed at moments from a seed: what they make is as before, absent or whole; what they change opens,
//! has every file, and is sound after a recovery, by ours and by Linux's tools.
//!
//! A run is killed after a time, or before one of its calls that change something, which strace counts. Two runs of each
//! command are not killed: they say how many calls there are and how long it takes.
//!
//! `UNDERCROFT_KILLS` says how often each command is killed; `UNDERCROFT_SEED` decides when.

mod change;
mod images;
mod make;
mod tune;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::edit_killed::next;
use crate::support::{PROGRAM, undercroft};

/// Calls that change a file, a device or a directory.
const CALLS: &str = "write,pwrite64,pwritev,pwritev2,io_uring_enter,fallocate,ftruncate,fsync,fdatasync,\
                     ?rename,renameat,renameat2,?unlink,unlinkat,ioctl";

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// When a run is killed.
#[derive(Clone, Copy, Debug)]
enum Moment<'a> {
    After(Duration),
    /// Before a thread makes a call of this name for the time of this number.
    Call(&'a str, u64),
}

/// A command, its words separated by spaces, that runs in a directory.
pub(super) struct Victim<'a> {
    pub(super) dir: &'a Path,
    pub(super) args: &'a str,
}

impl Victim<'_> {
    fn command(&self, strace: &[&str]) -> Command {
        let mut words = strace.to_vec();
        words.push(PROGRAM);
        words.extend(self.args.split(' '));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.dir).env("SOURCE_DATE_EPOCH", "1700000000");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn status(&self, strace: &[&str]) -> ExitStatus {
        self.command(strace).status().unwrap()
    }

    /// Runs it to its end.
    pub(super) fn whole(&self) {
        let status = self.status(&[]);
        assert!(status.success(), "{}: {status}", self.args);
    }

    /// How many calls of each name are made by the thread that makes most of them.
    fn calls(&self) -> BTreeMap<String, u64> {
        let log = self.dir.join("calls");
        let trace = format!("trace={CALLS}");
        let status =
            self.status(&["strace", "-f", "-qq", "--seccomp-bpf", "-o", log.to_str().unwrap(), "-e", &trace]);
        assert!(status.success(), "strace is needed for this test: {}: {status}", self.args);
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
        fs::remove_file(log).unwrap();
        let mut threads = BTreeMap::<_, u64>::new();
        // "1234  pwrite64(3, ..."
        for (thread, rest) in text.lines().filter_map(|line| line.split_once(' ')) {
            if let Some((name, _)) = rest.trim_start().split_once('(').filter(|(name, _)| !name.contains(' '))
            {
                *threads.entry((thread, name)).or_default() += 1;
            }
        }
        let mut calls = BTreeMap::new();
        for ((_, name), count) in threads {
            let most = calls.entry(name.to_owned()).or_default();
            *most = count.max(*most);
        }
        calls
    }

    /// Whether it was killed; it may have ended before.
    fn is_killed(&self, moment: Moment<'_>) -> bool {
        let status = match moment {
            Moment::After(time) => {
                let mut child = self.command(&[]).spawn().unwrap();
                std::thread::sleep(time);
                child.kill().unwrap();
                child.wait().unwrap()
            }
            Moment::Call(name, number) => {
                let (trace, inject) =
                    (format!("trace={name}"), format!("inject={name}:signal=SIGKILL:when={number}"));
                let how = ["strace", "-f", "-qq", "-o", "/dev/null"];
                self.status(&[&how[..], &["-e", &trace, "-e", &inject]].concat())
            }
        };
        let killed = status.signal() == Some(9);
        assert!(killed || status.success(), "{}, {moment:?}: {status}", self.args);
        killed
    }

    /// Kills it again and again. `fresh` makes what there is before a run; `judge` gets a description of it, and looks at
    /// what there is afterwards, which it gives a word for. When `fresh` is called for the last time before the first kill,
    /// the command has ended by itself, and `ended` looks at that.
    pub(super) fn kill(
        &self,
        fresh: &mut dyn FnMut(),
        ended: &mut dyn FnMut(),
        judge: &mut dyn FnMut(&str) -> &'static str,
    ) {
        let seed = from_environment("UNDERCROFT_SEED").unwrap_or(1);
        let kills = from_environment("UNDERCROFT_KILLS").unwrap_or(3);
        fresh();
        let calls = self.calls();
        let all: u64 = calls.values().sum();
        fresh();
        let began = Instant::now();
        self.whole();
        let whole = began.elapsed();
        ended();
        let mut state = self.args.bytes().fold(seed, |state, byte| state.wrapping_mul(131) + u64::from(byte));
        next(&mut state);
        let mut found = BTreeMap::<(bool, &str), u64>::new();
        for kill in 0..kills {
            fresh();
            let random = next(&mut state);
            let moment = if kill % 3 == 2 {
                Moment::After(whole.mul_f64(random as f64 / f64::from(1_u32 << 31)))
            } else {
                let mut number = random % all;
                let call = calls.iter().find(|(_, count)| {
                    let is_here = number < **count;
                    number -= if is_here { 0 } else { **count };
                    is_here
                });
                Moment::Call(call.unwrap().0, 1 + number)
            };
            let killed = self.is_killed(moment);
            let told = format!("UNDERCROFT_SEED={seed}, {}, kill {kill}, {moment:?}", self.args);
            *found.entry((killed, judge(&told))).or_default() += 1;
        }
        println!("UNDERCROFT_SEED={seed}, {}, {all} calls, {whole:?}:", self.args);
        for ((killed, word), count) in found {
            println!("    {count} {}: {word}", if killed { "killed" } else { "ended before" });
        }
    }
}

/// Waits until the kernel has let go of what a killed program had open and locked.
pub(super) fn wait_until_free(image: &Path) {
    let began = Instant::now();
    let is_in_use = || {
        let run = undercroft(["ls", image.to_str().unwrap(), "/"]);
        run.code == 3 && run.stderr.contains("in use")
    };
    while image.exists() && is_in_use() {
        assert!(began.elapsed() < Duration::from_secs(20), "{} stays in use", image.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}
