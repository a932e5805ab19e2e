//! Extended attributes: in inodes, in blocks of their own, and in value inodes.
//!
//! A block may serve several inodes, and a value inode several attributes; each says how many it serves, which is
//! compared when all inodes have been seen.

use undercroft_diskfs::At;
use undercroft_vfs::Result;

use super::checker::{Checker, Shared};
use super::encryption::Policy;
use super::raw::{Inode, le16, le32};
use crate::checksum::{crc32c, crc32c_around};
use crate::features::{Compat, Incompat};
use crate::inode::InodeFlags;
use crate::numbers::FsBlock;
use crate::xattr::{Attributes, Value, entry_hashes};

const MAGIC: u32 = 0xEA02_0000;
const BLOCK_HEADER_BYTES: usize = 32;
const BLOCK_CHECKSUM: std::ops::Range<usize> = 0x10..0x14;
const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;
const INDEX_SYSTEM: u8 = 7;
const INDEX_ENCRYPTION: u8 = 9;

/// What the attributes of one inode come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Clusters that count as the inode's.
    pub(super) clusters: u64,
    /// Length of the attribute that inline data goes on in.
    pub(super) inline_bytes: Option<u64>,
    /// What says how the inode is encrypted.
    pub(super) policy: Option<Policy>,
}

impl Checker<'_> {
    pub(super) fn check_attributes(&mut self, inode: &Inode<'_>) -> Result<Found> {
        let mut found = Found::default();
        let area = inode.attribute_area();
        if le32(area, 0) == MAGIC {
            let entries = &area[4..];
            self.check_list(inode.number, None, entries, 0, &mut found);
        }
        if inode.flags().contains(InodeFlags::EA_INODE) {
            // How many attributes it serves stands in fields that such an inode has no other use for.
            let count = u64::from(inode.raw.i_ctime.get()) << 32 | u64::from(inode.raw.i_version_lo.get());
            self.value_inodes.entry(inode.number).or_default().0 = Some(count);
        }
        let block = inode.xattr_block();
        if block != 0 {
            self.check_block(inode.number, block, &mut found)?;
        }
        Ok(found)
    }

    fn check_block(&mut self, inode: u32, block: u64, found: &mut Found) -> Result<()> {
        let at = At::inode(inode).block(block);
        if !self.volume.superblock().features().compat.contains(Compat::EXT_ATTR) {
            self.findings.add("xattr-block", at, "is named without the feature ext_attr");
            return Ok(());
        }
        if !self.volume.superblock().geometry().contains(FsBlock(block), 1) {
            self.findings.add("xattr-block", at, "lies outside the filesystem");
            return Ok(());
        }
        found.clusters += 1;
        if let Some(shared) = self.attribute_blocks.get_mut(&block) {
            shared.seen += 1;
            found.clusters += shared.value_clusters;
            found.policy = found.policy.or(shared.policy);
            return Ok(());
        }
        if !self.claim(inode, block, 1) {
            return Ok(());
        }
        let buffer = self.volume.read_block(FsBlock(block))?;
        self.attribute_blocks
            .insert(block, Shared { stored: le32(&buffer, 4), seen: 1, value_clusters: 0, policy: None });
        let (magic, blocks) = (le32(&buffer, 0), le32(&buffer, 8));
        if magic != MAGIC || blocks != 1 {
            let detail =
                format!("magic number is {magic:#010x}, length {blocks}; {MAGIC:#010x} and 1 are right");
            self.findings.add("xattr-block", at, detail);
            return Ok(());
        }
        if self.volume.superblock().has_metadata_checksums() {
            let seed = crc32c(self.volume.superblock().checksum_seed(), &block.to_le_bytes());
            let (stored, computed) = (le32(&buffer, 0x10), crc32c_around(seed, &buffer, BLOCK_CHECKSUM));
            if stored != computed {
                let detail = format!("checksum is {stored:#010x}, its content gives {computed:#010x}");
                self.findings.add("xattr-checksum", at, detail);
            }
        }
        let before = found.clusters;
        self.check_list(inode, Some(block), &buffer, BLOCK_HEADER_BYTES, found);
        if let Some(shared) = self.attribute_blocks.get_mut(&block) {
            shared.value_clusters = found.clusters - before;
            shared.policy = found.policy;
        }
        Ok(())
    }

    fn check_list(&mut self, inode: u32, block: Option<u64>, bytes: &[u8], first: usize, found: &mut Found) {
        let at = block.map_or(At::inode(inode), |block| At::inode(inode).block(block));
        let attributes = match Attributes::validate(bytes, first) {
            Ok(attributes) => attributes,
            Err(detail) => return self.findings.add("xattr", at, detail),
        };
        let mut values: Vec<(usize, usize)> = Vec::new();
        let mut entry_at = first;
        for entry in attributes.iter() {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            // Only an access control list has its whole name in the index.
            if entry.name.is_empty() && !matches!(entry.index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT) {
                self.findings.add("xattr", at, format!("an attribute of kind {} has no name", entry.index));
            }
            let is_inline_data = entry.index == INDEX_SYSTEM && entry.name == b"data";
            match entry.value {
                Value::Here(value) => {
                    if entry.index == INDEX_ENCRYPTION && entry.name == b"c" {
                        found.policy = Some(self.policies.parse(value));
                    }
                    if is_inline_data {
                        found.inline_bytes = Some(value.len() as u64);
                    }
                    let start = usize::from(le16(bytes, entry_at + 2));
                    if !value.is_empty() {
                        values.push((start, start + value.len().next_multiple_of(4)));
                    } else if start > bytes.len() {
                        // Readers do not look there; e2fsck does.
                        let room = bytes.len();
                        let detail =
                            format!("attribute {name:?} has an empty value at {start}, outside {room} bytes");
                        self.findings.add("xattr", at, detail);
                    }
                    let words: Vec<u32> = value
                        .chunks(4)
                        .map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte)))
                        .collect();
                    // In the inode a hash may be missing.
                    let may_miss = block.is_none() && entry.hash == 0;
                    if !entry_hashes(entry.name, &words).contains(&entry.hash) && !may_miss {
                        self.findings.add("xattr-hash", at, format!("hash of attribute {name:?} is wrong"));
                    }
                }
                Value::Inode { number, size_bytes } => {
                    let has = self.volume.superblock().features().incompat.contains(Incompat::EA_INODE);
                    if !has || number > self.volume.superblock().geometry().inodes() {
                        let detail = format!("value of attribute {name:?} cannot be in inode {number}");
                        self.findings.add("xattr", at, detail);
                    } else {
                        self.value_inodes.entry(number).or_default().1 += 1;
                        let cluster_bytes = self.volume.superblock().geometry().cluster_bytes();
                        found.clusters += u64::from(size_bytes.div_ceil(cluster_bytes));
                    }
                }
            }
            entry_at += 16 + entry.name.len().next_multiple_of(4);
        }
        values.sort_unstable();
        if values.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            self.findings.add("xattr", at, "values overlap");
        }
    }

    /// Counts of users, when all have been seen.
    pub(super) fn check_sharing(&mut self) {
        let mut blocks: Vec<_> =
            self.attribute_blocks.iter().map(|(&block, &shared)| (block, shared)).collect();
        blocks.sort_unstable_by_key(|&(block, _)| block);
        for (block, Shared { stored, seen, .. }) in blocks {
            if stored != seen {
                let detail = format!("attribute block says that it serves {stored} inodes; it serves {seen}");
                self.findings.add("xattr-refcount", At::filesystem().block(block), detail);
            }
        }
        let mut inodes: Vec<_> = self.value_inodes.iter().map(|(&inode, &counts)| (inode, counts)).collect();
        inodes.sort_unstable_by_key(|&(inode, _)| inode);
        for (inode, (stored, seen)) in inodes {
            let at = At::inode(inode);
            match stored {
                None => {
                    self.findings.add(
                        "xattr-value-inode",
                        at,
                        "an attribute's value is here, but not marked",
                    );
                }
                Some(stored) if stored != seen => {
                    let detail = format!("says that it is the value of {stored} attributes; it is of {seen}");
                    self.findings.add("xattr-value-inode", at, detail);
                }
                Some(_) => {}
            }
        }
    }
}
