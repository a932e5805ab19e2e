//! Reading an in-memory inode: its forks' content.

use undercroft_vfs::{Ino, Result};

use super::Live;
use crate::attr;
use crate::da::mapped::MappedFork;
use crate::da::{Content, Layout};
use crate::inode::Fork;
use crate::volume::Volume;

impl Live {
    /// Calls `use_it` with the content of a fork.
    pub(super) fn with_content<T>(
        &self,
        fork: &Fork,
        structure: &'static str,
        use_it: impl FnOnce(Content<'_>) -> Result<T>,
    ) -> Result<T> {
        let (volume, ino): (&Volume, _) = (&self.volume, self.ino);
        match fork {
            Fork::Local(bytes) => use_it(Content::Inline(bytes)),
            _ => use_it(Content::Blocks(&MappedFork::of(volume, ino, structure, fork))),
        }
    }

    pub(super) fn with_attributes<T>(
        &self,
        use_it: impl FnOnce(attr::Attributes<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        // Held until the end: a change may free blocks that this reads, and another file use them.
        let fields = self.fields.read();
        let Some(fork) = &fields.attr else { return Ok(None) };
        if matches!(fork, Fork::Extents(extents) if extents.is_empty()) {
            return Ok(None);
        }
        let layout = &Layout::of(self.volume.superblock());
        let ino = self.ino;
        self.with_content(fork, "attribute fork", |content| {
            use_it(attr::Attributes { ino, layout, content }).map(Some)
        })
    }
}

/// The inode numbers of directory entries that can be read ahead.
pub(crate) fn prefetch(volume: &Volume, entries: &[Ino]) {
    let geometry = volume.geometry();
    volume.prefetch_scattered(entries.iter().filter_map(|&ino| Some(geometry.inode_place(ino)?.0)));
}

#[cfg(test)]
mod tests {
    use undercroft_block::{BlockDevice, MemoryDevice};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::format::dinode::{self, RawDinode};
    use crate::format::extent::{Extent as Mapped, RawExtent};
    use crate::format::{FileBlock, FsBlock, Superblock, crc, testing};
    use crate::inode::Inode;
    use crate::writer::Mounted;
    use std::sync::Arc;
    use undercroft_vfs::{Inode as VfsInode, InodeFlags};

    const INO: Ino = Ino(131);

    /// An inode whose data fork begins with `fork`, on a volume with these version bits.
    fn live(version_bits: u16, change: impl FnOnce(&mut RawDinode), fork: &[u8]) -> Live {
        let device = Arc::new(MemoryDevice::new(512 << 20));
        let sector = testing::superblock_sector(|raw| raw.sb_versionnum.set(version_bits));
        device.write_at(0, &sector).unwrap();
        let superblock = Superblock::read(&*device).unwrap();
        let mut bytes = testing::dinode(&superblock, INO, change);
        bytes[dinode::CORE_V3_BYTES..][..fork.len()].copy_from_slice(fork);
        crc::seal(&mut bytes, dinode::CRC_OFFSET);
        device.write_at(INO.0 * 512, &bytes).unwrap();
        let volume = Volume::new(device, superblock, 1 << 20);
        let inode = Inode::read(&volume, INO).unwrap();
        Live::new(Arc::new(Mounted::new(volume)), inode)
    }

    /// A name that differs by case leads to a directory too, so that its place must not depend on the spelling.
    #[test]
    fn directories_fold_case_where_the_volume_does() {
        let directory = |raw: &mut RawDinode| {
            raw.di_mode.set(0o040_755);
            raw.di_nlink.set(2);
            raw.di_format = 1;
            raw.di_size.set(6);
        };
        for (version_bits, folds_case) in [(0xb4a5, false), (0xf4a5, true)] {
            let live = live(version_bits, directory, &[0, 0, 0, 0, 0, 128]);
            assert_eq!(live.ownership().flags.contains(InodeFlags::CASEFOLD), folds_case);
            assert!(!live.attr().flags.contains(InodeFlags::CASEFOLD), "Linux shows no such flag");
        }
        assert!(!live(0xf4a5, |_| {}, &[]).ownership().flags.contains(InodeFlags::CASEFOLD));
    }

    #[test]
    fn a_target_in_blocks_that_were_never_written_is_corruption() {
        let link = |raw: &mut RawDinode| {
            raw.di_mode.set(0o120_777);
            raw.di_size.set(1000);
            raw.di_nextents.set(1);
            raw.di_nblocks.set(1);
        };
        let extent = Mapped { file: FileBlock(0), block: FsBlock(50), count: 1, unwritten: true };
        let refusal = live(0xb4a5, link, RawExtent::pack(&extent).as_bytes()).read_link().unwrap_err();
        assert!(refusal.to_string().contains("never written"), "{refusal}");
    }
}
