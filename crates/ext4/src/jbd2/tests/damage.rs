//! Thousands of damaged logs: each is recovered or refused, in bounded time, without a panic.
//!
//! Fault model: bytes of the log change, in one to eight places, to random or to boundary values, and half the
//! time checksums are made right again, as an attacker would. The device itself works. A refused log must
//! leave the device as it was, which the builder asserts.

use super::super::features::Checksums;
use super::builder::{BLOCK, Form, LogBuilder, Part, copies};
use super::fast_commit::{Area, head, inode, name, range, tail};
use crate::checksum::crc32c;
use undercroft_block::testing::Rng;

fn value(random: &mut Rng) -> u32 {
    const EDGES: [u32; 10] = [0, 1, 2, 8, 16, 1023, 1024, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF];
    match random.below(3) {
        0 => EDGES[random.index(EDGES.len())],
        1 => random.below(70) as u32,
        _ => random.bits() as u32,
    }
}

fn healthy(random: &mut Rng) -> LogBuilder {
    const FORMS: [Checksums; 4] = [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3];
    let fast = random.index(3) == 0;
    let form = Form {
        checksums: FORMS[random.index(4)],
        wide: random.index(2) == 0,
        async_commit: random.index(3) == 0,
        blocks: if fast { 1100 } else { 64 },
        start: 1 + random.index(63) as u32,
        sequence: u32::MAX - 3,
        fast_commit: fast.then_some(40),
        ..Form::default()
    };
    let mut log = LogBuilder::new(form);
    for byte in 1..=6 {
        let mut parts = vec![copies(&[(10, byte), (11 + u64::from(byte), byte), (30, byte)])];
        if random.index(3) == 0 {
            parts.push(Part::Revoke(vec![10, 30, 12]));
        }
        log.transaction(&parts);
    }
    if fast {
        let mut area = Area::new(&log);
        area.push(&head(log.sequence));
        area.push(&inode(40, 0o100_644, 0));
        area.push(&range(40, 0, 12, 700));
        area.push(&name(3, 2, 40, b"a name"));
        area.push(&tail(log.sequence));
        area.store(&mut log);
    }
    log
}

#[test]
fn damaged_logs_are_recovered_or_refused() {
    let (mut recovered, mut refused) = (0, 0);
    for seed in 1..=6000u64 {
        let mut random = Rng::new(seed);
        let mut log = healthy(&mut random);
        let blocks = log.form.blocks;
        for _ in 0..=random.index(8) {
            let block = match random.index(4) {
                0 => 0,
                1 if blocks > 64 => blocks - 39 + random.index(2) as u32,
                _ => (log.form.start + random.index(24) as u32) % blocks.min(64),
            };
            // Most of what matters is at the start of a block.
            let at = if random.index(4) == 0 { random.index(BLOCK / 4) } else { random.index(20) } * 4;
            let value = value(&mut random);
            log.block(block)[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        if random.index(2) == 0 {
            mend(&mut log);
        }
        // A dirty log is what is tested; a start of 0 would be an empty one.
        if log.block(0)[28..32] == [0; 4] {
            log.block(0)[31] = 1;
            log.seal_superblock();
        }
        match std::panic::catch_unwind(|| log.recover().map(drop)) {
            Ok(Ok(())) => recovered += 1,
            Ok(Err(_)) => refused += 1,
            Err(_) => panic!("seed {seed}"),
        }
    }
    assert!(
        recovered > 500 && refused > 500,
        "{recovered} recovered, {refused} refused: damage is one-sided"
    );
}

/// Makes the checksums of version 2 and 3 right again, wherever a block still has jbd2's magic.
fn mend(log: &mut LogBuilder) {
    log.seal_superblock();
    if !log.form.checksums.per_block() {
        return;
    }
    let seed = {
        let block = log.block(0);
        crc32c(!0, &block[0x30..0x40])
    };
    for at in 1..log.form.blocks.min(64) {
        let block = log.block(at);
        if block[..4] != [0xC0, 0x3B, 0x39, 0x98] {
            continue;
        }
        let field = if block[7] == 2 { 0x10 } else { BLOCK - 4 };
        block[field..field + 4].fill(0);
        let crc = crc32c(seed, block);
        block[field..field + 4].copy_from_slice(&crc.to_be_bytes());
    }
}
