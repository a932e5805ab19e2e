//! Threads that write for a mount, in the eyes of the kernel's memory management.
//!
//! A mount that may have much of what was written in memory depends on its server to get rid of it. If a thread of the
//! server, short of memory itself, were made to wait for just that (or were stopped for writing too fast to the disk
//! below), both would wait for ever. `PR_SET_IO_FLUSHER` exempts a thread. Threads and processes that it starts inherit
//! that, so one call at a program's beginning is enough; what has been started before is not reached.

use std::fs;

/// Flags of a task that `PR_SET_IO_FLUSHER` sets: allocating memory starts no I/O, and writing is throttled only for the
/// sake of the disk below.
const FLUSHER_FLAGS: u64 = 0x0008_0000 | 0x0010_0000;

/// The calling thread, and those that it starts from here on, are counted as threads that write for a filesystem. Called
/// by a program that is going to [`mount`](crate::mount) for writing, before it starts threads: a mount gets as much of
/// the kernel's memory as a disk's filesystem only where all threads of the process are. It takes the capability
/// `CAP_SYS_RESOURCE`; without it nothing changes.
pub fn become_io_flusher() {
    // Without it the mount is served with the little memory that the kernel gives it by itself.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Whether all threads of the process, and so all that they start, are counted as such.
pub(crate) fn all_threads_are() -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return false };
    tasks.into_iter().all(|task| {
        let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
        // One that has ended meanwhile is not asked.
        stat.map_or(true, |stat| {
            task_flags(&stat).is_some_and(|flags| flags & FLUSHER_FLAGS == FLUSHER_FLAGS)
        })
    })
}

/// The flags in `/proc/.../stat`: the seventh field after the name, which may hold anything.
fn task_flags(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_after_any_name() {
        let stat = "4711 (a) b (c) R 1 2 3 0 -1 1572928 9 0 0";
        assert_eq!(task_flags(stat), Some(1_572_928));
        assert_eq!(task_flags("4711 (short) R 1 2"), None);
    }

    /// The threads of a test were not started as such.
    #[test]
    fn a_thread_and_those_it_starts_are_counted() {
        let flags =
            || task_flags(&fs::read_to_string("/proc/thread-self/stat").unwrap()).unwrap() & FLUSHER_FLAGS;
        std::thread::spawn(move || {
            assert_eq!(flags(), 0);
            become_io_flusher();
            // A container may keep the right to this from root.
            let expected = if rustix::process::is_io_flusher().unwrap_or(false) { FLUSHER_FLAGS } else { 0 };
            assert_eq!(flags(), expected);
            std::thread::spawn(move || assert_eq!(flags(), expected)).join().unwrap();
            assert!(!all_threads_are());
        })
        .join()
        .unwrap();
    }
}
