//! What `--exclude` leaves out is not opened: an ordinary user may have no right to.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, Run, run, tool, undercroft};

const USER: u32 = 1000;

/// A directory of a user, with `ex/priv`, which the user may not enter, and `ex/sub/file`; and an empty image.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let script =
        "mkdir -p ex/priv ex/sub; echo text > ex/sub/file; echo secret > ex/priv/key; chmod 000 ex/priv";
    let made = Command::new("bash").args(["-ec", script]).current_dir(dir.path()).status().unwrap();
    assert!(made.success());
    undercroft(["mkfs", "ext4", dir.path().join("i").to_str().unwrap(), "--size", "8M"]).succeeded();
    chown(dir.path(), Some(USER), Some(USER)).unwrap();
    tool(&format!("chown -R {USER}:{USER} ex i"), dir.path());
    dir
}

fn as_user(dir: &Path, args: &str) -> Run {
    let user = USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", PROGRAM]);
    run(command.args(args.split(' ')).current_dir(dir))
}

#[test]
fn what_is_left_out_is_not_opened() {
    let dir = tree();
    let at = |args: &str| as_user(dir.path(), args);
    // As GNU tar, which is told the same.
    let user = USER.to_string();
    let tar =
        ["--reuid", &*user, "--regid", &user, "--clear-groups", "tar", "--exclude", "priv", "-cf", "t", "ex"];
    assert!(Command::new("setpriv").args(tar).current_dir(dir.path()).status().unwrap().success());
    at("put --exclude priv i ex /e").succeeded();
    at("put --exclude /ex/priv i ex /rooted").succeeded();
    at("put --exclude /priv i ex/. /content").succeeded();
    for place in ["/e", "/rooted", "/content"] {
        let found = at(&format!("find i {place} -mindepth 1")).text();
        assert_eq!(found, format!("{place}/sub\n{place}/sub/file\n"), "{place}");
    }
    at("mkfs ext4 made --from ex --exclude priv").succeeded();
    assert_eq!(at("diff --exclude priv --ignore owner,group made ex").text(), "");
}

#[test]
fn what_cannot_be_read_is_named_by_its_path() {
    let dir = tree();
    let at = |args: &str| as_user(dir.path(), args);
    let words = "ex: priv: Permission denied";
    assert_eq!(at("put i ex /e").failed(8), words);
    assert_eq!(at("put i ./ex /e").failed(8), words);
    let path = dir.path().join("ex");
    let refusal = at(&format!("put i {} /e", path.display())).failed(8);
    assert_eq!(refusal, format!("{}: priv: Permission denied", path.display()));
}

#[test]
fn a_pattern_with_a_slash_in_front_matches_no_path_of_a_source() {
    let dir = tree();
    fs::set_permissions(dir.path().join("ex/priv"), PermissionsExt::from_mode(0o755)).unwrap();
    let at = |args: &str| as_user(dir.path(), args);
    let made = at("mkfs ext4 made --from ex --exclude /sub/file --exclude priv");
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(
        made.stderr,
        "undercroft: note: --exclude /sub/file matches nothing, as paths of a source begin without a slash: write sub/file\n"
    );
    assert_eq!(at("find made / -name file -o -name key").text(), "/sub/file\n");
    at("mkfs ext4 again --from ex --exclude sub/file").succeeded();
    assert_eq!(at("find again / -name file").text(), "");
}
