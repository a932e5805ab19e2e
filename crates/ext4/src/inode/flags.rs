//! An inode's flags as the disk has them (`i_flags`), and what of them is shown.
//!
//! Source: kernel documentation, "Index Nodes". The bits that are shown have the values of `FS_IOC_GETFLAGS`, which
//! took them from ext2; the others describe how the inode is stored and mean nothing outside of this format.

use undercroft_vfs::InodeFlags as Shown;

bitflags::bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct InodeFlags: u32 {
        /// `EXT4_SECRM_FL`: overwrite on deletion.
        const SECURE_DELETION = 0x0000_0001;
        /// `EXT4_UNRM_FL`: keep for undeletion.
        const UNDELETE = 0x0000_0002;
        /// `EXT4_COMPR_FL`: compressed.
        const COMPRESSED = 0x0000_0004;
        /// `EXT4_SYNC_FL`: synchronous updates.
        const SYNC = 0x0000_0008;
        /// `EXT4_IMMUTABLE_FL`: cannot be changed.
        const IMMUTABLE = 0x0000_0010;
        /// `EXT4_APPEND_FL`: can only be appended to.
        const APPEND = 0x0000_0020;
        /// `EXT4_NODUMP_FL`: not dumped.
        const NODUMP = 0x0000_0040;
        /// `EXT4_NOATIME_FL`: access times are not updated.
        const NOATIME = 0x0000_0080;
        /// `EXT4_NOCOMPR_FL`: not compressed, though the directory is.
        const NOT_COMPRESSED = 0x0000_0400;
        /// `EXT4_ENCRYPT_FL`: encrypted.
        const ENCRYPTED = 0x0000_0800;
        /// `EXT4_INDEX_FL`: a directory with a hashed index.
        const INDEXED = 0x0000_1000;
        /// `EXT4_IMAGIC_FL`: belongs to the AFS server.
        const AFS = 0x0000_2000;
        /// `EXT4_JOURNAL_DATA_FL`: data goes through the journal.
        const JOURNAL_DATA = 0x0000_4000;
        /// `EXT4_NOTAIL_FL`: tails are not merged.
        const NOTAIL = 0x0000_8000;
        /// `EXT4_DIRSYNC_FL`: synchronous directory updates.
        const DIRSYNC = 0x0001_0000;
        /// `EXT4_TOPDIR_FL`: top of a directory hierarchy.
        const TOPDIR = 0x0002_0000;
        /// `EXT4_HUGE_FILE_FL`: the count of sectors is one of blocks.
        const HUGE_FILE = 0x0004_0000;
        /// `EXT4_EXTENTS_FL`: mapped by extents.
        const EXTENTS = 0x0008_0000;
        /// `EXT4_VERITY_FL`: protected by fs-verity.
        const VERITY = 0x0010_0000;
        /// `EXT4_EA_INODE_FL`: the value of an extended attribute.
        const EA_INODE = 0x0020_0000;
        /// `EXT4_DAX_FL`: direct access to memory.
        const DAX = 0x0200_0000;
        /// `EXT4_INLINE_DATA_FL`: data lies in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// `EXT4_PROJINHERIT_FL`: children inherit the project.
        const PROJECT_INHERIT = 0x2000_0000;
        /// `EXT4_CASEFOLD_FL`: names are looked up without regard to case.
        const CASEFOLD = 0x4000_0000;
        /// Bits that have no name here survive a round trip.
        const _ = !0;
    }
}

/// Flags that Linux does not show, and refuses to set.
const HIDDEN: InodeFlags = InodeFlags::AFS
    .union(InodeFlags::HUGE_FILE)
    .union(InodeFlags::EA_INODE)
    .union(InodeFlags::from_bits_retain(0x8d80_0000));

/// Named bits are the same on both sides, or hidden.
const _: () = {
    let same = InodeFlags::IMMUTABLE.bits() == Shown::IMMUTABLE.bits()
        && InodeFlags::APPEND.bits() == Shown::APPEND.bits()
        && InodeFlags::NOATIME.bits() == Shown::NOATIME.bits()
        && InodeFlags::ENCRYPTED.bits() == Shown::ENCRYPTED.bits()
        && InodeFlags::VERITY.bits() == Shown::VERITY.bits()
        && InodeFlags::INLINE_DATA.bits() == Shown::INLINE_DATA.bits()
        && InodeFlags::CASEFOLD.bits() == Shown::CASEFOLD.bits();
    assert!(same, "the flags that the vfs acts on have one value in both sets");
};

impl InodeFlags {
    /// What `FS_IOC_GETFLAGS` shows.
    pub(crate) const fn shown(self) -> Shown {
        Shown::from_bits_retain(self.difference(HIDDEN).bits())
    }

    /// The flags that `FS_IOC_SETFLAGS` asks for; `None` if the disk's form has another meaning for one of them.
    pub(crate) fn from_shown(asked: Shown) -> Option<Self> {
        let flags = Self::from_bits_retain(asked.bits());
        (!flags.intersects(HIDDEN)).then_some(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_describes_the_stored_form_is_neither_shown_nor_taken() {
        let stored = InodeFlags::HUGE_FILE | InodeFlags::EA_INODE | InodeFlags::EXTENTS | InodeFlags::APPEND;
        assert_eq!(stored.shown(), Shown::EXTENTS | Shown::APPEND);
        assert_eq!(InodeFlags::from_shown(Shown::from_bits_retain(stored.bits())), None);
        assert_eq!(
            InodeFlags::from_shown(Shown::EXTENTS | Shown::APPEND),
            Some(InodeFlags::EXTENTS | InodeFlags::APPEND)
        );
        // EXT4_FL_USER_VISIBLE.
        assert_eq!(InodeFlags::all().shown().bits(), 0x725b_dfff);
    }
}
