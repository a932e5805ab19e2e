//! Every outcome is told: of spares that cannot be written, of superblocks that are not taken, of parts of an array that
//! went on without each other, of reads that were corrected. What waits for background work comes back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use undercroft_block::testing::{FailNth, Repeat};
use undercroft_block::{Access, BlockDevice, Device, Error, Operation, Result};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Duty, Level, MemberStatus};
use undercroft_sync::{Mutex, order};

use super::support::{
    LONG, assert_same, blank, check, create, fill, modest, open, open_degraded, pattern, read_all, small,
    switched,
};

const DATA: u64 = 256 << 10;

fn with_bitmap(level: Level) -> CreateOptions {
    CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(8192), ..small(level) }
}

fn kinds() -> Vec<(CreateOptions, usize)> {
    vec![
        (small(Level::Raid1), 2),
        (with_bitmap(Level::Raid1), 2),
        (small(Level::Raid5), 3),
        (with_bitmap(Level::Raid10), 4),
        (CreateOptions { ppl: true, data_offset: Some(2 << 20), ..small(Level::Raid5) }, 3),
    ]
}

fn member(array: &Array, number: u32) -> MemberStatus {
    let members = array.status().members;
    members.into_iter().find(|member| member.number == number).expect("the array has this number")
}

#[test]
fn a_spare_that_cannot_be_written_has_failed_and_the_next_one_is_taken() {
    for (new, members) in kinds() {
        let (switches, devices) = switched(members + 2, new.data_offset.unwrap_or(0) + DATA);
        let array = create(&devices[..members], &new);
        let content = fill(&array, 1);
        let broken = array.add(devices[members].clone()).unwrap();
        let good = array.add(devices[members + 1].clone()).unwrap();
        switches[members].fails_writes.store(true, Ordering::SeqCst);
        array.fail(1).unwrap();
        assert!(array.wait_for_sync(LONG), "{:?}: {:?}", new.level, array.status());
        let status = member(&array, broken);
        assert_eq!(status.duty, Duty::Faulty, "{:?}", new.level);
        let failure = status.failure.unwrap();
        assert!(failure.contains("switched off"), "{failure}");
        assert_eq!(member(&array, good).duty, Duty::Active(1));
        assert_eq!((array.status().degraded, check(&array)), (0, 0));
        array.close().unwrap();
        switches[members].set_dead(false);
        // It is known to have failed at the next start as well.
        let array = open(&devices);
        assert!(array.wait_for_sync(LONG));
        assert_eq!(array.status().degraded, 0);
        assert_same(&read_all(&array), &content);
    }
}

/// Its superblock is taken, but not the bitmap or the log that a member has.
#[test]
fn spare_whose_bitmap_or_ppl_cannot_be_written_fails_and_the_next_is_used() {
    for (new, members) in kinds().into_iter().filter(|(new, _)| new.bitmap || new.ppl) {
        let (switches, devices) = switched(members + 2, new.data_offset.unwrap_or(0) + DATA);
        let array = create(&devices[..members], &new);
        let content = fill(&array, 1);
        let broken = array.add(devices[members].clone()).unwrap();
        let good = array.add(devices[members + 1].clone()).unwrap();
        switches[members].spoil_device(8192..12_288);
        array.fail(1).unwrap();
        assert!(array.wait_for_sync(LONG), "{:?}: {:?}", new.level, array.status());
        assert_eq!((member(&array, broken).duty, member(&array, good).duty), (Duty::Faulty, Duty::Active(1)));
        assert!(member(&array, broken).failure.is_some_and(|failure| failure.contains("switched off")));
        assert_same(&read_all(&array), &content);
    }
}

#[test]
fn nothing_hangs_where_no_spare_can_be_written() {
    for (new, members) in kinds() {
        let (switches, devices) = switched(members + 1, new.data_offset.unwrap_or(0) + DATA);
        let array = create(&devices[..members], &new);
        let number = array.add(devices[members].clone()).unwrap();
        switches[members].fails_flushes.store(true, Ordering::SeqCst);
        array.fail(0).unwrap();
        assert!(array.wait_for_sync(LONG), "{:?}", new.level);
        assert_eq!((member(&array, number).duty, array.status().degraded), (Duty::Faulty, 1));
        array.write_at(0, &[1; 512]).unwrap();
    }
}

#[test]
fn a_broken_spare_does_not_keep_others_from_replacing_a_member() {
    let (switches, devices) = switched(4, DATA);
    let array = create(&devices[..2], &small(Level::Raid1));
    let content = fill(&array, 1);
    array.add(devices[2].clone()).unwrap();
    let good = array.add(devices[3].clone()).unwrap();
    switches[2].fails_writes.store(true, Ordering::SeqCst);
    assert_eq!(array.replace(0).unwrap(), good);
    assert!(array.wait_for_sync(LONG));
    assert_eq!((member(&array, good).duty, member(&array, 2).duty), (Duty::Active(0), Duty::Faulty));
    assert_eq!(member(&array, 0).failure.as_deref(), Some("it was replaced"));
    assert_same(&read_all(&array), &content);
    let refused = array.replace(1).unwrap_err().to_string();
    assert!(refused.contains("no spare"), "{refused}");
}

#[test]
fn a_failed_re_add_leaves_nothing_behind() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10] {
        for is_removed in [false, true] {
            let (switches, devices) = switched(4, DATA);
            let array = create(&devices, &with_bitmap(level));
            let mut content = fill(&array, 1);
            array.fail(1).unwrap();
            if is_removed {
                array.remove(1).unwrap();
            }
            content[5000..9000].copy_from_slice(&pattern(2, 4000));
            array.write_at(5000, &content[5000..9000]).unwrap();
            let before: Vec<_> = array.status().members.iter().map(|one| (one.number, one.duty)).collect();
            for fails in [&switches[1].fails_writes, &switches[1].fails_flushes] {
                fails.store(true, Ordering::SeqCst);
                array.re_add(devices[1].clone()).unwrap_err();
                let after: Vec<_> = array.status().members.iter().map(|one| (one.number, one.duty)).collect();
                assert_eq!(after, before, "{level:?}");
                assert!(array.wait_for_sync(LONG), "{level:?}");
                fails.store(false, Ordering::SeqCst);
            }
            array.close().unwrap();
            drop(array);
            let array = open(&devices);
            assert!(array.wait_for_sync(LONG));
            assert_same(&read_all(&array), &content);
        }
    }
}

#[test]
fn a_superblock_that_is_not_taken_during_recovery_counts() {
    for at_checkpoint in [false, true] {
        // The only member that has everything.
        let (switches, devices) = switched(2, 4 << 20);
        let array = create(&devices, &small(Level::Raid1));
        fill(&array, 1);
        array.fail(1).unwrap();
        array.pause_sync(true);
        array.remove(1).unwrap();
        array.add(devices[1].clone()).unwrap();
        while array.status().is_active {
            std::thread::yield_now();
        }
        switches[0].fails_writes.store(true, Ordering::SeqCst);
        if at_checkpoint {
            array.limit_sync(std::num::NonZeroU64::new(8 << 20));
        }
        array.pause_sync(false);
        assert!(array.wait_for_sync(LONG));
        let stopped = array.status().stopped.expect("the array has stopped");
        assert!(stopped.contains("superblock"), "{stopped}");
        assert!(array.write_at(0, &[0; 512]).is_err());
        drop(array);

        // One that others can do without.
        let (switches, devices) = switched(3, 4 << 20);
        let array = create(&devices, &small(Level::Raid1));
        let content = fill(&array, 1);
        array.fail(2).unwrap();
        array.pause_sync(true);
        array.remove(2).unwrap();
        let new = array.add(devices[2].clone()).unwrap();
        switches[1].fails_writes.store(true, Ordering::SeqCst);
        array.pause_sync(false);
        assert!(array.wait_for_sync(LONG));
        assert_eq!((member(&array, 1).duty, member(&array, new).duty), (Duty::Faulty, Duty::Active(2)));
        assert_eq!((array.status().stopped, array.status().degraded), (None, 1));
        array.close().unwrap();
        drop(array);
        switches[1].set_dead(false);
        let array = open(&devices);
        assert_eq!(array.status().degraded, 1);
        assert_same(&read_all(&array), &content);
    }
}

/// Each half is written to while the other is away.
fn split(new: &CreateOptions, writes: [u64; 2]) -> Vec<Device> {
    let devices = blank(2, DATA);
    let array = create(&devices, new);
    fill(&array, 1);
    array.close().unwrap();
    drop(array);
    for (half, count) in writes.into_iter().enumerate() {
        for number in 0..count {
            let array = open_degraded(&devices[half..=half]);
            array.write_at(number * 8192, &pattern(number + 10 * half as u64, 4096)).unwrap();
            array.close().unwrap();
        }
    }
    devices
}

#[test]
fn halves_that_were_written_apart_are_not_put_together() {
    for new in [small(Level::Raid1), with_bitmap(Level::Raid1)] {
        for writes in [[1, 1], [1, 3], [3, 1]] {
            let devices = split(&new, writes);
            let events: Vec<String> = devices
                .iter()
                .map(|device| format!("{} events", undercroft_md::examine(&**device).unwrap().events))
                .collect();
            for force in [false, true] {
                let options = ArrayOptions { force, start_degraded: force, ..modest() };
                let refused = Array::open(devices.clone(), options).unwrap_err().to_string();
                assert!(events.iter().all(|events| refused.contains(events)), "{refused}");
                assert!(refused.contains("role 0") && refused.contains("role 1"), "{refused}");
            }
            for half in 0..2 {
                let array = open_degraded(&devices[half..=half]);
                let content = read_all(&array);
                let other = &devices[1 - half];
                for refused in [array.re_add(other.clone()), array.add(other.clone())] {
                    let refused = refused.unwrap_err().to_string();
                    assert!(events.iter().all(|events| refused.contains(events)), "{refused}");
                }
                assert_eq!(array.status().members.len(), 1);
                assert_same(&read_all(&array), &content);
            }
            // The user has chosen.
            let array = open_degraded(&devices[..1]);
            let content = read_all(&array);
            devices[1].write_at(4096, &[0; 4096]).unwrap();
            array.add(devices[1].clone()).unwrap();
            assert!(array.wait_for_sync(LONG));
            assert_eq!((array.status().degraded, check(&array)), (0, 0));
            assert_same(&read_all(&array), &content);
        }
    }
}

#[test]
fn a_member_that_only_missed_what_came_is_no_part_with_a_history_of_its_own() {
    for new in [small(Level::Raid1), with_bitmap(Level::Raid1)] {
        let devices = split(&new, [3, 0]);
        let array = open(&devices);
        assert_eq!(array.status().degraded, 1);
        assert!(array.status().warnings[0].contains("left out"));
        let content = read_all(&array);
        if new.bitmap { array.re_add(devices[1].clone()) } else { array.add(devices[1].clone()) }.unwrap();
        assert!(array.wait_for_sync(LONG));
        assert_eq!((array.status().degraded, check(&array)), (0, 0));
        assert_same(&read_all(&array), &content);
    }
}

/// A device some of whose blocks of 4 KiB cannot be read until they are written.
#[derive(Debug)]
struct Weak {
    base: Device,
    unreadable: Mutex<BTreeSet<u64>>,
}

impl Weak {
    fn new(base: Device) -> Arc<Self> {
        Arc::new(Self { base, unreadable: Mutex::new(&order::DEVICE, BTreeSet::new()) })
    }

    fn weaken(&self, data_offset: u64) {
        self.unreadable.lock().insert((super::support::DATA_OFFSET + data_offset) / 4096);
    }

    fn touched(offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / 4096..(offset + len).div_ceil(4096)
    }
}

impl BlockDevice for Weak {
    fn name(&self) -> String {
        "weak device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        if self.unreadable.lock().range(Self::touched(offset, len)).next().is_some() {
            let source = std::io::Error::other("a medium error");
            return Err(Error::Io { operation: Operation::Read, offset, len, device: self.name(), source });
        }
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let touched = Self::touched(offset, data.len() as u64);
        self.unreadable.lock().retain(|block| !touched.contains(block));
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.base.flush()
    }
}

#[test]
fn corrected_read_errors_are_counted_and_limited() {
    const LARGE: u64 = 4 << 20;
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)] {
        let weak: Vec<_> = blank(members, LARGE).into_iter().map(Weak::new).collect();
        let devices: Vec<Device> = weak.iter().map(|weak| Arc::clone(weak) as Device).collect();
        let array = create(&devices, &small(level));
        let content = fill(&array, 1);
        // A check reads everything.
        for at in 0..3 {
            weak[0].weaken(at << 20);
        }
        array.check().unwrap();
        assert!(array.wait_for_sync(LONG));
        assert_eq!(member(&array, 0).corrected_reads, 3, "{level:?}");
        assert_same(&read_all(&array), &content);
        array.write_at(0, &content[..512]).unwrap();
        array.close().unwrap();
        drop(array);

        let array = open(&devices);
        assert_eq!(member(&array, 0).corrected_reads, 3, "{level:?}: after a start");
        assert_eq!(member(&array, 1).corrected_reads, 0);
        for at in 0..24 {
            weak[0].weaken(at << 16);
        }
        array.check().unwrap();
        assert!(array.wait_for_sync(LONG));
        assert_same(&read_all(&array), &content);
        let status = member(&array, 0);
        assert_eq!((status.duty, status.corrected_reads), (Duty::Faulty, 24), "{level:?}");
        let failure = status.failure.unwrap();
        assert!(failure.contains("could not read 21 times"), "{failure}");
        array.write_at(0, &content[..512]).unwrap();
        array.close().unwrap();
        drop(array);
        assert_eq!(open(&devices).status().degraded, 1);
    }
}

/// Whatever write or flush fails while an array is closed, or has stopped it before, is told by each call.
#[test]
fn an_array_that_could_not_be_closed_says_so_each_time() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5] {
        for operation in [Operation::Write, Operation::Flush] {
            let mut failed = 0;
            for after in 1..100 {
                let base = blank(3, DATA);
                create(&base, &small(level)).close().unwrap();
                let seen = |devices: &[Arc<FailNth>]| devices[0].seen();
                let faulty = |nth: u64| -> Vec<_> {
                    let fail =
                        |device: &Device| FailNth::new(device.clone(), operation, nth, Repeat::FromThenOn);
                    base.iter().map(|device| Arc::new(fail(device))).collect()
                };
                let open = |faulty: &[Arc<FailNth>]| {
                    let devices: Vec<_> = faulty.iter().map(|device| Arc::clone(device) as Device).collect();
                    let array = open(&devices);
                    array.write_at(0, &[1; 4096]).map(|()| array)
                };
                let counting = faulty(u64::MAX);
                let before = open(&counting).map(|array| (seen(&counting), array)).unwrap().0;
                let devices = faulty(before + after);
                // The maintenance thread may have been quick.
                let Ok(array) = open(&devices) else { continue };
                let closed = [array.close(), array.close()];
                if !devices[0].has_failed() {
                    break;
                }
                failed += 1;
                let what = format!("{level:?}, {operation:?} {after}");
                assert!(closed[0].is_err() && closed[1].is_err(), "{what}: {closed:?}");
            }
            assert!(failed > 0 || (level, operation) == (Level::Raid0, Operation::Write), "{level:?}");
        }
    }
}
