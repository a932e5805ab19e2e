//! Small filesystems that several threads fill to the last block and empty again: no operation ends the changes, each
//! deletion works, and all space comes back.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::{Image, MkfsXfs};
use undercroft_vfs::{
    Credentials, Error, FallocateMode, File, FileSystem, NewKind, NewObject, Node, Result, StatFs, Vfs,
    VfsOptions, XattrMode,
};

use crate::testing::writable::check_image;
use crate::{OpenOptions, WriteOptions, Xfs};

/// Sizes in MiB and arguments of mkfs.xfs.
const SHAPES: [(u64, &str); 12] = [
    (64, "-m reflink=0,finobt=0,inobtcount=0 -i sparse=0 -d agcount=4"),
    (40, "-m reflink=1,rmapbt=1 -d agcount=2"),
    (32, "-m reflink=0,inobtcount=0 -d agcount=1"),
    (40, "-m rmapbt=1,reflink=0 -i size=1024 -d agcount=2"),
    (64, "-d agcount=4"),
    (40, "-m reflink=1,rmapbt=1 -i sparse=0,nrext64=1"),
    (40, "-m finobt=0,inobtcount=0,reflink=1 -i size=2048"),
    (40, "-m bigtime=0,rmapbt=1,finobt=0,inobtcount=0,reflink=0 -s size=4096"),
    (64, "-d agcount=4 -m rmapbt=1,reflink=1 -i size=1024"),
    (32, "-m reflink=0,finobt=0,inobtcount=0 -i sparse=0 -d agcount=1"),
    // Directory blocks of several blocks, for which there may be no free run.
    (32, "-b size=1024 -n size=16384 -m rmapbt=1 -d agcount=1"),
    (40, "-b size=1024 -m reflink=0 -d agcount=2"),
];

const THREADS: u64 = 3;

/// A thread stops filling when so many of its operations have found no space.
const REFUSED: u32 = 150;

fn open(device: &Device) -> (Arc<Xfs>, Arc<Vfs>) {
    let fs = Xfs::open(Arc::clone(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    (fs, vfs)
}

/// A directory: its name, and the names in it.
type Filled = (Vec<u8>, Arc<Node>, Vec<Vec<u8>>);

/// What a thread has made in its directory.
struct Worker<'a> {
    vfs: &'a Vfs,
    dir: Arc<Node>,
    random: Rng,
    number: u64,
    files: Vec<(Vec<u8>, Arc<Node>)>,
    directories: Vec<Filled>,
    others: Vec<Vec<u8>>,
    /// Without names and in use.
    nameless: Vec<File>,
}

impl<'a> Worker<'a> {
    fn new(vfs: &'a Vfs, seed: u64) -> Self {
        let root = vfs.root().unwrap();
        let dir = make(vfs, &root, format!("of-{seed}").as_bytes(), NewKind::Directory).unwrap();
        Self {
            vfs,
            dir,
            random: Rng::new(seed),
            number: 0,
            files: Vec::new(),
            directories: Vec::new(),
            others: Vec::new(),
            nameless: Vec::new(),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        self.number += 1;
        let mut name = format!("{}-", self.number).into_bytes();
        let len = name.len() + if self.random.below(4) == 0 { 180 } else { 8 };
        name.resize(len, b'n');
        name
    }

    fn any_file(&mut self) -> Option<Arc<Node>> {
        let n = self.files.len() as u64;
        let at = if self.random.below(2) == 0 {
            n.checked_sub(1 + self.random.below(4.min(n.max(1))))?
        } else {
            self.random.below(n.max(1))
        };
        self.files.get(at as usize).map(|(_, node)| Arc::clone(node))
    }

    /// One change that may find no space.
    fn fill(&mut self) -> Result<()> {
        let caller = Credentials::root();
        match self.random.below(16) {
            0..3 => {
                let name = self.name();
                let node = make(self.vfs, &self.dir, &name, NewKind::Regular)?;
                self.files.push((name, Arc::clone(&node)));
                let len = self.random.below(40_000) as usize;
                self.vfs.open_node_for_writing(&node)?.write_all_at(0, &vec![7; len])
            }
            3..8 => {
                // Pieces with holes between them, so that maps become trees.
                let Some(node) = self.any_file() else { return Ok(()) };
                let file = self.vfs.open_node_for_writing(&node)?;
                let (at, pieces) = (self.random.below(400), 1 + self.random.below(40));
                for piece in 0..pieces {
                    let at = (at + 2 * piece) * 4096;
                    if self.random.below(6) == 0 {
                        file.fallocate(FallocateMode::Allocate, at, 4096, piece % 2 == 0)?;
                    } else {
                        file.write_all_at(at, &[9; 3000])?;
                    }
                }
                Ok(())
            }
            8 | 9 => {
                let Some(node) = self.any_file() else { return Ok(()) };
                let len = [20, 300, 3000, 20_000, 60_000][self.random.below(5) as usize];
                let name = format!("user.{}", self.random.below(30));
                self.vfs.set_xattr(&caller, &node, name.as_bytes(), &vec![5; len], XattrMode::Set)
            }
            10 => {
                let name = self.name();
                let node = make(self.vfs, &self.dir, &name, NewKind::Directory)?;
                self.directories.push((name, node, Vec::new()));
                Ok(())
            }
            11 | 12 => {
                let count = 1 + self.random.below(60);
                let n = self.directories.len() as u64;
                let at = self.random.below(n.max(1)) as usize;
                for _ in 0..count {
                    let name = self.name();
                    let Some((_, dir, names)) = self.directories.get_mut(at) else { break };
                    match self.files.last() {
                        Some((_, node)) if count.is_multiple_of(2) => {
                            self.vfs.link(&caller, node, dir, &name)?;
                        }
                        _ => drop(make(self.vfs, dir, &name, NewKind::Regular)?),
                    }
                    names.push(name);
                }
                Ok(())
            }
            13 => {
                let name = self.name();
                let target = vec![b't'; 20 + self.random.below(1000) as usize];
                make(self.vfs, &self.dir, &name, NewKind::Symlink(&target))?;
                self.others.push(name);
                Ok(())
            }
            14 => {
                let (Some(from), Some(to)) = (self.any_file(), self.any_file()) else { return Ok(()) };
                if from.ino() == to.ino() {
                    return Ok(());
                }
                let from = self.vfs.open_node_for_writing(&from)?;
                let to = self.vfs.open_node_for_writing(&to)?;
                from.copy_range(0, &to, self.random.below(100) * 4096, 30_000).map(drop)
            }
            _ => {
                let Some(node) = self.any_file() else { return Ok(()) };
                let file = self.vfs.open_node_for_writing(&node)?;
                let at = self.random.below(300) * 4096;
                file.fallocate(FallocateMode::PunchHole, at, 4096 * (1 + self.random.below(9)), true)
            }
        }
    }

    fn fill_until_full(&mut self) {
        let mut refused = 0;
        let mut done = 0_u32;
        while refused < REFUSED && done < 200_000 {
            match self.fill() {
                Ok(()) => done += 1,
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("while it was filled: {error}"),
            }
            if self.random.below(12) == 0 {
                self.remove_one();
            }
        }
        assert_eq!(refused, REFUSED, "{done} operations");
    }

    /// Removes something. `false` when nothing is left.
    fn remove_one(&mut self) -> bool {
        let caller = Credentials::root();
        let (files, directories, others) = (self.files.len(), self.directories.len(), self.others.len());
        if files + directories + others == 0 {
            return false;
        }
        let mut at = self.random.below((files + directories + others) as u64) as usize;
        if at < files {
            let (name, node) = self.files.swap_remove(at);
            match self.random.below(8) {
                0 => self.nameless.push(self.vfs.open_node_for_writing(&node).unwrap()),
                1 => {
                    let file = self.vfs.open_node_for_writing(&node).unwrap();
                    let block = 4096;
                    file.truncate(file.size_bytes() / 2 / block * block).unwrap();
                }
                2 => {
                    // As in Linux, to remove one of many may take space.
                    for name in node.list_xattrs().unwrap() {
                        match self.vfs.remove_xattr(&caller, &node, &name) {
                            Ok(()) | Err(Error::NoSpace) => {}
                            Err(error) => panic!("an attribute removed: {error}"),
                        }
                    }
                }
                _ => {}
            }
            drop(node);
            self.vfs.unlink(&caller, &self.dir, &name).unwrap();
            return true;
        }
        at -= files;
        if at < directories {
            let (name, dir, names) = &mut self.directories[at];
            if let Some(inner) = names.pop() {
                self.vfs.unlink(&caller, dir, &inner).unwrap();
                return true;
            }
            self.vfs.rmdir(&caller, &self.dir, name).unwrap();
            self.directories.swap_remove(at);
            return true;
        }
        let name = self.others.swap_remove(at - directories);
        self.vfs.unlink(&caller, &self.dir, &name).unwrap();
        true
    }

    /// Removes everything, with changes between that may find no space.
    fn empty(&mut self) {
        while self.remove_one() {
            if self.random.below(10) == 0 {
                match self.fill() {
                    Ok(()) | Err(Error::NoSpace) => {}
                    Err(error) => panic!("while it was emptied: {error}"),
                }
                // Else it would never be empty.
                for _ in 0..4 {
                    self.remove_one();
                }
            }
            if self.random.below(40) == 0 {
                self.nameless.pop();
            }
        }
        self.nameless.clear();
    }
}

fn make(vfs: &Vfs, dir: &Arc<Node>, name: &[u8], kind: NewKind<'_>) -> Result<Arc<Node>> {
    vfs.create(&Credentials::root(), dir, name, &NewObject { kind, permissions: 0o755, umask: 0 })
}

/// Blocks that are free and inodes that are in use, once everything is durable.
fn counts(fs: &Xfs) -> (u64, u64) {
    fs.sync().unwrap();
    let StatFs { blocks_free, inodes, inodes_free, .. } = fs.statfs().unwrap();
    (blocks_free, inodes - inodes_free)
}

fn fill_and_empty(shape: (u64, &str), seed: u64) {
    let (mib, args) = shape;
    let image: Image = MkfsXfs::new(mib, args).make().unwrap();
    let device: Device =
        Arc::new(MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite));
    for round in 0..2 {
        let what = format!("{mib} MiB {args}, seed {seed}, round {round}");
        let (fs, vfs) = open(&device);
        let before = counts(&fs);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let vfs = &vfs;
                scope.spawn(move || {
                    let seed = seed * 100 + thread + 1;
                    let mut worker = Worker::new(vfs, seed);
                    for _ in 0..2 {
                        worker.fill_until_full();
                        worker.empty();
                    }
                    let root = vfs.root().unwrap();
                    drop(worker);
                    vfs.rmdir(&Credentials::root(), &root, format!("of-{seed}").as_bytes()).unwrap();
                });
            }
        });
        assert!(fs.failure().is_none(), "{what}: {:?}", fs.failure());
        assert_eq!(counts(&fs), before, "{what}: free blocks and inodes in use");
        drop(vfs);
        fs.close().unwrap();
        let mut bytes = vec![0; device.size_bytes() as usize];
        device.read_at(0, &mut bytes).unwrap();
        std::fs::write(image.path(), bytes).unwrap();
        check_image(&image);
    }
}

/// `UNDERCROFT_SEED` is the first seed, `UNDERCROFT_XFS_FULL` how many there are (1); `UNDERCROFT_XFS_SHAPE` the number of the
/// only shape.
#[test]
fn volumes_are_filled_and_emptied_by_threads() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("UNDERCROFT_SEED").unwrap_or(1), number("UNDERCROFT_XFS_FULL").unwrap_or(1));
    for seed in first..first + count {
        let only = number("UNDERCROFT_XFS_SHAPE").map(|only| only as usize);
        for (n, shape) in SHAPES.into_iter().enumerate() {
            if only.is_none_or(|only| only == n) {
                fill_and_empty(shape, seed);
            }
        }
    }
}
