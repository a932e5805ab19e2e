//! Texts for `write` that are typed at a terminal: however one ends, the terminal keeps its settings.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::edit::{assert_sound, image};
use crate::support::{PROGRAM, tool, undercroft};

/// Types a text that is added to `/text`, and ends it by keys or a signal. Returns the exit code as sh has it, and whether
/// the terminal is as before.
fn type_text(dir: &Path, text: &str, keys: &str, signal: Option<&str>) -> (i32, bool) {
    // The shell gets the signals of keys too, and goes on.
    let command = format!(
        "ulimit -c 0; trap : INT QUIT; stty -g > before
         sh -c 'echo $$ > id.new; mv id.new id; exec {PROGRAM} write -a ext4 /text'
         echo $? > code; stty -g > after"
    );
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(dir).env("SHELL", "/bin/sh");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let id = wait_until(|| fs::read_to_string(dir.join("id")).ok());
    let id = id.trim();
    // It has its handler, and reads.
    wait_until(|| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        (caught & 1 << 1 != 0 && status.contains("State:\tS")).then_some(())
    });
    let mut typed = child.stdin.take().unwrap();
    typed.write_all(text.as_bytes()).unwrap();
    // What is typed first is read before the rest comes.
    std::thread::sleep(Duration::from_millis(200));
    typed.write_all(keys.as_bytes()).unwrap();
    if let Some(signal) = signal {
        tool(&format!("kill -s {signal} {id}"), dir);
    }
    let mut said = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut said).unwrap();
    child.wait().unwrap();
    let read = |name: &str| {
        fs::read_to_string(dir.join(name)).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&said)))
    };
    let told = (read("code").trim().parse().unwrap(), read("before") == read("after"));
    for name in ["id", "code", "before", "after"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    told
}

fn wait_until<T>(is_so: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(Instant::now() < end, "the program does not read");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_terminal_keeps_its_settings_however_a_text_ends() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    undercroft(["mkdir", path, "/there"]).succeeded();
    let text = || undercroft(["cat", path, "/text"]).succeeded();
    let ends = |text: &str, keys: &str, signal| type_text(dir.path(), text, keys, signal);
    assert_eq!(ends("first\r", "\u{4}", None), (0, true));
    assert_eq!(text(), b"first\n");
    // Ctrl-C, in and behind a line, and the signal from elsewhere.
    for (keys, signal) in [("\u{3}", None), ("begun\u{3}", None), ("", Some("INT"))] {
        assert_eq!(ends("left\r", keys, signal), (8, true), "{keys:?} {signal:?}");
        assert_eq!(text(), b"first\n");
    }
    for (keys, signal, code) in
        [("\u{1c}", None, 131), ("", Some("TERM"), 143), ("", Some("HUP"), 129), ("", Some("QUIT"), 131)]
    {
        assert_eq!(ends("left\r", keys, signal), (code, true), "{keys:?} {signal:?}");
        assert_eq!(text(), b"first\n");
    }
    // Ctrl-V takes from the key its meaning, at the end of a line too.
    assert_eq!(ends("a\u{16}\u{3}\r", "b\u{16}\u{3}\r\u{4}", None), (0, true));
    assert_eq!(text(), b"first\na\x03\nb\x03\n");
    assert_sound(&image, "ext4");
}
