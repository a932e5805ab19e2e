//! A device that fails while a mount ends: whichever request of closing it is, of the filesystem or of an array below it,
//! the mount does not end well.
//!
//! Every write and every flush after the last one of a sync fails in turn, and all that follow it.

use std::sync::Arc;

use undercroft_block::testing::{FailNth, Repeat};
use undercroft_block::{Device, MemoryDevice, Operation};
use undercroft_ext4::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};
use undercroft_fuse::{CloseBelow, MountError, MountOptions, mount_above};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};
use undercroft_oracle::{Scratch, unmount_when_idle};
use undercroft_vfs::{Vfs, VfsOptions};

const BYTES: u64 = 16 << 20;

/// What the filesystem lies on.
#[derive(Clone, Copy, Debug)]
enum Below {
    Nothing,
    Array(Level),
}

/// How a mount ended.
struct End {
    /// Requests of the kind before it was unmounted, and at the end.
    requests: (u64, u64),
    has_failed: bool,
    told: Result<(), MountError>,
}

fn ends(below: Below, journal: &str, operation: Operation, nth: u64) -> End {
    let bases: Vec<Device> = match below {
        Below::Nothing => vec![Arc::new(MemoryDevice::new(BYTES))],
        Below::Array(_) => (0..2).map(|_| Arc::new(MemoryDevice::new(BYTES)) as Device).collect(),
    };
    let format = |device: &Device| {
        let features = journal.to_owned();
        mkfs(&**device, &MkfsOptions { features, ..MkfsOptions::new(Family::Ext4) }).unwrap();
    };
    match below {
        Below::Nothing => format(&bases[0]),
        Below::Array(level) => {
            let new = CreateOptions { assume_clean: level.is_redundant(), ..CreateOptions::new(level) };
            let array = Arc::new(Array::create(bases.clone(), &new, ArrayOptions::default()).unwrap());
            format(&(Arc::clone(&array) as Device));
            array.close().unwrap();
        }
    }
    let faulty: Vec<_> = bases
        .into_iter()
        .map(|base| Arc::new(FailNth::new(base, operation, nth, Repeat::FromThenOn)))
        .collect();
    let devices: Vec<_> = faulty.iter().map(|device| Arc::clone(device) as Device).collect();
    let (device, close_below): (Device, CloseBelow) = match below {
        Below::Nothing => (devices[0].clone(), Box::new(|| Ok(()))),
        Below::Array(_) => {
            let array = Arc::new(Array::open(devices, ArrayOptions::default()).unwrap());
            (Arc::clone(&array) as Device, Box::new(move || array.close().map_err(Into::into)))
        }
    };
    let how = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
    let fs = Ext4::open(device, OpenOptions::default(), how).unwrap();
    let point = Scratch::new("ours").unwrap();
    let settings = MountOptions::parse("rw,commit_pause=0").unwrap();
    let vfs = Vfs::new(fs, VfsOptions::default());
    let mounted = mount_above(vfs, close_below, point.path(), settings).unwrap();
    std::fs::create_dir(point.path().join("dir")).unwrap();
    std::fs::write(point.path().join("dir/file"), "bytes").unwrap();
    // On a device that is about to fail this may fail.
    let _ = undercroft_fuse::sync(point.path());
    let before = faulty[0].seen();
    unmount_when_idle(|| mounted.unmount()).unwrap();
    let told = mounted.wait();
    let has_failed = faulty.iter().any(|device| device.has_failed());
    End { requests: (before, faulty[0].seen()), has_failed, told }
}

fn every_failure_of_closing_is_reported(below: Below, journal: &str) {
    for operation in [Operation::Write, Operation::Flush] {
        let well = ends(below, journal, operation, u64::MAX);
        well.told.unwrap();
        let (before, after) = well.requests;
        let mut failed = 0;
        for nth in before + 1..=after {
            let what = format!("{below:?}, {journal}, {operation:?} {nth} of {before}..{after}");
            let end = ends(below, journal, operation, nth);
            assert!(!end.has_failed || end.told.is_err(), "{what}: the failure was not reported");
            failed += u64::from(end.has_failed);
        }
        assert!(failed > 0, "{below:?}, {journal}: nothing to {operation:?} while closing");
    }
}

#[test]
fn of_a_filesystem_with_a_journal() {
    every_failure_of_closing_is_reported(Below::Nothing, "has_journal");
}

#[test]
fn of_a_filesystem_without_a_journal() {
    every_failure_of_closing_is_reported(Below::Nothing, "^has_journal");
}

#[test]
fn of_an_array() {
    for level in [Level::Raid0, Level::Raid1] {
        every_failure_of_closing_is_reported(Below::Array(level), "has_journal");
    }
}
