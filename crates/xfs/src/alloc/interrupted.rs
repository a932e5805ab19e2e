//! What a crash left in the groups, finished when the filesystem is opened for writing.
//!
//! The log announces work that takes several transactions. Each step that it announced and did not finish is made here as
//! Linux makes it, all of them under one handle (see `unfinished`). Changes of files' maps are made there.
//!
//! Copies on write that were being made are in the tree of reference counts; each is freed by itself, after that.

use super::*;
use crate::error::corrupt_block;
use crate::log::{Unfinished, UsersChange};
use crate::writer::Mounted;

/// Changes that are made of all steps at most. A log may announce one change of many blocks many times over.
const CHANGES_MAX: u32 = 1 << 20;

/// Counts changes.
#[derive(Default)]
pub(crate) struct Changes(u32);

impl Changes {
    fn count(&mut self) -> Result<()> {
        self.0 += 1;
        if self.0 > CHANGES_MAX { Err(too_much()) } else { Ok(()) }
    }
}

impl Allocator {
    /// Makes a step that the log announced; one that changes a file's map is none of the groups'. The free list is filled
    /// on the way.
    ///
    /// # Errors
    /// Corruption; I/O failure; [`Unsupported`](undercroft_vfs::Error::Unsupported) when the handle has no room left. The
    /// caller aborts then.
    pub(crate) fn finish_step(
        &self,
        handle: &Handle<'_>,
        step: &Unfinished,
        changes: &mut Changes,
    ) -> Result<()> {
        changes.count()?;
        match step {
            Unfinished::Free { start, blocks } => {
                self.make_room(handle, 2)?;
                let (ag, first) = run_of(handle, *start, *blocks)?;
                let mut group = self.change_group(handle, ag)?;
                group.note_no_owner_at_all(first, *blocks)?;
                group.free(first, *blocks, Was::Metadata)
            }
            Unfinished::Owner(change) => {
                self.make_room(handle, 2)?;
                let (ag, first) = run_of(handle, change.start, change.blocks)?;
                self.change_group(handle, ag)?.change_logged_owner(first, change)
            }
            Unfinished::Users { start, .. } if !handle.volume().superblock().features().has_reflink() => {
                Err(corrupt_block("logged intent", *start, "changes users of blocks, which no file shares"))
            }
            Unfinished::Users { start, blocks, change } => match change {
                UsersChange::Increase => self.change_users(handle, *start, *blocks, changes, Self::add_user),
                UsersChange::Decrease => {
                    self.change_users(handle, *start, *blocks, changes, Self::remove_user)
                }
                UsersChange::Reserve | UsersChange::Release => {
                    self.make_room(handle, 1)?;
                    let (ag, first) = run_of(handle, *start, *blocks)?;
                    let is_aside = *change == UsersChange::Reserve;
                    self.change_group(handle, ag)?.set_copy_aside(first, *blocks, is_aside)
                }
            },
            Unfinished::Map(_) => Ok(()),
        }
    }

    /// Changes the users of blocks, as many at once as share in the same way.
    fn change_users(
        &self,
        handle: &Handle<'_>,
        start: FsBlock,
        blocks: u32,
        changes: &mut Changes,
        change: impl Fn(&Self, &Handle<'_>, FsBlock, u64) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < blocks {
            changes.count()?;
            self.make_room(handle, 2)?;
            let first = FsBlock(start.0 + u64::from(done));
            let count = self.sharing(handle.volume(), first, blocks - done)?.count.max(1);
            change(self, handle, first, count.into())?;
            done += count;
        }
        Ok(())
    }

    /// Room in the transaction for so many extents taken, freed, noted or counted.
    fn make_room(&self, handle: &Handle<'_>, extents: u32) -> Result<()> {
        if handle.has_room(extents * self.extent_credits) { Ok(()) } else { Err(too_much()) }
    }

    /// Frees the blocks of copies that were being made: no file has them.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn free_copies(&self, volume: &Mounted) -> Result<()> {
        if !volume.superblock().features().has_reflink() {
            return Ok(());
        }
        for ag in volume.geometry().ags() {
            loop {
                let handle = volume.start(3 * self.extent_credits)?;
                let mut group = self.change_group(&handle, ag)?;
                let Some(copy) = group.first_copy()? else { break };
                group.set_copy_aside(copy.start, copy.count, false)?;
                let freed = group
                    .note_no_owner(copy.start, copy.count, Owner::Copies)
                    .and_then(|()| group.free(copy.start, copy.count, Was::Data));
                handle.or_abort(freed)?;
            }
        }
        Ok(())
    }
}

/// What is answered where a transaction does not hold all that the log announced.
pub(crate) fn too_much() -> undercroft_vfs::Error {
    undercroft_vfs::Error::Unsupported(
        "an XFS log that ends in the middle of more work than fits in a transaction: let Linux mount the filesystem once"
            .into(),
    )
}

fn run_of(
    handle: &Handle<'_>,
    first: FsBlock,
    count: u32,
) -> Result<(crate::format::AgNumber, crate::format::AgBlock)> {
    handle.volume().geometry().check_run(first, count.into()).ok_or_else(|| {
        corrupt_block("logged intent", first, format!("{count} blocks from there on lie in no group"))
    })
}
