//! Small schedules of changes of names, with shuttle choosing the thread that runs at every lock: linearizable in
//! each, and no inode is left in use.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p undercroft-tmpfs --test shuttle
//!
//! A failure prints the schedule that leads to it; `shuttle::replay` runs it again.
#![cfg(shuttle)]

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::conformance::{LinearOptions, check_schedule};
use undercroft_vfs::{Credentials, Error, NewObject, RenameFlags, Vfs, VfsOptions};

const SCHEDULES: usize = 1500;
/// Switches of priority that PCT places in a schedule.
const PCT_DEPTH: usize = 4;

fn empty(parallel: bool) -> Arc<Vfs> {
    let options = VfsOptions { parallel_directory_operations: parallel, ..VfsOptions::default() };
    let tmpfs = TmpfsOptions { size_bytes: Some(1 << 20), inodes: Some(1000), ..TmpfsOptions::default() };
    Vfs::new(Tmpfs::new(&tmpfs).unwrap(), options)
}

fn inodes_in_use(vfs: &Vfs) -> u64 {
    let space = vfs.filesystem().statfs().unwrap();
    space.inodes - space.inodes_free
}

fn schedule(parallel: bool, threads: usize, operations: usize) {
    let vfs = empty(parallel);
    let root = vfs.root().unwrap();
    let seed = thread_rng().r#gen();
    check_schedule(&vfs, &root, seed, LinearOptions { threads, operations, names: 2 }).unwrap();
    assert_eq!(inodes_in_use(&vfs), 1, "seed {seed}");
}

/// Removes or replaces a directory while another thread takes its only subdirectory out of it. The removal succeeds as
/// soon as the directory is empty, which may be before the other thread is done.
fn last_subdirectory_goes(parallel: bool, moved: bool, replaced: bool) {
    let vfs = empty(parallel);
    let (caller, root) = (Credentials::root(), vfs.root().unwrap());
    let make = |dir: &_, name: &[u8]| vfs.create(&caller, dir, name, &NewObject::directory(0o755)).unwrap();
    let parent = make(&root, b"parent");
    make(&parent, b"child");
    make(&root, b"other");
    let mut in_use = 4;
    let other = {
        let (vfs, root, parent) = (Arc::clone(&vfs), Arc::clone(&root), Arc::clone(&parent));
        thread::spawn(move || {
            let caller = Credentials::root();
            if moved {
                vfs.rename(&caller, (&parent, b"child"), (&root, b"child"), RenameFlags::empty()).unwrap();
            } else {
                vfs.rmdir(&caller, &parent, b"child").unwrap();
            }
        })
    };
    let removed = if replaced {
        vfs.rename(&caller, (&root, b"other"), (&root, b"parent"), RenameFlags::empty())
    } else {
        vfs.rmdir(&caller, &root, b"parent")
    };
    other.join().unwrap();
    match removed {
        Ok(()) => {
            in_use -= 1;
            assert_eq!(parent.attr().links, 0);
        }
        Err(error) => {
            assert!(matches!(error, Error::NotEmpty), "{error}");
            assert_eq!(parent.attr().links, 2);
        }
    }
    in_use -= u64::from(!moved);
    drop(parent);
    assert_eq!(inodes_in_use(&vfs), in_use);
}

fn explore(property: fn()) {
    shuttle::check_random(property, SCHEDULES);
    shuttle::check_pct(property, SCHEDULES, PCT_DEPTH);
}

#[test]
fn two_threads() {
    explore(|| schedule(true, 2, 5));
}

#[test]
fn three_threads() {
    explore(|| schedule(true, 3, 4));
}

#[test]
fn two_threads_in_the_plain_form() {
    explore(|| schedule(false, 2, 5));
}

#[test]
fn directory_is_freed_that_is_removed_while_its_last_subdirectory_goes() {
    for parallel in [true, false] {
        shuttle::check_random(
            move || {
                let mut random = thread_rng();
                last_subdirectory_goes(parallel, random.r#gen(), random.r#gen());
            },
            SCHEDULES,
        );
    }
}
