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
    AttrChange, Credentials, DirOffset, Error, FileSystem, FileType, InodeFlags, NewKind, NewObject, Node,
    RenameFlags, Result, Vfs, VfsOptions,
};

use super::{Live, names};
use crate::ag::Agi;
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
        // Commits are made by the test, so that what it copies as a crash leaves it does not change meanwhile.
        let write_options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
        let fs = Xfs::open(Arc::clone(&device), options, write_options).unwrap();
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

fn object(kind: NewKind<'_>) -> NewObject<'_> {
    NewObject { kind, permissions: 0o644, umask: 0 }
}

/// An image as a crash leaves it now.
fn crashed(world: &World) -> Image {
    let image = world.image.copy().unwrap();
    undercroft_oracle::save_device(&*world.device, image.path()).unwrap();
    image
}

#[test]
fn what_a_crash_leaves_is_recovered_by_linux_and_by_us() {
    let mut world = World::new(300, "", 8 << 20);
    for round in 0..3 {
        for step in 0..400 {
            world.step(200, round < 2);
            if step == 200 {
                world.fs.sync().unwrap();
            }
        }
        let image = crashed(&world);
        let ours = image.copy().unwrap();
        image.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
        check_image(&image);
        let bytes = std::fs::read(ours.path()).unwrap();
        let device: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite));
        let again = Xfs::open(Arc::clone(&device), OpenOptions::default(), WriteOptions::default()).unwrap();
        again.close().unwrap();
        undercroft_oracle::save_device(&*device, ours.path()).unwrap();
        check_image(&ours);
    }
    world.finish();
}

/// By one handle, and never on an unlinked list.
#[test]
fn an_unused_file_is_deleted_with_its_name_and_one_in_use_with_its_last_user() {
    let world = World::new(300, "", 8 << 20);
    let (who, root) = (Credentials::root(), world.vfs.root().unwrap());
    let make = |name: &[u8], kind| world.vfs.create(&who, &root, name, &object(kind)).unwrap();
    let unlink = |name: &[u8]| {
        let before = world.fs.write_stats().handles_started;
        world.vfs.unlink(&who, &root, name).unwrap();
        world.fs.write_stats().handles_started - before
    };
    let used = || -> u32 {
        // The headers have the counts of the last commit.
        world.fs.sync().unwrap();
        let volume = world.fs.volume();
        let of = |ag| Agi::read(volume, ag).map(|agi| agi.inodes() - agi.free_inodes()).unwrap();
        volume.geometry().ags().map(of).sum()
    };
    let before = used();
    for kind in
        [NewKind::Regular, NewKind::Symlink(b"somewhere"), NewKind::Symlink(&[b'x'; 1000]), NewKind::Fifo]
    {
        drop(make(b"file", kind));
        assert_eq!(unlink(b"file"), 1, "{kind:?}");
        assert_eq!(used(), before);
    }
    let file = make(b"file", NewKind::Regular);
    world.vfs.link(&who, &file, &root, b"other").unwrap();
    assert_eq!(unlink(b"file"), 1);
    assert_eq!(unlink(b"other"), 1);
    assert_eq!((file.attr().links, used()), (0, before + 1));
    let unnamed = world.vfs.tmpfile(&who, &root, 0o600, 0).unwrap();
    // Both are deleted by the next recovery now.
    world.fs.sync().unwrap();
    let image = crashed(&world);
    image.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
    check_image(&image);
    drop((file, unnamed));
    assert_eq!(used(), before);
    drop(root);
    world.finish();
}

#[test]
fn a_directory_with_room_takes_names_on_a_full_disk() {
    let mut world = World::new(300, "", 8 << 20);
    let (who, root) = (Credentials::root(), world.vfs.root().unwrap());
    let dir = world.vfs.create(&who, &root, b"dir", &object(NewKind::Directory)).unwrap();
    let mut names = BTreeMap::new();
    for number in 0..60 {
        let name = format!("a name that is not short {number}").into_bytes();
        names.insert(
            name.clone(),
            world.vfs.create(&who, &dir, &name, &object(NewKind::Regular)).unwrap().ino().0,
        );
    }
    let filler = world.vfs.create(&who, &root, b"filler", &object(NewKind::Regular)).unwrap();
    let file = world.vfs.open_node_for_writing(&filler).unwrap();
    let mut size = 0;
    let chunk = vec![7; 1 << 20];
    loop {
        match file.write_at(size, &chunk) {
            Ok(0) | Err(Error::NoSpace) => break,
            Ok(written) => size += written as u64,
            Err(error) => panic!("{error}"),
        }
    }
    let refused = world.vfs.create(&who, &root, b"link", &object(NewKind::Symlink(&[b'x'; 1000])));
    println!("{refused:?}");
    for number in 0..5 {
        let name = format!("another {number}").into_bytes();
        names.insert(
            name.clone(),
            world.vfs.create(&who, &dir, &name, &object(NewKind::Regular)).unwrap().ino().0,
        );
        let moved = format!("moved {number}").into_bytes();
        world.vfs.rename(&who, (&dir, &name), (&dir, &moved), RenameFlags::empty()).unwrap();
        let ino = names.remove(&name).unwrap();
        names.insert(moved, ino);
    }
    // Until it has no room: nothing but names is refused.
    for number in 0.. {
        let name = format!("{number:0>200}").into_bytes();
        match world.vfs.create(&who, &dir, &name, &object(NewKind::Regular)) {
            Ok(made) => drop(names.insert(name, made.ino().0)),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let mut root_names =
        BTreeMap::from([(b"dir".to_vec(), dir.ino().0), (b"filler".to_vec(), filler.ino().0)]);
    if let Ok(made) = refused {
        root_names.insert(b"link".to_vec(), made.ino().0);
    }
    world.dirs = BTreeMap::from([(root.ino().0, root_names), (dir.ino().0, names)]);
    drop((root, dir, filler, file));
    world.finish();
}

#[test]
fn a_directory_that_hands_its_project_on_takes_no_file_of_another() {
    let world = World::new(300, "", 8 << 20);
    let (who, root) = (Credentials::root(), world.vfs.root().unwrap());
    let dir = world.vfs.create(&who, &root, b"dir", &object(NewKind::Directory)).unwrap();
    let change =
        AttrChange { flags: Some(InodeFlags::PROJECT_INHERIT), project: Some(7), ..AttrChange::default() };
    world.vfs.set_attr(&who, &dir, &change).unwrap();
    let file = world.vfs.create(&who, &root, b"file", &object(NewKind::Regular)).unwrap();
    let own = world.vfs.create(&who, &dir, b"own", &object(NewKind::Regular)).unwrap();
    assert_eq!(own.attr().project, 7);
    let fifo = world.vfs.create(&who, &root, b"fifo", &object(NewKind::Fifo)).unwrap();
    let refused = world.vfs.link(&who, &file, &dir, b"linked");
    assert!(matches!(refused, Err(Error::CrossDevice)), "{refused:?}");
    for flags in [RenameFlags::empty(), RenameFlags::EXCHANGE] {
        let refused = world.vfs.rename(&who, (&root, b"file"), (&dir, b"own"), flags);
        assert!(matches!(refused, Err(Error::CrossDevice)), "{refused:?}");
    }
    world.vfs.link(&who, &fifo, &dir, b"fifo").unwrap();
    world.vfs.rename(&who, (&dir, b"own"), (&root, b"own"), RenameFlags::empty()).unwrap();
    drop((file, own, fifo, root, dir));
    world.fs.close().unwrap();
    check_image(&crashed(&world));
}

/// Threads that make, move, remove and list names in the same few directories.
#[test]
fn threads_change_the_same_directories() {
    const THREADS: u64 = 4;
    let world = World::new(300, "", 1 << 20);
    let (who, root) = (Credentials::root(), world.vfs.root().unwrap());
    let dirs: Vec<_> = (0..3)
        .map(|number| {
            world
                .vfs
                .create(&who, &root, format!("dir{number}").as_bytes(), &object(NewKind::Directory))
                .unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (vfs, dirs) = (&world.vfs, &dirs);
            scope.spawn(move || {
                let who = Credentials::root();
                let mut random = thread + 1;
                for step in 0..1500 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let dir = &dirs[(random % 3) as usize];
                    let other = &dirs[(random / 3 % 3) as usize];
                    let name = format!("{:0>20}", random / 9 % 150).into_bytes();
                    let to = format!("{:0>20}", random / 5000 % 150).into_bytes();
                    let outcome = match step % 7 {
                        0..3 => vfs.create(&who, dir, &name, &object(NewKind::Regular)).map(drop),
                        3 => vfs.rename(&who, (dir, &name), (other, &to), RenameFlags::empty()),
                        4 => vfs.create(&who, dir, &name, &object(NewKind::Directory)).map(drop),
                        5 => vfs.unlink(&who, dir, &name).or_else(|_| vfs.rmdir(&who, dir, &name)),
                        _ => vfs.rename(&who, (dir, &name), (other, &to), RenameFlags::EXCHANGE),
                    };
                    match outcome {
                        Ok(())
                        | Err(
                            Error::Exists
                            | Error::NotFound
                            | Error::NotEmpty
                            | Error::IsDirectory
                            | Error::NotDirectory
                            | Error::InvalidArgument(_),
                        ) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if step % 50 == 0 {
                        dir.read_dir(DirOffset(0), &mut |_| ControlFlow::Continue(())).unwrap();
                    }
                }
            });
        }
    });
    drop((dirs, root));
    let World { image, device, fs, vfs, .. } = world;
    drop(vfs);
    fs.close().unwrap();
    undercroft_oracle::save_device(&*device, image.path()).unwrap();
    check_image(&image);
}

/// Which times change is what Linux was seen to do.
#[test]
fn files_that_change_places_keep_their_times_and_directories_that_get_another_parent_do_not() {
    let world = World::new(300, "", 1 << 20);
    let (who, root) = (Credentials::root(), world.vfs.root().unwrap());
    let make = |dir: &Arc<Node>, name: &[u8], kind| world.vfs.create(&who, dir, name, &object(kind)).unwrap();
    let [p, q] = [b"p", b"q"].map(|name| make(&root, name, NewKind::Directory));
    let (d, e) = (make(&p, b"d", NewKind::Directory), make(&q, b"e", NewKind::Directory));
    let (f, g) = (make(&p, b"f", NewKind::Regular), make(&q, b"g", NewKind::Regular));
    let times = |node: &Arc<Node>| {
        let attr = node.attr();
        (attr.modified, attr.changed)
    };
    let changed = |nodes: &[&Arc<Node>], change: &dyn Fn()| {
        let before: Vec<_> = nodes.iter().map(|node| times(node)).collect();
        std::thread::sleep(std::time::Duration::from_millis(20));
        change();
        let after = nodes.iter().map(|node| times(node));
        let changed = before.iter().zip(after).map(|(before, after)| {
            match (before.0 != after.0, before.1 != after.1) {
                (true, true) => "mc",
                (false, true) => "-c",
                (true, false) => "m-",
                (false, false) => "--",
            }
        });
        changed.collect::<Vec<_>>().join(" ")
    };
    let rename = |from: (&Arc<Node>, &[u8]), to: (&Arc<Node>, &[u8]), flags| {
        world.vfs.rename(&who, from, to, flags).unwrap();
    };
    let exchange = RenameFlags::EXCHANGE;
    assert_eq!(changed(&[&p, &q, &f, &g], &|| rename((&p, b"f"), (&q, b"g"), exchange)), "mc mc -- --");
    assert_eq!(changed(&[&p, &q, &d, &e], &|| rename((&p, b"d"), (&q, b"e"), exchange)), "mc mc mc mc");
    assert_eq!(changed(&[&p, &q, &e, &f], &|| rename((&p, b"d"), (&q, b"g"), exchange)), "mc mc mc -c");
    assert_eq!(changed(&[&q, &d, &e], &|| rename((&q, b"e"), (&q, b"g"), exchange)), "mc -- --");
    assert_eq!(
        changed(&[&q, &p, &d], &|| rename((&q, b"g"), (&p, b"moved"), RenameFlags::empty())),
        "mc mc -c"
    );
    assert_eq!(changed(&[&p, &f], &|| rename((&p, b"d"), (&p, b"f"), RenameFlags::empty())), "mc -c");
    drop((p, q, d, e, f, g, root));
    world.fs.close().unwrap();
    check_image(&crashed(&world));
}

/// As on a full disk where the blocks that were to be removed lie amid others.
#[test]
fn directories_that_keep_their_blocks_are_right_for_linux() {
    const NAMES: usize = 3000;
    let mut world = World::new(300, "", 8 << 20);
    let (who, root) = (Credentials::root(), world.vfs.root().unwrap());
    let dir = world.vfs.create(&who, &root, b"dir", &object(NewKind::Directory)).unwrap();
    let name = |number: usize| format!("{number:0>100}").into_bytes();
    let mut names = BTreeMap::new();
    for number in 0..NAMES {
        let made = world.vfs.create(&who, &dir, &name(number), &object(NewKind::Regular)).unwrap();
        names.insert(name(number), made.ino().0);
    }
    let live = dir.inode_as::<Live>().unwrap();
    let blocks = live.fields.read().core.blocks;
    // Most of what leaves and blocks of names have. One without any name xfs_repair does not like, which Linux leaves too.
    for number in (1..NAMES - 1).filter(|number| number % 20 != 0) {
        let victim = world.vfs.lookup(&dir, &name(number)).unwrap();
        names::unlink_once(live, &name(number), victim.inode_as().unwrap(), true).unwrap();
        names.remove(&name(number));
    }
    assert_eq!(live.fields.read().core.blocks, blocks);
    let ino = dir.ino().0;
    world.dirs = BTreeMap::from([(root.ino().0, BTreeMap::from([(b"dir".to_vec(), ino)])), (ino, names)]);
    drop((dir, root));
    // The names that went are still in the cache: what is in the filesystem is listed by Linux.
    world.finish();
}
