//! Changing the blocks of a directory's index: pure work on bytes that [`Node`](super::index::Node) has validated.
//!
//! Source: kernel documentation, section "Hash Tree Directories". The first entry of a block has no hash, its place
//! is taken by the limit and the count; names below the second entry's hash are found through it.

use undercroft_vfs::FileType;
use zerocopy::{FromBytes, IntoBytes};

use super::entry::{ENTRY_MIN_BYTES, Entries, EntryFormat};
use super::index::{
    ENTRY_BYTES, NODE_ENTRIES_AT, ROOT_ENTRIES_AT, ROOT_INFO_AT, RawCountLimit, RawIndexEntry, RawRootInfo,
};
use super::tail::INDEX_TAIL_BYTES;
use crate::error::Verdict;
use crate::numbers::FileBlock;

/// How many entries an index block has room for whose entries begin at `entries_at`.
pub(super) fn limit(block_bytes: usize, entries_at: usize, has_checksum: bool) -> usize {
    let tail_bytes = if has_checksum { INDEX_TAIL_BYTES } else { 0 };
    (block_bytes - entries_at - tail_bytes) / ENTRY_BYTES
}

/// Puts an entry behind the one at `slot`. The block is not full.
pub(super) fn insert(bytes: &mut [u8], entries_at: usize, slot: usize, hash: u32, child: FileBlock) {
    let (limit, count) = counts(bytes, entries_at);
    let at = entries_at + (slot + 1) * ENTRY_BYTES;
    let end = entries_at + count * ENTRY_BYTES;
    bytes.copy_within(at..end, at + ENTRY_BYTES);
    let entry = RawIndexEntry { hash: hash.into(), block: child.0.into() };
    bytes[at..at + ENTRY_BYTES].copy_from_slice(entry.as_bytes());
    set_counts(bytes, entries_at, limit, count + 1);
}

/// Makes an inner node of the entries of another block from `first` on.
pub(super) fn make_node(
    bytes: &mut [u8],
    format: EntryFormat,
    has_checksum: bool,
    from: &[u8],
    entries_at: usize,
    first: usize,
) {
    let (_, count) = counts(from, entries_at);
    let moved = &from[entries_at + first * ENTRY_BYTES..entries_at + count * ENTRY_BYTES];
    bytes.fill(0);
    format.write_unused(bytes);
    bytes[NODE_ENTRIES_AT..NODE_ENTRIES_AT + moved.len()].copy_from_slice(moved);
    set_counts(bytes, NODE_ENTRIES_AT, limit(bytes.len(), NODE_ENTRIES_AT, has_checksum), count - first);
}

/// Changes how many entries the block says that it has room for; those in use fit.
pub(super) fn set_limit(bytes: &mut [u8], entries_at: usize, has_checksum: bool) {
    let (_, count) = counts(bytes, entries_at);
    set_counts(bytes, entries_at, limit(bytes.len(), entries_at, has_checksum), count);
}

/// Leaves only the first `count` entries.
pub(super) fn truncate(bytes: &mut [u8], entries_at: usize, count: usize) {
    let (limit, before) = counts(bytes, entries_at);
    set_counts(bytes, entries_at, limit, count);
    bytes[entries_at + count * ENTRY_BYTES..entries_at + before * ENTRY_BYTES].fill(0);
}

/// Lets the root have a single child, one level further from the leaves than its children were.
pub(super) fn deepen_root(bytes: &mut [u8], child: FileBlock) {
    if let Ok((info, _)) = RawRootInfo::mut_from_prefix(&mut bytes[ROOT_INFO_AT..]) {
        info.indirect_levels += 1;
    }
    truncate(bytes, ROOT_ENTRIES_AT, 1);
    set_first_child(bytes, child);
}

/// A directory and its parent: what `.` and `..` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dots {
    pub(super) itself: u32,
    pub(super) parent: u32,
}

/// Reads `.` and `..`, which are the first entries of a directory.
pub(super) fn read_dots(bytes: &[u8], format: EntryFormat) -> Verdict<Dots> {
    let mut entries = Entries::new(bytes, format);
    let mut named = |name: &[u8]| match entries.next() {
        Some(entry) => entry.map(|entry| (entry.ino != 0 && entry.name == name).then_some(entry.ino)),
        None => Ok(None),
    };
    match (named(b".")?, named(b"..")?) {
        (Some(itself), Some(parent)) => Ok(Dots { itself, parent }),
        _ => Err("does not begin with . and ..".into()),
    }
}

/// Fills a directory's first block with `.` and `..`, of which the second takes all the rest.
pub(super) fn make_dots(bytes: &mut [u8], format: EntryFormat, dots: Dots) {
    let (first, rest) = bytes.split_at_mut(ENTRY_MIN_BYTES);
    format.write(first, dots.itself, b".", FileType::Directory);
    format.write(rest, dots.parent, b"..", FileType::Directory);
}

/// Makes the root of an index with one leaf.
pub(super) fn make_root(
    bytes: &mut [u8],
    format: EntryFormat,
    has_checksum: bool,
    dots: Dots,
    hash_version: u8,
    leaf: FileBlock,
) {
    bytes.fill(0);
    make_dots(bytes, format, dots);
    let info = RawRootInfo {
        reserved_zero: 0.into(),
        hash_version,
        info_length: size_of::<RawRootInfo>() as u8,
        indirect_levels: 0,
        unused_flags: 0,
    };
    bytes[ROOT_INFO_AT..ROOT_ENTRIES_AT].copy_from_slice(info.as_bytes());
    set_counts(bytes, ROOT_ENTRIES_AT, limit(bytes.len(), ROOT_ENTRIES_AT, has_checksum), 1);
    set_first_child(bytes, leaf);
}

fn set_first_child(bytes: &mut [u8], child: FileBlock) {
    let at = ROOT_ENTRIES_AT + size_of::<RawCountLimit>();
    bytes[at..at + 4].copy_from_slice(&child.0.to_le_bytes());
}

fn counts(bytes: &[u8], entries_at: usize) -> (usize, usize) {
    let head = RawCountLimit::ref_from_prefix(&bytes[entries_at..]);
    head.map_or((0, 0), |(head, _)| (usize::from(head.limit.get()), usize::from(head.count.get())))
}

fn set_counts(bytes: &mut [u8], entries_at: usize, limit: usize, count: usize) {
    let head = RawCountLimit { limit: (limit as u16).into(), count: (count as u16).into() };
    bytes[entries_at..entries_at + size_of::<RawCountLimit>()].copy_from_slice(head.as_bytes());
}
