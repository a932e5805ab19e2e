//! Changing what is known about files: modes, owners, times, attributes, lists, flags.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, IFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};
use undercroft_fuse::unmount;

use crate::both::{Answers, Ours, same_answers};
use crate::sample::{ACL, NOBODY};
use crate::support::{command, wait_for_tick};

fn mode_and_owner(path: &Path) -> (String, u32, u32) {
    let found = fs::symlink_metadata(path).unwrap();
    (format!("{:o}", found.mode()), found.uid(), found.gid())
}

/// Whether a shell of this user can do it.
fn shell(user: u32, script: &str, dir: &Path) -> bool {
    let quiet = std::process::Stdio::null();
    command(user, "sh").args(["-c", script]).current_dir(dir).stderr(quiet).status().unwrap().success()
}

#[test]
fn modes_and_owners_change() {
    same_answers(|dir, answers| {
        let file = dir.join("file");
        fs::write(&file, b"x").unwrap();
        answers.note("chmod", fs::set_permissions(&file, Permissions::from_mode(0o6755)));
        answers.tell("mode", mode_and_owner(&file));
        answers.note("chown", chown(&file, Some(NOBODY), Some(77)));
        answers.tell("privileges fall", mode_and_owner(&file));
        fs::set_permissions(&file, Permissions::from_mode(0o6755)).unwrap();
        answers.note("chown to the same", chown(&file, Some(NOBODY), None));
        answers.tell("privileges fall", mode_and_owner(&file));
        fs::set_permissions(&file, Permissions::from_mode(0o2745)).unwrap();
        answers.note("chgrp", chown(&file, None, Some(78)));
        answers.tell("without group execute", mode_and_owner(&file));
        fs::create_dir(dir.join("dir")).unwrap();
        fs::set_permissions(dir.join("dir"), Permissions::from_mode(0o6755)).unwrap();
        answers.note("chown", chown(dir.join("dir"), Some(NOBODY), Some(77)));
        answers.tell("directories keep them", mode_and_owner(&dir.join("dir")));
        symlink("file", dir.join("link")).unwrap();
        answers.note("lchown", std::os::unix::fs::lchown(dir.join("link"), Some(5), Some(6)));
        answers.tell("link", mode_and_owner(&dir.join("link")));
        answers.tell("its target", mode_and_owner(&file));
    });
}

#[test]
fn writing_takes_privileges_away() {
    same_answers(|dir, answers| {
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
        for (what, user, script) in [
            ("written", NOBODY, "printf x >> file"),
            ("overwritten in place", NOBODY, "printf x | dd of=file conv=notrunc status=none"),
            ("cut by opening", NOBODY, ": > file"),
            ("cut", NOBODY, "truncate -s 1 file"),
            ("grown", NOBODY, "truncate -s 100 file"),
            ("allocated", NOBODY, "fallocate -l 10000 file"),
            ("written by root", 0, "printf x >> file"),
            ("cut by root", 0, "truncate -s 1 file"),
        ] {
            for mode in [0o6777, 0o2766, 0o4777] {
                let file = dir.join("file");
                fs::write(&file, b"program").unwrap();
                fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
                assert!(shell(user, script, dir), "{script}");
                answers.tell(&format!("{what}, {mode:o}"), mode_and_owner(&file));
                fs::remove_file(&file).unwrap();
            }
        }
    });
}

#[test]
fn capabilities_fall_when_a_program_is_written_to() {
    same_answers(|dir, answers| {
        let file = dir.join("program");
        for (what, script) in
            [("write", "printf x >> program"), ("chown", "chown 5 program"), ("cut", ": > program")]
        {
            fs::write(&file, b"program").unwrap();
            assert!(Command::new("setcap").arg("cap_net_raw+ep").arg(&file).status().unwrap().success());
            assert!(shell(0, script, dir));
            let mut value = [0; 64];
            answers.call(what, rustix::fs::getxattr(&file, "security.capability", &mut value[..]));
        }
    });
}

#[test]
fn times_are_set_to_the_nanosecond() {
    same_answers(|dir, answers| {
        let file = dir.join("file");
        fs::write(&file, b"x").unwrap();
        let times = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.atime(), found.atime_nsec(), found.mtime(), found.mtime_nsec())
        };
        let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        for (what, accessed, modified) in [
            ("both", at(1, 2), at(3, 999_999_999)),
            ("before 1970", at(-2, 800_000_000), at(-1_000_000_000, 1)),
            ("after 2038", at(1 << 33, 5), at(1 << 34, 6)),
            ("one", at(0, UTIME_OMIT), at(77, 7)),
            ("the other", at(88, 8), at(0, UTIME_OMIT)),
            ("too fine", at(1, 1_000_000_000), at(1, 1)),
        ] {
            let both = Timestamps { last_access: accessed, last_modification: modified };
            answers.call(what, rustix::fs::utimensat(CWD, &file, &both, AtFlags::empty()));
            answers.tell(what, times(&file));
            answers.call(what, rustix::fs::utimensat(CWD, dir, &both, AtFlags::empty()));
            answers.tell(what, times(dir));
        }
        symlink("file", dir.join("link")).unwrap();
        let both = Timestamps { last_access: at(1, 1), last_modification: at(2, 2) };
        answers.call("link", rustix::fs::utimensat(CWD, dir.join("link"), &both, AtFlags::SYMLINK_NOFOLLOW));
        answers.tell("link", times(&dir.join("link")));
        answers.tell("its target", times(&file));
        let now = Timestamps { last_access: at(0, UTIME_NOW), last_modification: at(0, UTIME_NOW) };
        answers.call("now", rustix::fs::utimensat(CWD, &file, &now, AtFlags::empty()));
        let age = SystemTime::now().duration_since(fs::metadata(&file).unwrap().modified().unwrap());
        answers.tell("is now", age.is_ok_and(|age| age < Duration::from_secs(60)));
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        answers.tell("touched by who may write", shell(NOBODY, "touch file", dir));
        answers.tell("set by who may write", shell(NOBODY, "touch -d 2001-01-01 file", dir));
    });
}

/// The end of time, which has brought servers down.
#[test]
fn extreme_timestamps_are_stored() {
    let ours = Ours::new("");
    fs::write(ours.path("file"), b"x").unwrap();
    for seconds in [i64::MIN, i64::MIN + 1, i64::MAX] {
        let time = Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
        let both = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, ours.path("file"), &both, AtFlags::empty()).unwrap();
        assert_eq!(fs::metadata(ours.path("file")).unwrap().mtime(), seconds);
    }
}

#[test]
fn every_change_changes_the_time_of_change() {
    let ours = Ours::new("");
    let file = ours.path("file");
    fs::write(&file, b"x").unwrap();
    let changed = || {
        let found = fs::metadata(&file).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let mut last = changed();
    let mut later = |what: &str| {
        let now = changed();
        assert!(now > last, "{what}: {now:?} is not after {last:?}");
        last = now;
        wait_for_tick();
    };
    wait_for_tick();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    later("chmod");
    fs::hard_link(&file, ours.path("link")).unwrap();
    later("link");
    fs::rename(ours.path("link"), ours.path("moved")).unwrap();
    later("rename");
    fs::remove_file(ours.path("moved")).unwrap();
    later("unlink");
    OpenOptions::new().append(true).open(&file).unwrap().write_all(b"y").unwrap();
    later("write");
    rustix::fs::setxattr(&file, "user.x", b"y", XattrFlags::empty()).unwrap();
    later("setxattr");
    File::options().write(true).open(&file).unwrap().set_len(5).unwrap();
    later("truncate");
    chown(&file, None, None).unwrap();
    later("chown to nobody");
}

#[test]
fn an_owner_that_stays_is_a_change_of_a_directory_too() {
    same_answers(|dir, answers| {
        let changed = || fs::metadata(dir).map(|found| (found.ctime(), found.ctime_nsec())).unwrap();
        let before = changed();
        wait_for_tick();
        answers.note("chown", chown(dir, None, None));
        answers.tell("later", changed() > before);
    });
}

#[test]
fn extended_attributes_are_set_and_removed() {
    same_answers(|dir, answers| {
        let file = dir.join("file");
        fs::write(&file, b"x").unwrap();
        let get = |answers: &mut Answers, name: &str| {
            let mut value = vec![0; 70_000];
            let len = rustix::fs::getxattr(&file, name, &mut value[..]);
            answers.call(name, len.map(|len| value[..len].to_vec()));
        };
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&file, name, value, flags);
        answers.call("replace nothing", set("user.one", b"1", XattrFlags::REPLACE));
        answers.call("create", set("user.one", b"1", XattrFlags::CREATE));
        answers.call("create again", set("user.one", b"2", XattrFlags::CREATE));
        answers.call("replace", set("user.one", b"three", XattrFlags::REPLACE));
        get(answers, "user.one");
        answers.call("empty", set("user.empty", b"", XattrFlags::empty()));
        get(answers, "user.empty");
        answers.call("trusted", set("trusted.x", b"y", XattrFlags::empty()));
        answers.call("security", set("security.x", b"y", XattrFlags::empty()));
        answers.call("unknown", set("unknown.x", b"y", XattrFlags::empty()));
        answers.call("too long a name", set(&format!("user.{}", "x".repeat(251)), b"y", XattrFlags::empty()));
        answers.call("too large", set("user.large", &vec![1; 65_537], XattrFlags::empty()));
        answers.call("on a link", {
            symlink("file", dir.join("link")).unwrap();
            rustix::fs::lsetxattr(dir.join("link"), "user.x", b"y", XattrFlags::empty())
        });
        answers.call("removed", rustix::fs::removexattr(&file, "user.one"));
        answers.call("removed again", rustix::fs::removexattr(&file, "user.one"));
        get(answers, "user.one");
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
        answers.tell("by a stranger", shell(NOBODY, "setfattr -n user.x -v y file", dir));
    });
}

#[test]
fn lists_decide_and_are_inherited() {
    same_answers(|dir, answers| {
        let file = dir.join("file");
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        fs::write(&file, b"x").unwrap();
        let list = "system.posix_acl_access";
        answers.call("set", rustix::fs::setxattr(&file, list, &ACL, XattrFlags::empty()));
        answers.tell("mode", mode_and_owner(&file));
        answers.tell("read by who is named", shell(NOBODY, "cat file", dir));
        answers.tell("written by who is named", shell(NOBODY, "printf x >> file", dir));
        answers.tell("read by a stranger", shell(NOBODY - 1, "cat file", dir));
        answers.note("chmod", fs::set_permissions(&file, Permissions::from_mode(0o600)));
        answers.tell("masked", shell(NOBODY, "cat file", dir));
        let shown = |name: &str| {
            let output = Command::new("getfacl").args(["-n", "-c", name]).current_dir(dir).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        answers.tell("list", shown("file"));
        fs::create_dir(dir.join("dir")).unwrap();
        let default = "system.posix_acl_default";
        answers.call("default", rustix::fs::setxattr(dir.join("dir"), default, &ACL, XattrFlags::empty()));
        answers.tell("made", shell(0, "umask 077; mkdir dir/sub; : > dir/file; mkfifo dir/pipe", dir));
        for name in ["dir", "dir/sub", "dir/file", "dir/pipe"] {
            answers.tell(name, (shown(name), mode_and_owner(&dir.join(name))));
        }
        answers.call("removed", rustix::fs::removexattr(&file, list));
        answers.tell("list", shown("file"));
        answers.call("nonsense", rustix::fs::setxattr(&file, list, b"nonsense", XattrFlags::empty()));
    });
}

/// Sets flags as `chattr` does.
fn set_flags(path: &Path, flags: IFlags) -> rustix::io::Result<()> {
    rustix::fs::ioctl_setflags(File::open(path).unwrap(), flags)
}

#[test]
fn immutable_and_append_only_files_are_left_alone() {
    same_answers(|dir, answers| {
        let file = dir.join("file");
        for flags in [IFlags::IMMUTABLE, IFlags::APPEND] {
            fs::write(&file, b"content").unwrap();
            fs::create_dir_all(dir.join("dir")).unwrap();
            answers.call("set", set_flags(&file, flags));
            answers.call("flags", rustix::fs::ioctl_getflags(File::open(&file).unwrap()));
            answers.note("read", fs::read(&file));
            answers.note("open", OpenOptions::new().write(true).open(&file).map(drop));
            answers.note("truncate", OpenOptions::new().write(true).truncate(true).open(&file).map(drop));
            let append = || OpenOptions::new().append(true).open(&file)?.write_all(b", more");
            answers.note("append", append());
            answers.note("append more", append());
            answers.note("content", fs::read(&file));
            answers.note("chmod", fs::set_permissions(&file, Permissions::from_mode(0o600)));
            answers.note("chown", chown(&file, Some(5), None));
            answers.note("unlink", fs::remove_file(&file));
            answers.note("rename", fs::rename(&file, dir.join("other")));
            answers.note("link", fs::hard_link(&file, dir.join("other")));
            answers.call("setxattr", rustix::fs::setxattr(&file, "user.x", b"y", XattrFlags::empty()));
            answers.tell("touch", shell(0, "touch file", dir));
            answers.call("clear", set_flags(&file, IFlags::empty()));
            answers.note("unlink", fs::remove_file(&file));
            answers.call("directory", set_flags(&dir.join("dir"), flags));
            answers.note("create", fs::write(dir.join("dir/new"), b"x"));
            answers.note("unlink", fs::remove_file(dir.join("dir/new")));
            answers.call("clear", set_flags(&dir.join("dir"), IFlags::empty()));
            fs::remove_dir_all(dir.join("dir")).unwrap();
        }
        fs::write(&file, b"x").unwrap();
        fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
        answers.tell("by a stranger", shell(NOBODY, "chattr +i file", dir));
    });
}

/// What the kernel has in its cache was accepted while the file could still be written to.
#[test]
fn bytes_written_before_a_file_was_frozen_are_kept() {
    same_answers(|dir, answers| {
        for flags in [IFlags::IMMUTABLE, IFlags::APPEND] {
            let path = dir.join("file");
            let mut file = File::create(&path).unwrap();
            answers.note("write", file.write_all(&[7; 100_000]));
            answers.call("set", set_flags(&path, flags));
            answers.note("sync", file.sync_all());
            answers.call("syncfs", rustix::fs::syncfs(File::open(dir).unwrap()));
            // Out of the kernel's cache, so that what is read comes from where it was written back to.
            let everything = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            answers.call("forget", everything);
            answers.note("content", fs::read(&path).map(|bytes| bytes == [7; 100_000]));
            answers.call("clear", set_flags(&path, IFlags::empty()));
            fs::remove_file(&path).unwrap();
        }
    });
}

#[test]
fn the_time_of_creation_is_told() {
    let ours = Ours::new("");
    let before = SystemTime::now() - Duration::from_secs(1);
    fs::write(ours.path("file"), b"x").unwrap();
    let created = fs::metadata(ours.path("file")).unwrap().created().unwrap();
    assert!(created > before && created <= SystemTime::now() + Duration::from_secs(1));
}

#[test]
fn a_handle_finds_its_file_again() {
    same_answers(|dir, answers| {
        fs::create_dir(dir.join("dir")).unwrap();
        fs::write(dir.join("dir/file"), b"content").unwrap();
        // By name, by a handle that is used after the name has moved, and after the last name has gone while
        // a program holds the file.
        let program = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]
def opened(handle, mount):
    fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    return os.read(fd, 100) if fd >= 0 else os.strerror(ctypes.get_errno())
mount = os.open(".", os.O_RDONLY)
handle, number = Handle(bytes=128), ctypes.c_int()
print(libc.name_to_handle_at(mount, b"dir/file", ctypes.byref(handle), ctypes.byref(number), 0))
print(opened(handle, mount))
os.rename("dir/file", "moved")
open("/proc/sys/vm/drop_caches", "w").write("2")
print(opened(handle, mount))
held = os.open("moved", os.O_RDONLY)
os.unlink("moved")
print(opened(handle, mount))
os.close(held)
"#;
        let output = Command::new("python3").args(["-c", program]).current_dir(dir).output().unwrap();
        answers.tell("program", String::from_utf8(output.stdout).unwrap());
        answers.tell("complaints", String::from_utf8(output.stderr).unwrap());
    });
}

/// The shutdown ioctl, as a program makes it.
fn shut_down(user: u32, dir: &Path, how: u32) -> String {
    let program = format!(
        "import fcntl,os,struct\ntry:\n fcntl.ioctl(os.open('.',os.O_RDONLY),0x8004587d,struct.pack('I',{how}))\n \
         print('done')\nexcept OSError as e:\n print(e.strerror)"
    );
    let output = command(user, "python3").args(["-c", &program]).current_dir(dir).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_shutdown_is_for_the_administrator() {
    let ours = Ours::new("");
    fs::write(ours.path("file"), b"x").unwrap();
    assert_eq!(shut_down(NOBODY, ours.root(), 0), "Operation not permitted");
    assert_eq!(shut_down(0, ours.root(), 3), "Invalid argument");
    fs::write(ours.path("file"), b"still here").unwrap();
    assert!(unmount(ours.root()).is_ok());
}

#[test]
fn trimming_is_for_the_administrator_and_for_what_is_on_a_device() {
    let ours = Ours::new("");
    let trim = |user| {
        let output = command(user, "fstrim").arg(ours.root()).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(trim(NOBODY).contains("Operation not permitted"), "{}", trim(NOBODY));
    assert!(trim(0).contains("not supported"), "{}", trim(0));
}

#[test]
fn reading_brings_times_of_access_forward_where_that_is_wanted() {
    // Past the kernel's cache, so that each reading is seen.
    for (options, forward) in
        [("relatime,direct_io", true), ("direct_io", false), ("noatime,direct_io", false)]
    {
        let ours = Ours::new(options);
        let path = ours.path("file");
        fs::write(&path, b"content").unwrap();
        let file = fs::File::open(&path).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_times(fs::FileTimes::new().set_accessed(long_ago)).unwrap();
        let times = || {
            let found = fs::metadata(&path).unwrap();
            (found.accessed().unwrap(), (found.modified().unwrap(), found.ctime(), found.ctime_nsec()))
        };
        let (_, others) = times();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        let (accessed, afterwards) = times();
        assert_eq!(accessed > long_ago, forward, "{options}");
        assert_eq!(others, afterwards, "{options}");
        // Later than the last change, and of today.
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(times().0, accessed, "{options}");
    }
}
