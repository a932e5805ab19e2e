//! The second pass: every inode of every chunk, free or in use.

use std::sync::atomic::Ordering;

use undercroft_diskfs::At;
use undercroft_vfs::{FileType, Ino, Result};
use zerocopy::FromBytes;

use super::Checker;
use super::chunks::UNREADABLE;
use super::forks::Fork;
use super::raw::be32;
use crate::dir::code_of;
use crate::format::dinode::{self, DiFlags, DiFlags2, Dinode, ForkFormat, RawDinode};
use crate::format::extent::EXTENT_MAX_BLOCKS;
use crate::format::{AgBlock, AgIno, AgNumber};

/// The longest target of a symbolic link in bytes.
const TARGET_MAX: u64 = 1024;

/// An inode that is being looked at.
#[derive(Clone, Copy)]
pub(super) struct Inode<'a> {
    pub(super) number: u64,
    pub(super) core: &'a Dinode,
    pub(super) bytes: &'a [u8],
}

impl Inode<'_> {
    pub(super) fn at(&self) -> At {
        At::inode(self.number)
    }
}

impl Checker<'_> {
    /// Checks the inodes of one chunk.
    pub(super) fn check_chunk(&self, group: usize, at: usize) -> Result<()> {
        let chunk = self.groups[group].chunks.chunks[at];
        // Added up here: a count of all threads for each inode is a cache line that they take from each other.
        self.inodes.fetch_add(u64::from(chunk.inodes() - chunk.free_inodes()), Ordering::Relaxed);
        let ag = AgNumber(group as u32);
        let per_block = self.geometry.inodes_per_block();
        let size = self.geometry.inode_bytes() as usize;
        for run in chunk.runs() {
            let first = chunk.start + run.start;
            let Some(block) = self.geometry.join(ag, AgBlock(first / per_block)) else { continue };
            let skip = (first % per_block) as usize;
            let blocks = (skip as u32 + run.len() as u32).div_ceil(per_block);
            let bytes = self.read(block, blocks)?;
            self.announce_forks(&bytes[skip * size..]);
            for (n, bytes) in run.zip(bytes.chunks_exact(size).skip(skip)) {
                let Some(ino) = self.geometry.join_ino(ag, AgIno(chunk.start + n)) else { continue };
                self.check_inode(ino, bytes, chunk.is_free(n), group, at, n)?;
            }
        }
        Ok(())
    }

    fn check_inode(
        &self,
        ino: Ino,
        bytes: &[u8],
        is_free: bool,
        group: usize,
        chunk: usize,
        n: u32,
    ) -> Result<()> {
        let at = At::inode(ino.0);
        if is_free {
            match dinode::validate_identity(bytes, self.superblock, ino) {
                Err(detail) => self.findings.add("inode", at, format!("the free inode {detail}")),
                Ok(raw) if raw.di_mode.get() != 0 => {
                    let detail = format!("the inode is free by the inobt, and has mode {:#o}", raw.di_mode);
                    self.findings.add("inode-free", at, detail);
                }
                Ok(_) => {}
            }
            return Ok(());
        }
        let known = self.groups[group].chunks.known(chunk, n);
        let core = match dinode::validate(bytes, self.superblock, ino) {
            Ok(Some(core)) => core,
            Ok(None) => {
                known.kind.store(UNREADABLE, Ordering::Relaxed);
                self.findings.add("inode-free", at, "the inode is in use by the inobt, and has no mode");
                return Ok(());
            }
            Err(detail) => {
                known.kind.store(UNREADABLE, Ordering::Relaxed);
                self.findings.add("inode", at, format!("the inode: {detail}"));
                return Ok(());
            }
        };
        known.kind.store(code_of(core.kind), Ordering::Relaxed);
        match u8::try_from(core.links) {
            Ok(links) if links < u8::MAX => known.stored.store(links, Ordering::Relaxed),
            _ => {
                known.stored.store(u8::MAX, Ordering::Relaxed);
                self.many_stored.lock().insert(ino.0, core.links);
            }
        }
        if core.links == 0 {
            self.next_unlinked.lock().insert(ino.0, core.next_unlinked.0);
        } else if core.next_unlinked != AgIno::NULL {
            let detail = format!("the inode has links, and names {} as the next without", core.next_unlinked);
            self.findings.add("inode-field", at, detail);
        }
        let inode = Inode { number: ino.0, core: &core, bytes };
        self.check_fields(&inode);
        let data = self.check_fork(&inode, false)?;
        let attributes = self.check_fork(&inode, true)?;
        let blocks = data.blocks + attributes.blocks;
        let more = self.interrupted.more_blocks_of(ino.0);
        if data.complete && attributes.complete && blocks != core.blocks.saturating_add_signed(more) {
            let detail = format!("the inode counts {} blocks, and has {blocks}", core.blocks);
            self.findings.add("inode-blocks", at, detail);
        }
        match core.kind {
            FileType::Directory => {
                self.directory_count.fetch_add(1, Ordering::Relaxed);
                self.check_directory(&inode, &data)?;
            }
            FileType::Symlink => self.check_target(&inode, &data)?,
            _ => {}
        }
        self.check_attributes(&inode, &attributes)
    }

    /// Fields that readers ignore.
    fn check_fields(&self, inode: &Inode<'_>) {
        let core = inode.core;
        let report = |detail: String| self.findings.add("inode-field", inode.at(), detail);
        let (flags, flags2) = (core.flags, core.flags2);
        let is = |kind| core.kind == kind;
        let known_flags = DiFlags::from_bits_retain(0x7fff);
        if !known_flags.contains(flags) {
            report(format!("the inode has flags {:#x}, some of them unknown", flags.bits()));
        }
        if flags2.bits() & !0x1f != 0 {
            report(format!(
                "the inode has flags {:#x} of the second word, some of them unknown",
                flags2.bits()
            ));
        }
        if flags.intersects(
            DiFlags::RT_INHERIT
                .union(DiFlags::EXTENT_SIZE_INHERIT)
                .union(DiFlags::NO_SYMLINKS)
                .union(DiFlags::PROJECT_INHERIT),
        ) && !is(FileType::Directory)
        {
            report(format!("the inode has flags {:#x}, some of them for directories only", flags.bits()));
        }
        if flags.contains(DiFlags::NEW_RT_BITMAP) && inode.number != self.superblock.raw().sb_rbmino.get() {
            report("the inode has the flag of the real-time bitmap, and is not it".to_owned());
        }
        if flags.intersects(DiFlags::EXTENT_SIZE) && !is(FileType::Regular) {
            report(format!("the inode has flags {:#x}, some of them for regular files only", flags.bits()));
        }
        let hinted = flags.intersects(DiFlags::EXTENT_SIZE.union(DiFlags::EXTENT_SIZE_INHERIT));
        if hinted != (core.extent_size != 0) || core.extent_size > EXTENT_MAX_BLOCKS {
            report(format!(
                "the hint of extent sizes is {} blocks, and the flags say otherwise",
                core.extent_size
            ));
        }
        let hinted = flags2.contains(DiFlags2::COW_EXTENT_SIZE);
        if hinted != (core.cow_extent_size != 0) || core.cow_extent_size > EXTENT_MAX_BLOCKS {
            report(format!(
                "the hint of copies' sizes is {} blocks, which the flags do not have",
                core.cow_extent_size
            ));
        }
        if flags2.contains(DiFlags2::DAX) && !is(FileType::Regular) && !is(FileType::Directory) {
            report("the inode has the flag of DAX and is no regular file or directory".to_owned());
        }
        if !flags2.contains(DiFlags2::BIGTIME) {
            let Ok((raw, _)) = RawDinode::read_from_prefix(inode.bytes) else { return };
            let mut times = vec![raw.di_atime, raw.di_mtime, raw.di_ctime];
            times.extend((core.version >= 3).then_some(raw.di_crtime));
            if let Some(wrong) = times.iter().find(|time| time.get() as u32 >= 1_000_000_000) {
                report(format!("a time of the inode has {} nanoseconds", wrong.get() as u32));
            }
        }
        let kind_has_no_size =
            !matches!(core.kind, FileType::Regular | FileType::Directory | FileType::Symlink);
        if kind_has_no_size && core.size_bytes != 0 {
            report(format!("the inode has a size of {} bytes, and no content", core.size_bytes));
        }
        if is(FileType::Symlink) && core.size_bytes > TARGET_MAX {
            report(format!("the link's target has {} bytes", core.size_bytes));
        }
    }

    /// The target of a symbolic link.
    fn check_target(&self, inode: &Inode<'_>, fork: &Fork) -> Result<()> {
        let size = inode.core.size_bytes as usize;
        let at = inode.at();
        if inode.core.data_format == ForkFormat::Local {
            let range = inode.core.data_fork.clone();
            let target = inode.bytes.get(range).and_then(|fork| fork.get(..size)).unwrap_or(&[]);
            if target.contains(&0) {
                self.findings.add("symlink", at, "the link's target has zero bytes in it");
            }
            return Ok(());
        }
        if size as u64 > TARGET_MAX || !fork.complete {
            return Ok(());
        }
        let mut target = Vec::new();
        let header = if self.geometry.has_crc() { 56 } else { 0 };
        let block_bytes = self.geometry.block_bytes() as usize;
        let mut next = 0;
        while target.len() < size {
            let Some(block) = fork.block_at(next) else {
                self.findings.add(
                    "symlink",
                    at,
                    format!("the link's target has {size} bytes, and fewer are there"),
                );
                return Ok(());
            };
            // Blocks that lie together have one header.
            let count = fork.run_at(next, (size as u64 + 56).div_ceil(block_bytes as u64)).max(1);
            let bytes = self.read(block, count as u32)?;
            let len = (size - target.len()).min(bytes.len() - header);
            if header > 0
                && let Err(detail) =
                    self.remote_header(&bytes, *b"XSLM", block, inode.number, target.len() as u32, len as u32)
            {
                self.findings.add("symlink", at.block(block.0), detail);
            }
            target.extend_from_slice(&bytes[header..header + len]);
            next += count;
        }
        if target.contains(&0) {
            self.findings.add("symlink", at, "the link's target has zero bytes in it");
        }
        Ok(())
    }

    /// Validates the header of a block of a value or target that lies outside the inode.
    pub(super) fn remote_header(
        &self,
        bytes: &[u8],
        magic: [u8; 4],
        block: crate::format::FsBlock,
        owner: u64,
        offset: u32,
        len: u32,
    ) -> std::result::Result<(), String> {
        use crate::format::block_header::{HeaderKind, validate};
        if bytes[..4] != magic {
            return Err(format!("a block of it has magic number {:#010x}", be32(bytes, 0)));
        }
        let Some(daddr) = self.geometry.daddr(block) else { return Ok(()) };
        validate(bytes, HeaderKind::Remote, self.superblock, daddr, owner)
            .map_err(|detail| format!("a block of it {detail}"))?;
        if (be32(bytes, 4), be32(bytes, 8)) != (offset, len) {
            return Err(format!(
                "a block of it has {} bytes from {} on, and {len} from {offset} on are wanted",
                be32(bytes, 8),
                be32(bytes, 4)
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    /// As xfs_repair -n answers of a file, a directory and a FIFO that have the flag.
    #[test]
    fn files_and_directories_may_have_the_flag_of_dax() {
        let bench = Bench::new(|_| {});
        for (mode, wrong) in [(0o100_644, 0), (0o040_755, 0), (0o010_644, 1), (0o020_644, 1)] {
            let inode = bench.inode(130, |raw| {
                raw.di_mode.set(mode);
                if matches!(mode >> 12, 1 | 2) {
                    (raw.di_format, raw.di_forkoff) = (0, 1);
                }
                raw.di_size.set(if mode >> 12 == 4 { 4096 } else { 0 });
                raw.di_flags2.set((DiFlags2::BIGTIME | DiFlags2::DAX).bits());
            });
            let checker = bench.checker();
            checker.check_fields(&inode.get());
            assert_eq!(checker.reported().len(), wrong, "{mode:o}");
        }
    }
}
