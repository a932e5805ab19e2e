//! For tests: a tree of any kind on a device in memory, in blocks of 1 KiB, so that it becomes deep with few records.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use undercroft_block::{BlockDevice, MemoryDevice};
use undercroft_vfs::Ino;

use super::*;
use crate::alloc::Allocator;
use crate::format::{AgBlock, AgNumber, Superblock, testing};
use crate::options::WriteOptions;
use crate::transaction::{Stop, Tid};
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

const GROUP: AgNumber = AgNumber(1);
const GROUP_BLOCKS: u32 = 65_536;
const INO: Ino = Ino(131);
/// Blocks of the group that a tree may have, from this one on.
const FIRST: u32 = 60_000;

/// A device with a filesystem whose blocks have 1 KiB, and no groups but in name.
fn device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let sector = testing::superblock_sector(|raw| {
        raw.sb_blocksize.set(1024);
        raw.sb_blocklog = 10;
        raw.sb_inopblock.set(2);
        raw.sb_inopblog = 1;
        raw.sb_dblocks.set(4 * u64::from(GROUP_BLOCKS));
        raw.sb_agblocks.set(GROUP_BLOCKS);
        raw.sb_agblklog = 16;
        raw.sb_logstart.set(131_080);
        raw.sb_fdblocks.set(200_000);
        raw.sb_features_ro_compat.set(0xf);
    });
    device.write_at(0, &sector).unwrap();
    device
}

fn mounted(device: &Arc<MemoryDevice>, cache_bytes: usize) -> Mounted {
    let superblock = Superblock::read(&**device).unwrap();
    let stop = Arc::<Stop>::default();
    let volume = Volume::for_changes(Arc::clone(device) as _, superblock, cache_bytes, Arc::clone(&stop));
    let mounted = Mounted::new(volume);
    let allocator = Arc::new(Allocator::without_groups());
    let transactions = Transactions::unlogged(Tid(1), 1 << 24, stop);
    mounted.set_writer(Writer::with(allocator, transactions, WriteOptions::default()));
    mounted
}

/// Blocks for a tree; each that is taken or put back is noted.
pub(crate) struct Space {
    free: Vec<u32>,
    pub(super) used: BTreeSet<u32>,
}

impl Space {
    pub(super) fn new() -> Self {
        Self { free: (FIRST..GROUP_BLOCKS).rev().collect(), used: BTreeSet::new() }
    }
}

impl TreeSpace for Space {
    fn take(&mut self, handle: &Handle<'_>) -> Result<FsBlock> {
        let at = self.free.pop().unwrap();
        assert!(self.used.insert(at));
        Ok(handle.volume().geometry().join(GROUP, AgBlock(at)).unwrap())
    }

    fn put(&mut self, handle: &Handle<'_>, block: FsBlock) -> Result<()> {
        let (_, at) = handle.volume().geometry().split(block).unwrap();
        assert!(self.used.remove(&at.0), "{at} was put back twice");
        // Used again in another order.
        self.free.insert(self.free.len() / 2, at.0);
        Ok(())
    }
}

/// A tree of a kind, and the filesystem that it is in.
pub(crate) struct TestTree<K: Kind> {
    device: Arc<MemoryDevice>,
    pub(super) mounted: Mounted,
    cache_bytes: usize,
    pub(super) space: Space,
    root: Root,
    pub(super) levels: u8,
    kind: PhantomData<K>,
}

impl<K: ChangeKind> TestTree<K> {
    /// A tree without records; in a fork of so many bytes, with one record.
    pub(crate) fn new(cache_bytes: usize, fork: Option<(usize, K::Record)>) -> Self {
        let device = device();
        let mounted = mounted(&device, cache_bytes);
        let mut space = Space::new();
        let handle = mounted.start(10).unwrap();
        let at = space.take(&handle).unwrap();
        let mut tree = Btree::<K> {
            volume: &mounted,
            root: Root::Block(at),
            levels: 1,
            ag: if K::LONG { AgNumber(0) } else { GROUP },
            ino: K::LONG.then_some(INO),
            kind: PhantomData,
        };
        let leaf = tree.make_block(&handle, at, 0).unwrap();
        if let Some((fork_bytes, record)) = fork {
            let mut bytes = vec![0; K::RECORD_BYTES];
            K::pack(&record, &mut bytes, mounted.geometry());
            tree.edit(&handle, &leaf, |mut view| view.insert(0, &Entries::one(&bytes, &[])));
            let mut fork = vec![0; fork_bytes];
            let layout = Layout::of_fork::<K>(fork_bytes);
            let entry = Entries::one(&tree.pointer_key(&leaf)[..K::KEY_BYTES], &tree.pointer_to(at));
            let mut view = View::new(&mut fork[..], layout);
            view.set_level(1);
            view.insert(0, &entry);
            tree.root = Root::Fork(fork.into());
            tree.levels = 2;
        }
        let (root, levels) = (tree.root.clone(), tree.levels);
        drop(handle);
        Self { device, mounted, cache_bytes, space, root, levels, kind: PhantomData }
    }

    /// The tree as it is found where it begins.
    pub(crate) fn open(&self) -> Btree<'_, K> {
        match &self.root {
            Root::Block(at) => {
                let at = self.mounted.geometry().split(*at).unwrap().1;
                Btree::in_ag(&self.mounted, GROUP, at, u32::from(self.levels)).unwrap()
            }
            Root::Fork(fork) => Btree::in_fork(&self.mounted, INO, fork).unwrap(),
        }
    }

    /// Changes the tree by one record.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&mut Btree<'_, K>, &Handle<'_>, &mut Space) -> Result<()>,
    ) {
        let mut tree = match &self.root {
            Root::Block(at) => {
                let at = self.mounted.geometry().split(*at).unwrap().1;
                Btree::in_ag(&self.mounted, GROUP, at, u32::from(self.levels)).unwrap()
            }
            Root::Fork(fork) => Btree::in_fork(&self.mounted, INO, fork).unwrap(),
        };
        let levels = tree.levels();
        let handle = self.mounted.start(credits(levels)).unwrap();
        let before = self.space.used.len();
        change(&mut tree, &handle, &mut self.space).unwrap();
        assert!(self.space.used.len() <= before + space(levels) as usize);
        let (root, levels) = (tree.root.clone(), tree.levels);
        drop(handle);
        (self.root, self.levels) = (root, levels);
    }

    /// All records, in order.
    pub(crate) fn all(&self) -> Vec<K::Record> {
        let mut found = Vec::new();
        self.open()
            .for_each(|record| {
                found.push(record);
                Ok(())
            })
            .unwrap();
        found
    }

    /// Compares the tree's blocks with those that it has taken, and its keys and its fill with what they have to be.
    #[track_caller]
    pub(crate) fn check_shape(&self) {
        let tree = self.open();
        let mut blocks = BTreeSet::new();
        tree.for_each_block(|block, _| {
            assert!(blocks.insert(self.mounted.geometry().split(block).unwrap().1.0));
            Ok(())
        })
        .unwrap();
        assert_eq!(blocks, self.space.used, "the tree's blocks");
        let root = tree.read_root().unwrap();
        self.check_below(&tree, &root, true);
    }

    /// Checks keys and fill below a block.
    fn check_below(&self, tree: &Btree<'_, K>, node: &Node<K>, alone: bool) {
        assert!(alone || node.count >= tree.room(node) / 2, "{} entries in {:?}", node.count, node.block);
        if node.level == 0 {
            return;
        }
        let held = Held::new(node);
        for n in 0..node.count {
            let child = Node::read(tree, node.child(n, tree).unwrap(), node.level - 1).unwrap();
            let key = tree.pointer_key(&Held::new(&child));
            tree.look(&held, |view| assert_eq!(view.key(n), &key[..K::KEY_BYTES], "key {n}"));
            self.check_below(tree, &child, node.block.is_none() && node.count == 1);
        }
    }

    /// Makes everything durable, and begins again with an empty cache.
    pub(crate) fn reopen(&mut self) {
        self.mounted.writer().unwrap().transactions.commit_running(&self.mounted).unwrap();
        self.mounted = mounted(&self.device, self.cache_bytes);
    }

    /// Changes a block on the device, and begins again with an empty cache.
    pub(super) fn damage(&mut self, block: FsBlock, change: impl FnOnce(&mut [u8])) {
        let at = self.mounted.geometry().byte(block).unwrap();
        let mut bytes = vec![0; 1024];
        self.device.read_at(at, &mut bytes).unwrap();
        change(&mut bytes);
        self.device.write_at(at, &bytes).unwrap();
        self.mounted = mounted(&self.device, self.cache_bytes);
    }

    /// Makes everything durable and goes on with what the cache has.
    pub(crate) fn commit(&self) {
        self.mounted.writer().unwrap().transactions.commit_running(&self.mounted).unwrap();
    }
}
