//! The plan: what happens to each inode, and which inode owns each block in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use undercroft_vfs::{DirOffset, Error, FileType, Result};

use super::names::{self, Counts, Name};
use super::runs::Runs;
use super::too_large;
use crate::dir;
use crate::error::{corrupt, corrupt_inode};
use crate::fast_commit::Overridden;
use crate::inode::{self, Inode, ROOT_INODE};
use crate::map::{self, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;
use crate::writer::Mounted;

/// More pieces of a file than could be changed in one transaction.
const MAX_PIECES: usize = 1 << 16;

/// What becomes of the inodes that fast commits have to do with, by number.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) fates: BTreeMap<u32, Fate>,
    /// Blocks that files have in the end where fast commits say so.
    pub(super) wanted: Runs,
    /// Blocks that files have on the disk and give up, or may keep.
    pub(super) owned: Runs,
    /// Those of them that inodes in use give up: deleting an inode frees the others.
    pub(super) given_up: Runs,
}

/// What becomes of one.
#[derive(Debug)]
pub(super) enum Fate {
    /// It comes to be, in a number that an `old` inode had, or none.
    Made { new: Inode, old: Option<Inode> },
    /// It is there, and may differ in the end.
    Stays { new: Inode, sectors: u64 },
    /// It has no name any more.
    Goes { old: Inode },
    /// It does not exist in the end, and no name leads to it.
    Nothing,
}

/// A run of a file's blocks on the disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) first: FsBlock,
    pub(super) len: u64,
}

impl Plan {
    /// Works it out. Nothing changes.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported); corruption of the filesystem, or fast commits that contradict it; I/O
    /// failure.
    pub(super) fn new(volume: &Mounted, shown: &Volume, names: &[Name<'_>]) -> Result<Self> {
        let view = shown.fast_commits();
        let counts = names::count(names, view);
        let numbers: BTreeSet<u32> = view
            .inodes()
            .map(|(number, _)| number)
            .chain(view.directories().map(|(number, _)| number))
            .chain(counts.keys().copied())
            .collect();
        let mut fates = BTreeMap::new();
        for number in numbers {
            let counts = counts.get(&number).copied().unwrap_or_default();
            fates.insert(number, fate(volume, shown, number, counts)?);
        }
        let mut plan =
            Self { fates, wanted: Runs::default(), owned: Runs::default(), given_up: Runs::default() };
        plan.check_directories(volume, names)?;
        plan.blocks(volume, shown)?;
        Ok(plan)
    }

    /// Checks that in the end every name is in a directory that exists, and that the root is a directory.
    fn check_directories(&self, volume: &Volume, names: &[Name<'_>]) -> Result<()> {
        for name in names.iter().filter(|name| name.after.is_some()) {
            if self.kind(name.dir) != Some(FileType::Directory) {
                return Err(wrong(name.dir, "has names in the end, and is no directory then"));
            }
        }
        for (&number, fate) in &self.fates {
            let (Fate::Made { old: Some(old), .. } | Fate::Goes { old }) = fate else { continue };
            if number == ROOT_INODE {
                return Err(wrong(number, "is the root directory, and goes"));
            }
            if old.kind != FileType::Directory || old.links == 0 {
                continue;
            }
            let taken = names.iter().filter(|name| name.dir == number && name.before.is_some()).count();
            if count_names(volume, old, taken)? > taken {
                return Err(wrong(number, "is a directory that goes, and has names"));
            }
        }
        Ok(())
    }

    /// The kind of an inode that is there in the end, where fast commits have to do with it.
    pub(super) fn kind(&self, number: u32) -> Option<FileType> {
        match self.fates.get(&number)? {
            Fate::Made { new, .. } | Fate::Stays { new, .. } => Some(new.kind),
            Fate::Goes { .. } | Fate::Nothing => None,
        }
    }

    /// Whether no name can lead to an inode in the end.
    pub(super) fn is_gone(&self, number: u32) -> bool {
        matches!(self.fates.get(&number), Some(Fate::Goes { .. } | Fate::Nothing))
    }

    fn blocks(&mut self, volume: &Volume, shown: &Volume) -> Result<()> {
        for (&number, fate) in &self.fates {
            let (Fate::Made { new, .. } | Fate::Stays { new, .. }) = fate else { continue };
            let Some(change) = shown.fast_commits().inode(number) else { continue };
            for (at, len, what) in change.ranges() {
                if new.kind == FileType::Directory || !map::is_mapped(shown, new) {
                    return Err(wrong(number, "has blocks mapped, and no map that is logged"));
                }
                if let Overridden::Mapped { pblk, .. } = what
                    && !self.wanted.add(pblk.0..pblk.0 + u64::from(len))
                {
                    let detail = format!("gets {len} blocks from {pblk} on, which are not all its own");
                    return Err(wrong(number, detail));
                }
                if let Fate::Stays { .. } = fate {
                    let range = u64::from(at.0)..u64::from(at.0) + u64::from(len);
                    for piece in pieces(volume, new, range)? {
                        own(&mut self.owned, number, piece)?;
                        own(&mut self.given_up, number, piece)?;
                    }
                }
            }
        }
        if self.wanted.is_empty() {
            return Ok(());
        }
        // Where data is not ordered, Linux gives the blocks of a file that is gone to another at once.
        for (&number, fate) in &self.fates {
            if let Fate::Made { old: Some(old), .. } | Fate::Goes { old } = fate
                && old.kind == FileType::Regular
                && map::is_mapped(volume, old)
            {
                for piece in pieces(volume, old, 0..map::limit(volume, old))? {
                    own(&mut self.owned, number, piece)?;
                }
            }
        }
        Ok(())
    }
}

/// How many names a directory has; not more than one above `enough`.
fn count_names(volume: &Volume, directory: &Inode, enough: usize) -> Result<usize> {
    let mut names = 0;
    dir::read_dir(volume, directory, DirOffset::default(), &mut |entry| {
        names += usize::from(!matches!(entry.name, b"." | b".."));
        if names > enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(names)
}

fn own(runs: &mut Runs, number: u32, piece: Piece) -> Result<()> {
    if runs.add(piece.first.0..piece.first.0 + piece.len) {
        return Ok(());
    }
    let detail = format!("{} blocks from {} on are mapped more than once", piece.len, piece.first);
    Err(corrupt_inode("block map", number, None, detail))
}

/// What a file has on the disk in a range of its blocks.
pub(super) fn pieces(volume: &Volume, inode: &Inode, range: Range<u64>) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let end = range.end.min(map::limit(volume, inode));
    let mut at = range.start;
    while at < end {
        let run = map::lookup(volume, inode, FileBlock(at as u32))?;
        let len = run.len.min(end - at);
        if let RunState::Mapped(first) | RunState::Unwritten(first) = run.state {
            pieces.push(Piece { at, first, len });
        }
        if pieces.len() > MAX_PIECES {
            return Err(too_large());
        }
        at += len;
    }
    Ok(pieces)
}

fn fate(volume: &Mounted, shown: &Volume, number: u32, counts: Counts) -> Result<Fate> {
    let superblock = volume.superblock();
    let is_reserved = number < superblock.geometry().first_inode() && number != ROOT_INODE;
    if is_reserved || superblock.orphan_file_inode() == Some(number) {
        return Err(wrong(number, "is changed, which is the filesystem's own"));
    }
    let old = read_used(volume, number)?;
    let Counts { gained, lost } = counts;
    let change = shown.fast_commits().inode(number);
    if shown.fast_commits().is_new(number) {
        let names = old.as_ref().map_or(0, names_of);
        if lost != names {
            return Err(wrong(number, format!("is another inode now, and {lost} of {names} names are gone")));
        }
        return match (gained, old) {
            (0, None) => Ok(Fate::Nothing),
            (0, Some(old)) => Ok(Fate::Goes { old }),
            (links, old) => Ok(Fate::Made { new: new_inode(shown, number, links)?, old }),
        };
    }
    let Some(old) = old else {
        return match change {
            None => Ok(Fate::Nothing),
            Some(_) => Err(wrong(number, "is changed, and not in use")),
        };
    };
    let is_directory = old.kind == FileType::Directory;
    let before = names_of(&old);
    let Some(links) = (before + gained).checked_sub(lost) else {
        return Err(wrong(number, format!("loses {lost} names, and has {before}")));
    };
    if links == 0 {
        return Ok(Fate::Goes { old });
    }
    let mut new = Inode::read_linked_or_not(shown, number, inode::locate(shown, number)?)?;
    if is_directory {
        check_one_name(number, links)?;
        new.links = links_of_directory(shown, &new)?;
        // The bytes behind its fields stay: names may lie there, and what the log has of them is newer than the names
        // that are still to change.
        new.extra_bytes = old.extra_bytes;
    } else {
        new.links = counted(number, links)?;
    }
    let are_mapped = map::is_mapped(volume, &old) && map::is_mapped(volume, &new);
    if are_mapped && map::has_extents(&old) != map::has_extents(&new) {
        return Err(wrong(number, "gets another kind of map, which is logged nowhere"));
    }
    if new.xattr_block != old.xattr_block {
        return Err(wrong(number, "gets another block of attributes, which is logged nowhere"));
    }
    Ok(Fate::Stays { new, sectors: old.sectors })
}

/// How many names lead to an inode on the disk, but for dots.
fn names_of(inode: &Inode) -> u32 {
    if inode.kind == FileType::Directory { u32::from(inode.links > 0) } else { u32::from(inode.links) }
}

/// The links of a directory that is in use.
fn links_of_directory(shown: &Volume, inode: &Inode) -> Result<u16> {
    if inode.links == 0 { Err(Error::Stale) } else { dir::links(shown, inode) }
}

/// An inode that fast commits made.
fn new_inode(shown: &Volume, number: u32, links: u32) -> Result<Inode> {
    let mut new = Inode::read_linked_or_not(shown, number, inode::locate(shown, number)?)?;
    if new.xattr_block != FsBlock(0) {
        return Err(wrong(number, "comes with a block of attributes, which is logged nowhere"));
    }
    if new.kind == FileType::Directory {
        check_one_name(number, links)?;
        new.links = links_of_directory(shown, &new)?;
    } else {
        new.links = counted(number, links)?;
    }
    Ok(new)
}

/// An inode that is in use on the disk.
fn read_used(volume: &Mounted, number: u32) -> Result<Option<Inode>> {
    let location = inode::locate(volume, number)?;
    if !volume.writer()?.allocator.is_inode_used(volume, number)? {
        return Ok(None);
    }
    Inode::read_linked_or_not(volume, number, location).map(Some)
}

fn check_one_name(number: u32, names: u32) -> Result<()> {
    if names == 1 { Ok(()) } else { Err(wrong(number, format!("is a directory with {names} names"))) }
}

fn counted(number: u32, links: u32) -> Result<u16> {
    u16::try_from(links).map_err(|_| wrong(number, format!("has {links} names")))
}

fn wrong(number: u32, detail: impl std::fmt::Display) -> Error {
    corrupt("fast commit", format!("inode {number} {detail}; let e2fsck recover what it can"))
}
