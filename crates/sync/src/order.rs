//! The lock order of the whole workspace, outermost first, on one page.
//!
//! A lock may be taken only while every lock the thread holds has a lower rank. Debug builds check it on every
//! acquisition. Two locks of one class are taken with `lock_nested` and its like, in the order that the class
//! documents, with rising subclasses. Gaps between ranks are for classes to come.

use crate::{LockClass, Rank};

/// Declares the classes and lists them.
macro_rules! lock_order {
    ($($(#[$doc:meta])* $class:ident = $name:literal, rank $rank:literal;)*) => {
        $($(#[$doc])* pub static $class: LockClass = LockClass::new($name, Rank($rank));)*

        /// Every class, outermost first.
        pub static ALL: &[&LockClass] = &[$(&$class),*];
    };
}

lock_order! {
    /// What stands beside a mount while it is served, and the mount while it is taken away.
    MOUNT = "mount", rank 20;
    /// The handle of one inode that the kernel holds, while it is copied or dropped.
    KERNEL_INODE = "kernel_inode", rank 60;
    /// The shared state of one tree walk.
    WALK = "walk", rank 80;
    /// The rename lock: taken first by a move of a directory to another directory.
    RENAME = "rename", rank 100;
    /// A directory's names all at once, in the plain form of directory operations. Two: by ascending inode number.
    DIRECTORY = "directory", rank 190;
    /// A name within a directory. Two: by directory, then hash, unless the second is not waited for; see
    /// [`NameLocks::lock_two`](crate::NameLocks::lock_two) and [`try_lock_too`](crate::NameLocks::try_lock_too).
    NAME = "name", rank 200;
    /// An inode's own state. Several: ancestors first, otherwise by ascending number, duplicates merged.
    INODE = "inode", rank 300;
    /// The attributes of an inode in memory, while they are written.
    INODE_ATTRIBUTES = "inode_attributes", rank 310;
    /// The extended attributes of an inode in memory.
    XATTRS = "xattrs", rank 315;
    /// What an inode keeps in memory about its access control list.
    ACL_CACHE = "acl_cache", rank 320;
    /// The name cache's list of directories that hold names.
    NAME_CLOCK = "name_clock", rank 330;
    /// The children of one directory in the name cache.
    NAME_CACHE = "name_cache", rank 340;
    /// A shard of the inode cache.
    INODE_CACHE = "inode_cache", rank 360;
    /// One inode on its way from the filesystem into the inode cache.
    INODE_LOAD = "inode_load", rank 370;
    /// Some of the names of one directory in memory. A new one inside the one it comes from.
    NAME_TABLE = "name_table", rank 380;
    /// Some of the inode numbers of a filesystem in memory.
    NUMBERS = "numbers", rank 390;
    /// A filesystem on disk that grows. No operation waits for it.
    RESIZE = "resize", rank 395;
    /// The thread that stores the lazy times of a filesystem on disk.
    LAZY_TIMES_STORE = "lazy_times_store", rank 397;
    /// A handle that has joined the running transaction of a journal, and the journal's own state outside of one.
    JOURNAL = "journal", rank 400;
    /// The shape of one directory's index on disk: held shared to change a leaf, exclusively to split one.
    DIRECTORY_INDEX = "directory_index", rank 420;
    /// A leaf of one directory on disk.
    DIRECTORY_LEAF = "directory_leaf", rank 430;
    /// A block of names of one directory on disk, where leaves are blocks of their own.
    DIRECTORY_DATA = "directory_data", rank 434;
    /// The fields of one inode of a filesystem on disk, its block map among them.
    INODE_FIELDS = "inode_fields", rank 450;
    /// The list of inodes of a filesystem on disk whose times are newer in memory.
    LAZY_TIMES = "lazy_times", rank 460;
    /// The blocks that are reserved for one file of a filesystem on disk and not in its map yet.
    FILE_SPACE = "file_space", rank 470;
    /// A block group or allocation group. Several: by ascending number.
    GROUP = "group", rank 500;
    /// Some of the numbers of inodes that are being made.
    INODE_MAKING = "inode_making", rank 590;
    /// What a check, a recorder or a test collects from several threads.
    COLLECTED = "collected", rank 600;
    /// The table of a file's chunks, in a filesystem in memory.
    CONTENTS = "contents", rank 620;
    /// The pages of one chunk of a file, in a filesystem in memory.
    PAGES = "pages", rank 640;
    /// The list of orphans, or a shard of the orphan file.
    ORPHAN = "orphan", rank 680;
    /// A shard of the buffer cache.
    BUFFER = "buffer", rank 700;
    /// The newest version of one block in the buffer cache.
    BLOCK = "block", rank 720;
    /// Some of the blocks that the running transaction has changed.
    TRANSACTION = "transaction", rank 740;
    /// Writes to a device that are put together before they are made. The device is called with it.
    GATHERED_WRITES = "gathered_writes", rank 800;
    /// The list of the files with temporary names, while one gets or loses such a name.
    TEMPORARY_NAMES = "temporary_names", rank 820;
    /// A hash bucket of the RAID stripe cache.
    STRIPE = "stripe", rank 900;
    /// What a thread that waits for a stripe of another one is told.
    STRIPE_TICKET = "stripe_ticket", rank 910;
    /// A list of the ranges of a mirrored array that are being written.
    ARRAY_RANGES = "array_ranges", rank 920;
    /// The bits of a page of a write-intent bitmap.
    BITMAP_PAGE = "bitmap_page", rank 924;
    /// The bits of a page of a write-intent bitmap that are to be set next.
    BITMAP_WANTED = "bitmap_wanted", rank 926;
    /// The records of a member's partial parity log: which is under way, and what the next one will hold.
    PPL = "ppl", rank 930;
    /// What an array keeps in memory of its superblocks, its background work and its threads. No member is called with
    /// it.
    ARRAY = "array", rank 940;
    /// The helper threads that call slow members of an array: which are idle, what one is to do, and which calls have
    /// no answer yet.
    HELPERS = "helpers", rank 960;
    /// What a block device made of others holds while it calls them.
    DEVICE_STACK = "device_stack", rank 980;
    /// A block device's own state.
    DEVICE = "device", rank 1000;
    /// The bytes of one chunk of a device in memory.
    DEVICE_CHUNK = "device_chunk", rank 1010;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/ARCHITECTURE.md` shows the same page to readers.
    #[test]
    fn the_architecture_lists_the_same_classes_and_ranks() {
        let table = include_str!("../../../docs/ARCHITECTURE.md").split_once("| rank | class |").unwrap().1;
        let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
        let listed: Vec<String> =
            rows.map(|row| row.split('|').take(3).collect::<Vec<_>>().join("|")).collect();
        let declared = ALL.iter().map(|class| format!("| {} | `{}` ", class.rank().0, class.name()));
        assert_eq!(listed, declared.collect::<Vec<_>>());
    }

    #[test]
    fn the_page_lists_ranks_in_rising_order() {
        assert!(ALL.is_sorted_by(|a, b| a.rank() < b.rank()));
    }

    #[test]
    fn every_class_has_a_name_of_its_own() {
        for (at, class) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name() != class.name()), "{} twice", class.name());
        }
    }
}
