//! `mount` and `unmount`: the command returns when the files are there, and leaves when they are not.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, SeekFrom};
use undercroft_oracle::{Image, Mke2fs, Tool};

use crate::support::{PROGRAM, run, small, tool, undercroft};

#[test]
fn a_mount_serves_in_the_background_until_unmounted() {
    let image = small(&[("/dir/file", "through the kernel\n")]);
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    // Relative paths: the server has its working directory elsewhere.
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    let mut command = Command::new(PROGRAM);
    run(command.args(["mount", "disk.img", "point"]).current_dir(dir.path())).succeeded();
    // Other programs look inside: a file open here would be open for a moment in every child of every other test.
    assert_eq!(tool("cat point/dir/file", dir.path()), "through the kernel\n");
    let source = tool("findmnt -no SOURCE point", dir.path());
    assert_eq!(source.trim(), dir.path().join("disk.img").display().to_string());
    tool("test ! -w point/dir/file", dir.path());

    let mut guest = Command::new("sleep").arg("1000").current_dir(point.join("dir")).spawn().unwrap();
    let message = undercroft([OsStr::new("unmount"), point.as_os_str()]).failed(8);
    guest.kill().unwrap();
    guest.wait().unwrap();
    assert!(message.contains("is in use"), "{message}");
    undercroft([OsStr::new("unmount"), point.as_os_str()]).succeeded();
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
    let message = undercroft([OsStr::new("unmount"), point.as_os_str()]).failed(8);
    assert!(message.starts_with("nothing is mounted on"), "{message}");
}

#[test]
fn a_filesystem_in_memory_is_mounted_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        let mut command = Command::new(PROGRAM);
        run(command.args(["mount", "-o", options, "tmpfs:"]).arg(dir.path()))
    };
    for wrong in ["size=much", "pdirops=maybe", "nonsense"] {
        let message = mount(wrong).failed(2);
        assert!(message.contains(wrong), "{message}");
    }
    mount("size=1M,mode=750,uid=5,pdirops=off").succeeded();
    let told = |words: &str| tool(words, dir.path()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(told("findmnt -no SOURCE,FSTYPE ."), "tmpfs: fuse.undercroft.tmpfs");
    assert_eq!(told("stat -c %a:%u ."), "750:5");
    assert_eq!(told("stat -fc %b:%S ."), "256:4096");
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "hello").unwrap();
    fs::hard_link(at("file"), at("link")).unwrap();
    fs::rename(at("link"), at("moved")).unwrap();
    fs::remove_file(at("file")).unwrap();
    assert_eq!(fs::read(at("moved")).unwrap(), b"hello");
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Linux gives the root of a tmpfs to the user that mounts it, unless `uid=` and `gid=` say otherwise.
#[test]
fn the_root_of_a_tmpfs_is_the_mounting_users() {
    const USER: u32 = 65534;
    let dir = tempfile::tempdir().unwrap();
    chown(dir.path(), Some(USER), Some(USER)).unwrap();
    let as_user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        run(command.args(args).current_dir("/"))
    };
    let point = dir.path().to_str().unwrap();
    as_user(&[PROGRAM, "mount", "-o", "mode=700", "tmpfs:", point]).succeeded();
    let told =
        as_user(&["bash", "-ec", &format!("cd {point}; echo mine > file; cat file; stat -c %a:%u:%g .")]);
    as_user(&[PROGRAM, "unmount", point]).succeeded();
    assert_eq!(told.text(), "mine\n700:65534:65534\n");
    for (options, owner) in [("mode=755", "0:0"), ("mode=755,uid=5,gid=6", "5:6")] {
        undercroft(["mount", "-o", options, "tmpfs:", point]).succeeded();
        let told = tool("stat -c %u:%g .", dir.path());
        undercroft(["unmount", point]).succeeded();
        assert_eq!(told.trim(), owner);
    }
}

/// What a script prints, which must succeed.
fn shell(script: &str, dir: &Path) -> String {
    run(Command::new("bash").args(["-ec", script]).current_dir(dir)).text()
}

/// What is written to an image is there afterwards, and Linux finds nothing wrong with it.
#[test]
fn an_image_is_changed_through_a_mount() {
    let image = small(&[("/file", "old\n")]);
    let dir = tempfile::tempdir().unwrap();
    let unmount = || undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    for options in ["rw", "rw,sync,commit=1,discard", "rw,orphan=locked,overwrite=journaled,pdirops=off"] {
        let mut command = Command::new(PROGRAM);
        run(command.args(["mount", "-o", options]).arg(image.path()).arg(dir.path())).succeeded();
        shell(
            "echo new >> file; mkdir -p d/e; ln -f file d/e/link; truncate -s 1000 d/hole; rm -f gone",
            dir.path(),
        );
        shell("echo x > gone; chmod 640 file", dir.path());
        unmount();
        image.check().unwrap();
    }
    let shown = undercroft([OsStr::new("cat"), image.path().as_os_str(), OsStr::new("/d/e/link")]).text();
    assert_eq!(shown, "old\nnew\nnew\nnew\n");
}

/// What dumpe2fs says of where an image was mounted last.
fn last_mounted(image: &Image) -> String {
    let told = Tool::new("dumpe2fs").arg("-h").arg(image.path()).run_text().unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("Last mounted on:")).unwrap();
    line.trim().to_owned()
}

#[test]
fn the_superblock_keeps_where_it_was_mounted() {
    let image = small(&[]);
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("a".repeat(100));
    fs::create_dir(&long).unwrap();
    for point in [dir.path(), &long] {
        for options in ["rw", "ro"] {
            let mut command = Command::new(PROGRAM);
            run(command.args(["mount", "-o", options]).arg(image.path()).arg(point)).succeeded();
            undercroft([OsStr::new("unmount"), point.as_os_str()]).succeeded();
            let shown = point.display().to_string();
            assert_eq!(last_mounted(&image), shown[..shown.len().min(64)], "{options}");
        }
    }
    run(Command::new(PROGRAM).arg("mount").arg(image.path()).arg(dir.path())).succeeded();
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    assert!(last_mounted(&image).ends_with("aaa"), "a mount for reading has changed it");
    image.check().unwrap();
}

#[test]
fn what_was_deleted_leaves_the_image_with_fstrim() {
    let image = Mke2fs::new("ext4", 64).block_bytes(4096).make().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        let mut command = Command::new(PROGRAM);
        run(command.args(["mount", "-o", options]).arg(image.path()).arg(dir.path())).succeeded();
    };
    let fstrim = |args: &str| {
        let script = format!("fstrim -v {args} . 2>&1");
        let output = Command::new("bash").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let on_disk = || fs::metadata(image.path()).unwrap().blocks() * 512;
    mount("rw");
    shell("yes | head -c 20M > big; yes | head -c 1M > small; sync -f .", dir.path());
    let before = on_disk();
    // The kernel tells a moment later what it has forgotten: its blocks, 5120, are free then.
    let free = "$(stat -f -c %f .)";
    shell(&format!("before={free}; rm big; until [ {free} -gt $((before + 5000)) ]; do :; done"), dir.path());
    for (wrong, why) in
        [("-o 64M", "Invalid argument"), ("-l 100", "Invalid argument"), ("-m 1G", "Invalid argument")]
    {
        let told = fstrim(wrong);
        assert!(told.contains(why), "{wrong}: {told}");
    }
    // The journal is in the way of a piece as long as a group.
    assert!(fstrim("-m 60M").contains(" 0 B "), "{}", fstrim("-m 60M"));
    assert!(on_disk() >= before);
    let told = fstrim("-o 1M -l 2M");
    let some = told.split(['(', ' ']).find_map(|word| word.parse::<u64>().ok()).unwrap();
    assert!(some <= 2 << 20, "{told}");
    let told = fstrim("");
    assert!(told.contains("bytes) trimmed"), "{told}");
    // The log has taken a little for the deletion itself.
    assert!(on_disk() + (19 << 20) <= before, "{before} bytes, then {}: {told}", on_disk());
    assert_eq!(shell("tail -c 4 small | od -An -c | tr -d ' '", dir.path()).trim(), "y\\ny\\n");
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    image.check().unwrap();
    mount("ro");
    assert!(fstrim("").contains("Read-only file system"), "{}", fstrim(""));
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
}

/// Changes on trial are seen while it is mounted, and the image has none of them.
#[test]
fn a_snapshot_leaves_the_image_as_it_is() {
    let image = small(&[("/file", "old\n")]);
    let before = image.sha256().unwrap();
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(PROGRAM).args(["mount", "--snapshot"]).arg(image.path()).arg(dir.path())).succeeded();
    assert_eq!(shell("echo new > file; rm -rf lost+found; sync -f .; cat file", dir.path()), "new\n");
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    assert_eq!(image.sha256().unwrap(), before);
    let shown = undercroft([OsStr::new("cat"), image.path().as_os_str(), OsStr::new("/file")]).text();
    assert_eq!(shown, "old\n");
}

/// The image is free again when `unmount` returns: the server is gone, not only the mount.
#[test]
fn the_image_is_free_after_unmounting() {
    let image = small(&[]);
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(PROGRAM).arg("mount").arg(image.path()).arg(dir.path())).succeeded();
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    tool(&format!("flock -xn {} true", image.path().display()), dir.path());
}

#[test]
fn the_foreground_ends_with_a_signal() {
    let image = small(&[("/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(PROGRAM)
        .args(["mount", "--foreground", "--announce"])
        .arg(image.path())
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "ready\n");
    assert_eq!(tool("cat file", dir.path()), "x");
    tool(&format!("kill -TERM {}", server.id()), dir.path());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A failure of the background process is reported once, with its own exit code.
#[test]
fn a_mount_that_fails_says_why() {
    let image = small(&[]);
    let dir = tempfile::tempdir().unwrap();
    let at = |image: &std::path::Path, point: &std::path::Path, more: &[&str]| {
        run(Command::new(PROGRAM).arg("mount").args(more).arg(image).arg(point))
    };
    let missing = dir.path().join("missing");
    let shown = missing.display();
    assert_eq!(
        at(image.path(), &missing, &[]).failed(8),
        format!(
            "cannot mount on {shown}: No such file or directory; make the directory first: mkdir {shown}"
        )
    );
    let message = at(&missing, dir.path(), &[]).failed(3);
    assert_eq!(message, format!("cannot open {shown}: No such file or directory; check the path"));
    let message = at(image.path(), dir.path(), &["-o", "ro,allow_otter"]).failed(2);
    assert_eq!(message, "mount option \"allow_otter\" is unknown; did you mean \"allow_other\"");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A file that programs cannot read, and why.
fn damaged() -> Image {
    let image = small(&[("/bad", "content that does not fit into the inode"), ("/good", "fine")]);
    image.debugfs_write(&["set_inode_field bad block[0] 0"]).unwrap();
    image
}

/// Reads the bad file twice, and the good one.
fn read_all(point: &Path, user: u32) {
    let cat = |name: &str| Command::new("cat").arg(point.join(name)).uid(user).gid(user).output().unwrap();
    for _ in 0..2 {
        let output = cat("bad");
        assert!(!output.status.success());
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.contains("Structure needs cleaning"), "{complaint}");
    }
    assert_eq!(cat("good").stdout, b"fine");
}

/// The program that reads learns an error number; the sentence that the server has must not be lost with its terminal.
#[test]
fn what_is_wrong_stands_in_the_log_that_was_named() {
    let image = damaged();
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    fs::write(dir.path().join("-faults"), "an earlier line\n").unwrap();
    let mut mount = Command::new(PROGRAM);
    mount.args(["mount", "--log=-faults"]).arg(image.path()).arg("point").current_dir(dir.path());
    run(&mut mount).succeeded();
    read_all(&point, 0);
    undercroft([OsStr::new("unmount"), point.as_os_str()]).succeeded();
    let log = fs::read_to_string(dir.path().join("-faults")).unwrap();
    let line = log.strip_prefix("an earlier line\n").and_then(|log| log.strip_suffix('\n')).unwrap();
    let (time, told) = line.split_once(' ').unwrap();
    assert!(time.len() == "2026-01-02T03:04:05Z".len() && time.ends_with('Z'), "{line}");
    let about = format!("{} on {}: corrupt extent", image.path().display(), point.display());
    assert!(told.starts_with(&about), "{line}");
    assert!(!line.contains('\n'), "said more than once: {line}");

    let mut mount = Command::new(PROGRAM);
    mount.args(["mount", "--log", "/nonexistent/log"]).arg(image.path()).arg(&point);
    let message = run(&mut mount).failed(8);
    assert_eq!(message, "cannot write the log /nonexistent/log: No such file or directory");
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
}

/// A directory in which a small filesystem and the mount of an image in it are taken away in the end.
struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        for name in ["point", "small"] {
            let _ = Command::new("umount").arg("-l").arg(self.0.join(name)).stderr(Stdio::null()).status();
        }
    }
}

/// A device that fails while it is written to: a sparse image in a filesystem that is full. The log has the moment and
/// the cause, and the end tells it again, to the program that unmounts and by the server's exit code.
#[test]
fn a_mount_that_stopped_taking_changes_does_not_end_quietly() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["small", "point"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    tool("mount -t tmpfs -o size=8M full small", dir.path());
    let _unmount = Unmounted(dir.path());
    let fail = |point: &Path| {
        // A full tmpfs may have some room left; each commit takes some of it for the log.
        let script = "dd if=/dev/zero of=file bs=1M count=16 conv=fsync
            for i in $(seq 500); do touch x$i; sync x$i || test $i -lt 5 || break; done";
        Command::new("sh").args(["-c", script]).current_dir(point).stderr(Stdio::null()).status().unwrap();
    };
    let make = || {
        let script = "rm -f small/*; truncate -s 64M small/disk.img
            mke2fs -q -t ext4 -O ^metadata_csum_seed -E lazy_itable_init=1 small/disk.img
            fallocate --dig-holes small/disk.img
            head -c 20M /dev/zero > small/rest 2> /dev/null || true";
        shell(script, dir.path());
    };
    let point = dir.path().join("point");
    make();
    let mut mount = Command::new(PROGRAM);
    mount.args(["mount", "-o", "rw", "--log", "log", "small/disk.img", "point"]).current_dir(dir.path());
    run(&mut mount).succeeded();
    fail(&point);
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    let turned = |log: &str| log.lines().filter(|line| line.contains("has become read-only")).count();
    assert_eq!(turned(&log), 1, "{log}");
    let message = undercroft([OsStr::new("unmount"), point.as_os_str()]).failed(6);
    assert!(message.contains("not everything that was written is on the disk"), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert_eq!(turned(&log), 2, "{log}");

    make();
    let mut server = Command::new(PROGRAM)
        .args(["mount", "--foreground", "--announce", "-o", "rw", "small/disk.img", "point"])
        .args(["--log", "log"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut word = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut word).unwrap();
    fail(&point);
    tool(&format!("kill -TERM {}", server.id()), dir.path());
    assert_eq!(server.wait().unwrap().code(), Some(6));
}

/// The last write of all is the one that says that the filesystem was left clean. Its place in the image was taken away,
/// and there is none.
#[test]
fn an_image_that_could_not_be_left_clean_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["small", "point"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    tool("mount -t tmpfs -o size=8M full small", dir.path());
    let _unmount = Unmounted(dir.path());
    let script = "truncate -s 16M small/disk.img; mke2fs -q -t ext4 -b 4096 small/disk.img
        fallocate --dig-holes small/disk.img";
    shell(script, dir.path());
    let mut mount = Command::new(PROGRAM);
    let options = "rw,commit=3600,commit_pause=0";
    mount.args(["mount", "-o", options, "--log", "log", "small/disk.img", "point"]).current_dir(dir.path());
    run(&mut mount).succeeded();
    let point = dir.path().join("point");
    shell("echo one > point/file", dir.path());
    undercroft([OsStr::new("sync"), point.as_os_str()]).succeeded();
    let script = "fallocate --punch-hole --length 4096 small/disk.img
        head -c 20M /dev/zero > small/rest 2> /dev/null || true";
    shell(script, dir.path());
    let message = undercroft([OsStr::new("unmount"), point.as_os_str()]).failed(6);
    assert!(message.contains("No space left on device"), "{message}");
    let log = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(log.contains("not everything that was written is on the disk"), "{log}");
}

/// Without `--log` the log lies where logs of the user's programs are kept, and there is no file without a fault.
#[test]
fn an_ordinary_user_has_a_log_too() {
    const USER: u32 = 65534;
    let image = damaged();
    let dir = tempfile::tempdir().unwrap();
    for name in ["point", "state"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        chown(dir.path().join(name), Some(USER), Some(USER)).unwrap();
    }
    let (point, log) = (dir.path().join("point"), dir.path().join("state/undercroft/mount.log"));
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    // As it is on every machine where users may mount.
    fs::set_permissions("/dev/fuse", Permissions::from_mode(0o666)).unwrap();
    // Where every user may reach it, whatever the way to the scratch directory is like.
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    let by_user = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(dir.path()).env("XDG_STATE_HOME", dir.path().join("state"));
        run(command.uid(USER).gid(USER)).succeeded();
    };
    by_user(&["mount", "disk.img", "point"]);
    assert!(!log.exists());
    read_all(&point, USER);
    by_user(&["unmount", "point"]);
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("disk.img on ") && said.contains(": corrupt extent"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(fs::metadata(log.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
}

/// A user that may write to an image could change its bytes anyhow, so with `fakeroot` that user may do in it what
/// root may; no other user gets in. Without it the owners and modes in the image decide, for the same user and the
/// same files.
#[test]
fn in_an_image_of_ones_own_one_may_do_what_root_may() {
    const USER: u32 = 65534;
    let image = small(&[("/etc/shadow", "secret"), ("/etc/passwd", "root"), ("/etc/motd", "welcome")]);
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    for name in ["point", "disk.img"] {
        chown(dir.path().join(name), Some(USER), Some(USER)).unwrap();
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions("/dev/fuse", Permissions::from_mode(0o666)).unwrap();
    let as_user = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        let state = dir.path().join("state");
        command.args(args).current_dir(dir.path()).env("XDG_STATE_HOME", state).env("LC_ALL", "C");
        command.uid(USER).gid(USER);
        command
    };
    let mounted = |options: &str, work: &dyn Fn()| {
        run(&mut as_user(PROGRAM, &["mount", "-o", options, "disk.img", "point"])).succeeded();
        work();
        run(&mut as_user(PROGRAM, &["unmount", "point"])).succeeded();
    };
    let shell = |script: &str| {
        let output = as_user("sh", &["-c", script]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    mounted("rw", &|| {
        let refused = |script| {
            let (done, complaint) = shell(script);
            assert!(!done && complaint.contains("ermi"), "{script}: {complaint}");
        };
        refused("echo more > point/etc/new");
        refused("rm -f point/etc/motd");
        refused("chown 0:0 point/etc");
        refused("chmod 700 point/etc");
        refused("echo more > point/etc/passwd");
    });
    mounted("rw,fakeroot", &|| {
        let done = shell(
            "set -e; umask 027; cd point/etc
            echo mine > mine; echo given > given; chown 12:34 given; chmod 6711 given; mkdir -m 1777 open
            rm motd; mv passwd open/; echo more >> shadow; chmod 0 shadow; cat shadow
            touch -d 2001-02-03 .; ln -s mine link; chown -h 7:8 link; mkfifo pipe; rm open/passwd",
        );
        assert_eq!(done, (true, String::new()));
        // Not even root.
        assert_eq!(fs::metadata(&point).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    });
    let message =
        run(&mut as_user(PROGRAM, &["mount", "-o", "rw,fakeroot,allow_other", "disk.img", "point"]))
            .failed(2);
    assert!(message.contains("\"allow_other\" and \"fakeroot"), "{message}");

    let changed = dir.path().join("disk.img");
    tool(&format!("e2fsck -fn {}", changed.display()), dir.path());
    let names = tool(&format!("{PROGRAM} ls -l {} /etc", changed.display()), dir.path());
    let line = |name: &str| {
        let named = |line: &&str| {
            line.split(" -> ").next().and_then(|line| line.split(' ').next_back()) == Some(name)
        };
        let line = names.lines().find(named).unwrap_or_else(|| panic!("{name} is not in {names}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(line("mine").starts_with("-rw-r-----") && line("mine").contains("65534 65534"), "{names}");
    assert!(line("given").starts_with("-rws--s--x") && line("given").contains("12 34"), "{names}");
    assert!(line("shadow").starts_with("----------") && line("shadow").contains(" 0 0 "), "{names}");
    assert!(line("link").contains(" 7 8 ") && line("pipe").contains("65534 65534"), "{names}");
    assert!(!names.contains("motd") && line("open").starts_with("drwxrwxrwt"), "{names}");
}

/// Behind the end of a directory there are no names.
#[test]
fn a_directory_ends_where_lseek_says() {
    let image = Mke2fs::new("ext4", 16).block_bytes(1024).make().unwrap();
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(PROGRAM).args(["mount", "-o", "rw"]).arg(image.path()).arg(dir.path())).succeeded();
    for (name, files) in [("few", 3), ("many", 300)] {
        let inside = dir.path().join(name);
        fs::create_dir(&inside).unwrap();
        (0..files).for_each(|number| fs::write(inside.join(format!("some-name-{number}")), "").unwrap());
    }
    let names_behind = |name: &str, from: SeekFrom| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(dir.path().join(name), flags, rustix::fs::Mode::empty()).unwrap();
        rustix::fs::seek(&open, from).unwrap();
        let mut space = Vec::with_capacity(1 << 16);
        let mut entries = rustix::fs::RawDir::new(&open, space.spare_capacity_mut());
        let mut count = 0;
        while let Some(entry) = entries.next() {
            entry.unwrap();
            count += 1;
        }
        count
    };
    let counted = ["few", "many"]
        .map(|name| [SeekFrom::Start(0), SeekFrom::End(0)].map(|from| names_behind(name, from)));
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    assert_eq!(counted, [[5, 0], [302, 0]]);
}

/// Changes of owner that are allowed, and those that are refused: as in Linux's tmpfs.
#[test]
fn chown_has_the_rules_of_the_kernel() {
    let outcomes = |dir: &Path| {
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
        fs::write(dir.join("file"), "").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        for name in ["file", "dir"] {
            chown(dir.join(name), Some(1000), Some(100)).unwrap();
        }
        fs::set_permissions(dir.join("file"), Permissions::from_mode(0o6755)).unwrap();
        let mut told = Vec::new();
        for name in ["file", "dir"] {
            for user in ["1000", "1001"] {
                for owner in ["+", "+1000", "+1001", ":+100", ":+101", "+1000:+100"] {
                    let before = fs::metadata(dir.join(name)).unwrap();
                    let mut command = Command::new("setpriv");
                    command.args(["--reuid", user, "--regid", "100", "--clear-groups", "python3", "-c"]);
                    command.arg(
                        "import os, sys\nuid, _, gid = sys.argv[2].replace('+', '').partition(':')\n\
                         os.chown(sys.argv[1], int(uid or -1), int(gid or -1))",
                    );
                    let code =
                        command.arg(dir.join(name)).arg(owner).stderr(Stdio::null()).status().unwrap().code();
                    let after = fs::metadata(dir.join(name)).unwrap();
                    let changed =
                        (before.ctime(), before.ctime_nsec()) != (after.ctime(), after.ctime_nsec());
                    let owners = (after.uid(), after.gid(), after.mode());
                    told.push(format!("{name} by {user} to {owner}: {code:?} {owners:?} {changed}"));
                }
            }
        }
        told
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["ours", "kernels"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    run(Command::new(PROGRAM)
        .args(["mount", "-o", "allow_other,suid", "tmpfs:", "ours"])
        .current_dir(dir.path()))
    .succeeded();
    tool("mount -t tmpfs kernels kernels", dir.path());
    let [ours, kernels] = ["ours", "kernels"].map(|name| {
        let told = std::panic::catch_unwind(|| outcomes(&dir.path().join(name)));
        tool(&format!("umount {name}"), dir.path());
        told.unwrap()
    });
    assert_eq!(ours, kernels);
}

/// What is changed on trial lies where TMPDIR says.
#[test]
fn a_snapshot_keeps_its_changes_in_tmpdir() {
    let image = small(&[("/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    let (point, changes) = (dir.path().join("point"), dir.path().join("changes"));
    fs::create_dir(&point).unwrap();
    let mount = |tmpdir: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["mount", "--snapshot"]).arg(image.path()).arg(&point);
        run(command.env("TMPDIR", tmpdir))
    };
    let message = mount(&changes).failed(8);
    assert!(message.contains("changes") && message.contains("set TMPDIR to a directory"), "{message}");
    fs::create_dir(&changes).unwrap();
    mount(&changes).succeeded();
    fs::write(point.join("new"), "y").unwrap();
    let mounted = undercroft(["info", "--json", point.to_str().unwrap()]).json();
    let process = mounted["mount"]["process"].as_u64().unwrap();
    let open: Vec<_> = fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .collect();
    undercroft([OsStr::new("unmount"), point.as_os_str()]).succeeded();
    assert!(open.iter().any(|file| file.starts_with(&changes)), "{open:?}");
}
