//! The devices built to fail do what they say: crashes keep what was promised and lose what was not, failures hit the
//! chosen request, time passes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undercroft_block::testing::{Event, FailNth, Latency, Left, LoseUnflushed, Recorder, Repeat, Slow};
use undercroft_block::{Access, BlockDevice, Device, Error, MemoryDevice, Operation, Request};

const SIZE: usize = 64 * 1024;

fn memory() -> Device {
    Arc::new(MemoryDevice::new(SIZE as u64))
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_recording_goes_back_to_every_moment() {
    let base = MemoryDevice::from_bytes(vec![9; SIZE], Access::ReadOnly);
    let recorder = Recorder::new(Arc::new(base));
    let mut states = vec![content(&recorder)];
    let step = |states: &mut Vec<_>| states.push(content(&recorder));
    recorder.write_at(100, &[1; 1000]).unwrap();
    step(&mut states);
    recorder.write_zeroes(500, 8000).unwrap();
    step(&mut states);
    recorder.flush().unwrap();
    step(&mut states);
    recorder.run_batch(&mut [Request::Write { offset: 4000, data: &[2; 600] }]).unwrap();
    step(&mut states);
    recorder.discard(4096, 4096).unwrap();
    step(&mut states);
    let recording = recorder.recording();
    assert_eq!(recording.events().len(), 5);
    assert_eq!(recording.events()[2], Event::Flush { covers: 2 });
    for (count, state) in states.iter().enumerate() {
        let device = recording.cut(count).unwrap();
        assert!(content(&*device) == *state, "after {count} events");
        device.write_at(0, &[7; SIZE]).unwrap();
    }
    assert!(content(&recorder) == states[5], "states are independent");
}

#[test]
fn refused_requests_are_not_recorded() {
    let recorder = Recorder::new(memory());
    assert!(recorder.write_at(SIZE as u64, &[1]).is_err());
    assert!(recorder.discard(u64::MAX, 1).is_err());
    assert!(recorder.write_zeroes(0, SIZE as u64 + 1).is_err());
    assert_eq!(recorder.recording().events(), []);
}

/// Writes of one byte value each: flushed ones of 4 sectors, then unflushed ones.
fn flushed_and_unflushed(device: &dyn BlockDevice) {
    for n in 0..4_u8 {
        device.write_at(u64::from(n) * 4096, &[n + 1; 2048]).unwrap();
    }
    device.flush().unwrap();
    for n in 4..8_u8 {
        device.write_at(u64::from(n) * 4096, &[n + 1; 2048]).unwrap();
    }
}

/// What became of each write: sectors of it that are there.
fn sectors_left(bytes: &[u8]) -> Vec<usize> {
    (0..8_u8)
        .map(|n| {
            let (written, rest) = bytes[usize::from(n) * 4096..][..4096].split_at(2048);
            assert!(rest.iter().all(|&byte| byte == 0), "bytes that were never written");
            let (sectors, _) = written.as_chunks::<512>();
            for sector in sectors {
                assert!(*sector == [n + 1; 512] || *sector == [0; 512], "a torn sector");
            }
            sectors.iter().filter(|sector| **sector == [n + 1; 512]).count()
        })
        .collect()
}

#[test]
fn a_crash_keeps_what_was_flushed_and_any_part_of_the_rest() {
    let recorder = Recorder::new(memory());
    flushed_and_unflushed(&recorder);
    let recording = recorder.recording();
    let mut outcomes = HashSet::new();
    for seed in 0..200 {
        let (device, crash) = recording.crash(9, seed).unwrap();
        let left = sectors_left(&content(&*device));
        assert_eq!(left[..4], [4; 4], "{crash}");
        let kept = left[4..].iter().filter(|&&sectors| sectors == 4).count();
        assert!(kept >= crash.kept && crash.kept + crash.torn + crash.lost == 4, "{crash}: {left:?}");
        assert_eq!((crash.seed, crash.flushed), (seed, 4));
        let (again, same) = recording.crash(9, seed).unwrap();
        assert!(content(&*again) == content(&*device) && same == crash, "a seed repeats");
        outcomes.insert(left);
    }
    assert!(outcomes.len() > 50, "only {} outcomes", outcomes.len());
    assert!(
        outcomes.iter().any(|left| left[4..] == [0; 4]) && outcomes.iter().any(|left| left[4..] == [4; 4])
    );

    // Before the flush nothing is promised; a flush that has begun promises nothing either.
    let losses = (0..50).map(|seed| recording.crash(4, seed).unwrap().1.lost).max();
    assert!(losses >= Some(3));
}

#[test]
fn a_flush_promises_what_was_written_before_it_began() {
    let recorder = Recorder::new(memory());
    flushed_and_unflushed(&recorder);
    recorder.flush().unwrap();
    let recording = recorder.recording();
    for seed in 0..20 {
        let (device, crash) = recording.crash(10, seed).unwrap();
        assert_eq!(sectors_left(&content(&*device)), [4; 8], "{crash}");
    }
}

#[test]
fn a_volatile_cache_loses_what_was_not_flushed() {
    let mut outcomes = HashSet::new();
    for seed in 0..60 {
        let base = memory();
        let device = LoseUnflushed::new(base.clone(), seed);
        flushed_and_unflushed(&device);
        assert_eq!(sectors_left(&content(&device)), [4; 8], "reads see everything");
        assert_eq!(sectors_left(&content(&*base))[4..], [0; 4], "the base gets what is flushed");
        let crash = device.crash().unwrap();
        let left = sectors_left(&content(&*base));
        assert_eq!((&left[..4], crash.flushed), (&[4; 4][..], 4));
        outcomes.insert(left);
        for result in
            [device.read_at(0, &mut [0]), device.write_at(0, &[0]), device.flush(), device.discard(0, 1)]
        {
            assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
        }
    }
    assert!(outcomes.len() > 20, "only {} outcomes", outcomes.len());
}

#[test]
fn the_chosen_request_fails() {
    for operation in
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard, Operation::WriteZeroes]
    {
        for repeat in [Repeat::Once, Repeat::FromThenOn] {
            let device = FailNth::new(memory(), operation, 3, repeat);
            let results: Vec<bool> = (0..5)
                .map(|_| {
                    let each = [
                        (Operation::Read, device.read_at(0, &mut [0; 10])),
                        (Operation::Write, device.write_at(0, &[1; 10])),
                        (Operation::Flush, device.flush()),
                        (Operation::Discard, device.discard(0, 10)),
                        (Operation::WriteZeroes, device.write_zeroes(0, 10)),
                    ];
                    let chosen = each.iter().find(|(kind, _)| *kind == operation).unwrap();
                    let others = each.iter().filter(|(kind, _)| *kind != operation);
                    assert!(others.clone().all(|(_, result)| result.is_ok()), "{each:?}");
                    match &chosen.1 {
                        Ok(()) => true,
                        Err(Error::Io { operation: failed, source, .. }) => {
                            assert_eq!((*failed, source.raw_os_error()), (operation, Some(5)));
                            false
                        }
                        Err(error) => panic!("{error}"),
                    }
                })
                .collect();
            let expected = [true, true, false, repeat == Repeat::Once, repeat == Repeat::Once];
            assert_eq!(results, expected);
            assert_eq!((device.seen(), device.has_failed()), (5, true));
        }
    }
}

#[test]
fn requests_of_a_batch_are_counted_one_by_one() {
    let device = FailNth::new(memory(), Operation::Write, 2, Repeat::Once);
    let data = [1; 512];
    let mut batch: Vec<_> = (0..3).map(|n| Request::Write { offset: n * 512, data: &data }).collect();
    let result = device.run_batch(&mut batch);
    assert!(matches!(result, Err(Error::Io { offset: 512, .. })), "{result:?}");
    assert_eq!(content(&device)[..1024], [vec![1; 512], vec![0; 512]].concat());
}

#[test]
fn a_failed_write_leaves_what_was_asked_for() {
    for (left, new_bytes) in [(Left::Old, 0), (Left::Torn, 1024), (Left::New, 2048)] {
        let device = FailNth::new(memory(), Operation::Write, 1, Repeat::Once).leaving(left);
        assert!(device.write_at(0, &[1; 2048]).is_err());
        let expected = [vec![1; new_bytes], vec![0; 2048 - new_bytes]].concat();
        assert_eq!(content(&device)[..2048], expected);
    }
    let never = FailNth::new(memory(), Operation::Write, 0, Repeat::FromThenOn);
    never.write_at(0, &[1]).unwrap();
    assert!(!never.has_failed());
}

#[test]
fn slow_requests_take_their_time_and_batches_share_it() {
    let latency = Latency { queue_depth: 4, ..Latency::of_all(Duration::from_millis(10)) };
    let device = Slow::new(memory(), latency);
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    assert!(time(&mut || device.read_at(0, &mut [0; 10]).unwrap()) >= Duration::from_millis(10));
    assert!(time(&mut || device.flush().unwrap()) >= Duration::from_millis(10));
    let mut bufs = [[0; 16]; 8];
    let mut batch: Vec<_> = bufs.iter_mut().map(|buf| Request::Read { offset: 0, buf }).collect();
    let together = time(&mut || device.run_batch(&mut batch).unwrap());
    assert!(together >= Duration::from_millis(20), "two rounds of four: {together:?}");
    let one_by_one = time(&mut || (0..8).for_each(|_| device.read_at(0, &mut [0; 16]).unwrap()));
    assert!(one_by_one >= Duration::from_millis(80), "{one_by_one:?}");
}
