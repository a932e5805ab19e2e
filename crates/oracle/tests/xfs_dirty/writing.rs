//! A copy of a dirty image, recovered by us for writing, and written to a little.
//!
//! Afterwards the log is clean, xfs_repair and our check find nothing, unlinked inodes are gone, and the kernel shows
//! what we show: what the changes did not touch is as the image showed it read-only.

use std::collections::HashSet;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::operations::{Abilities, Done, Hand, Operation, OurHand, Worker};
use undercroft_oracle::{Differences, Image, Manifest, MountMode, kernel_manifest, our_manifest};
use undercroft_vfs::{Error, FallocateMode, FileSystem, Vfs, VfsOptions};
use undercroft_xfs::{CheckOptions, OpenOptions, Recovery, WriteOptions, Xfs};

use crate::judge::{grant_map_blocks, open, repair_finds_nothing};
use crate::setup::{Dirty, LoopDevice};

/// Changes to what is new.
const OPERATIONS: usize = 300;

/// Files of the image that are changed, at most.
const OLD: usize = 24;

/// The worker's number: names of the load do not have it.
const WORKER: u64 = 7;

/// What became of an image that was to be written to.
#[derive(Debug)]
pub(crate) enum Written {
    /// Refused by name, and nothing changed.
    Refused(String),
    Done,
}

/// Recovers a copy for writing, writes to it, and judges what is left. `shown` is the image's tree.
pub(crate) fn judge(dirty: &Dirty, shown: &Manifest, recovery: Option<&Recovery>, name: &str) -> Written {
    let copy = dirty.image.reflink().unwrap();
    let log = dirty.log.as_ref().map(|log| log.reflink().unwrap());
    let device = |image: &Image| -> Device {
        Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap())
    };
    let options = OpenOptions { log_device: log.as_ref().map(device), ..OpenOptions::default() };
    let fs = match Xfs::open(device(&copy), options, WriteOptions::default()) {
        Ok(fs) => fs,
        Err(Error::Unsupported(what)) => {
            assert_eq!(dirty.image.sha256().unwrap(), copy.sha256().unwrap(), "{name}: refused and changed");
            return Written::Refused(what.to_string());
        }
        Err(error) => panic!("{name}: opened for writing: {error}, {recovery:?}"),
    };
    assert_eq!(fs.recovery(), recovery, "{name}: recovered for reading and for writing");
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let touched = change(&vfs, shown, name);
    drop(vfs);
    fs.close().unwrap_or_else(|error| panic!("{name}: closed after writing: {error}"));
    drop(fs);
    // Nothing else may see an image that this finds fault with.
    let log_loop = log.as_ref().map(|log| LoopDevice::of(log).unwrap());
    repair_finds_nothing(copy.path(), log_loop.as_ref().map(LoopDevice::path))
        .unwrap_or_else(|error| panic!("{name}: {recovery:?}: {error}"));
    let copy = Dirty { image: copy, log, live: None, small_blocks: false };
    let fs = open(&copy).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    assert_eq!(fs.recovery(), None, "{name}: the log holds changes after a close");
    let found = fs.check(&CheckOptions::default()).unwrap();
    // An attribute that a crash found half written stays so for ever, as for xfs_repair.
    let told = found.findings.iter().map(ToString::to_string).filter(|what| !what.contains("half made"));
    let told: Vec<String> = told.take(20).collect();
    assert!(told.is_empty(), "{name}: our check after writing, {recovery:?}:\n{}", told.join("\n"));
    let mut ours = our_manifest(&vfs).unwrap_or_else(|error| panic!("{name}: {error}"));
    drop((fs, vfs));
    let untouched = grant_map_blocks(touched.without(&ours), shown, recovery);
    Differences::between(&touched.without(shown), &untouched)
        .assert_none(&format!("{name}: before and after writing, {recovery:?}"));
    assert_eq!(inodes_in_use(&ours), inodes_in_tree(&ours), "{name}: unlinked inodes are left");
    let log_option = log_loop.as_ref().map_or_else(String::new, |log| format!(",logdev={}", log.path()));
    let mount = copy.image.mount(MountMode::ReadOnly, &format!("noatime,nouuid{log_option}")).unwrap();
    let mut theirs = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    for tree in [&mut ours, &mut theirs] {
        tree.space.iter_mut().for_each(|space| space.fsid = 0);
    }
    Differences::between(&theirs, &ours).assert_none(&format!("{name}: after writing, {recovery:?}"));
    Written::Done
}

/// What changes may have touched.
struct Touched(HashSet<Vec<u8>>);

impl Touched {
    fn new() -> Self {
        Self(HashSet::from([Vec::new(), b"shared".to_vec()]))
    }

    /// Notes a file and the directory it is in.
    fn add(&mut self, path: &[u8]) {
        let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.0.insert(path[..end].to_vec());
        self.0.insert(path.to_vec());
    }

    /// What is left of a tree.
    fn without(&self, tree: &Manifest) -> Manifest {
        let (own, in_shared) = (format!("worker-{WORKER}"), format!("shared/of-{WORKER}-"));
        let is_new = |path: &[u8]| path.starts_with(own.as_bytes()) || path.starts_with(in_shared.as_bytes());
        let mut tree = tree.clone();
        tree.space = None;
        tree.entries.retain(|path, _| !self.0.contains(path) && !is_new(path));
        tree
    }
}

/// Changes some of what is there, and makes something new.
fn change(vfs: &Arc<Vfs>, shown: &Manifest, name: &str) -> Touched {
    let hand = OurHand::new(vfs);
    let act = |operation: &Operation| match hand.act(operation) {
        Ok(Done::Yes) => true,
        Ok(Done::Refused) => false,
        // Some loads fill their image.
        Err(said) if said.ends_with(&Error::NoSpace.to_string()) => false,
        Err(said) => panic!("{name}: {said}"),
    };
    let mut touched = Touched::new();
    let files: Vec<&str> = shown
        .entries
        .iter()
        .filter(|(_, entry)| entry.is_regular() && entry.links == 1)
        .filter_map(|(path, _)| std::str::from_utf8(path).ok())
        .collect();
    let step = files.len().div_ceil(OLD).max(1);
    for (number, path) in files.into_iter().step_by(step).enumerate() {
        touched.add(path.as_bytes());
        let path = path.to_owned();
        act(&match number % 6 {
            0 | 1 => Operation::Unlink { path },
            2 => Operation::Append { path, len: 20_000, seed: 1 },
            3 => Operation::Write { path, offset: 3000, len: 9000, seed: 2 },
            4 => Operation::Truncate { path, size: 5000 },
            _ => Operation::Space {
                path,
                change: FallocateMode::PunchHole,
                offset: 4096,
                len: 16_384,
                keep_size: true,
            },
        });
    }
    let abilities = Abilities {
        extents: true,
        shares: false,
        block_bytes: 4096,
        value_max_bytes: 3000,
        reach_bytes: 60_000,
    };
    let ground = [Operation::Mkdir { path: "shared".to_owned() }, Worker::ground(WORKER)];
    let work = ground.into_iter().chain(Worker::new(1, WORKER, abilities).take(OPERATIONS));
    let done = work.filter(act).count();
    assert!(done > OPERATIONS / 10, "{name}: only {done} of {OPERATIONS} changes were made");
    touched
}

fn inodes_in_use(tree: &Manifest) -> u64 {
    tree.space.as_ref().map_or(0, |space| space.inodes - space.inodes_free)
}

/// Inodes that have a name, and the two of the realtime section, which has none here.
fn inodes_in_tree(tree: &Manifest) -> u64 {
    let inos: HashSet<u64> = tree.entries.values().map(|entry| entry.ino).collect();
    inos.len() as u64 + 2
}
