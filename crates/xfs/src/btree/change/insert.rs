//! Inserting a record: where there is no room, a block shares with its neighbour or is split.

use undercroft_vfs::Result;

use super::super::cursor::Step;
use super::super::{Btree, Root, max_levels};
use super::view::{Entries, Layout};
use super::{ChangeKind, Held, Neighbour, Place, TreeSpace};
use crate::format::FsBlock;
use crate::transaction::Handle;

/// What happens to a block that gets an entry.
enum Gain {
    /// It has room.
    Fits,
    /// It shares with a neighbour.
    Share(Neighbour),
    /// It is split; the block after it is held.
    Split(Option<Held>),
}

impl<K: ChangeKind> Btree<'_, K> {
    /// Inserts a record, which no record of the tree overlaps.
    ///
    /// # Errors
    /// Corruption; I/O failure; those of `space`. Nothing of the tree has changed then, or the changes are aborted.
    pub(crate) fn insert(
        &mut self,
        handle: &Handle<'_>,
        space: &mut dyn TreeSpace,
        record: &K::Record,
    ) -> Result<()> {
        let (path, found) = self.cursor().way_to(&K::key(record))?;
        let Some(leaf) = path.last().filter(|_| !found) else {
            return Err(self.corrupt(None, format!("has a record in the place of {record:?}")));
        };
        self.check_place(&leaf.node, leaf.n.checked_sub(1), leaf.n, record)?;
        let gains = self.plan_insertion(&path)?;
        let places = Self::hold(path);
        let mut bytes = vec![0; K::RECORD_BYTES];
        K::pack(record, &mut bytes, self.volume.geometry());
        let taken = self.take_blocks(handle, space, &places, &gains)?;
        let inserted = self.gain(handle, &places, gains, taken, Entries::one(&bytes, &[]));
        handle.or_abort(inserted)
    }

    /// Blocks that the insertion of a record at `key`, or of two near each other, takes as the tree is now: of two at most.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn growth_at(&self, key: &K::Key, records: usize) -> Result<u32> {
        let (path, _) = self.cursor().way_to(key)?;
        let splits = if records == 1 {
            self.plan_insertion(&path)?.iter().filter(|gain| matches!(gain, Gain::Split(_))).count()
        } else {
            path.iter().rev().take_while(|step| step.node.count + records > self.room(&step.node)).count()
        };
        // The root of a group's tree gets a block for its half and one for the new root.
        Ok((splits + usize::from(splits == path.len())) as u32)
    }

    /// What happens to each block on the way, from the leaf up to the first one that no further entry comes out of.
    fn plan_insertion(&self, path: &[Step<K>]) -> Result<Vec<Gain>> {
        let mut gains = Vec::new();
        for (depth, Step { node, .. }) in path.iter().enumerate().rev() {
            let room = self.room(node);
            if node.count < room {
                gains.push(Gain::Fits);
                break;
            }
            let Some(Step { node: parent, n }) = depth.checked_sub(1).map(|above| &path[above]) else {
                self.check_growth(node.count, node.level)?;
                gains.push(Gain::Split(None));
                break;
            };
            let mut after = None;
            let mut shares = None;
            for is_left in [true, false] {
                let sibling =
                    if is_left { n.checked_sub(1) } else { Some(n + 1).filter(|n| *n < parent.count) };
                let Some(sibling) = sibling else { continue };
                let neighbour = self.read_neighbour(parent, sibling, node, is_left)?;
                let held = Held::new(&neighbour);
                if neighbour.count < room {
                    shares = Some(Neighbour { held, is_left });
                    break;
                }
                if !is_left {
                    after = Some(held);
                }
            }
            if let Some(neighbour) = shares {
                gains.push(Gain::Share(neighbour));
                break;
            }
            if after.is_none() {
                after = self.read_next(node)?.map(|next| Held::new(&next));
            }
            gains.push(Gain::Split(after));
        }
        Ok(gains)
    }

    /// Whether the tree can have one level more.
    fn check_growth(&self, entries: usize, level: u8) -> Result<()> {
        let geometry = self.volume.geometry();
        let blocks = if K::LONG { geometry.blocks() } else { u64::from(geometry.ag_len(self.ag)) };
        if self.levels >= max_levels::<K>(geometry, blocks) {
            return Err(self.corrupt(None, format!("has {} levels and no room for another", self.levels)));
        }
        if matches!(self.root, Root::Fork(_)) && entries >= self.block_room(level) {
            return Err(self.corrupt(None, "has a root that is larger than a block".into()));
        }
        Ok(())
    }

    /// Takes the blocks that the tree grows by.
    fn take_blocks(
        &self,
        handle: &Handle<'_>,
        space: &mut dyn TreeSpace,
        places: &[Place],
        gains: &[Gain],
    ) -> Result<Vec<FsBlock>> {
        let splits = gains.iter().filter(|gain| matches!(gain, Gain::Split(_))).count();
        // The root of a group's tree gets a block for its half and one for the new root.
        let root_splits = splits == places.len() && matches!(self.root, Root::Block(_));
        let mut taken: Vec<FsBlock> = Vec::with_capacity(splits + 1);
        for n in 0..splits + usize::from(root_splits) {
            let block = space.take(handle).and_then(|block| {
                if taken.contains(&block) || places.iter().any(|place| place.held.at() == Some(block)) {
                    return Err(
                        self.corrupt(Some(block), "was given to the tree and belongs to it already".into())
                    );
                }
                Ok(block)
            });
            // The first one that there is not leaves everything as it was.
            taken.push(if n == 0 { block? } else { handle.or_abort(block)? });
        }
        Ok(taken)
    }

    fn gain(
        &mut self,
        handle: &Handle<'_>,
        places: &[Place],
        gains: Vec<Gain>,
        mut taken: Vec<FsBlock>,
        record: Entries,
    ) -> Result<()> {
        let mut entry = record;
        let mut at = places.last().map_or(0, |leaf| leaf.n);
        for (depth, gain) in (0..places.len()).rev().zip(gains) {
            let held = &places[depth].held;
            match gain {
                Gain::Fits => {
                    self.edit(handle, held, |mut view| view.insert(at, &entry));
                    self.raise_keys(handle, places, depth);
                    return Ok(());
                }
                Gain::Share(neighbour) => {
                    let mut all = self.entries(held);
                    all.insert(at, &entry);
                    self.share(handle, places, depth, &neighbour, all);
                    return Ok(());
                }
                Gain::Split(_) if held.block.is_none() => {
                    return self.push_root_down(handle, at, &entry, taken.pop());
                }
                Gain::Split(after) => {
                    let mut left = self.entries(held);
                    left.insert(at, &entry);
                    let right = left.split_off(left.count.div_ceil(2));
                    let new = self.take_block(handle, taken.pop(), held.level)?;
                    self.set_entries(handle, held, &left);
                    self.set_entries(handle, &new, &right);
                    self.set_sibling(handle, &new, true, held.at());
                    self.set_sibling(handle, &new, false, after.as_ref().and_then(Held::at));
                    self.set_sibling(handle, held, false, new.at());
                    if let Some(after) = &after {
                        self.set_sibling(handle, after, true, new.at());
                    }
                    entry = self.entry_of(&new);
                    if depth == 0 {
                        let mut entries = self.entry_of(held);
                        entries.append(&entry);
                        return self.grow(handle, taken.pop(), held.level + 1, &entries);
                    }
                    let parent = &places[depth - 1];
                    self.set_key_of(handle, &parent.held, parent.n, held);
                    at = parent.n + 1;
                }
            }
        }
        Ok(())
    }

    /// The entry that a parent has for a block.
    fn entry_of(&self, held: &Held) -> Entries {
        let pointer = held.at().map(|at| self.pointer_to(at)).unwrap_or_default();
        Entries::one(&self.pointer_key(held)[..K::KEY_BYTES], &pointer)
    }

    fn take_block(&self, handle: &Handle<'_>, taken: Option<FsBlock>, level: u8) -> Result<Held> {
        let Some(at) = taken else {
            return Err(self.corrupt(None, "grows by more blocks than were counted".into()));
        };
        self.make_block(handle, at, level)
    }

    /// Lets a block, which is to have the entries `all`, share them evenly with its neighbour.
    pub(super) fn share(
        &mut self,
        handle: &Handle<'_>,
        places: &[Place],
        depth: usize,
        neighbour: &Neighbour,
        all: Entries,
    ) {
        let (held, parent) = (&places[depth].held, &places[depth - 1]);
        let others = self.entries(&neighbour.held);
        let (mut left, tail) = if neighbour.is_left { (others, all) } else { (all, others) };
        left.append(&tail);
        let right = left.split_off(left.count.div_ceil(2));
        let (first, second) =
            if neighbour.is_left { (&neighbour.held, held) } else { (held, &neighbour.held) };
        self.set_entries(handle, first, &left);
        self.set_entries(handle, second, &right);
        let n = parent.n - usize::from(neighbour.is_left);
        self.set_key_of(handle, &parent.held, n, first);
        self.set_key_of(handle, &parent.held, n + 1, second);
        self.raise_keys(handle, places, depth - 1);
    }

    /// Gives a tree of a group a new root.
    fn grow(
        &mut self,
        handle: &Handle<'_>,
        taken: Option<FsBlock>,
        level: u8,
        entries: &Entries,
    ) -> Result<()> {
        let root = self.take_block(handle, taken, level)?;
        self.set_entries(handle, &root, entries);
        if let Some(at) = root.at() {
            self.root = Root::Block(at);
        }
        self.levels += 1;
        Ok(())
    }

    /// Moves the entries of a root in a fork, with one more, into a block, the only child of the root from then on.
    fn push_root_down(
        &mut self,
        handle: &Handle<'_>,
        at: usize,
        entry: &Entries,
        taken: Option<FsBlock>,
    ) -> Result<()> {
        let level = self.levels - 1;
        let Root::Fork(fork) = &self.root else { return Ok(()) };
        let len = fork.len();
        let root = Held { block: None, level };
        let mut entries = self.entries(&root);
        entries.insert(at, entry);
        let child = self.take_block(handle, taken, level)?;
        self.set_entries(handle, &child, &entries);
        let entry = self.entry_of(&child);
        debug_assert!(Layout::of_fork::<K>(len).room > 0);
        self.edit(handle, &root, |mut view| {
            view.set_entries(&entry);
            view.set_level(level + 1);
        });
        self.levels += 1;
        Ok(())
    }
}
