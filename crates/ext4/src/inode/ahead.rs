//! Files that have space ahead of what was written to them, so that it is found when there is no other.
//!
//! Locks: one of class `file_space`, with no other of the class held.

use std::sync::Weak;

use undercroft_sync::{Mutex, order};

use super::InUse;

/// Files that grow.
#[derive(Debug)]
pub(crate) struct Growing(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    files: Vec<Weak<dyn InUse>>,
    /// How long the list was after those had been taken out that are not in use any more.
    in_use: usize,
}

impl Growing {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(&order::FILE_SPACE, List::default()))
    }

    /// A file begins to have space ahead.
    pub(crate) fn add(&self, file: Weak<dyn InUse>) {
        const FEW: usize = 64;
        let mut list = self.0.lock();
        list.files.push(file);
        if list.files.len() > 2 * list.in_use + FEW {
            list.files.retain(|file| file.strong_count() > 0);
            list.in_use = list.files.len();
        }
    }

    /// Takes back what all files have ahead. `false` if there was nothing.
    pub(crate) fn give_back(&self) -> bool {
        let files = std::mem::take(&mut *self.0.lock()).files;
        let mut found = false;
        for file in files.iter().filter_map(Weak::upgrade) {
            found |= file.give_back_ahead();
        }
        found
    }
}
