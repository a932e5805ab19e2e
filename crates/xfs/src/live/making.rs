//! New inodes: what making one needs of a handle, and how it is made, without a name.
//!
//! Locks: the group's lock while the number is taken; the new inode's fields while it gets attributes.

use std::sync::Arc;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, NewInode, NewKind, Result, XattrMode};

use super::{Live, release};
use crate::alloc::{self, NewNumber};
use crate::attr::change as attributes;
use crate::dir::change::make_first;
use crate::format::dinode;
use crate::inode::{Inode, STORE_CREDITS};
use crate::symlink;
use crate::transaction::Handle;

/// What came of an attempt under one handle.
pub(super) enum Attempt<T> {
    Done(T),
    /// Nothing that lasts has changed: the handle must have room for so many blocks.
    Wants(u32),
}

/// What making an inode needs.
pub(super) struct Making {
    /// Blocks that it changes at most.
    pub(super) credits: u32,
    /// Blocks of space that it takes at most.
    pub(super) space: u64,
    /// The handle has the space for a chunk of inodes.
    with_chunk: bool,
    /// What belongs to the inode may find no space: it is made before it gets a name.
    pub(super) may_be_refused: bool,
}

/// Refuses what XFS cannot hold of a new inode: long targets, and device numbers of more bits than it keeps.
fn check_kind(kind: &NewKind<'_>) -> Result<()> {
    match kind {
        NewKind::Symlink(target) if target.len() as u64 > symlink::NEW_TARGET_MAX_BYTES => {
            Err(Error::NameTooLong)
        }
        NewKind::CharDevice(number) | NewKind::BlockDevice(number) if !dinode::holds_device(*number) => {
            Err(Error::InvalidArgument("XFS does not keep such a device number"))
        }
        _ => Ok(()),
    }
}

/// Runs `attempt` with handles that have room and space for a new inode and `credits` blocks beside it.
pub(super) fn making(
    dir: &Live,
    new: &NewInode<'_>,
    credits: u32,
    mut attempt: impl FnMut(&Handle<'_>, &Making) -> Result<Attempt<Arc<Live>>>,
) -> Result<Arc<Live>> {
    let volume = &dir.volume;
    let allocator = &volume.writer()?.allocator;
    check_kind(&new.kind)?;
    let is_directory = new.kind == NewKind::Directory;
    let mut with_chunk = allocator.needs_chunk(volume, dir.ino, is_directory);
    let mut may_want_chunk = true;
    let mut beside = credits;
    loop {
        let making = Making::new(dir, new, with_chunk);
        let started = volume.start_with_space(beside.max(making.credits + credits), making.space);
        let handle = match started {
            // There may be a free inode in another group.
            Err(Error::NoSpace) if with_chunk && may_want_chunk => {
                (with_chunk, may_want_chunk) = (false, false);
                continue;
            }
            started => started?,
        };
        match attempt(&handle, &making) {
            Ok(Attempt::Done(made)) => return Ok(made),
            Ok(Attempt::Wants(more)) => beside = more.max(beside + 1),
            Err(Error::NoSpace) if !with_chunk && may_want_chunk => {
                (with_chunk, may_want_chunk) = (true, false);
            }
            Err(error) => return Err(error),
        }
    }
}

impl Making {
    fn new(dir: &Live, new: &NewInode<'_>, with_chunk: bool) -> Self {
        let volume = &dir.volume;
        let geometry = volume.geometry();
        let mut credits = alloc::new_inode_credits(geometry, with_chunk) + STORE_CREDITS;
        if Self::may_be_first(new) {
            credits += alloc::GIVE_BACK_CREDITS + release::UNLINKED_CREDITS;
        }
        let mut space = if with_chunk { alloc::chunk_space(geometry) } else { 0 };
        let target = if let NewKind::Symlink(target) = new.kind { Some(target) } else { None };
        if target.is_none() && new.xattrs.is_empty() {
            return Self { credits, space, with_chunk, may_be_refused: false };
        }
        let mut may_be_refused = !new.xattrs.is_empty();
        let like = Inode::fresh(volume, &dir.permissions_cache.inheritance(), dir.ino, 0, new, 1);
        if let Some(target) = target {
            let (more, blocks) = symlink::needs(volume, &like, target);
            credits += more;
            space += blocks;
            may_be_refused |= blocks > 0;
        }
        for (_, value) in new.xattrs {
            credits += attributes::credits(volume, &like, Some(value));
            space += attributes::space(volume, &like, Some(value));
        }
        if may_be_refused {
            credits += release::TAKE_BACK_CREDITS;
        }
        Self { credits, space, with_chunk, may_be_refused }
    }

    /// Whether the number is taken before the directory is locked, so that its lock is held for less: the inode has nothing
    /// but its core then, and its number can be [given back](Self::give_back).
    pub(super) fn may_be_first(new: &NewInode<'_>) -> bool {
        new.xattrs.is_empty() && !matches!(new.kind, NewKind::Directory | NewKind::Symlink(_))
    }

    /// Gives back a number, for which no inode is needed after all. Where the filesystem has no space for that, the inode is
    /// made and stays on an unlinked list for the next opening.
    ///
    /// # Errors
    /// Corruption; I/O failure. The changes are aborted then.
    pub(super) fn give_back(
        &self,
        handle: &Handle<'_>,
        parent: &Live,
        new: &NewInode<'_>,
        number: NewNumber,
    ) -> Result<()> {
        let writer = handle.writer();
        let given = match writer.allocator.give_back_inode(handle, number.ino) {
            Err(Error::NoSpace) if !writer.transactions.has_stopped() => {
                writer.inodes_left.fetch_add(1, Ordering::Relaxed);
                self.fill(handle, parent, new, 0, number)
                    .and_then(|_| writer.allocator.add_unlinked(handle, number.ino))
            }
            given => given,
        };
        handle.or_abort(given)
    }

    /// Takes a number for a new inode.
    pub(super) fn number(&self, handle: &Handle<'_>, parent: &Live, new: &NewInode<'_>) -> Result<NewNumber> {
        let is_directory = new.kind == NewKind::Directory;
        let number =
            handle.writer().allocator.new_inode(handle, parent.ino, is_directory, self.with_chunk)?;
        new.announce.number(number.ino);
        Ok(number)
    }

    /// Makes an inode with this number, without attributes.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) for the target of a symbolic link, of which nothing has changed then; corruption; I/O
    /// failure.
    pub(super) fn fill(
        &self,
        handle: &Handle<'_>,
        parent: &Live,
        new: &NewInode<'_>,
        links: u32,
        number: NewNumber,
    ) -> Result<Arc<Live>> {
        let volume = &parent.volume;
        let links = if new.kind == NewKind::Directory { 2 } else { links };
        let inheritance = parent.permissions_cache.inheritance();
        let mut inode = Inode::fresh(volume, &inheritance, number.ino, number.generation, new, links);
        match new.kind {
            NewKind::Directory => make_first(&mut inode, parent.ino),
            NewKind::Symlink(target) => symlink::fill(handle, &mut inode, target)?,
            _ => {}
        }
        inode.store_new(handle)?;
        Ok(Live::shared(Arc::clone(volume), inode))
    }

    /// Makes an inode with everything that belongs to it, but no name.
    pub(super) fn make(
        &self,
        handle: &Handle<'_>,
        parent: &Live,
        new: &NewInode<'_>,
        links: u32,
    ) -> Result<Attempt<Arc<Live>>> {
        let number = self.number(handle, parent, new)?;
        let made = match self.fill(handle, parent, new, links, number) {
            Err(Error::NoSpace) if !handle.writer().transactions.has_stopped() => {
                let empty = NewInode { kind: NewKind::Regular, ..*new };
                let made = handle.or_abort(self.fill(handle, parent, &empty, links, number))?;
                handle.or_abort(release::take_back(handle, &made))?;
                return Err(Error::NoSpace);
            }
            filled => handle.or_abort(filled)?,
        };
        if new.xattrs.is_empty() {
            return Ok(Attempt::Done(made));
        }
        let mut fields = made.fields.write();
        for (name, value) in new.xattrs {
            let set = attributes::try_set(handle, &mut fields, name, Some(value), XattrMode::Set);
            let wanted = match set {
                Ok(attributes::Attempt::Done) => continue,
                Ok(attributes::Attempt::Wants(more)) => Ok(Attempt::Wants(self.credits + more)),
                // What a new inode has leaves room, unless the attributes are larger than any inode has room for.
                Ok(attributes::Attempt::DataInTheWay) => Err(Error::NoSpace),
                Err(error) => Err(error),
            };
            // The inode is deleted again, with the attributes that it has by now.
            drop(fields);
            handle.or_abort(release::take_back(handle, &made))?;
            return wanted;
        }
        drop(fields);
        Ok(Attempt::Done(made))
    }
}
