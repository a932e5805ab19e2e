//! Changing directories that lie in their inode, and moving them out of it.
//!
//! Names are added to the inode's own bytes only, and removed from there and from the attribute that continues them.
//! When there is no room for a name the entries move to a block unchanged, behind entries for `.` and `..`, so their
//! positions stay the same. Source: kernel documentation, section "Inline Data".
//!
//! The caller holds the directory's `index` exclusively.

use undercroft_vfs::{Error, Result};

use super::changing::check_changeable;
use super::directory::Directory;
use super::edit::{self, Look, NewEntry, Place};
use super::entry::{Entries, EntryFormat};
use super::inline::{ENTRIES_POSITION, InlineEntries, PARENT_BYTES};
use super::node::{self, Dots};
use crate::error::{Verdict, corrupt_inode};
use crate::features::Incompat;
use crate::inline;
use crate::inode::{Inode, InodeFlags, InodeState};
use crate::map;
use crate::numbers::FileBlock;
use crate::transaction::{Handle, Seal};
use crate::xattr;

/// The entries of an inline directory, to be changed.
struct Changing<'a> {
    handle: &'a Handle<'a>,
    state: &'a InodeState,
    inode: Inode,
    format: EntryFormat,
    parent: u32,
    in_attribute: Vec<u8>,
}

/// Finds `name`, lets `check` refuse its entry, and changes the bytes around it. That takes no space, so names can be
/// removed on a full disk too.
pub(super) fn change(
    handle: &Handle<'_>,
    dir: &InodeState,
    name: &[u8],
    check: impl Fn(Place) -> Result<()>,
    change: impl Fn(&mut [u8], EntryFormat, Place),
) -> Result<()> {
    let mut changing = Changing::open(handle, dir)?;
    match changing.look(name)? {
        (Look::Found(place), _) => {
            check(place)?;
            let format = changing.format;
            change(changing.in_inode_mut(), format, place);
            changing.store()
        }
        (_, Look::Found(place)) => {
            check(place)?;
            change(&mut changing.in_attribute, changing.format, place);
            changing.store_attribute()
        }
        _ => Err(Error::NotFound),
    }
}

/// Adds an entry; `false` when the directory has moved to a block instead.
pub(super) fn add(handle: &Handle<'_>, dir: &InodeState, new: &NewEntry<'_>) -> Result<bool> {
    let mut changing = Changing::open(handle, dir)?;
    match changing.look(new.name)? {
        (Look::Found(_), _) | (_, Look::Found(_)) => Err(Error::Exists),
        (Look::Room(room), _) => {
            let format = changing.format;
            edit::insert(changing.in_inode_mut(), format, room, new);
            changing.store().map(|()| true)
        }
        _ => changing.move_to_block().map(|()| false),
    }
}

impl<'a> Changing<'a> {
    fn open(handle: &'a Handle<'a>, state: &'a InodeState) -> Result<Self> {
        let inode = state.fields.read().clone();
        check_changeable(handle.volume(), &inode)?;
        let directory = Directory::open(handle.volume(), &inode)?;
        let format = directory.format;
        let InlineEntries { parent, in_attribute, .. } = InlineEntries::read(&directory)?;
        Ok(Self { handle, state, inode, format, parent, in_attribute })
    }

    fn in_inode(&self) -> &[u8] {
        &self.inode.i_block[PARENT_BYTES..]
    }

    fn in_inode_mut(&mut self) -> &mut [u8] {
        &mut self.inode.i_block[PARENT_BYTES..]
    }

    /// Looks through the inode's own bytes, and through the attribute.
    fn look(&self, name: &[u8]) -> Result<(Look, Look)> {
        let look = |bytes| self.validated(edit::look(bytes, self.format, name));
        Ok((look(self.in_inode())?, look(&self.in_attribute)?))
    }

    fn validated<R>(&self, verdict: Verdict<R>) -> Result<R> {
        verdict.map_err(|detail| corrupt_inode("inline directory", self.inode.number, None, detail))
    }

    /// What lies in the inode's own bytes has changed.
    fn store(self) -> Result<()> {
        let mut fields = self.state.fields.write();
        let mut changed = fields.clone();
        changed.i_block = self.inode.i_block;
        changed.store(self.handle, self.state.location)?;
        *fields = changed;
        Ok(())
    }

    /// What lies in the attribute has changed.
    fn store_attribute(self) -> Result<()> {
        let fields = self.state.fields.write();
        xattr::replace_inline_data(self.handle, &fields, self.state.location, &self.in_attribute)
    }

    /// Moves the entries, which have been looked through, to a block.
    fn move_to_block(self) -> Result<()> {
        let volume = self.handle.volume();
        let has_extents = volume.superblock().features().incompat.contains(Incompat::EXTENTS);
        let mut fields = self.state.fields.write();
        let mut moved = fields.clone();
        moved.flags.remove(InodeFlags::INLINE_DATA);
        moved.flags.set(InodeFlags::EXTENTS, has_extents);
        moved.i_block = map::empty(has_extents);
        moved.size_bytes = u64::from(volume.block_bytes());
        let end = Directory::open(volume, &moved)?.leaf_bytes();
        let entries = [self.in_inode(), &self.in_attribute].concat();
        let start = ENTRIES_POSITION as usize;
        if start + entries.len() > end {
            return self.validated(Err(format!("{} bytes of entries fit no block", entries.len()).into()));
        }
        let last = self.last_entry(&entries)?;
        // A full disk shows here, and nothing has changed then.
        let home = map::grow(self.handle, &mut moved, FileBlock(0))?;
        let dots = Dots { itself: moved.number, parent: self.parent };
        self.handle.make(home, Seal::DirectoryLeaf(moved.checksum_seed(volume)), |bytes| {
            node::make_dots(&mut bytes[..start], self.format, dots);
            bytes[start..start + entries.len()].copy_from_slice(&entries);
            self.format.write_record_bytes(&mut bytes[start + last..], end - start - last);
        })?;
        if let Err(error) = inline::clear(self.handle, &moved, self.state.location) {
            self.handle.forget(home);
            self.handle.writer().allocator.free(self.handle, home, 1)?;
            return Err(error);
        }
        *fields = moved;
        Ok(())
    }

    /// Where the last of the entries begins.
    fn last_entry(&self, entries: &[u8]) -> Result<usize> {
        let last = Entries::new(entries, self.format).last();
        let last = last.unwrap_or_else(|| Err("it is empty".into()));
        self.validated(last.map(|entry| entry.at))
    }
}
