//! One flush of one member fails, and the next one succeeds: what the failed one lost is not missed.
//!
//! Every flush of every member fails in turn. An array that can do without the member goes on without it and keeps what
//! it promised, also when power is lost after that. An array that cannot never calls anything durable again, and takes
//! no writes.

use std::sync::Arc;

use undercroft_block::testing::LoseUnflushed;
use undercroft_block::{BlockDevice as _, Device};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};

use super::support::{blank, create, modest, read_all, small};

const DATA: u64 = 32 << 10;
const ROUNDS: u8 = 3;

/// What was written, and what of it was flushed: the number of the round in each byte.
#[derive(Default)]
struct Story {
    written: u8,
    flushed: u8,
}

fn work(array: &Array, story: &mut Story) -> undercroft_block::Result<()> {
    let size = array.size_bytes();
    for round in 1..=ROUNDS {
        story.written = round;
        for at in (0..size).step_by(4096) {
            array.write_at(at, &[round; 4096][..(size - at).min(4096) as usize])?;
        }
        array.flush()?;
        story.flushed = round;
    }
    Ok(())
}

/// Answers with how many flushes there were to fail.
fn every_flush_of_a_member_fails_in_turn(new: &CreateOptions, members: usize, member: usize) -> u64 {
    for nth in 1.. {
        let what = format!("{:?}, flush {nth} of member {member}", new.level);
        let bytes = new.data_offset.unwrap_or(0) + DATA;
        let base = blank(members, bytes);
        create(&base, new).close().unwrap();
        let caches: Vec<_> = base
            .iter()
            .enumerate()
            .map(|(at, base)| {
                let cache = LoseUnflushed::new(Arc::clone(base), nth + at as u64);
                Arc::new(cache.failing_flush(if at == member { nth } else { 0 }))
            })
            .collect();
        let devices: Vec<Device> = caches.iter().map(|cache| Arc::clone(cache) as Device).collect();
        let mut story = Story::default();
        match Array::open(devices, modest()) {
            Ok(array) => {
                let worked = work(&array, &mut story);
                if let Err(error) = worked {
                    assert!(caches[member].has_failed() && !new.level.is_redundant(), "{what}: {error}");
                    for _ in 0..3 {
                        assert!(array.flush().is_err(), "{what}: a later flush succeeded");
                        assert!(array.write_at(0, &[0xff; 512]).is_err(), "{what}: a write was taken");
                    }
                    read_all(&array);
                } else if caches[member].has_failed() {
                    assert!(new.level.is_redundant(), "{what}: nothing was told");
                    assert_eq!(array.status().degraded, 1, "{what}");
                }
                // Power is lost before the array is stopped.
                for cache in &caches {
                    cache.crash().unwrap();
                }
            }
            Err(error) => assert!(caches[member].has_failed(), "{what}: {error}"),
        }
        let options = ArrayOptions { start_degraded: true, ..modest() };
        let array = Array::open(base, options).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = read_all(&array);
        let range = story.flushed..=story.written;
        let lost = found.iter().position(|byte| !range.contains(byte));
        assert_eq!(lost, None, "{what}: not one of the rounds {range:?}");
        array.close().unwrap();
        if !caches[member].has_failed() {
            return nth - 1;
        }
    }
    unreachable!("the numbers of flushes end")
}

fn with(level: Level) -> CreateOptions {
    match level {
        // Without one, a crash of a degraded array leaves stripes that it cannot trust.
        Level::Raid5 => CreateOptions { ppl: true, data_offset: Some(2 << 20), ..small(level) },
        _ => small(level),
    }
}

#[test]
fn a_member_whose_flush_fails_once_is_left_out_and_nothing_is_lost() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        for member in 0..members {
            let flushes = every_flush_of_a_member_fails_in_turn(&with(level), members, member);
            assert!(flushes >= u64::from(ROUNDS), "{level:?}: {flushes}");
        }
    }
}

#[test]
fn an_array_without_redundancy_never_flushes_again_after_a_member_could_not() {
    for level in [Level::Raid0, Level::Linear] {
        for member in 0..2 {
            let flushes = every_flush_of_a_member_fails_in_turn(&with(level), 2, member);
            assert!(flushes >= u64::from(ROUNDS), "{level:?}: {flushes}");
        }
    }
}
