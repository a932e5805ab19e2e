//! What Linux's tools and its kernel find in a log that we wrote, and what we leave them.

use std::fs;

use undercroft_oracle::{MountMode, Tool};

use super::*;

/// Images whose logs take every form that is written.
fn forms() -> Vec<Image> {
    ["64bit,metadata_csum", "64bit,^metadata_csum", "^64bit,metadata_csum", "^64bit,^metadata_csum"]
        .map(image)
        .into()
}

/// Three transactions: many copies, a block that begins with the log's magic, a revocation.
fn work(open: &Open) {
    for round in 0..3_u32 {
        let handle = open.volume.start(300).unwrap();
        for block in 0..100 {
            put(&handle, FREE + block, 5 * round + u32::try_from(block % 3).unwrap());
        }
        if round == 2 {
            handle.forget(FsBlock(FREE + 7));
        }
        let tid = handle.tid();
        drop(handle);
        open.commit(tid);
    }
}

fn check_work(bytes: &[u8]) {
    for block in (0..100).filter(|&block| block != 7) {
        let at = ((FREE + block) * 1024) as usize;
        let expected = content(FREE + block, 10 + u32::try_from(block % 3).unwrap());
        assert!(bytes[at..at + 1024] == expected, "block {block}");
    }
}

#[test]
fn a_log_left_by_a_crash_is_recovered_by_e2fsck_and_the_kernel() {
    for image in forms() {
        let device = in_memory(&image);
        let open = Open::new(Arc::clone(&device)).unwrap();
        work(&open);
        let crashed = bytes_of(&device);
        let freed = (FREE as usize + 7) * 1024;
        assert!(crashed[FREE as usize * 1024..][..1024] == [0; 1024], "something came home too early");

        fs::write(image.path(), &crashed).unwrap();
        let tags = image.debugfs("logdump -a").unwrap();
        assert_eq!(tags.matches("(commit block)").count(), 3, "{tags}");
        let by_kernel = image.copy().unwrap();
        by_kernel.mount(MountMode::Recovering, "").unwrap().unmount().unwrap();
        check_work(&fs::read(by_kernel.path()).unwrap());
        by_kernel.check().unwrap();
        Tool::new("e2fsck")
            .args(["-y", "-E", "journal_only"])
            .arg(image.path())
            .accept(&[0, 1])
            .run()
            .unwrap();
        let recovered = fs::read(image.path()).unwrap();
        check_work(&recovered);
        assert!(recovered[freed..freed + 1024] == [0; 1024], "a revoked block came home");
        image.check().unwrap();

        let ours: Device = Arc::new(MemoryDevice::from_bytes(crashed, Access::ReadWrite));
        let again = Open::new(Arc::clone(&ours)).unwrap();
        assert_eq!(again.recovery.unwrap().transactions, 3);
        check_work(&bytes_of(&ours));
        assert!(on_device(&ours, FREE + 7) == [0; 1024]);
        again.service.close().unwrap();
    }
}

#[test]
fn a_filesystem_that_is_closed_is_clean() {
    for image in forms().into_iter().chain([image("^has_journal")]) {
        let device = in_memory(&image);
        let open = Open::new(Arc::clone(&device)).unwrap();
        work(&open);
        open.service.close().unwrap();
        let refused = open.volume.start(1).err().unwrap();
        assert!(matches!(refused, undercroft_vfs::Error::ShutDown), "{refused}");
        open.transactions().commit_everything(&open.volume).unwrap();
        let closed = bytes_of(&device);
        check_work(&closed);
        fs::write(image.path(), &closed).unwrap();
        let found = image.debugfs("show_super_stats -h").unwrap();
        assert!(found.contains("Filesystem state:         clean"), "{found}");
        assert!(!found.contains("needs_recovery"), "{found}");
        image.check().unwrap();
        image.mount(MountMode::Recovering, "").unwrap().unmount().unwrap();
        image.check().unwrap();

        let again = Open::new(Arc::clone(&device)).unwrap();
        assert!(again.recovery.is_none());
    }
}

#[test]
fn while_it_is_open_the_disk_says_so() {
    for (image, words) in [
        (image("has_journal"), ["needs_recovery", "Filesystem state:         clean"]),
        (image("^has_journal"), ["Filesystem state:         not clean", "Mount count:              1"]),
    ] {
        let device = in_memory(&image);
        let _open = Open::new(Arc::clone(&device)).unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        let found = image.debugfs("show_super_stats -h").unwrap();
        for word in words {
            assert!(found.contains(word), "{word}: {found}");
        }
    }
}

#[test]
fn a_log_that_the_filesystem_does_not_ask_for_is_not_replayed() {
    let image = image("has_journal");
    let device = in_memory(&image);
    let open = Open::new(Arc::clone(&device)).unwrap();
    work(&open);
    fs::write(image.path(), bytes_of(&device)).unwrap();
    image.debugfs_write(&["feature -needs_recovery"]).unwrap();
    let device = in_memory(&image);
    let open = Open::new(Arc::clone(&device)).unwrap();
    assert!(open.recovery.is_none());
    assert!(on_device(&device, FREE) == [0; 1024]);
    work(&open);
    open.service.close().unwrap();
    check_work(&bytes_of(&device));
}
