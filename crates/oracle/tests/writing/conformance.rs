//! The conformance suite that every filesystem shares, written to by us; e2fsck looks at what is left.

use std::cell::RefCell;
use std::sync::Arc;

use undercroft_ext4::WriteOptions;
use undercroft_oracle::{Image, Mke2fs};
use undercroft_vfs::conformance::{
    LinearOptions, Profile, WritingProfile, check, check_schedule, check_writing, populate_through,
    standard_tree,
};
use undercroft_vfs::{Credentials, NewObject, Vfs};

use crate::{Opened, number};

fn can_be_written_to(mke2fs: &Mke2fs, small: &Mke2fs, parallel: bool, profile: WritingProfile<'_>) {
    let image = mke2fs.make().unwrap();
    let opened = Opened::new(image.path(), WriteOptions::default(), parallel);
    let smalls: RefCell<Vec<(Image, Arc<undercroft_ext4::Ext4>)>> = RefCell::default();
    let make = || -> Arc<Vfs> {
        let image = small.make().unwrap();
        let opened = Opened::new(image.path(), WriteOptions::default(), parallel);
        smalls.borrow_mut().push((image, opened.fs));
        opened.vfs
    };
    let seed = number("UNDERCROFT_SEED").unwrap_or(0);
    let outcome = check_writing(&opened.vfs, &WritingProfile { small: Some(&make), seed, ..profile });
    eprintln!("{} checks", outcome.checked);
    outcome.assert_passed();
    opened.close();
    image.check().unwrap();
    for (image, fs) in smalls.take() {
        fs.close().unwrap();
        image.check().unwrap();
    }
}

fn ext4() -> Mke2fs {
    Mke2fs::new("ext4", 512).inodes(16_384)
}

fn small() -> Mke2fs {
    Mke2fs::new("ext4", 8).inodes(256).block_bytes(1024).args(["-m", "0", "-J", "size=1"])
}

#[test]
fn ext4_in_parallel() {
    can_be_written_to(&ext4(), &small(), true, WritingProfile::default());
}

#[test]
fn ext4_in_the_plain_form() {
    can_be_written_to(&ext4(), &small(), false, WritingProfile::default());
}

#[test]
fn the_standard_tree() {
    let (image, tree) = (ext4().make().unwrap(), standard_tree(&Profile::default()));
    let opened = Opened::new(image.path(), WriteOptions::default(), true);
    let (root, caller) = (opened.vfs.root().unwrap(), Credentials::root());
    opened.vfs.create(&caller, &root, b"tree", &NewObject::directory(0o755)).unwrap();
    populate_through(&opened.vfs, b"/tree", &tree).unwrap();
    check(&opened.vfs, b"/tree", &tree).assert_passed();
    drop(root);
    opened.close();
    image.check().unwrap();
    let (_, vfs) = undercroft_oracle::open_ext4(image.path()).unwrap();
    check(&vfs, b"/tree", &tree).assert_passed();
}

/// Random concurrent changes of names have an order in which they would have had the same outcomes one by one.
#[test]
fn changes_of_names_are_linearizable() {
    let image = ext4().make().unwrap();
    for parallel in [true, false] {
        let opened = Opened::new(image.path(), WriteOptions::default(), parallel);
        let root = opened.vfs.root().unwrap();
        for round in 0..number("UNDERCROFT_SCHEDULES").unwrap_or(1500) {
            let seed = number("UNDERCROFT_SEED").unwrap_or(round);
            let threads = 2 + (seed % 7) as usize;
            let schedule =
                LinearOptions { threads, operations: 24 / threads + 1, names: 2 + (seed / 7 % 3) as u8 };
            if let Err(wrong) = check_schedule(&opened.vfs, &root, seed, schedule) {
                panic!("{wrong}\nreplay with UNDERCROFT_SEED={seed}");
            }
        }
        drop(root);
        opened.close();
        image.check().unwrap();
    }
}
