//! Partition tables: those of sgdisk and sfdisk are read as sfdisk reads them, damaged ones as far as they go, and
//! hostile ones without harm.
//!
//! Disks with sectors of 4096 bytes are made on loop devices, for which the tests need root.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use gptman::GPTHeader;
use proptest::prelude::*;
use serde_json::Value;
use tempfile::NamedTempFile;
use undercroft_block::partition::{self, Partition, PartitionKind, Scheme, Table, TableError, partitions};
use undercroft_block::{
    Access, BlockDevice, Device, Error, FileDevice, FileOptions, MemoryDevice, PartitionDevice,
};

const MIB: u64 = 1024 * 1024;

/// A four-partition layout with an extended container, as sfdisk reads it.
const MBR_SCRIPT: &str = "label: dos\nlabel-id: 0xdeadbeef\n\
    start=2048, size=8192, type=83, bootable\n\
    start=12288, size=16384, type=82\n\
    start=32768, size=90000, type=f\n\
    start=34816, size=8192, type=83\n\
    start=45056, size=2048, type=8e\n\
    start=49152, size=8192, type=fd, bootable\n";

const GPT_SCRIPT: &str = "label: gpt\n\
    start=2048, size=16384, type=U, name=\"EFI system partition, the 36 longest\"\n\
    4: start=20480, size=4096, type=L, attrs=\"LegacyBIOSBootable\"\n\
    7: start=28672, size=8192, type=S\n";

fn disk(size: u64) -> NamedTempFile {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(size).unwrap();
    file
}

fn sfdisk(path: &Path, script: &str) {
    let mut child = Command::new("sfdisk")
        .args(["--quiet", "--no-reread"])
        .arg(path)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn sgdisk(path: &Path, arguments: &[&str]) {
    let output = Command::new("sgdisk").args(arguments).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn open(path: &Path) -> Device {
    std::sync::Arc::new(FileDevice::open(path, FileOptions::read_only()).unwrap())
}

/// A disk in memory that can be damaged.
fn in_memory(path: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(fs::read(path).unwrap(), Access::ReadWrite)
}

/// Compares a table with what sfdisk says about the same disk.
fn assert_as_sfdisk(table: &Table, path: &Path) {
    let output = Command::new("sfdisk").arg("--json").arg(path).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let json = &json["partitiontable"];
    assert_eq!(table.scheme, if json["label"] == "gpt" { Scheme::Gpt } else { Scheme::Mbr });
    let unit = json["sectorsize"].as_u64().unwrap();
    assert_eq!(u64::from(table.sector_bytes), unit);
    let disk = json["id"].as_str().unwrap().trim_start_matches("0x").to_lowercase();
    assert_eq!(table.disk.unwrap().to_string(), disk);
    let theirs = json["partitions"].as_array().unwrap();
    assert_eq!(table.partitions.len(), theirs.len());
    for (our, their) in table.partitions.iter().zip(theirs) {
        let text = |key: &str| their[key].as_str().map(str::to_owned);
        let node = text("node").unwrap();
        let number = node.strip_prefix(path.to_str().unwrap()).unwrap().trim_start_matches('p');
        assert_eq!(our.number.to_string(), number);
        assert_eq!(our.start_bytes, their["start"].as_u64().unwrap() * unit);
        assert_eq!(our.size_bytes, their["size"].as_u64().unwrap() * unit);
        let kind = text("type").unwrap().to_lowercase();
        assert_eq!(our.kind.to_string().trim_start_matches('0'), kind.trim_start_matches('0'));
        assert_eq!(our.label, text("name"));
        match table.scheme {
            Scheme::Gpt => {
                assert_eq!(our.id.unwrap().to_string(), text("uuid").unwrap().to_lowercase());
                assert_eq!(
                    our.bootable,
                    text("attrs").is_some_and(|attrs| attrs.contains("LegacyBIOSBootable"))
                );
            }
            _ => {
                assert_eq!(our.id.unwrap().to_string(), format!("{disk}-{:02x}", our.number));
                assert_eq!(our.bootable, their["bootable"] == true);
            }
        }
    }
    assert_eq!(table.damage, [""; 0]);
}

#[test]
fn an_mbr_with_logical_partitions() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), MBR_SCRIPT);
    let device = open(file.path());
    let table = partitions(&*device).unwrap();
    assert_as_sfdisk(&table, file.path());
    let numbers: Vec<_> = table.partitions.iter().map(|partition| partition.number).collect();
    assert_eq!(numbers, [1, 2, 3, 5, 6, 7]);
    assert!(table.partition(3).unwrap().kind.is_extended());
    assert_eq!(table.partition(4), None);
}

#[test]
fn a_gpt_with_names_and_gaps() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), GPT_SCRIPT);
    // sfdisk itself does not write names beyond 16 bits.
    sgdisk(file.path(), &["-c", "4:Wurzel äö🌳"]);
    let table = partitions(&*open(file.path())).unwrap();
    assert_as_sfdisk(&table, file.path());
    assert_eq!(table.partition(4).unwrap().label.as_deref(), Some("Wurzel äö🌳"));
    assert_eq!(table.partition(7).unwrap().kind.name(), Some("Linux swap"));
}

#[test]
fn a_gpt_made_by_sgdisk_and_a_hybrid() {
    let file = disk(64 * MIB);
    let arguments =
        "-n 1:2048:+8M -c 1:root -t 1:8300 -n 3:0:+9M -A 3:set:2 -t 3:fd00 -n 128:0:0 -t 128:8e00";
    sgdisk(file.path(), &arguments.split(' ').collect::<Vec<_>>());
    let table = partitions(&*open(file.path())).unwrap();
    assert_as_sfdisk(&table, file.path());
    assert_eq!(table.partitions.last().unwrap().number, 128);
    sgdisk(file.path(), &["-h", "1"]);
    assert_eq!(partitions(&*open(file.path())).unwrap(), table);
}

#[test]
fn sectors_of_4096_bytes() {
    for script in [
        "label: dos\nstart=256, size=1024, type=83\nstart=2048, size=12000, type=5\nstart=2304, size=512, type=83\n",
        "label: gpt\nstart=256, size=1024, name=first\nstart=2048, size=4096, name=second\n",
    ] {
        let file = disk(64 * MIB);
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", "4096"])
            .arg(file.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "losetup (needs root): {}", String::from_utf8_lossy(&output.stderr));
        let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let result = std::panic::catch_unwind(|| {
            sfdisk(path.as_ref(), script);
            let table = partitions(&*open(path.as_ref())).unwrap();
            assert_as_sfdisk(&table, path.as_ref());
            table
        });
        assert!(Command::new("losetup").args(["--detach", &path]).status().unwrap().success());
        let table = result.unwrap();
        // The image file does not tell its sector size: a GPT shows it, for an MBR it must be said.
        let device = open(file.path());
        assert_eq!(partition::parse(&*device, &[4096]).unwrap(), table);
        if table.scheme == Scheme::Gpt {
            assert_eq!(partitions(&*device).unwrap(), table);
        }
    }
}

#[test]
fn a_damaged_gpt_is_read_from_its_backup() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), GPT_SCRIPT);
    let good = partitions(&*open(file.path())).unwrap();
    let (header, entries, last) = (512, 2 * 512 + 5, 64 * MIB - 512);
    for (damage, reason) in [(header, "there is no header"), (header + 60, "checksum"), (entries, "checksum")]
    {
        let device = in_memory(file.path());
        device.write_at(damage, &[0x5a; 3]).unwrap();
        let table = partitions(&device).unwrap();
        assert_eq!(table.partitions, good.partitions);
        assert_eq!(table.disk, good.disk);
        let [note] = table.damage.as_slice() else { panic!("{:?}", table.damage) };
        assert!(note.contains(reason) && note.contains("backup"), "{note}");

        device.write_at(last + 20, &[0x5a; 3]).unwrap();
        let error = partitions(&device).unwrap_err();
        assert!(matches!(error, TableError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("sector 131071"), "{error}");
    }
    // Damage of the backup only is not noticed by a reader of the first table.
    let device = in_memory(file.path());
    device.write_at(last, &[0; 512]).unwrap();
    assert_eq!(partitions(&device).unwrap(), good);
}

#[test]
fn a_backup_is_found_after_the_disk_has_grown() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), GPT_SCRIPT);
    let good = partitions(&*open(file.path())).unwrap();
    file.as_file().set_len(80 * MIB).unwrap();
    let device = in_memory(file.path());
    device.write_at(2 * 512, &[0x5a; 3]).unwrap();
    assert_eq!(partitions(&device).unwrap().partitions, good.partitions);
}

#[test]
fn what_has_no_table_is_one_device() {
    let none = |device: &dyn BlockDevice| {
        let table = partitions(device).unwrap();
        assert_eq!((table.scheme, table.partitions.len()), (Scheme::None, 0));
    };
    none(&MemoryDevice::new(0));
    none(&MemoryDevice::new(511));
    none(&MemoryDevice::new(MIB));
    let file = disk(8 * MIB);
    assert!(Command::new("mke2fs").args(["-q", "-F"]).arg(file.path()).status().unwrap().success());
    none(&*open(file.path()));
    // A boot sector of a filesystem: the mark, and code where the entries would be.
    let device = MemoryDevice::new(MIB);
    device.write_at(446, b"Not a system disk. Replace and strike any key when ready.......\x55\xaa").unwrap();
    none(&device);
    // A boot loader without a table.
    device.write_at(446, &[0; 64]).unwrap();
    device.write_at(510, &[0x55, 0xaa]).unwrap();
    none(&device);
}

#[test]
fn remains_of_a_gpt_under_a_newer_table_are_ignored() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), GPT_SCRIPT);
    let device = in_memory(file.path());
    device.write_at(0, &[0; 512]).unwrap();
    assert_eq!(partitions(&device).unwrap().scheme, Scheme::None);
    let other = disk(64 * MIB);
    sfdisk(other.path(), "label: dos\nstart=2048, size=8192, type=83\n");
    device.write_at(0, &fs::read(other.path()).unwrap()[..512]).unwrap();
    let table = partitions(&device).unwrap();
    assert_eq!((table.scheme, table.partitions.len()), (Scheme::Mbr, 1));
}

#[test]
fn partitions_open_as_devices() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), MBR_SCRIPT);
    let device: Device = std::sync::Arc::new(in_memory(file.path()));
    let table = partitions(&*device).unwrap();
    let fifth = table.partition(5).unwrap();
    let window = PartitionDevice::open(device.clone(), fifth).unwrap();
    assert_eq!(window.size_bytes(), 8192 * 512);
    assert!(window.name().ends_with("partition 5"));
    window.write_at(0, b"first byte").unwrap();
    let mut buf = [0; 10];
    device.read_at(34816 * 512, &mut buf).unwrap();
    assert_eq!(&buf, b"first byte");

    let short = MemoryDevice::from_bytes(
        fs::read(file.path()).unwrap()[..20 * 1024 * 1024].to_vec(),
        Access::ReadOnly,
    );
    let table = partitions(&short).unwrap();
    let seventh = Partition { ..table.partition(7).cloned().unwrap_or_else(|| fifth.clone()) };
    let result = PartitionDevice::open(std::sync::Arc::new(short), &seventh);
    assert!(matches!(result, Err(Error::OutOfRange { .. })), "{result:?}");
}

/// An extended boot record with one logical partition and a link, both in sectors.
fn record(partition: (u32, u32), link: (u32, u32)) -> [u8; 512] {
    let mut bytes = [0; 512];
    for (at, kind, (start, sectors)) in [(446, 0x83, partition), (462, 0x05, link)] {
        bytes[at + 4] = kind;
        bytes[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

#[test]
fn endless_chains_end() {
    // The second record links to itself.
    let device = MemoryDevice::new(MIB);
    device.write_at(0, &record((1, 1), (100, 1000))).unwrap();
    device.write_at(100 * 512, &record((1, 1), (10, 20))).unwrap();
    device.write_at(110 * 512, &record((1, 1), (10, 20))).unwrap();
    let table = partitions(&device).unwrap();
    assert_eq!(table.partitions.iter().map(|partition| partition.number).collect::<Vec<_>>(), [1, 2, 5, 6]);
    assert!(table.damage[0].contains("does not end"), "{:?}", table.damage);

    // Every sector links to the next one, with and without partitions of its own.
    for size in [1, 0] {
        let device = MemoryDevice::new(4 * MIB);
        device.write_at(0, &record((1, 1), (1, 8000))).unwrap();
        for sector in 1..8000_u32 {
            device.write_at(u64::from(sector) * 512, &record((1, size), (sector, 1))).unwrap();
        }
        let table = partitions(&device).unwrap();
        assert!(table.partitions.len() <= 256);
        assert_eq!(table.damage.len(), 1);
    }

    // The chain leaves the disk.
    let device = MemoryDevice::new(MIB);
    device.write_at(0, &record((u32::MAX, u32::MAX), (u32::MAX, u32::MAX))).unwrap();
    let table = partitions(&device).unwrap();
    assert_eq!(table.partitions[0].kind, PartitionKind::Mbr(0x83));
    assert!(table.damage[0].contains("should hold an extended boot record"), "{:?}", table.damage);
}

/// Puts a header with any numbers on a disk, with a checksum that is right.
fn write_header(device: &MemoryDevice, sector: u64, change: impl FnOnce(&mut GPTHeader)) {
    let mut bytes = vec![0; 512];
    device.read_at(sector * 512, &mut bytes).unwrap();
    let mut header = GPTHeader::read_from(&mut Cursor::new(&bytes)).unwrap();
    change(&mut header);
    header.update_crc32_checksum();
    let fields: [(usize, Vec<u8>); 8] = [
        (16, header.crc32_checksum.to_le_bytes().to_vec()),
        (24, header.primary_lba.to_le_bytes().to_vec()),
        (32, header.backup_lba.to_le_bytes().to_vec()),
        (48, header.last_usable_lba.to_le_bytes().to_vec()),
        (72, header.partition_entry_lba.to_le_bytes().to_vec()),
        (80, header.number_of_partition_entries.to_le_bytes().to_vec()),
        (84, header.size_of_partition_entry.to_le_bytes().to_vec()),
        (88, header.partition_entry_array_crc32.to_le_bytes().to_vec()),
    ];
    for (at, field) in fields {
        device.write_at(sector * 512 + at as u64, &field).unwrap();
    }
}

#[test]
fn hostile_headers_with_right_checksums_are_refused() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), GPT_SCRIPT);
    type Change = fn(&mut GPTHeader);
    let changes: [(Change, &str); 7] = [
        (|header| header.number_of_partition_entries = u32::MAX, "4294967295 entries"),
        (|header| header.number_of_partition_entries = 4097, "4097 entries"),
        (|header| header.size_of_partition_entry = u32::MAX, "entries of 4294967295 bytes"),
        (|header| header.size_of_partition_entry = 0, "entries of 0 bytes"),
        (|header| header.partition_entry_lba = u64::MAX, "outside the device"),
        (|header| header.partition_entry_lba = u64::MAX / 512 - 3, "outside the device"),
        (|header| header.primary_lba = 7, "says it is at sector 7"),
    ];
    for (change, reason) in changes {
        let device = in_memory(file.path());
        write_header(&device, 1, change);
        device.write_at(64 * MIB - 512, &[0; 512]).unwrap();
        let error = partitions(&device).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    // Without entries it is a table all the same.
    let device = in_memory(file.path());
    write_header(&device, 1, |header| {
        header.number_of_partition_entries = 0;
        header.partition_entry_array_crc32 = 0;
    });
    let table = partitions(&device).unwrap();
    assert_eq!((table.scheme, table.partitions.len()), (Scheme::Gpt, 0));
}

#[test]
fn entries_that_make_no_sense_are_named_and_left_out() {
    let file = disk(64 * MIB);
    sfdisk(file.path(), GPT_SCRIPT);
    let bytes = fs::read(file.path()).unwrap();
    let header = GPTHeader::read_from(&mut Cursor::new(&bytes[512..])).unwrap();
    let mut entries = header.read_partitions(&mut Cursor::new(&bytes), 512).unwrap();
    entries[0].ending_lba = u64::MAX;
    entries[3].ending_lba = entries[3].starting_lba - 1;
    let device = in_memory(file.path());
    for (index, entry) in entries.iter().enumerate() {
        device.write_at(1024 + index as u64 * 128 + 40, &entry.ending_lba.to_le_bytes()).unwrap();
    }
    write_header(&device, 1, |header| {
        header.partition_entry_array_crc32 = header.generate_partition_entry_array_crc32(&entries);
    });
    let table = partitions(&device).unwrap();
    assert_eq!(table.partitions.iter().map(|partition| partition.number).collect::<Vec<_>>(), [7]);
    assert_eq!(table.damage.len(), 2, "{:?}", table.damage);
}

proptest! {
    /// Whatever the bytes, there is an answer, and it is bounded.
    #[test]
    fn any_bytes_get_an_answer(
        mut bytes in proptest::collection::vec(any::<u8>(), 512..40 * 512),
        flags in any::<[bool; 4]>(),
        kinds in any::<[u8; 4]>(),
        protective in any::<bool>(),
    ) {
        for entry in 0..4 {
            bytes[446 + entry * 16] = if flags[entry] { 0x80 } else { 0 };
            bytes[450 + entry * 16] = [0x05, 0x83, 0xee, kinds[entry]][usize::from(kinds[entry]) % 4];
        }
        if protective {
            bytes[450] = 0xee;
            bytes[454..458].copy_from_slice(&1_u32.to_le_bytes());
        }
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        if bytes.len() >= 1024 {
            bytes[512..520].copy_from_slice(b"EFI PART");
        }
        let device = MemoryDevice::from_bytes(bytes, Access::ReadOnly);
        for sectors in [&[512][..], &[4096, 512], &[65536], &[], &[0, 3, u32::MAX]] {
            if let Ok(table) = partition::parse(&device, sectors) {
                prop_assert!(table.partitions.len() <= 256);
                prop_assert!(table.partitions.iter().all(|partition| partition.size_bytes > 0));
            }
        }
    }

    /// A table with a few bytes changed is still the same table, or says what is wrong.
    #[test]
    fn a_few_changed_bytes_do_not_mislead(changes in proptest::collection::vec((512_u64..34 * 512, any::<u8>()), 1..5)) {
        static DISK: std::sync::OnceLock<(Vec<u8>, Table)> = std::sync::OnceLock::new();
        let (bytes, good) = DISK.get_or_init(|| {
            let file = disk(MIB);
            sfdisk(file.path(), "label: gpt\nstart=64, size=64, name=first\nstart=128, size=1024, name=second\n");
            (fs::read(file.path()).unwrap(), partitions(&*open(file.path())).unwrap())
        });
        let device = MemoryDevice::from_bytes(bytes.clone(), Access::ReadWrite);
        for (at, byte) in changes {
            // The rest of the header's sector is not part of the table.
            if !(512 + 92..1024).contains(&at) {
                device.write_at(at, &[byte]).unwrap();
            }
        }
        prop_assert_eq!(&partitions(&device).unwrap().partitions, &good.partitions);
    }
}
