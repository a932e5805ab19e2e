//! Deleting a record: a block that falls below half takes entries from its neighbour or is joined with it.

use undercroft_vfs::Result;

use super::super::cursor::Step;
use super::super::{Btree, Root};
use super::view::Layout;
use super::{ChangeKind, Held, Neighbour, Place, TreeSpace};
use crate::transaction::Handle;

/// What happens to a block that loses an entry.
enum Loss {
    /// It has enough left, or nothing to be joined with.
    Stays,
    /// It shares with a neighbour.
    Share(Neighbour),
    /// It is joined with a neighbour; the block after both is held.
    Join(Neighbour, Option<Held>),
}

impl<K: ChangeKind> Btree<'_, K> {
    /// Deletes the record with this key. The last record of a tree in a fork is not deleted: a fork with so few has a
    /// list.
    ///
    /// # Errors
    /// Corruption, also when there is no such record; I/O failure; those of `space`. Nothing of the tree has changed
    /// then, or the changes are aborted.
    pub(crate) fn delete(
        &mut self,
        handle: &Handle<'_>,
        space: &mut dyn TreeSpace,
        key: &K::Key,
    ) -> Result<()> {
        let (path, found) = self.cursor().way_to(key)?;
        if !found {
            return Err(self.corrupt(None, format!("has no record of {key:?}, which is to be deleted")));
        }
        let losses = self.plan_deletion(&path)?;
        let places = Self::hold(path);
        let deleted = self.lose(handle, space, &places, losses);
        handle.or_abort(deleted)
    }

    /// What happens to each block on the way, from the leaf up to the first one that no further entry leaves.
    fn plan_deletion(&self, path: &[Step<K>]) -> Result<Vec<Loss>> {
        let mut losses = Vec::new();
        for (depth, Step { node, .. }) in path.iter().enumerate().rev() {
            let room = self.room(node);
            let left = node.count.saturating_sub(1);
            let above = depth.checked_sub(1).map(|above| &path[above]);
            let Some(Step { node: parent, n }) = above.filter(|_| left < room / 2) else {
                losses.push(Loss::Stays);
                break;
            };
            if parent.count < 2 {
                if left == 0 {
                    return Err(self.corrupt(node.block, "would become empty and has no neighbour".into()));
                }
                losses.push(Loss::Stays);
                break;
            }
            let is_left = *n > 0;
            let sibling = if is_left { n - 1 } else { n + 1 };
            let neighbour = self.read_neighbour(parent, sibling, node, is_left)?;
            let held = Neighbour { held: Held::new(&neighbour), is_left };
            if neighbour.count + left > room {
                losses.push(Loss::Share(held));
                break;
            }
            let after = self.read_next(if is_left { node } else { &neighbour })?;
            let after = after.map(|after| Held::new(&after));
            losses.push(Loss::Join(held, after));
        }
        Ok(losses)
    }

    fn lose(
        &mut self,
        handle: &Handle<'_>,
        space: &mut dyn TreeSpace,
        places: &[Place],
        losses: Vec<Loss>,
    ) -> Result<()> {
        let mut at = places.last().map_or(0, |leaf| leaf.n);
        // The block below the root that is on the way, or that took its entries.
        let mut below_root = places.get(1).map(|place| place.held.clone());
        for (depth, loss) in (0..places.len()).rev().zip(losses) {
            let held = &places[depth].held;
            self.edit(handle, held, |mut view| view.remove(at));
            match loss {
                Loss::Stays => {
                    if self.count(held) > 0 {
                        self.raise_keys(handle, places, depth);
                    }
                    break;
                }
                Loss::Share(neighbour) => {
                    let all = self.entries(held);
                    self.share(handle, places, depth, &neighbour, all);
                    break;
                }
                Loss::Join(neighbour, after) => {
                    let parent = &places[depth - 1];
                    let (left, right) =
                        if neighbour.is_left { (&neighbour.held, held) } else { (held, &neighbour.held) };
                    let mut all = self.entries(left);
                    all.append(&self.entries(right));
                    self.set_entries(handle, left, &all);
                    self.set_sibling(handle, left, false, after.as_ref().and_then(Held::at));
                    if let Some(after) = &after {
                        self.set_sibling(handle, after, true, left.at());
                    }
                    let n = parent.n - usize::from(neighbour.is_left);
                    self.set_key_of(handle, &parent.held, n, left);
                    Self::put_block(handle, space, right)?;
                    at = n + 1;
                    if depth == 1 {
                        below_root = Some(left.clone());
                    }
                }
            }
        }
        match (places.first(), below_root) {
            (Some(root), Some(child)) => self.shrink(handle, space, &root.held, &child),
            _ => Ok(()),
        }
    }

    fn put_block(handle: &Handle<'_>, space: &mut dyn TreeSpace, held: &Held) -> Result<()> {
        let Some(at) = held.at() else { return Ok(()) };
        handle.forget(at);
        space.put(handle, at)
    }

    /// Takes away a root that has one child only. In a fork the child's entries move into the root, when they fit there
    /// and the child is no leaf.
    fn shrink(
        &mut self,
        handle: &Handle<'_>,
        space: &mut dyn TreeSpace,
        root: &Held,
        child: &Held,
    ) -> Result<()> {
        if self.count(root) != 1 {
            return Ok(());
        }
        match (&self.root, child.at()) {
            (Root::Block(_), Some(at)) => {
                self.root = Root::Block(at);
                self.levels -= 1;
                Self::put_block(handle, space, root)
            }
            (Root::Fork(fork), Some(_)) => {
                let entries = self.entries(child);
                if child.level == 0 || entries.count > Layout::of_fork::<K>(fork.len()).room {
                    return Ok(());
                }
                self.edit(handle, root, |mut view| {
                    view.set_entries(&entries);
                    view.set_level(child.level);
                });
                self.levels -= 1;
                Self::put_block(handle, space, child)
            }
            (_, None) => Ok(()),
        }
    }
}
