//! `shell`: many commands on one open image, from a script and at a terminal.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::edit::{assert_sound, image, with_stdin};
use crate::support::{PROGRAM, on_terminal, run, undercroft};

#[test]
fn a_script_is_done_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for family in ["ext4", "xfs"] {
        let image = image(dir.path(), family);
        let path = image.to_str().unwrap();
        let script = "# a comment\n\
             mkdir -p /srv/www 'a b'; cd /srv\n\
             touch www/index \"www/two words\" \\\n  www/more\n\
             chown -R 33:44 www\n\
             cd www\n\
             pwd\n\
             ls\n\
             mv ../www/more ../moved\n\
             stat --json index\n";
        let said = with_stdin(["shell", path], script.as_bytes()).text();
        assert!(said.starts_with("/srv/www\nindex\nmore\ntwo words\n"), "{said}");
        let stat: serde_json::Value = serde_json::from_str(said.lines().nth(4).unwrap()).unwrap();
        assert_eq!((&stat["path"], &stat["uid"]), (&"/srv/www/index".into(), &33.into()));
        // As the plain commands print it.
        let listed = undercroft(["shell", path, "-c", "ls -la /srv; tree /"]).text();
        let plain = undercroft(["ls", "-la", path, "/srv"]).text() + &undercroft(["tree", path, "/"]).text();
        assert_eq!(listed, plain);
        assert_sound(&image, family);
    }
}

#[test]
fn a_script_ends_with_its_first_failure() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    let script = dir.path().join("script");
    for (commands, code, words) in [
        ("mkdir /a\n\nrm /missing\nmkdir /never\n", 7, "line 3: this command failed"),
        ("touch /b\nnonsense /x\nmkdir /never\n", 2, "line 2: unrecognized subcommand 'nonsense'"),
        ("touch /c\nls |\nmkdir /never\n", 2, "line 2: the line cannot be read: `|`"),
        ("touch /d\\\n /e\nchmod 9 /d\nmkdir /never\n", 2, "line 3: 9 is no mode"),
        ("exit\nmkdir /never\n", 0, ""),
        ("write /f\nmkdir /never\n", 0, ""),
    ] {
        fs::write(&script, commands).unwrap();
        let run = undercroft(["shell", path, script.to_str().unwrap()]);
        let never = commands.starts_with("write");
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains(words), "{commands}: {}", run.stderr);
        let names = undercroft(["ls", path]).text();
        assert_eq!(names.contains("never"), never, "{commands}");
    }
    let names = undercroft(["ls", path]).text();
    assert_eq!(names, "a\nb\nc\nd\ne\nf\nlost+found\nnever\n");
    // Standard input has the commands, and no content.
    let refusal = with_stdin(["shell", path], b"write /f\n").failed(2);
    assert!(refusal.contains("line 1: standard input has the commands"), "{refusal}");
    assert_sound(&image, "ext4");
}

#[test]
fn what_cannot_be_written_to_is_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    let before = fs::read(&image).unwrap();
    let refusal = undercroft(["shell", "--read-only", path, "-c", "ls; mkdir /d"]);
    assert_eq!((refusal.code, &refusal.stdout[..]), (7, &b"lost+found\n"[..]), "{}", refusal.stderr);
    assert!(refusal.stderr.contains("read-only"), "{}", refusal.stderr);
    assert!(fs::read(&image).unwrap() == before);
    // As another user: root may write to everything.
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::set_permissions(&image, PermissionsExt::from_mode(0o444)).unwrap();
    let program = dir.path().join("undercroft");
    crate::support::copy_program(&program);
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    let looked = run(user.args(["shell", path, "-c", "pwd; ls"]));
    assert_eq!((looked.code, &looked.stdout[..]), (0, &b"/\nlost+found\n"[..]), "{}", looked.stderr);
    assert!(looked.stderr.contains("is open for looking only"), "{}", looked.stderr);
}

#[test]
fn lines_are_typed_and_completed_at_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let state = dir.path().join("state");
    undercroft(["mkdir", "-p", image.to_str().unwrap(), "/directory/below"]).succeeded();
    let command = format!("{PROGRAM} shell {}", image.display());
    let mut script = on_terminal(&command);
    script.env("XDG_STATE_HOME", &state).env("TERM", "xterm");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let mut said = Vec::new();
    // Tab completes a command, a path and a name with a space. Each line is typed when the program asks for it.
    for typed in ["touc\t'/a b'", "rm /mis", "cd dir\t", "pwd", "touch here", "rm /a\t", "exit"] {
        let asked = said.len();
        while !String::from_utf8_lossy(&said[asked..]).contains("\u{1b}[?2004h") {
            let mut piece = [0; 4096];
            let read = screen.read(&mut piece).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&piece[..read]);
        }
        keys.write_all(typed.as_bytes()).unwrap();
        keys.write_all(b"\r").unwrap();
    }
    screen.read_to_end(&mut said).unwrap();
    let status = child.wait().unwrap();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(status.success(), "{said}");
    assert!(said.contains("ext4:/> ") && said.contains("ext4:/directory> "), "{said}");
    assert!(said.contains("/mis: no such file"), "{said}");
    assert_eq!(undercroft(["ls", image.to_str().unwrap(), "/"]).text(), "directory\nlost+found\n");
    assert_eq!(undercroft(["ls", image.to_str().unwrap(), "/directory"]).text(), "below\nhere\n");
    let history = fs::read_to_string(state.join("undercroft/history")).unwrap();
    assert!(history.contains("touch here"), "{history}");
    assert_sound(&image, "ext4");
}

/// At a terminal one Ctrl-D ends the text, and Ctrl-C abandons it and nothing else.
#[test]
fn a_text_is_typed_at_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let command = format!("{PROGRAM} shell {}", image.display());
    let mut script = on_terminal(&command);
    script.env("XDG_STATE_HOME", dir.path()).env("TERM", "xterm");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut screen = child.stdout.take().unwrap();
    let mut said = Vec::new();
    let mut seen = 0;
    // What is waited for, and what is typed then.
    for (asked, typed) in [
        ("\u{1b}[?2004h", "touch /before\r"),
        ("\u{1b}[?2004h", "write /text\r"),
        ("\u{1b}[?2004l", "one\r"),
        ("one\r\n", "two\r"),
        ("two\r\n", "\u{4}"),
        ("\u{1b}[?2004h", "write /left\r"),
        ("\u{1b}[?2004l", "three\r"),
        ("three\r\n", "fo\u{3}"),
        ("was abandoned", ""),
        ("\u{1b}[?2004h", "write -a /text\r"),
        ("\u{1b}[?2004l", "gone\r"),
        ("gone\r\n", "\u{3}"),
        ("was abandoned", ""),
        ("\u{1b}[?2004h", "exit\r"),
    ] {
        let at = loop {
            if let Some(at) = String::from_utf8_lossy(&said[seen..]).find(asked) {
                break at;
            }
            let mut piece = [0; 4096];
            let read = screen.read(&mut piece).unwrap();
            assert!(read > 0, "{asked:?}: {}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&piece[..read]);
        };
        seen += at + asked.len();
        if typed == "one\r" || typed == "three\r" || typed == "gone\r" {
            // The terminal gets the settings of the text a moment after those of the line are gone.
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        keys.write_all(typed.as_bytes()).unwrap();
    }
    screen.read_to_end(&mut said).unwrap();
    child.wait().unwrap();
    let path = image.to_str().unwrap();
    assert_eq!(undercroft(["ls", path, "/"]).text(), "before\nlost+found\ntext\n");
    assert_eq!(undercroft(["cat", path, "/text"]).text(), "one\ntwo\n");
    assert_sound(&image, "ext4");
}
