//! Changes of a tree that are planned before the first of them is made.

use undercroft_vfs::Result;

use super::changing::ChangingGroup;
use super::trees::GroupTree;
use crate::btree::ChangeKind;

/// A change of one record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<R, K> {
    Insert(R),
    Delete(K),
    /// The record with this key is replaced by one that goes to the same place in the order.
    Update(K, R),
}

impl ChangingGroup<'_> {
    /// Makes changes of a tree, in order.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn make_steps<K: GroupTree + ChangeKind>(
        &mut self,
        steps: &[Step<K::Record, K::Key>],
    ) -> Result<()> {
        let handle = self.handle;
        for (n, step) in steps.iter().enumerate() {
            let made = match step {
                Step::Insert(record) => self.insert::<K>(record),
                Step::Delete(key) => self.delete::<K>(key),
                Step::Update(key, record) => self.update::<K>(key, record),
            };
            if n == 0 { made? } else { handle.or_abort(made)? }
        }
        Ok(())
    }
}
