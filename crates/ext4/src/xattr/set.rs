//! Changing attributes: in the inode while there is room, then in its block, then with the value in an inode of its
//! own.
//!
//! A change is worked out first, as the new bytes of the lists that it touches, and then made. Everything that can be
//! refused, for lack of space too, is refused before anything has changed. The caller holds the inode's fields.

use std::borrow::Cow;

use undercroft_vfs::{Error, Result, XattrMode};

use super::block::{self, AttributeBlock, HEADER_BYTES};
use super::entry::{Attributes, Entry, VALUE_MAX_BYTES, Value, entry_hash};
use super::home::{self, Outside};
use super::uses::Uses;
use super::{MAGIC, acl, corrupt, in_inode, list, name, value_inode};
use crate::alloc::ALLOCATE_CREDITS;
use crate::features::{Compat, Incompat};
use crate::inode::{Inode, Location};
use crate::superblock;
use crate::transaction::Handle;
use crate::volume::Volume;

/// Blocks that setting or removing an attribute changes at most: the inode's place in the table, the old block and the
/// new one with their bitmaps, and the superblock.
const CREDITS: u32 = 4 + 2 * ALLOCATE_CREDITS;

/// Blocks that [`set`] changes at most when it sets this value, or removes one.
pub(crate) fn credits(volume: &Volume, value: Option<&[u8]>) -> u32 {
    let separate = if has_value_inodes(volume) {
        value_inode::make_credits(volume, value.map_or(0, <[u8]>::len)) + value_inode::DROP_CREDITS
    } else {
        0
    };
    CREDITS + separate
}

/// Sets the attribute of this full name, or with `None` removes it, and stores the inode with all its fields.
///
/// # Errors
/// [`Exists`](Error::Exists), [`NoAttribute`](Error::NoAttribute) by `mode` and for a removal;
/// [`NoSpace`](Error::NoSpace); [`ValueTooLarge`](Error::ValueTooLarge); [`Unsupported`](Error::Unsupported) for a name
/// that Linux does not keep; corruption; I/O failure. Nothing has changed then, or the filesystem takes no changes any
/// more.
pub(crate) fn set(
    handle: &Handle<'_>,
    inode: &mut Inode,
    location: Location,
    full_name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
) -> Result<()> {
    let Some((index, name)) = name::split_settable(full_name) else {
        return Err(Error::Unsupported("an attribute in a namespace that ext4 does not keep".into()));
    };
    if name.len() > usize::from(u8::MAX) {
        return Err(Error::NameTooLong);
    }
    if value.is_some_and(|value| value.len() > VALUE_MAX_BYTES as usize) {
        return Err(Error::ValueTooLarge);
    }
    let value = match (index, value) {
        (name::INDEX_ACL_ACCESS | name::INDEX_ACL_DEFAULT, Some(value)) => match acl::from_xattr(value) {
            Ok(disk) => Some(Cow::Owned(disk)),
            Err(_) => return Err(Error::InvalidArgument("the value is no access control list")),
        },
        _ => value.map(Cow::Borrowed),
    };
    let change = work_out(handle, inode, location, index, name, value.as_deref(), mode)?;
    change.make(handle, inode, location)
}

/// Takes out the part of a file's bytes that lies among the attributes, because the file gets a block, and stores the
/// inode.
///
/// # Errors
/// Corruption; I/O failure. Nothing has changed then.
pub(crate) fn remove_inline_data(handle: &Handle<'_>, inode: &Inode, location: Location) -> Result<()> {
    let bytes = inode.read_inline_xattrs_at(handle.volume(), location)?;
    let entries = list::without(entries_of(in_inode(inode, &bytes)?), name::INDEX_SYSTEM, b"data");
    let area = encode_area(bytes.len(), &entries).ok_or(Error::NoSpace)?;
    drop(bytes);
    inode.store_with(handle, location, |bytes| bytes.copy_from_slice(&area))
}

/// Puts other bytes into the place of those of a file that lie among the attributes, as many as there were, and stores
/// the inode.
///
/// # Errors
/// Corruption; I/O failure. Nothing has changed then.
pub(crate) fn replace_inline_data(
    handle: &Handle<'_>,
    inode: &Inode,
    location: Location,
    data: &[u8],
) -> Result<()> {
    let bytes = inode.read_inline_xattrs_at(handle.volume(), location)?;
    let new = Entry { index: name::INDEX_SYSTEM, name: b"data", value: Value::Here(data), hash: 0 };
    let entries = list::with_replaced(entries_of(in_inode(inode, &bytes)?), new);
    let area = encode_area(bytes.len(), &entries).ok_or(Error::NoSpace)?;
    drop(bytes);
    inode.store_with(handle, location, |bytes| bytes.copy_from_slice(&area))
}

/// Gives up everything that an inode's attributes occupy outside of it: it is being deleted. The caller stores it.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn release(handle: &Handle<'_>, inode: &mut Inode, location: Location) -> Result<()> {
    let volume = handle.volume();
    let mut uses = Uses::default();
    if has_value_inodes(volume) {
        let mut sectors = 0;
        {
            let bytes = inode.read_inline_xattrs_at(volume, location)?;
            let block = AttributeBlock::read(volume, inode)?;
            let here = entries_of(in_inode(inode, &bytes)?);
            let there = block.iter().flat_map(|block| entries_of(block.attributes().ok()));
            for entry in here.clone().chain(there) {
                sectors += value_inode::sectors(volume, entry.value);
            }
            uses.lose(here);
        }
        inode.sectors = inode.sectors.saturating_sub(sectors);
    }
    home::drop_block(handle, inode, &mut uses)?;
    uses.store(handle, inode)
}

/// A change that has been worked out.
struct Change {
    /// The new bytes of the attributes in the inode, if they change.
    area: Option<Vec<u8>>,
    outside: Outside,
    /// What the change of `area` means for inodes that hold values.
    uses: Uses,
    /// An inode that was made for the value.
    made: Option<u32>,
    /// What inodes that hold values count for in the inode: those of the old value and of the new one.
    lost_sectors: u64,
    gained_sectors: u64,
}

impl Change {
    /// The value is there already.
    const NOTHING: Self = Self {
        area: None,
        outside: Outside::Stays,
        uses: Uses::NONE,
        made: None,
        lost_sectors: 0,
        gained_sectors: 0,
    };

    fn make(self, handle: &Handle<'_>, inode: &mut Inode, location: Location) -> Result<()> {
        let Self { area, outside, mut uses, made, lost_sectors, gained_sectors } = self;
        if let Some(number) = made {
            // Its first use is counted since it was made.
            uses.add(number, -1);
        }
        let done = match outside.make(handle, inode, &mut uses) {
            Err(Error::NoSpace) => {
                // Nothing but the value's own inode is there yet.
                made.map_or(Ok(()), |number| value_inode::change_uses(handle, inode, number, -1))?;
                return Err(Error::NoSpace);
            }
            done => done,
        };
        inode.sectors = inode.sectors.saturating_add(gained_sectors).saturating_sub(lost_sectors);
        let stored = done.and_then(|()| match area {
            Some(area) => inode.store_with(handle, location, |bytes| bytes.copy_from_slice(&area)),
            None => inode.store(handle, location),
        });
        let done = stored.and_then(|()| uses.store(handle, inode)).and_then(|()| note_feature(handle));
        if let Err(error) = &done {
            let cause = format!("the attributes of inode {} could not be changed: {error}", inode.number);
            handle.writer().transactions.abort_with(&cause, error);
        }
        done
    }
}

/// An inode's attributes, and the one that changes.
struct Lists<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    index: u8,
    name: &'a [u8],
    /// The room in the inode.
    area_bytes: usize,
    in_inode: Option<Attributes<'a>>,
    in_block: Option<Attributes<'a>>,
}

fn work_out(
    handle: &Handle<'_>,
    inode: &Inode,
    location: Location,
    index: u8,
    name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
) -> Result<Change> {
    let volume = handle.volume();
    let bytes = inode.read_inline_xattrs_at(volume, location)?;
    let block = AttributeBlock::read(volume, inode)?;
    let in_block = match &block {
        None => None,
        Some(block) => {
            block.check_users(inode)?;
            let corrupt = |detail| corrupt(inode, Some(inode.xattr_block), detail);
            Some(block.attributes().map_err(corrupt)?)
        }
    };
    let in_inode = in_inode(inode, &bytes)?;
    let lists = Lists { volume, inode, index, name, area_bytes: bytes.len(), in_inode, in_block };
    lists.check_names()?;
    let old = lists.find();
    match (value, mode, old) {
        (Some(_), XattrMode::Create, Some(_)) => return Err(Error::Exists),
        (_, XattrMode::Replace, None) | (None, _, None) => return Err(Error::NoAttribute),
        (Some(value), _, Some(Entry { value: Value::Here(old), .. })) if value == old => {
            return Ok(Change::NOTHING);
        }
        _ => {}
    }
    let lost_sectors = old.map_or(0, |old| value_inode::sectors(volume, old.value));
    let Some(value) = value else { return Ok(Change { lost_sectors, ..lists.without()? }) };
    let is_separate = has_value_inodes(volume) && value.len() > value_inode::least_bytes(volume);
    if !is_separate && let Some(change) = lists.with(Value::Here(value), entry_hash(name, value))? {
        return Ok(Change { lost_sectors, ..change });
    }
    if !has_value_inodes(volume) || value.is_empty() {
        return Err(Error::NoSpace);
    }
    let planned = value_inode::Planned::of(volume, value);
    // The number is not known yet, but takes the same room whatever it is.
    if lists.with(planned.value(u32::MAX), planned.entry_hash(name))?.is_none() {
        return Err(Error::NoSpace);
    }
    let number = planned.make(handle, inode)?;
    match lists.with(planned.value(number), planned.entry_hash(name))? {
        Some(change) => {
            let gained_sectors = value_inode::sectors(volume, planned.value(number));
            Ok(Change { made: Some(number), lost_sectors, gained_sectors, ..change })
        }
        None => unreachable!("what had room with one number has room with another"),
    }
}

impl<'a> Lists<'a> {
    fn find(&self) -> Option<Entry<'a>> {
        let find = |there: &Option<Attributes<'a>>| there.and_then(|it| it.find(self.index, self.name));
        find(&self.in_inode).or_else(|| find(&self.in_block))
    }

    /// Refuses an entry that, written again, might look like the end of the list.
    fn check_names(&self) -> Result<()> {
        let homes = [(self.in_inode, None), (self.in_block, Some(self.inode.xattr_block))];
        for (there, home) in homes {
            if entries_of(there).any(|entry| entry.index == 0) {
                return Err(corrupt(self.inode, home, "an attribute's name has no beginning".into()));
            }
        }
        Ok(())
    }

    fn is_in(&self, there: Option<Attributes<'_>>) -> bool {
        there.is_some_and(|it| it.find(self.index, self.name).is_some())
    }

    fn without(&self) -> Result<Change> {
        let mut change = Change::NOTHING;
        if self.is_in(self.in_inode) {
            self.take_from_inode(&mut change)?;
        } else {
            change.outside = self.block_without()?;
        }
        Ok(change)
    }

    /// The lists with this value in them, in the first home that has room; `None` where neither has.
    fn with(&self, value: Value<'_>, hash: u32) -> Result<Option<Change>> {
        let mut change = Change::NOTHING;
        // In an inode, only what is not beside the entry is hashed.
        let hash_here = if matches!(value, Value::Here(_)) { 0 } else { hash };
        let entries = list::with_replaced(entries_of(self.in_inode), self.entry(value, hash_here));
        if let Some(area) = encode_area(self.area_bytes, &entries) {
            self.note_uses(&mut change, &entries);
            change.area = Some(area);
            if self.is_in(self.in_block) {
                change.outside = self.block_without()?;
            }
            return Ok(Some(change));
        }
        let mut entries = list::with_replaced(entries_of(self.in_block), self.entry(value, hash));
        let block_bytes = self.volume.block_bytes() as usize;
        if !self.has_room_in_block(&entries, value) {
            return Ok(None);
        }
        entries.sort_by(|one, other| list::block_order(one).cmp(&list::block_order(other)));
        change.outside = Outside::becomes(block::encode(block_bytes, &entries), &entries, self.in_block);
        if self.is_in(self.in_inode) {
            self.take_from_inode(&mut change)?;
        }
        Ok(Some(change))
    }

    fn has_room_in_block(&self, entries: &[Entry<'_>], value: Value<'_>) -> bool {
        let block_bytes = self.volume.block_bytes() as usize;
        // Where values can go elsewhere, they do not take the room that names will want.
        let kept_for_names = match value {
            Value::Here([_, ..]) if has_value_inodes(self.volume) => (block_bytes / 8).min(1024),
            _ => 0,
        };
        HEADER_BYTES + list::needed_bytes(entries) <= block_bytes
            && list::value_bytes(entries) + kept_for_names <= block_bytes
    }

    fn entry<'b>(&self, value: Value<'b>, hash: u32) -> Entry<'b>
    where
        'a: 'b,
    {
        Entry { index: self.index, name: self.name, value, hash }
    }

    fn take_from_inode(&self, change: &mut Change) -> Result<()> {
        let left = list::without(entries_of(self.in_inode), self.index, self.name);
        // Only values that lie over each other take more room once they lie apart.
        let overlap = || corrupt(self.inode, None, "values lie over each other".into());
        self.note_uses(change, &left);
        change.area = Some(encode_area(self.area_bytes, &left).ok_or_else(overlap)?);
        Ok(())
    }

    fn block_without(&self) -> Result<Outside> {
        let left = list::without(entries_of(self.in_block), self.index, self.name);
        let block_bytes = self.volume.block_bytes() as usize;
        if left.is_empty() {
            return Ok(Outside::Goes);
        }
        if HEADER_BYTES + list::needed_bytes(&left) > block_bytes {
            let home = Some(self.inode.xattr_block);
            return Err(corrupt(self.inode, home, "values lie over each other".into()));
        }
        Ok(Outside::becomes(block::encode(block_bytes, &left), &left, self.in_block))
    }

    /// The list in the inode becomes these entries.
    fn note_uses(&self, change: &mut Change, entries_after: &[Entry<'_>]) {
        change.uses.lose(entries_of(self.in_inode));
        change.uses.gain(entries_after.iter().copied());
    }
}

fn entries_of<'a>(there: Option<Attributes<'a>>) -> impl Iterator<Item = Entry<'a>> + Clone + use<'a> {
    there.into_iter().flat_map(|it| it.iter())
}

/// The bytes that an inode has for attributes, with these in them; `None` when they do not fit.
fn encode_area(area_bytes: usize, entries: &[Entry<'_>]) -> Option<Vec<u8>> {
    let mut area = vec![0; area_bytes];
    // Linux leaves no magic number where there is no attribute.
    if !entries.is_empty() {
        if MAGIC.len() + list::needed_bytes(entries) > area_bytes {
            return None;
        }
        let (magic, attributes) = area.split_at_mut(MAGIC.len());
        magic.copy_from_slice(&MAGIC);
        list::write(entries, attributes, 0);
    }
    Some(area)
}

/// Whether values of attributes may have inodes of their own.
pub(crate) fn has_value_inodes(volume: &Volume) -> bool {
    volume.superblock().features().incompat.contains(Incompat::EA_INODE)
}

/// Says in the superblock that there are attributes, if it did not when the filesystem was opened.
fn note_feature(handle: &Handle<'_>) -> Result<()> {
    if handle.volume().superblock().features().compat.contains(Compat::EXT_ATTR) {
        return Ok(());
    }
    superblock::change(handle, |raw| {
        raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::EXT_ATTR.bits());
    })
}
