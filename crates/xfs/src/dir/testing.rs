//! Blocks of directories made for tests.

use super::data::header_bytes;
use super::entry::entry_bytes;
use crate::da::Layout;

/// Version 5 with file types, blocks and directory blocks of 4096 bytes.
pub(super) const LAYOUT: Layout = Layout {
    self_describing: true,
    has_kinds: true,
    folds_case: false,
    block_bytes: 4096,
    dir_block_bytes: 4096,
};

/// Puts entries one after another into a block; returns where they end, and the index of them.
fn put_entries(layout: &Layout, bytes: &mut [u8], entries: &[(&[u8], u64, u8)]) -> (usize, Vec<(u32, u32)>) {
    let mut at = header_bytes(layout);
    let mut index = Vec::new();
    for &(name, ino, kind) in entries {
        let len = entry_bytes(layout, name.len());
        bytes[at..at + 8].copy_from_slice(&ino.to_be_bytes());
        bytes[at + 8] = name.len() as u8;
        bytes[at + 9..at + 9 + name.len()].copy_from_slice(name);
        bytes[at + 9 + name.len()] = kind;
        bytes[at + len - 2..at + len].copy_from_slice(&(at as u16).to_be_bytes());
        let hash = layout.hash(name);
        index.push((hash, at as u32 / 8));
        at += len;
    }
    index.sort_unstable();
    (at, index)
}

/// Marks a space as unused.
fn put_unused(bytes: &mut [u8], at: usize, end: usize) {
    bytes[at..at + 2].copy_from_slice(&[0xff, 0xff]);
    bytes[at + 2..at + 4].copy_from_slice(&((end - at) as u16).to_be_bytes());
    bytes[end - 2..end].copy_from_slice(&(at as u16).to_be_bytes());
    bytes[48..50].copy_from_slice(&(at as u16).to_be_bytes());
    bytes[50..52].copy_from_slice(&((end - at) as u16).to_be_bytes());
}

/// A data block of these entries, with its header left empty but for the magic number and the unused space.
pub(super) fn data_block(entries: &[(&[u8], u64, u8)]) -> Vec<u8> {
    let mut bytes = vec![0; LAYOUT.dir_block_bytes];
    bytes[..4].copy_from_slice(b"XDD3");
    let (at, _) = put_entries(&LAYOUT, &mut bytes, entries);
    put_unused(&mut bytes, at, LAYOUT.dir_block_bytes);
    bytes
}

/// The single block of a directory of these entries, with its header left empty but for the magic number and the unused space.
pub(super) fn single_block(own: u64, parent: u64, entries: &[(&[u8], u64, u8)]) -> Vec<u8> {
    single_block_of(&LAYOUT, own, parent, entries)
}

/// The same in a volume of another layout of version 5.
pub(crate) fn single_block_of(
    layout: &Layout,
    own: u64,
    parent: u64,
    entries: &[(&[u8], u64, u8)],
) -> Vec<u8> {
    let dots = [(&b"."[..], own, 2), (b"..", parent, 2)];
    let mut bytes = vec![0; layout.dir_block_bytes];
    bytes[..4].copy_from_slice(b"XDB3");
    let (at, index) = put_entries(layout, &mut bytes, &[&dots, entries].concat());
    let tail_at = bytes.len() - 8;
    let end = tail_at - 8 * index.len();
    put_unused(&mut bytes, at, end);
    for (number, (hash, address)) in index.iter().enumerate() {
        let at = end + 8 * number;
        bytes[at..at + 4].copy_from_slice(&hash.to_be_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&address.to_be_bytes());
    }
    bytes[tail_at..tail_at + 4].copy_from_slice(&(index.len() as u32).to_be_bytes());
    bytes
}
