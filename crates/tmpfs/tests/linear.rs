//! Random concurrent changes of names are linearizable, in parallel and in the plain form.
//!
//! `UNDERCROFT_SEED` replays one seed (many times, because threads meet as they like); `UNDERCROFT_SOAK_SECONDS` says for
//! how long schedules are tried.

use std::env;
use std::time::{Duration, Instant};

use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::conformance::{LinearOptions, check_schedule};
use undercroft_vfs::{Vfs, VfsOptions};

/// The two forms are tried side by side.
const SECONDS: u64 = 30;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn explore(parallel: bool) {
    let options = VfsOptions { parallel_directory_operations: parallel, ..VfsOptions::default() };
    let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), options);
    let root = vfs.root().unwrap();
    let seconds = number("UNDERCROFT_SOAK_SECONDS").unwrap_or(SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    for round in 0.. {
        if Instant::now() >= end {
            println!("{round} schedules");
            break;
        }
        let seed = number("UNDERCROFT_SEED").unwrap_or(round);
        let threads = 2 + (seed % 7) as usize;
        let schedule =
            LinearOptions { threads, operations: 24 / threads + 1, names: 2 + (seed / 7 % 3) as u8 };
        if let Err(wrong) = check_schedule(&vfs, &root, seed, schedule) {
            panic!("{wrong}\nreplay with UNDERCROFT_SEED={seed}");
        }
        let space = vfs.filesystem().statfs().unwrap();
        let used = space.inodes - space.inodes_free;
        assert_eq!(used, 1, "only the root's inode is in use after UNDERCROFT_SEED={seed}");
    }
}

#[test]
fn changes_of_names_in_parallel_are_linearizable() {
    explore(true);
}

#[test]
fn changes_of_names_in_the_plain_form_are_linearizable() {
    explore(false);
}
