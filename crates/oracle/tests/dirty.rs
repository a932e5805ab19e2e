//! Images that Linux left dirty: copied while programs write to them, and after a forced shutdown, with every
//! kind of journal. What we show of them, opened read-only, must be what the kernel shows after its own
//! recovery of another copy, and not one byte of the image may change.
//!
//! Fault model: the image is what had reached the device at one moment between two writes (under load), or at
//! a shutdown that leaves the log's memory unwritten, or that writes it. Needs root for the loop mounts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use undercroft_oracle::{
    Differences, Entry, Image, Load, LoadOptions, Manifest, Mke2fs, MountMode, Result, Tool, kernel_manifest,
    open_ext4, our_manifest,
};

/// A filesystem to be left dirty.
struct Setup {
    mke2fs: Mke2fs,
    options: &'static str,
    load: LoadOptions,
}

fn setup(mke2fs: Mke2fs, options: &'static str) -> Setup {
    Setup { mke2fs, options, load: LoadOptions { seed: 0x5eed, sync_one_in: 20, rare: true } }
}

/// With a load that fast commits can express.
fn fast(mke2fs: Mke2fs) -> Setup {
    Setup { mke2fs, options: "", load: LoadOptions { seed: 0xfa57, sync_one_in: 4, rare: false } }
}

fn small(kind: &'static str, block_bytes: u32) -> Mke2fs {
    Mke2fs::new(kind, 96).inodes(8192).block_bytes(block_bytes)
}

fn ext4(features: &str) -> Mke2fs {
    small("ext4", 4096).features(features)
}

/// How an image becomes dirty.
#[derive(Clone, Copy)]
enum Way {
    /// Copied while programs write.
    UnderLoad,
    /// Shut down under the programs; what the journal has in memory is lost.
    Shutdown,
    /// Shut down under the programs; the journal is written out first.
    ShutdownAfterCommit,
}

const OPERATIONS: usize = 1500;

fn check(setup: &Setup, way: Way) {
    let images = make_dirty(setup, way).unwrap();
    let mut recovered = false;
    for image in &images {
        recovered |= compare(image);
    }
    assert!(recovered, "none of the {} images needed any recovery", images.len());
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
        Way::Shutdown => shut_down(&mount, &["shutdown"])?,
        Way::ShutdownAfterCommit => shut_down(&mount, &["shutdown -f"])?,
    }
    drop(load.stop()?);
    mount.unmount()?;
    if !matches!(way, Way::UnderLoad) {
        images.push(image);
    }
    Ok(images)
}

fn shut_down(mount: &undercroft_oracle::LoopMount, command: &[&str]) -> Result<()> {
    Tool::new("xfs_io").args(["-x", "-c"]).args(command).arg(mount.path()).run().map(drop)
}

/// Compares one image; tells whether there was anything to recover.
fn compare(image: &Image) -> bool {
    // The kernel stamps what its recovery changes (truncations that it finishes, directories that it replays
    // fast commits into) with the time of the recovery. That is a fact of its own clock, and later than
    // everything in the image.
    std::thread::sleep(Duration::from_millis(30));
    let recovery_began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let recovery_began = (recovery_began.as_secs() as i64, recovery_began.subsec_nanos());
    std::thread::sleep(Duration::from_millis(30));
    let for_kernel = image.copy().unwrap();
    // Mounted for writing: the kernel cannot replay fast commits on a read-only mount.
    for_kernel.mount(MountMode::ReadWrite, "noatime").unwrap().unmount().unwrap();
    let mount = for_kernel.mount(MountMode::ReadOnly, "").unwrap();
    let expected = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();

    let before = image.sha256().unwrap();
    let (fs, vfs) = open_ext4(image.path()).unwrap();
    let found = our_manifest(&vfs).unwrap();
    let orphans = fs.orphans().unwrap();
    let recovery = fs.recovery().copied();
    drop((fs, vfs));
    assert_eq!(before, image.sha256().unwrap(), "reading changed the image");
    eprintln!("{recovery:?}, {} orphans, {} entries", orphans.len(), expected.entries.len());

    let stamped = |entry: &Entry| entry.changed > recovery_began || entry.modified > recovery_began;
    eprintln!("stamped: {}", expected.entries.values().filter(|e| stamped(e)).count());
    let mut expected = expected;
    expected.entries.retain(|path, _| !path.starts_with(b"lost+found/"));
    if !orphans.is_empty() {
        expected.space = None;
    }
    let found = adopt_times(found, &expected, stamped);
    Differences::between(&expected, &found).assert_none("ours against the kernel's");
    recovery.is_some()
}

fn adopt_times(found: Manifest, expected: &Manifest, stamped: impl Fn(&Entry) -> bool) -> Manifest {
    found.map(|path, entry| {
        if let Some(expected) = expected.entries.get(path)
            && stamped(expected)
        {
            entry.changed = expected.changed;
            entry.modified = expected.modified;
        }
    })
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
    fast_commit = fast(ext4("fast_commit"));
    fast_commit_1k = fast(small("ext4", 1024).features("fast_commit"));
    fast_commit_inline_data = fast(ext4("fast_commit,inline_data"));
    orphan_file = setup(ext4("orphan_file"), "");
    orphan_file_1k = setup(small("ext4", 1024).features("orphan_file"), "");
    inline_data_and_value_inodes = setup(ext4("inline_data,ea_inode"), "");
    bigalloc = setup(ext4("bigalloc").args(["-C", "16384"]), "");
}
