//! The conformance suite that every filesystem shares, written to by us; Linux's checkers look at what is left.

use std::cell::RefCell;
use std::sync::Arc;

use undercroft_oracle::{How, Image, Make, Mke2fs, MkfsXfs};
use undercroft_vfs::conformance::{
    LinearOptions, Object, Profile, Tree, WritingProfile, check, check_schedule, check_writing,
    populate_through, standard_tree,
};
use undercroft_vfs::{Credentials, FileSystem, NewObject, Vfs};

use crate::{Opened, number};

fn can_be_written_to(make: &Make, small: &Make, parallel: bool, profile: WritingProfile<'_>) {
    let (image, how) = (make.make().unwrap(), How::usual(make));
    let opened = Opened::new(image.path(), how, parallel);
    let smalls: RefCell<Vec<(Image, Arc<dyn FileSystem>)>> = RefCell::default();
    let make_small = || -> Arc<Vfs> {
        let image = small.make().unwrap();
        let opened = Opened::new(image.path(), how, parallel);
        smalls.borrow_mut().push((image, opened.fs));
        opened.vfs
    };
    let seed = number("UNDERCROFT_SEED").unwrap_or(0);
    let outcome = check_writing(&opened.vfs, &WritingProfile { small: Some(&make_small), seed, ..profile });
    eprintln!("{} checks", outcome.checked);
    outcome.assert_passed();
    opened.close();
    how.check(image.path()).unwrap();
    for (image, fs) in smalls.take() {
        fs.close().unwrap();
        how.check(image.path()).unwrap();
    }
}

fn ext4() -> Make {
    Make::Ext4(Mke2fs::new("ext4", 512).inodes(16_384))
}

fn small() -> Make {
    Make::Ext4(Mke2fs::new("ext4", 8).inodes(256).block_bytes(1024).args(["-m", "0", "-J", "size=1"]))
}

fn xfs(size_mib: u64, args: &str) -> Make {
    Make::Xfs(MkfsXfs::new(size_mib, args))
}

/// XFS as Linux has it.
fn of_xfs() -> WritingProfile<'static> {
    let holds =
        Profile { link_max_bytes: 1023, exchanged_directories_are_modified: true, ..Profile::default() };
    WritingProfile { holds, ..WritingProfile::default() }
}

#[test]
fn xfs_in_parallel() {
    can_be_written_to(&xfs(512, "-m rmapbt=1"), &xfs(16, "-m rmapbt=1"), true, of_xfs());
}

#[test]
fn xfs_in_the_plain_form() {
    let args = "-m finobt=0,rmapbt=0,reflink=0 -i sparse=0";
    // Little is left beside the log.
    let small = format!("{args} -d agcount=1 -l size=10m");
    can_be_written_to(&xfs(512, args), &xfs(16, &small), false, of_xfs());
}

#[test]
fn ext4_in_parallel() {
    can_be_written_to(&ext4(), &small(), true, WritingProfile::default());
}

#[test]
fn ext4_in_the_plain_form() {
    can_be_written_to(&ext4(), &small(), false, WritingProfile::default());
}

/// XFS keeps nine bits of a device's major number and 18 of its minor.
fn fit_device_numbers(tree: &mut Tree) {
    for entry in &mut tree.entries {
        if let Object::CharDevice(number) | Object::BlockDevice(number) = &mut entry.object {
            number.major = number.major.min((1 << 9) - 1);
            number.minor = number.minor.min((1 << 18) - 1);
        }
    }
}

#[test]
fn the_standard_tree() {
    for make in [ext4(), xfs(512, "")] {
        let (image, how) = (make.make().unwrap(), How::usual(&make));
        // On XFS root sees an access control list by a second name too; `conformance.rs` compares both with Linux.
        let is_xfs = matches!(how, How::Xfs(_));
        let mut tree = standard_tree(&Profile { acls: !is_xfs, ..Profile::default() });
        if is_xfs {
            fit_device_numbers(&mut tree);
        }
        let opened = Opened::new(image.path(), how, true);
        let (root, caller) = (opened.vfs.root().unwrap(), Credentials::root());
        opened.vfs.create(&caller, &root, b"tree", &NewObject::directory(0o755)).unwrap();
        populate_through(&opened.vfs, b"/tree", &tree).unwrap();
        check(&opened.vfs, b"/tree", &tree).assert_passed();
        drop(root);
        opened.close();
        how.check(image.path()).unwrap();
        check(&how.read(image.path()), b"/tree", &tree).assert_passed();
    }
}

/// Random concurrent changes of names have an order in which they would have had the same outcomes one by one.
fn is_linearizable(make: &Make) {
    let (image, how) = (make.make().unwrap(), How::usual(make));
    for parallel in [true, false] {
        let opened = Opened::new(image.path(), how, parallel);
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
        how.check(image.path()).unwrap();
    }
}

#[test]
fn changes_of_names_are_linearizable() {
    is_linearizable(&ext4());
}

#[test]
fn changes_of_names_are_linearizable_on_xfs() {
    is_linearizable(&xfs(512, ""));
}
