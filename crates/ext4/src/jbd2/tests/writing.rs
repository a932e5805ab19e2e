//! Logs that we write, read by our own recovery: around the end of the ring, across the pieces that the log lies in,
//! with numbers that wrap, whatever form the log had before.

use std::collections::{BTreeMap, VecDeque};

use undercroft_block::{Access, BlockDevice, Device, MemoryDevice};

use super::super::features::Checksums;
use super::super::sequence::Sequence;
use super::super::superblock::LogForm;
use super::super::{Log, LogWriter};
use super::builder::{BLOCK, Form, LogBuilder};
use crate::numbers::FsBlock;

/// Blocks that transactions may write to.
const HOMES: std::ops::Range<u64> = 10..290;
const MAGIC: [u8; 4] = 0xC03B_3998_u32.to_be_bytes();

/// What a transaction wrote and revoked.
struct Written {
    sequence: Sequence,
    blocks: u32,
    copies: Vec<u64>,
    revoked: Vec<FsBlock>,
}

fn content(home: u64, sequence: Sequence) -> Vec<u8> {
    let mut bytes = [home as u32, sequence.0].map(u32::to_le_bytes).concat().repeat(BLOCK / 8);
    if home.is_multiple_of(7) {
        bytes[..4].copy_from_slice(&MAGIC);
    }
    bytes
}

/// `count` homes from one that the round chooses, each once.
fn homes(round: u32, count: u64) -> impl Iterator<Item = u64> {
    let all = HOMES.end - HOMES.start;
    (0..count).map(move |n| HOMES.start + (u64::from(round) * 37 + n) % all)
}

fn clean_log(log: &LogBuilder, device: &Device) -> super::super::CleanLog {
    match Log::open(&**device, log.location(), LogBuilder::volume()).unwrap() {
        Log::Clean(clean) => clean,
        Log::Dirty(_) => panic!("the log is dirty"),
    }
}

fn append(writer: &mut LogWriter, device: &Device, sequence: Sequence, round: u32) -> Written {
    let copies: Vec<u64> = homes(round, u64::from(round * 13 % 150)).collect();
    let revoked: Vec<_> = homes(round + 1, u64::from(round * 29 % 270)).map(FsBlock).collect();
    let fill = |index: usize, bytes: &mut [u8]| {
        bytes.copy_from_slice(&content(copies[index], sequence));
        FsBlock(copies[index])
    };
    writer.append(&**device, sequence, copies.len(), fill, &revoked).unwrap();
    let blocks = writer.blocks_for(copies.len(), revoked.len()) as u32;
    Written { sequence, blocks, copies, revoked }
}

/// Recovers a copy of the device and compares every home with what the transactions in the log say.
fn check(log: &LogBuilder, device: &Device, written: &VecDeque<Written>) {
    let mut bytes = vec![0; log.bytes.len()];
    device.read_at(0, &mut bytes).unwrap();
    let copy = MemoryDevice::from_bytes(bytes, Access::ReadWrite);
    let Log::Dirty(dirty) = Log::open(&copy, log.location(), LogBuilder::volume()).unwrap() else {
        panic!("a log that is being written is dirty")
    };
    let replayed = dirty.recover(&copy).unwrap();
    assert_eq!(replayed.report().transactions as usize, written.len());
    let mut expected = BTreeMap::new();
    for transaction in written {
        for &home in &transaction.copies {
            expected.insert(home, content(home, transaction.sequence));
        }
        for home in &transaction.revoked {
            expected.remove(&home.0);
        }
    }
    for home in HOMES {
        let mut found = vec![0; BLOCK];
        copy.read_at(home * BLOCK as u64, &mut found).unwrap();
        let expected = expected.get(&home).cloned().unwrap_or_else(|| vec![0; BLOCK]);
        assert!(found == expected, "block {home}, {} transactions", written.len());
    }
}

#[test]
fn what_is_written_is_recovered_wherever_the_log_begins() {
    for (before, wide) in
        [(Checksums::None, false), (Checksums::V1, true), (Checksums::V2, false), (Checksums::V3, true)]
    {
        for checksums in [false, true] {
            let form = Form {
                checksums: before,
                wide,
                blocks: 1100,
                start: 0,
                sequence: u32::MAX - 20,
                ..Form::default()
            };
            let log = LogBuilder::new(form);
            let device: Device =
                std::sync::Arc::new(MemoryDevice::from_bytes(log.bytes.clone(), Access::ReadWrite));
            let form = LogForm { checksums, sixty_four_bit: wide };
            let (mut writer, mut tail, mut sequence) =
                clean_log(&log, &device).begin(&*device, form).unwrap();
            let mut written = VecDeque::new();
            check(&log, &device, &written);
            let mut free = writer.ring_blocks() - 1;
            for round in 1..60 {
                // More than any of them takes.
                while free < 200 {
                    let oldest: Written = written.pop_front().unwrap();
                    tail.advance(&*device, oldest.blocks, oldest.sequence.next()).unwrap();
                    free += oldest.blocks;
                }
                let transaction = append(&mut writer, &device, sequence, round);
                free -= transaction.blocks;
                written.push_back(transaction);
                sequence = sequence.next();
                check(&log, &device, &written);
            }
            tail.make_empty(&*device, sequence).unwrap();
            assert_eq!(clean_log(&log, &device).next_sequence(), sequence.next());
        }
    }
}

#[test]
fn a_log_that_cannot_be_written_is_refused() {
    for (form, word) in [
        (Form { blocks: 1000, start: 0, ..Form::default() }, "too few"),
        (Form { blocks: 1100, start: 0, superblock_v1: true, ..Form::default() }, "oldest kind"),
    ] {
        let log = LogBuilder::new(form);
        let device: Device =
            std::sync::Arc::new(MemoryDevice::from_bytes(log.bytes.clone(), Access::ReadWrite));
        let form = LogForm { checksums: true, sixty_four_bit: true };
        let refused = clean_log(&log, &device).begin(&*device, form).err().unwrap().to_string();
        assert!(refused.contains(word), "{refused}");
        let mut bytes = vec![0; log.bytes.len()];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes == log.bytes, "a refusal changed the device");
    }
}
