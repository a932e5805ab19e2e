//! What is durable without an unmount: after `sync`, after `undercroft sync`, and by itself. The server is killed and
//! the image is looked at. The clock makes nothing durable here: `commit=` is an hour.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use undercroft_oracle::{Image, Mke2fs, Served};

use crate::support::{PROGRAM, Run, undercroft};

/// Far above what it takes, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

const WAYS: [&str; 3] = ["", ",no_io_uring", ",no_io_uring,threads=1"];

fn image() -> Image {
    Mke2fs::new("ext4", 32).make().unwrap()
}

fn served(image: &Image, options: &str) -> Served {
    Served::undercroft(Path::new(PROGRAM), image.path(), &format!("rw,commit=3600{options}")).unwrap()
}

fn shell(dir: &Path, script: &str) {
    let status = Command::new("bash").args(["-ec", script]).current_dir(dir).status().unwrap();
    assert!(status.success(), "{script}");
}

/// A file of the image as a crash would leave it now.
fn cat(image: &Image, path: &str) -> Run {
    let copy = image.copy().unwrap();
    undercroft([OsStr::new("cat"), copy.path().as_os_str(), OsStr::new(path)])
}

fn has(image: &Image, path: &str, content: &str) -> bool {
    let found = cat(image, path);
    found.code == 0 && found.stdout == content.as_bytes()
}

fn sync(dir: &Path) -> Run {
    undercroft([OsStr::new("sync"), dir.as_os_str()])
}

#[test]
fn what_was_changed_is_durable_when_changes_pause() {
    for way in WAYS {
        let image = image();
        let mount = served(&image, way);
        shell(mount.path(), "echo one > f; mv f g; echo two > h; sync");
        let began = Instant::now();
        while !has(&image, "/h", "two\n") {
            assert!(began.elapsed() < PATIENCE, "{way}: {:?}", cat(&image, "/h"));
        }
        mount.kill().unwrap();
        assert!(has(&image, "/g", "one\n") && has(&image, "/h", "two\n"), "{way}");
        assert_ne!(cat(&image, "/f").code, 0, "{way}");
        // Recovery has the rest to do.
        served(&image, way).unmount().unwrap();
        image.check().unwrap();
    }
}

/// Whether the server has the thread that makes changes durable in pauses.
fn has_syncing_thread(mount: &Served) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", mount.server_id())).unwrap();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.any(|name| name.trim() == "fuse-sync")
}

/// The clock and that thread apart, nothing is made durable by itself.
#[test]
fn without_a_pause_it_is_for_those_to_ask_who_want_it() {
    for (pause, is_there) in [("", true), (",commit_pause=0", false)] {
        let image = image();
        let mount = served(&image, pause);
        shell(mount.path(), "echo one > f; sync");
        if is_there {
            let began = Instant::now();
            while !has_syncing_thread(&mount) {
                assert!(began.elapsed() < PATIENCE, "looked for by a wrong name");
            }
        } else {
            assert!(!has_syncing_thread(&mount));
        }
        sync(mount.path()).succeeded();
        assert!(has(&image, "/f", "one\n"));
        mount.kill().unwrap();
    }
}

/// What the kernel caches of open and of mapped files is written back for it.
#[test]
fn everything_is_durable_after_a_sync_by_name() {
    for way in WAYS {
        let image = image();
        let mount = served(&image, &format!("{way},commit_pause=0"));
        shell(mount.path(), "mkdir d; echo closed > d/closed");
        let mut open = File::create(mount.path().join("d/open")).unwrap();
        open.write_all(b"open\n").unwrap();
        let unnamed = mount.path().join("d/unnamed");
        let mut gone = File::create(&unnamed).unwrap();
        gone.write_all(b"gone\n").unwrap();
        fs::remove_file(&unnamed).unwrap();
        let mapping = "import mmap, os, sys\n\
             fd = os.open('d/mapped', os.O_RDWR | os.O_CREAT); os.truncate(fd, 4096)\n\
             map = mmap.mmap(fd, 4096); os.close(fd); map[0:7] = b'mapped\\n'\n\
             print('mapped', flush=True); sys.stdin.read()";
        let mut mapper = Command::new("python3")
            .args(["-c", mapping])
            .current_dir(mount.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut told = std::io::BufReader::new(mapper.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut told, &mut line).unwrap();
        assert_eq!(line, "mapped\n");

        // Any directory inside will do.
        sync(&mount.path().join("d")).succeeded();
        assert!(has(&image, "/d/closed", "closed\n"), "{way}");
        assert!(has(&image, "/d/open", "open\n"), "{way}: {:?}", cat(&image, "/d/open"));
        assert!(cat(&image, "/d/mapped").stdout.starts_with(b"mapped\n"), "{way}");
        mount.kill().unwrap();
        mapper.kill().unwrap();
        mapper.wait().unwrap();
        drop((open, gone));
        served(&image, way).unmount().unwrap();
        image.check().unwrap();
    }
}

#[test]
fn a_sync_of_what_is_not_ours_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let told = sync(dir.path()).failed(8);
    assert!(told.contains("is not in a mount of undercroft's"), "{told}");
}

/// A mount that may fill memory is served by threads that the kernel does not make wait for that memory. Where that
/// cannot be had, it may not fill memory.
#[test]
fn a_mount_that_may_fill_memory_is_served_by_io_flushers() {
    const FLUSHER: u64 = 0x0018_0000;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    // CAP_SYS_RESOURCE, which containers may lack.
    let may = u64::from_str_radix(capabilities, 16).unwrap() & (1 << 24) != 0;
    for way in WAYS {
        let image = image();
        let mount = served(&image, way);
        shell(mount.path(), "echo one > f; cat f > g");
        let device = fs::metadata(mount.path()).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let ratio = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/max_ratio")).unwrap();
        assert!(may || ratio.trim() != "40", "{way}: {ratio}");
        let tasks = fs::read_dir(format!("/proc/{}/task", mount.server_id())).unwrap();
        let mut threads = 0;
        for task in tasks {
            let Ok(stat) = fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
            let (name, rest) = stat.rsplit_once(')').unwrap();
            let flags: u64 = rest.split_whitespace().nth(6).unwrap().parse().unwrap();
            assert_eq!(flags & FLUSHER, if may { FLUSHER } else { 0 }, "{way}: {name}");
            threads += 1;
        }
        // Event loops, and the filesystem's own.
        assert!(threads > 4, "{way}: {threads}");
        mount.unmount().unwrap();
    }
}

/// What a stranger writes may reach the image before the next commit; the rights of the program that it changes are gone
/// from the image before that.
#[test]
fn a_crash_gives_no_stranger_the_rights_of_a_file() {
    for way in WAYS {
        for flags in ["notrunc", "notrunc oflag=direct"] {
            let image = image();
            let mount = served(&image, &format!("{way},commit_pause=0,allow_other"));
            shell(
                mount.path(),
                "head -c 8192 /dev/zero > f; setcap cap_net_raw+ep f; chmod 6777 f; chmod 755 .",
            );
            sync(mount.path()).succeeded();
            let write = format!(
                "yes stranger | setpriv --reuid 65534 --regid 65534 --clear-groups \
                 dd of=f bs=4096 count=1 iflag=fullblock conv={flags} status=none"
            );
            shell(mount.path(), &write);
            mount.kill().unwrap();
            if cat(&image, "/f").stdout.starts_with(b"stranger") {
                let recover =
                    Command::new("e2fsck").args(["-y", "-E", "journal_only"]).arg(image.path()).output();
                assert!(recover.unwrap().status.code().is_some_and(|code| code <= 1));
                let stat = image.debugfs("stat f").unwrap();
                assert!(stat.contains("Mode:  0777"), "{way} {flags}: {stat}");
                let list = image.debugfs("ea_list f").unwrap();
                assert!(!list.contains("security.capability"), "{way} {flags}: {list}");
            }
        }
    }
}
