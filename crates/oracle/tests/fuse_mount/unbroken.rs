//! Nothing that the kernel sends, and no defect of the server, leaves a request without an answer: over both
//! transports, on every processor.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;
use undercroft_fuse::{FaultSink, MountError, MountOptions, Mounted, mount};
use undercroft_oracle::unmount_when_idle;
use undercroft_vfs::{Vfs, VfsOptions};

use crate::memory::{Content, Memory};
use crate::sample::{HELLO, sample};
use crate::support::until;

/// Both transports; the first where the kernel has it.
const TRANSPORTS: [&str; 2] = ["", "no_io_uring"];

/// An answer that has not come within this never comes.
const LIMIT: Duration = Duration::from_secs(60);

fn serve(memory: Memory, options: &str) -> (Mounted, TempDir, Receiver<String>) {
    let (tell, told) = channel();
    let mut options = MountOptions::parse(options).unwrap();
    options.faults = FaultSink::new(move |fault| tell.send(fault.to_string()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let vfs = Vfs::new(Arc::new(memory), VfsOptions::default());
    let mounted = mount(vfs, dir.path(), options).unwrap();
    (mounted, dir, told)
}

/// A command that ends in time. One that does not is left behind: what waits for the mount cannot be killed.
fn output(mut command: Command) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(until(LIMIT, || child.try_wait().unwrap().is_some()), "{command:?} has got no answer");
    child.wait_with_output().unwrap()
}

/// The processors on which a thread may run.
fn processors() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
}

/// A program on one processor, whose requests go to the threads of that processor.
fn on(processor: usize, program: &str, arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new("taskset");
    command.args(["-c", &processor.to_string(), program]).args(arguments).arg(path);
    output(command)
}

/// The kernel refuses what a listing hands out, a file of more bytes than it counts or a directory's ancestor, and
/// gives it back with a message whose answer is not read, as a request like any other.
#[test]
fn what_the_kernel_refuses_of_a_listing_stops_nothing() {
    for transport in TRANSPORTS {
        let mut memory = Memory::new();
        let root = memory.root();
        memory.add(root, "hello", 0o644, Content::bytes(HELLO));
        let mut parents = Vec::new();
        for number in 0..8 {
            let parent = memory.add(root, &format!("parent-{number}"), 0o755, Content::Directory(Vec::new()));
            let child = memory.add(parent, "child", 0o755, Content::Directory(Vec::new()));
            let huge = memory.add(child, "huge", 0o644, Content::bytes(b""));
            memory.change(huge, |attr| attr.size_bytes = 1 << 63);
            memory.link(child, "up", parent);
            parents.push(format!("parent-{number}"));
        }
        let (mounted, dir, _complaints) = serve(memory, &format!("{transport},readdirplus=always"));
        for processor in processors() {
            for parent in &parents {
                let listed = on(processor, "ls", &["-lR"], &dir.path().join(parent));
                assert!(String::from_utf8_lossy(&listed.stdout).contains("child"), "{listed:?}");
                // What the kernel keeps of the listing would spare the next one its requests.
                fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            }
        }
        for processor in processors() {
            for _ in 0..8 {
                assert_eq!(on(processor, "cat", &[], &dir.path().join("hello")).stdout, HELLO);
            }
        }
        unmount_when_idle(|| mounted.unmount()).unwrap();
        mounted.wait().unwrap();
    }
}

/// A defect in one operation costs that operation alone, however often it is met; it is told, and the end of the mount
/// tells it again.
#[test]
fn a_panic_is_answered_and_told() {
    for transport in TRANSPORTS {
        let (mounted, dir, complaints) = serve(sample(1, 0), &format!("{transport},threads=2"));
        for processor in processors() {
            for _ in 0..4 {
                let refused = on(processor, "cat", &[], &dir.path().join("defect"));
                let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
                assert!(complaint.contains("Input/output error"), "{complaint}");
                assert_eq!(on(processor, "cat", &[], &dir.path().join("hello")).stdout, HELLO);
            }
        }
        unmount_when_idle(|| mounted.unmount()).unwrap();
        let error = mounted.wait().unwrap_err();
        assert!(matches!(error, MountError::Defect { .. }), "{error}");
        assert!(error.to_string().contains("a defect on purpose"), "{error}");
        let complaints: Vec<String> = complaints.iter().collect();
        assert!(complaints[0].contains("a defect on purpose"), "{complaints:?}");
        assert!(complaints.len() < 4, "{complaints:?}");
    }
}

/// What is told of a fault is told while the request waits: a log that panics costs nothing but what it was told.
#[test]
fn a_log_that_panics_keeps_no_request_from_its_answer() {
    for transport in TRANSPORTS {
        let mut options = MountOptions::parse(transport).unwrap();
        options.faults = FaultSink::new(|_| panic!("a defect of the log on purpose"));
        let dir = tempfile::tempdir().unwrap();
        let mounted =
            mount(Vfs::new(Arc::new(sample(1, 0)), VfsOptions::default()), dir.path(), options).unwrap();
        for processor in processors() {
            for name in ["bytes", "inode", "nothing"] {
                let refused = on(processor, "cat", &[], &dir.path().join("damage").join(name));
                let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
                assert!(complaint.contains("Structure needs cleaning"), "{complaint}");
            }
        }
        unmount_when_idle(|| mounted.unmount()).unwrap();
        mounted.wait().unwrap();
    }
}
