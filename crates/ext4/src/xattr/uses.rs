//! Changes of the numbers of uses of inodes that hold values.
//!
//! An entry in an inode counts as one use, and so does one in a block, however many inodes share that. What a change
//! takes and gives is added up first: an entry that stays costs nothing.

use undercroft_vfs::Result;

use super::entry::{Entry, Value};
use super::value_inode;
use crate::inode::Inode;
use crate::transaction::Handle;

/// Uses won and lost, by the number of the inode.
#[derive(Debug, Default)]
pub(super) struct Uses(Vec<(u32, i64)>);

impl Uses {
    pub(super) const NONE: Self = Self(Vec::new());

    /// Adds a use for each of these entries.
    pub(super) fn gain<'a>(&mut self, entries: impl Iterator<Item = Entry<'a>>) {
        numbers(entries).for_each(|number| self.add(number, 1));
    }

    /// Takes away a use for each of these entries.
    pub(super) fn lose<'a>(&mut self, entries: impl Iterator<Item = Entry<'a>>) {
        numbers(entries).for_each(|number| self.add(number, -1));
    }

    pub(super) fn add(&mut self, number: u32, by: i64) {
        match self.0.iter_mut().find(|(known, _)| *known == number) {
            Some((_, sum)) => *sum += by,
            None => self.0.push((number, by)),
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|(number, by)| self.add(number, by));
    }

    /// Stores the new numbers on the disk. A value without uses is deleted.
    pub(super) fn store(self, handle: &Handle<'_>, owner: &Inode) -> Result<()> {
        for (number, by) in self.0 {
            if by != 0 {
                value_inode::change_uses(handle, owner, number, by)?;
            }
        }
        Ok(())
    }
}

fn numbers<'a>(entries: impl Iterator<Item = Entry<'a>>) -> impl Iterator<Item = u32> {
    entries.filter_map(|entry| match entry.value {
        Value::Here(_) => None,
        Value::Inode { number, .. } => Some(number),
    })
}
