//! Random schedules of the caches' races: last handles that are dropped while others ask for the number, loads
//! that fail while others wait for them, names that are evicted while they are looked up.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p undercroft-vfs --lib model_tests
//!
//! The filesystem under the caches checks that it is never asked for an inode of which a handle lives. A failure
//! prints the schedule that leads to it; `shuttle::replay` runs it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::rand::{Rng, thread_rng};
use undercroft_sync::thread;

use crate::conformance::{Content, Object, Tree};
use crate::memory_fs::MemoryFs;
use crate::{Error, Ino, Vfs};

const SCHEDULES: usize = 5000;
/// Switches of priority that PCT places in a schedule.
const PCT_DEPTH: usize = 3;
const THREADS: usize = 3;

fn explore(property: fn()) {
    shuttle::check_random(property, SCHEDULES);
    shuttle::check_pct(property, SCHEDULES, PCT_DEPTH);
}

/// A directory with two files, with caches of these sizes.
fn mount(inode_cache_bytes: usize, name_cache_bytes: usize) -> (Arc<Vfs>, Arc<MemoryFs>, [Ino; 3]) {
    let mut tree = Tree::new();
    tree.add("d", Object::Directory);
    tree.add("d/a", Object::File(Content::default()));
    tree.add("d/b", Object::File(Content::default()));
    let (vfs, fs) = MemoryFs::new(&tree).mount(inode_cache_bytes, name_cache_bytes);
    let inos = [fs.ino("d"), fs.ino("d/a"), fs.ino("d/b")];
    (vfs, fs, inos)
}

fn in_threads(work: impl Fn() + Send + Sync + 'static) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let work = Arc::clone(&work);
            thread::spawn(move || work())
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn one_handle_for_each_number() {
    explore(|| {
        let (vfs, fs, inos) = mount(0, 0);
        let counted = Arc::clone(&fs);
        in_threads(move || {
            let mut held = None;
            for _ in 0..3 {
                let ino = inos[thread_rng().gen_range(0..2)];
                let keep = thread_rng().gen_range(0..2) == 0;
                let node = if keep { vfs.node(ino) } else { vfs.node_once(ino) }.unwrap();
                assert_eq!(node.ino(), ino);
                if thread_rng().gen_range(0..2) == 0 {
                    held = Some(node);
                }
            }
            drop(held);
        });
        assert_eq!(counted.live_handles(), 0);
    });
}

#[test]
fn loads_that_fail_are_left_to_the_next() {
    explore(|| {
        let (vfs, fs, inos) = mount(0, 0);
        in_threads(move || {
            for _ in 0..2 {
                fs.failing.store(thread_rng().gen_range(0..2) == 0, Ordering::Relaxed);
                match vfs.node(inos[1]) {
                    Ok(node) => assert_eq!(node.ino(), inos[1]),
                    Err(error) => assert!(matches!(error, Error::Stale)),
                }
            }
        });
    });
}

#[test]
fn a_leaving_node_has_no_other_handle() {
    explore(|| {
        let (vfs, fs, inos) = mount(1 << 20, 1 << 20);
        let (counted, gone) = (Arc::clone(&fs), AtomicBool::new(false));
        in_threads(move || {
            let dir = vfs.node(inos[0]).unwrap();
            for _ in 0..3 {
                if thread_rng().gen_range(0..2) == 0 {
                    // The name stays in the cache, as another one of a damaged disk would.
                    let node = vfs.lookup(&dir, b"a").unwrap();
                    assert!(!gone.load(Ordering::SeqCst));
                    thread::yield_now();
                    assert!(!gone.load(Ordering::SeqCst));
                    drop(node);
                    continue;
                }
                let node = vfs.node(inos[1]).unwrap();
                if let Some(leaving) = vfs.inodes().leave(&node) {
                    gone.store(true, Ordering::SeqCst);
                    thread::yield_now();
                    gone.store(false, Ordering::SeqCst);
                    if thread_rng().gen_range(0..2) == 0 {
                        leaving.gone();
                    }
                }
            }
        });
        assert_eq!(counted.live_handles(), 0);
    });
}

#[test]
fn names_come_and_go() {
    explore(|| {
        let (vfs, _, inos) = mount(0, 1);
        in_threads(move || {
            let dir = vfs.node(inos[0]).unwrap();
            assert_eq!(vfs.lookup(&dir, b"a").unwrap().ino(), inos[1]);
            assert!(matches!(vfs.lookup(&dir, b"none"), Err(Error::NotFound)));
            assert_eq!(vfs.lookup(&dir, b"b").unwrap().ino(), inos[2]);
        });
    });
}
