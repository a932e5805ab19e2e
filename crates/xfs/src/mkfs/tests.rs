//! A filesystem made in memory, as our own reader and check see it. What mkfs.xfs makes stands in
//! `crates/oracle/tests/xfs_mkfs`.

use std::sync::Arc;

use undercroft_block::{Device, MemoryDevice};

use super::*;
use crate::{CheckOptions, check};

const MIB: u64 = 1 << 20;

fn made(size_bytes: u64, options: &MkfsOptions) -> (Device, NewFilesystem) {
    let device: Device = Arc::new(MemoryDevice::new(size_bytes));
    let filesystem = mkfs(&*device, options).unwrap();
    (device, filesystem)
}

fn refusal(size_bytes: u64, options: &MkfsOptions) -> String {
    let device = MemoryDevice::new(size_bytes);
    let refusal = mkfs(&device, options).unwrap_err().to_string();
    assert_eq!(device.allocated_bytes(), 0, "a refusal wrote something");
    refusal
}

#[test]
fn our_own_check_finds_nothing() {
    let small = MkfsOptions { small: true, ..MkfsOptions::default() };
    for (size, options) in [
        (300 * MIB, MkfsOptions::default()),
        (16 * MIB, small.clone()),
        (300 * MIB, MkfsOptions { rmapbt: true, nrext64: true, ..MkfsOptions::default() }),
        (64 * MIB, MkfsOptions { block_bytes: Some(1024), finobt: false, ..small.clone() }),
        (1 << 30, MkfsOptions { block_bytes: Some(65_536), ..small.clone() }),
        (1 << 40, MkfsOptions { sector_bytes: Some(4096), sparse: false, ..MkfsOptions::default() }),
    ] {
        let (device, filesystem) = made(size, &options);
        let report = check(&device, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{options:?}: {:?}", report.findings);
        assert_eq!(filesystem.superblock.inodes() - filesystem.superblock.free_inodes(), 3);
    }
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is_written() {
    let usual = MkfsOptions::default;
    for (size, options, word) in [
        (299 * MIB, usual(), "300 MiB"),
        (8 * MIB, MkfsOptions { small: true, ..usual() }, "16 MiB"),
        (300 * MIB, MkfsOptions { groups: Groups::Count(1), ..usual() }, "no copy"),
        (300 * MIB, MkfsOptions { groups: Groups::Count(0), ..usual() }, "at least one"),
        (300 * MIB, MkfsOptions { groups: Groups::Count(30), small: true, ..usual() }, "4096 to"),
        (300 * MIB, MkfsOptions { groups: Groups::Bytes(5000), ..usual() }, "no multiple"),
        (300 * MIB, MkfsOptions { block_bytes: Some(512), ..usual() }, "block size"),
        (
            300 * MIB,
            MkfsOptions { block_bytes: Some(1024), inode_bytes: Some(1024), ..usual() },
            "inode size",
        ),
        (300 * MIB, MkfsOptions { sector_bytes: Some(8192), ..usual() }, "smaller than sectors"),
        (300 * MIB, MkfsOptions { dir_block_bytes: Some(2048), ..usual() }, "directory block"),
        (300 * MIB, MkfsOptions { log_bytes: Some(MIB), ..usual() }, "too small"),
        (300 * MIB, MkfsOptions { log_bytes: Some(80 * MIB), ..usual() }, "does not fit"),
        (300 * MIB, MkfsOptions { log_bytes: Some(32 * MIB), ..usual() }, "64 MiB"),
        (300 * MIB, MkfsOptions { log_group: Some(4), ..usual() }, "group 4"),
        (
            300 * MIB,
            MkfsOptions { stripe: Stripe::Bytes { unit: 5000, width: 10_000 }, ..usual() },
            "block size",
        ),
        (300 * MIB, MkfsOptions { stripe: Stripe::Bytes { unit: 8192, width: 4096 }, ..usual() }, "width"),
        (300 * MIB, MkfsOptions { inode_percent: 101, ..usual() }, "101 percent"),
        (300 * MIB, MkfsOptions { label: b"thirteen byte".to_vec(), ..usual() }, "13 bytes"),
        (300 * MIB, MkfsOptions { size_bytes: Some(1 << 40), ..usual() }, "too few"),
        (300 * MIB, MkfsOptions { finobt: false, inobtcount: Some(true), ..usual() }, "inobtcount"),
    ] {
        let refusal = refusal(size, &options);
        assert!(refusal.contains(word), "{word}: {refusal}");
    }
}

#[test]
fn what_is_there_is_overwritten_on_demand_only() {
    let (device, first) = made(300 * MIB, &MkfsOptions::default());
    let error = mkfs(&*device, &MkfsOptions::default()).unwrap_err();
    assert!(error.to_string().contains("an XFS filesystem"), "{error}");
    let again = MkfsOptions { overwrite: true, groups: Groups::Count(3), ..MkfsOptions::default() };
    let second = mkfs(&*device, &again).unwrap();
    assert_ne!(first.superblock.uuid(), second.superblock.uuid());
    let report = check(&device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// What the device held shows nowhere that is read, with and without a discard.
#[test]
fn copies_of_an_old_superblock_are_erased() {
    let (device, _) = made(300 * MIB, &MkfsOptions { groups: Groups::Count(3), ..MkfsOptions::default() });
    let again = MkfsOptions { overwrite: true, discard: false, ..MkfsOptions::default() };
    mkfs(&*device, &again).unwrap();
    for group in 1..3 {
        let mut sector = vec![0; 512];
        device.read_at(group * 100 * MIB, &mut sector).unwrap();
        assert!(sector.iter().all(|&byte| byte == 0), "group {group}");
    }
}

#[test]
fn a_plan_writes_nothing() {
    let device = MemoryDevice::new(1 << 40);
    let plan = plan_mkfs(&device, &MkfsOptions::default()).unwrap();
    assert_eq!(device.allocated_bytes(), 0);
    assert_eq!(plan.superblock.geometry().ag_count(), 4);
    assert_eq!(plan.superblock.log_blocks(), 131_072);
}
