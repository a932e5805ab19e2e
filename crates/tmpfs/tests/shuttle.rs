//! Small schedules of changes of names, with shuttle choosing the thread that runs at every lock: linearizable in
//! each.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p undercroft-tmpfs --test shuttle
//!
//! A failure prints the schedule that leads to it; `shuttle::replay` runs it again.
#![cfg(shuttle)]

use shuttle::rand::{Rng, thread_rng};
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::conformance::{LinearOptions, check_schedule};
use undercroft_vfs::{Vfs, VfsOptions};

const SCHEDULES: usize = 1500;
/// Switches of priority that PCT places in a schedule.
const PCT_DEPTH: usize = 4;

fn schedule(parallel: bool, threads: usize, operations: usize) {
    let options = VfsOptions { parallel_directory_operations: parallel, ..VfsOptions::default() };
    let tmpfs = TmpfsOptions { size_bytes: Some(1 << 20), inodes: Some(1000), ..TmpfsOptions::default() };
    let vfs = Vfs::new(Tmpfs::new(&tmpfs).unwrap(), options);
    let root = vfs.root().unwrap();
    let seed = thread_rng().r#gen();
    check_schedule(&vfs, &root, seed, LinearOptions { threads, operations, names: 2 }).unwrap();
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
