//! Reading a directory that changes: in the order of its names' hashes.
//!
//! Where names move from block to block, a position in bytes would give some of them twice. Names keep their hashes, so
//! in a writable filesystem a directory that has an index, or will get one when it grows, is read by hash,
//! and every name that exists throughout is returned exactly once. Directories that never get an index do not move
//! names, and are read block by block as those of a filesystem that is only read.
//!
//! A position is the hash that the index uses, followed by what distinguishes names with the same hash:
//!
//! | bits | |
//! | --- | --- |
//! | 32 to 62 | the hash, without its lowest bit, which is always clear |
//! | 8 to 31 | another checksum of the name |
//! | 0 to 7 | the rank by name among those that have the same of both, from 2 on |
//!
//! `.` and `..` are at 0 and 1. Only if more than 254 names were made to have both alike, a listing that is resumed
//! between them may skip some.
//!
//! Locks: a leaf's names are copied with the directory's `index` shared, and given without a lock.

use std::ops::ControlFlow;

use undercroft_vfs::{DirEntry, DirOffset, Error, FileType, Ino, Result};

use super::changing::check_changeable;
use super::directory::{Block, Directory, Region};
use super::hash::NameHasher;
use super::index::Leaves;
use super::inline::InlineEntries;
use super::node::{self, Dots};
use crate::checksum::crc32c;
use crate::error::corrupt_inode;
use crate::features::Compat;
use crate::inode::InodeState;
use crate::numbers::FileBlock;

const DOT_DOT: u64 = 1;
const HASH_SHIFT: u32 = 32;
const FIRST_RANK: u64 = 2;
const LAST_RANK: u64 = 0xff;

/// Leaves that are brought in together when one is missing.
const PREFETCHED_LEAVES: usize = 64;

/// Whether positions in the directory are hashes, in a writable filesystem.
pub(super) fn is_ordered(directory: &Directory<'_>) -> bool {
    let (volume, inode) = (directory.volume, directory.inode);
    let has_feature = volume.superblock().features().compat.contains(Compat::DIR_INDEX);
    check_changeable(volume, inode).is_ok()
        && has_feature
        && (directory.is_indexed()
            || (inode.has_inline_data() || directory.blocks == 1) && default_hasher(directory).is_some())
}

/// The function that names will have when the directory gets an index.
fn default_hasher(directory: &Directory<'_>) -> Option<NameHasher> {
    let defaults = directory.volume.superblock().hash_defaults();
    NameHasher::new(defaults.version, defaults)
}

/// Gives `sink` the entries from `from` on; `None` for a directory whose positions are no hashes.
pub(super) fn read(
    state: &InodeState,
    from: DirOffset,
    sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<Option<()>> {
    if state.volume.writer().is_err() {
        return Ok(None);
    }
    let begin = from.0;
    if begin > DOT_DOT && begin == state.fields.read().size_bytes {
        // The end, as `lseek` has it.
        return Ok(Some(()));
    }
    let mut from = begin;
    let mut batch = Batch::default();
    loop {
        match batch.collect(state, from) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // The index is not used, as in a lookup. Positions below the hashes are positions in blocks then; a listing
            // that has got to a hash cannot go on.
            Err(Error::Corrupt(_))
                if from == begin
                    && begin >> HASH_SHIFT == 0
                    && !state.volume.superblock().has_metadata_checksums() =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        for listed in &batch.entries {
            let name = &batch.names[listed.name_at..listed.name_at + listed.name_bytes];
            let (ino, next) = (Ino(u64::from(listed.number)), DirOffset(listed.position + 1));
            if sink(DirEntry { name, ino, kind: listed.kind, next }).is_break() {
                return Ok(Some(()));
            }
        }
        match batch.rest {
            Some(rest) => from = rest,
            None => return Ok(Some(())),
        }
    }
}

/// Some entries in the order of their positions, copied out of the directory.
#[derive(Default)]
struct Batch {
    names: Vec<u8>,
    entries: Vec<Listed>,
    /// Where the next batch begins.
    rest: Option<u64>,
}

struct Listed {
    position: u64,
    name_at: usize,
    name_bytes: usize,
    number: u32,
    kind: Option<FileType>,
}

/// Hashes that a leaf may have.
#[derive(Clone, Copy)]
struct Bounds {
    lowest: u32,
    /// The key of the leaf behind it.
    next: Option<u32>,
}

impl Batch {
    /// Takes at least a leaf's entries from `from` on.
    fn collect(&mut self, state: &InodeState, from: u64) -> Result<bool> {
        self.names.clear();
        self.entries.clear();
        self.rest = None;
        let _index = state.directory.index.read();
        let inode = state.fields.read().clone();
        let directory = Directory::open(&state.volume, &inode)?;
        if !is_ordered(&directory) {
            return Ok(false);
        }
        if directory.is_indexed() {
            if !self.collect_leaves(&directory, from)? {
                return Ok(false);
            }
        } else {
            self.collect_all(&directory, from)?;
        }
        self.put_in_order(from);
        Ok(true)
    }

    /// The entries of a directory without an index.
    fn collect_all(&mut self, directory: &Directory<'_>, from: u64) -> Result<()> {
        let Some(hasher) = default_hasher(directory) else { return Ok(()) };
        let all = Bounds { lowest: 0, next: None };
        if directory.inode.has_inline_data() {
            let entries = InlineEntries::read(directory)?;
            self.add_dots(Dots { itself: directory.inode.number, parent: entries.parent }, from);
            for region in entries.regions() {
                self.add(directory, region, &hasher, all)?;
            }
            return Ok(());
        }
        let block = directory.read_block(FileBlock(0))?;
        self.add_dots(dots(directory, &block)?, from);
        self.add(directory, block.region(directory), &hasher, all)
    }

    /// The entries of a leaf, and of those that go on with its last hash; `false` for an index of an unknown kind.
    fn collect_leaves(&mut self, directory: &Directory<'_>, from: u64) -> Result<bool> {
        let hash = ((from >> HASH_SHIFT) as u32) << 1;
        let Some(mut leaves) = Leaves::of_hash(*directory, hash)? else { return Ok(false) };
        let Some(hasher) = leaves.hasher() else { return Ok(false) };
        if from <= DOT_DOT {
            self.add_dots(dots(directory, &directory.read_block(FileBlock(0))?)?, from);
        }
        let mut next = leaves.next_place()?;
        while let Some(at) = next {
            let (lowest, behind) = leaves.bounds();
            prefetch(directory, &leaves, at)?;
            let leaf = directory.read_block(at)?;
            let bounds = Bounds { lowest: lowest & !1, next: behind };
            self.add(directory, leaf.region(directory), &hasher, bounds)?;
            let Some(key) = behind else { break };
            if key & 1 == 0 {
                let rest = position(key, 0, 0);
                if rest <= from {
                    return Err(
                        leaf.corrupt(directory, "is followed by a leaf whose hashes are not above its own")
                    );
                }
                self.rest = Some(rest);
                break;
            }
            next = leaves.step()?;
        }
        Ok(true)
    }

    fn add_dots(&mut self, dots: Dots, from: u64) {
        for (name, position, number) in [(&b"."[..], 0, dots.itself), (b"..", DOT_DOT, dots.parent)] {
            if position >= from {
                self.push(name, position, number, Some(FileType::Directory));
            }
        }
    }

    fn add(
        &mut self,
        directory: &Directory<'_>,
        region: Region<'_>,
        hasher: &NameHasher,
        bounds: Bounds,
    ) -> Result<()> {
        for entry in region.entries(directory) {
            let entry = entry?;
            if matches!(entry.name, b"." | b"..") {
                continue;
            }
            let hash = hasher.hash(entry.name);
            let verdict = directory.check_entry(&entry).and_then(|()| {
                let is_in_place =
                    hash.major >= bounds.lowest && bounds.next.is_none_or(|next| hash.major < next);
                if is_in_place { Ok(()) } else { Err("has a name where the index does not lead".into()) }
            });
            if let Err(detail) = verdict {
                return Err(corrupt_inode("directory entry", directory.inode.number, region.home, detail));
            }
            let position = position(hash.major, crc32c(hash.minor, entry.name), FIRST_RANK);
            self.push(entry.name, position, entry.ino, entry.kind);
        }
        Ok(())
    }

    fn push(&mut self, name: &[u8], position: u64, number: u32, kind: Option<FileType>) {
        let name_at = self.names.len();
        self.names.extend_from_slice(name);
        self.entries.push(Listed { position, name_at, name_bytes: name.len(), number, kind });
    }

    /// Orders the entries, gives those their ranks that are alike, and leaves out what lies before `from`.
    fn put_in_order(&mut self, from: u64) {
        let names = &self.names;
        let name = |listed: &Listed| &names[listed.name_at..listed.name_at + listed.name_bytes];
        self.entries.sort_unstable_by(|a, b| a.position.cmp(&b.position).then_with(|| name(a).cmp(name(b))));
        let (mut before, mut rank) = (None, 0);
        for listed in &mut self.entries {
            rank = if before == Some(listed.position) { rank + 1 } else { 0 };
            before = Some(listed.position);
            if listed.position > DOT_DOT {
                listed.position += rank.min(LAST_RANK - FIRST_RANK);
            }
        }
        self.entries.retain(|listed| listed.position >= from);
    }
}

fn position(hash: u32, other: u32, rank: u64) -> u64 {
    u64::from(hash >> 1) << HASH_SHIFT | u64::from(other & !0xff) | rank
}

fn dots(directory: &Directory<'_>, first: &Block) -> Result<Dots> {
    let bytes = first.region(directory).bytes;
    node::read_dots(bytes, directory.format).map_err(|detail| first.corrupt(directory, detail))
}

/// Brings in a leaf that is not cached together with those behind it.
fn prefetch(directory: &Directory<'_>, leaves: &Leaves<'_>, at: FileBlock) -> Result<()> {
    let buffers = directory.volume.buffers();
    if buffers.contains(directory.home(at)?.0) {
        return Ok(());
    }
    let Some((node, slot)) = leaves.path().last() else { return Ok(()) };
    let mut homes = Vec::with_capacity(PREFETCHED_LEAVES);
    for slot in (*slot..node.count).take(PREFETCHED_LEAVES) {
        if let Some(at) = node.child(slot)
            && let Ok(home) = directory.home(at)
        {
            homes.push(home.0);
        }
    }
    homes.sort_unstable();
    buffers.prefetch_scattered(&homes);
    Ok(())
}
