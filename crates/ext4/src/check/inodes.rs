//! The second pass: every inode that is in use, in the order of their tables.

use undercroft_diskfs::At;
use undercroft_vfs::{FileType, Result};

use super::checker::Checker;
use super::map::{Mode, Walked};
use super::raw::{BAD_BLOCKS_INODE, Inode, QUOTA_INODES, RESIZE_INODE, le16, le32};
use crate::dir;
use crate::features::{Compat, Incompat, RoCompat};
use crate::group::GroupFlags;
use crate::inode::{InodeFlags, ROOT_INODE};
use crate::numbers::FsBlock;

const BOOT_LOADER_INODE: u32 = 5;
const JOURNAL_INODE: u32 = 8;

/// One read of an inode table.
const READ_BYTES: u64 = 1 << 20;
/// A fast symbolic link, a device's number and inline data are kept here.
const I_BLOCK_BYTES: u64 = 60;

impl Checker<'_> {
    pub(super) fn check_inodes(&mut self) -> Result<()> {
        let geometry = self.volume.superblock().geometry().clone();
        let per_group = geometry.inodes_per_group();
        let inode_bytes = u64::from(geometry.inode_bytes());
        for group in 0..geometry.groups() {
            let state = self.groups[group as usize];
            if state.inode_table == 0 || state.flags.contains(GroupFlags::INODE_UNINIT) {
                continue;
            }
            let used_bytes = u64::from(per_group - self.unused_inodes(group)?) * inode_bytes;
            let start = state.inode_table << geometry.block_bits();
            let mut at = 0;
            while at < used_bytes {
                let len = READ_BYTES.min(used_bytes - at);
                let mut bytes = vec![0; len as usize];
                self.volume.device().prefetch(start + at + len, READ_BYTES.min(used_bytes - at - len));
                self.volume.device().read_at(start + at, &mut bytes)?;
                for (slot, bytes) in bytes.chunks_exact(inode_bytes as usize).enumerate() {
                    let number = group * per_group + (at / inode_bytes) as u32 + slot as u32 + 1;
                    if let Some(inode) = Inode::new(number, bytes) {
                        self.check_inode(&inode)?;
                    }
                }
                at += len;
            }
        }
        Ok(())
    }

    /// How many inodes at the end of a group's table were never used. A descriptor that counts inodes among them that
    /// the bitmap says are in use is wrong, and every reader finds those inodes all the same.
    fn unused_inodes(&mut self, group: u32) -> Result<u32> {
        let per_group = self.volume.superblock().geometry().inodes_per_group();
        let state = self.groups[group as usize];
        if state.unused_inodes == 0 || state.inode_bitmap == 0 {
            return Ok(state.unused_inodes);
        }
        let bitmap = self.volume.read_block(FsBlock(state.inode_bitmap))?;
        let in_use = |slot: u32| bitmap[slot as usize / 8] >> (slot % 8) & 1 == 1;
        let Some(last) = (per_group - state.unused_inodes..per_group).rev().find(|&slot| in_use(slot)) else {
            return Ok(state.unused_inodes);
        };
        let number = group * per_group + last + 1;
        let detail = format!(
            "says that its last {} inodes were never used, but inode {number} is in use",
            state.unused_inodes
        );
        self.findings.add("group-unused-inodes", At::group(group), detail);
        Ok(per_group - (last + 1))
    }

    /// Inodes that no directory names.
    pub(super) fn is_special(&self, number: u32) -> bool {
        let superblock = self.volume.superblock();
        let own = [superblock.journal_inode(), superblock.orphan_file_inode()];
        let quota = superblock.features().ro_compat.contains(RoCompat::QUOTA);
        number != ROOT_INODE && number < superblock.geometry().first_inode()
            || own.contains(&Some(number))
            || quota && superblock.quota_inodes().contains(&number)
    }

    fn check_inode(&mut self, inode: &Inode<'_>) -> Result<()> {
        let number = inode.number;
        let at = At::inode(number);
        let is_reserved = number < self.volume.superblock().geometry().first_inode();
        let is_orphan = self.orphans.contains(&number);
        if inode.links() == 0 && !is_orphan && !is_reserved {
            if inode.raw.i_mode.get() != 0 && inode.raw.i_dtime.get() == 0 {
                self.findings.add("inode-deletion-time", at, "has no links and was never deleted");
            }
            return Ok(());
        }
        // A reserved inode that nothing uses has no mode; the one of bad blocks never has.
        let is_bad_blocks = number == BAD_BLOCKS_INODE;
        let has_blocks = inode.raw.i_blocks_lo.get() != 0 || inode.raw.i_block.iter().any(|&byte| byte != 0);
        let is_unused = inode.raw.i_mode.get() == 0 && inode.links() == 0;
        if is_reserved && is_unused && !is_bad_blocks && (!has_blocks || self.may_be_used(number)) {
            self.inodes.insert(u64::from(number));
            self.check_unused_reserved(inode);
            return Ok(());
        }
        self.inodes.insert(u64::from(number));
        self.links.of(number).stored = inode.links();
        if self.volume.superblock().has_metadata_checksums() {
            let (stored, computed) = inode.checksums(self.volume.superblock());
            let is_all_zero = inode.bytes.iter().all(|&byte| byte == 0);
            if stored != computed && !is_all_zero {
                let detail = format!("checksum is {stored:#010x}, its content gives {computed:#010x}");
                self.findings.add("inode-checksum", at, detail);
            }
        }
        if is_bad_blocks {
            // Its list counts as blocks in use; nothing else of it means anything.
            let raw = &inode.raw;
            if raw.i_mode.get() != 0 || inode.links() != 0 || inode.xattr_block() != 0 {
                self.findings.add("bad-blocks", at, "the list of bad blocks is a file");
            }
            self.walk_map(inode, Mode::Claim)?;
            return Ok(());
        }
        if is_reserved && !self.may_be_used(number) {
            return self.check_reserved(inode);
        }
        if inode.raw.i_dtime.get() != 0 && !is_orphan {
            self.findings.add("inode-deletion-time", at, "is in use and has a time of deletion");
        }
        self.check_fields(inode);
        let Some(kind) = inode.kind() else {
            self.findings.add(
                "inode-mode",
                at,
                format!("mode {:#o} is no kind of file", inode.raw.i_mode.get()),
            );
            return Ok(());
        };
        self.kinds.set(number, dir::code_of(kind));
        if kind == FileType::Directory {
            self.directories.insert(u64::from(number));
        }
        if number == ROOT_INODE && kind != FileType::Directory {
            self.findings.add("root-directory", at, "the root is not a directory");
        }
        self.check_flags(inode, kind);
        self.check_content(inode, kind)
    }

    /// Whether a reserved inode is one that this filesystem has a use for.
    fn may_be_used(&self, number: u32) -> bool {
        let superblock = self.volume.superblock();
        match number {
            ROOT_INODE | RESIZE_INODE | BOOT_LOADER_INODE => true,
            _ => {
                let quota = superblock.features().ro_compat.contains(RoCompat::QUOTA);
                Some(number) == superblock.journal_inode()
                    || quota && superblock.quota_inodes().contains(&number)
            }
        }
    }

    /// A reserved inode that this filesystem has no use for, such as those of snapshots: it may have links and a map,
    /// which without a mode mean nothing.
    fn check_reserved(&mut self, inode: &Inode<'_>) -> Result<()> {
        let raw = &inode.raw;
        // Of a journal or a quota file that was given up, the mode may stay.
        let was_file = inode.number == JOURNAL_INODE || QUOTA_INODES.contains(&inode.number);
        let is_in_use = inode.links() != 0 || raw.i_blocks_lo.get() != 0 || le32(&raw.i_block, 0) != 0;
        if if was_file { is_in_use } else { raw.i_mode.get() != 0 } {
            self.findings.add("inode-reserved", At::inode(inode.number), "is reserved, and in use");
        }
        let attributes = self.check_attributes(inode)?;
        let has_map =
            matches!(inode.kind(), Some(FileType::Regular | FileType::Directory | FileType::Symlink));
        let clusters = if has_map { self.walk_map(inode, Mode::Claim)?.clusters } else { 0 };
        self.check_sectors(inode, clusters + attributes.clusters);
        Ok(())
    }

    fn check_fields(&mut self, inode: &Inode<'_>) {
        let at = At::inode(inode.number);
        let raw = &inode.raw;
        if raw.i_obso_faddr.get() != 0 {
            let detail = format!("its fragment address is {}, not 0", raw.i_obso_faddr.get());
            self.findings.add("inode-field", at, detail);
        }
        let sixty_four_bit = self.volume.superblock().features().incompat.contains(Incompat::SIXTY_FOUR_BIT);
        if !sixty_four_bit && raw.i_file_acl_high.get() != 0 {
            self.findings.add("inode-field", at, "its attribute block has a number over 32 bits");
        }
        let huge = self.volume.superblock().features().ro_compat.contains(RoCompat::HUGE_FILE);
        if !huge && raw.i_blocks_high.get() != 0 {
            self.findings.add("inode-field", at, "its count of blocks has more than 32 bits");
        }
        let (extra, room) = (inode.extra_bytes(), inode.bytes.len() - 128);
        if extra != 0 && (extra < 4 || extra > room || !extra.is_multiple_of(4)) {
            let detail = format!("its extra fields take {extra} of {room} bytes");
            self.findings.add("inode-extra-size", at, detail);
        }
    }

    fn check_flags(&mut self, inode: &Inode<'_>, kind: FileType) {
        let at = At::inode(inode.number);
        let features = *self.volume.superblock().features();
        let flags = inode.flags();
        let needs = [
            (InodeFlags::EXTENTS, features.incompat.contains(Incompat::EXTENTS), "extent"),
            (InodeFlags::INLINE_DATA, features.incompat.contains(Incompat::INLINE_DATA), "inline_data"),
            (InodeFlags::EA_INODE, features.incompat.contains(Incompat::EA_INODE), "ea_inode"),
            (InodeFlags::ENCRYPTED, features.incompat.contains(Incompat::ENCRYPT), "encrypt"),
            (InodeFlags::CASEFOLD, features.incompat.contains(Incompat::CASEFOLD), "casefold"),
            (InodeFlags::VERITY, features.ro_compat.contains(RoCompat::VERITY), "verity"),
        ];
        for (flag, has, feature) in needs {
            if flags.contains(flag) && !has {
                let detail = format!("has a flag that takes the feature {feature}");
                self.findings.add("inode-flags", at, detail);
            }
        }
        let is_directory = kind == FileType::Directory;
        if flags.contains(InodeFlags::INDEXED)
            && !(is_directory && features.compat.contains(Compat::DIR_INDEX))
        {
            self.findings.add("inode-flags", at, "has the flag of an indexed directory");
        }
        if flags.contains(InodeFlags::CASEFOLD) && !is_directory {
            self.findings.add("inode-flags", at, "has the flag of a casefolded directory");
        }
        if flags.contains(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS) {
            self.findings.add("inode-flags", at, "has both inline data and an extent tree");
        }
    }

    fn check_content(&mut self, inode: &Inode<'_>, kind: FileType) -> Result<()> {
        let at = At::inode(inode.number);
        let attributes = self.check_attributes(inode)?;
        self.check_policy(inode, attributes.policy);
        if inode.number == RESIZE_INODE {
            return self.check_resize_inode(inode);
        }
        match kind {
            FileType::CharDevice | FileType::BlockDevice | FileType::Fifo | FileType::Socket => {
                self.check_node(inode);
                self.check_sectors(inode, attributes.clusters);
                return Ok(());
            }
            FileType::Symlink if self.is_fast_symlink(inode, attributes.clusters) => {
                self.check_fast_symlink(inode);
                self.check_sectors(inode, attributes.clusters);
                return Ok(());
            }
            FileType::Regular | FileType::Directory | FileType::Symlink => {}
        }
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            self.check_inline_data(inode, kind, attributes.inline_bytes);
            self.check_sectors(inode, attributes.clusters);
            return Ok(());
        }
        let has_extents = self.volume.superblock().features().incompat.contains(Incompat::EXTENTS);
        if inode.flags().contains(InodeFlags::EXTENTS) && !has_extents {
            return Ok(());
        }
        let walked = self.walk_map(inode, Mode::Claim)?;
        self.check_sectors(inode, walked.clusters + attributes.clusters);
        if walked.damaged {
            self.damaged.insert(u64::from(inode.number));
            return Ok(());
        }
        match kind {
            FileType::Directory => self.check_directory_size(inode, &walked),
            FileType::Symlink => self.check_slow_symlink(inode, &walked)?,
            _ => {
                let block_bits = self.volume.superblock().geometry().block_bits();
                let whole = walked.written_end().saturating_sub(1) << block_bits;
                // Merkle trees lie past the end of files with fs-verity.
                let is_truncated = self.orphans.contains(&inode.number);
                if inode.size_bytes() < whole && !is_truncated && !inode.flags().contains(InodeFlags::VERITY)
                {
                    let detail = format!(
                        "size is {} bytes, but file block {} is written",
                        inode.size_bytes(),
                        walked.written_end() - 1
                    );
                    self.findings.add("inode-size", at, detail);
                }
                if inode.size_bytes() > self.size_max(inode) {
                    let detail = format!("size is {} bytes, more than any file can have", inode.size_bytes());
                    self.findings.add("inode-size", at, detail);
                }
                if Some(inode.number) == self.volume.superblock().journal_inode() {
                    self.check_journal(inode, kind, &walked)?;
                }
            }
        }
        Ok(())
    }

    /// The largest size that the inode's map, and the filesystem's features, can give a file.
    fn size_max(&self, inode: &Inode<'_>) -> u64 {
        let superblock = self.volume.superblock();
        let block_bytes = u64::from(superblock.geometry().block_bytes());
        let per_block = block_bytes / 4;
        let blocks = if inode.flags().contains(InodeFlags::EXTENTS) {
            u64::from(u32::MAX)
        } else {
            12 + per_block + per_block.pow(2) + per_block.pow(3)
        };
        if superblock.features().ro_compat.contains(RoCompat::LARGE_FILE) {
            blocks.saturating_mul(block_bytes)
        } else {
            i32::MAX as u64
        }
    }

    /// The count of sectors against the clusters that were found.
    pub(super) fn check_sectors(&mut self, inode: &Inode<'_>, clusters: u64) {
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry();
        let huge = superblock.features().ro_compat.contains(RoCompat::HUGE_FILE);
        let high = if huge { u64::from(inode.raw.i_blocks_high.get()) << 32 } else { 0 };
        let stored = u64::from(inode.raw.i_blocks_lo.get()) | high;
        let in_blocks = huge && inode.flags().contains(InodeFlags::HUGE_FILE);
        let unit = if in_blocks { u64::from(geometry.block_bytes()) } else { 512 };
        let expected = clusters * u64::from(geometry.cluster_bytes()) / unit;
        if stored != expected {
            let detail = format!("says that it has {stored} blocks of {unit} bytes; it has {expected}");
            self.findings.add("inode-blocks", At::inode(inode.number), detail);
        }
    }

    fn check_node(&mut self, inode: &Inode<'_>) {
        let at = At::inode(inode.number);
        if inode.size_bytes() != 0 {
            self.findings.add("inode-size", at, format!("a special file of {} bytes", inode.size_bytes()));
        }
        let odd = InodeFlags::EXTENTS | InodeFlags::INDEXED | InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if inode.flags().intersects(odd) {
            self.findings.add("inode-flags", at, "a special file with flags of other files");
        }
    }

    fn is_fast_symlink(&self, inode: &Inode<'_>, attribute_clusters: u64) -> bool {
        if inode.flags().intersects(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS) {
            return false;
        }
        let sectors = u64::from(inode.raw.i_blocks_lo.get());
        let of_attributes =
            attribute_clusters * u64::from(self.volume.superblock().geometry().cluster_bytes() / 512);
        let by_size = self.volume.superblock().features().incompat.contains(Incompat::EA_INODE);
        if by_size { inode.size_bytes() < I_BLOCK_BYTES } else { sectors <= of_attributes }
    }

    fn check_fast_symlink(&mut self, inode: &Inode<'_>) {
        let size = inode.size_bytes();
        let encrypted = inode.flags().contains(InodeFlags::ENCRYPTED);
        let len = target_bytes(&inode.raw.i_block, encrypted);
        if size == 0 || size >= I_BLOCK_BYTES || len != size {
            let detail = format!("target of {len} bytes, with a size of {size}");
            self.findings.add("symlink", At::inode(inode.number), detail);
        }
    }

    fn check_slow_symlink(&mut self, inode: &Inode<'_>, walked: &Walked) -> Result<()> {
        let at = At::inode(inode.number);
        let size = inode.size_bytes();
        let block_bytes = u64::from(self.volume.block_bytes());
        let Some(run) = walked.runs.first().filter(|run| run.file_block == 0 && walked.end() == 1) else {
            self.findings.add("symlink", at, "target does not lie in exactly one block");
            return Ok(());
        };
        let buffer = self.volume.read_block(FsBlock(run.first))?;
        let len = target_bytes(&buffer, inode.flags().contains(InodeFlags::ENCRYPTED));
        if size == 0 || size > block_bytes || len != size {
            let detail = format!("target of {len} bytes, with a size of {size}");
            self.findings.add("symlink", at.block(run.first), detail);
        }
        Ok(())
    }

    fn check_inline_data(&mut self, inode: &Inode<'_>, kind: FileType, in_attribute: Option<u64>) {
        let at = At::inode(inode.number);
        let Some(in_attribute) = in_attribute else {
            self.findings.add("inline-data", at, "has inline data and not the attribute system.data");
            return;
        };
        let (size, room) = (inode.size_bytes(), I_BLOCK_BYTES + in_attribute);
        let fits = if kind == FileType::Directory { size == room } else { size <= room };
        if !fits {
            self.findings.add("inode-size", at, format!("size is {size}, with {room} bytes of inline data"));
        }
        if kind == FileType::Symlink {
            let len =
                inode.raw.i_block.iter().position(|&byte| byte == 0).map_or(I_BLOCK_BYTES, |at| at as u64);
            if size == 0 || len < size.min(I_BLOCK_BYTES) && !inode.flags().contains(InodeFlags::ENCRYPTED) {
                self.findings.add("symlink", at, format!("target of {len} bytes, with a size of {size}"));
            }
        }
    }

    fn check_directory_size(&mut self, inode: &Inode<'_>, walked: &Walked) {
        let at = At::inode(inode.number);
        let block_bytes = u64::from(self.volume.block_bytes());
        let size = inode.size_bytes();
        if size != walked.end() * block_bytes || size == 0 {
            let detail = format!("size is {size} bytes, with {} blocks of {block_bytes}", walked.end());
            self.findings.add("inode-size", at, detail);
        }
        if let Some(run) = walked.runs.iter().find(|run| run.unwritten) {
            self.findings.add(
                "directory-unwritten",
                at.block(run.first),
                "a directory's block was never written",
            );
        }
    }
}

/// The length of a symbolic link's target: up to a NUL, or as an encrypted one says, with the two bytes that say it.
fn target_bytes(bytes: &[u8], encrypted: bool) -> u64 {
    if encrypted {
        return u64::from(le16(bytes, 0)) + 2;
    }
    bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()) as u64
}
