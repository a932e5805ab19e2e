//! Growing a filesystem, while it is in use or not: there is one way for both, on a writable volume.
//!
//! | module | what it does |
//! | --- | --- |
//! | `size` | decides how large the filesystem becomes, and what the superblock says then |
//! | `resize_inode` | validates and changes the inode that holds the blocks reserved for descriptors |
//! | `switch` | the transaction |
//! | `copies` | copies of the superblock and the descriptors |
//!
//! In this order:
//!
//! 1. The size, the superblock and the place of everything are decided, and all that can be refused is.
//! 2. Bitmaps and inode tables of the new groups are written, and descriptors where `meta_bg` has them in new groups,
//!    and copies of the superblock: nothing leads there yet. Then the device is flushed.
//! 3. One transaction changes descriptors, the resize inode, the bitmap of the group that was the last, and the
//!    superblock. A crash leaves the old size or the new one. Threads that join it or a later one may already use what
//!    is new: see `alloc`.
//! 4. When that is durable, copies of the superblock and the descriptors are written. A crash before leaves old ones,
//!    from which e2fsck works as well.
//!
//! Within the blocks that are reserved for descriptors the filesystem stays as it is. Where they do not suffice, it
//! gets the feature `meta_bg`, as Linux does it: the reserved blocks become descriptors, further ones lie in their own
//! groups, and the resize inode is emptied.
//!
//! With `sparse_super2` the two copies stay where they are, also the one in what was the last group: the superblock
//! names their groups.
//!
//! Inode tables are zeroed, unless descriptors have checksums: Linux zeroes them later then.
//!
//! Without a journal the blocks of step 3 reach the disk in any order. A crash in between leaves damage that `e2fsck
//! -y` repairs without loss of files; `e2fsck -p` stops for manual repair where the resize inode names blocks past the
//! old end.
//!
//! Locks: class `resize`, while a filesystem grows. No operation waits for it. Left out: making a filesystem smaller,
//! and bigalloc, with which none is opened for writing.
//!
//! Sources: kernel documentation, "Super Block", "Block Group Descriptors", "Meta Block Groups" and "Special inodes";
//! what resize2fs and Linux's own resizing make of images.

pub(crate) mod copies;
pub(crate) mod resize_inode;
pub(crate) mod size;
pub(crate) mod switch;

use undercroft_diskfs::mkfs::MkfsError;
use undercroft_vfs::{Error, Result};

use crate::Ext4;
use crate::group::{GroupDetails, are_checked};
use crate::mkfs::{self, Planned, Space, Tables};
use crate::numbers::Group;
use crate::superblock::Superblock;
use crate::volume::Volume;
use crate::writer::Mounted;
use resize_inode::ResizeInode;

/// Groups that are described and written at once.
const GROUPS_AT_ONCE: usize = 256;

/// How a filesystem has grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Blocks before and now; the same if there was nothing to do.
    pub blocks: (u64, u64),
    /// Block groups before and now.
    pub groups: (u32, u32),
    /// Inodes before and now.
    pub inodes: (u32, u32),
    /// Whether the filesystem got the feature `meta_bg`, because the blocks reserved for descriptors were used up.
    pub got_meta_bg: bool,
    /// Why it is not as large as its device, where that is larger than the filesystem can be.
    pub bound: Option<&'static str>,
}

impl Grown {
    fn between(old: &Superblock, new: &Superblock) -> Self {
        let (before, now) = (old.geometry(), new.geometry());
        Self {
            block_bytes: now.block_bytes(),
            blocks: (before.blocks(), now.blocks()),
            groups: (before.groups(), now.groups()),
            inodes: (before.inodes(), now.inodes()),
            got_meta_bg: old.features().incompat != new.features().incompat,
            bound: None,
        }
    }
}

impl Ext4 {
    /// Makes the filesystem as large as `size_bytes`, or as its device. It may be in use meanwhile, and is durably
    /// larger when this returns. A last group that would have no room for more than its own structures is left out, as
    /// by resize2fs. `progress` is called with the blocks that have been dealt with and how many there are to deal
    /// with.
    ///
    /// # Errors
    /// [`Error::Unsupported`] says what cannot be done: making it smaller, for one. [`Error::ReadOnly`];
    /// [`Error::Corrupt`]; I/O failure. The size has not changed then, unless the filesystem has turned read-only.
    pub fn grow(&self, size_bytes: Option<u64>, progress: &mut dyn FnMut(u64, u64)) -> Result<Grown> {
        grow(self.volume(), size_bytes, progress)
    }
}

fn grow(volume: &Mounted, size_bytes: Option<u64>, progress: &mut dyn FnMut(u64, u64)) -> Result<Grown> {
    let writer = volume.writer()?;
    let _resizing = writer.resizing.lock();
    let old = volume.superblock().clone();
    let bound = size::bound(volume, &old)?;
    let Some(new) = size::decide(volume, &old, size_bytes)? else {
        return Ok(Grown { bound, ..Grown::between(&old, &old) });
    };
    writer.allocator.check_last_group(volume)?;
    let resize_inode = ResizeInode::read(volume, &old)?;
    let credits = switch::credits(&old, &new, resize_inode.as_ref());
    // It has a transaction for itself, of half the log at most.
    let room = writer.transactions.room() * 2;
    if credits > room {
        let message = format!(
            "growing changes {credits} blocks at once, and the journal has room for {room}; unmount the filesystem \
             and use resize2fs"
        );
        return Err(Error::Unsupported(message.into()));
    }
    let details = make_groups(volume, &old, &new, progress)?;
    switch::write_meta_groups(volume, &old, &new, &details)?;
    copies::write_new(volume, &old, &new)?;
    volume.flush()?;
    switch::switch(volume, &old, &new, &details, resize_inode, credits)?;
    writer.transactions.commit_everything(volume)?;
    copies::write(volume, &old)?;
    volume.flush()?;
    Ok(Grown { bound, ..Grown::between(&old, &new) })
}

/// Writes bitmaps and inode tables of the groups that are new, where nothing leads yet.
fn make_groups(
    volume: &Volume,
    old: &Superblock,
    new: &Superblock,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<GroupDetails>> {
    /// More than the blocks that are ever read ahead of those that are asked for.
    const READ_AHEAD_BLOCKS: u64 = 1024;
    let (before, now) = (old.geometry(), new.geometry());
    let first = before.groups();
    // Blocks that were read ahead past the old end are out of date now.
    let end = now.blocks().min(before.blocks() + READ_AHEAD_BLOCKS);
    (before.blocks()..end).for_each(|block| volume.buffers().forget(block));
    if first == now.groups() {
        return Ok(Vec::new());
    }
    let mut space = Space::new(now.blocks(), 1);
    let tables = mkfs::place(new, &mut space, Group(first)).map_err(failure)?;
    let zeroed = !are_checked(new);
    let mut details = Vec::with_capacity(tables.len());
    for tables in tables.chunks(GROUPS_AT_ONCE) {
        let group = Group(first + details.len() as u32);
        let mut planned = Planned::default();
        if zeroed {
            plan_zeroed_tables(new, tables, &mut planned);
        }
        details.extend(mkfs::describe_unused(new, &space, group, tables, zeroed, &mut planned));
        planned.carry_out(&**volume.device(), u64::from(now.block_bytes()), false).map_err(failure)?;
        progress(details.len() as u64 * u64::from(now.blocks_per_group()), now.blocks() - before.blocks());
    }
    Ok(details)
}

fn plan_zeroed_tables(superblock: &Superblock, tables: &[Tables], planned: &mut Planned) {
    let table_blocks = u64::from(superblock.geometry().inode_table_blocks());
    for table in tables {
        planned.zero(table.inode_table..table.inode_table + table_blocks);
    }
}

fn failure(error: MkfsError) -> Error {
    match error {
        MkfsError::Device(error) => error.into(),
        error => Error::Unsupported(error.to_string().into()),
    }
}
