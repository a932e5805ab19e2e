//! Directories whose blocks get checksums, or lose them, because the filesystem does.
//!
//! A checksum takes the last 12 bytes of a block of entries, where it looks like an unused entry to a filesystem without
//! checksums, and the place of the last entry of an index block. So a block of entries may have one before the filesystem has
//! checksums, and an index block changes with the filesystem ([`IndexBlock`]).
//!
//! [`make_room`] moves entries where that place is taken, as additions do: leaves and index blocks are split, and in a directory
//! without an index entries move to further blocks. After each step the directory is a good one without checksums.
//!
//! Locks: the filesystem is in use by the calling thread only; `index` is held exclusively while a directory changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use super::add::{ADD_CREDITS, GROW_CREDITS};
use super::changing::{Changing, check_changeable};
use super::directory::{Block, Directory, Names, Shape};
use super::edit;
use super::entry::{ENTRY_MIN_BYTES, Entries, EntryFormat};
use super::index::{self, Leaves, Node, NodeShape};
use super::tail::{LEAF_TAIL_BYTES, seal_index, seal_leaf};
use super::{by_hash, node};
use crate::error::Verdict;
use crate::inode::{self, Inode, InodeFlags, InodeState};
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;
use crate::writer::Mounted;

/// Blocks of a directory without an index that give entries away at once.
const GIVING_AT_ONCE: u32 = 64;
/// Behind the name in an entry of a directory that is both encrypted and casefolded: the hash of the name.
const HASH_BYTES: usize = 8;

/// A block of an index, which has room for one entry less where it has a checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexBlock {
    pub(crate) home: FsBlock,
    seed: u32,
    entries_at: usize,
}

impl IndexBlock {
    /// Lets the block have a checksum, or none. The entries in use fit.
    pub(crate) fn switch(&self, bytes: &mut [u8], has_checksum: bool) {
        node::set_limit(bytes, self.entries_at, has_checksum);
        if has_checksum {
            seal_index(self.seed, bytes);
        }
    }
}

/// The blocks of a directory, and which of them have no room for a checksum.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) index: Vec<IndexBlock>,
    /// Blocks of entries.
    pub(crate) leaves: Vec<FsBlock>,
    /// Whether some have no room.
    pub(crate) is_full: bool,
    /// How many blocks more the directory may need, and of these how many in its index.
    pub(crate) more: u64,
    pub(crate) more_index: u64,
}

/// Looks at all blocks of a directory that does not lie in its inode. Unless it is `logged`, no entry may move.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported): it has blocks without room, and no way to make any. Corruption; I/O failure.
pub(crate) fn survey(volume: &Volume, inode: &Inode, logged: bool) -> Result<Survey> {
    let directory = Directory::open(volume, inode)?;
    let refuse = |what: &str| refuse(inode, what);
    let levels = levels_of(&directory)?;
    let mut survey = Survey { index: blocks_in(&directory, &levels), ..Survey::default() };
    if volume.superblock().has_metadata_checksums() {
        return Ok(survey);
    }
    let full = survey.find_leaves(&directory, &levels, Form::of(&directory, logged))?;
    let has_index_room = levels.is_empty() || survey.count_splits(&directory, &levels, &full);
    survey.is_full |= !full.is_empty();
    if !has_index_room {
        return refuse("has an index that is full: run e2fsck -fD, which makes it anew");
    }
    if survey.is_full && check_changeable(volume, inode).is_err() {
        return refuse("is encrypted or casefolded, and has blocks without room for a checksum: use tune2fs");
    }
    if levels.is_empty() {
        // At most one for each that gives entries away, and an index's root.
        survey.more = full.len() as u64 + u64::from(!full.is_empty());
        survey.more_index = u64::from(!full.is_empty() && by_hash::is_ordered(&directory));
    }
    Ok(survey)
}

fn refuse<T>(inode: &Inode, what: &str) -> Result<T> {
    let what = format!("directory {} {what}", inode.number);
    Err(Error::Unsupported(what.into()))
}

/// The blocks of a directory's index; none if it has no index, or lies in its inode.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) for an index of an unknown kind; corruption; I/O failure.
pub(crate) fn index_blocks(volume: &Volume, inode: &Inode) -> Result<Vec<IndexBlock>> {
    let directory = Directory::open(volume, inode)?;
    Ok(blocks_in(&directory, &levels_of(&directory)?))
}

fn levels_of(directory: &Directory<'_>) -> Result<Vec<Vec<NodeShape>>> {
    let inode = directory.inode;
    if !inode.flags.contains(InodeFlags::INDEXED) || inode.has_inline_data() {
        return Ok(Vec::new());
    }
    if !directory.is_indexed() {
        return refuse(inode, "has an index in a filesystem without the feature dir_index: run e2fsck -f");
    }
    match index::shape(directory)? {
        Some(levels) => Ok(levels),
        None => refuse(inode, "has an index of an unknown kind: run e2fsck -fD, which makes it anew"),
    }
}

fn blocks_in(directory: &Directory<'_>, levels: &[Vec<NodeShape>]) -> Vec<IndexBlock> {
    let seed = directory.inode.checksum_seed(directory.volume);
    let block = |node: &NodeShape| IndexBlock { home: node.home, seed, entries_at: node.entries_at };
    levels.iter().flatten().map(block).collect()
}

impl Survey {
    /// Finds the blocks of entries; returns those without room.
    fn find_leaves(
        &mut self,
        directory: &Directory<'_>,
        levels: &[Vec<NodeShape>],
        form: Form,
    ) -> Result<HashSet<FileBlock>> {
        let nodes: HashSet<_> = levels.iter().flatten().map(|node| node.at).collect();
        let mut full = HashSet::new();
        for at in (0..directory.blocks).map(|at| FileBlock(at as u32)) {
            if nodes.contains(&at) {
                continue;
            }
            let Some(home) = directory.home_or_hole(at)? else { continue };
            let block = Block::read(directory, at, home)?;
            match form.with_tail(&block.buffer) {
                Ok(Some(_)) => {}
                Ok(None) => _ = full.insert(at),
                Err(detail) => return Err(block.corrupt(directory, detail)),
            }
            self.leaves.push(home);
        }
        Ok(full)
    }

    /// Counts the splits that make room at most; whether the index has room for what they add.
    fn count_splits(
        &mut self,
        directory: &Directory<'_>,
        levels: &[Vec<NodeShape>],
        full: &HashSet<FileBlock>,
    ) -> bool {
        let mut added: HashMap<FileBlock, u64> = full.iter().map(|&at| (at, 1)).collect();
        self.more = full.len() as u64;
        for level in levels[1..].iter().rev() {
            let mut above = HashMap::new();
            for node in level {
                let splits = splits_of(node, &added);
                if splits > 0 {
                    above.insert(node.at, splits);
                }
                self.more_index += splits;
            }
            added = above;
        }
        let splits = levels[0].first().map_or(0, |root| splits_of(root, &added));
        if splits > 0 {
            // A level below the root.
            self.more_index += splits + 1;
        }
        self.more += self.more_index;
        self.is_full |= self.more_index > 0;
        splits == 0 || levels.len() <= index::most_levels(directory)
    }
}

/// How often an index block is split at most, when each child adds so many entries to it.
fn splits_of(node: &NodeShape, added: &HashMap<FileBlock, u64>) -> u64 {
    let entries = node.children.iter().map(|child| 1 + added.get(child).unwrap_or(&0)).sum::<u64>();
    let limit = node.limit as u64;
    // Each half of a block that is split has about half of its entries.
    if entries < limit { 0 } else { entries / (limit / 2).saturating_sub(2).max(1) }
}

/// How entries lie in a directory's blocks.
#[derive(Clone, Copy)]
struct Form {
    format: EntryFormat,
    has_hashes: bool,
    /// Whether entries may move within a block, of which a crash without a journal may leave parts.
    may_move: bool,
}

impl Form {
    fn of(directory: &Directory<'_>, logged: bool) -> Self {
        let has_hashes = matches!(directory.names, Names::Encrypted { hash_in_entry: true });
        Self { format: directory.format, has_hashes, may_move: logged && !has_hashes }
    }

    /// A block of entries with room for a checksum at its end; `None` if its entries leave none. Entries keep their order.
    fn with_tail(self, bytes: &[u8]) -> Verdict<Option<Vec<u8>>> {
        let (mut last, mut used_bytes) = (None, 0);
        for entry in Entries::new(bytes, self.format) {
            let entry = entry?;
            used_bytes += edit::kept_bytes(&entry);
            last = Some(entry);
        }
        let Some(last) = last else { return Err("has no entries".into()) };
        let record_bytes = last.next - last.at;
        if last.ino == 0 && record_bytes == LEAF_TAIL_BYTES {
            return Ok(Some(bytes.to_vec()));
        }
        let kept_bytes = match last.ino {
            0 => ENTRY_MIN_BYTES,
            _ if self.has_hashes => edit::kept_bytes(&last) + HASH_BYTES,
            _ => edit::kept_bytes(&last),
        };
        let end = bytes.len() - LEAF_TAIL_BYTES;
        let mut with_tail = bytes.to_vec();
        if record_bytes >= kept_bytes + LEAF_TAIL_BYTES {
            self.format.write_record_bytes(&mut with_tail[last.at..], record_bytes - LEAF_TAIL_BYTES);
        } else if self.may_move && used_bytes <= end {
            let records = edit::records(bytes, self.format, |_| 0)?;
            edit::pack(&mut with_tail[..end], self.format, bytes, &records);
        } else {
            return Ok(None);
        }
        self.format.write_unused(&mut with_tail[end..]);
        Ok(Some(with_tail))
    }

    /// A block of entries without room, when its last ones have been taken out of it, and those.
    fn parted(self, bytes: &[u8]) -> Verdict<(Vec<u8>, Vec<u8>)> {
        let mut records = edit::records(bytes, self.format, |_| 0)?;
        let mut used_bytes: usize = records.iter().map(|record| record.range().len()).sum();
        let mut taken = Vec::new();
        while used_bytes + LEAF_TAIL_BYTES > bytes.len()
            && let Some(record) = records.pop()
        {
            used_bytes -= record.range().len();
            let begin = taken.len();
            taken.extend_from_slice(&bytes[record.range()]);
            self.format.write_record_bytes(&mut taken[begin..], record.range().len());
        }
        if records.is_empty() {
            return Err("is full with one entry".into());
        }
        let mut kept = vec![0; bytes.len()];
        edit::pack(&mut kept, self.format, bytes, &records);
        Ok((kept, taken))
    }
}

/// Puts a checksum into a block of entries of a directory, which has room for it.
///
/// # Errors
/// Corruption, or no room.
pub(crate) fn put_leaf_checksum(volume: &Volume, inode: &Inode, bytes: &mut [u8]) -> Verdict<()> {
    let has_hashes = inode.flags.contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD);
    let form = Form { format: EntryFormat::of(volume.superblock()), has_hashes, may_move: !has_hashes };
    let Some(with_tail) = form.with_tail(bytes)? else { return Err("has no room for a checksum".into()) };
    bytes.copy_from_slice(&with_tail);
    seal_leaf(inode.checksum_seed(volume), bytes);
    Ok(())
}

/// Makes room for checksums in all blocks of a directory, in as many transactions as it takes.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace), [`Unsupported`](Error::Unsupported): the directory is good, and may have changed.
/// Corruption; I/O failure.
pub(crate) fn make_room(volume: &Arc<Mounted>, number: u32) -> Result<()> {
    let location = inode::locate(volume, number)?;
    let inode = Inode::read_linked_or_not(volume, number, location)?;
    let state = InodeState::new(Arc::clone(volume), inode, location);
    let mut from = Some(0);
    while let Some(place) = from {
        let handle = volume.start(ADD_CREDITS + GROW_CREDITS + GIVING_AT_ONCE)?;
        let _index = state.directory.index.write();
        let inode = state.fields.read().clone();
        let changing = Changing::open(&handle, &state, &inode)?;
        from = if changing.directory.is_indexed() {
            changing.split_from(place)?
        } else {
            changing.give_away_from(place)?
        };
    }
    Ok(())
}

/// What has to be split before an index and a leaf have room.
enum Split {
    Nothing,
    /// The root, which gets a level below it.
    Root,
    /// The block below this level of the path.
    Below(usize),
    Leaf,
}

impl Split {
    fn of(path: &[(Node, usize)], is_leaf_full: bool) -> Self {
        let (mut level, mut new) = (path.len(), usize::from(is_leaf_full));
        while level > 0 && path[level - 1].0.count + new >= path[level - 1].0.limit {
            (level, new) = (level - 1, 1);
        }
        match level {
            0 => Self::Root,
            level if level < path.len() => Self::Below(level - 1),
            _ if is_leaf_full => Self::Leaf,
            _ => Self::Nothing,
        }
    }
}

impl Changing<'_> {
    /// Makes one split on the way to the first block without room, from a hash on; returns the hash to go on from, if
    /// there is more.
    fn split_from(&self, hash: u32) -> Result<Option<u32>> {
        let form = Form::of(&self.directory, true);
        let Some(mut leaves) = Leaves::of_hash(self.directory, hash)? else {
            return Err(self.corrupt("has an index of an unknown kind"));
        };
        let mut next = leaves.next_place()?;
        while let Some(at) = next {
            let is_full = {
                let leaf = self.lock_leaf(at)?;
                leaf.validate(|bytes| Ok(form.with_tail(bytes)?.is_none()))?
            };
            let path = leaves.path();
            match Split::of(path, is_full) {
                Split::Nothing => {
                    next = leaves.step()?;
                    continue;
                }
                Split::Root => self.deepen_index(&path[0].0, path.len())?,
                Split::Below(level) => self.split_node(&leaves, level)?,
                Split::Leaf => {
                    let (parent, slot) = &path[path.len() - 1];
                    self.split_leaf(&leaves, at, parent, *slot)?;
                }
            }
            return Ok(Some(leaves.bounds().0));
        }
        Ok(None)
    }

    /// Moves entries of some blocks without room, from one on, to a new block; returns the block to go on from, if there is
    /// more. The only block of a directory that may have an index gets one.
    fn give_away_from(&self, first: u32) -> Result<Option<u32>> {
        let (format, end) = (self.directory.format, self.directory.format.block_bytes - LEAF_TAIL_BYTES);
        let form = Form::of(&self.directory, true);
        let (mut giving, mut moved) = (Vec::new(), Vec::new());
        let mut next = first;
        while u64::from(next) < self.directory.blocks && giving.len() < GIVING_AT_ONCE as usize {
            if let Some(block) = self.lock_block(FileBlock(next))?
                && let Some((kept, taken)) = block.validate(|bytes| match form.with_tail(bytes)? {
                    Some(_) => Ok(None),
                    None => form.parted(bytes).map(Some),
                })?
            {
                if moved.len() + taken.len() > end {
                    break;
                }
                moved.extend(taken);
                giving.push((FileBlock(next), kept));
            }
            next += 1;
        }
        if giving.is_empty() {
            return Ok(None);
        }
        if self.directory.blocks == 1 && by_hash::is_ordered(&self.directory) {
            self.make_index()?;
            return Ok(Some(0));
        }
        let records = edit::records(&moved, format, |_| 0).map_err(|_| self.corrupt("changes meanwhile"))?;
        self.append(Shape::Leaf, InodeFlags::empty(), |bytes| edit::pack(bytes, format, &moved, &records))?;
        for (at, kept) in giving {
            if let Some(block) = self.or_abort(self.lock_block(at))? {
                block.change(|bytes| bytes.copy_from_slice(&kept));
            }
        }
        Ok(Some(next))
    }
}
