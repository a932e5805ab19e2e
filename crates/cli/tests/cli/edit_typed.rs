//! Texts for `write` that are typed at a terminal: however one ends, the terminal keeps its settings.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::edit::{assert_sound, image, with_stdin};
use crate::support::{PROGRAM, on_terminal, undercroft};

/// Types a text that is added to `/text`, and ends it by keys or signals. Returns the exit code as sh has it, and whether
/// the terminal is as before.
fn type_text(dir: &Path, text: &str, keys: &str, signals: Option<&str>) -> (i32, bool) {
    type_text_below(": INT QUIT", "SigCgt:", dir, text, keys, signals)
}

/// The same below a shell with this trap, where SIGINT is in this set of the program's.
fn type_text_below(
    trap: &str,
    set: &str,
    dir: &Path,
    text: &str,
    keys: &str,
    signals: Option<&str>,
) -> (i32, bool) {
    // The shell gets the signals of keys too, and goes on.
    let command = format!(
        "ulimit -c 0; trap {trap}; stty -g > before
         sh -c 'echo $$ > id.new; mv id.new id; exec {PROGRAM} write -a ext4 /text'
         echo $? > code; stty -g > after"
    );
    let mut script = on_terminal(&command);
    script.current_dir(dir).env("SHELL", "/bin/sh");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let id = wait_until(|| fs::read_to_string(dir.join("id")).ok());
    let id = id.trim();
    // It is the program, has its handler, and reads.
    wait_until(|| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let signals = status.lines().find_map(|line| line.strip_prefix(set))?;
        let signals = u64::from_str_radix(signals.trim(), 16).unwrap();
        let is_program = status.starts_with("Name:\tundercroft\n");
        (is_program && signals & 1 << 1 != 0 && status.contains("State:\tS")).then_some(())
    });
    let mut typed = child.stdin.take().unwrap();
    // The terminal shows what is typed: a long text comes to an end only if that is read.
    let mut shown = child.stdout.take().unwrap();
    let shown = std::thread::spawn(move || {
        let mut said = Vec::new();
        shown.read_to_end(&mut said).unwrap();
        said
    });
    typed.write_all(text.as_bytes()).unwrap();
    // What is typed first is read before the rest comes.
    std::thread::sleep(Duration::from_millis(200));
    typed.write_all(keys.as_bytes()).unwrap();
    if let Some(signals) = signals {
        let send = |signal: &str| match signal {
            // A transaction of what was written is committed meanwhile.
            "later" => "sleep 6; ".to_owned(),
            signal => format!("kill -s {signal} {id} || exit 0; "),
        };
        shell(&signals.split(' ').map(send).collect::<String>(), dir);
    }
    let said = shown.join().unwrap();
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

fn shell(script: &str, dir: &Path) {
    let output = Command::new("sh").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
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
    // Ctrl-V quotes Ctrl-C, at the end of a line too.
    assert_eq!(ends("a\u{16}\u{3}\r", "b\u{16}\u{3}\r\u{4}", None), (0, true));
    assert_eq!(text(), b"first\na\x03\nb\x03\n");
    assert_sound(&image, "ext4");
}

/// Makes `/text`, of one line, with a capability as `setcap` sets it.
fn make_text_with_capability(image: &str) {
    with_stdin(["write", image, "/text"], b"first\n").succeeded();
    let capability = "0x0100000200200000000000000000000000000000";
    undercroft(["xattr", "set", image, "/text", "security.capability", capability]).succeeded();
}

/// A text of more than 1 MiB, of which all that came is read while it is typed.
#[test]
fn a_file_is_as_before_until_a_typed_text_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    make_text_with_capability(path);
    let state = || undercroft(["stat", "--json", path, "/text"]).json();
    let before = state();
    let long = format!("{}\r", "left ".repeat(200)).repeat(2000);
    for (signals, code) in
        [("later TERM", 143), ("HUP", 129), ("QUIT", 131), ("INT", 8), ("INT INT", 8), ("INT TERM", 8)]
    {
        let ended = type_text(dir.path(), &long, "", Some(signals));
        // The second signal may come before the program's end, and may end it.
        let may_be = ended.0 == code || (signals.starts_with("INT ") && ended.0 > 128);
        assert!(may_be && ended.1, "{signals}: {ended:?}");
        assert_eq!(state(), before, "{signals}");
    }
    assert_eq!(undercroft(["cat", path, "/text"]).succeeded(), b"first\n");
    // What only grows can give nothing back.
    undercroft(["xattr", "remove", path, "/text", "security.capability"]).succeeded();
    shell("debugfs -w -R 'set_inode_field /text flags 0x80020' ext4", dir.path());
    let before = state();
    assert!(before["flags"].as_str().unwrap().contains('a'), "{before}");
    for (keys, signals, code) in [("\u{3}", None, 8), ("", Some("TERM"), 143)] {
        assert_eq!(type_text(dir.path(), &long, keys, signals), (code, true));
        assert_eq!(state(), before);
    }
    let much = vec![b'x'; 80 << 20];
    assert!(with_stdin(["write", "-a", path, "/text"], &much).failed(7).contains("no space"));
    assert_eq!(state(), before);
    assert_eq!(type_text(dir.path(), &long, "\u{4}", None), (0, true));
    let text = undercroft(["cat", path, "/text"]).succeeded();
    assert!(text == format!("first\n{}", long.replace('\r', "\n")).as_bytes());
    assert_sound(&image, "ext4");
}

/// From an append-only file nothing can be taken again: what may not fit is refused as a whole, however near the end of the
/// space it is, and what fits into its last block is not.
#[test]
fn what_does_not_fit_is_not_added_to_an_append_only_file() {
    // Of what XFS has free, `df` leaves out what Linux keeps for itself: a twentieth.
    for (family, freed, least) in [("ext4", 2 << 20, 3 << 19), ("xfs", 20 << 20, 2 << 20)] {
        let dir = tempfile::tempdir().unwrap();
        let image = image(dir.path(), family);
        let path = image.to_str().unwrap();
        make_text_with_capability(path);
        match family {
            "ext4" => shell("debugfs -w -R 'set_inode_field /text flags 0x80020' ext4", dir.path()),
            _ => shell("xfs_db -x -c 'path /text' -c 'write core.append 1' xfs", dir.path()),
        };
        let state = || undercroft(["stat", "--json", path, "/text"]).json();
        let before = state();
        assert!(before["flags"].as_str().unwrap().contains('a'), "{before}");
        // Nothing is left, and then a little.
        let fill = || {
            let mut step = 4 << 20;
            while step >= 1024 {
                if with_stdin(["write", "-a", path, "/fill"], &vec![b'f'; step]).code != 0 {
                    step /= 2;
                }
            }
        };
        undercroft(["touch", path, "/fill"]).succeeded();
        fill();
        undercroft(["truncate", "-s", &format!("-{freed}"), path, "/fill"]).succeeded();
        let mut len = freed + (1 << 20);
        while with_stdin(["write", "-a", path, "/text"], &vec![b'x'; len]).code != 0 {
            assert_eq!(state(), before, "{family}: {len} bytes");
            len -= freed / 64;
        }
        assert!((least..freed).contains(&len), "{family}: {len} bytes fit");
        fill();
        with_stdin(["write", "-a", path, "/text"], b"last\n").succeeded();
        assert_eq!(undercroft(["cat", path, "/text"]).succeeded()[6 + len..], *b"last\n");
        assert_sound(&image, family);
    }
}

#[test]
fn an_append_that_fails_leaves_the_file_as_it_was() {
    for family in ["ext4", "xfs"] {
        let dir = tempfile::tempdir().unwrap();
        let image = image(dir.path(), family);
        let path = image.to_str().unwrap();
        make_text_with_capability(path);
        let of =
            |state: serde_json::Value| ["size_bytes", "xattrs", "modified"].map(|name| state[name].clone());
        let state = || of(undercroft(["stat", "--json", path, "/text"]).json());
        let before = state();
        let much = vec![b'x'; 310 << 20];
        assert!(with_stdin(["write", "-a", path, "/text"], &much).failed(7).contains("no space"));
        assert_eq!(state(), before);
        assert_eq!(undercroft(["cat", path, "/text"]).succeeded(), b"first\n");
        assert_sound(&image, family);
    }
}

/// Below `trap '' INT` the signal stays ignored, before, in and after the text.
#[test]
fn an_ignored_signal_stays_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    undercroft(["touch", path, "/text"]).succeeded();
    let ended = type_text_below("'' INT", "SigIgn:", dir.path(), "one\r", "two\r\u{4}", None);
    assert_eq!(ended, (0, true));
    let ended = type_text_below("'' INT", "SigIgn:", dir.path(), "three\r", "\u{3}\u{4}", None);
    assert_eq!(ended, (0, true));
    let text = undercroft(["cat", path, "/text"]).succeeded();
    // The key drops the line that is being typed, and nothing else.
    assert_eq!(String::from_utf8(text).unwrap(), "one\ntwo\nthree\n");
}
