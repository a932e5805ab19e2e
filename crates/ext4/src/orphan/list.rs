//! The list of orphans: from the superblock to the newest, and from each to the next in its deletion time.
//!
//! In memory it is linked both ways, so that one in the middle is taken out by changing the one before it. The blocks
//! in which the members' inodes lie are held, so that links are changed without I/O.

use std::collections::HashMap;

use undercroft_sync::{Mutex, order};
use undercroft_vfs::Result;

use crate::inode::{Location, set_deletion_time};
use crate::superblock;
use crate::transaction::{Block, Handle};

/// The list.
#[derive(Debug)]
pub(super) struct OrphanList(Mutex<Links>);

#[derive(Debug)]
struct Links {
    /// The newest; 0 when there is none.
    head: u32,
    /// Those that were entered since the filesystem was opened. What was there before comes after all of them.
    members: HashMap<u32, Member>,
}

#[derive(Debug)]
struct Member {
    /// Neighbours; 0 for none.
    before: u32,
    after: u32,
    location: Location,
    _table: Block,
}

impl OrphanList {
    pub(super) fn new(head: u32) -> Self {
        Self(Mutex::new(&order::ORPHAN, Links { head, members: HashMap::new() }))
    }

    pub(super) fn head(&self) -> u32 {
        self.0.lock().head
    }

    /// Takes the lock for a question, as the plain form does.
    pub(super) fn ask(&self) {
        drop(self.0.lock());
    }

    /// Puts an inode before all others.
    pub(super) fn enter(&self, handle: &Handle<'_>, number: u32, location: Location) -> Result<()> {
        let table = handle.volume().block(location.block)?;
        let mut links = self.0.lock();
        let after = links.head;
        set_deletion_time(handle, number, location, after)?;
        set_head(handle, number)?;
        links.head = number;
        if let Some(after) = links.members.get_mut(&after) {
            after.before = number;
        }
        links.members.insert(number, Member { before: 0, after, location, _table: table });
        Ok(())
    }

    /// Takes an inode out.
    pub(super) fn leave(&self, handle: &Handle<'_>, number: u32) -> Result<()> {
        let mut links = self.0.lock();
        let Some(member) = links.members.remove(&number) else { return Ok(()) };
        if let Some(before) = links.members.get_mut(&member.before) {
            before.after = member.after;
            set_deletion_time(handle, member.before, before.location, member.after)?;
        } else {
            links.head = member.after;
            set_head(handle, member.after)?;
        }
        if let Some(after) = links.members.get_mut(&member.after) {
            after.before = member.before;
        }
        drop(links);
        set_deletion_time(handle, number, member.location, 0)
    }

    /// Takes out the first, which nobody uses; `next` comes after it.
    pub(super) fn leave_first(
        &self,
        handle: &Handle<'_>,
        number: u32,
        location: Location,
        next: u32,
    ) -> Result<()> {
        let mut links = self.0.lock();
        set_deletion_time(handle, number, location, 0)?;
        set_head(handle, next)?;
        links.head = next;
        links.members.remove(&number);
        if let Some(next) = links.members.get_mut(&next) {
            next.before = 0;
        }
        Ok(())
    }
}

fn set_head(handle: &Handle<'_>, number: u32) -> Result<()> {
    superblock::change(handle, |raw| raw.s_last_orphan.set(number))
}
