//! Through the FUSE mount, ordinary programs see what they see through the kernel's mount of the same image.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{
    Image, LoopMount, Mke2fs, MkfsXfs, MountMode, Recipe, Scratch, XfsRecipe, open_ext4, open_xfs,
};
use undercroft_vfs::Vfs;

/// An image mounted twice.
struct Both {
    kernel: LoopMount,
    ours: Mounted,
    _point: Scratch,
    _image: Image,
}

fn mounted_twice(mke2fs: Mke2fs) -> Both {
    let recipe = Recipe::new(mke2fs).plan(|plan| {
        plan.many = 5_000;
        plan.subdirectories = 50;
        plan.extent_depth = 1;
    });
    let image = recipe.make().unwrap();
    let (_, vfs) = open_ext4(image.path()).unwrap();
    Both::of(image, vfs, "")
}

/// An XFS whose mount has these options beside the usual ones.
fn xfs_mounted_twice(args: &str, options: &str) -> Both {
    let recipe = XfsRecipe::new(MkfsXfs::new(256, args)).plan(|plan| plan.many = 5_000);
    let image = recipe.make().unwrap();
    let (_, vfs) = open_xfs(image.path()).unwrap();
    Both::of(image, vfs, options)
}

/// What a shell command prints in a directory; it must succeed.
fn shell(dir: &Path, command: &str) -> Vec<u8> {
    let script = format!("set -euo pipefail; {command}");
    let output =
        Command::new("bash").args(["-c", &script]).current_dir(dir).env("LC_ALL", "C").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {} {errors}", output.status);
    output.stdout
}

impl Both {
    fn of(image: Image, vfs: Arc<Vfs>, options: &str) -> Self {
        let kernel = image.mount(MountMode::ReadOnly, "").unwrap();
        let point = Scratch::new("ours").unwrap();
        let mut settings = MountOptions::default();
        settings.apply(options).unwrap();
        let ours = mount(vfs, point.path(), settings).unwrap();
        Self { kernel, ours, _point: point, _image: image }
    }

    /// The command must print the same in both.
    fn agree_on(&self, command: &str) {
        let expected = shell(self.kernel.path(), command);
        let found = shell(self.ours.dir(), command);
        assert!(!expected.is_empty(), "{command} prints nothing");
        if expected != found {
            let lines = |bytes: &[u8]| bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
            let (expected, found) = (lines(&expected), lines(&found));
            let at = expected
                .iter()
                .zip(&found)
                .position(|(a, b)| a != b)
                .unwrap_or(expected.len().min(found.len()));
            let show = |lines: &[Vec<u8>]| lines.get(at).map(|line| line.escape_ascii().to_string());
            panic!("{command}: line {at}: the kernel says {:?}, we say {:?}", show(&expected), show(&found));
        }
    }

    fn check(self) {
        // Numbers, sizes, times to the nanosecond, link targets.
        self.agree_on("find . -printf '%p %y %m %U %G %n %s %b %i %T@ %A@ %C@ %l\\n' | sort");
        self.agree_on(
            "grep -r --binary-files=text --exclude=sparse* -c e content nodes xattrs attributes | sort",
        );
        // These programs take paths, and one tree is deeper than a path can say.
        let all = "find . -path ./names/deep -prune -o -print0";
        let small = "find . -path ./names/deep -prune -o ! -size +200000 ! -type s -print0 | sort -z";
        // Without the process id that tar puts into the names of its own headers.
        let tar = "tar --create --null --no-recursion --files-from=- --numeric-owner --xattrs \
                   --xattrs-include=* --acls --pax-option=exthdr.name=%d/PaxHeaders/%f";
        self.agree_on(&format!("{small} | {tar} | sha256sum"));
        self.agree_on(&format!("{all} | xargs -0 getfattr -h -d -m - | sort"));
        self.agree_on(
            "find . -path ./names/deep -prune -o ! -type l -print0 | xargs -0 getfacl -n -p | sort",
        );
        let files = "find . -path ./names/deep -prune -o -type f -size -100M -print0";
        self.agree_on(&format!("{files} | sort -z | xargs -0 -P 4 -n 100 sha256sum | sort"));
        self.rsync_finds_no_difference();
        self.copies_are_equal();
        self.ours.unmount().unwrap();
    }

    fn rsync_finds_no_difference(&self) {
        let (kernel, ours) = (self.kernel.path().display(), self.ours.dir().display());
        let command = format!(
            "rsync -n -aHAXc --exclude=/content/sparse --exclude=/names/deep --itemize-changes --delete {kernel}/ {ours}/"
        );
        let differences = shell(Path::new("/"), &command);
        assert!(differences.is_empty(), "rsync: {}", String::from_utf8_lossy(&differences));
    }

    fn copies_are_equal(&self) {
        let copies = Scratch::new("copies").unwrap();
        for (name, from) in [("kernel", self.kernel.path()), ("ours", self.ours.dir())] {
            let to = copies.path().join(name);
            std::fs::create_dir(&to).unwrap();
            let each = "find . -mindepth 2 -maxdepth 2 ! -path ./names/deep";
            shell(from, &format!("{each} -exec cp -a --parents -t {} {{}} +", to.display()));
        }
        // The directories above what was copied are cp's own making.
        let compare = "rsync -n -aHAXc --omit-dir-times --exclude=/content/sparse --itemize-changes --delete kernel/ ours/";
        let differences = shell(copies.path(), compare);
        assert!(differences.is_empty(), "cp -a: {}", String::from_utf8_lossy(&differences));
    }
}

#[test]
fn programs_agree_on_ext4() {
    mounted_twice(Mke2fs::new("ext4", 256).inodes(12_000).block_bytes(4096)).check();
}

#[test]
fn programs_agree_on_ext4_with_inline_data_and_clusters() {
    let mke2fs = Mke2fs::new("ext4", 256).inodes(12_000).block_bytes(1024);
    mounted_twice(mke2fs.features("inline_data,ea_inode,bigalloc").args(["-C", "8192"])).check();
}

#[test]
fn programs_agree_on_ext2() {
    mounted_twice(Mke2fs::new("ext2", 256).inodes(12_000).block_bytes(1024)).check();
}

#[test]
fn programs_agree_on_xfs() {
    xfs_mounted_twice("", "io_uring").check();
}

#[test]
fn programs_agree_on_xfs_with_small_blocks_and_large_directory_blocks() {
    xfs_mounted_twice("-b size=1024 -n size=16384 -m rmapbt=1 -i nrext64=1", "no_io_uring").check();
}
