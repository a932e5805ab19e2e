//! Ordinary programs at work on read-write mounts: of a filesystem in memory, of ext4 and of XFS.
//!
//! Small samples; `docs/TESTING.md` tells what was run at full length.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::Ext4;
use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{Image, Mke2fs, MkfsXfs, Scratch};
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};
use undercroft_xfs::Xfs;

/// A mounted filesystem, and what is looked at when it has been unmounted.
struct Mount {
    ours: Mounted,
    below: Below,
    _point: Scratch,
}

enum Below {
    Memory(Arc<Tmpfs>),
    Ext4(Image),
    Xfs(Image),
}

impl Mount {
    fn new(fs: Arc<dyn FileSystem>, below: Below) -> Self {
        let point = Scratch::new("programs").unwrap();
        let vfs = Vfs::new(fs, VfsOptions::default());
        let options = MountOptions { read_only: false, ..MountOptions::default() };
        Self { ours: mount(vfs, point.path(), options).unwrap(), below, _point: point }
    }

    fn dir(&self) -> &Path {
        self.ours.dir()
    }

    /// Runs a shell script in the mount; it must succeed. Gives what it prints.
    fn run(&self, script: &str) -> String {
        let script = format!("set -euo pipefail\n{script}");
        let output = Command::new("timeout")
            .args(["300", "bash", "-c", &script])
            .current_dir(self.dir())
            .env("LC_ALL", "C")
            .env("HOME", self.dir())
            .output()
            .unwrap();
        let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, errors) = (told(&output.stdout), told(&output.stderr));
        assert!(output.status.success(), "{script}: {}\n{printed}\n{errors}", output.status);
        printed
    }

    /// Everything that was made can be removed, and gives its space back.
    fn finish(self) {
        self.run("find . -mindepth 1 -not -name lost+found -delete");
        if let Below::Memory(fs) = &self.below {
            let used = || fs.statfs().map(|space| space.blocks - space.blocks_free).unwrap();
            // The kernel tells a moment later what it has forgotten.
            let began = Instant::now();
            while used() > 0 && began.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(used(), 0, "every page is free again");
        }
        self.ours.unmount().unwrap();
        self.ours.wait().unwrap();
        match &self.below {
            Below::Memory(_) => {}
            Below::Ext4(image) => image.check().unwrap(),
            Below::Xfs(image) => drop(image.xfs_repair_check().unwrap()),
        }
    }
}

fn tmpfs() -> Mount {
    let options = TmpfsOptions { size_bytes: Some(2 << 30), ..TmpfsOptions::default() };
    let fs = Tmpfs::new(&options).unwrap();
    Mount::new(fs.clone(), Below::Memory(fs))
}

fn ext4() -> Mount {
    let image = Mke2fs::new("ext4", 2048).make().unwrap();
    let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
    let fs = Ext4::open(
        Arc::new(device),
        undercroft_ext4::OpenOptions::default(),
        undercroft_ext4::WriteOptions::default(),
    )
    .unwrap();
    Mount::new(fs, Below::Ext4(image))
}

fn xfs() -> Mount {
    let image = MkfsXfs::new(2048, "-m rmapbt=1").make().unwrap();
    let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
    let fs = Xfs::open(
        Arc::new(device),
        undercroft_xfs::OpenOptions::default(),
        undercroft_xfs::WriteOptions::default(),
    );
    Mount::new(fs.unwrap(), Below::Xfs(image))
}

/// The same on every filesystem that takes writes.
fn on_each(work: impl Fn(&Mount)) {
    for mount in [tmpfs(), ext4(), xfs()] {
        work(&mount);
        mount.finish();
    }
}

#[test]
fn git_makes_a_repository_packs_it_and_finds_it_whole() {
    on_each(|mount| {
        mount.run(
            "git init -q -b main one && cd one
         git config user.email nobody@example.org && git config user.name nobody
         for round in 1 2 3 4 5; do
           for file in $(seq 1 40); do mkdir -p d$file; seq $round $((round * file)) > d$file/text; done
           git add -A && git commit -qm round-$round
         done
         git gc -q --prune=now
         cd .. && git clone -q --no-local one two && cd two
         git checkout -q HEAD~3 && git checkout -q main && git fsck --full --strict
         diff -r --exclude=.git . ../one",
        );
    });
}

#[test]
fn sqlite_writes_ahead_from_several_processes() {
    on_each(|mount| {
        let found = mount.run(
        "sqlite3 base 'pragma journal_mode=wal; create table rows(id integer primary key, text);' > /dev/null
         work() { for round in $(seq 1 40); do
             echo 'begin immediate; insert into rows(text) values (hex(randomblob(500))); commit;'
           done | sqlite3 -cmd '.timeout 60000' base; }
         work & one=$!; work & two=$!; work; wait $one; wait $two
         sqlite3 base 'pragma integrity_check; select count(*) from rows;'",
    );
        assert_eq!(found, "ok\n120\n");
    });
}

#[test]
fn fio_reads_what_it_wrote() {
    on_each(|mount| {
        for engine in ["psync", "mmap", "libaio"] {
            for pattern in ["write", "randwrite", "randrw"] {
                for direct in [0, 1] {
                    if engine == "mmap" && direct == 1 {
                        continue;
                    }
                    mount.run(&format!(
                    "fio --name=verified --rw={pattern} --ioengine={engine} --direct={direct} --bsrange=512-64k \
                     --size=8m --numjobs=2 --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 \
                     --allrandrepeat=1 --output-format=terse
                     rm verified.*"
                ));
                }
            }
        }
    });
}

#[test]
fn stress_finds_no_error() {
    on_each(|mount| {
        let stressors = [
            "access",
            "chmod",
            "chown",
            "copy-file",
            "dentry",
            "dir",
            "dirdeep",
            "dirmany",
            "fallocate",
            "filename",
            "fpunch",
            "fsize",
            "fstat",
            "getdent",
            "handle",
            "iomix",
            "link",
            "mknod",
            "rename",
            "symlink",
            "touch",
            "utime",
            "xattr",
        ];
        let list: Vec<String> = stressors.iter().map(|name| format!("--{name} 2")).collect();
        mount.run(&format!(
        "stress-ng --temp-path . {} --iomix-bytes 32m --fallocate-bytes 32m --timeout 3 --oomable --quiet",
        list.join(" ")
    ));
    });
}

#[test]
fn two_processes_fill_one_directory_and_empty_it() {
    on_each(|mount| {
        let count = mount.run(
            "mkdir many
         fill() { for ten in $(seq 1 20); do seq -f \"many/$1-$ten-%.0f\" 1000 | xargs touch; done; }
         fill a & other=$!; fill b; wait $other
         ls -f many | wc -l",
        );
        assert_eq!(count.trim(), "40002");
        mount.run(
        "empty() { find many -name \"$1-*\" -delete; }; empty a & other=$!; empty b; wait $other; rmdir many",
    );
    });
}
