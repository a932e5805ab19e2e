//! The conformance suite that every filesystem shares, in parallel and in the plain form.
//!
//! `UNDERCROFT_SEED` replays a seed.

use std::env;
use std::sync::Arc;

use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::conformance::{
    Profile, WritingProfile, check, check_writing, populate_through, standard_tree,
};
use undercroft_vfs::{Vfs, VfsOptions};

fn mount(parallel: bool, options: &TmpfsOptions) -> Arc<Vfs> {
    let vfs_options = VfsOptions { parallel_directory_operations: parallel, ..VfsOptions::default() };
    Vfs::new(Tmpfs::new(options).unwrap(), vfs_options)
}

fn holds_the_standard_tree(parallel: bool) {
    let (vfs, tree) = (mount(parallel, &TmpfsOptions::default()), standard_tree(&Profile::default()));
    populate_through(&vfs, b"", &tree).unwrap();
    check(&vfs, b"", &tree).assert_passed();
}

fn can_be_written_to(parallel: bool) {
    let seed =
        env::var("UNDERCROFT_SEED").map_or(0, |seed| seed.parse().expect("UNDERCROFT_SEED is a number"));
    let small = TmpfsOptions { size_bytes: Some(4 << 20), inodes: Some(200), ..TmpfsOptions::default() };
    let make = || mount(parallel, &small);
    let profile = WritingProfile { small: Some(&make), seed, ..WritingProfile::default() };
    let outcome = check_writing(&mount(parallel, &TmpfsOptions::default()), &profile);
    eprintln!("{} checks", outcome.checked);
    outcome.assert_passed();
}

#[test]
fn the_standard_tree_in_parallel() {
    holds_the_standard_tree(true);
}

#[test]
fn the_standard_tree_in_the_plain_form() {
    holds_the_standard_tree(false);
}

#[test]
fn writing_in_parallel() {
    can_be_written_to(true);
}

#[test]
fn writing_in_the_plain_form() {
    can_be_written_to(false);
}
