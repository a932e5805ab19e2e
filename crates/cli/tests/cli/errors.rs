//! Every way to fail has its exit code and one sentence that says what, where, and what to do.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use undercroft_oracle::Mke2fs;

use crate::support::{PROGRAM, run, small, undercroft};

#[test]
fn nonsense_is_a_usage_error() {
    for args in [&["no-such-command"][..], &["ls"], &["tree", "-L", "0", "x"], &["get", "x", "/"], &[]] {
        let run = undercroft(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{args:?}");
    }
    let message = undercroft(["ls", "disk.img?part="]).failed(2);
    assert_eq!(
        message,
        "disk.img?part=: what follows `?part=` is no number or name of a partition; partitions are counted from 1"
    );
}

#[test]
fn an_image_that_cannot_be_opened_is_named() {
    let message = undercroft(["info", "/nonexistent/disk.img"]).failed(3);
    assert_eq!(message, "cannot open /nonexistent/disk.img: No such file or directory; check the path");
    let message = undercroft(["info", "/"]).failed(3);
    assert!(message.starts_with("/ is a directory"), "{message}");
}

/// Habits from other programs are met with what is right here.
#[test]
fn habits_of_other_programs_are_taken_or_answered() {
    let image = small(&[("/etc/file", "x")]);
    let path = image.path().to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    let message = here(&["ls", &format!("{path}:/etc")]).failed(3);
    assert!(message.ends_with(&format!("; a path inside the image stands apart: {path} /etc")), "{message}");
    // An archive has no name on the command line; nothing is written that looks like one.
    let run = here(&["get", "--tar", path, "/etc", "out.tar"]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.ends_with("; `--tar` writes to standard output: send that into a file\n"),
        "{}",
        run.stderr
    );
    let run = here(&["get", "--tar", path, "/", "out.tar"]);
    assert_eq!((run.code, run.stdout.len()), (7, 0));
    here(&["get", "-a", path, "etc/file", "copy"]).succeeded();
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), b"x");
    assert!(here(&["fsck", "-fn", path]).text().contains("clean"));
    assert_eq!(here(&["fsck", "-y", path]).code, 16);
    // No hint that an option could be a path.
    let unknown = here(&["check", "-y", path]);
    assert!(
        unknown.stderr.contains("unexpected argument '-y'") && !unknown.stderr.contains("tip:"),
        "{}",
        unknown.stderr
    );
    here(&["mkfs", "-t", "ext2", "-j", "-q", "new.img", "8M"]).succeeded();
    crate::support::tool("e2fsck -fn new.img", dir.path());
    let features = here(&["info", "--json", "new.img"]).json()["features"].to_string();
    assert!(features.contains("has_journal") && !features.contains("extent"), "{features}");
    let point = here(&["mount", "-t", "ext4", path, "none"]).failed(8);
    assert!(point.contains("make the directory first"), "{point}");
}

#[test]
fn what_holds_no_known_filesystem_is_unsupported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let shown = path.display();
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let message = undercroft([OsStr::new("ls"), path.as_os_str()]).failed(4);
    assert_eq!(
        message,
        format!(
            "{shown} holds no filesystem that this program knows; it opens ext2, ext3, ext4 and XFS, on a whole disk or in a partition"
        )
    );
    let file = fs::File::create(&path).unwrap();
    file.set_len(400 << 20).unwrap();
    crate::support::tool(&format!("mkswap -q {shown}"), dir.path());
    let message = undercroft([OsStr::new("ls"), path.as_os_str()]).failed(4);
    assert_eq!(
        message,
        format!(
            "{shown} holds Linux swap space, which this version cannot open; it opens ext2, ext3, ext4 and XFS"
        )
    );
}

#[test]
fn a_corrupt_superblock_is_corruption() {
    let image = small(&[]);
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    // s_blocks_count_lo, which the superblock's checksum covers.
    file.write_all_at(&[0x13, 0x37], 1024 + 4).unwrap();
    let message = undercroft([OsStr::new("info"), image.path().as_os_str()]).failed(5);
    assert!(message.contains("superblock") && message.contains("checksum"), "{message}");
    assert!(message.ends_with("; work on a copy, and let e2fsck look at it"), "{message}");
}

#[test]
fn an_unknown_feature_is_unsupported_by_name() {
    let image = Mke2fs::new("ext4", 8).features("^metadata_csum").make().unwrap();
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    // s_feature_incompat: a bit without a meaning.
    let mut incompat = [0; 4];
    file_read(&image, 1024 + 0x60, &mut incompat);
    incompat[3] |= 0x40;
    file.write_all_at(&incompat, 1024 + 0x60).unwrap();
    let message = undercroft([OsStr::new("info"), image.path().as_os_str()]).failed(4);
    assert!(message.contains("FEATURE_I30"), "{message}");
}

fn file_read(image: &undercroft_oracle::Image, offset: u64, bytes: &mut [u8]) {
    fs::File::open(image.path()).unwrap().read_exact_at(bytes, offset).unwrap();
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    let image = small(&[("/dir/file", "x")]);
    let at = |command: &str, path: &str| run(Command::new(PROGRAM).arg(command).arg(image.path()).arg(path));
    assert_eq!(at("cat", "/dir/none").failed(7), "/dir/none: no such file or directory");
    assert_eq!(at("cat", "/dir").failed(7), "/dir: is a directory");
    assert_eq!(at("stat", "dir/file/below").failed(7), "/dir/file/below: not a directory");
    assert_eq!(at("ls", "").failed(2), "the path inside the image is empty; the root is `/`");
    // A name cannot talk to the terminal through a message.
    assert_eq!(at("ls", "/\x1b[31m\n").failed(7), "/\\x1b[31m\\n: no such file or directory");
}

#[test]
fn some_of_many_is_a_code_of_its_own() {
    let image = small(&[("/a", "first\n"), ("/b", "second\n")]);
    let run = run(Command::new(PROGRAM).arg("cat").arg(image.path()).args(["/a", "/none", "/b"]));
    assert_eq!((run.code, run.stdout.as_slice()), (1, &b"first\nsecond\n"[..]));
    assert_eq!(run.stderr, "undercroft: /none: no such file or directory\n");
}

#[test]
fn df_has_no_table_where_nothing_could_be_opened() {
    let image = small(&[]);
    let failed = undercroft(["df", "/nonexistent/disk.img"]);
    assert_eq!((failed.code, failed.stdout.as_slice()), (3, &b""[..]), "{}", failed.stderr);
    let some = undercroft([OsStr::new("df"), OsStr::new("/nonexistent/disk.img"), image.path().as_os_str()]);
    assert_eq!((some.code, some.stdout.split(|&byte| byte == b'\n').count()), (1, 3), "{}", some.stderr);
}

/// The names that a copy tells are for the one who watches; the copy is for all.
#[test]
fn a_copy_goes_on_when_nobody_reads_its_names() {
    let image = small(&[("/a", "1\n"), ("/b", "2\n"), ("/c", "3\n")]);
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut get = Command::new(PROGRAM);
    get.arg("get").arg("-v").arg(image.path()).args(["/", "copy"]).current_dir(dir.path());
    let output = get.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(dir.path().join("copy/c")).unwrap(), b"3\n");
}

#[test]
fn a_failing_output_is_told_and_a_closed_pipe_is_not() {
    let image = small(&[("/a", "content\n")]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(PROGRAM).arg("cat").arg(image.path()).arg("/a").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(8));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "undercroft: cannot write to standard output: No space left on device\n"
    );
    for args in [
        &["ls"][..],
        &["info"],
        &["tree", "--json"],
        &["get", "--tar"],
        &["completions", "bash"],
        &["man"],
        &["tour"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM);
        command.args(args);
        if !["completions", "man", "tour"].contains(&args[0]) {
            command.arg(image.path());
        }
        if args[0] == "get" {
            command.arg("/");
        }
        let output = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
}
