//! Damage to a good image: the fuzzer's bytes take the place of one structure, or of words anywhere.

use std::sync::Arc;

use undercroft_block::BlockDevice;

use crate::images::{Victim, image};
use crate::mend;
use crate::walk::walk;

/// A kind of structure, and the image that has it.
#[derive(Debug)]
pub struct Kind {
    /// The target that damages it.
    pub target: &'static str,
    pub(crate) victim: Victim,
    pub(crate) structure: &'static str,
}

/// The superblock.
pub const SUPERBLOCK: Kind = Kind { target: "superblock", victim: Victim::Clean, structure: "superblock" };
/// Group descriptors.
pub const GROUP_DESCRIPTOR: Kind =
    Kind { target: "group_descriptor", victim: Victim::Clean, structure: "group descriptor" };
/// Inodes: their fields, their extent roots or inline data, their attributes.
pub const INODE: Kind = Kind { target: "inode", victim: Victim::Clean, structure: "inode" };
/// Nodes of extent trees.
pub const EXTENT_NODE: Kind =
    Kind { target: "extent_node", victim: Victim::Clean, structure: "extent tree node" };
/// Directory blocks: entries, or a node of the hash tree.
pub const DIRECTORY_BLOCK: Kind =
    Kind { target: "directory_block", victim: Victim::Clean, structure: "directory block" };
/// Attribute blocks.
pub const XATTR_BLOCK: Kind =
    Kind { target: "xattr_block", victim: Victim::Clean, structure: "extended attribute block" };
/// The journal's superblock.
pub const JOURNAL_SUPERBLOCK: Kind =
    Kind { target: "journal_superblock", victim: Victim::Dirty, structure: "journal superblock" };
/// The journal's other blocks: descriptors, copies, revocations, commits, fast commits.
pub const JOURNAL_BLOCK: Kind =
    Kind { target: "journal_block", victim: Victim::Dirty, structure: "journal block" };

/// All of them.
pub const KINDS: [&Kind; 8] = [
    &SUPERBLOCK,
    &GROUP_DESCRIPTOR,
    &INODE,
    &EXTENT_NODE,
    &DIRECTORY_BLOCK,
    &XATTR_BLOCK,
    &JOURNAL_SUPERBLOCK,
    &JOURNAL_BLOCK,
];

/// Puts the input in the place of one structure of the given kind, and walks. The first byte picks the structure;
/// the rest takes its place, byte for byte, as far as it reaches.
pub fn damage_one(kind: &Kind, input: &[u8]) {
    let Some((&pick, input)) = input.split_first() else { return };
    let image = image(kind.victim);
    let wanted = image.sites_of(kind.structure);
    let site = wanted[usize::from(pick) % wanted.len()];
    let mut bytes = image.bytes_of(site).to_vec();
    let len = input.len().min(bytes.len());
    bytes[..len].copy_from_slice(&input[..len]);
    if kind.structure == JOURNAL_BLOCK.structure {
        mend::fast_commits(&mut bytes);
    }
    let device = image.overlay();
    device.write_at(site.range.start, &bytes).expect("an overlay takes writes");
    walk(Arc::new(device));
}

/// A word that [`damage_anywhere`] changes: four bytes of offset, and the two that go there.
pub(crate) const CHANGE_BYTES: usize = 6;

/// Changes words anywhere in the image that the first byte picks.
pub fn damage_anywhere(input: &[u8]) {
    let Some((&pick, changes)) = input.split_first() else { return };
    let device = image(Victim::ALL[usize::from(pick) % 2]).overlay();
    for change in changes.chunks_exact(CHANGE_BYTES) {
        let offset = u32::from_le_bytes([change[0], change[1], change[2], change[3]]);
        let at = u64::from(offset) % (device.size_bytes() - 1);
        device.write_at(at, &change[4..]).expect("an overlay takes writes");
    }
    walk(Arc::new(device));
}
