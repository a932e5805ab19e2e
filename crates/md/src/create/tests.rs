//! New arrays: they can be assembled, and what cannot be is refused.

use std::sync::Arc;

use super::*;
use crate::assemble::{self, Candidate, Consistency};
use crate::{Layout, Raid10Copies};
use undercroft_block::MemoryDevice;

fn devices(count: usize, bytes: u64) -> Vec<Device> {
    (0..count).map(|_| Arc::new(MemoryDevice::new(bytes)) as Device).collect()
}

fn assembled(options: &CreateOptions, devices: &[Device]) -> assemble::Plan {
    let mut new = plan(options, devices).unwrap();
    new.write(devices).unwrap();
    let given = devices.iter().map(|device| Candidate::read(Arc::clone(device)).unwrap()).collect();
    let found = assemble::plan(given, false).unwrap();
    assert_eq!(found.geometry, new.geometry);
    found
}

#[test]
fn what_was_made_can_be_assembled() {
    let levels = [
        (Level::Linear, 2),
        (Level::Raid0, 3),
        (Level::Raid1, 2),
        (Level::Raid4, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
        (Level::Raid10, 4),
    ];
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for (level, disks) in levels {
            let options = CreateOptions {
                version,
                name: "a".to_owned(),
                host: Some("host".to_owned()),
                ..CreateOptions::new(level)
            };
            let devices = devices(disks, 33 << 20);
            let found = assembled(&options, &devices);
            assert_eq!(found.name, "host:a");
            assert_eq!(found.degraded(), 0);
            let expected = if matches!(level, Level::Linear | Level::Raid0) {
                Consistency::Clean
            } else {
                Consistency::Resync { from: 0 }
            };
            assert_eq!(found.consistency, expected, "{level:?}");
            let clean = CreateOptions { assume_clean: true, ..options.clone() };
            assert_eq!(assembled(&clean, &devices).consistency, Consistency::Clean);
            if !matches!(level, Level::Linear | Level::Raid0) {
                let options = CreateOptions { bitmap: true, spares: 1, ..options };
                let found = assembled(&options, &devices);
                assert_eq!(found.consistency, Consistency::Bitmap);
                assert_eq!(found.spares.len(), 1);
            }
        }
        let options = CreateOptions { version, ppl: true, ..CreateOptions::new(Level::Raid5) };
        assert_eq!(assembled(&options, &devices(3, 33 << 20)).consistency, Consistency::Ppl);
    }
}

#[test]
fn roles_may_stay_empty() {
    let resync = Consistency::Resync { from: 0 };
    for (level, disks, missing, expected) in [
        (Level::Raid5, 3, vec![2], Consistency::Clean),
        (Level::Raid4, 4, vec![0], Consistency::Clean),
        (Level::Raid6, 5, vec![1, 3], Consistency::Clean),
        (Level::Raid1, 3, vec![0, 1], Consistency::Clean),
        (Level::Raid1, 3, vec![1], resync),
        (Level::Raid10, 4, vec![1, 2], resync),
    ] {
        let options = CreateOptions { missing: missing.clone(), spares: 1, ..CreateOptions::new(level) };
        let devices = devices(disks - missing.len() + 1, 33 << 20);
        let found = assembled(&options, &devices);
        assert_eq!((found.geometry.members, found.degraded()), (disks as u32, missing.len() as u32));
        assert_eq!(
            (found.consistency, found.absent(), found.spares.len()),
            (expected, vec![], 1),
            "{level:?}"
        );
        for (role, place) in found.places.iter().enumerate() {
            let number = place.member.as_ref().map(|member| member.superblock.number);
            assert_eq!(number, (!missing.contains(&(role as u32))).then_some(role as u32));
        }
    }
    let one = CreateOptions { missing: vec![0], assume_clean: true, ..CreateOptions::new(Level::Raid6) };
    assert_eq!(assembled(&one, &devices(4, 33 << 20)).consistency, Consistency::Clean);
}

#[test]
fn members_of_several_sizes_give_what_they_have() {
    let mut several = devices(1, 33 << 20);
    several.extend(devices(1, 65 << 20));
    let zones = CreateOptions { layout: Some(Layout::Zones(2)), ..CreateOptions::new(Level::Raid0) };
    let found = assembled(&zones, &several);
    assert_eq!(found.geometry.layout, Layout::Zones(2));
    assert_eq!(found.geometry.member_bytes, [31 << 20, 63 << 20]);
    let mirror = assembled(&CreateOptions::new(Level::Raid1), &several);
    assert_eq!(mirror.geometry.member_bytes, [32 << 20; 2]);
}

#[test]
fn an_older_array_leaves_nothing_behind() {
    let devices = devices(2, 33 << 20);
    for version in [Version::V1_0, Version::V1_1, Version::V1_2, Version::V1_0] {
        let options = CreateOptions { version, ..CreateOptions::new(Level::Raid1) };
        assert_eq!(assembled(&options, &devices).version, version);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let raid5 = CreateOptions::new(Level::Raid5);
    let raid1 = CreateOptions::new(Level::Raid1);
    let copies = Layout::Copies(Raid10Copies { near: 3, far: 2, offset: false });
    let refused: [(CreateOptions, &str); 17] = [
        (CreateOptions { ppl: true, bitmap: true, ..raid5.clone() }, "exclude each other"),
        (CreateOptions { ppl: true, ..CreateOptions::new(Level::Raid6) }, "is for RAID5"),
        (CreateOptions { chunk_bytes: Some(3 << 12), ..raid5.clone() }, "chunk size"),
        (CreateOptions { chunk_bytes: Some(1000), ..raid5.clone() }, "whole sectors"),
        (CreateOptions { chunk_bytes: Some(4096), ..raid1.clone() }, "no chunks"),
        (CreateOptions { layout: Some(copies), ..raid5.clone() }, "no layout of"),
        (CreateOptions { layout: Some(copies), ..CreateOptions::new(Level::Raid10) }, "wants 6 copies"),
        (CreateOptions { bitmap: true, ..CreateOptions::new(Level::Raid0) }, "no use"),
        (CreateOptions { spares: 4, ..raid5.clone() }, "too few"),
        (CreateOptions { member_bytes: Some(1 << 40), ..raid5.clone() }, "cannot be used"),
        (CreateOptions { data_offset: Some(4096), ..raid5.clone() }, "cannot begin in byte 4096"),
        (CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(100_000), ..raid5.clone() }, "power of two"),
        (CreateOptions { missing: vec![0, 0], ..raid5.clone() }, "cannot be missing"),
        (CreateOptions { missing: vec![5], ..raid5.clone() }, "cannot be missing"),
        (CreateOptions { missing: vec![0, 1], ..raid5.clone() }, "cannot do without 2"),
        (CreateOptions { missing: vec![0], ..CreateOptions::new(Level::Raid6) }, "two as missing"),
        (CreateOptions { version: Version::V0_90, ..raid5 }, "are not made"),
    ];
    for (options, text) in refused {
        let error = plan(&options, &devices(4, 64 << 20)).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    let error = plan(&raid1, &devices(2, 1 << 20)).unwrap_err().to_string();
    assert!(error.contains("too small"), "{error}");
}

/// `64M` and the like.
fn size(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let shift = 10 * (1 + "KMGT".find(unit).expect("a unit") as u32);
    number.parse::<u64>().expect("a number") << shift
}

#[test]
fn every_size_is_laid_out_as_mdadm_does() {
    let made = include_str!("../../tests/fixtures/created.txt");
    let mut cases = 0;
    for line in made.lines().filter(|line| !line.starts_with('#')) {
        let (case, said) = line.split_once(": ").unwrap();
        let words: Vec<&str> = case.split(' ').collect();
        let level = match words[2] {
            "linear" => Level::Linear,
            "0" => Level::Raid0,
            "1" => Level::Raid1,
            "5" => Level::Raid5,
            _ => Level::Raid10,
        };
        let options = CreateOptions {
            version: match words[1] {
                "1.0" => Version::V1_0,
                "1.1" => Version::V1_1,
                _ => Version::V1_2,
            },
            bitmap: words[3] == "bitmap",
            ppl: words[3] == "ppl",
            assume_clean: true,
            ..CreateOptions::new(level)
        };
        let devices = devices(2, size(words[0]));
        plan(&options, &devices).unwrap().write(&devices).unwrap();
        let examined = crate::examine(&*devices[0]).unwrap();
        let shown = examined.to_string();
        let ours = |key: &str| {
            let mut lines = shown.lines().filter_map(|line| line.split_once(" : "));
            let (_, value) = lines.find(|(found, _)| found.trim() == key)?;
            Some(value.split(" (").next().unwrap_or_default().to_owned())
        };
        for (key, value) in said.split("; ").filter_map(|pair| pair.split_once('=')) {
            let told = match key {
                // It has no chunks, and members are used to their end.
                "Rounding" => Some(format!("{}K", examined.chunk_bytes / 1024)),
                "Used Dev Size" if level == Level::Linear => Some(value.to_owned()),
                // Linux makes the one feature of the other when it first writes to the superblock.
                "Feature Map" if options.ppl => ours(key).map(|map| map.replace("0x800", "0x400")),
                "Chunksize" => {
                    examined.bitmap.as_ref().map(|bitmap| format!("{} MB", bitmap.chunk_bytes >> 20))
                }
                "Sync Size" => examined.bitmap.as_ref().map(|bitmap| (bitmap.sync_bytes / 1024).to_string()),
                "Bitmap" => examined.bitmap.as_ref().map(|bitmap| format!("{} bits", bitmap.bits)),
                _ => ours(key),
            };
            assert_eq!(told.as_deref(), Some(value), "{case}: {key}\n{shown}");
        }
        cases += 1;
    }
    assert_eq!(cases, 120);
}
