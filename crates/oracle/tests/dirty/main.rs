//! Images that Linux left dirty: copied while programs write to them, and after a forced shutdown, with every
//! kind of journal. What we show of them, opened read-only, must be what the kernel shows after its own
//! recovery of another copy, and not one byte of the image may change.
//!
//! Fault model: the image is what had reached the device at one moment between two writes (under load), or at
//! a shutdown that leaves the log's memory unwritten, or that writes it. Out of scope: requests that reach the
//! device in another order than they were sent. Needs root for the loop mounts.

mod cut_short;
mod damaged;
mod judge;
mod random;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use judge::compare;
use undercroft_oracle::{Image, Load, LoadOptions, LoopMount, Mix, Mke2fs, MountMode, Result, Tool};

/// A filesystem to be left dirty.
struct Setup {
    mke2fs: Mke2fs,
    options: &'static str,
    load: LoadOptions,
}

fn setup(mke2fs: Mke2fs, options: &'static str) -> Setup {
    Setup { mke2fs, options, load: LoadOptions { seed: 0x5eed, sync_one_in: 20, mix: Mix::Everything } }
}

fn small(kind: &'static str, block_bytes: u32) -> Mke2fs {
    Mke2fs::new(kind, 96).inodes(8192).block_bytes(block_bytes)
}

fn ext4(features: &str) -> Mke2fs {
    small("ext4", 4096).features(features)
}

/// How an image becomes dirty.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Copied while programs write.
    UnderLoad,
    /// Shut down under the programs; what the journal has in memory is lost.
    Shutdown,
    /// Shut down under the programs; the journal is written out first.
    ShutdownAfterCommit,
}

const OPERATIONS: usize = 1500;

/// How filesystems with inline data are mounted. With ordered data the journal's thread of Linux 6.18 can come
/// to wait for itself: it writes a file's data out before the commit, finds that the file has left its inode
/// since and begins a transaction to say so. Nothing ends that but a restart of the machine.
const INLINE: &str = "data=writeback";

fn check(setup: &Setup, way: Way) {
    let images = make_dirty(setup, way).unwrap();
    // The kernel may have just finished all its writing when a copy is made; not at every one of them.
    let recovered = images.iter().filter(|image| compare(image).recovery.is_some()).count();
    assert!(recovered > 0, "none of the {} images needed any recovery", images.len());
}

fn make_dirty(setup: &Setup, way: Way) -> Result<Vec<Image>> {
    let image = setup.mke2fs.make()?;
    let mount = image.mount(MountMode::ReadWrite, setup.options)?;
    let load = Load::start(mount.path(), setup.load)?;
    load.wait_for(OPERATIONS)?;
    let mut images = Vec::new();
    match way {
        Way::UnderLoad => {
            for part in 1..=3 {
                load.wait_for(OPERATIONS + part * OPERATIONS / 3)?;
                images.push(load.calm(|| image.copy_between_writes(&mount))?);
            }
        }
        Way::Shutdown => shut_down(&mount, "shutdown")?,
        Way::ShutdownAfterCommit => shut_down(&mount, "shutdown -f")?,
    }
    drop(load.stop()?);
    mount.unmount()?;
    if way != Way::UnderLoad {
        images.push(image);
    }
    Ok(images)
}

fn shut_down(mount: &LoopMount, command: &str) -> Result<()> {
    Tool::new("xfs_io").args(["-x", "-c", command]).arg(mount.path()).run().map(drop)
}

macro_rules! setups {
    ($($(#[doc = $doc:literal])* $name:ident = $setup:expr;)*) => {
        mod under_load {
            use super::*;
            $(#[test] fn $name() { check(&$setup, Way::UnderLoad); })*
        }
        mod shutdown {
            use super::*;
            $(#[test] fn $name() { check(&$setup, Way::Shutdown); })*
        }
        mod shutdown_after_commit {
            use super::*;
            $(#[test] fn $name() { check(&$setup, Way::ShutdownAfterCommit); })*
        }
    };
}

setups! {
    ext3 = setup(small("ext3", 4096), "");
    ext3_1k_small_journal = setup(small("ext3", 1024).args(["-J", "size=1"]), "");
    ext3_data_journal = setup(small("ext3", 1024), "data=journal");
    checksums_v3 = setup(ext4("metadata_csum,64bit"), "");
    checksums_v3_no_64bit = setup(ext4("metadata_csum,^64bit"), "");
    checksums_v3_async_commit = setup(ext4("metadata_csum,64bit"), "data=writeback,journal_async_commit");
    checksums_v1 = setup(ext4("^metadata_csum,64bit"), "journal_checksum");
    checksums_v1_no_64bit_async_commit = setup(ext4("^metadata_csum,^64bit"), "data=writeback,journal_async_commit");
    no_checksums_64bit = setup(ext4("^metadata_csum,64bit"), "");
    data_journal_1k = setup(small("ext4", 1024), "data=journal");
    data_journal_4k_small_journal = setup(ext4("64bit").args(["-J", "size=4"]), "data=journal");
    data_writeback = setup(ext4("64bit"), "data=writeback");
    orphan_file = setup(ext4("orphan_file"), "");
    orphan_file_1k = setup(small("ext4", 1024).features("orphan_file"), "");
    inline_data_and_value_inodes = setup(ext4("inline_data,ea_inode"), INLINE);
    bigalloc = setup(ext4("bigalloc").args(["-C", "16384"]), "");
}

/// Mounts, lets `work` do its work, and makes the image dirty.
fn dirty_after(setup: &Setup, way: Way, work: impl FnOnce(&Path)) -> Image {
    let image = setup.mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, setup.options).unwrap();
    work(mount.path());
    let copy = match way {
        Way::UnderLoad => Some(image.copy_between_writes(&mount).unwrap()),
        Way::Shutdown => shut_down(&mount, "shutdown").map(|()| None).unwrap(),
        Way::ShutdownAfterCommit => shut_down(&mount, "shutdown -f").map(|()| None).unwrap(),
    };
    mount.unmount().unwrap();
    copy.unwrap_or(image)
}

/// One of everything that a fast commit can express, most of it made durable at once. By one program and in
/// order: under a random load (see `random`) Linux 6.18 often goes wrong over its own fast commits, and is no
/// witness.
fn work_for_fast_commits(root: &Path) {
    let sync = |name: &str| File::open(root.join(name)).unwrap().sync_all().unwrap();
    for number in 0..20_u8 {
        let name = format!("file-{number}");
        fs::write(root.join(&name), vec![number; 3000 * usize::from(number)]).unwrap();
        sync(&name);
    }
    fs::write(root.join("small"), "some bytes").unwrap();
    sync("small");
    fs::rename(root.join("file-3"), root.join("renamed")).unwrap();
    sync("renamed");
    fs::hard_link(root.join("file-4"), root.join("linked")).unwrap();
    sync("linked");
    fs::remove_file(root.join("file-5")).unwrap();
    let cut = File::options().write(true).open(root.join("file-6")).unwrap();
    cut.set_len(5000).unwrap();
    cut.sync_all().unwrap();
    let grown = File::options().write(true).open(root.join("file-7")).unwrap();
    grown.write_all_at(b"far out", 100_000).unwrap();
    grown.sync_all().unwrap();
    // Not made durable: seen after a commit, or lost.
    fs::write(root.join("late"), vec![1; 10_000]).unwrap();
}

fn check_fast_commits(mke2fs: Mke2fs, options: &'static str) {
    let setup = setup(mke2fs, options);
    let mut fast_commits = 0;
    for way in [Way::UnderLoad, Way::Shutdown, Way::ShutdownAfterCommit] {
        let image = dirty_after(&setup, way, work_for_fast_commits);
        let report = compare(&image).recovery.expect("the journal was left dirty");
        fast_commits += report.fast_commits;
    }
    assert!(fast_commits > 0, "nothing was committed fast");
}

#[test]
fn fast_commits_bring_back_what_was_made_durable() {
    check_fast_commits(ext4("fast_commit"), "");
}

#[test]
fn fast_commits_in_small_blocks() {
    check_fast_commits(small("ext4", 1024).features("fast_commit,^64bit"), "");
}

#[test]
fn fast_commits_of_inline_data() {
    check_fast_commits(ext4("fast_commit,inline_data"), INLINE);
}

#[test]
fn a_truncation_that_was_under_way_shows_the_new_size() {
    let image = dirty_after(&setup(small("ext4", 1024), ""), Way::Shutdown, |root| {
        fs::write(root.join("file"), vec![7; 900_000]).unwrap();
        File::open(root.join("file")).unwrap().sync_all().unwrap();
    });
    // What the first of a truncation's transactions leaves: the new size, and the inode on the orphan list.
    let copy = image.copy().unwrap();
    copy.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
    copy.debugfs_write(&["set_inode_field /file size 12345", "set_super_value last_orphan 12"]).unwrap();
    assert!(copy.debugfs("stat /file").unwrap().starts_with("Inode: 12 "), "the file has another inode");
    assert_eq!(compare(&copy).orphans, 1);
}

/// Writes a transaction into the journal of a filesystem that has a file, and lets both sides replay it.
fn replay_what_debugfs_wrote(features: &str, open: &str) {
    const OLD: [u8; 8192] = [1; 8192];
    let image = ext4(features).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    fs::write(mount.path().join("file"), OLD).unwrap();
    mount.unmount().unwrap();
    let block = image.debugfs("bmap /file 1").unwrap();
    let new = undercroft_oracle::Scratch::new("new").unwrap();
    let new = new.path().join("block");
    fs::write(&new, [2; 4096]).unwrap();
    let write = format!("journal_write -b {} {}", block.trim(), new.display());
    image.debugfs_write(&[open, &write, "journal_close"]).unwrap();
    let report = compare(&image).recovery.expect("debugfs left the journal dirty");
    assert_eq!((report.transactions, report.blocks_replayed), (1, 1), "{report:?}");
}

#[test]
fn a_journal_without_checksums_by_debugfs() {
    replay_what_debugfs_wrote("^metadata_csum", "journal_open");
}

/// No kernel of today writes this version, and all read it.
#[test]
fn a_journal_with_checksums_of_the_second_version() {
    replay_what_debugfs_wrote("^metadata_csum", "journal_open -c -v 2");
}

#[test]
fn a_journal_with_checksums_of_the_second_version_and_64_bit_numbers() {
    replay_what_debugfs_wrote("metadata_csum,64bit", "journal_open -c -v 2");
}

#[test]
fn a_journal_with_checksums_of_the_third_version_by_debugfs() {
    replay_what_debugfs_wrote("metadata_csum,64bit", "journal_open -c -v 3");
}
