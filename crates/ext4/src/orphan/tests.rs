//! Entering and leaving, on images that e2fsck checks.

#[cfg(feature = "oracle")]
use undercroft_oracle::{MountMode, Tool};
use undercroft_sync::atomic::Ordering;

use super::orphans::IN_LIST;
use super::recover::Recovered;
use super::*;
use crate::dir;
use crate::inode::{InodeState, ROOT_INODE};
use crate::options::{OrphanForm, WriteOptions};
use crate::testing::images::{Image, Mke2fs, Scratch};
use crate::testing::writable::Writable;
use crate::volume::Volume;

const FILES: u32 = 40;

/// An image with files `f0`, `f1` and so on, of 20,000 bytes each.
fn image(features: &str) -> Image {
    let source = Scratch::new("tree").unwrap();
    for n in 0..FILES {
        std::fs::write(source.path().join(format!("f{n}")), vec![b'x'; 20_000]).unwrap();
    }
    let source = source.path().to_str().unwrap().to_owned();
    Mke2fs::new("ext4", 16).block_bytes(1024).features(features).args(["-d", &source]).make().unwrap()
}

const WITH_FILE: &str = "orphan_file";
const WITHOUT_FILE: &str = "^orphan_file";

fn open(features: &str, orphans: OrphanForm) -> Writable {
    Writable::open(image(features), WriteOptions { orphans, ..WriteOptions::default() })
}

fn number_of(writable: &Writable, name: &str) -> u32 {
    dir::lookup_live(&writable.live(ROOT_INODE), name.as_bytes()).unwrap().unwrap()
}

/// What a reader finds on the disk.
fn on_disk(writable: &Writable) -> Vec<u32> {
    writable.commit();
    let device = std::sync::Arc::clone(writable.volume.device());
    let superblock = crate::superblock::Superblock::read(&*device).unwrap();
    let mut found = collect(&Volume::new(device, superblock, 1 << 20)).unwrap();
    found.sort_unstable();
    found
}

/// Lets e2fsck make the image good, which must be no more than what it does with orphans.
#[cfg(feature = "oracle")]
fn verify(image: &Image) {
    Tool::new("e2fsck").args(["-f", "-p"]).arg(image.path()).accept(&[0, 1]).run().unwrap();
    image.check().unwrap();
}

/// Finishes with the orphans, and checks the image.
#[cfg(not(feature = "oracle"))]
fn verify(image: &Image) {
    use undercroft_block::{FileDevice, FileOptions};
    // The caller's inodes still hold the image open.
    let image = image.copy().unwrap();
    let device = std::sync::Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap());
    crate::Ext4::open(device, Default::default(), Default::default()).unwrap().close().unwrap();
    image.check().unwrap();
}

#[test]
fn orphans_are_found_by_readers_and_leave_in_any_order() {
    for (features, form) in [
        (WITH_FILE, OrphanForm::Best),
        (WITH_FILE, OrphanForm::List),
        (WITHOUT_FILE, OrphanForm::Best),
        (WITHOUT_FILE, OrphanForm::Locked),
    ] {
        let writable = open(features, form);
        let volume = &writable.volume;
        let files: Vec<_> = (0..10).map(|n| writable.live(number_of(&writable, &format!("f{n}")))).collect();
        let handle = volume.start(100).unwrap();
        for file in &files {
            add(&handle, file).unwrap();
            add(&handle, file).unwrap();
            assert!(is_member(file));
        }
        drop(handle);
        let mut expected: Vec<u32> = files.iter().map(|file| file.number).collect();
        assert_eq!(on_disk(&writable), expected);
        // The newest, the oldest, some in the middle, and neighbours.
        for leaving in [vec![9], vec![0, 4], vec![5, 6], vec![1, 2, 3, 7, 8]] {
            let handle = volume.start(100).unwrap();
            for n in leaving {
                let file: &InodeState = &files[n];
                remove(&handle, file).unwrap();
                remove(&handle, file).unwrap();
                assert!(!is_member(file));
                expected.retain(|number| *number != file.number);
            }
            drop(handle);
            assert_eq!(on_disk(&writable), expected, "{features} {form:?}");
        }
        assert!(volume.writer().unwrap().orphans.file_is_empty());
        verify(&writable.close());
    }
}

#[cfg(feature = "oracle")]
#[test]
fn e2fsck_deletes_what_lost_its_name() {
    for (features, form) in [(WITH_FILE, OrphanForm::Best), (WITHOUT_FILE, OrphanForm::Best)] {
        let writable = open(features, form);
        unlink_all(&writable);
        assert_eq!(on_disk(&writable).len(), FILES as usize);
        let image = writable.close();
        verify(&image);
        let free = image.debugfs("stats -h").unwrap();
        assert!(!free.contains("Last orphan inode"), "{free}");
        assert!(image.debugfs("ls /").unwrap().contains("lost+found"));
    }
}

/// When the file is full the list takes over, and both are recovered.
#[test]
fn a_full_file_overflows_into_the_list() {
    let writable = open(WITH_FILE, OrphanForm::Best);
    let orphans = &writable.volume.writer().unwrap().orphans;
    let file = orphans.file.as_ref().unwrap();
    let handle = writable.volume.start(1000).unwrap();
    let mut slots = Vec::new();
    while let Some(slot) = file.enter(&handle, 12).unwrap() {
        slots.push(slot);
    }
    let live = writable.live(number_of(&writable, "f7"));
    add(&handle, &live).unwrap();
    assert_eq!(live.orphan.0.load(Ordering::Relaxed), IN_LIST);
    slots.sort_unstable();
    assert!(slots.iter().copied().eq(0..slots.len() as u64), "each slot once");
    slots.iter().for_each(|slot| file.leave(&handle, *slot));
    drop(handle);
    assert_eq!(on_disk(&writable), [live.number]);
    verify(&writable.close());
}

/// Threads enter and leave at once; each slot has one owner, and in the end none.
#[test]
fn threads_share_the_file_without_losing_a_slot() {
    let writable = open(WITH_FILE, OrphanForm::Best);
    let lives: Vec<_> = (0..FILES).map(|n| writable.live(number_of(&writable, &format!("f{n}")))).collect();
    std::thread::scope(|scope| {
        for part in lives.chunks(10) {
            let volume = &writable.volume;
            scope.spawn(move || {
                for _ in 0..200 {
                    for live in part {
                        add(&volume.start(CREDITS).unwrap(), live).unwrap();
                    }
                    let slots: std::collections::HashSet<u64> =
                        part.iter().map(|live| live.orphan.0.load(Ordering::Relaxed)).collect();
                    assert_eq!(slots.len(), part.len());
                    for live in part {
                        remove(&volume.start(CREDITS).unwrap(), live).unwrap();
                    }
                }
            });
        }
    });
    assert!(writable.volume.writer().unwrap().orphans.file_is_empty());
    assert_eq!(on_disk(&writable), [0; 0]);
    verify(&writable.close());
}

/// Takes the name of each file away, as if a program had it open.
fn unlink_all(writable: &Writable) {
    let root = writable.live(ROOT_INODE);
    for n in 0..FILES {
        let name = format!("f{n}");
        let file = writable.live(number_of(writable, &name));
        let handle = writable.volume.start(50).unwrap();
        dir::remove(&handle, &root, name.as_bytes(), file.number).unwrap();
        add(&handle, &file).unwrap();
        file.change_fields(&handle, |fields| fields.links = 0).unwrap();
    }
}

/// Cuts files short and leaves their blocks past the end, as a crash between two steps of a truncation does.
fn cut_all(writable: &Writable) {
    for n in 0..FILES {
        let file = writable.live(number_of(writable, &format!("f{n}")));
        let handle = writable.volume.start(50).unwrap();
        add(&handle, &file).unwrap();
        file.change_fields(&handle, |fields| fields.size_bytes = u64::from(n) * 100).unwrap();
    }
}

fn free_blocks(writable: &Writable) -> u64 {
    writable.commit();
    writable.volume.writer().unwrap().allocator.free_blocks()
}

#[test]
fn what_a_crash_leaves_is_deleted_and_truncated() {
    for (features, form) in [(WITH_FILE, OrphanForm::Best), (WITHOUT_FILE, OrphanForm::Best)] {
        let writable = open(features, form);
        let before = free_blocks(&writable);
        unlink_all(&writable);
        let writable = Writable::open(writable.close(), WriteOptions::default());
        let recovered = recover(&writable.volume).unwrap();
        assert_eq!(recovered, Recovered { deleted: u64::from(FILES), truncated: 0 });
        assert_eq!(free_blocks(&writable), before + 20 * u64::from(FILES));
        assert_eq!(on_disk(&writable), [0; 0]);
        writable.finish();

        let writable = open(features, form);
        cut_all(&writable);
        let writable = Writable::open(writable.close(), WriteOptions::default());
        let recovered = recover(&writable.volume).unwrap();
        assert_eq!(recovered, Recovered { deleted: 0, truncated: u64::from(FILES) });
        let kept: u64 = (0..u64::from(FILES)).map(|n| (n * 100).div_ceil(1024)).sum();
        assert_eq!(free_blocks(&writable), before + 20 * u64::from(FILES) - kept);
        assert_eq!(recover(&writable.volume).unwrap(), Recovered::default(), "nothing is left to do");
        writable.finish();
    }
}

/// The kernel finds what we left.
#[cfg(feature = "oracle")]
#[test]
fn the_kernel_finishes_what_we_left() {
    for features in [WITH_FILE, WITHOUT_FILE] {
        for leave in [unlink_all, cut_all] {
            let writable = open(features, OrphanForm::Best);
            leave(&writable);
            let image = writable.close();
            image.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
            image.check().unwrap();
        }
    }
}

/// We find what the kernel left: a file that was open and had lost its name when the image was copied.
#[cfg(feature = "oracle")]
#[test]
fn we_finish_what_the_kernel_left() {
    for features in [WITH_FILE, WITHOUT_FILE] {
        let image = image(features);
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let names = ["f3", "f30", "f17"].map(|name| mount.path().join(name));
        let open = names.each_ref().map(|name| std::fs::File::open(name).unwrap());
        names.iter().for_each(|name| std::fs::remove_file(name).unwrap());
        rustix::fs::syncfs(&open[0]).unwrap();
        let copy = image.copy_between_writes(&mount).unwrap();
        drop(open);
        mount.unmount().unwrap();
        copy.debugfs_write(&["journal_run"]).unwrap();
        let writable = Writable::open(copy, WriteOptions::default());
        assert_eq!(recover(&writable.volume).unwrap(), Recovered { deleted: 3, truncated: 0 });
        assert_eq!(on_disk(&writable), [0; 0]);
        verify(&writable.close());
    }
}

#[cfg(feature = "oracle")]
#[test]
fn an_orphan_that_cannot_be_is_refused() {
    for (wrong, word) in [("5", "no file's"), ("200", "free"), ("70000", "no file's")] {
        let image = image(WITHOUT_FILE);
        image.debugfs_write(&[&format!("set_super_value last_orphan {wrong}")]).unwrap();
        let writable = Writable::open(image, WriteOptions::default());
        let error = recover(&writable.volume).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("e2fsck"), "{error}");
    }
}
