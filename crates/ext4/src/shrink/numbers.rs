//! Giving inodes of groups that go a number in a group that stays.
//!
//! One transaction copies an inode into a free slot, lets every name lead there and frees the old slot. What else belongs to
//! an inode stays as it is: checksums of its blocks begin with its number and its generation, so the copy gets the
//! generation with which they come out the same.
//!
//! A directory of more subdirectories than a transaction has room for gets its number first; the rest of its subdirectories
//! learn their parent's new number in further transactions. A crash in between leaves what `e2fsck -y` mends.

use std::collections::{BTreeMap, HashMap, HashSet};

use undercroft_vfs::{Error, FileType, Result};

use super::Mover;
use super::blocks::HALF_MOVED;
use super::survey::for_each_inode;
use crate::alloc::{FREE_INODE_CREDITS, NEW_INODE_CREDITS};
use crate::dir::{self, Named};
use crate::features::{Compat, Incompat};
use crate::inode::{self, Inode};
use crate::transaction::Handle;
use crate::xattr::{self, ValueNamed};

/// Where names lead to inodes whose number goes.
#[derive(Default)]
pub(super) struct Names {
    by_target: BTreeMap<u32, Vec<Place>>,
    /// Inodes that have another number already.
    moved: HashMap<u32, u32>,
    /// The last number that was given out.
    last: u32,
}

/// A place where an inode is named.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The inode that names it.
    owner: u32,
    named: How,
}

/// How an inode is named.
#[derive(Clone, Copy, Debug)]
enum How {
    InDirectory(Named),
    /// As the value of an attribute.
    AsValue(ValueNamed),
}

impl Place {
    /// Whether it is named as a parent only.
    fn is_parent(&self) -> bool {
        matches!(self.named, How::InDirectory(named) if named.is_parent())
    }
}

impl Mover<'_> {
    /// Finds all names that lead to inodes that have to move, and refuses what has no way to move.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) naming what cannot move; corruption; I/O failure.
    pub(super) fn find_names(&self, last: u32) -> Result<Names> {
        let mut names = Names::default();
        if self.survey.numbers.is_empty() {
            return Ok(names);
        }
        let superblock = self.volume.superblock();
        let refuse = |what: String| Err(Error::Unsupported(what.into()));
        if superblock.features().compat.contains(Compat::STABLE_INODES) {
            return refuse("giving inodes other numbers, with the feature stable_inodes".into());
        }
        if superblock.orphan_file_inode().is_some_and(|number| number > last) {
            return refuse("giving the orphan file another number; use resize2fs".into());
        }
        let has_values = superblock.features().incompat.contains(Incompat::EA_INODE);
        let mut seen = HashSet::new();
        if superblock.journal_inode().is_some_and(|number| number > last) {
            return refuse(
                "giving the journal another number; e2fsck -f gives a journal that tune2fs made its usual one".into(),
            );
        }
        for_each_inode(self.volume, &mut |inode| {
            let owner = inode.number;
            let mut note =
                |target, named| names.by_target.entry(target).or_default().push(Place { owner, named });
            if has_values {
                xattr::for_each_value_inode(self.volume, inode, &mut |target, named| {
                    // Inodes share blocks of attributes.
                    let is_new = match named {
                        ValueNamed::InBlock(home) => seen.insert((home, target)),
                        ValueNamed::InInode => true,
                    };
                    if target > last && is_new {
                        note(target, How::AsValue(named));
                    }
                })?;
            }
            if inode.kind == FileType::Directory {
                dir::for_each_named(self.volume, inode, last, &mut |target, named| {
                    note(target, How::InDirectory(named));
                })?;
            }
            Ok(())
        })?;
        let room = self.writer.transactions.room().saturating_sub(OTHERS) as usize;
        for (target, places) in &mut names.by_target {
            places.sort_by_key(Place::is_parent);
            let count = places.iter().filter(|place| !place.is_parent()).count();
            if count > room {
                return refuse(format!(
                    "inode {target} has {count} names, and the journal has room for {room} changes at once; use resize2fs"
                ));
            }
        }
        Ok(names)
    }

    /// Gives an inode another number.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace): no free inode is left. Corruption; I/O failure.
    pub(super) fn move_number(&self, names: &mut Names, from: u32, last: u32) -> Result<()> {
        let to = self.free_number(names, last)?;
        let places = names.by_target.remove(&from).unwrap_or_default();
        let room = self.writer.transactions.room().saturating_sub(OTHERS).max(1) as usize;
        let (first, rest) = places.split_at(places.len().min(room));
        {
            let handle = self.volume.start(OTHERS + first.len() as u32)?;
            handle.or_abort(HALF_MOVED, self.renumber(&handle, names, from, to, first))?;
        }
        names.moved.insert(from, to);
        for places in rest.chunks(room) {
            let handle = self.volume.start(OTHERS + places.len() as u32)?;
            handle.or_abort(HALF_MOVED, self.lead(&handle, names, places, (from, to)))?;
        }
        Ok(())
    }

    fn free_number(&self, names: &mut Names, last: u32) -> Result<u32> {
        let first = self.volume.superblock().geometry().first_inode();
        let mut number = names.last.max(first - 1);
        while number < last {
            number += 1;
            if !self.writer.allocator.is_inode_used(self.volume, number)? {
                names.last = number;
                return Ok(number);
            }
        }
        Err(Error::NoSpace)
    }

    fn renumber(
        &self,
        handle: &Handle<'_>,
        names: &Names,
        from: u32,
        to: u32,
        places: &[Place],
    ) -> Result<()> {
        let allocator = &handle.writer().allocator;
        let old = inode::locate(self.volume, from)?;
        let kind = Inode::read_linked_or_not(self.volume, from, old)?.kind;
        let new = allocator.claim_inode(handle, to, kind)?;
        inode::move_slot(handle, (from, old), (to, new))?;
        self.lead(handle, names, places, (from, to))?;
        allocator.free_inode(handle, from, kind == FileType::Directory)
    }

    /// Lets names lead to the new number.
    fn lead(
        &self,
        handle: &Handle<'_>,
        names: &Names,
        places: &[Place],
        (from, to): (u32, u32),
    ) -> Result<()> {
        for place in places {
            let owner = match place.owner {
                owner if owner == from => to,
                owner => names.moved.get(&owner).copied().unwrap_or(owner),
            };
            match place.named {
                How::InDirectory(named) => dir::lead_elsewhere(handle, owner, named, from, to)?,
                How::AsValue(named) => xattr::lead_value_elsewhere(handle, owner, named, from, to)?,
            }
        }
        Ok(())
    }
}

/// Blocks that change beside those with names: both slots and what giving out and freeing a number takes.
const OTHERS: u32 = NEW_INODE_CREDITS + FREE_INODE_CREDITS + 2;
