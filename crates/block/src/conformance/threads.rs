//! Several threads on one device: they must not damage each other's bytes.

use std::thread;

use super::{Factory, SIZE, assert_content, assert_same, bytes_at, pattern, writable};
use crate::Request;

const THREADS: usize = 4;

/// Threads write to neighbouring bytes, several of them in every sector, and none loses any.
pub fn neighbours_keep_their_bytes(factory: Factory<'_>) {
    const PIECE: usize = 97;
    const PIECES: usize = 400;
    let Some((device, mut content)) = writable(factory) else { return };
    thread::scope(|scope| {
        for me in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                for piece in (me..PIECES).step_by(THREADS) {
                    let offset = (3 + piece * PIECE) as u64;
                    match piece % 5 {
                        0 => device.write_zeroes(offset, PIECE as u64).unwrap(),
                        _ => device.write_at(offset, &[piece as u8; PIECE]).unwrap(),
                    }
                    let byte = if piece % 5 == 0 { 0 } else { piece as u8 };
                    assert_same(&bytes_at(&**device, offset, PIECE), &[byte; PIECE]);
                }
            });
        }
    });
    for piece in 0..PIECES {
        let byte = if piece % 5 == 0 { 0 } else { piece as u8 };
        content[3 + piece * PIECE..][..PIECE].fill(byte);
    }
    assert_content(&*device, &content);
}

/// Threads run batches, flushes and discards in regions of their own.
pub fn regions_in_parallel(factory: Factory<'_>) {
    const REGION: usize = SIZE / THREADS;
    const BLOCK: usize = 3000;
    let Some((device, mut content)) = writable(factory) else { return };
    thread::scope(|scope| {
        for me in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                let start = (me * REGION) as u64;
                for round in 0..5 {
                    let data = pattern(round * 10 + me as u64, REGION);
                    let offsets = (0..REGION / BLOCK).map(|block| block * BLOCK);
                    let mut writes: Vec<_> = offsets
                        .clone()
                        .map(|at| Request::Write { offset: start + at as u64, data: &data[at..at + BLOCK] })
                        .collect();
                    device.discard(start, BLOCK as u64).unwrap();
                    device.run_batch(&mut writes).unwrap();
                    device.flush().unwrap();
                    let mut found = vec![0; REGION / BLOCK * BLOCK];
                    let mut reads: Vec<_> = found
                        .chunks_mut(BLOCK)
                        .zip(offsets)
                        .map(|(buf, at)| Request::Read { offset: start + at as u64, buf })
                        .collect();
                    device.run_batch(&mut reads).unwrap();
                    assert_same(&found, &data[..found.len()]);
                }
            });
        }
    });
    for me in 0..THREADS {
        let used = REGION / BLOCK * BLOCK;
        content[me * REGION..][..used].copy_from_slice(&pattern(40 + me as u64, REGION)[..used]);
    }
    assert_content(&*device, &content);
}

/// Overlapping writes have no order, but every byte is one of those that were written.
pub fn overlapping_writes_are_old_or_new(factory: Factory<'_>) {
    const LEN: usize = 10_000;
    const OFFSET: u64 = 4000;
    let Some((device, mut content)) = writable(factory) else { return };
    device.write_at(OFFSET, &[1; LEN]).unwrap();
    thread::scope(|scope| {
        for byte in 1..=3 {
            let device = &device;
            scope.spawn(move || {
                for _ in 0..50 {
                    device.write_at(OFFSET, &[byte; LEN]).unwrap();
                }
            });
        }
        for _ in 0..50 {
            let found = bytes_at(&*device, OFFSET, LEN);
            assert!(found.iter().all(|byte| (1..=3).contains(byte)));
        }
    });
    device.write_at(OFFSET, &[4; LEN]).unwrap();
    content[OFFSET as usize..][..LEN].fill(4);
    assert_content(&*device, &content);
}
