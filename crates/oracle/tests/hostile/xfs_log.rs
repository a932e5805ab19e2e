//! Damaged logs of XFS: a recovery answers with data or with one sentence, soon, and in little memory.
//!
//! Fault model: images that the kernel left dirty under random work, in which records that a recovery replays are
//! changed: bits, bytes and fields anywhere, numbers at the start of an operation or of what it carries, or a record's
//! bytes for another's. In half of them the records' checksums are recomputed, so that the damage gets past those.
//!
//! `UNDERCROFT_HOSTILE_LOGS` sets how many there are (400), `UNDERCROFT_SEED` replays one.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::{Load, LoadOptions, Mix, MkfsXfs, MountMode, Tool};
use undercroft_xfs::testing::{LogRecord, log_records};
use undercroft_xfs::{CheckOptions, OpenOptions, Xfs};

use crate::damage::walk::{Outcome, walk_all};
use crate::damage::{Damaged, change, check_sentence, number_from_environment, watched};
use crate::reading::each_of;

const IMAGES: u64 = 400;

/// So many records are damaged, or fewer.
const RECORDS: u64 = 3;

/// One image of so many is checked, too.
const ONE_IN_IS_CHECKED: u64 = 8;

/// What an operation's header and the description of what it carries take, about.
const DESCRIPTION_BYTES: u64 = 12 + 64;

struct Victim {
    name: &'static str,
    bytes: Arc<[u8]>,
    records: Vec<(LogRecord, Vec<u8>)>,
}

pub(crate) fn damaged_logs_are_answered_with_data_or_a_clear_error() {
    let victims: Vec<Victim> = [
        "-m rmapbt=1",
        "-l su=32k",
        "-b size=1024 -m rmapbt=1 -l su=256k",
        "-b size=2048 -m finobt=0,inobtcount=0,reflink=0",
    ]
    .into_iter()
    .map(Victim::new)
    .collect();
    let try_one = |seed| {
        let mut random = Rng::new(seed);
        let victim = &victims[random.below(victims.len() as u64) as usize];
        let damaged: Device = Arc::new(victim.damage(&mut random));
        watched(victim.name, seed, || {
            let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
            match Xfs::open_read_only(damaged, options) {
                Ok(fs) => {
                    if random.below(ONE_IN_IS_CHECKED) == 0
                        && let Err(error) = fs.check(&CheckOptions::default())
                    {
                        check_sentence(&error.to_string());
                    }
                    walk_all(fs, Ok(()))
                }
                Err(error) => {
                    check_sentence(&error.to_string());
                    Outcome::Refused
                }
            }
        })
    };
    let images = number_from_environment("UNDERCROFT_HOSTILE_LOGS").unwrap_or(IMAGES);
    each_of(images, try_one, |(refused, _, unhurt)| {
        assert!(refused > images / 10, "only {refused} of {images} logs were refused");
        assert!(unhurt > images / 10, "only {unhurt} of {images} images were walked without an error");
    });
}

impl Victim {
    /// Of an image that the kernel left dirty.
    fn new(name: &'static str) -> Self {
        let image = MkfsXfs::new(80, name).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
        let load =
            Load::start(mount.path(), LoadOptions { seed: 0x5eed, sync_one_in: 6, mix: Mix::Xfs }).unwrap();
        load.wait_for(500).unwrap();
        Tool::new("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(mount.path()).run().unwrap();
        drop(load.stop().unwrap());
        mount.unmount().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let device: Device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), Access::ReadOnly));
        let records: Vec<_> = log_records(&device)
            .unwrap()
            .into_iter()
            .map(|record| {
                let bytes = record.read(&*device).unwrap();
                (record, bytes)
            })
            .collect();
        assert!(!records.is_empty(), "{name}: the log is clean");
        for (record, bytes) in &records {
            let mut mended = bytes.clone();
            record.mend(&mut mended);
            assert_eq!(&mended, bytes, "{name}: {record:?}");
        }
        Self { name, bytes: bytes.into(), records }
    }

    fn damage(&self, random: &mut Rng) -> Damaged {
        let mend = random.below(2) == 0;
        let mut patches = Vec::new();
        for _ in 0..=random.below(RECORDS) {
            let (record, good) = &self.records[random.index(self.records.len())];
            let mut bytes = good.clone();
            for _ in 0..=random.below(3) {
                self.change(record, &mut bytes, random);
            }
            if mend {
                record.mend(&mut bytes);
            }
            let mut at = 0;
            for piece in &record.pieces {
                let len = (piece.end - piece.start) as usize;
                patches.push((piece.start, bytes[at..at + len].to_vec()));
                at += len;
            }
        }
        Damaged { base: Arc::clone(&self.bytes), patches }
    }

    fn change(&self, record: &LogRecord, bytes: &mut [u8], random: &mut Rng) {
        match random.below(8) {
            0 => change(bytes, &self.bytes, 512, random),
            // The record's own header.
            1 => change(&mut bytes[..512], &self.bytes, 512, random),
            2 => {
                let (_, other) = &self.records[random.index(self.records.len())];
                let len = bytes.len().min(other.len());
                let from = random.below(len as u64) as usize / 512 * 512;
                bytes[from..len].copy_from_slice(&other[from..len]);
            }
            // An operation's header, or the beginning of what it carries.
            _ if !record.operations.is_empty() => {
                let from = record.operations[random.index(record.operations.len())];
                let at = from + random.below(DESCRIPTION_BYTES) as usize;
                let end = bytes.len();
                if at + 8 <= end {
                    let width = [1, 2, 4, 8][random.index(4)];
                    let at = from + (at - from) / width * width;
                    let values = [
                        0,
                        1,
                        2,
                        3,
                        0x7f,
                        0xff,
                        0x123b,
                        0x123c,
                        0xffff,
                        0x7fff_ffff,
                        u64::MAX >> 1,
                        u64::MAX,
                    ];
                    let value = match random.below(3) {
                        0 => random.bits(),
                        _ => values[random.index(values.len())],
                    };
                    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                }
            }
            _ => {}
        }
    }
}
