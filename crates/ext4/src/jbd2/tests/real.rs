//! Logs that Linux left behind: the kernel mounts an image and works on it, and the image is copied under it,
//! which is what a crash leaves. What recovery makes of the copy is compared, block by block, with what e2fsck
//! and the next kernel mount make of it.
//!
//! Needs root and the e2fsprogs.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use undercroft_block::{Access, MemoryDevice};
use undercroft_oracle::{Image, LoopMount, Mke2fs, MountMode, Scratch, Tool};

use super::super::RecoveryReport;
use super::super::scan::Scan;
use super::super::superblock::Superblock;
use super::image::{Loaded, recover};
use crate::numbers::FsBlock;

/// Compares every block of a recovered image with what Linux made of it, but two: Linux updates the filesystem's
/// superblock after recovery, and words the empty log's superblock a little differently. The rest of the log
/// counts where Linux did not go on to use it.
fn assert_same_blocks(dirty: &Loaded, ours: &[u8], theirs: &Loaded, log_counts: bool) {
    let size = dirty.volume.block_bytes as usize;
    let superblock = 1024 / size as u64;
    let journal = dirty.journal();
    let mut replayed = 0;
    for (block, bytes) in ours.chunks_exact(size).enumerate() {
        let block = block as u64;
        let in_log = block == journal || (!log_counts && dirty.location.holds(FsBlock(block)));
        if block != superblock && !in_log {
            let differing = bytes.iter().zip(theirs.block(block)).enumerate().filter(|(_, (a, b))| a != b);
            let differing: Vec<_> =
                differing.map(|(at, (a, b))| (at, *a, *b, dirty.block(block)[at])).collect();
            assert!(
                differing.is_empty(),
                "block {block} differs from what Linux made of it: {differing:x?} (at, ours, Linux's, before)"
            );
            replayed += u64::from(bytes != dirty.block(block));
        }
    }
    assert!(replayed > 0, "the log held nothing new, so nothing was compared");
}

/// Recovers a dirty image as debugfs does it, and as the kernel does it.
fn agrees_with_linux(dirty: &Image) -> RecoveryReport {
    let loaded = Loaded::new(dirty);
    let ours = recover(&loaded);
    let checked = dirty.copy().unwrap();
    // Not e2fsck, which finishes orphans as well, also when it is to look at the journal only.
    checked.debugfs_write(&["journal_run"]).unwrap();
    let theirs = Loaded::new(&checked);
    assert_same_blocks(&loaded, &ours.bytes, &theirs, true);
    // The emptied log: both must go on with the same transaction number.
    let next = |bytes: &[u8]| {
        let journal = loaded.journal() as usize * loaded.volume.block_bytes as usize;
        bytes[journal + 24..][..8].to_vec()
    };
    assert_eq!(next(&ours.bytes), next(&theirs.bytes), "sequence and start of the emptied log");
    agrees_with_the_kernel(dirty);

    // And with the "needs recovery" flag taken away, all is in order but for the superblock's free counts, which
    // a kernel counts anew and e2fsck mends without asking.
    let mended = dirty.copy().unwrap();
    fs::write(mended.path(), &ours.bytes).unwrap();
    mended.debugfs_write(&["feature -needs_recovery"]).unwrap();
    Tool::new("e2fsck").args(["-f", "-p"]).arg(mended.path()).accept(&[0, 1]).run().unwrap();
    ours.report
}

fn agrees_with_the_kernel(dirty: &Image) {
    let loaded = Loaded::new(dirty);
    let ours = recover(&loaded);
    let mounted = dirty.copy().unwrap();
    mounted.mount(MountMode::Recovering, "").unwrap().unmount().unwrap();
    assert_same_blocks(&loaded, &ours.bytes, &Loaded::new(&mounted), false);
}

/// Makes and removes trees, each round in a transaction of its own. Every file begins with jbd2's magic. The
/// symbolic links keep the kernel from fast commits, which cannot make any.
///
/// At the end a file that is newer than everything else is synced, and all that came before with it: else the last
/// transaction could leave a removed directory as an orphan, which Linux frees right after recovery.
fn work(root: &Path, rounds: std::ops::Range<u32>) {
    let end = rounds.end;
    for round in rounds {
        let dir = root.join(format!("dir {}", round % 7));
        fs::create_dir_all(&dir).unwrap();
        for index in 0..6 {
            let mut content = 0xC03B_3998u32.to_be_bytes().to_vec();
            content.extend(format!("round {round}").repeat(60).bytes());
            fs::write(dir.join(format!("file {index}")), content).unwrap();
        }
        let link = dir.join("link");
        if !link.is_symlink() {
            symlink("file 0", &link).unwrap();
        }
        File::open(dir.join("file 0")).unwrap().sync_all().unwrap();
        if round % 5 == 4 {
            let old = root.join(format!("dir {}", (round + 5) % 7));
            if old.exists() {
                remove(&old);
            }
        }
    }
    symlink("end", root.join(format!("link to the end {end}"))).unwrap();
    sync_a_new_file(&root.join(format!("end {end}")));
}

fn sync_a_new_file(path: &Path) {
    fs::write(path, "end").unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// Removes a directory of [`work`] by its names alone, so that it is not opened.
fn remove(dir: &Path) {
    for index in 0..6 {
        fs::remove_file(dir.join(format!("file {index}"))).unwrap();
    }
    fs::remove_file(dir.join("link")).unwrap();
    fs::remove_dir(dir).unwrap();
}

/// A copy of the image in the state that the kernel has on "disk" after some work.
fn dirty_image(mke2fs: &Mke2fs, options: &str, rounds: u32) -> Image {
    let image = mke2fs.clone().extended("lazy_itable_init=0").make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, options).unwrap();
    work(mount.path(), 0..rounds);
    let dirty = copy_without_orphans(&image, &mount);
    mount.unmount().unwrap();
    dirty
}

/// A copy whose log leaves no orphan, which Linux would free right after recovery. A process that another thread is
/// just starting has for a moment every file open that this one has, and [`work`] may have removed one by then.
fn copy_without_orphans(image: &Image, mount: &LoopMount) -> Image {
    const TRIES: u32 = 100;
    for attempt in 0..TRIES {
        let copy = image.copy_between_writes(mount).unwrap();
        if first_orphan(&copy) == 0 {
            return copy;
        }
        std::thread::sleep(Duration::from_millis(50));
        sync_a_new_file(&mount.path().join(format!("later {attempt}")));
    }
    panic!("each of {TRIES} copies held an orphan")
}

/// The head of the list of orphans, once the log is recovered.
fn first_orphan(dirty: &Image) -> u32 {
    let recovered = recover(&Loaded::new(dirty)).bytes;
    let word = |at: usize| u32::from_le_bytes(recovered[1024 + at..][..4].try_into().unwrap());
    assert_eq!(word(0x5C) & 0x1000, 0, "orphans are sought in the list, not in an orphan file");
    word(0xE8)
}

/// The words of `debugfs logdump` for the log's features.
fn log_features(image: &Image) -> String {
    let dump = image.debugfs("logdump -S").unwrap();
    dump.lines().find_map(|line| line.strip_prefix("Journal features:")).unwrap().trim().to_owned()
}

#[test]
fn logs_with_every_checksum_recover_as_linux_does_it() {
    let ext4 = |features: &str| Mke2fs::new("ext4", 16).block_bytes(1024).features(features);
    for (mke2fs, options, features) in [
        (ext4("metadata_csum,64bit"), "", "journal_64bit journal_checksum_v3"),
        (ext4("metadata_csum,^64bit"), "", "journal_checksum_v3"),
        (ext4("^metadata_csum,64bit"), "journal_checksum", "journal_checksum journal_64bit"),
        (ext4("^metadata_csum,^64bit"), "data=journal,journal_checksum", "journal_checksum"),
        (ext4("^metadata_csum,64bit"), "nojournal_checksum", "journal_64bit"),
        (ext4("^metadata_csum,^64bit"), "data=journal", "(none)"),
        (ext4("metadata_csum"), "data=journal", "journal_64bit journal_checksum_v3"),
        (
            ext4("^metadata_csum"),
            "data=writeback,journal_async_commit",
            "journal_checksum journal_64bit journal_async_commit",
        ),
        (Mke2fs::new("ext3", 32).block_bytes(1024), "", ""),
        (Mke2fs::new("ext4", 64).block_bytes(4096), "data=journal", ""),
    ] {
        let dirty = dirty_image(&mke2fs, options, 12);
        let found = log_features(&dirty).replace("journal_incompat_revoke", "");
        for feature in features.split_whitespace() {
            assert!(found.contains(feature), "{options}: {found:?} lacks {feature:?}");
        }
        let report = agrees_with_linux(&dirty);
        assert!(report.transactions >= 12, "{options}: {report:?}");
        assert!(report.blocks_replayed > 20 && report.blocks_replayed < report.blocks_logged, "{report:?}");
    }
}

#[test]
fn revocations_are_honoured_as_linux_does_it() {
    for features in ["metadata_csum", "^metadata_csum"] {
        let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).features(features);
        let report = agrees_with_linux(&dirty_image(&mke2fs, "journal_checksum", 30));
        assert!(report.revoke_records > 0 && report.blocks_revoked > 0, "{report:?}");
    }
}

/// A copy of the image from the first moment at which its log wraps around.
fn wrapped_image(image: &Image) -> Image {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let mut round = 0;
    let dirty = loop {
        work(mount.path(), round..round + 5);
        round += 5;
        assert!(round < 500, "the log does not wrap");
        let copy = copy_without_orphans(image, &mount);
        if wraps(&copy) {
            break copy;
        }
    };
    mount.unmount().unwrap();
    dirty
}

#[test]
fn a_log_that_wrapped_recovers_as_linux_does_it() {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).extended("lazy_itable_init=0");
    assert!(agrees_with_linux(&wrapped_image(&mke2fs.make().unwrap())).transactions > 1);
}

/// The fast-commit area shortens the ring of transactions.
#[test]
fn a_log_with_fast_commits_wraps_before_them() {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).features("fast_commit");
    let image = mke2fs.extended("lazy_itable_init=0").make().unwrap();
    agrees_with_the_kernel(&wrapped_image(&image));
}

/// Whether the log's transactions run from the end of the ring to its start.
fn wraps(image: &Image) -> bool {
    let Loaded { bytes, volume, location } = Loaded::new(image);
    let device = MemoryDevice::from_bytes(bytes, Access::ReadOnly);
    let superblock = Superblock::read(&device, &location, &volume).unwrap();
    let Some(start) = superblock.start() else { return false };
    let scan = Scan::run(&device, &location, &superblock, start).unwrap();
    !scan.blocks.is_sorted_by_key(|block| block.log)
}

/// debugfs writes logs of its own, also with version 2 of the checksums, which no current kernel makes.
#[test]
fn logs_written_by_debugfs_recover_as_linux_does_it() {
    for (features, version) in [("64bit", 2), ("^64bit", 2), ("64bit", 3), ("^64bit", 3)] {
        let image = Mke2fs::new("ext4", 16).block_bytes(1024).features(features).make().unwrap();
        let scratch = Scratch::new("content").unwrap();
        let content = scratch.path().join("content");
        let mut bytes = vec![0x5A; 8 * 1024];
        bytes[1024..1028].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
        fs::write(&content, bytes).unwrap();
        let content = content.display();
        image
            .debugfs_write(&[
                &format!("jo -c -v {version}"),
                &format!("jw -b 12000-12007 {content}"),
                &format!("jw -b 13000,13007,13002 {content}"),
                "jw -r 12000,12003,15000 /dev/null",
                &format!("jw -b 12003 {content}"),
                "jc",
            ])
            .unwrap();
        let found = log_features(&image);
        assert_eq!(found.contains("journal_checksum_v2"), version == 2, "{found}");
        let report = agrees_with_linux(&image);
        assert_eq!(
            (report.transactions, report.revoke_records, report.blocks_revoked),
            (4, 3, 2),
            "{features}"
        );
    }
}
