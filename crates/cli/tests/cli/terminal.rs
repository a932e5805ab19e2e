//! On a terminal names are escaped and coloured; in a pipe they are bytes. script(1) provides the terminal.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use undercroft_oracle::{Image, Mke2fs, MountMode};

use crate::support::{PROGRAM, on_terminal, run};

fn odd() -> Image {
    let image = Mke2fs::new("ext4", 8).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    std::fs::write(mount.path().join("red\u{1b}[31m"), "").unwrap();
    std::fs::create_dir(mount.path().join("dir")).unwrap();
    mount.unmount().unwrap();
    image
}

/// Runs the program on a terminal of its own.
fn shown_on_terminal(image: &Image, args: &str, env: &[(&str, &str)]) -> String {
    let command = format!("{PROGRAM} {args} {}", image.path().display());
    let mut script = on_terminal(&command);
    script.env_remove("NO_COLOR").env("TERM", "xterm");
    let run = run(script.envs(env.iter().copied()));
    assert_eq!(run.code, 0, "{}", run.stderr);
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn a_name_cannot_talk_to_the_terminal() {
    let image = odd();
    for args in ["ls --color never", "ls -l --color never", "tree --color never"] {
        let shown = shown_on_terminal(&image, args, &[]);
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
    assert!(shown_on_terminal(&image, "ls", &[]).contains(BLUE_DIRECTORY));
    assert!(!shown_on_terminal(&image, "ls", &[("NO_COLOR", "1")]).contains('\u{1b}'));
    let forced = run(Command::new(PROGRAM).args(["ls", "--color", "always"]).arg(image.path())).succeeded();
    assert!(String::from_utf8(forced).unwrap().contains(BLUE_DIRECTORY));
    let info = run(Command::new(PROGRAM).arg("info").arg(image.path())).text();
    assert!(!info.contains('\u{1b}'));
}

#[test]
fn an_archive_is_not_for_a_terminal() {
    let image = odd();
    let command = format!("{PROGRAM} get --tar {} /", image.path().display());
    let run = run(&mut on_terminal(&command));
    assert_eq!(run.code, 2);
    let shown = String::from_utf8(run.stdout).unwrap();
    assert!(shown.contains("a tar archive is not for a terminal; send it into a file or a pipe"), "{shown}");
}

/// An image that was copied while in use looks as if it still were, which takes a while to see through.
#[test]
fn a_wait_for_another_host_is_told_on_a_terminal() {
    let mke2fs = Mke2fs::new("ext4", 8).features("mmp,^metadata_csum").extended("mmp_update_interval=1");
    let image = mke2fs.make().unwrap();
    let file = File::options().read(true).write(true).open(image.path()).unwrap();
    let mut mmp_block = [0; 8];
    file.read_exact_at(&mut mmp_block, 1024 + 0x168).unwrap();
    let mut block_bytes = [0; 4];
    file.read_exact_at(&mut block_bytes, 1024 + 0x18).unwrap();
    let mmp = u64::from_le_bytes(mmp_block) * (1024 << u32::from_le_bytes(block_bytes));
    // mmp_seq: in use. mmp_nodename. mmp_check_interval, in seconds.
    file.write_all_at(&42_u32.to_le_bytes(), mmp + 4).unwrap();
    file.write_all_at(b"far\x1b[31maway\0", mmp + 16).unwrap();
    file.write_all_at(&1_u16.to_le_bytes(), mmp + 112).unwrap();

    let shown = shown_on_terminal(&image, "ls --color never", &[]);
    let told = "waiting 3 s to see whether host \"far\\x1b[31maway\" is using the image";
    assert_eq!(shown.matches(told).count(), 1, "{shown:?}");
    assert!(shown.contains("lost+found"), "{shown:?}");
    let piped = run(Command::new(PROGRAM).arg("ls").arg(image.path())).succeeded();
    assert_eq!(piped, b"lost+found\n");
}
