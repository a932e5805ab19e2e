//! What keeps an image from being mounted, and what the message says to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, Run, run, small, tool};

/// A directory that any user may enter, with `disk.img` and `mnt`, which belong to an ordinary user.
fn scene() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::copy(small(&[]).path(), dir.path().join("disk.img")).unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    for name in ["disk.img", "mnt"] {
        chown(dir.path().join(name), Some(65534), Some(65534)).unwrap();
    }
    dir
}

/// Runs a script in a mount namespace of its own. It starts in `dir`; `as_user` runs a command as an ordinary user.
fn script(dir: &Path, script: &str) -> Run {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-ec"]).current_dir(dir);
    command
        .arg(format!("as_user() {{ setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; }}\n{script}"));
    run(command.env("UNDERCROFT", PROGRAM).env("LC_ALL", "C"))
}

#[test]
fn a_container_without_the_device_is_told_how_it_gets_it() {
    let dir = scene();
    for user in ["", "as_user "] {
        let told = script(
            dir.path(),
            &format!(
                "mount -t tmpfs dev /dev\nmknod -m 666 /dev/null c 1 3\n{user}\"$UNDERCROFT\" mount disk.img mnt"
            ),
        );
        let message = told.failed(8);
        assert!(message.contains("there is no /dev/fuse"), "{message}");
        assert!(message.contains("--device /dev/fuse --cap-add SYS_ADMIN"), "{message}");
    }
}

/// No device at all is there, also no /dev/null.
#[test]
fn in_an_empty_dev_it_is_said_how_devices_get_there() {
    let dir = scene();
    let told =
        |command: &str| script(dir.path(), &format!("mount -t tmpfs dev /dev\n\"$UNDERCROFT\" {command}"));
    let message = told("info /dev/sdb").failed(3);
    assert!(message.contains("cannot open /dev/sdb") && message.contains("`--device /dev/sdb`"), "{message}");
    let message = told("mkfs ext4 /dev/sdb --size 10M").failed(3);
    assert!(
        message.contains("/dev/sdb does not exist") && message.contains("`--device /dev/sdb`"),
        "{message}"
    );
    for how in ["", "-f"] {
        let message = told(&format!("mount {how} disk.img mnt")).failed(8);
        assert!(message.contains("there is no /dev/null"), "{message}");
        assert!(message.contains("`docker run --device /dev/fuse`"), "{message}");
    }
    assert!(told("info disk.img").text().contains("ext4"));
}

/// No devices, no /proc, no HOME, and nowhere to write but one directory: what needs no mount works.
#[test]
fn a_bare_container_reads_and_makes_images() {
    let dir = scene();
    let bare = |command: &str| {
        script(
            dir.path(),
            &format!(
                "mount -t tmpfs dev /dev\nmount -t tmpfs proc /proc\nexport TMPDIR=/none\nunset HOME XDG_RUNTIME_DIR\n\
                 as_user \"$UNDERCROFT\" {command}"
            ),
        )
    };
    tool("chown 65534:65534 .", dir.path());
    let uuid = |name: &str| {
        bare(&format!("mkfs ext4 {name} --size 8M")).succeeded();
        bare(&format!("info --json {name}")).json()["uuid"].to_string()
    };
    assert_ne!(uuid("one.img"), uuid("two.img"));
    bare("md create -l 1 --member-size 8M a b").succeeded();
    assert!(bare("ls one.img").text().contains("lost+found"));
    // The files are root's, which this user cannot give them to.
    assert_eq!(bare("get one.img / copy").code, 0);
    bare("check one.img").succeeded();
    let tour = bare("tour --json").json();
    assert_eq!(tour["array"]["without_it"]["wrong"], serde_json::json!([]));
    let message = bare("unmount mnt").failed(8);
    assert!(message.contains("there is no /proc/self/mountinfo, which lists what is mounted"), "{message}");
}

#[test]
fn root_without_the_right_to_mount_is_told_what_a_container_lacks() {
    let dir = scene();
    let told = script(dir.path(), "setpriv --bounding-set -sys_admin \"$UNDERCROFT\" mount disk.img mnt");
    let message = told.failed(8);
    assert!(message.contains("--cap-add SYS_ADMIN"), "{message}");
}

#[test]
fn an_image_that_cannot_be_written_to_says_so() {
    let dir = scene();
    let told = script(dir.path(), "chmod 444 disk.img\nas_user \"$UNDERCROFT\" mount -o rw disk.img mnt");
    let message = told.failed(3);
    assert!(message.contains("may read it and not write to it"), "{message}");
    let told =
        script(dir.path(), "mkdir ro\nmount --bind -o ro . ro\n\"$UNDERCROFT\" mount -o rw ro/disk.img mnt");
    let message = told.failed(3);
    assert!(message.contains("Read-only file system; it can only be read there"), "{message}");
    assert!(message.contains("to read it, leave out \"rw\""), "{message}");
    // Other commands have no such option.
    for command in ["mkfs ext4 -F ro/disk.img", "grow ro/disk.img 20M"] {
        let told =
            script(dir.path(), &format!("mkdir -p ro\nmount --bind -o ro . ro\n\"$UNDERCROFT\" {command}"));
        let message = told.failed(3);
        assert!(
            message.ends_with("it can only be read there; copy it to another filesystem to change it"),
            "{message}"
        );
    }
}

#[test]
fn a_second_mount_of_a_user_on_one_directory_is_refused() {
    let dir = scene();
    let told = script(
        dir.path(),
        "cp disk.img other.img\nas_user \"$UNDERCROFT\" mount disk.img mnt\n\
         as_user \"$UNDERCROFT\" mount other.img mnt || code=$?\n\
         as_user \"$UNDERCROFT\" unmount mnt\nexit $code",
    );
    let message = told.failed(8);
    assert!(
        message.contains("is mounted there already (fuse.undercroft.ext4): unmount it first"),
        "{message}"
    );
}
