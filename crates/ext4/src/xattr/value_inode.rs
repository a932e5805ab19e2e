//! Values that are too large for a block and are the content of an inode of their own (feature `ea_inode`).
//!
//! Source: kernel documentation, section "Extended Attributes", and inodes that Linux made. The value's CRC-32C
//! stands in the inode's access time, the number of entries that use it in its time of change and its version, and the
//! entry's hash is made of the name and that. Values that Lustre wrote before Linux had the feature have no hash; such
//! an inode names its owner in the modification time and shares its generation.

use undercroft_vfs::{Announce, Error, FileType, NewInode, NewKind, Result, Timestamp, clock};

use super::entry::{Entry, VALUE_MAX_BYTES, Value, entry_hashes};
use crate::alloc::{ALLOCATE_CREDITS, FREE_INODE_CREDITS, NEW_INODE_CREDITS, Purpose};
use crate::checksum::crc32c;
use crate::error::corrupt_inode;
use crate::inode::{Inode, InodeFlags, Location, add_uses, locate, mark_deleted};
use crate::map::{self, Progress, Removed, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

const STRUCTURE: &str = "extended attribute inode";

/// Blocks that giving up the last use of a value changes at most: its inode, and the bitmaps of its number and of its
/// pieces.
pub(super) const DROP_CREDITS: u32 = 1 + FREE_INODE_CREDITS + 4 * ALLOCATE_CREDITS;

/// Blocks that making an inode for a value of this length changes at most.
pub(super) fn make_credits(volume: &Volume, value_bytes: usize) -> u32 {
    let blocks = value_bytes.div_ceil(volume.block_bytes() as usize) as u32;
    blocks + NEW_INODE_CREDITS + 8 * ALLOCATE_CREDITS
}

/// Values longer than this are not tried elsewhere first.
pub(super) fn least_bytes(volume: &Volume) -> usize {
    /// The header of a block, one entry with a short name, and the end of the list.
    const OTHERS: usize = 32 + 20 + 4;
    volume.block_bytes() as usize - OTHERS
}

/// What a value in an inode of its own counts for in each inode that has the attribute, as if it held the blocks.
pub(super) fn sectors(volume: &Volume, value: Value<'_>) -> u64 {
    match value {
        Value::Here(_) => 0,
        Value::Inode { size_bytes, .. } => {
            u64::from(size_bytes).next_multiple_of(u64::from(volume.block_bytes())) / 512
        }
    }
}

/// A value that is going to have an inode.
pub(super) struct Planned<'a> {
    value: &'a [u8],
    hash: u32,
}

impl<'a> Planned<'a> {
    pub(super) fn of(volume: &Volume, value: &'a [u8]) -> Self {
        Self { value, hash: crc32c(volume.superblock().checksum_seed(), value) }
    }

    pub(super) fn entry_hash(&self, name: &[u8]) -> u32 {
        entry_hashes(name, &[self.hash])[0]
    }

    /// What the entry says when the inode has this number.
    pub(super) fn value(&self, number: u32) -> Value<'static> {
        Value::Inode { number, size_bytes: self.value.len() as u32 }
    }

    /// Makes the inode, with one use, and returns its number.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace): nothing has changed then. Corruption; I/O failure.
    pub(super) fn make(&self, handle: &Handle<'_>, owner: &Inode) -> Result<u32> {
        let volume = handle.volume();
        let allocator = &handle.writer().allocator;
        let place = allocator.new_inode(handle, owner.number, FileType::Regular)?;
        let (number, location) = (place.number, place.location);
        let new = NewInode {
            kind: NewKind::Regular,
            permissions: 0o600,
            uid: owner.uid,
            gid: owner.gid,
            xattrs: &[],
            announce: Announce::default(),
        };
        let mut inode = Inode::fresh(volume, owner.inheritance(), number, &new, 1);
        if let Some(generation) = handle.writer().options.generation(number.into()) {
            inode.generation = generation;
        }
        inode.flags = inode.flags & InodeFlags::EXTENTS | InodeFlags::EA_INODE;
        inode.accessed = Timestamp { seconds: i64::from(self.hash as i32), nanoseconds: 0 };
        inode.set_uses(1);
        let written = self.write(handle, &mut inode);
        if let Err(error) = written {
            delete(handle, &mut inode, location)?;
            return Err(error);
        }
        inode.size_bytes = self.value.len() as u64;
        inode.store_new(handle, location)?;
        Ok(number)
    }

    fn write(&self, handle: &Handle<'_>, inode: &mut Inode) -> Result<()> {
        let volume = handle.volume();
        let allocator = &handle.writer().allocator;
        let block_bytes = volume.block_bytes() as usize;
        let mut parts = self.value.chunks(block_bytes);
        let mut goal = allocator.goal_for(volume, inode.number, inode.kind);
        let mut at = 0;
        while parts.len() > 0 {
            let (first, count) = allocator.allocate(handle, goal, parts.len() as u64, Purpose::Data)?;
            if let Err(error) = map::insert(handle, inode, FileBlock(at), first, count, true) {
                allocator.free(handle, first, count)?;
                return Err(error);
            }
            for (block, part) in (first.0..first.0 + count).zip(&mut parts) {
                handle
                    .make(FsBlock(block), Seal::Plain, |bytes| bytes[..part.len()].copy_from_slice(part))?;
            }
            at += count as u32;
            goal = FsBlock(first.0 + count);
        }
        Ok(())
    }
}

/// Counts `by` more uses of the value in inode `number`, or fewer. A value without uses is deleted.
pub(super) fn change_uses(handle: &Handle<'_>, owner: &Inode, number: u32, by: i64) -> Result<()> {
    let volume = handle.volume();
    let wrong = |detail: String| corrupt_inode(STRUCTURE, number, None, detail);
    if number < volume.superblock().geometry().first_inode() {
        return Err(wrong(format!("is named as holding a value of inode {}", owner.number)));
    }
    let location = locate(volume, number)?;
    let mut inode = match Inode::read_located(volume, number, location) {
        Err(Error::Stale) => {
            return Err(wrong(format!("holds a value of inode {}, but is not in use", owner.number)));
        }
        inode => inode?,
    };
    if !inode.flags.contains(InodeFlags::EA_INODE) {
        return Err(wrong(format!("holds a value of inode {}, but is not marked as such", owner.number)));
    }
    let Some(uses) = add_uses(handle, number, location, by, is_lustre(&inode, owner))? else {
        return Err(wrong("is used more often than it counts".into()));
    };
    if uses == 0 { delete(handle, &mut inode, location) } else { Ok(()) }
}

fn delete(handle: &Handle<'_>, inode: &mut Inode, location: Location) -> Result<()> {
    if map::remove(handle, inode, 0, u64::MAX, Removed::Metadata)? != Progress::Done {
        let detail = format!("has too many blocks for a value of {} bytes", inode.size_bytes);
        return Err(corrupt_inode(STRUCTURE, inode.number, None, detail));
    }
    mark_deleted(handle, inode, location, clock::Coarse::now().timestamp())?;
    handle.writer().allocator.free_inode(handle, inode.number, false)
}

/// Whether Lustre made the inode for this owner only.
fn is_lustre(inode: &Inode, owner: &Inode) -> bool {
    inode.modified.seconds as u32 == owner.number && inode.generation == owner.generation
}

/// The value of `entry`, an attribute of `owner`, which lies in inode `number` and is `size_bytes` long.
pub(super) fn read(
    volume: &Volume,
    owner: &Inode,
    entry: &Entry<'_>,
    number: u32,
    size_bytes: u32,
) -> Result<Vec<u8>> {
    let wrong = |detail: String| corrupt_inode(STRUCTURE, number, None, detail);
    let inode = Inode::read(volume, number).map_err(|error| match error {
        Error::Stale => wrong(format!("holds a value of inode {}, but is not in use", owner.number)),
        other => other,
    })?;
    if !inode.flags.contains(InodeFlags::EA_INODE) || inode.has_inline_data() {
        return Err(wrong(format!("holds a value of inode {}, but is not marked as such", owner.number)));
    }
    if inode.size_bytes != u64::from(size_bytes) || size_bytes > VALUE_MAX_BYTES {
        return Err(wrong(format!("is {} bytes long, its value {size_bytes}", inode.size_bytes)));
    }
    let value = read_content(volume, &inode, size_bytes as usize)?;

    if !is_lustre(&inode, owner) {
        let computed = crc32c(volume.superblock().checksum_seed(), &value);
        let stored = inode.accessed.seconds as u32;
        if stored != computed {
            return Err(wrong(format!("hash is {stored:#010x}, its content gives {computed:#010x}")));
        }
        let expected = entry_hashes(entry.name, &[computed]);
        if !expected.contains(&entry.hash) {
            let detail = format!(
                "entry of inode {} has hash {:#010x}, its value gives {:#010x}",
                owner.number, entry.hash, expected[0]
            );
            return Err(wrong(detail));
        }
    }
    Ok(value)
}

fn read_content(volume: &Volume, inode: &Inode, size: usize) -> Result<Vec<u8>> {
    let block_bytes = volume.block_bytes() as usize;
    let blocks = size.div_ceil(block_bytes) as u64;
    let mut value = Vec::with_capacity(size);
    let mut at = 0;
    while at < blocks {
        let run = map::lookup(volume, inode, FileBlock(at as u32))?;
        let RunState::Mapped(first) = run.state else {
            let detail = format!("has a hole at block {at}");
            return Err(corrupt_inode(STRUCTURE, inode.number, None, detail));
        };
        let count = run.len.min(blocks - at);
        volume.buffers().prefetch(first.0, count);
        for block in first.0..first.0 + count {
            let buffer = volume.read_block(FsBlock(block))?;
            let wanted = (size - value.len()).min(block_bytes);
            value.extend_from_slice(&buffer[..wanted]);
        }
        at += count;
    }
    Ok(value)
}
