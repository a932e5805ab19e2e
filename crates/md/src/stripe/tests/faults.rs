//! Members that fail in the middle of something.

use std::sync::Arc;

use undercroft_block::testing::{FailNth, Left, Repeat};
use undercroft_block::{BlockDevice as _, MemoryDevice, Operation};

use super::harness::{DATA_OFFSET, Plan, Rig, Rng};
use crate::level::{Personality as _, SyncWork};
use crate::{Error, Level};

const LEFT: [Left; 3] = [Left::Old, Left::Torn, Left::New];

/// An array in which the `nth` request of a kind to the member of `role` fails.
fn failing(plan: Plan, role: u32, operation: Operation, nth: u64, repeat: Repeat, has_list: bool) -> Rig {
    Rig::with(plan, has_list, |number| {
        let memory = Arc::new(MemoryDevice::new(plan.device_bytes()));
        if number != role {
            return memory;
        }
        Arc::new(FailNth::new(memory, operation, nth, repeat).leaving(LEFT[nth as usize % 3]))
    })
}

fn some_writes(rig: &mut Rig, rng: &mut Rng, count: usize) {
    for _ in 0..count {
        let longest = [3000, 20_000, 2 * rig.row_bytes()][rng.below(3)];
        let (start, len) = rng.range(rig.model.len(), longest);
        rig.write(start, &rng.bytes(len));
    }
}

#[test]
fn a_member_that_fails_in_mid_write_is_left_out_and_the_write_succeeds() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for role in 0..4 {
            for nth in (1..30).step_by(3) {
                let plan = Plan { cache_bytes: 0, ..Plan::new(level, 4, 8192) };
                let mut rig = failing(plan, role, Operation::Write, nth, Repeat::FromThenOn, false);
                let mut rng = Rng::new(nth);
                while rig.told.failed.lock().is_empty() {
                    some_writes(&mut rig, &mut rng, 1);
                }
                some_writes(&mut rig, &mut rng, 10);
                assert_eq!(*rig.told.failed.lock(), [role], "once");
                rig.check_members();
                rig.check_reads();
                rig.rebuild(role);
                rig.check_members();
            }
        }
    }
}

#[test]
fn a_second_loss_in_raid5_ends_the_writing_and_what_is_left_is_read() {
    for nth in 1..12 {
        let plan = Plan { cache_bytes: 0, ..Plan::new(Level::Raid5, 4, 8192) };
        let rig = failing(plan, 2, Operation::Write, nth, Repeat::FromThenOn, false);
        rig.lose(0);
        let mut rng = Rng::new(nth);
        let mut refused = None;
        for _ in 0..40 {
            let (start, len) = rng.range(rig.model.len(), 20_000);
            match rig.raid.write(start as u64, &rng.bytes(len)) {
                Ok(()) => assert!(refused.is_none()),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        assert!(matches!(refused, Some(Error::Stopped(_))), "{refused:?}");
        assert!(rig.shared.enter().is_err(), "latched");
        // The member that did not take a write can still be read.
        rig.read(0, rig.model.len()).unwrap();
        rig.raid.sets.assert_quiet();
    }
}

#[test]
fn raid6_goes_on_when_a_second_member_fails() {
    for nth in (1..20).step_by(2) {
        let plan = Plan { cache_bytes: 0, ..Plan::new(Level::Raid6, 5, 8192) };
        let mut rig = failing(plan, 2, Operation::Write, nth, Repeat::FromThenOn, false);
        let mut rng = Rng::new(nth);
        some_writes(&mut rig, &mut rng, 3);
        rig.lose(4);
        some_writes(&mut rig, &mut rng, 30);
        rig.check_members();
        rig.check_reads();
        rig.rebuild(2);
        rig.rebuild(4);
        rig.check_members();
    }
}

#[test]
fn a_read_error_is_answered_from_the_others_and_healed() {
    for level in [Level::Raid5, Level::Raid6] {
        for role in 0..4 {
            for nth in 1..8 {
                let plan = Plan { cache_bytes: 0, ..Plan::new(level, 4, 8192) };
                let mut rig = failing(plan, role, Operation::Read, nth, Repeat::Once, false);
                let data = Rng::new(nth).bytes(rig.model.len());
                rig.write(0, &data);
                rig.check_reads();
                some_writes(&mut rig, &mut Rng::new(nth), 20);
                rig.check_reads();
                assert!(rig.told.failed.lock().is_empty(), "it took what was written back");
                rig.check_members();
            }
        }
    }
}

/// A member with one page that is lost until it is written.
#[derive(Debug)]
struct Scratched {
    base: MemoryDevice,
    page: u64,
    is_lost: std::sync::atomic::AtomicBool,
    heals: bool,
}

impl Scratched {
    fn touches(&self, offset: u64, len: usize) -> bool {
        let lost = DATA_OFFSET + self.page * 4096;
        self.is_lost.load(std::sync::atomic::Ordering::SeqCst)
            && offset < lost + 4096
            && lost < offset + len as u64
    }

    fn failure<T>(&self, operation: Operation, offset: u64, len: usize) -> undercroft_block::Result<T> {
        let source = std::io::Error::other("a scratch");
        Err(undercroft_block::Error::Io { operation, offset, len: len as u64, device: self.name(), source })
    }
}

impl undercroft_block::BlockDevice for Scratched {
    fn name(&self) -> String {
        "scratched device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> undercroft_block::Access {
        self.base.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        if self.touches(offset, buf.len()) {
            return self.failure(Operation::Read, offset, buf.len());
        }
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        if self.touches(offset, data.len()) {
            if !self.heals {
                return self.failure(Operation::Write, offset, data.len());
            }
            self.is_lost.store(false, std::sync::atomic::Ordering::SeqCst);
        }
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        Ok(())
    }
}

/// An array full of data, whose member of `role` has lost a page since.
fn scratched(level: Level, role: u32, page: u64, heals: bool, has_list: bool) -> (Rig, Arc<Scratched>) {
    let plan = Plan { cache_bytes: 0, ..Plan::new(level, 4, 16384) };
    let device = Arc::new(Scratched {
        base: MemoryDevice::new(plan.device_bytes()),
        page,
        is_lost: false.into(),
        heals,
    });
    let mut rig = Rig::with(plan, has_list, |number| {
        if number == role {
            Arc::clone(&device) as _
        } else {
            Arc::new(MemoryDevice::new(plan.device_bytes()))
        }
    });
    let data = Rng::new(u64::from(role)).bytes(rig.model.len());
    rig.write(0, &data);
    device.is_lost.store(true, std::sync::atomic::Ordering::SeqCst);
    (rig, device)
}

#[test]
fn a_lost_page_is_read_all_the_same_and_written_anew() {
    for level in [Level::Raid5, Level::Raid6] {
        for role in 0..4 {
            for page in 0..4 {
                let (rig, device) = scratched(level, role, page, true, false);
                rig.check_reads();
                // Parity is not read: that is found by a check.
                assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
                assert!(!device.is_lost.load(std::sync::atomic::Ordering::SeqCst), "healed");
                rig.check_members();
                assert!(rig.told.failed.lock().is_empty());
            }
        }
    }
}

#[test]
fn a_lost_page_that_cannot_be_written_is_recorded_or_costs_the_member() {
    for has_list in [true, false] {
        let (mut rig, device) = scratched(Level::Raid5, 1, 2, false, has_list);
        rig.check_reads();
        assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
        rig.check_reads();
        assert_eq!(rig.told.failed.lock().len(), usize::from(!has_list));
        if has_list {
            assert_eq!(*rig.told.bad.lock(), [(1, 2 * 4096..3 * 4096)]);
            // Not even asked for.
            device.is_lost.store(false, std::sync::atomic::Ordering::SeqCst);
            rig.check_reads();
            // Written well, it is good again.
            let data = Rng::new(9).bytes(rig.row_bytes());
            rig.write(0, &data);
            assert!(rig.told.bad.lock().is_empty());
            rig.check_members();
        } else {
            let data = Rng::new(9).bytes(rig.row_bytes());
            rig.write(100, &data);
            rig.check_members();
        }
        rig.check_reads();
    }
}

#[test]
fn a_page_that_does_not_take_a_write_is_recorded_and_the_write_succeeds() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for role in 0..4 {
            for is_whole in [true, false] {
                let (mut rig, device) = scratched(level, role, 2, false, true);
                let mut rng = Rng::new(u64::from(role));
                if is_whole {
                    let all = rng.bytes(rig.model.len());
                    rig.write(0, &all);
                } else {
                    while rig.told.bad.lock().is_empty() {
                        some_writes(&mut rig, &mut rng, 1);
                    }
                }
                assert!(rig.told.failed.lock().is_empty());
                assert_eq!(*rig.told.bad.lock(), [(role, 2 * 4096..3 * 4096)], "{level:?}");
                rig.check_reads();
                some_writes(&mut rig, &mut rng, 20);
                rig.check_reads();
                // Even if it could be read again: it holds what was there before.
                device.is_lost.store(false, std::sync::atomic::Ordering::SeqCst);
                rig.check_reads();
                assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
                assert!(!rig.told.bad.lock().is_empty(), "a check writes nothing");
                assert_eq!(rig.sync(SyncWork::Repair).unwrap(), 0);
                assert!(rig.told.bad.lock().is_empty(), "rewritten");
                rig.check_members();
            }
        }
    }
}

#[test]
fn write_to_an_unrecoverable_row_fails_and_the_array_stays_writable() {
    let (mut rig, _) = scratched(Level::Raid5, 1, 2, false, true);
    rig.lose(0);
    let data = Rng::new(5).bytes(rig.model.len());
    assert!(matches!(rig.raid.write(0, &data), Err(Error::TooFewMembers(_))));
    assert!(rig.shared.stopped().is_none() && rig.told.failed.lock().is_empty());
    // In its row of pages nothing is left that can be told; all others take writes and give them back.
    let mut lost = 0;
    for page in (0..rig.model.len()).step_by(4096) {
        let data = Rng::new(page as u64).bytes(4096);
        match rig.raid.write(page as u64, &data) {
            Ok(()) => {
                rig.model[page..page + 4096].copy_from_slice(&data);
                assert_eq!(rig.read(page, 4096).unwrap(), data);
            }
            Err(Error::TooFewMembers(_)) => lost += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!((1..=3).contains(&lost), "{lost}");
    rig.raid.sets.assert_quiet();
}

#[test]
fn unreadable_rows_do_not_end_a_check() {
    let (mut rig, _) = scratched(Level::Raid5, 1, 2, false, true);
    let data = Rng::new(5).bytes(rig.model.len());
    rig.write(0, &data);
    // Another page of the row, as a rebuild leaves it that could not read both.
    rig.told.bad.lock().push((0, 2 * 4096..3 * 4096));
    rig.forget();
    assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
    let other = rig.member(2).unwrap();
    other.write_at(4096, &[0x77; 4096]).unwrap();
    assert_eq!(rig.sync(SyncWork::Check).unwrap(), 4096, "the rows beside it are compared");
}

#[test]
fn a_lost_page_of_a_degraded_array_is_an_error_of_its_own_and_no_loss_of_a_member() {
    let (rig, _) = scratched(Level::Raid5, 1, 2, false, false);
    rig.lose(0);
    let mut failed = 0;
    for page in (0..rig.model.len()).step_by(4096) {
        match rig.read(page, 4096) {
            Ok(bytes) => assert_eq!(bytes, &rig.model[page..page + 4096]),
            Err(Error::Device(_)) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!((1..=3).contains(&failed), "{failed} pages of the row of the lost one");
    assert!(rig.told.failed.lock().is_empty());
}

#[test]
fn a_page_that_cannot_be_rebuilt_becomes_a_bad_block_of_the_new_member() {
    let (rig, _) = scratched(Level::Raid5, 1, 2, false, true);
    rig.lose(3);
    let new = rig.join(3);
    rig.sync(SyncWork::Recover).unwrap();
    new.set_recovered(u64::MAX);
    assert_eq!(*rig.told.bad.lock(), [(1003, 2 * 4096..3 * 4096)]);
    rig.check_rows(1..rig.plan.rows);
    // Without a list there is no rebuilding past it.
    let (rig, _) = scratched(Level::Raid5, 1, 2, false, false);
    rig.lose(3);
    rig.join(3);
    assert!(rig.sync(SyncWork::Recover).is_err());
}

#[test]
fn a_member_that_fails_while_it_is_rebuilt_is_left_out() {
    let mut rig = Rig::new(Plan::new(Level::Raid5, 4, 8192));
    let data = Rng::new(1).bytes(rig.model.len());
    rig.write(0, &data);
    rig.lose(2);
    let memory = Arc::new(MemoryDevice::new(rig.plan.device_bytes()));
    let failing = Arc::new(FailNth::new(memory, Operation::Write, 3, Repeat::FromThenOn));
    let new = super::harness::member(failing, 77, 0);
    rig.shared.change_lineup(|lineup| lineup.places[2].member = Some(new));
    rig.sync(SyncWork::Recover).unwrap();
    assert_eq!(*rig.told.failed.lock(), [77]);
    rig.check_reads();
}
