//! Members of arrays that we make, as mdadm sees them: it finds on them what it found on members that it made itself of
//! the same size and kind, and what it says of them is what we say.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::{Access, BlockDevice, Device, Error, FileDevice, FileOptions, Operation, Result};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Layout, Level, Version, create_array, examine};
use undercroft_oracle::{Scratch, Tool};

const KIB: u32 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The lines of a report, by what stands before the colon. Sizes in other units and legends are left out.
type Report = BTreeMap<String, String>;

fn report(text: &str) -> Report {
    let pairs = text.lines().filter_map(|line| line.split_once(" : "));
    let plain = |value: &str| value.split(" (").next().unwrap_or_default().trim().to_owned();
    pairs.map(|(key, value)| (key.trim().to_owned(), plain(value))).collect()
}

fn mdadm(member: &Path) -> Report {
    report(&Tool::new("mdadm").arg("--examine").arg(member).run_text().unwrap())
}

/// What the fixtures' manifest says that mdadm said of member `number`.
fn recorded(array: &str, number: usize) -> Report {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../md/tests/fixtures").join(array);
    let manifest = std::fs::read_to_string(dir.join("manifest.txt")).unwrap();
    let (_, section) = manifest.split_once(&format!("[examine d{number}.img]\n")).unwrap();
    report(section.split("\n[").next().unwrap())
}

struct Members {
    // Holds the files.
    _scratch: Scratch,
    paths: Vec<PathBuf>,
    devices: Vec<Device>,
}

fn members(count: usize, bytes: u64) -> Members {
    let scratch = Scratch::new("md").unwrap();
    let paths: Vec<PathBuf> =
        (0..count).map(|number| scratch.path().join(format!("d{number}.img"))).collect();
    let open = |path: &PathBuf| {
        std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
        let options = FileOptions { access: Access::ReadWrite, ..FileOptions::read_only() };
        Arc::new(FileDevice::open(path, options).unwrap()) as Device
    };
    let devices = paths.iter().map(open).collect();
    Members { _scratch: scratch, paths, devices }
}

/// What differs from one array to the next.
const OF_ITS_OWN: [&str; 7] =
    ["Array UUID", "Device UUID", "Checksum", "Creation Time", "Update Time", "Events", "State"];

#[test]
fn what_we_make_is_what_mdadm_makes() {
    let chunks = |level| CreateOptions { chunk_bytes: Some(64 * KIB), ..CreateOptions::new(level) };
    let cases = [
        ("raid0", 2, 8 * MIB, chunks(Level::Raid0)),
        ("raid1", 2, 8 * MIB, CreateOptions::new(Level::Raid1)),
        ("raid10", 2, 8 * MIB, chunks(Level::Raid10)),
        ("raid5-numbered", 4, 8 * MIB, chunks(Level::Raid5)),
        ("raid6", 4, 8 * MIB, chunks(Level::Raid6)),
        (
            "raid5-bitmap",
            4,
            64 * MIB,
            CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(256 * KIB), ..chunks(Level::Raid5) },
        ),
        ("raid5-ppl", 4, 64 * MIB, CreateOptions { ppl: true, ..chunks(Level::Raid5) }),
    ];
    for (array, count, bytes, options) in cases {
        let options = CreateOptions { name: array.to_owned(), host: Some("linuxvm".to_owned()), ..options };
        let members = members(count, bytes);
        create_array(&members.devices, &options).unwrap();
        for (number, path) in members.paths.iter().enumerate() {
            let (mut ours, mut theirs) = (mdadm(path), recorded(array, number));
            assert!(ours["Checksum"].ends_with("- correct"), "{array}: {ours:?}");
            for key in OF_ITS_OWN {
                assert!(ours.remove(key).is_some() && theirs.remove(key).is_some(), "{array}: no {key}");
            }
            assert_eq!(ours, theirs, "{array}, member {number}");
        }
    }
}

/// Every version and level: what mdadm reads is what we read.
#[test]
fn mdadm_and_we_say_the_same() {
    let levels = [
        (Level::Linear, 2),
        (Level::Raid0, 2),
        (Level::Raid1, 2),
        (Level::Raid4, 3),
        (Level::Raid5, 3),
        (Level::Raid6, 4),
        (Level::Raid10, 3),
    ];
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for (level, count) in levels {
            let has_redundancy = !matches!(level, Level::Linear | Level::Raid0);
            for (bitmap, assume_clean) in [(false, false), (true, true)] {
                if bitmap && !has_redundancy {
                    continue;
                }
                let options = CreateOptions {
                    version,
                    bitmap,
                    assume_clean,
                    spares: u32::from(has_redundancy),
                    name: "array".to_owned(),
                    ..CreateOptions::new(level)
                };
                agree(&options, count + usize::from(has_redundancy));
            }
        }
    }
    let zones = Some(Layout::Zones(1));
    agree(&CreateOptions { layout: zones, ..CreateOptions::new(Level::Raid0) }, 2);
}

fn agree(options: &CreateOptions, count: usize) {
    let members = members(count, 40 * MIB + 512);
    create_array(&members.devices, options).unwrap();
    for (path, device) in members.paths.iter().zip(&members.devices) {
        let (mut theirs, ours) = (mdadm(path), report(&examine(&**device).unwrap().to_string()));
        for (key, value) in &ours {
            // Times of day are in their own zone there.
            if key.ends_with("Time") {
                continue;
            }
            let told = theirs.remove(key);
            // mdadm counts parts of chunks that the array has not.
            if key == "Array Size" && options.level == Level::Raid10 {
                continue;
            }
            let rounding = key == "Chunk Size" && options.level == Level::Linear;
            assert!(told.as_ref() == Some(value) || rounding, "{options:?}: {key}: {told:?}, we say {value}");
        }
        for key in ["Magic", "Unused Space", "Creation Time", "Update Time", "Rounding"] {
            theirs.remove(key);
        }
        // It has none and says 0.
        if options.level == Level::Linear {
            theirs.remove("Used Dev Size");
        }
        assert!(theirs.is_empty(), "{options:?}: {theirs:?}");
    }
}

/// A device of which a range takes no writes.
#[derive(Debug)]
struct Scratched {
    base: Device,
    bad: Range<u64>,
}

impl BlockDevice for Scratched {
    fn name(&self) -> String {
        self.base.name()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let len = data.len() as u64;
        if offset < self.bad.end && self.bad.start < offset + len {
            let source = std::io::Error::other("a scratch");
            return Err(Error::Io { operation: Operation::Write, offset, len, device: self.name(), source });
        }
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.base.flush()
    }
}

#[test]
fn mdadm_sees_the_blocks_that_took_no_write() {
    for level in [Level::Raid1, Level::Raid5] {
        let members = members(3, 8 * MIB);
        let new = CreateOptions { assume_clean: true, ..CreateOptions::new(level) };
        create_array(&members.devices, &new).unwrap();
        let data_offset = examine(&*members.devices[1]).unwrap().data_offset;
        let start = data_offset + 72 * u64::from(KIB);
        let bad = start..start + 3 * 4096;
        let devices = members.devices.iter().enumerate().map(|(number, base)| {
            let bad = if number == 1 { bad.clone() } else { 0..0 };
            Arc::new(Scratched { base: Arc::clone(base), bad }) as Device
        });
        let array = Array::open(devices.collect(), ArrayOptions::default()).unwrap();
        array.write_at(0, &vec![7; array.size_bytes() as usize]).unwrap();
        array.close().unwrap();
        for (number, path) in members.paths.iter().enumerate() {
            let said = Tool::new("mdadm").arg("--examine-badblocks").arg(path).run_text().unwrap();
            let listed = format!("{} for 24 sectors", start / 512);
            assert_eq!(said.contains(&listed), number == 1, "{level:?}: {said}");
            let log = &mdadm(path)["Bad Block Log"];
            assert_eq!(log.contains("bad blocks present"), number == 1, "{level:?}: {log}");
        }
    }
}
