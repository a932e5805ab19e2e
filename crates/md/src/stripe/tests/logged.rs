//! Power cuts in the middle of writes of a degraded array that keeps a partial parity log.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use undercroft_block::{Access, BlockDevice, Device, MemoryDevice, Result};
use uuid::Uuid;

use super::harness::{DATA_OFFSET, Plan, Rig, Rng};
use crate::Level;
use crate::level::Personality as _;
use crate::member::Role;
use crate::ppl::{self, Log, MemberLog};
use crate::superblock::{Area, PplArea};

/// The logs lie before the data.
const AREA: PplArea = PplArea { area: Area { offset: 4096, bytes: DATA_OFFSET - 4096 }, multiple: false };
const UUID: Uuid = Uuid::from_u128(7);

/// Members of one machine, whose power fails after so many writes.
#[derive(Debug)]
struct Powered {
    base: MemoryDevice,
    writes_left: Arc<AtomicI64>,
}

impl BlockDevice for Powered {
    fn name(&self) -> String {
        "powered device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.writes_left.fetch_sub(1, Ordering::SeqCst) > 0 {
            return self.base.write_at(offset, data);
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

struct Machine {
    rig: Rig,
    writes_left: Arc<AtomicI64>,
}

impl Machine {
    /// An array full of data, without the member of role `missing`.
    fn new(plan: Plan, has_logs: bool, missing: u32, seed: u64) -> Self {
        let writes_left = Arc::new(AtomicI64::new(i64::MAX));
        let mut rig = Rig::on(plan, |_| {
            let base = MemoryDevice::new(plan.device_bytes());
            Arc::new(Powered { base, writes_left: Arc::clone(&writes_left) })
        });
        if has_logs {
            for role in 0..plan.members {
                let member = rig.member(role).unwrap();
                let device: &Device = member.device();
                ppl::format(&**device, AREA.area, UUID).unwrap();
                member.set_log(Log::new(Arc::clone(device), AREA, role, UUID, plan.chunk_bytes));
            }
        }
        let data = Rng::new(seed).bytes(rig.model.len());
        rig.write(0, &data);
        rig.lose(missing);
        Self { rig, writes_left }
    }

    /// The power is back: the logs are replayed, and memory is empty.
    fn restart(&mut self, has_logs: bool) {
        self.writes_left.store(i64::MAX, Ordering::SeqCst);
        if has_logs {
            let logs: Vec<MemberLog> = (0..self.rig.plan.members)
                .filter_map(|role| {
                    Some(MemberLog { role: Role(role), member: self.rig.member(role)?, area: AREA })
                })
                .collect();
            let lineup = self.rig.shared.lineup();
            let replayed =
                ppl::replay(&self.rig.shared.geometry, &lineup, &logs, UUID, &|_, _| false).unwrap();
            assert!(replayed.is_consistent(), "{replayed:?}");
        }
        self.rig.forget();
    }

    /// Bytes that the write was not about and that are not as they were.
    fn damage(&self, start: usize, len: usize) -> usize {
        let now = self.rig.read(0, self.rig.model.len()).unwrap();
        let is_damaged = |at: &usize| !(start..start + len).contains(at) && now[*at] != self.rig.model[*at];
        (0..now.len()).filter(is_damaged).count()
    }
}

/// Cuts the power at each point of some writes; returns how many cuts damaged what was not written.
fn cuts_that_damage(has_logs: bool) -> usize {
    let mut damaging = 0;
    for (chunk_bytes, piece_bytes) in [(4096, 4096), (16384, 16384), (16384, 8192)] {
        let plan = Plan { rows: 4, piece_bytes, cache_bytes: 0, ..Plan::new(Level::Raid5, 4, chunk_bytes) };
        for seed in 0..12 {
            for cut in 0.. {
                let mut rng = Rng::new(seed);
                let missing = rng.below(4) as u32;
                let mut machine = Machine::new(plan, has_logs, missing, seed);
                // Whole blocks, as the log knows no others.
                let (start, len) = rng.range(machine.rig.model.len() / 4096, 15);
                let (start, len) = (start * 4096, len.max(1) * 4096);
                let data = rng.bytes(len);
                machine.writes_left.store(cut, Ordering::SeqCst);
                machine.rig.raid.write(start as u64, &data).unwrap();
                let is_over = machine.writes_left.load(Ordering::SeqCst) >= 0;
                machine.restart(has_logs);
                damaging += usize::from(machine.damage(start, len) > 0);
                if is_over {
                    assert_eq!(machine.rig.read(start, len).unwrap(), data);
                    break;
                }
            }
        }
    }
    damaging
}

#[test]
fn a_power_cut_damages_nothing_that_was_not_being_written() {
    assert_eq!(cuts_that_damage(true), 0);
    // The test would notice.
    assert!(cuts_that_damage(false) > 0);
}

#[test]
fn with_a_log_writes_of_all_shapes_leave_data_and_parity_right() {
    for missing in [None, Some(1)] {
        let plan = Plan { cache_bytes: 0, ..Plan::new(Level::Raid5, 5, 8192) };
        let mut machine = Machine::new(plan, true, 0, 1);
        machine.rig.rebuild(0);
        if let Some(role) = missing {
            machine.rig.lose(role);
        }
        let mut rng = Rng::new(3);
        for _ in 0..200 {
            let (start, len) = rng.range(machine.rig.model.len(), 70_000);
            machine.rig.write(start, &rng.bytes(len));
        }
        machine.rig.check_members();
        machine.rig.check_reads();
    }
}

#[test]
fn a_member_whose_log_fails_is_left_out() {
    use undercroft_block::Operation;
    use undercroft_block::testing::{FailNth, Repeat};
    let plan = Plan { cache_bytes: 0, ..Plan::new(Level::Raid5, 4, 8192) };
    for nth in 1..6 {
        let mut rig = Rig::on(plan, |role| {
            let memory = Arc::new(MemoryDevice::new(plan.device_bytes()));
            if role == 2 {
                return Arc::new(FailNth::new(memory, Operation::Flush, nth, Repeat::FromThenOn));
            }
            memory
        });
        for role in 0..4 {
            let member = rig.member(role).unwrap();
            ppl::format(&**member.device(), AREA.area, UUID).unwrap();
            member.set_log(Log::new(Arc::clone(member.device()), AREA, role, UUID, plan.chunk_bytes));
        }
        let mut rng = Rng::new(nth);
        while rig.told.failed.lock().is_empty() {
            let (start, len) = rng.range(rig.model.len(), 30_000);
            rig.write(start, &rng.bytes(len));
        }
        let (start, len) = rng.range(rig.model.len(), 30_000);
        rig.write(start, &rng.bytes(len));
        assert_eq!(*rig.told.failed.lock(), [2]);
        rig.check_members();
        rig.check_reads();
    }
}

#[test]
fn threads_that_share_a_stripe_and_a_log_keep_their_bytes() {
    let plan = Plan { cache_bytes: 0, rows: 4, ..Plan::new(Level::Raid5, 4, 16384) };
    let mut machine = Machine::new(plan, true, 3, 1);
    let rig = &machine.rig;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for block in (thread..rig.model.len() / 4096).step_by(8) {
                    rig.raid.write(block as u64 * 4096, &[block as u8; 4096]).unwrap();
                }
            });
        }
    });
    for (block, bytes) in machine.rig.model.chunks_mut(4096).enumerate() {
        bytes.fill(block as u8);
    }
    machine.rig.check_members();
    machine.restart(true);
    machine.rig.check_reads();
}
