//! A command that a signal ends leaves no part of a new image, and ends by that signal.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{PROGRAM, tool, undercroft};

/// A command that waits for its standard input, in this directory and with signals as `env` sets them.
fn begun(dir: &Path, signals: &str, args: &str) -> Child {
    let mut command = Command::new("env");
    command.arg(signals).arg(PROGRAM).args(args.split(' ')).current_dir(dir);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    // The file under its temporary name is the sign that it has begun.
    while !names(dir).iter().any(|name| name.starts_with(".new.img.")) {
        std::thread::yield_now();
    }
    child
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn send(signal: &str, to: &Child) {
    tool(&format!("kill -{signal} {}", to.id()), Path::new("/"));
}

/// Commands that make an image of an archive on standard input.
const MAKES: [&str; 3] = [
    "mkfs ext4 new.img --size 8M --from -",
    "mkfs xfs new.img --from -",
    "disk create new.img root=ext4:16M:-",
];

#[test]
fn a_signal_removes_what_is_not_whole_and_ends_the_command() {
    for args in MAKES {
        for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
            let dir = tempfile::tempdir().unwrap();
            let mut child = begun(dir.path(), "--default-signal=INT,TERM,HUP", args);
            // Waiting closes it, and what ends without it ends by itself.
            let _stdin = child.stdin.take();
            send(signal, &child);
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(number), "{args} {signal}: {status}");
            assert_eq!(names(dir.path()), [""; 0], "{args} {signal}");
        }
    }
}

#[test]
fn the_image_that_was_to_be_replaced_stays() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new.img");
    undercroft(["mkfs", "ext4", image.to_str().unwrap(), "--size", "8M"]).succeeded();
    let before = fs::read(&image).unwrap();
    let mut child = begun(dir.path(), "--default-signal=INT,TERM,HUP", "mkfs ext4 new.img --force --from -");
    let _stdin = child.stdin.take();
    send("TERM", &child);
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(names(dir.path()), ["new.img"]);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let archive = tempfile::tempdir().unwrap();
    fs::write(archive.path().join("f"), "text").unwrap();
    tool("tar -cf a.tar f", archive.path());
    let mut child = begun(dir.path(), "--ignore-signal=INT,TERM,HUP", MAKES[0]);
    for signal in ["INT", "TERM", "HUP"] {
        send(signal, &child);
    }
    let mut stdin = child.stdin.take().unwrap();
    match stdin.write_all(&fs::read(archive.path().join("a.tar")).unwrap()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => panic!("the command has ended"),
        written => written.unwrap(),
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(names(dir.path()), ["new.img"]);
    let image = dir.path().join("new.img");
    assert_eq!(undercroft(["cat", image.to_str().unwrap(), "/f"]).text(), "text");
}
