//! Work that a crash interrupted and that Linux finishes when it mounts: the filesystem is checked as it will be then.
//!
//! Files have the maps that they will have. Blocks that are to become free count as free, the reverse map has the
//! owners that it will have, and the tree of reference counts the users. Blocks that the trees themselves will gain or
//! lose by that are not predicted.
//!
//! The work for each group is bounded, since steps are compared with records one by one: after [`MOST`] steps, records
//! of the reverse map or pieces that become free, or [`MOST_PASSED`] runs of shared blocks, the rest is reported as not
//! compared.

use undercroft_diskfs::At;
use undercroft_vfs::Ino;

use super::Checker;
use super::space::{Owner, Space};
use crate::format::Geometry;
use crate::inode::{ForkKind, Remap, Remapped};
use crate::log::{MapChange, OwnerChange, OwnerChangeKind, Unfinished, UsersChange};

/// Steps of a group that are taken into account, records of its reverse map that they concern, and pieces that become
/// free by them.
pub(super) const MOST: usize = 4096;

/// Runs of shared blocks of a group that its steps may pass.
const MOST_PASSED: usize = 1 << 20;

/// What was interrupted.
#[derive(Debug, Default)]
pub(super) struct Interrupted<'a> {
    /// The number of the group that a step concerns, the first block within it, and the step: by group, and within it in
    /// the order of the log.
    steps: Vec<(u32, u32, &'a Unfinished)>,
    remapped: Option<&'a Remapped>,
}

/// Runs of blocks that do not touch, in order.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<(u32, u32)>);

impl Runs {
    /// Whether one of them has a block in common with this one.
    pub(super) fn meets(&self, start: u32, count: u32) -> bool {
        let after = self.0.partition_point(|&(_, end)| end <= start);
        self.0.get(after).is_some_and(|&(from, _)| from < start.saturating_add(count))
    }
}

impl<'a> Interrupted<'a> {
    pub(super) fn new(geometry: &Geometry, steps: &'a [Unfinished], remapped: &'a Remapped) -> Self {
        let within = |step: &'a Unfinished| {
            let start = match step {
                Unfinished::Free { start, .. } | Unfinished::Users { start, .. } => start,
                Unfinished::Owner(change) => &change.start,
                Unfinished::Map(change) => &change.start,
            };
            let (ag, within) = geometry.split(*start)?;
            Some((ag.0, within.0, step))
        };
        let mut steps: Vec<_> = steps.iter().filter_map(within).collect();
        steps.sort_by_key(|&(group, ..)| group);
        Self { steps, remapped: Some(remapped) }
    }

    /// The map that a fork will have.
    pub(super) fn map_of(&self, ino: u64, is_attribute: bool) -> Option<&Remap> {
        self.remapped?.get(Ino(ino), if is_attribute { ForkKind::Attr } else { ForkKind::Data })
    }

    /// Blocks that an inode will have beyond those that it counts.
    pub(super) fn more_blocks_of(&self, ino: u64) -> i64 {
        [false, true].iter().filter_map(|&kind| self.map_of(ino, kind)).map(|remap| remap.more_blocks).sum()
    }

    /// The steps that concern a group.
    fn in_group(&self, group: u32) -> &[(u32, u32, &'a Unfinished)] {
        let first = self.steps.partition_point(|&(of, ..)| of < group);
        let after = self.steps.partition_point(|&(of, ..)| of <= group);
        &self.steps[first..after]
    }

    /// The blocks of a group that may become free.
    pub(super) fn freed_in(&self, group: u32) -> Runs {
        let mut all: Vec<(u32, u32)> = self
            .in_group(group)
            .iter()
            .filter_map(|&(_, start, step)| match step {
                Unfinished::Free { blocks, .. }
                | Unfinished::Users { blocks, change: UsersChange::Decrease, .. } => {
                    Some((start, start.saturating_add(*blocks)))
                }
                _ => None,
            })
            .collect();
        all.sort_unstable();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (start, end) in all {
            match runs.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => runs.push((start, end)),
            }
        }
        Runs(runs)
    }
}

impl Checker<'_> {
    /// Changes the state of a group's blocks to what it will be then.
    pub(super) fn finish_interrupted(&self, number: u32, space: &mut Space) {
        let steps = self.interrupted.in_group(number);
        let mut watched = std::mem::take(&mut space.watched);
        let mut free = Vec::new();
        let mut passed = 0;
        for (done, &(_, start, step)) in steps.iter().enumerate() {
            if done.max(free.len()).max(watched.len()) > MOST || passed > MOST_PASSED {
                let detail = format!(
                    "{} of {} changes that the log is to finish are not compared: there are too many",
                    steps.len() - done,
                    steps.len()
                );
                self.findings.add("log", At::group(number), detail);
                break;
            }
            match *step {
                Unfinished::Free { blocks, .. } => free.push((start, blocks)),
                Unfinished::Owner(ref change) => change_owner(space, &mut watched, start, change),
                Unfinished::Users { blocks, change, .. } => match change {
                    UsersChange::Increase => {
                        passed += space.shared_in(start, blocks);
                        drop(space.change_owners(start, blocks, true));
                    }
                    UsersChange::Decrease => {
                        passed += space.shared_in(start, blocks);
                        free.extend(space.change_owners(start, blocks, false));
                    }
                    // Set aside for a copy that will not be made.
                    UsersChange::Reserve => {
                        space.claim(start, blocks, Owner::COPIES);
                    }
                    // The copy is made, and belongs to a file or becomes free.
                    UsersChange::Release => space.unclaim(start, blocks, Owner::COPIES),
                },
                // The reverse map follows what is mapped only then.
                Unfinished::Map(ref change) => change_owner(space, &mut watched, start, &owner_of(change)),
            }
        }
        watched.truncate(MOST);
        for (start, count) in free {
            let taken = space.free(start, count);
            if taken > 0 {
                let detail = format!(
                    "{taken} of {count} blocks at block {start}, which the log is to free, are in use or free"
                );
                self.findings.add("free-space", At::group(number), detail);
            }
            // The reverse map forgets them, whatever it had.
            let end = start.saturating_add(count);
            for &(from, len, owner) in &watched {
                let (first, last) = (from.max(start), from.saturating_add(len).min(end));
                if first < last {
                    space.expect_no_longer(first, last - first, moved(owner, first - from));
                }
            }
        }
    }
}

/// The owner of a later block of a run.
fn moved(owner: Owner, by: u32) -> Owner {
    Owner { offset: owner.offset.wrapping_add(u64::from(by)), ..owner }
}

/// The change of an owner that a change of a file's map leads to.
fn owner_of(change: &MapChange) -> OwnerChange {
    OwnerChange {
        start: change.start,
        blocks: change.blocks,
        kind: if change.map { OwnerChangeKind::Add } else { OwnerChangeKind::Remove },
        owner: change.ino.0,
        at: change.at,
        attribute_fork: change.attribute_fork,
        map_block: false,
        unwritten: change.unwritten,
    }
}

fn change_owner(space: &mut Space, watched: &mut Vec<(u32, u32, Owner)>, start: u32, change: &OwnerChange) {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    let flags = flag(change.attribute_fork, Owner::ATTRIBUTE_FORK) | flag(change.map_block, Owner::MAP_BLOCK);
    let owner = |unwritten: bool| Owner {
        number: change.owner,
        offset: change.at.0,
        flags: flags | flag(unwritten, Owner::UNWRITTEN),
    };
    match change.kind {
        OwnerChangeKind::Add => space.expect(start, change.blocks, owner(change.unwritten)),
        OwnerChangeKind::Remove => {
            space.expect_no_longer(start, change.blocks, owner(change.unwritten));
            cut(watched, start, change.blocks, owner(change.unwritten));
        }
        OwnerChangeKind::Convert => {
            space.expect_no_longer(start, change.blocks, owner(!change.unwritten));
            space.expect(start, change.blocks, owner(change.unwritten));
        }
    }
}

/// Takes an owner's run out of a list of records.
fn cut(records: &mut Vec<(u32, u32, Owner)>, start: u32, count: u32, owner: Owner) {
    let end = start.saturating_add(count);
    let mut rest = Vec::new();
    records.retain(|&(from, len, of)| {
        let to = from.saturating_add(len);
        if from.max(start) >= to.min(end) || !owner.is_same(start, &of, from) {
            return true;
        }
        if from < start {
            rest.push((from, start - from, of));
        }
        if to > end {
            rest.push((end, to - end, moved(of, end - from)));
        }
        false
    });
    records.extend(rest);
}

#[cfg(test)]
mod tests {
    use super::super::space::SharedRun;
    use super::super::testing::Bench;
    use super::*;
    use crate::format::{AgBlock, AgNumber, FileBlock, FsBlock};

    #[test]
    fn a_record_is_cut_where_its_owner_leaves() {
        let file = |offset| Owner { number: 131, offset, flags: 0 };
        let mut records = vec![(100, 10, file(0)), (100, 10, file(7)), (200, 1, Owner::INODES)];
        cut(&mut records, 103, 2, file(3));
        assert_eq!(
            records,
            [(100, 10, file(7)), (200, 1, Owner::INODES), (100, 3, file(0)), (105, 5, file(5))]
        );
        cut(&mut records, 90, 200, file(9));
        assert_eq!(records.len(), 4, "another place of the file");
    }

    /// A group of 4096 blocks, changed as a test likes, after `steps`, and what the check reports then.
    fn finished(steps: &[Unfinished], change: impl FnOnce(&mut Space)) -> (Space, Vec<String>) {
        let bench = Bench::new(|_| {});
        let remapped = Remapped::default();
        let mut checker = bench.checker();
        checker.interrupted = Interrupted::new(bench.superblock.geometry(), steps, &remapped);
        let mut space = Space::new(4096, true);
        change(&mut space);
        checker.finish_interrupted(0, &mut space);
        (space, checker.reported())
    }

    fn free(start: u64, blocks: u32) -> Unfinished {
        Unfinished::Free { start: FsBlock(start), blocks }
    }

    fn users(start: u64, blocks: u32, change: UsersChange) -> Unfinished {
        Unfinished::Users { start: FsBlock(start), blocks, change }
    }

    #[test]
    fn blocks_that_are_to_be_freed_are_free() {
        let (mut space, reported) = finished(&[free(100, 10)], |_| {});
        assert!(reported.is_empty(), "{reported:?}");
        assert_eq!(space.free(100, 10), 10, "they are free");
        let (_, reported) = finished(&[free(100, 10), free(105, 10)], |_| {});
        assert!(reported.len() == 1 && reported[0].contains("5 of 10 blocks at block 105"), "{reported:?}");
    }

    #[test]
    fn users_change_as_the_log_says() {
        let shared = |space: &mut Space| space.shared.push(SharedRun::new(100, 10, 3));
        let (space, reported) = finished(&[users(100, 10, UsersChange::Decrease)], shared);
        assert!(reported.is_empty() && space.shared[0].owners == 2, "{:?}", space.shared);
        // The last user of a block that is not shared leaves it free.
        let (mut space, reported) = finished(&[users(90, 15, UsersChange::Decrease)], shared);
        assert!(reported.is_empty());
        assert_eq!(space.free(90, 10), 10);
        let (space, _) = finished(&[users(90, 10, UsersChange::Increase)], shared);
        assert_eq!(
            space.shared.iter().map(|run| (run.start, run.owners)).collect::<Vec<_>>(),
            [(90, 2), (100, 3)]
        );
    }

    #[test]
    fn owners_come_and_go() {
        let owner = |kind| {
            Unfinished::Owner(OwnerChange {
                kind,
                owner: 131,
                start: FsBlock(100),
                blocks: 4,
                at: FileBlock(7),
                attribute_fork: false,
                map_block: false,
                unwritten: false,
            })
        };
        let differing = |steps: &[Unfinished]| finished(steps, |_| {}).0.differing_owners().count();
        assert_eq!(differing(&[owner(OwnerChangeKind::Add)]), 1);
        assert_eq!(differing(&[owner(OwnerChangeKind::Add), owner(OwnerChangeKind::Remove)]), 0);
    }

    #[test]
    fn a_piece_that_is_to_be_mapped_gets_its_owner_then() {
        const FILE: Owner = Owner { number: 131, offset: 7, flags: 0 };
        let map = |map| {
            Unfinished::Map(MapChange {
                ino: Ino(131),
                attribute_fork: false,
                map,
                unwritten: false,
                at: FileBlock(7),
                start: FsBlock(100),
                blocks: 4,
            })
        };
        let differing = |steps: &[Unfinished], change: fn(&mut Space)| {
            finished(steps, change).0.differing_owners().count()
        };
        // The file is seen to have the blocks, and the reverse map has no record of it yet.
        let claimed: fn(&mut Space) = |space| {
            let _ = space.claim_shared(100, 4, FILE);
        };
        assert_eq!(differing(&[map(true)], claimed), 0);
        assert_eq!(differing(&[], claimed), 1);
        // It is seen without them, and the record is still there.
        assert_eq!(differing(&[map(false)], |space| space.expect(100, 4, FILE)), 0);
    }

    #[test]
    fn more_changes_than_are_compared_are_reported() {
        let steps: Vec<Unfinished> = (0..MOST as u64 + 3).map(|n| free(n % 4096, 1)).collect();
        let (_, reported) = finished(&steps, |_| {});
        assert!(reported.iter().any(|line| line.contains("2 of 4099 changes")), "{reported:?}");
        // Each of these leaves 1024 pieces free.
        let gaps = |space: &mut Space| {
            space.shared.extend((0..1024).map(|n| SharedRun::new(n * 4, 1, u32::MAX)));
        };
        let steps: [Unfinished; 6] = std::array::from_fn(|_| users(0, 4096, UsersChange::Decrease));
        let (_, reported) = finished(&steps, gaps);
        assert!(reported.iter().any(|line| line.contains("1 of 6 changes")), "{reported:?}");
    }

    #[test]
    fn steps_are_found_by_their_group() {
        let bench = Bench::new(|_| {});
        let geometry = bench.superblock.geometry();
        let at = |ag, block| geometry.join(AgNumber(ag), AgBlock(block)).unwrap().0;
        let steps = [free(at(2, 9), 1), free(at(0, 5), 1), free(at(2, 3), 1)];
        let remapped = Remapped::default();
        let interrupted = Interrupted::new(geometry, &steps, &remapped);
        let starts =
            |group| interrupted.in_group(group).iter().map(|&(_, start, _)| start).collect::<Vec<_>>();
        assert_eq!([0, 1, 2, 3].map(starts), [vec![5], vec![], vec![9, 3], vec![]]);
    }

    #[test]
    fn runs_meet_what_has_a_block_in_common() {
        let runs = Runs(vec![(10, 20), (30, 31)]);
        for (start, count, meets) in
            [(0, 10, false), (0, 11, true), (19, 1, true), (20, 10, false), (20, 11, true), (31, 9, false)]
        {
            assert_eq!(runs.meets(start, count), meets, "{start} {count}");
        }
    }
}
