//! On a terminal names are escaped and coloured; in a pipe they are bytes. script(1) provides the terminal.

use std::process::Command;

use undercroft_oracle::{Image, Mke2fs, MountMode};

use crate::support::{PROGRAM, run};

fn odd() -> Image {
    let image = Mke2fs::new("ext4", 8).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    std::fs::write(mount.path().join("red\u{1b}[31m"), "").unwrap();
    std::fs::create_dir(mount.path().join("dir")).unwrap();
    mount.unmount().unwrap();
    image
}

/// Runs the program on a terminal of its own.
fn on_terminal(image: &Image, args: &str, env: &[(&str, &str)]) -> String {
    let command = format!("{PROGRAM} {args} {}", image.path().display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm");
    let run = run(script.envs(env.iter().copied()));
    assert_eq!(run.code, 0, "{}", run.stderr);
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn a_name_cannot_talk_to_the_terminal() {
    let image = odd();
    for args in ["ls --color never", "ls -l --color never", "tree --color never"] {
        let shown = on_terminal(&image, args, &[]);
        assert!(shown.contains("red\\x1b[31m"), "{args}: {shown:?}");
        assert!(!shown.contains('\u{1b}'), "{args}: {shown:?}");
    }
    let piped = run(Command::new(PROGRAM).arg("ls").arg(image.path())).succeeded();
    assert_eq!(piped, b"dir\nlost+found\nred\x1b[31m\n");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let image = odd();
    const BLUE_DIRECTORY: &str = "\u{1b}[1m\u{1b}[34mdir\u{1b}[0m";
    assert!(on_terminal(&image, "ls", &[]).contains(BLUE_DIRECTORY));
    assert!(!on_terminal(&image, "ls", &[("NO_COLOR", "1")]).contains('\u{1b}'));
    let forced = run(Command::new(PROGRAM).args(["ls", "--color", "always"]).arg(image.path())).succeeded();
    assert!(String::from_utf8(forced).unwrap().contains(BLUE_DIRECTORY));
    let info = run(Command::new(PROGRAM).arg("info").arg(image.path())).text();
    assert!(!info.contains('\u{1b}'));
}

#[test]
fn an_archive_is_not_for_a_terminal() {
    let image = odd();
    let command = format!("{PROGRAM} get --tar {} /", image.path().display());
    let run = run(Command::new("script").args(["-qec", &command, "/dev/null"]));
    assert_eq!(run.code, 2);
    let shown = String::from_utf8(run.stdout).unwrap();
    assert!(shown.contains("a tar archive is not for a terminal; send it into a file or a pipe"), "{shown}");
}
