//! The list of files whose reservation window has a surplus, so that it can be freed when space runs short.
//!
//! Locks: one of class `file_space`, with no other of the class held.

use std::sync::Weak;

use undercroft_sync::{Mutex, order};

use super::InUse;

/// Files whose reservation window has a surplus.
#[derive(Debug)]
pub struct WindowList(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    files: Vec<Weak<dyn InUse>>,
    /// Length of the list after inodes that are no longer in use were removed from it.
    in_use: usize,
}

impl Default for WindowList {
    fn default() -> Self {
        Self(Mutex::new(&order::FILE_SPACE, List::default()))
    }
}

impl WindowList {
    /// Lists a file whose reservation window has got a surplus.
    pub fn add(&self, file: Weak<dyn InUse>) {
        const FEW: usize = 64;
        let mut list = self.0.lock();
        list.files.push(file);
        if list.files.len() > 2 * list.in_use + FEW {
            list.files.retain(|file| file.strong_count() > 0);
            list.in_use = list.files.len();
        }
    }

    /// Frees the reservation windows of all files. `false` if there were none.
    pub fn free_all(&self) -> bool {
        let files = std::mem::take(&mut *self.0.lock()).files;
        let mut found = false;
        for file in files.iter().filter_map(Weak::upgrade) {
            found |= file.free_window();
        }
        found
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use undercroft_sync::atomic::{AtomicBool, Ordering};
    use undercroft_vfs::Result;

    use super::*;

    /// A file that may have a window.
    struct File(AtomicBool);

    impl InUse for File {
        fn store_lazy_times(&self) -> Result<()> {
            Ok(())
        }

        fn store_lazy_times_if_room(&self) -> Result<bool> {
            Ok(true)
        }

        fn free_window(&self) -> bool {
            self.0.swap(false, Ordering::Relaxed)
        }
    }

    fn listed(list: &WindowList) -> Arc<File> {
        let file = Arc::new(File(AtomicBool::new(true)));
        let weak: Weak<File> = Arc::downgrade(&file);
        list.add(weak);
        file
    }

    #[test]
    fn each_window_is_freed_once() {
        let list = WindowList::default();
        assert!(!list.free_all());
        let files = [listed(&list), listed(&list)];
        assert!(list.free_all());
        assert!(files.iter().all(|file| !file.free_window()));
        assert!(!list.free_all());
    }

    #[test]
    fn files_that_are_gone_leave_the_list() {
        let list = WindowList::default();
        let kept = listed(&list);
        for _ in 0..1000 {
            drop(listed(&list));
        }
        assert!(list.0.lock().files.len() < 100);
        assert!(list.free_all());
        assert!(!kept.free_window());
    }
}
