//! Superblocks of Linux and of our own, and what damage to them does.

use std::sync::Arc;

use proptest::prelude::*;
use undercroft_block::{Access, Device, MemoryDevice};

use super::*;
use crate::assemble::{self, Candidate};
use crate::examine::examine;
use crate::{CreateOptions, create, fixtures};

const CHECKSUM_AT: usize = 216;
const MAX_DEV_AT: usize = 220;

fn small() -> impl Iterator<Item = (&'static str, usize, Vec<u8>)> {
    let arrays =
        fixtures::ALL.into_iter().filter(|array| fixtures::manifest(array)["member_bytes"] == "8388608");
    arrays.flat_map(|array| (0..2).map(move |member| (array, member, fixtures::bytes(array, member))))
}

fn mend(block: &mut [u8]) {
    let max_dev = u32::from_le_bytes(block[MAX_DEV_AT..MAX_DEV_AT + 4].try_into().unwrap());
    let sum = expected_checksum(block, max_dev);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Everything that reads superblocks, on a device whose superblock is `block`.
fn read_all(version: Version, device_bytes: u64, block: &[u8]) {
    let offset = place_of(version, device_bytes).unwrap();
    let device: Device = Arc::new(MemoryDevice::new(device_bytes));
    device.write_at(offset, block).unwrap();
    if let Ok(examined) = examine(&*device) {
        assert!(!examined.to_string().is_empty());
    }
    if let Ok(candidate) = Candidate::read(device) {
        let _ = assemble::plan(vec![candidate.clone()], true);
        let _ = create::new_member(&candidate.superblock, 5, device_bytes, "spare");
    }
}

#[test]
fn superblocks_of_linux_survive_a_round_trip() {
    for array in fixtures::ALL {
        for device in fixtures::members(array) {
            let mut superblock = read(&*device).unwrap();
            let mut before = vec![0; superblock.raw().len()];
            device.read_at(superblock.offset, &mut before).unwrap();
            assert_eq!(superblock.encode("member").unwrap(), before, "{array}");
            // The rest of the 4 KiB is not ours: a bitmap may lie there.
            assert_eq!(before.len(), 512);
        }
    }
}

#[test]
fn what_changes_is_written_and_read_again() {
    let device = fixtures::member("raid6", 1);
    let mut superblock = read(&*device).unwrap();
    superblock.events += 3;
    superblock.resynced = 8192;
    superblock.recovery = Some(Recovery { done: 1 << 20, by_bitmap: true });
    superblock.is_replacement = true;
    superblock.flags = DeviceFlags::WRITE_MOSTLY | DeviceFlags::FAIL_FAST;
    superblock.corrected_reads = 9;
    superblock.updated = Timestamp { seconds: 77, microseconds: 5 };
    superblock.set_role(0, DeviceRole::Faulty, "member").unwrap();
    superblock.set_role(200, DeviceRole::Active(3), "member").unwrap();
    if let Some(log) = &mut superblock.bad_blocks {
        log.in_use = true;
    }
    let bytes = superblock.encode("member").unwrap().to_vec();
    assert_eq!(bytes.len(), 1024, "the table of roles has grown");
    device.write_at(superblock.offset, &bytes).unwrap();
    let found = read(&*device).unwrap();
    assert_eq!(found.events, superblock.events);
    assert_eq!(found.resynced, 8192);
    assert_eq!(found.recovery, superblock.recovery);
    assert!(found.is_replacement && found.bad_blocks.unwrap().in_use);
    assert_eq!((found.flags, found.corrected_reads), (superblock.flags, 9));
    assert_eq!(found.updated, superblock.updated);
    assert_eq!(found.roles, superblock.roles);
    assert_eq!(found.role_of(200), DeviceRole::Active(3));
    assert_eq!(found.role_of(1000), DeviceRole::Spare);
    // There is no room for so many before what follows.
    let error = superblock.set_role(1920, DeviceRole::Spare, "member").unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    superblock.roles.resize(1921, DeviceRole::Spare);
    let error = superblock.encode("member").unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn a_bad_checksum_is_named_with_its_place() {
    let device = fixtures::member("raid1", 0);
    device.write_at(4096 + 100, &[0x55]).unwrap();
    let error = read(&*device).unwrap_err().to_string();
    assert!(error.contains("md superblock at byte 4096") && error.contains("checksum"), "{error}");
    let examined = examine(&*device).unwrap();
    assert!(examined.problem.unwrap().contains("checksum"));
    assert_ne!(examined.checksum, examined.expected_checksum);
    let empty = MemoryDevice::new(1 << 20);
    assert!(matches!(read(&empty).unwrap_err(), Error::NoSuperblock { .. }));
    for bytes in [0, 1, 511, 4096, 8191, 8192, 65535, 65536] {
        assert!(matches!(read(&MemoryDevice::new(bytes)).unwrap_err(), Error::NoSuperblock { .. }));
    }
}

#[test]
fn a_device_that_was_cut_off_is_named() {
    let mut bytes = fixtures::bytes("raid5-numbered", 2);
    bytes.truncate(bytes.len() - 4096);
    let error = read(&MemoryDevice::from_bytes(bytes, Access::ReadOnly)).unwrap_err().to_string();
    assert!(error.contains("cut off"), "{error}");
}

#[test]
fn what_linux_can_do_and_we_cannot_is_named() {
    let (_, _, bytes) = small().next().unwrap();
    let block = &bytes[4096..8192];
    let source = Source { member: "member", structure: "md superblock", offset: 4096 };
    let refused = |at: usize, value: u8| {
        let mut block = block.to_vec();
        block[at] = value;
        mend(&mut block);
        Superblock::decode_v1(&block, Version::V1_2, 8 << 20, source).unwrap_err().to_string()
    };
    assert!(refused(8, 4).contains("changing its shape"));
    assert!(refused(8, 64).contains("being moved"));
    assert!(refused(9, 1).contains("cluster"));
    assert!(refused(9, 2).contains("journal"));
    assert!(refused(10, 1).contains("unknown features 0x10000"));
    assert!(refused(12, 1).contains("not known here"));
    assert!(refused(9, 0b1100).contains("two kinds"));
    assert!(refused(144, 9).contains("sector 9"));
}

/// Each byte, with the checksum made right: what is read makes sense or is refused.
#[test]
fn no_byte_breaks_anything() {
    for (_, _, bytes) in small().step_by(2) {
        let block = &bytes[4096..8192];
        for at in 0..256 + 8 {
            for value in [0, 1, 0x7f, 0x80, 0xff, block[at] ^ 1, block[at].wrapping_add(1)] {
                let mut block = block.to_vec();
                block[at] = value;
                mend(&mut block);
                read_all(Version::V1_2, 8 << 20, &block);
            }
        }
    }
}

#[test]
fn every_version_is_found_where_it_lies() {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let device: Device = Arc::new(MemoryDevice::new((33 << 20) + 512));
        let devices = [Arc::clone(&device), Arc::new(MemoryDevice::new(33 << 20))];
        let options = CreateOptions { version, ..CreateOptions::new(crate::Level::Raid1) };
        create::plan(&options, &devices).unwrap().write(&devices).unwrap();
        assert_eq!(read(&*device).unwrap().version, version);
        let examined = examine(&*device).unwrap();
        assert_eq!((examined.version, examined.problem), (version, None));
        // A superblock that lies elsewhere than it says belongs to something else: a device within the device.
        if version == Version::V1_2 {
            let mut block = vec![0; SUPERBLOCK_BYTES];
            device.read_at(4096, &mut block).unwrap();
            let end = place_of(Version::V1_0, device.size_bytes()).unwrap();
            device.write_at(end, &block).unwrap();
            assert_eq!(read(&*device).unwrap().version, version);
            device.write_at(4096, &[0; 4096]).unwrap();
            assert!(read(&*device).unwrap_err().to_string().contains("says that it lies"));
        }
    }
}

/// As mdadm writes it: two members of a RAID1, the first of which this is.
fn version_0_90() -> Vec<u8> {
    let mut words = [0_u32; 1024];
    let fixed = [
        (0, 0xa92b_4efc),
        (1, 0),
        (2, 90),
        (5, 0x1122_3344),
        (6, 1_700_000_000),
        (7, 1),
        (8, 4096),
        (9, 2),
        (10, 2),
        (13, 0x5566_7788),
        (14, 0x99aa_bbcc),
        (15, 0xddee_ff00),
        (32, 1_700_000_001),
        (33, 1),
        (39, 24),
        (43, u32::MAX),
    ];
    for (at, value) in fixed {
        words[at] = value;
    }
    for disk in 0..2_usize {
        let at = 128 + disk * 32;
        (words[at], words[at + 3], words[at + 4]) = (disk as u32, disk as u32, 0b110);
    }
    words[992 + 4] = 0b110;
    let sum: u64 = words.iter().map(|&word| u64::from(word)).sum();
    words[38] = (sum as u32).wrapping_add((sum >> 32) as u32);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn version_0_90_is_read_and_never_written() {
    let block = version_0_90();
    let device: Device = Arc::new(MemoryDevice::new(8 << 20));
    let offset = place_of(Version::V0_90, 8 << 20).unwrap();
    assert_eq!(offset, (8 << 20) - (64 << 10));
    device.write_at(offset, &block).unwrap();
    let candidate = Candidate::read(Arc::clone(&device)).unwrap();
    let found = &candidate.superblock;
    assert_eq!(found.array_uuid.to_string(), "11223344-5566-7788-99aa-bbccddeeff00");
    assert_eq!((found.events, found.member_bytes, found.data.offset), (24, 4 << 20, 0));
    assert!(found.is_clean());
    assert_eq!(found.role(), DeviceRole::Active(0));
    let examined = examine(&*device).unwrap();
    assert!(examined.to_string().contains("Version : 0.90"), "{examined}");
    let plan = assemble::plan(vec![candidate.clone()], false).unwrap();
    assert!(plan.read_only.is_some());
    assert_eq!((plan.degraded(), plan.absent()), (1, vec![1]));
    let error = candidate.superblock.clone().encode("member").unwrap_err().to_string();
    assert!(error.contains("0.90"), "{error}");

    let mut other = block.clone();
    for word in other.chunks_exact_mut(4) {
        word.reverse();
    }
    device.write_at(offset, &other).unwrap();
    assert!(read(&*device).unwrap_err().to_string().contains("big-endian"));
    for at in (0..4096).step_by(4).filter(|at| *at < 512 || *at >= 3968) {
        let mut damaged = block.clone();
        damaged[at] ^= 0x81;
        read_all(Version::V0_90, 8 << 20, &damaged);
        let sum: u64 = damaged
            .chunks_exact(4)
            .enumerate()
            .filter(|(word, _)| *word != 38)
            .map(|(_, word)| u64::from(u32::from_le_bytes(word.try_into().unwrap())))
            .sum();
        damaged[152..156].copy_from_slice(&(sum as u32).wrapping_add((sum >> 32) as u32).to_le_bytes());
        read_all(Version::V0_90, 8 << 20, &damaged);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Several words at once, and places and sizes far from what they were.
    #[test]
    fn no_words_break_anything(
        changes in prop::collection::vec((0_usize..64, prop_oneof![any::<u32>(), 0_u32..64, Just(u32::MAX)]), 1..6),
        version in prop_oneof![Just(Version::V1_0), Just(Version::V1_1), Just(Version::V1_2)],
    ) {
        let bytes = 16_u64 << 20;
        let devices: [Device; 2] = [Arc::new(MemoryDevice::new(bytes)), Arc::new(MemoryDevice::new(bytes))];
        let options =
            CreateOptions { version, bitmap: true, chunk_bytes: Some(4096), ..CreateOptions::new(Level::Raid10) };
        create::plan(&options, &devices).unwrap().write(&devices).unwrap();
        let offset = place_of(version, bytes).unwrap();
        let mut block = vec![0; SUPERBLOCK_BYTES];
        devices[0].read_at(offset, &mut block).unwrap();
        for (at, value) in changes {
            // The magic and the version stay, or nothing would be read.
            if at > 1 {
                block[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
        mend(&mut block);
        read_all(version, bytes, &block);
    }
}
