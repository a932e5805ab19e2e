//! Ordinary programs fill a filesystem: each fails and says that no space is left, as soon as it writes and not only when
//! it closes its files. What is there can be read, after something was removed each program goes on, and Linux's
//! checker finds nothing afterwards. For root, whose mounts may keep the kernel's cache small, over both transports, on XFS
//! and on tmpfs; and for an ordinary user, whose mount caches as much as the kernel has it.
//!
//! With `--nocapture` each run tells how many bytes were taken beyond what found room.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{How, Image, Make, Mke2fs, MkfsXfs, Scratch, unmount_when_idle};
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};

const MIB: u64 = 1 << 20;
const IMAGE_MIB: u64 = 64;
/// More than the filesystem holds.
const SOURCE_MIB: u64 = 80;
/// What is removed so that there is room again.
const BALLAST_BYTES: u64 = 8 * MIB;
const NOBODY: u32 = 65534;
/// The kernel holds next to nothing for a mount that is full; what one call writes it takes as a whole.
const BEYOND_MAX: u64 = 4 * MIB;
/// The default share of the kernel's cache that a FUSE mount has.
const SHARE: u64 = 100;
/// Far above what it takes, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that writes until it cannot, and how it goes on when there is room. `$SOURCE` holds `large`, which does
/// not fit, `small`, and `tree` with files that do not fit together. The kernel reports the lost bytes of a file to
/// one `fsync` more, of any program, so the first of a file that goes on may fail.
struct Program {
    name: &'static str,
    fill: &'static str,
    /// What it says when a write fails.
    says: &'static str,
    go_on: &'static str,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "dd bs=4k",
        fill: "dd if=$SOURCE/large of=big bs=4k status=none",
        says: "dd: error writing 'big': No space left on device",
        go_on: "dd if=$SOURCE/small of=big bs=4k oflag=append conv=notrunc status=none; sync big || sync big; \
                tail -c 1M big | cmp $SOURCE/small -",
    },
    Program {
        name: "dd bs=1M",
        fill: "dd if=$SOURCE/large of=big bs=1M status=none",
        says: "dd: error writing 'big': No space left on device",
        go_on: "dd if=$SOURCE/small of=big bs=1M status=none; sync big || sync big; cmp $SOURCE/small big",
    },
    Program {
        name: "cp",
        fill: "cp $SOURCE/large big",
        says: "cp: error writing 'big': No space left on device",
        go_on: "cp $SOURCE/small more; sync more; cmp $SOURCE/small more",
    },
    Program {
        name: "cat",
        fill: "cat $SOURCE/large > big",
        says: "cat: write error: No space left on device",
        go_on: "cat $SOURCE/small >> big; sync big || sync big; tail -c 1M big | cmp $SOURCE/small -",
    },
    Program {
        name: "tar --create",
        fill: "tar -cf big.tar -C $SOURCE tree",
        says: "Cannot write: No space left on device",
        go_on: "tar -cf more.tar -C $SOURCE small; tar -xOf more.tar small | cmp $SOURCE/small -",
    },
    Program {
        name: "tar --extract",
        fill: "tar -xf $SOURCE/tree.tar",
        says: "Cannot write: No space left on device",
        go_on: "tar -xf $SOURCE/tree.tar tree/f1; cmp $SOURCE/tree/f1 tree/f1",
    },
    Program {
        name: "sqlite3",
        fill: "sqlite3 db 'create table t(x); with recursive c(n) as (select 1 union all select n+1 from c limit 120000) \
               insert into t select randomblob(1000) from c;'",
        says: "database or disk is full",
        go_on: "sqlite3 db 'create table if not exists u(x); insert into u values (1)'; \
                test \"$(sqlite3 db 'pragma integrity_check')\" = ok",
    },
    Program {
        name: "git add",
        fill: "git init -q repo; git --git-dir=repo/.git --work-tree=$SOURCE/tree add .",
        says: "No space left on device",
        go_on: "rm -f repo/.git/index.lock; git --git-dir=repo/.git --work-tree=$SOURCE add small; \
                git --git-dir=repo/.git --work-tree=$SOURCE -c user.name=a -c user.email=b commit -qm small; \
                git --git-dir=repo/.git fsck --strict",
    },
];

/// What is written.
struct Source(Scratch);

impl Source {
    fn new() -> Self {
        let source = Scratch::new("source").unwrap();
        let script = format!(
            "chmod 755 .; head -c {SOURCE_MIB}M /dev/urandom > large; head -c 1M large > small; mkdir tree
             for i in $(seq {SOURCE_MIB}); do tail -c ${{i}}M large | head -c 1M > tree/f$i; done
             tar -cf tree.tar tree; chmod -R a+rX ."
        );
        let made = Command::new("bash").args(["-ec", &script]).current_dir(source.path()).status().unwrap();
        assert!(made.success());
        Self(source)
    }
}

enum Server {
    Here(Mounted),
    /// A process of an ordinary user.
    There(Process, PathBuf),
}

/// Killed with the value, which takes its mount away.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Mount {
    user: u32,
    server: Server,
    point: Scratch,
    image: Option<Image>,
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

impl Mount {
    fn here(fs: Arc<dyn FileSystem>, options: &str, image: Option<Image>) -> Self {
        let point = Scratch::new("ours").unwrap();
        let mut settings = MountOptions::parse("rw").unwrap();
        settings.apply(options).unwrap();
        let mounted = mount(Vfs::new(fs, VfsOptions::default()), point.path(), settings).unwrap();
        Self { user: 0, server: Server::Here(mounted), point, image }
    }

    fn tmpfs(options: &str) -> Self {
        let mut how = TmpfsOptions::default();
        how.apply(&format!("size={IMAGE_MIB}M")).unwrap();
        Self::here(Tmpfs::new(&how).unwrap(), options, None)
    }

    fn ext4(options: &str) -> Self {
        Self::image(&Make::Ext4(Mke2fs::new("ext4", IMAGE_MIB)), options)
    }

    fn xfs(options: &str) -> Self {
        Self::image(&Make::Xfs(MkfsXfs::new(IMAGE_MIB, "-m rmapbt=1")), options)
    }

    fn image(make: &Make, options: &str) -> Self {
        let image = make.make().unwrap();
        let fs = How::usual(make).open_file(image.path()).unwrap();
        Self::here(fs, options, Some(image))
    }

    fn of_a_user() -> Self {
        let owner = format!("root_owner={NOBODY}:{NOBODY}");
        let image = Mke2fs::new("ext4", IMAGE_MIB).extended(&owner).make().unwrap();
        let point = Scratch::new("ours").unwrap();
        // Where no udev has run, only root may use FUSE at all.
        set_mode(Path::new("/dev/fuse"), 0o666);
        for path in [image.path(), point.path()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        set_mode(image.path().parent().unwrap(), 0o755);
        let before = point.path().metadata().unwrap().dev();
        let mut program = Command::new(env!("CARGO_BIN_EXE_serve_image"));
        let server = program
            .arg(image.kind())
            .arg(image.path())
            .arg(point.path())
            .uid(NOBODY)
            .gid(NOBODY)
            .spawn()
            .unwrap();
        let server = Process(server);
        let end = Instant::now() + PATIENCE;
        // Another user may not even look at the mount's root.
        while point.path().metadata().is_ok_and(|found| found.dev() == before) {
            assert!(Instant::now() < end, "not mounted");
            std::thread::yield_now();
        }
        let server = Server::There(server, point.path().to_owned());
        Self { user: NOBODY, server, point, image: Some(image) }
    }

    fn run(&self, source: &Source, script: &str) -> Output {
        let mut shell = Command::new("bash");
        if self.user != 0 {
            shell.uid(self.user).gid(self.user);
        }
        let source = source.0.path();
        shell.args(["-ec", script]).current_dir(self.point.path());
        shell
            .env("SOURCE", source)
            .env("LC_ALL", "C")
            .env("HOME", "/nonexistent")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        shell.output().unwrap()
    }

    /// What a script prints that must succeed.
    fn must(&self, source: &Source, what: &str, script: &str) -> String {
        let output = self.run(source, script);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {script}: {told}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Bytes of files that have no room.
    fn beyond(&self, source: &Source, what: &str) -> u64 {
        let list = self.must(source, what, "find . -name lost+found -prune -o -type f -printf '%s %b\\n'");
        let beyond = list.lines().map(|line| {
            let (size, sectors) = line.split_once(' ').unwrap();
            size.parse::<u64>().unwrap().saturating_sub(sectors.parse::<u64>().unwrap() * 512)
        });
        beyond.sum()
    }

    fn end(self) {
        match self.server {
            Server::Here(mounted) => {
                unmount_when_idle(|| mounted.unmount()).unwrap();
                mounted.wait().unwrap();
            }
            Server::There(mut server, point) => {
                let mut unmount = Command::new("fusermount3");
                assert!(unmount.arg("-u").arg(point).uid(NOBODY).gid(NOBODY).status().unwrap().success());
                assert!(server.0.wait().unwrap().success());
            }
        }
        if let Some(image) = self.image {
            How::of(&image).check(image.path()).unwrap();
        }
    }
}

fn share_bytes() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").unwrap();
    let threshold = counters.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold ")).unwrap();
    threshold.parse::<u64>().unwrap() * 4096 / SHARE
}

/// Which mount is this, how it is made, and how many bytes the kernel may cache for it though they have no room.
fn all_programs(name: &str, make: impl Fn() -> Mount, may_cache: u64) {
    let source = Source::new();
    for program in PROGRAMS {
        let what = format!("{} on {name}", program.name);
        let mount = make();
        mount.must(&source, &what, &format!("head -c {BALLAST_BYTES} $SOURCE/large > ballast; sync ballast"));
        let output = mount.run(&source, program.fill);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{what}: everything found room");
        // What an ordinary user's mount caches may be all that is left to write: then the end of the file tells.
        let says = if may_cache == 0 { program.says } else { program.says.rsplit(": ").next().unwrap() };
        assert!(told.contains(says), "{what}: {told}");
        let beyond = mount.beyond(&source, &what);
        println!("| {} | {name} | {} KiB |", program.name, beyond.div_ceil(1024));
        assert!(beyond <= may_cache + BEYOND_MAX, "{what}: {beyond} bytes were taken that had no room");
        mount.must(&source, &what, "find . -name lost+found -prune -o -type f -exec cat {} + > /dev/null");
        mount.must(
            &source,
            &what,
            &format!("head -c {BALLAST_BYTES} $SOURCE/large | cmp - ballast; rm ballast"),
        );
        mount.must(&source, &what, program.go_on);
        mount.end();
    }
}

#[test]
fn on_ext4_over_io_uring() {
    all_programs("ext4", || Mount::ext4(""), 0);
}

#[test]
fn on_ext4_over_the_device() {
    all_programs("ext4, no_io_uring", || Mount::ext4("no_io_uring"), 0);
}

#[test]
fn on_xfs() {
    all_programs("XFS", || Mount::xfs(""), 0);
}

#[test]
fn on_tmpfs() {
    all_programs("tmpfs", || Mount::tmpfs(""), 0);
}

#[test]
fn on_a_mount_of_an_ordinary_user() {
    all_programs("ext4 of a user", Mount::of_a_user, share_bytes());
}
