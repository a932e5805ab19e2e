//! Unlinked inodes that are in use: lists that begin in the header of each group, from which a crash leaves them to
//! be deleted at the next opening.
//!
//! A group has 64 lists; an inode is on that of its number within the group, modulo 64. Each inode on a list has the
//! number of the next one (`di_next_unlinked`), and the header has the first. To take an inode off in bounded time, each
//! group has in memory, for each inode on a list but the first, the one before it. A list that an earlier mount left is
//! walked once for that: when it is collected, or when an inode on it is first taken off.
//!
//! Locks: that of the group (class `group`) guards the lists and what is known of them. The links lie in the inodes'
//! places, whose other fields belong to other threads: a change of the link leaves them as they are.

use std::collections::HashSet;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::Error;
use zerocopy::byteorder::big_endian::U32;

use super::changing::ChangingGroup;
use super::group::Predecessors;
use super::inodes::read_slot;
use super::*;
use crate::ag::agi::{RawAgi, UNLINKED_BUCKETS};
use crate::error::{corrupt, corrupt_inode};
use crate::format::dinode::RawDinode;
use crate::format::{AgIno, AgNumber};

const STRUCTURE: &str = "list of unlinked inodes";

/// The list that an inode belongs on.
const fn bucket_of(within: AgIno) -> usize {
    within.0 as usize % UNLINKED_BUCKETS
}

fn head(agi: &RawAgi, within: AgIno) -> AgIno {
    AgIno(agi.agi_unlinked[bucket_of(within)].get())
}

fn wrong<T>(ino: Ino, detail: impl Into<std::borrow::Cow<'static, str>>) -> Result<T> {
    Err(corrupt_inode(STRUCTURE, ino, None, detail))
}

impl Allocator {
    /// Puts an inode that has lost its last name, or was made without one and has been stored, on its group's list.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(crate) fn add_unlinked(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let (ag, within) = place(handle.volume(), ino)?;
        self.change_group(handle, ag)?.add_unlinked(ino, within)
    }

    /// Takes an inode off the list and frees it; its content is gone. A chunk of which no inode is in use is freed.
    ///
    /// # Errors
    /// As for [`free_inode`](Self::free_inode).
    pub(crate) fn free_unlinked(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let (ag, within) = place(handle.volume(), ino)?;
        let mut group = self.change_group(handle, ag)?;
        let freed = group.plan_freed(ino, within, false)?;
        group.remove_unlinked(ino, within)?;
        let freed = group.free_inode(freed);
        handle.or_abort(freed)
    }

    /// Takes it off the list.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(crate) fn remove_unlinked(&self, handle: &Handle<'_>, ino: Ino) -> Result<()> {
        let (ag, within) = place(handle.volume(), ino)?;
        self.change_group(handle, ag)?.remove_unlinked(ino, within)
    }

    /// All inodes on the lists, as a filesystem that is being opened has them, and how many lists are left out as a whole,
    /// because they are broken or cannot be read: their inodes keep their places, as in Linux, and xfs_repair deletes them.
    /// New inodes may come before them. The memory that it takes is that of inodes that are there.
    pub(crate) fn collect_unlinked(&self, volume: &Volume) -> (Vec<Ino>, u64) {
        let (mut left, mut broken_lists) = (Vec::new(), 0);
        for group in self.groups.iter() {
            let mut state = group.state.lock();
            let agi = state.agi;
            for (bucket, head) in agi.agi_unlinked.iter().enumerate() {
                let mut walk = Walk::new(volume, group.number, bucket, AgIno(head.get()));
                let whole = left.len();
                let outcome = loop {
                    match walk.next(&mut state.predecessors) {
                        Ok(None) => break Ok(()),
                        Ok(Some((ino, raw))) if raw.di_nlink.get() == 0 => left.push(ino),
                        Ok(Some((ino, _))) => break wrong(ino, "has links"),
                        Err(error) => break Err(error),
                    }
                };
                if let Err(error) = outcome {
                    left.truncate(whole);
                    broken_lists += 1;
                    if !matches!(error, Error::Io(_)) {
                        self.note_damaged_list();
                    }
                }
            }
        }
        (left, broken_lists)
    }

    /// An inode on a list, or a list, is damaged and stays until xfs_repair has mended it.
    pub(crate) fn note_damaged_list(&self) {
        self.has_damaged_lists.store(true, Ordering::Relaxed);
    }

    /// Whether inodes stay on lists from which a recovery could delete them.
    pub(crate) fn leaves_unlinked(&self) -> bool {
        let is_listed = |ino: &U32| AgIno(ino.get()) != AgIno::NULL;
        !self.has_damaged_lists.load(Ordering::Relaxed)
            && self.groups.iter().any(|group| group.state.lock().agi.agi_unlinked.iter().any(is_listed))
    }
}

fn place(volume: &Volume, ino: Ino) -> Result<(AgNumber, AgIno)> {
    volume
        .geometry()
        .split_ino(ino)
        .ok_or_else(|| corrupt_inode(STRUCTURE, ino, None, "lies in no allocation group"))
}

/// A walk along a list: each inode on it must be in use, belong on it, and come once.
struct Walk<'a> {
    volume: &'a Volume,
    ag: AgNumber,
    bucket: usize,
    next: AgIno,
    before: Option<AgIno>,
    seen: HashSet<AgIno>,
}

impl<'a> Walk<'a> {
    fn new(volume: &'a Volume, ag: AgNumber, bucket: usize, head: AgIno) -> Self {
        Self { volume, ag, bucket, next: head, before: None, seen: HashSet::new() }
    }

    /// The next inode, which is noted in `predecessors`; `None` at the end.
    fn next(&mut self, predecessors: &mut Predecessors) -> Result<Option<(Ino, RawDinode)>> {
        let within = self.next;
        if within == AgIno::NULL {
            return Ok(None);
        }
        let Some(ino) = self.volume.geometry().join_ino(self.ag, within) else {
            let (bucket, ag) = (self.bucket, self.ag);
            let detail = format!("list {bucket} of group {ag} leads to inode {within}, which does not exist");
            return Err(corrupt(STRUCTURE, detail));
        };
        if bucket_of(within) != self.bucket {
            return wrong(ino, format!("is on list {}", self.bucket));
        }
        if !self.seen.insert(within) {
            return wrong(ino, "is on its list twice");
        }
        let raw = read_slot(self.volume, ino)?;
        if raw.di_mode.get() == 0 {
            return wrong(ino, "is free");
        }
        if let Some(before) = self.before.replace(within) {
            predecessors.0.insert(within, before);
        }
        self.next = AgIno(raw.di_next_unlinked.get());
        Ok(Some((ino, raw)))
    }
}

impl ChangingGroup<'_> {
    fn add_unlinked(&mut self, ino: Ino, within: AgIno) -> Result<()> {
        let raw = read_slot(self.volume(), ino)?;
        let head = head(self.agi(), within);
        let is_on_list = head == within
            || raw.di_next_unlinked.get() != AgIno::NULL.0
            || self.state().predecessors.0.contains_key(&within);
        if is_on_list || raw.di_mode.get() == 0 {
            return wrong(ino, "is to be put on its list, and is on it or free");
        }
        if head != AgIno::NULL {
            self.set_next(ino, head)?;
            self.state().predecessors.0.insert(head, within);
        }
        self.agi_mut().agi_unlinked[bucket_of(within)].set(within.0);
        Ok(())
    }

    fn remove_unlinked(&mut self, ino: Ino, within: AgIno) -> Result<()> {
        let geometry = self.geometry();
        let next = AgIno(read_slot(self.volume(), ino)?.di_next_unlinked.get());
        if next != AgIno::NULL && (next == within || geometry.join_ino(self.number(), next).is_none()) {
            return wrong(ino, format!("is followed by inode {next}"));
        }
        let before = match head(self.agi(), within) {
            head if head == within => None,
            _ => Some(self.predecessor(ino, within)?),
        };
        let Some(before) = before else {
            if next != AgIno::NULL {
                self.set_next(ino, AgIno::NULL)?;
                self.state().predecessors.0.remove(&next);
            }
            self.agi_mut().agi_unlinked[bucket_of(within)].set(next.0);
            return Ok(());
        };
        let Some(before_ino) = geometry.join_ino(self.number(), before) else {
            return wrong(ino, format!("follows inode {before}"));
        };
        let followed = read_slot(self.volume(), before_ino)?.di_next_unlinked.get();
        if followed != within.0 {
            return wrong(ino, format!("follows inode {before}, which is followed by {followed}"));
        }
        self.set_next(before_ino, next)?;
        if next != AgIno::NULL {
            let cut = self.set_next(ino, AgIno::NULL);
            self.handle.or_abort(cut)?;
            self.state().predecessors.0.insert(next, before);
        }
        self.state().predecessors.0.remove(&within);
        Ok(())
    }

    /// The inode before one that is not the first on its list.
    fn predecessor(&mut self, ino: Ino, within: AgIno) -> Result<AgIno> {
        if let Some(before) = self.state().predecessors.0.get(&within) {
            return Ok(*before);
        }
        let head = head(self.agi(), within);
        let mut walk = Walk::new(self.volume(), self.number(), bucket_of(within), head);
        while walk.next(&mut self.state().predecessors)?.is_some() {
            if let Some(before) = self.state().predecessors.0.get(&within) {
                return Ok(*before);
            }
        }
        wrong(ino, "is not on its list")
    }

    fn set_next(&self, ino: Ino, next: AgIno) -> Result<()> {
        self.change_slot(ino, |raw, _| raw.di_next_unlinked.set(next.0))
    }
}
