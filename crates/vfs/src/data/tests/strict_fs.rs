//! A filesystem that holds the data path to the contract.
//!
//! Two files whose blocks lie scattered on a device in memory, or are kept. What was never written, and what lies
//! past the end of a file, is litter and not zeroes; every promise that the contract makes to a filesystem is
//! asserted where it is kept or broken.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_block::{Device, MemoryDevice};
use undercroft_sync::{Mutex, order};

use crate::{
    Attr, AttrChange, DeviceNumber, DirEntry, DirOffset, Error, Extent, FallocateMode, FileSystem, FileType,
    Found, HashedName, Ino, Inode, InodeFlags, Limits, Mapping, Result, StatFs, Timestamp, WriteKind,
};

pub(super) const BLOCK: u64 = 64;
pub(super) const LIMIT: u64 = 1 << 40;
const LITTER: u8 = 0xee;
/// Most blocks that are prepared at once.
const PREPARED_MAX: u64 = 5;

/// Where a filesystem keeps bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Device,
    Memory,
}

pub(super) struct StrictFs {
    device: Device,
    files: [Arc<StrictInode>; 2],
    pub(super) read_only: bool,
}

pub(super) struct StrictInode {
    ino: Ino,
    home: Home,
    device: Device,
    space: Arc<Mutex<Space>>,
    state: Mutex<State>,
    pub(super) prepared: AtomicU64,
    pub(super) finished: AtomicU64,
}

/// Blocks of the device.
struct Space {
    free: Vec<u64>,
    /// Places that a shared block has beside its first.
    shares: BTreeMap<u64, u64>,
}

struct State {
    size: u64,
    permissions: u16,
    flags: InodeFlags,
    /// The file's first bytes, while it has no blocks.
    inline: Option<Vec<u8>>,
    blocks: BTreeMap<u64, Block>,
    /// What is to take the place of shared blocks once it is written.
    copies: BTreeMap<u64, Block>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    /// Its number on the device.
    at: u64,
    use_: Use,
}

impl Block {
    fn is_readable(self) -> bool {
        matches!(self.use_, Use::Written | Use::Shared)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Reserved,
    Prepared,
    Written,
    /// Written, and in another place of a file as well, or it has been.
    Shared,
}

impl StrictFs {
    /// Two empty files, and `blocks` blocks for both.
    pub(super) fn new(home: Home, blocks: u64) -> Self {
        let device: Device = Arc::new(MemoryDevice::new(blocks * BLOCK));
        device.write_at(0, &vec![LITTER; (blocks * BLOCK) as usize]).expect("memory");
        // No two neighbours in the order in which they are taken, except every fifth.
        let mut free: Vec<u64> = (0..blocks).collect();
        free.sort_by_key(|&block| (block / 2 % 5, block));
        let space = Arc::new(Mutex::new(&order::GROUP, Space { free, shares: BTreeMap::new() }));
        let file = |ino| {
            Arc::new(StrictInode {
                ino: Ino(ino),
                home,
                device: Arc::clone(&device),
                space: Arc::clone(&space),
                state: Mutex::new(
                    &order::JOURNAL,
                    State {
                        size: 0,
                        permissions: 0o644,
                        flags: InodeFlags::empty(),
                        inline: None,
                        blocks: BTreeMap::new(),
                        copies: BTreeMap::new(),
                    },
                ),
                prepared: AtomicU64::new(0),
                finished: AtomicU64::new(0),
            })
        };
        Self { files: [file(10), file(11)], device, read_only: false }
    }

    pub(super) fn file(&self, number: usize) -> &StrictInode {
        &self.files[number]
    }

    pub(super) fn free_blocks(&self) -> usize {
        self.files[0].space.lock().free.len()
    }
}

impl StrictFs {
    /// Whether there are blocks on the device to be shared, and no file keeps its bytes in the inode.
    pub(super) fn can_share(&self) -> bool {
        self.files.iter().all(|file| file.home == Home::Device && file.state.lock().inline.is_none())
    }

    /// Lets `count` blocks of one file be those of the other as well, from block `at` on. Those that were never written
    /// become holes there.
    pub(super) fn share(&self, from: usize, first: u64, at: u64, count: u64) {
        let (source, target) = (&self.files[from], &self.files[1 - from]);
        for (index, at) in (first..first + count).zip(at..) {
            let mut target_state = target.state.lock();
            let gone = target_state.blocks.remove(&at).into_iter().chain(target_state.copies.remove(&at));
            gone.for_each(|block| StrictInode::release(target, block));
            drop(target_state);
            let mut source_state = source.state.lock();
            let Some(block) = source_state.blocks.get_mut(&index).filter(|block| block.is_readable()) else {
                continue;
            };
            block.use_ = Use::Shared;
            let block = *block;
            drop(source_state);
            *source.space.lock().shares.entry(block.at).or_default() += 1;
            target.state.lock().blocks.insert(at, block);
        }
    }
}

impl StrictInode {
    pub(super) fn set_flags(&self, flags: InodeFlags) {
        self.state.lock().flags = flags;
    }

    /// Keeps these bytes in the inode.
    pub(super) fn set_inline(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.inline = Some(bytes.to_vec());
        state.size = bytes.len() as u64;
    }

    /// How many calls there were of `prepare_write` and `finish_write`.
    pub(super) fn calls(&self) -> (u64, u64) {
        (self.prepared.load(Ordering::Relaxed), self.finished.load(Ordering::Relaxed))
    }

    fn bytes_of(&self, block: Block) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        self.device.read_at(block.at * BLOCK, &mut bytes).expect("a block of the device");
        bytes
    }

    fn fill(&self, block: Block, range: std::ops::Range<u64>, byte: u8) {
        let bytes = vec![byte; (range.end - range.start) as usize];
        self.device.write_at(block.at * BLOCK + range.start, &bytes).expect("a block of the device");
    }

    fn allocate(&self) -> Result<Block> {
        let at = self.space.lock().free.pop().ok_or(Error::NoSpace)?;
        let block = Block { at, use_: Use::Reserved };
        if self.home == Home::Memory {
            self.fill(block, 0..BLOCK, 0);
        }
        Ok(block)
    }

    fn release(&self, block: Block) {
        let mut space = self.space.lock();
        if let Some(shares) = space.shares.get_mut(&block.at).filter(|shares| **shares > 0) {
            *shares -= 1;
            return;
        }
        self.fill(block, 0..BLOCK, LITTER);
        space.free.push(block.at);
    }

    /// Gives a shared block that is about to be changed in place one of its own.
    fn unshare(&self, state: &mut State, index: u64) -> Result<()> {
        if let Some(&block) = state.blocks.get(&index)
            && block.use_ == Use::Shared
        {
            let own = Block { use_: Use::Written, ..self.allocate()? };
            self.device.write_at(own.at * BLOCK, &self.bytes_of(block))?;
            self.release(block);
            state.blocks.insert(index, own);
        }
        Ok(())
    }

    /// Gives the bytes in the inode a block.
    fn move_inline_to_block(&self, state: &mut State) -> Result<()> {
        if let Some(bytes) = state.inline.clone() {
            let block = self.allocate()?;
            self.fill(block, 0..BLOCK, 0);
            self.device.write_at(block.at * BLOCK, &bytes)?;
            state.blocks.insert(0, Block { use_: Use::Written, ..block });
            state.inline = None;
        }
        Ok(())
    }

    /// Frees the blocks for which `gone` holds.
    fn free(&self, state: &mut State, gone: impl Fn(u64) -> bool) {
        std::mem::take(&mut state.copies).into_values().for_each(|copy| self.release(copy));
        state.blocks.retain(|&index, &mut block| {
            if gone(index) {
                self.release(block);
            }
            !gone(index)
        });
    }

    /// That the rest of the last block reads as zeroes, when the file is about to end later.
    fn assert_tail_clear(&self, state: &State) {
        if let Some(&block) = state.blocks.get(&(state.size / BLOCK))
            && (block.is_readable() || self.home == Home::Memory)
        {
            let tail = &self.bytes_of(block)[(state.size % BLOCK) as usize..];
            assert!(tail.iter().all(|&byte| byte == 0), "the block at the old end was not cleared");
        }
    }

    fn mapping(&self, block: Block, index: u64, offset: u64) -> Extent {
        let mapping = match (self.home, block.use_) {
            (Home::Memory, _) => Mapping::Kept,
            (Home::Device, Use::Written) => Mapping::Device { offset: block.at * BLOCK },
            (Home::Device, Use::Shared) => Mapping::Shared { offset: block.at * BLOCK },
            (Home::Device, _) => Mapping::Unwritten { offset: block.at * BLOCK },
        };
        assert!(offset / BLOCK == index);
        Extent { start: index * BLOCK, len: BLOCK, mapping }
    }
}

impl Inode for StrictInode {
    fn attr(&self) -> Attr {
        let state = self.state.lock();
        Attr {
            ino: self.ino,
            generation: 0,
            kind: FileType::Regular,
            permissions: state.permissions,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: DeviceNumber::default(),
            size_bytes: state.size,
            sectors: 0,
            block_bytes: BLOCK as u32,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: None,
            flags: state.flags,
            project: 0,
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn lookup(&self, _name: &HashedName<'_>) -> Result<Option<Found>> {
        Err(Error::NotDirectory)
    }

    fn read_dir(
        &self,
        _from: DirOffset,
        _sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        Err(Error::NotDirectory)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        Err(Error::InvalidArgument("not a symbolic link"))
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        let state = self.state.lock();
        if let Some(bytes) = &state.inline {
            return Ok(Extent { start: 0, len: u64::MAX, mapping: Mapping::Inline(bytes.clone().into()) });
        }
        let index = offset / BLOCK;
        if let Some(&block) = state.blocks.get(&index) {
            return Ok(self.mapping(block, index, offset));
        }
        let next = state.blocks.range(index..).next().map_or(u64::MAX, |(&next, _)| next * BLOCK);
        Ok(Extent { start: index * BLOCK, len: next - index * BLOCK, mapping: Mapping::Hole })
    }

    fn xattr(&self, _name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn set_attr(&self, change: &AttrChange) -> Result<()> {
        let mut state = self.state.lock();
        state.permissions = change.permissions.unwrap_or(state.permissions);
        Ok(())
    }

    fn prepare_write(&self, offset: u64, len: u64) -> Result<Extent> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        self.move_inline_to_block(&mut state)?;
        let first = offset / BLOCK;
        assert!(len > 0);
        let mut answer = None;
        for index in first..(offset + len).div_ceil(BLOCK).min(first + PREPARED_MAX) {
            let shared = state.blocks.get(&index).is_some_and(|block| block.use_ == Use::Shared);
            let known = if shared { state.copies.get(&index) } else { state.blocks.get(&index) };
            let block = match known {
                Some(&block) => block,
                None => match self.allocate() {
                    Ok(block) => block,
                    Err(error) if index == first => return Err(error),
                    Err(_) => break,
                },
            };
            let use_ = if block.use_ == Use::Reserved { Use::Prepared } else { block.use_ };
            let blocks = if shared { &mut state.copies } else { &mut state.blocks };
            blocks.insert(index, Block { use_, ..block });
            let next = self.mapping(block, index, index * BLOCK);
            answer = Some(match answer {
                None => next,
                Some(extent) if follows(&extent, &next) => Extent { len: extent.len + BLOCK, ..extent },
                Some(extent) => {
                    answer = Some(extent);
                    break;
                }
            });
        }
        drop(state);
        // Lets another thread come between this and what is done with it.
        std::thread::yield_now();
        Ok(answer.expect("at least one block"))
    }

    fn finish_write(&self, offset: u64, len: u64, size: u64, written: WriteKind) -> Result<()> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        // The size stays where the rest of a shared block at the end was cleared.
        assert!(len > 0 && (size == offset + len || size == offset) && state.inline.is_none());
        for index in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
            let old = state.blocks.get(&index).copied();
            let copied = old.filter(|block| block.use_ == Use::Shared);
            let block = match copied {
                Some(_) => state.copies.remove(&index).expect("a copy that was prepared"),
                None => old.expect("a block that was prepared"),
            };
            if self.home == Home::Device && written == WriteKind::Overwrite {
                assert_eq!(block.use_, Use::Written, "block {index} is no overwrite");
            }
            if let Some(old) = copied {
                let (before, after) = (self.bytes_of(old), self.bytes_of(block));
                for (at, (before, after)) in (index * BLOCK..).zip(before.iter().zip(&after)) {
                    assert!((offset..offset + len).contains(&at) || before == after, "byte {at} was lost");
                }
                self.release(old);
                state.blocks.insert(index, Block { use_: Use::Written, ..block });
                continue;
            }
            // Kept space is readable from the beginning, and blocks nothing.
            if self.home == Home::Device && block.use_ != Use::Written {
                assert_eq!(block.use_, Use::Prepared, "block {index} was written and not prepared");
                for (at, byte) in (index * BLOCK..).zip(self.bytes_of(block)) {
                    assert!((offset..offset + len).contains(&at) || byte == 0, "byte {at} is litter");
                }
            }
            state.blocks.insert(index, Block { use_: Use::Written, ..block });
        }
        state.size = state.size.max(size);
        Ok(())
    }

    fn read_kept(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let state = self.state.lock();
        for (at, byte) in (offset..).zip(buf) {
            let block = state.blocks.get(&(at / BLOCK));
            *byte = block.map_or(0, |&block| self.bytes_of(block)[(at % BLOCK) as usize]);
        }
        Ok(())
    }

    fn write_kept(&self, offset: u64, data: &[u8]) -> Result<()> {
        let state = self.state.lock();
        for (at, &byte) in (offset..).zip(data) {
            let block = *state.blocks.get(&(at / BLOCK)).ok_or(Error::NoSpace)?;
            self.fill(block, at % BLOCK..at % BLOCK + 1, byte);
        }
        Ok(())
    }

    fn set_size(&self, size: u64) -> Result<()> {
        let mut state = self.state.lock();
        self.move_inline_to_block(&mut state)?;
        if size > state.size {
            self.assert_tail_clear(&state);
        }
        self.free(&mut state, |index| index * BLOCK >= size);
        state.size = size;
        // What was cut off stays in the last block, and worse.
        if let Some(&block) = state.blocks.get(&(size / BLOCK))
            && block.use_ == Use::Written
        {
            self.fill(block, size % BLOCK..BLOCK, LITTER);
        }
        Ok(())
    }

    fn fallocate(&self, change: FallocateMode, offset: u64, len: u64, size: u64) -> Result<()> {
        let mut state = self.state.lock();
        let end = offset + len;
        let (first, count) = (offset / BLOCK, len / BLOCK);
        if matches!(change, FallocateMode::Collapse | FallocateMode::Insert)
            && !(offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK))
        {
            return Err(Error::InvalidArgument("not aligned to blocks"));
        }
        self.move_inline_to_block(&mut state)?;
        if size > state.size && change != FallocateMode::Insert {
            self.assert_tail_clear(&state);
        }
        if change == FallocateMode::Zero {
            for index in first..end.div_ceil(BLOCK) {
                self.unshare(&mut state, index)?;
            }
        }
        match change {
            FallocateMode::Allocate | FallocateMode::Zero => {
                for index in first..end.div_ceil(BLOCK) {
                    if let Entry::Vacant(place) = state.blocks.entry(index) {
                        place.insert(self.allocate()?);
                    }
                }
            }
            FallocateMode::PunchHole => {
                for index in [first, end / BLOCK] {
                    self.unshare(&mut state, index)?;
                }
                self.free(&mut state, |index| index * BLOCK >= offset && (index + 1) * BLOCK <= end);
            }
            FallocateMode::Collapse => {
                self.free(&mut state, |index| (first..first + count).contains(&index));
                state.blocks =
                    renumbered(&state.blocks, |index| if index < first { index } else { index - count });
            }
            FallocateMode::Insert => {
                state.blocks =
                    renumbered(&state.blocks, |index| if index < first { index } else { index + count });
            }
        }
        if matches!(change, FallocateMode::Zero | FallocateMode::PunchHole) {
            for (&index, &block) in state.blocks.range(first..end.div_ceil(BLOCK)) {
                if block.use_ == Use::Written || self.home == Home::Memory {
                    let base = index * BLOCK;
                    self.fill(block, offset.saturating_sub(base)..(end - base).min(BLOCK), 0);
                }
            }
        }
        state.size = size;
        Ok(())
    }
}

fn renumbered(blocks: &BTreeMap<u64, Block>, to: impl Fn(u64) -> u64) -> BTreeMap<u64, Block> {
    blocks.iter().map(|(&index, &block)| (to(index), block)).collect()
}

/// Whether two extents are one.
fn follows(one: &Extent, next: &Extent) -> bool {
    match (&one.mapping, &next.mapping) {
        (Mapping::Kept, Mapping::Kept) => true,
        (Mapping::Unwritten { offset: first }, Mapping::Unwritten { offset: second })
        | (Mapping::Device { offset: first }, Mapping::Device { offset: second }) => {
            first + one.len == *second
        }
        _ => false,
    }
}

impl FileSystem for StrictFs {
    fn kind(&self) -> &'static str {
        "strict"
    }

    fn root(&self) -> Ino {
        self.files[0].ino
    }

    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn Inode>> {
        let file = self.files.iter().find(|file| file.ino == ino).ok_or(Error::Stale)?;
        Ok(Arc::clone(file) as Arc<dyn Inode>)
    }

    fn data_device(&self) -> Option<&Device> {
        (self.files[0].home == Home::Device).then_some(&self.device)
    }

    fn statfs(&self) -> Result<StatFs> {
        Err(Error::Unsupported("statfs of the strict filesystem".into()))
    }

    fn limits(&self) -> Limits {
        Limits { name_max_bytes: 255, file_max_bytes: LIMIT }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}
