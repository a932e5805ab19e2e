//! Work that a crash interrupted and that Linux finishes when it mounts: the filesystem is checked as it will be then.
//!
//! Files have the maps that they will have. Blocks that are to become free count as free, the reverse map has the owners
//! that it will have, and the tree of reference counts the users. Which blocks the trees themselves take or give for it
//! is not known before.
//!
//! Each group's share is bounded ([`MOST`]), since steps are compared with records one by one.

use undercroft_vfs::Ino;

use super::Checker;
use super::report::At;
use super::space::{Owner, Space};
use crate::format::Geometry;
use crate::inode::{ForkKind, Remap, Remapped};
use crate::log::{OwnerChange, OwnerChangeKind, Unfinished, UsersChange};

/// Steps of a group that are taken into account.
const MOST: usize = 4096;

/// What was interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted<'a> {
    pub(crate) steps: &'a [Unfinished],
    pub(crate) remapped: Option<&'a Remapped>,
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

impl Interrupted<'_> {
    /// Nothing was.
    pub(crate) const NONE: Interrupted<'static> = Interrupted { steps: &[], remapped: None };

    /// The map that a fork will have.
    pub(super) fn map_of(&self, ino: u64, is_attribute: bool) -> Option<&Remap> {
        self.remapped?.get(Ino(ino), if is_attribute { ForkKind::Attr } else { ForkKind::Data })
    }

    /// Blocks that an inode will have beyond those that it counts.
    pub(super) fn more_blocks_of(&self, ino: u64) -> i64 {
        [false, true].iter().filter_map(|&kind| self.map_of(ino, kind)).map(|remap| remap.more_blocks).sum()
    }

    /// The steps that concern a group, with the first block within it.
    fn in_group<'s>(
        &'s self,
        geometry: &'s Geometry,
        group: u32,
    ) -> impl Iterator<Item = (u32, &'s Unfinished)> {
        let within = move |step: &'s Unfinished| {
            let start = match step {
                Unfinished::Free { start, .. } | Unfinished::Users { start, .. } => start,
                Unfinished::Owner(change) => &change.start,
                Unfinished::Map(_) => return None,
            };
            let (ag, within) = geometry.split(*start)?;
            (ag.0 == group).then_some((within.0, step))
        };
        self.steps.iter().filter_map(within).take(MOST)
    }

    /// The blocks of a group that may become free.
    pub(super) fn freed_in(&self, geometry: &Geometry, group: u32) -> Runs {
        let mut all: Vec<(u32, u32)> = self
            .in_group(geometry, group)
            .filter_map(|(start, step)| match step {
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
    /// Changes what is known of a group's blocks into what will hold of them.
    pub(super) fn finish_interrupted(&self, number: u32, space: &mut Space) {
        let mut free = Vec::new();
        let mut watched = std::mem::take(&mut space.watched);
        watched.truncate(MOST);
        for (start, step) in self.interrupted.in_group(&self.geometry, number) {
            match *step {
                Unfinished::Free { blocks, .. } => free.push((start, blocks)),
                Unfinished::Owner(ref change) => change_owner(space, &mut watched, start, change),
                Unfinished::Users { blocks, change, .. } => match change {
                    UsersChange::Increase => drop(space.change_owners(start, blocks, true)),
                    UsersChange::Decrease => free.extend(space.change_owners(start, blocks, false)),
                    // Set aside for a copy that will not be made.
                    UsersChange::Reserve => {
                        space.claim(start, blocks, Owner::COPIES);
                    }
                    // The copy is made, and belongs to a file or becomes free.
                    UsersChange::Release => space.unclaim(start, blocks, Owner::COPIES),
                },
                Unfinished::Map(_) => {}
            }
        }
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
    use super::*;

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
