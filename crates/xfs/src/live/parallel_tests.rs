//! Threads that change names in one directory at the same time, in each of its forms. Each ends with what is listed, with
//! xfs_repair and with this crate's own check.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::MkfsXfs;
use undercroft_vfs::{
    Credentials, DirOffset, Error, FileSystem, NewObject, Node, RenameFlags, Vfs, VfsOptions,
};

use crate::testing::writable::check_image;
use crate::{OpenOptions, WriteOptions, Xfs};

const THREADS: u64 = 4;

/// A thread's names, and what they lead to.
type Names = BTreeMap<Vec<u8>, u64>;

/// One thread's changes, of names that no other thread has.
struct Worker<'w> {
    vfs: &'w Arc<Vfs>,
    dir: &'w Arc<Node>,
    who: Credentials,
    number: u64,
    random: u64,
    names: Names,
}

impl Worker<'_> {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Names of one thread, of any length, some of which have the hash of another.
    fn name(&mut self, most: u64) -> Vec<u8> {
        let number = self.random(most);
        let width = [1, 8, 40, 200][(number % 4) as usize];
        format!("{}-{number:0>width$}", self.number).into_bytes()
    }

    /// As many names as `usual`, more or less.
    fn step(&mut self, usual: u64) {
        let name = self.name(usual * 2);
        let known = self.names.get(&name).copied();
        match self.random(10) {
            0..5 => match self.vfs.create(&self.who, self.dir, &name, &NewObject::file(0o644)) {
                Ok(made) => {
                    assert_eq!(known, None);
                    self.names.insert(name, made.ino().0);
                }
                Err(Error::Exists) => assert!(known.is_some()),
                Err(error) => panic!("{error}"),
            },
            5..9 => match self.vfs.unlink(&self.who, self.dir, &name) {
                Ok(()) => assert!(self.names.remove(&name).is_some()),
                Err(Error::NotFound) => assert_eq!(known, None),
                Err(error) => panic!("{error}"),
            },
            _ => {
                let to = self.name(usual * 2);
                match self.vfs.rename(&self.who, (self.dir, &name), (self.dir, &to), RenameFlags::empty()) {
                    Ok(()) => {
                        let moved = self.names.remove(&name).expect("what was moved was there");
                        self.names.insert(to, moved);
                    }
                    Err(Error::NotFound) => assert_eq!(known, None),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        // What stays is found, whatever other threads do.
        let any = self.name(usual * 2);
        match self.vfs.lookup(self.dir, &any) {
            Ok(found) => assert_eq!(self.names.get(&any), Some(&found.ino().0)),
            Err(Error::NotFound) => assert_eq!(self.names.get(&any), None),
            Err(error) => panic!("{error}"),
        }
    }
}

fn listed(dir: &Node) -> Names {
    let mut names = Names::new();
    dir.read_dir(DirOffset(0), &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            assert_eq!(names.insert(entry.name.to_vec(), entry.ino.0), None, "a name is listed twice");
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// Threads of which each has about `usual` names in the directory.
fn run(args: &str, usual: u64, steps: u64) {
    let image = MkfsXfs::new(300, args).make().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let device: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite));
    let written = WriteOptions { commit_seconds: 1, ..WriteOptions::default() };
    let fs = Xfs::open(Arc::clone(&device), OpenOptions::default(), written).unwrap();
    // Small name caches, so that names are looked up in the directory itself.
    let vfs = Vfs::new(fs.clone(), VfsOptions { name_cache_bytes: 4096, ..VfsOptions::default() });
    let (root, who) = (vfs.root().unwrap(), Credentials::root());
    let dir = vfs.create(&who, &root, b"dir", &NewObject::directory(0o755)).unwrap();
    let done: Vec<Names> = thread::scope(|scope| {
        let started: Vec<_> = (0..THREADS)
            .map(|number| {
                let (vfs, dir, fs) = (&vfs, &dir, &fs);
                scope.spawn(move || {
                    let random = 0x9E37_79B9_7F4A_7C15 ^ (number + 1) << 20 ^ usual;
                    let who = Credentials::root();
                    let mut worker = Worker { vfs, dir, who, number, random, names: Names::new() };
                    for step in 0..steps {
                        worker.step(usual);
                        if step % 500 == number * 100 {
                            fs.sync().unwrap();
                        }
                    }
                    worker.names
                })
            })
            .collect();
        started.into_iter().map(|started| started.join().expect("a worker panicked")).collect()
    });
    let expected: Names = done.into_iter().flatten().collect();
    let found = listed(&dir);
    assert!(found == expected, "{} names are listed, not {}", found.len(), expected.len());
    drop((dir, root, vfs));
    fs.close().unwrap();
    drop(fs);
    undercroft_oracle::save_device(&*device, image.path()).unwrap();
    check_image(&image);
}

#[test]
fn several_threads_in_a_directory_in_its_inode() {
    run("", 1, 4000);
    run("-i size=2048", 4, 4000);
}

#[test]
fn several_threads_in_a_directory_of_one_block() {
    run("-m rmapbt=1", 8, 4000);
}

#[test]
fn several_threads_in_a_directory_with_one_leaf() {
    run("", 60, 6000);
}

#[test]
fn several_threads_in_a_directory_with_a_tree() {
    run("-m finobt=0,rmapbt=0,reflink=0 -i sparse=0", 800, 8000);
    run("-m rmapbt=1", 2500, 12_000);
}
