//! A flush fails, once: what was not flushed may be lost, the device does not say of what, and its next flush succeeds.
//!
//! Every flush of a run fails in turn, those of opening and closing included. From then on no sync may succeed and no
//! change may be taken, and closing tells the cause. After power was lost, all that had been synced is there: the log
//! still holds what was on its way home.

use std::sync::Arc;

use undercroft_block::testing::LoseUnflushed;
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_ext4::Ext4;
use undercroft_oracle::{How, Make, Mke2fs, MkfsXfs, Scratch, Tool, save_device};
use undercroft_vfs::{
    AttrChange, Credentials, DirOffset, Durable, Error, FallocateMode, File, FileSystem, FileType, Follow,
    InodeFlags, NewKind, NewObject, Node, Result, Vfs, VfsOptions,
};
use undercroft_xfs::Xfs;

const FILES: u32 = 4;
const ROUNDS: u32 = 8;
/// Names that are made in each round, so that the log fills up. Without a log fewer: e2fsck mends a directory that was
/// growing, but not always at once.
const NAMES: u32 = 220;
const NAMES_WITHOUT_LOG: u32 = 8;
const WORDS: usize = 700;

/// What a disk writes at once, as for crashes: a superblock is written in place.
fn whole_bytes(how: How) -> u32 {
    match how {
        How::Ext4(_) => 1024,
        How::Xfs(_) => 512,
    }
}

/// What was written, and what of it was synced, by file.
#[derive(Default)]
struct Story {
    written: [u32; FILES as usize],
    synced: [u32; FILES as usize],
}

struct Mount {
    fs: Arc<dyn FileSystem>,
    vfs: Arc<Vfs>,
    /// How often room was made in the log.
    checkpoints: Box<dyn Fn() -> u64>,
}

impl Mount {
    fn new(device: Device, how: How) -> Result<Self> {
        let (fs, checkpoints): (Arc<dyn FileSystem>, Box<dyn Fn() -> u64>) = match how {
            How::Ext4(how) => {
                let fs = Ext4::open(device, undercroft_ext4::OpenOptions::default(), how)?;
                (Arc::clone(&fs) as _, Box::new(move || fs.write_stats().checkpoints))
            }
            How::Xfs(how) => {
                let fs = Xfs::open(device, undercroft_xfs::OpenOptions::default(), how)?;
                (Arc::clone(&fs) as _, Box::new(move || fs.write_stats().checkpoints))
            }
        };
        let vfs = Vfs::new(Arc::clone(&fs), VfsOptions::default());
        Ok(Self { fs, vfs, checkpoints })
    }

    fn create(&self, name: &str) -> Result<()> {
        let new = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
        self.vfs.create(&Credentials::root(), &self.vfs.root()?, name.as_bytes(), &new).map(drop)
    }

    fn open(&self, name: &str) -> Result<File> {
        let path = format!("/{name}");
        let node = self.vfs.resolve(&Credentials::root(), path.as_bytes(), Follow::NoFollow)?;
        self.vfs.open_node_for_writing(&node)
    }

    /// Writes over files and makes names, and syncs each file in each round, until something fails.
    fn work(&self, names: u32, story: &mut Story) -> Result<()> {
        for round in 1..=ROUNDS {
            for number in 0..FILES {
                let at = number as usize;
                let name = format!("file-{number}");
                if round == 1 {
                    self.create(&name)?;
                }
                story.written[at] = round;
                let file = self.open(&name)?;
                let content: Vec<u8> = [number << 16 | round].map(u32::to_le_bytes).concat().repeat(WORDS);
                assert_eq!(file.write_at(0, &content)?, content.len());
                for extra in 0..names / FILES {
                    self.create(&format!("{round}-{number}-{extra}"))?;
                }
                // Every second one without a change of names, so that only the data is flushed.
                file.sync(Durable::Everything)?;
                file.write_at(0, &content)?;
                file.sync(Durable::Data)?;
                story.synced[at] = round;
            }
            self.fs.sync()?;
        }
        Ok(())
    }

    /// Nothing is called durable any more.
    fn refuses_everything(&self, what: &str) {
        for number in 0..FILES {
            if let Ok(file) = self.open(&format!("file-{number}")) {
                assert!(file.sync(Durable::Data).is_err(), "{what}: data of file {number} was synced");
                assert!(file.sync(Durable::Everything).is_err(), "{what}: file {number} was synced");
            }
        }
        assert!(self.fs.sync().is_err(), "{what}: the filesystem was synced");
        let refused = self.create("late").unwrap_err();
        assert!(
            matches!(&refused, Error::TurnedReadOnly(cause) if cause.contains("flush")),
            "{what}: {refused}"
        );
    }
}

/// All regular files with content.
fn contents(vfs: &Arc<Vfs>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut ahead: Vec<Arc<Node>> = vec![vfs.root().unwrap()];
    while let Some(node) = ahead.pop() {
        if node.kind() == FileType::Directory {
            let mut names = Vec::new();
            node.read_dir(DirOffset::default(), &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(entry.name.to_vec());
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            ahead.extend(names.iter().map(|name| vfs.lookup(&node, name).unwrap()));
        } else if node.attr().size_bytes > 0 {
            let mut content = vec![0; node.attr().size_bytes as usize];
            let len = vfs.open_node(&node).unwrap().read_at(0, &mut content).unwrap();
            content.truncate(len);
            found.push(content);
        }
    }
    found
}

/// What was synced is there, or something newer.
fn check(vfs: &Arc<Vfs>, story: &Story, what: &str) {
    let found = contents(vfs);
    for number in 0..FILES {
        let at = number as usize;
        let (oldest, newest) = (story.synced[at], story.written[at]);
        let is_right = |content: &Vec<u8>| {
            content.len() == WORDS * 4
                && content.chunks_exact(4).all(|word| {
                    let word = u32::from_le_bytes(word.try_into().unwrap());
                    word >> 16 == number && (oldest..=newest).contains(&(word & 0xffff))
                })
        };
        assert!(
            oldest == 0 || found.iter().any(is_right),
            "{what}: file {number} was synced in round {oldest} and is lost"
        );
    }
}

/// How many flushes there were to fail, and checkpoints in the run in which none did.
fn every_flush_fails_in_turn(make: &Make, journal: bool) -> (u64, u64) {
    let how = How::usual(make).without_clock();
    let image = make.make().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let scratch = Scratch::new("flush").unwrap();
    for nth in 1.. {
        let what = format!("{}, journal: {journal}, flush {nth}", how.kind());
        let base: Device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), Access::ReadWrite));
        let cache = LoseUnflushed::new(Arc::clone(&base), nth).in_sectors(whole_bytes(how));
        let cache = Arc::new(cache.failing_flush(nth));
        let mut story = Story::default();
        let mut checkpoints = 0;
        match Mount::new(Arc::clone(&cache) as Device, how) {
            Ok(mount) => {
                let worked = mount.work(if journal { NAMES } else { NAMES_WITHOUT_LOG }, &mut story);
                if worked.is_err() {
                    assert!(cache.has_failed(), "{what}: {worked:?}");
                    mount.refuses_everything(&what);
                }
                let closed = mount.fs.close();
                assert_eq!(closed.is_err(), cache.has_failed(), "{what}: {closed:?}");
                checkpoints = (mount.checkpoints)();
            }
            Err(error) => assert!(cache.has_failed(), "{what}: {error}"),
        }
        let has_failed = cache.has_failed();
        cache.crash().unwrap();
        let path = scratch.path().join("image");
        if journal {
            let mount = Mount::new(Arc::clone(&base), how).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&mount.vfs, &story, &what);
            mount.fs.close().unwrap();
            save_device(&*base, &path).unwrap();
            how.check(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
        } else {
            save_device(&*base, &path).unwrap();
            Tool::new("e2fsck").args(["-f", "-y"]).arg(&path).accept(&[0, 1]).run().unwrap();
            check(&how.read(&path), &story, &what);
        }
        if !has_failed {
            return (nth - 1, checkpoints);
        }
    }
    unreachable!("the numbers of flushes end")
}

fn ext4(features: &str) -> Mke2fs {
    Mke2fs::new("ext4", 8).block_bytes(1024).inodes(2048).features(features)
}

#[test]
fn a_failed_flush_is_final_with_a_journal() {
    let make = Make::Ext4(ext4("metadata_csum").args(["-J", "size=1"]));
    let (flushes, checkpoints) = every_flush_fails_in_turn(&make, true);
    assert!(flushes > 80 && checkpoints > 0, "{flushes} flushes, {checkpoints} checkpoints");
}

#[test]
fn a_failed_flush_is_final_without_a_journal() {
    let (flushes, _) = every_flush_fails_in_turn(&Make::Ext4(ext4("^has_journal")), false);
    assert!(flushes > 80, "{flushes} flushes");
}

#[test]
fn a_failed_flush_is_final_on_xfs() {
    let make = Make::Xfs(MkfsXfs::new(24, "-d agcount=1 -m reflink=0"));
    let (flushes, checkpoints) = every_flush_fails_in_turn(&make, true);
    assert!(flushes > 80 && checkpoints > 0, "{flushes} flushes, {checkpoints} checkpoints");
}

/// `chattr +S`, and on ext4 `+D` for a directory: what a change returns is on the disk, and no sync was asked for.
fn marked_changes_are_durable(make: &Make, changes_names: bool) {
    let how = How::usual(make).without_clock();
    let bytes = std::fs::read(make.make().unwrap().path()).unwrap();
    for seed in 1..=12 {
        let what = format!("{}, seed {seed}", how.kind());
        let base: Device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), Access::ReadWrite));
        let cache = Arc::new(LoseUnflushed::new(Arc::clone(&base), seed).in_sectors(whole_bytes(how)));
        let mount = Mount::new(Arc::clone(&cache) as Device, how).unwrap();
        let mark = |node: &Arc<Node>, marks: InodeFlags| {
            let flags = Some(node.ownership().flags | marks);
            let change = AttrChange { flags, ..AttrChange::default() };
            mount.vfs.set_attr(&Credentials::root(), node, &change).unwrap();
        };
        let root = mount.vfs.root().unwrap();
        mount.create("file").unwrap();
        mark(&mount.vfs.lookup(&root, b"file").unwrap(), InodeFlags::SYNC);
        if changes_names {
            mark(&root, if seed % 2 == 0 { InodeFlags::SYNC } else { InodeFlags::DIRSYNC });
        }
        mount.fs.sync().unwrap();
        let file = mount.open("file").unwrap();
        // Into a hole and over what is there, behind the end, and into space that was allocated.
        file.write_all_at(0, &[1; 6000]).unwrap();
        file.write_all_at(0, &[2; 5000]).unwrap();
        file.append(&[3; 3000]).unwrap();
        file.fallocate(FallocateMode::Allocate, 0, 1 << 16, false).unwrap();
        file.write_all_at(20_000, &[4; 7000]).unwrap();
        if changes_names {
            mount.create("name").unwrap();
        }
        cache.crash().unwrap();
        drop((file, root));

        let mount = Mount::new(base, how).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut content = vec![9; 1 << 17];
        let len = mount.open("file").unwrap().read_at(0, &mut content).unwrap();
        let parts = [(5000, 2), (1000, 1), (3000, 3), (11_000, 0), (7000, 4), ((1 << 16) - 27_000, 0)];
        let expected: Vec<u8> =
            parts.iter().flat_map(|&(len, byte)| std::iter::repeat_n(byte, len)).collect();
        assert!(content[..len] == expected[..], "{what}: {len} bytes");
        assert!(!changes_names || mount.open("name").is_ok(), "{what}: a name is lost");
        mount.fs.close().unwrap();
    }
}

#[test]
fn what_is_written_to_a_file_marked_as_synchronous_is_durable() {
    marked_changes_are_durable(&Make::Ext4(ext4("metadata_csum").args(["-J", "size=1"])), true);
    marked_changes_are_durable(&Make::Xfs(MkfsXfs::new(24, "-d agcount=1 -m reflink=0")), false);
}
