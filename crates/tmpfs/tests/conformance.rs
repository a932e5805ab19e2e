//! The conformance suite that every filesystem shares, in parallel and in the plain form.

use std::sync::Arc;

use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::conformance::{Profile, check, populate_through, standard_tree};
use undercroft_vfs::{Vfs, VfsOptions};

fn mount(parallel: bool) -> Arc<Vfs> {
    let options = VfsOptions { parallel_directory_operations: parallel, ..VfsOptions::default() };
    Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), options)
}

fn holds_the_standard_tree(parallel: bool) {
    let (vfs, tree) = (mount(parallel), standard_tree(&Profile::default()));
    populate_through(&vfs, b"", &tree).unwrap();
    check(&vfs, b"", &tree).assert_passed();
}

#[test]
fn the_standard_tree_in_parallel() {
    holds_the_standard_tree(true);
}

#[test]
fn the_standard_tree_in_the_plain_form() {
    holds_the_standard_tree(false);
}
