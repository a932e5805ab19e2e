//! Telling the device what is free.
//!
//! Only what may be given out is discarded, never what a transaction freed that is not durable: a crash would bring its old
//! owner back. While the device forgets blocks they are held, a bounded piece at a time and never more than a small part of
//! what can be reserved; they count as waiting for a commit, so that a caller that finds no space tries again.
//!
//! Locks: the group's, never while the device is called.

use std::ops::Range;

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, Result};

use super::group::Group;
use super::runs::Run;
use super::*;
use crate::format::{AgBlock, AgNumber};
use crate::transaction::Tid;
use crate::writer::Mounted;

/// Blocks that are held at once while the device forgets them, at most.
const PIECE_BLOCKS: u32 = 1 << 15;
/// They are at most this part of what can be reserved.
const PART_OF_FREE: u64 = 32;

/// Runs that [`Allocator::discard_freed`] takes at once under the group's lock.
const RUNS_AT_ONCE: usize = 4096;

/// Discards in a group after one commit, at most: the waiters of the commit wait for them, too.
const DISCARDS_PER_COMMIT: usize = 32;

impl Allocator {
    /// Discards what is free of a range of the filesystem's bytes, in runs of at least `min_len` bytes; returns how many bytes
    /// that was (`FITRIM`). What was freed a moment ago is left for after the next commit. A group that is damaged is left
    /// out.
    ///
    /// # Errors
    /// I/O failure while free space is read.
    pub(crate) fn trim(self: &Arc<Self>, volume: &Volume, range: Range<u64>, min_len: u64) -> Result<u64> {
        let geometry = volume.geometry();
        let bits = u32::from(geometry.block_log());
        let wanted = range.start.div_ceil(1 << bits)..range.end >> bits;
        let Ok(least) = u32::try_from(min_len.div_ceil(1 << bits).max(1)) else { return Ok(0) };
        let mut blocks = 0;
        for group in self.groups.iter() {
            let first = u64::from(group.number.0) * u64::from(geometry.ag_blocks());
            let len = u64::from(geometry.ag_len(group.number));
            let (start, end) = (wanted.start.max(first), wanted.end.min(first + len));
            if start < end && group.hints.longest.load(Ordering::Relaxed) >= least {
                let within = (start - first) as u32..(end - first) as u32;
                blocks += match self.trim_group(volume, group, within, least) {
                    Err(Error::Corrupt(_)) => 0,
                    trimmed => trimmed?,
                };
            }
        }
        Ok(blocks << bits)
    }

    fn trim_group(
        self: &Arc<Self>,
        volume: &Volume,
        group: &Group,
        within: Range<u32>,
        least: u32,
    ) -> Result<u64> {
        let (mut at, mut trimmed) = (within.start, 0);
        // Of a run that is long enough, the end of the part that has not been held yet.
        let mut long_until = 0;
        while at < within.end {
            let held = {
                let mut state = group.lock_blocks(volume)?;
                let spare = u32::try_from(state.spare()).unwrap_or(u32::MAX);
                let available = &state.blocks().space.available;
                let here = available.containing(at).map(|run| Run::new(at, run.end() - at));
                let Some(run) = here.or_else(|| available.from(at).next()) else { break };
                let run = Run::new(run.start, run.end().min(within.end).saturating_sub(run.start));
                if run.count == 0 {
                    break;
                }
                at = run.start;
                if run.count < least && at >= long_until {
                    at = run.end();
                    continue;
                }
                long_until = long_until.max(run.end());
                let part = self.free_blocks() / PART_OF_FREE;
                let most = run.count.min(spare).min(PIECE_BLOCKS);
                let most = self.reserve_some(1, part.min(u64::from(most))) as u32;
                if most == 0 {
                    // The last blocks: they are about to be used.
                    at = run.end();
                    continue;
                }
                let run = Run::new(run.start, most);
                let space = &mut state.blocks().space;
                space.available.take(run);
                space.held += u64::from(run.count);
                group.publish(&state);
                Held::of(self, volume, group.number, run)
            };
            let count = held.len();
            self.busy.fetch_add(count, Ordering::Relaxed);
            if discard(volume, held.first(), count) {
                trimmed += count;
            }
            at += count as u32;
            drop(held);
            // Wraps around for what is taken off.
            self.busy.fetch_sub(count, Ordering::Relaxed);
        }
        Ok(trimmed)
    }

    /// A transaction is durable: discards the longest runs of what it and those before it freed in a group, and then lets all
    /// of it be given out. What is not discarded is left to a [trim](Self::trim).
    pub(super) fn discard_freed(&self, volume: &Mounted, number: AgNumber, tid: Tid) {
        let Some(group) = self.groups.get(number.0 as usize) else { return };
        let mut left = DISCARDS_PER_COMMIT;
        loop {
            let runs = {
                let mut state = group.state.lock();
                match state.blocks.as_mut() {
                    Some(blocks) => blocks.space.take_durable(tid, RUNS_AT_ONCE),
                    None => Vec::new(),
                }
            };
            let longest = longest_joined(&runs, left);
            left -= longest.len();
            for run in longest {
                if let Some(first) = volume.geometry().join(number, AgBlock(run.start)) {
                    discard(volume, first, u64::from(run.count));
                }
            }
            let mut state = group.state.lock();
            if let Some(blocks) = state.blocks.as_mut() {
                for run in &runs {
                    blocks.space.give_durable(*run);
                }
            }
            self.recount(group, &mut state, 0);
            if runs.len() < RUNS_AT_ONCE {
                return;
            }
        }
    }
}

/// Discards free blocks. Returns whether the device did so; one that cannot discard loses nothing.
fn discard(volume: &Volume, first: FsBlock, count: u64) -> bool {
    let Some(offset) = volume.geometry().byte(first) else { return false };
    volume.device().discard(offset, count << volume.geometry().block_log()).is_ok()
}

/// The longest runs, up to `most` of them, of those that come of joining neighbours.
fn longest_joined(runs: &[Run], most: usize) -> Vec<Run> {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<Run> = Vec::with_capacity(sorted.len());
    for run in sorted {
        match joined.last_mut() {
            Some(last) if last.end() == run.start => last.count += run.count,
            _ => joined.push(run),
        }
    }
    joined.sort_unstable_by_key(|run| std::cmp::Reverse(run.count));
    joined.truncate(most);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_discarded_together_and_the_longest_first() {
        let runs = [(50, 3), (10, 1), (12, 2), (11, 1), (30, 1)].map(|(start, count)| Run::new(start, count));
        assert_eq!(longest_joined(&runs, 2), [Run::new(10, 4), Run::new(50, 3)]);
        assert_eq!(longest_joined(&runs, 9).len(), 3);
        assert!(longest_joined(&runs, 0).is_empty());
    }
}
