//! Logs that are torn at the head, as power that goes in the middle of a write leaves them: of the last record some
//! sectors are missing, older or damaged. Sectors are the log's, of 512 bytes or more, as a device writes them whole or not at
//! all: of pieces of larger ones Linux, which reads whole sectors there, may see what it read before. Where the kernel recovers such an image, both show the same; where it refuses
//! it, we do.

use std::fs::File;
use std::os::unix::fs::FileExt;

use undercroft_block::testing::Rng;
use undercroft_oracle::{Error, Image, Result};

use crate::judge::{Seen, judge_torn};
use crate::setup::{Bay, Dirty, SETUPS, Setup, make_dirty};

/// Ways to tear the last record.
const WAYS: u64 = 6;

/// The log of an image, in sectors of 512 bytes.
struct Log {
    file: File,
    start: u64,
    sectors: u64,
    /// Those of which the device makes one.
    together: u64,
}

/// A record: its first sector, those of its headers and those of its data.
#[derive(Clone, Copy, Debug)]
struct Record {
    first: u64,
    headers: u64,
    data: u64,
    cycle: u32,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Log {
    fn of(image: &Image) -> Result<Self> {
        let number = |name: &str| image.xfs_number(&["sb 0", &format!("print {name}")], name);
        let (block_bytes, start) = (number("blocksize")?, number("logstart")?);
        let (group, within) = (start >> number("agblklog")?, start & ((1 << number("agblklog")?) - 1));
        let start = (group * number("agblocks")? + within) * block_bytes;
        let sectors = number("logblocks")? * block_bytes / 512;
        let together = (number("logsectsize")? / 512).max(1);
        let file = File::options().read(true).write(true).open(image.path()).map_err(|source| {
            Error::System { action: "open", path: image.path().display().to_string(), source }
        })?;
        Ok(Self { file, start, sectors, together })
    }

    fn read(&self, sector: u64) -> [u8; 512] {
        let mut bytes = [0; 512];
        self.file.read_exact_at(&mut bytes, self.start + sector % self.sectors * 512).unwrap();
        bytes
    }

    fn write(&self, sector: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, self.start + sector % self.sectors * 512).unwrap();
    }

    /// The records with the latest positions, latest first.
    fn latest(&self, count: usize) -> Vec<Record> {
        let mut found = Vec::new();
        for sector in 0..self.sectors {
            let bytes = self.read(sector);
            if be32(&bytes, 0) != 0xFEED_BABE {
                continue;
            }
            let headers = u64::from(be32(&bytes, 320)).div_ceil(32 << 10).max(1);
            let data = u64::from(be32(&bytes, 12)).div_ceil(512);
            let cycle = be32(&bytes, 4);
            found.push(((cycle, sector), Record { first: sector, headers, data, cycle }));
        }
        found.sort_unstable_by_key(|(position, _)| std::cmp::Reverse(*position));
        found.into_iter().map(|(_, record)| record).take(count).collect()
    }

    /// Tears a record in one of the ways.
    fn tear(&self, record: Record, way: u64, random: &mut Rng) {
        let Record { first, headers, data, cycle } = record;
        let all = headers + data;
        let end = first + all;
        // From a sector of the device to the end.
        let lost = end - 1 - random.below(data);
        let lost = lost - lost % self.together..end;
        match way {
            // The last sectors never reached the disk: they are of the round before.
            0 => lost.for_each(|sector| self.make_older(sector, cycle)),
            1 => lost.for_each(|sector| self.write(sector, &[0; 512])),
            // Sectors in the middle, while later ones did.
            2 => self.lose(first + headers + random.below(data), cycle),
            // All is there, and some of it is wrong.
            3 => {
                let sector = first + random.below(all);
                let mut bytes = self.read(sector);
                let at = 8 + random.below(500) as usize;
                bytes[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0x5A);
                self.write(sector, &bytes);
            }
            // The header did not reach the disk, and the data did.
            4 => self.lose(first, cycle),
            _ => (0..all).for_each(|n| self.make_older(first + n, cycle)),
        }
    }

    /// The whole sector of the device around this one did not reach the disk.
    fn lose(&self, sector: u64, cycle: u32) {
        let first = sector - sector % self.together;
        (first..first + self.together).for_each(|sector| self.make_older(sector, cycle));
    }

    /// Something of an earlier round of the log.
    fn make_older(&self, sector: u64, cycle: u32) {
        let wraps = sector / self.sectors > 0;
        let before = (cycle + u32::from(wraps)) - 1;
        let mut bytes = [if before == 0 { 0 } else { 0x77 }; 512];
        bytes[..4].copy_from_slice(&before.to_be_bytes());
        self.write(sector, &bytes);
    }
}

#[test]
fn torn_logs_end_where_the_kernel_ends_them() {
    let bay = Bay::new().unwrap();
    let setups: Vec<&Setup> =
        SETUPS.iter().filter(|setup| setup.log_mib.is_none() && !setup.small_blocks).collect();
    let tallies = crate::each_seed(2, |seed| {
        let setup = setups[(seed % setups.len() as u64) as usize];
        let mut images =
            make_dirty(&bay, setup, seed).unwrap_or_else(|error| panic!("seed {seed} ({setup:?}): {error}"));
        let base = images.pop().expect("a shutdown leaves an image").image;
        drop(images);
        let mut random = Rng::new(seed);
        let mut tally = [0; 3];
        for way in 0..WAYS {
            let image = base.reflink().unwrap();
            let log = Log::of(&image).unwrap();
            let records = log.latest(3);
            // Some of the last records may have been under way at once.
            let record = if way < 4 { records[random.index(records.len())] } else { records[0] };
            log.tear(record, way, &mut random);
            drop(log);
            let dirty = Dirty { image, log: None, live: None, small_blocks: false };
            let seen =
                judge_torn(&dirty, &format!("seed {seed}, torn in way {way} at {record:?} ({})", setup.mkfs));
            match seen {
                Some(Seen::Shown { recovery, .. }) => {
                    tally[0] += 1;
                    tally[1] += u32::from(recovery.is_some_and(|recovery| recovery.torn_at.is_some()));
                }
                _ => tally[2] += 1,
            }
        }
        tally
    });
    let [same, torn, refused] = [0, 1, 2].map(|of| tallies.iter().map(|tally| tally[of]).sum::<u32>());
    println!("{same} torn logs shown alike, {torn} of them damaged at the end; {refused} refused by both");
    assert!(same > refused && torn > 0, "{same} shown, {torn} torn, {refused} refused");
}
