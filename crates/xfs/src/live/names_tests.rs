//! Names, in random order and against a model, on images by mkfs.xfs. Each ends with xfs_repair and with what Linux's
//! kernel lists.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::{Image, MkfsXfs, MountMode};
use undercroft_vfs::{
    Credentials, DirOffset, Error, FileSystem, FileType, NewKind, NewObject, Node, RenameFlags, Result, Vfs,
    VfsOptions,
};

use crate::testing::writable::check_image;
use crate::{OpenOptions, WriteOptions, Xfs};

/// A filesystem in memory, and what should be in it.
struct World {
    image: Image,
    device: Device,
    fs: Arc<Xfs>,
    vfs: Arc<Vfs>,
    /// Directories by number, with their names: each stands for a number, of a directory or of another inode.
    dirs: BTreeMap<u64, BTreeMap<Vec<u8>, u64>>,
    random: u64,
}

impl World {
    fn new(mib: u64, args: &str, buffer_bytes: usize) -> Self {
        let image = MkfsXfs::new(mib, args).make().unwrap();
        let device: Device =
            Arc::new(MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite));
        let options = OpenOptions { buffer_bytes, ..OpenOptions::default() };
        let fs = Xfs::open(Arc::clone(&device), options, WriteOptions::default()).unwrap();
        let vfs = Vfs::new(fs.clone(), VfsOptions::default());
        let root = fs.root().0;
        Self { image, device, fs, vfs, dirs: BTreeMap::from([(root, BTreeMap::new())]), random: 77 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// A directory, and most likely the root.
    fn some_dir(&mut self) -> (u64, Arc<Node>) {
        let number = self.random(self.dirs.len() as u64 * 2) as usize;
        let ino = self.dirs.keys().nth(number).copied().unwrap_or(self.fs.root().0);
        (ino, self.vfs.node(undercroft_vfs::Ino(ino)).unwrap())
    }

    fn name(&mut self, most: u64) -> Vec<u8> {
        let number = self.random(most);
        match number % 3 {
            0 => format!("{number}").into_bytes(),
            1 => format!("{number:0>60}").into_bytes(),
            _ => format!("{number:0>width$}", width = 20 + (number % 230) as usize).into_bytes(),
        }
    }

    fn step(&mut self, most: u64, grows: bool) {
        let who = Credentials::root();
        let (dir, node) = self.some_dir();
        let name = self.name(most);
        let entry = self.dirs[&dir].get(&name).copied();
        let target = [b'x'; 1024];
        match self.random(20) {
            0..10 if grows => {
                let kind = match self.random(12) {
                    0 => NewKind::Directory,
                    1 => NewKind::Fifo,
                    2 => NewKind::Symlink(b"short"),
                    3 => {
                        let len = [300, 340, 900, 1000, 1023][self.random(5) as usize];
                        NewKind::Symlink(&target[..len])
                    }
                    _ => NewKind::Regular,
                };
                let object = NewObject { kind, permissions: 0o755, umask: 0 };
                match self.vfs.create(&who, &node, &name, &object) {
                    Ok(made) => {
                        assert_eq!(entry, None);
                        self.dirs.get_mut(&dir).unwrap().insert(name, made.ino().0);
                        if kind == NewKind::Directory {
                            self.dirs.insert(made.ino().0, BTreeMap::new());
                        }
                    }
                    Err(Error::Exists) => assert!(entry.is_some()),
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            10..12 => {
                let (to, to_node) = self.some_dir();
                let to_name = self.name(most);
                let flags = match self.random(4) {
                    0 => RenameFlags::NO_REPLACE,
                    1 => RenameFlags::EXCHANGE,
                    2 => RenameFlags::WHITEOUT,
                    _ => RenameFlags::empty(),
                };
                let result = self.vfs.rename(&who, (&node, &name), (&to_node, &to_name), flags);
                self.note_rename((dir, &name), (to, &to_name), flags, result);
            }
            12 => {
                let Some(ino) = entry.filter(|ino| !self.dirs.contains_key(ino)) else { return };
                let (to, to_node) = self.some_dir();
                let to_name = self.name(most);
                let linked = self.vfs.node(undercroft_vfs::Ino(ino)).unwrap();
                match self.vfs.link(&who, &linked, &to_node, &to_name) {
                    Ok(()) => assert_eq!(self.dirs.get_mut(&to).unwrap().insert(to_name, ino), None),
                    Err(Error::Exists) => assert!(self.dirs[&to].contains_key(&to_name)),
                    Err(Error::NoSpace) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            13 => {
                let file = match self.vfs.tmpfile(&who, &node, 0o600, 0) {
                    Ok(file) => file,
                    Err(Error::NoSpace) => return,
                    Err(error) => panic!("{error}"),
                };
                if self.random(2) == 0 && entry.is_none() {
                    match self.vfs.link(&who, &file, &node, &name) {
                        Ok(()) => drop(self.dirs.get_mut(&dir).unwrap().insert(name, file.ino().0)),
                        Err(Error::NoSpace) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            _ => {
                let names = &self.dirs[&dir];
                let next = names.range(name..).next().or_else(|| names.iter().next());
                let Some((name, ino)) = next.map(|(name, ino)| (name.clone(), *ino)) else { return };
                // Some are in use while they are removed.
                let held = (self.random(2) == 0).then(|| self.vfs.lookup(&node, &name).unwrap());
                if let Some(names) = self.dirs.get(&ino) {
                    let removed = self.vfs.rmdir(&who, &node, &name);
                    if names.is_empty() {
                        removed.unwrap();
                        self.dirs.remove(&ino);
                    } else {
                        return assert!(matches!(removed, Err(Error::NotEmpty)), "{removed:?}");
                    }
                } else {
                    self.vfs.unlink(&who, &node, &name).unwrap();
                }
                self.dirs.get_mut(&dir).unwrap().remove(&name);
                drop(held);
            }
        }
    }

    fn note_rename(
        &mut self,
        (dir, name): (u64, &[u8]),
        (to, to_name): (u64, &[u8]),
        flags: RenameFlags,
        result: Result<()>,
    ) {
        match result {
            Ok(()) => {}
            Err(
                Error::NotFound
                | Error::Exists
                | Error::NotEmpty
                | Error::IsDirectory
                | Error::NotDirectory
                | Error::InvalidArgument(_)
                | Error::NoSpace,
            ) => return,
            Err(error) => panic!("{error}"),
        }
        let moved = self.dirs[&dir][name];
        let replaced = self.dirs[&to].get(to_name).copied();
        if replaced == Some(moved) {
            return;
        }
        self.dirs.get_mut(&to).unwrap().insert(to_name.to_vec(), moved);
        let source = self.dirs.get_mut(&dir).unwrap();
        match replaced {
            Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
                source.insert(name.to_vec(), other);
            }
            replaced => {
                if flags.contains(RenameFlags::WHITEOUT) {
                    let node = self.vfs.node(undercroft_vfs::Ino(dir)).unwrap();
                    let whiteout = self.vfs.lookup(&node, name).unwrap();
                    assert_eq!(whiteout.attr().kind, FileType::CharDevice);
                    source.insert(name.to_vec(), whiteout.ino().0);
                } else {
                    source.remove(name);
                }
                if let Some(replaced) = replaced {
                    self.dirs.remove(&replaced);
                }
            }
        }
    }

    fn check_listings(&self) {
        for (&ino, names) in &self.dirs {
            let node = self.vfs.node(undercroft_vfs::Ino(ino)).unwrap();
            let mut listed = BTreeMap::new();
            node.read_dir(DirOffset(0), &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    listed.insert(entry.name.to_vec(), entry.ino.0);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
            assert!(listed == *names, "{} names are listed, not {}", listed.len(), names.len());
            let subdirectories = names.values().filter(|ino| self.dirs.contains_key(ino)).count() as u32;
            assert_eq!(node.attr().links, 2 + subdirectories);
        }
    }

    /// Closes it, and has everything checked.
    fn finish(self) {
        self.check_listings();
        let Self { image, device, fs, vfs, dirs, .. } = self;
        drop(vfs);
        let root = fs.root().0;
        fs.close().unwrap();
        drop(fs);
        undercroft_oracle::save_device(&*device, image.path()).unwrap();
        check_image(&image);
        let mount = image.mount(MountMode::ReadOnly, "").unwrap();
        check_mounted(mount.path(), root, &dirs);
        mount.unmount().unwrap();
    }
}

fn check_mounted(path: &Path, ino: u64, dirs: &BTreeMap<u64, BTreeMap<Vec<u8>, u64>>) {
    use std::os::unix::ffi::OsStrExt;
    let mut listed = BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.path().symlink_metadata().unwrap();
        listed.insert(entry.file_name().as_bytes().to_vec(), meta.ino());
        if meta.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            assert_eq!(target.as_os_str().len() as u64, meta.size());
        }
    }
    assert!(listed == dirs[&ino], "{} names are listed, not {}", listed.len(), dirs[&ino].len());
    for (name, ino) in &listed {
        if dirs.contains_key(ino) {
            check_mounted(&path.join(std::ffi::OsStr::from_bytes(name)), *ino, dirs);
        }
    }
}

fn run(mib: u64, args: &str, buffer_bytes: usize, most: u64, steps: u64, seed: u64) {
    let mut world = World::new(mib, args, buffer_bytes);
    world.random = seed;
    for step in 0..steps {
        world.step(most, step < steps * 2 / 3);
        if step % (steps / 5) == 0 {
            world.check_listings();
            world.fs.sync().unwrap();
        }
    }
    world.finish();
}

#[test]
fn random_changes_leave_what_linux_finds_right() {
    for (args, most, seed) in [
        ("", 2000, 1),
        ("-m rmapbt=1,reflink=1 -i size=2048", 500, 2),
        ("-m finobt=0,rmapbt=0,reflink=0 -i size=1024 -s size=4096", 300, 3),
        ("-b size=8192 -d agcount=8", 1000, 4),
    ] {
        println!("mkfs.xfs {args}");
        run(300, args, 8 << 20, most, 5000, seed);
    }
}

/// Hundreds of blocks in each of a few directories, with 64 blocks in the cache.
#[test]
fn a_small_cache_is_enough() {
    run(300, "", 1, 6000, 10_000, 9);
}
