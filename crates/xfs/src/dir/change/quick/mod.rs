//! Names added and removed in place, where neither blocks come nor go and the form stays.
//!
//! | module | which form |
//! | --- | --- |
//! | `short` | in the inode |
//! | `single` | one block |
//! | `indexed` | blocks of names with one leaf, or with a tree |
//! | `locks` | the locks of leaves and of blocks of names |
//!
//! Most changes of names are like that. They copy no block, and in the forms with an index of its own they run beside each
//! other in one directory. What is not like that changes nothing, and the caller [plans](super::Change) it: no room, a
//! block that becomes empty or is joined, a directory that fits a smaller form, more entries of one hash than a leaf.
//!
//! Everything that can be refused is refused before the first change, and the number of a new inode is asked for last. The
//! change takes [`usual_credits`](super::usual_credits) at most.
//!
//! Locks, in their order, under a handle:
//!
//! - the directory's `names` (class `directory_index`): exclusive in the two small forms, shared in the others;
//! - the leaf's lock (`directory_leaf`), from the look-up of the name until all is changed, so what its entries lead to
//!   is there;
//! - the lock of a block of names (`directory_data`), from the look at its unused space until it and the free index are
//!   changed;
//! - the inode's `fields`.
//!
//! A name is entered into the block of names first and then into the leaf, and removed the other way round. A reader
//! holds `names` shared and may still find an entry of the leaf whose name has gone since, see `dir::live`. A name that stays
//! is found at any time: leaves are read as one version each, and entries move within a leaf only.

mod indexed;
mod locks;
mod short;
mod single;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, FileType, Ino, Result};

pub(crate) use self::locks::BlockLocks;
use super::super::data::{BEST_COUNT, DataBlock, Item as DataItem};
use super::super::directory::STRUCTURE;
use super::super::entry::{Position, entry_bytes};
use super::data::{Space, note_best, put_space};
use super::edit::is_same_folded;
use crate::da::Layout;
use crate::error::{Verdict, corrupt_inode};
use crate::format::block_header::{self, HeaderKind};
use crate::format::{FileBlock, FsBlock};
use crate::inode::{self, Fork, Inode, InodeState};
use crate::map::{self, Run};
use crate::transaction::{Block, Handle};
use crate::volume::{Validated, Volume};

/// Gives a new inode's number, once everything else is certain. Called with all of the locks held: it takes none of them.
pub(crate) type GiveNumber<'a> = &'a mut dyn FnMut() -> Result<Ino>;

/// Changes the inode's times and links; returns whether it is to be stored for them.
pub(crate) type Touch<'a> = &'a mut dyn FnMut(&mut Inode) -> bool;

/// Adds a name. `false`, with nothing changed and no number taken, where that needs a plan.
///
/// # Errors
/// [`Exists`](Error::Exists); what `number` answers; corruption; I/O failure.
pub(crate) fn add(
    dir: &InodeState,
    handle: &Handle<'_>,
    name: &[u8],
    kind: FileType,
    number: GiveNumber<'_>,
    touch: Touch<'_>,
) -> Result<bool> {
    let Some(quick) = Quick::new(dir, handle, name) else { return Ok(false) };
    let _inode = quick.inode_block()?;
    let added = quick.in_form(|quick, form| match form {
        Form::Short => quick.add_short(kind, number, touch),
        Form::Single(fork) => quick.add_single(fork, kind, number, touch),
        Form::Indexed(fork) => quick.add_indexed(fork, kind, number, touch),
    });
    or_planned(added)
}

/// What cannot be done in place is planned: blocks that lie in several extents are changed by a plan.
fn or_planned(outcome: Result<bool>) -> Result<bool> {
    match outcome {
        Err(Error::Unsupported(_)) => Ok(false),
        outcome => outcome,
    }
}

/// Removes a name that leads to `ino`. `false`, with nothing changed, where that needs a plan.
///
/// # Errors
/// [`NotFound`](Error::NotFound); corruption; I/O failure.
pub(crate) fn remove(
    dir: &InodeState,
    handle: &Handle<'_>,
    name: &[u8],
    ino: Ino,
    touch: Touch<'_>,
) -> Result<bool> {
    let Some(quick) = Quick::new(dir, handle, name) else { return Ok(false) };
    let _inode = quick.inode_block()?;
    let removed = quick.in_form(|quick, form| match form {
        Form::Short => quick.remove_short(ino, touch),
        Form::Single(fork) => quick.remove_single(fork, ino, touch),
        Form::Indexed(fork) => quick.remove_indexed(fork, ino, touch),
    });
    or_planned(removed)
}

/// A change of one name.
struct Quick<'a> {
    dir: &'a InodeState,
    volume: &'a Volume,
    handle: &'a Handle<'a>,
    layout: Layout,
    name: &'a [u8],
}

enum Form<'a> {
    Short,
    Single(&'a Fork),
    Indexed(&'a Fork),
}

/// A name that was found.
#[derive(Clone, Copy)]
struct Found {
    at: usize,
    ino: u64,
    is_equal: bool,
}

impl<'a> Quick<'a> {
    fn new(dir: &'a InodeState, handle: &'a Handle<'a>, name: &'a [u8]) -> Option<Self> {
        let volume: &Volume = &dir.volume;
        let layout = Layout::of(volume.superblock());
        layout.self_describing.then_some(Self { dir, volume, handle, layout, name })
    }

    /// Calls `change` with the directory's form and its names locked as that needs.
    fn in_form(&self, change: impl FnOnce(&Self, Form<'_>) -> Result<bool>) -> Result<bool> {
        let dir = self.dir;
        // A guess, which is right most of the time.
        if !dir.is_indexed.load(Ordering::Relaxed) {
            let _names = dir.names.write();
            let fork = {
                let fields = dir.fields.read();
                if matches!(fields.data, Fork::Local(_)) { None } else { Some(fields.data.clone()) }
            };
            let Some(fork) = fork else { return change(self, Form::Short) };
            if !self.has_index(&fork)? {
                return change(self, Form::Single(&fork));
            }
            dir.is_indexed.store(true, Ordering::Relaxed);
        }
        let _names = dir.names.read();
        let fork = dir.fields.read().data.clone();
        if matches!(fork, Fork::Local(_)) || !self.has_index(&fork)? {
            dir.is_indexed.store(false, Ordering::Relaxed);
            return Ok(false);
        }
        change(self, Form::Indexed(&fork))
    }

    fn has_index(&self, fork: &Fork) -> Result<bool> {
        Ok(self.home(fork, self.layout.index_start())?.is_some())
    }

    fn entry_bytes(&self) -> usize {
        entry_bytes(&self.layout, self.name.len())
    }

    /// Where a block of the directory lies, if it is there.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) where it lies in several extents; corruption; I/O failure.
    fn home(&self, fork: &Fork, at: u32) -> Result<Option<FsBlock>> {
        match map::lookup(self.volume, self.dir.ino, fork, FileBlock(u64::from(at)))? {
            Run::Extent(extent) if extent.unwritten => {
                Err(self.corrupt(None, format!("its block {at} was never written")))
            }
            Run::Extent(extent)
                if extent.end() < u64::from(at) + u64::from(self.layout.dir_block_count()) =>
            {
                Err(Error::Unsupported("a directory block in several extents, changed in place".into()))
            }
            Run::Extent(extent) => Ok(Some(extent.block_of(u64::from(at)))),
            Run::Hole { .. } => Ok(None),
        }
    }

    /// A block that must be there, with its header verified.
    fn block(&self, fork: &Fork, at: u32, kind: HeaderKind) -> Result<(FsBlock, Block)> {
        self.block_if_there(fork, at, kind)?
            .ok_or_else(|| self.corrupt(None, format!("its index leads to block {at}, which is not there")))
    }

    /// A block, if it is there, with its header verified.
    fn block_if_there(&self, fork: &Fork, at: u32, kind: HeaderKind) -> Result<Option<(FsBlock, Block)>> {
        let Some(home) = self.home(fork, at)? else { return Ok(None) };
        let block = self.volume.structure(home, self.layout.dir_block_count())?;
        let validated = if kind == HeaderKind::DaBlock { Validated::DaBlock } else { Validated::DirBlock };
        let verdict = {
            let guard = block.lock();
            let (bytes, owner) = (guard.buffer(), self.dir.ino.0);
            bytes
                .verify_once(validated as u32, || self.volume.validate_header(bytes, kind, home, owner))
                .and_then(|()| match block_header::owner(bytes, kind) {
                    found if found == owner => Ok(()),
                    found => Err(format!("says that it belongs to inode {found}").into()),
                })
        };
        self.validated(home, verdict)?;
        Ok(Some((home, block)))
    }

    /// The name, if the entry at `at` of a block of names is it.
    fn compare(&self, data: &DataBlock<'_>, at: usize) -> Verdict<Option<Found>> {
        let entry = data.entry(at)?;
        let is_equal = entry.name == self.name;
        let is_it = is_equal || self.layout.folds_case && is_same_folded(entry.name, self.name);
        Ok(is_it.then_some(Found { at, ino: entry.ino, is_equal }))
    }

    /// The block of names and the byte in it that an entry of the index leads to.
    fn place(&self, address: u32) -> Result<(u32, usize)> {
        let (number, at) = Position(u64::from(address)).split(&self.layout);
        match u32::try_from(number) {
            Ok(number) if number < self.layout.names_end() => Ok((number, at)),
            _ => Err(self.corrupt(None, format!("its index leads to block {number}"))),
        }
    }

    /// The block that holds the inode, in the cache as long as the result is: it is changed last, when reading must not fail
    /// any more.
    fn inode_block(&self) -> Result<Block> {
        self.volume.block(inode::place(self.volume, self.dir.ino)?.0)
    }

    /// Stores the inode if that is due.
    fn finish(&self, touch: Touch<'_>) -> Result<()> {
        let mut fields = self.dir.fields.write();
        if touch(&mut fields) {
            let stored = fields.store(self.handle);
            self.handle.or_abort(stored)?;
            self.dir.lazy_times.clear();
        }
        Ok(())
    }

    fn corrupt(&self, home: Option<FsBlock>, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        corrupt_inode(STRUCTURE, self.dir.ino, home, detail)
    }

    fn validated<T>(&self, home: FsBlock, verdict: Verdict<T>) -> Result<T> {
        verdict.map_err(|detail| self.corrupt(Some(home), detail))
    }
}

/// What becomes of the unused spaces of a block when an entry is removed.
#[derive(Clone, Copy, Debug)]
struct Release {
    /// The space of the entry, with those around it.
    merged: Space,
    /// The largest spaces afterwards, the largest first.
    best: [Space; BEST_COUNT],
    /// Bytes of the names that stay, and how many there are.
    names_bytes: usize,
    names: usize,
}

impl Release {
    /// Plans the removal of the entry at `at`, to which an index led. All of the block is walked, so that a space is never
    /// found by what a neighbour says of itself.
    fn plan(data: &DataBlock<'_>, at: usize) -> Verdict<Self> {
        let layout = data.layout();
        let none = Space { at: 0, len: 0 };
        let mut release = Self { merged: none, best: [none; BEST_COUNT], names_bytes: 0, names: 0 };
        let mut before = none;
        for item in data.items() {
            match item? {
                DataItem::Unused { at, bytes } => {
                    let merged = &mut release.merged;
                    if merged.len > 0 && merged.at + merged.len == at {
                        merged.len += bytes;
                    } else {
                        release.count(before);
                        before = Space { at, len: bytes };
                    }
                }
                DataItem::Entry(entry) => {
                    let (begins, len) =
                        (entry.position.split(layout).1, entry_bytes(layout, entry.name.len()));
                    if begins != at {
                        release.names_bytes += entry.name.len();
                        release.names += 1;
                        release.count(before);
                    } else if before.len > 0 && before.at + before.len == at {
                        release.merged = Space { at: before.at, len: before.len + len };
                    } else {
                        release.merged = Space { at, len };
                        release.count(before);
                    }
                    before = none;
                }
            }
        }
        release.count(before);
        if release.merged.len == 0 {
            return Err(format!("an index leads to byte {at}, where no entry begins").into());
        }
        release.count(release.merged);
        Ok(release)
    }

    fn count(&mut self, space: Space) {
        if let Some(slot) = self.best.iter().position(|best| best.len < space.len) {
            self.best[slot..].rotate_right(1);
            self.best[slot] = space;
        }
    }

    /// Makes it true.
    fn apply(&self, bytes: &mut [u8]) {
        put_space(bytes, self.merged);
        note_best(bytes, &self.best);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{LAYOUT, single_block};
    use super::*;

    #[test]
    fn what_is_released_joins_the_spaces_around_it() {
        let mut bytes =
            single_block(128, 128, &[(b"a", 131, 1), (b"b", 132, 1), (b"c", 133, 1), (b"d", 134, 1)]);
        let plan = |bytes: &[u8], at| {
            let data = DataBlock::validate(bytes, &LAYOUT, 0, true).unwrap();
            Release::plan(&data, at)
        };
        let rest = DataBlock::validate(&bytes, &LAYOUT, 0, true).unwrap().best_unused()[0];
        assert_eq!(rest.0, 160);
        // Between two names; before a name and behind a space; between two spaces.
        let release = plan(&bytes, 112).unwrap();
        assert_eq!((release.merged, release.names), (Space { at: 112, len: 16 }, 5));
        assert_eq!(release.best[0], Space { at: rest.0, len: rest.1 });
        release.apply(&mut bytes);
        let release = plan(&bytes, 128).unwrap();
        assert_eq!(
            (release.merged, release.best[1]),
            (Space { at: 112, len: 32 }, Space { at: 112, len: 32 })
        );
        release.apply(&mut bytes);
        let release = plan(&bytes, 144).unwrap();
        let all = Space { at: 112, len: rest.0 + rest.1 - 112 };
        assert_eq!((release.merged, release.best[0], release.best[1].len), (all, all, 0));
        release.apply(&mut bytes);
        let data = DataBlock::validate(&bytes, &LAYOUT, 0, true).unwrap();
        assert_eq!(data.items().map(Verdict::unwrap).count(), 4);
        assert_eq!(data.best_unused(), [(all.at, all.len), (0, 0), (0, 0)]);
        assert!(plan(&bytes, 112).unwrap_err().contains("no entry begins"));
    }
}
