//! The list of files whose reservation window has a surplus, so that it can be freed when space runs short.
//!
//! Locks: one of class `file_space`, with no other of the class held.

use std::sync::Weak;

use undercroft_sync::{Mutex, order};

use super::InUse;

/// Files whose reservation window has a surplus.
#[derive(Debug)]
pub(crate) struct WindowList(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    files: Vec<Weak<dyn InUse>>,
    /// Length of the list after inodes that are no longer in use were removed from it.
    in_use: usize,
}

impl WindowList {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(&order::FILE_SPACE, List::default()))
    }

    /// Lists a file whose reservation window has got a surplus.
    pub(crate) fn add(&self, file: Weak<dyn InUse>) {
        const FEW: usize = 64;
        let mut list = self.0.lock();
        list.files.push(file);
        if list.files.len() > 2 * list.in_use + FEW {
            list.files.retain(|file| file.strong_count() > 0);
            list.in_use = list.files.len();
        }
    }

    /// Frees the reservation windows of all files. `false` if there were none.
    pub(crate) fn free_all(&self) -> bool {
        let files = std::mem::take(&mut *self.0.lock()).files;
        let mut found = false;
        for file in files.iter().filter_map(Weak::upgrade) {
            found |= file.free_window();
        }
        found
    }
}
