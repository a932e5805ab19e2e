//! Carrying out what was planned, under one handle.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use undercroft_vfs::{FileType, Result, clock};

use super::names::Name;
use super::plan::{Fate, Plan, pieces};
use super::too_large;
use crate::alloc::{ALLOCATE_CREDITS, FREE_INODE_CREDITS, NEW_INODE_CREDITS};
use crate::error::corrupt;
use crate::fast_commit::{DirectoryChange, Overridden};
use crate::features::Incompat;
use crate::inode::InodeState;
use crate::inode::{self, Inode, InodeBytes, InodeFlags, Location};
use crate::map::{self, Progress, Removed};
use crate::numbers::{FileBlock, FsBlock};
use crate::transaction::Handle;
use crate::volume::Volume;
use crate::writer::Mounted;
use crate::{dir, orphan, xattr};

/// Blocks of a map without extents that are inserted at once: they lie in two of its blocks at most.
const INSERTED_AT_ONCE: u64 = 64;

/// The work, and what it changes.
pub(super) struct Apply<'a> {
    volume: &'a Arc<Mounted>,
    shown: &'a Volume,
    handle: Handle<'a>,
    /// Orphans on the disk: in the list each says in its deletion time which is next.
    orphans: HashSet<u32>,
    /// Directories that are there in the end and in which names change.
    directories: BTreeMap<u32, InodeState>,
}

impl<'a> Apply<'a> {
    pub(super) fn new(volume: &'a Arc<Mounted>, shown: &'a Volume) -> Result<Self> {
        let orphans = orphan::collect(volume)?.into_iter().collect();
        Ok(Self { volume, shown, handle: volume.start(1)?, orphans, directories: BTreeMap::new() })
    }

    pub(super) fn run(mut self, plan: &Plan, names: &[Name<'_>]) -> Result<()> {
        let allocator = &self.volume.writer()?.allocator;
        for run in plan.wanted.minus(&plan.owned) {
            let count = run.end - run.start;
            self.room_for_runs(count)?;
            allocator.claim(&self.handle, FsBlock(run.start), count)?;
        }
        for fate in plan.fates.values() {
            match fate {
                Fate::Goes { old } => self.make_orphan(plan, old.clone())?,
                Fate::Made { old, new } => {
                    if let Some(old) = old {
                        self.delete(plan, old.clone())?;
                    }
                    self.make(new.clone())?;
                }
                Fate::Stays { new, sectors } => {
                    self.change(Inode { sectors: *sectors, ..new.clone() })?;
                }
                Fate::Nothing => {}
            }
        }
        self.names(plan, names)?;
        for run in plan.given_up.minus(&plan.wanted) {
            let count = run.end - run.start;
            self.room_for_runs(count)?;
            allocator.free(&self.handle, FsBlock(run.start), count)?;
        }
        Ok(())
    }

    /// Makes an unlinked inode an orphan, which is deleted with all others. Blocks that another file owns now are
    /// removed from it.
    fn make_orphan(&mut self, plan: &Plan, mut old: Inode) -> Result<()> {
        let location = inode::locate(self.volume, old.number)?;
        self.remove_gained_blocks(plan, &mut old)?;
        self.room(1 + orphan::CREDITS)?;
        old.links = 0;
        old.note_change(clock::now());
        old.store(&self.handle, location)?;
        if self.orphans.contains(&old.number) {
            return Ok(());
        }
        orphan::add(&self.handle, &InodeState::new(Arc::clone(self.volume), old, location))
    }

    /// Deletes an inode whose number another one has now.
    fn delete(&mut self, plan: &Plan, mut old: Inode) -> Result<()> {
        let location = inode::locate(self.volume, old.number)?;
        self.remove_gained_blocks(plan, &mut old)?;
        if map::is_mapped(self.volume, &old) {
            let removed = match old.flags.contains(InodeFlags::JOURNAL_DATA) {
                true => Removed::Metadata,
                false => Removed::of(old.kind),
            };
            self.take_out(&mut old, 0, u64::MAX, removed)?;
        }
        self.room(xattr::credits(self.volume, None) + FREE_INODE_CREDITS)?;
        xattr::release(&self.handle, &mut old, location)?;
        let was_directory = old.kind == FileType::Directory;
        self.volume.writer()?.allocator.free_inode(&self.handle, old.number, was_directory)
    }

    /// Removes from a file that is being deleted the blocks that other files own now.
    fn remove_gained_blocks(&self, plan: &Plan, old: &mut Inode) -> Result<()> {
        if plan.wanted.is_empty() || old.kind != FileType::Regular || !map::is_mapped(self.volume, old) {
            return Ok(());
        }
        for piece in pieces(self.volume, old, 0..map::limit(self.volume, old))? {
            for part in plan.wanted.within(piece.first.0..piece.first.0 + piece.len) {
                let at = piece.at + (part.start - piece.first.0);
                self.take_out(old, at, at + (part.end - part.start), Removed::Kept)?;
            }
        }
        Ok(())
    }

    /// Makes an inode in a number that is free.
    fn make(&mut self, mut new: Inode) -> Result<()> {
        let allocator = &self.volume.writer()?.allocator;
        self.room(NEW_INODE_CREDITS + 1)?;
        let location = allocator.claim_inode(&self.handle, new.number, new.kind)?;
        new.sectors = 0;
        if new.kind == FileType::Directory {
            return self.make_directory(new, location);
        }
        self.map(&mut new)?;
        self.store_logged(&new, location)
    }

    /// A directory's blocks are logged nowhere: it begins with a first one, whatever it was like.
    fn make_directory(&mut self, mut new: Inode, location: Location) -> Result<()> {
        let number = new.number;
        let change = self.shown.fast_commits().directory(number);
        let Some(parent) = change.and_then(DirectoryChange::created_in) else {
            return Err(corrupt("fast commit", format!("directory {number} was made in no other")));
        };
        let was_inline = new.has_inline_data();
        let extents = self.volume.superblock().features().incompat.contains(Incompat::EXTENTS);
        new.flags.remove(InodeFlags::INLINE_DATA | InodeFlags::INDEXED);
        new.flags.set(InodeFlags::EXTENTS, extents);
        new.i_block = map::empty(extents);
        self.room(map::credits(&new) + ALLOCATE_CREDITS + 1)?;
        dir::make_first(&self.handle, &mut new, parent)?;
        self.store_logged(&new, location)?;
        if was_inline {
            xattr::remove_inline_data(&self.handle, &new, location)?;
        }
        self.directories.insert(number, InodeState::new(Arc::clone(self.volume), new, location));
        Ok(())
    }

    /// Changes an inode that stays.
    fn change(&mut self, mut new: Inode) -> Result<()> {
        let location = inode::locate(self.volume, new.number)?;
        if new.kind == FileType::Directory {
            self.room(1)?;
            new.store(&self.handle, location)?;
            let state = InodeState::new(Arc::clone(self.volume), new, location);
            self.directories.insert(state.number, state);
            return Ok(());
        }
        self.map(&mut new)?;
        self.store_logged(&new, location)
    }

    /// Lets a file have the blocks that fast commits say it has. Those that it loses stay in use.
    fn map(&self, inode: &mut Inode) -> Result<()> {
        let Some(change) = self.shown.fast_commits().inode(inode.number) else { return Ok(()) };
        for (at, len, _) in change.ranges() {
            let at = u64::from(at.0);
            self.take_out(inode, at, at + u64::from(len), Removed::Kept)?;
        }
        for (at, len, what) in change.ranges() {
            let Overridden::Mapped { pblk, unwritten } = what else { continue };
            let (mut done, len) = (0, u64::from(len));
            while done < len {
                let most = if map::has_extents(inode) { map::max_run(!unwritten) } else { INSERTED_AT_ONCE };
                let count = (len - done).min(most);
                self.room(2 * map::credits(inode))?;
                let (at, first) = (FileBlock(at.0 + done as u32), FsBlock(pblk.0 + done));
                map::insert(&self.handle, inode, at, first, count, !unwritten)?;
                done += count;
            }
        }
        Ok(())
    }

    /// Writes an inode with what the log has of its other bytes.
    fn store_logged(&self, inode: &Inode, location: Location) -> Result<()> {
        let bytes = InodeBytes::read(self.shown, inode.number)?;
        self.room(1)?;
        inode.store_over(&self.handle, location, &bytes, self.orphans.contains(&inode.number))
    }

    /// Takes names out, and then puts names in, for which there is room then.
    fn names(&self, plan: &Plan, names: &[Name<'_>]) -> Result<()> {
        let view = self.shown.fast_commits();
        let leads_to = |name: &Name<'_>| name.after.filter(|&after| !plan.is_gone(after));
        for name in names {
            let Some(directory) = self.directories.get(&name.dir) else { continue };
            if let (Some(before), None) = (name.before, leads_to(name)) {
                self.room(dir::REMOVE_CREDITS)?;
                dir::remove(&self.handle, directory, name.name, before)?;
            }
        }
        for name in names {
            let Some(directory) = self.directories.get(&name.dir) else { continue };
            let Some(after) = leads_to(name) else { continue };
            // A name that does not change is skipped.
            let Some(kind) = plan.kind(after) else { continue };
            match name.before {
                None => {
                    self.room(dir::ADD_CREDITS)?;
                    dir::add(&self.handle, directory, name.name, after, kind)?;
                }
                Some(before) if before != after || view.is_new(after) => {
                    self.room(dir::REMOVE_CREDITS)?;
                    dir::replace(&self.handle, directory, name.name, after, kind)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn take_out(&self, inode: &mut Inode, from: u64, to: u64, removed: Removed) -> Result<()> {
        self.room(map::remove_credits(inode))?;
        match map::remove(&self.handle, inode, from, to, removed)? {
            Progress::Done => Ok(()),
            Progress::From(_) => Err(too_large()),
        }
    }

    fn room_for_runs(&self, blocks: u64) -> Result<()> {
        let groups = blocks / u64::from(self.volume.superblock().geometry().blocks_per_group()) + 2;
        self.room(u32::try_from(groups).unwrap_or(u32::MAX).saturating_mul(ALLOCATE_CREDITS))
    }

    /// All of it is one transaction.
    fn room(&self, blocks: u32) -> Result<()> {
        if self.handle.has_room(blocks) { Ok(()) } else { Err(too_large()) }
    }
}
