//! Tables made, changed, written and read again; and those that are refused.

use uuid::Uuid;

use super::*;
use crate::MemoryDevice;

const MIB: u64 = 1 << 20;

fn new(kind: &str, start_mib: u64, mib: u64) -> NewPartition {
    NewPartition {
        number: None,
        start_bytes: start_mib * MIB,
        size_bytes: mib * MIB,
        kind: PartitionKind::gpt_named(kind, None).unwrap(),
        label: Some(kind.to_owned()),
        id: Uuid::from_u128(u128::from(start_mib)),
        attributes: 1 << 60,
        bootable: false,
    }
}

fn of_mbr(kind: u8, start_mib: u64, mib: u64) -> NewPartition {
    NewPartition { kind: PartitionKind::Mbr(kind), ..new("linux", start_mib, mib) }
}

fn gpt(disk: &MemoryDevice, sector_bytes: u32) -> TableEditor {
    let mut editor = TableEditor::new_gpt(disk.size_bytes(), sector_bytes, Uuid::from_u128(7)).unwrap();
    assert_eq!(editor.add(&new("esp", 1, 10)).unwrap(), 1);
    assert_eq!(editor.add(&NewPartition { number: Some(5), ..new("root", 20, 30) }).unwrap(), 5);
    editor
}

/// What the reader makes of it, without damage.
fn read(disk: &MemoryDevice) -> Table {
    let table = partitions(disk).unwrap();
    assert_eq!(table.damage, Vec::<String>::new());
    table
}

#[test]
fn a_gpt_reads_as_it_was_written() {
    for sector_bytes in [512, 4096] {
        let disk = MemoryDevice::new(64 * MIB);
        let editor = gpt(&disk, sector_bytes);
        editor.write(&disk).unwrap();
        assert_eq!(&read(&disk), editor.table());
        assert_eq!(editor.gaps(MIB), [11 * MIB..20 * MIB, 50 * MIB..63 * MIB]);
        // The backup is as good.
        disk.write_at(u64::from(sector_bytes), &[0; 512]).unwrap();
        let backup = partitions(&disk).unwrap();
        assert_eq!((backup.partitions, backup.damage.len()), (editor.table().partitions.clone(), 1));
    }
}

#[test]
fn an_mbr_reads_as_it_was_written() {
    let disk = MemoryDevice::new(64 * MIB);
    let mut editor = TableEditor::new_mbr(disk.size_bytes(), 512, 0x1234_5678).unwrap();
    let boot = NewPartition { bootable: true, ..of_mbr(0x83, 1, 10) };
    assert_eq!(editor.add(&boot).unwrap(), 1);
    assert_eq!(editor.add(&of_mbr(0x82, 11, 5)).unwrap(), 2);
    editor.write(&disk).unwrap();
    let table = read(&disk);
    assert_eq!(table.partitions, editor.table().partitions);
    assert_eq!(table.partitions[0].label, None);
    assert!(table.partitions[0].bootable && !table.partitions[1].bootable);
    // Boot code stays.
    disk.write_at(0, b"code").unwrap();
    let mut editor = TableEditor::open(&disk).unwrap();
    editor.set_size(2, 7 * MIB).unwrap();
    editor.add(&of_mbr(0x83, 20, 1)).unwrap();
    editor.add(&of_mbr(0x83, 21, 1)).unwrap();
    let five = editor.add(&of_mbr(0x83, 22, 1)).unwrap_err().to_string();
    assert!(five.contains("four partitions"), "{five}");
    editor.write(&disk).unwrap();
    let mut front = [0; 4];
    disk.read_at(0, &mut front).unwrap();
    assert_eq!((&front, read(&disk).partition(2).unwrap().size_bytes), (b"code", 7 * MIB));
}

#[test]
fn what_does_not_fit_is_refused() {
    let disk = MemoryDevice::new(64 * MIB);
    let mut editor = gpt(&disk, 512);
    let before = editor.table().clone();
    let twice = Uuid::from_u128(1);
    let long = "x".repeat(37);
    for (wrong, word) in [
        (new("home", 10, 2), "partition 1 lies from"),
        (new("home", 49, 2), "partition 5 lies from"),
        (new("home", 0, 1), "are not free"),
        (new("home", 60, 4), "are not free"),
        (new("home", 60, 0), "one sector"),
        (new("home", u64::MAX >> 20, u64::MAX >> 20), "one sector"),
        (NewPartition { start_bytes: 55 * MIB + 7, ..new("home", 55, 1) }, "whole sectors"),
        (NewPartition { number: Some(5), ..new("home", 55, 1) }, "a partition 5"),
        (NewPartition { number: Some(129), ..new("home", 55, 1) }, "128 entries"),
        (NewPartition { number: Some(0), ..new("home", 55, 1) }, "128 entries"),
        (NewPartition { id: twice, ..new("home", 55, 1) }, "with the UUID"),
        (NewPartition { label: Some(long), ..new("home", 55, 1) }, "too long"),
        (of_mbr(0x83, 55, 1), "types of its own"),
    ] {
        let refusal = editor.add(&wrong).unwrap_err().to_string();
        assert!(refusal.contains(word), "{refusal}");
    }
    assert!(editor.set_size(2, MIB).is_err());
    assert!(editor.set_size(1, 20 * MIB).is_err());
    assert!(editor.set_disk_size(50 * MIB).unwrap_err().to_string().contains("at least 52445696 bytes"));
    assert!(editor.set_disk_size(100).is_err());
    assert_eq!(editor.table(), &before);
    for (size, sector) in [(0, 512), (1 << 15, 4096), (MIB, 0), (MIB, 513), (MIB, 8192)] {
        assert!(TableEditor::new_gpt(size, sector, Uuid::nil()).is_err(), "{size} {sector}");
    }
    assert!(TableEditor::new_mbr(512, 512, 1).is_err());
}

#[test]
fn the_backup_moves_with_the_end_of_the_disk() {
    let small = MemoryDevice::new(64 * MIB);
    gpt(&small, 512).write(&small).unwrap();
    for mib in [128, 51] {
        let disk = MemoryDevice::new(128 * MIB);
        let mut bytes = vec![0; 64 << 20];
        small.read_at(0, &mut bytes).unwrap();
        disk.write_at(0, &bytes).unwrap();
        let mut editor = TableEditor::open(&disk).unwrap();
        editor.set_disk_size(mib * MIB).unwrap();
        editor.write(&disk).unwrap();
        let mut mark = [0; 8];
        disk.read_at(mib * MIB - 512, &mut mark).unwrap();
        assert_eq!(&mark, b"EFI PART");
        if mib == 128 {
            disk.read_at(64 * MIB - 512, &mut mark).unwrap();
            assert_eq!(mark, [0; 8]);
        }
        let mut editor = TableEditor::open(&disk).unwrap();
        let is_longer = editor.set_size(5, 40 * MIB).is_ok();
        assert_eq!(is_longer, mib == 128);
    }
}

#[test]
fn a_table_that_contradicts_itself_is_not_changed() {
    let disk = MemoryDevice::new(64 * MIB);
    assert!(matches!(TableEditor::open(&disk), Err(EditError::NoTable { .. })));
    let editor = gpt(&disk, 512);
    // Partition 5 reaches into the first.
    let Form::Gpt(mut overlapping) = editor.form else { unreachable!("it is a GPT") };
    overlapping.entries[4].starting_lba = 4096;
    overlapping.write(&disk, &editor.table).unwrap();
    let error = TableEditor::open(&disk).unwrap_err();
    assert!(
        matches!(&error, EditError::Damaged { damage, .. } if damage.contains("1 and 5 overlap")),
        "{error}"
    );
    // The entries lie where partitions may.
    overlapping.entries[4].starting_lba = 40 * 2048;
    overlapping.header.partition_entry_lba = 60 * 2048;
    overlapping.write(&disk, &editor.table).unwrap();
    let error = TableEditor::open(&disk).unwrap_err().to_string();
    assert!(error.contains("no room for both copies"), "{error}");
    // The copy at the start is damaged, and the backup is read.
    disk.write_at(512, &[0; 512]).unwrap();
    assert!(matches!(TableEditor::open(&disk), Err(EditError::Damaged { .. })));
}
