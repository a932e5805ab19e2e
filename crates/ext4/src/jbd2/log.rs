//! The states of a log, as types.
//!
//! ```text
//!                     ┌── begin ──► LogWriter, LogTail
//! Log::open ──► Clean(CleanLog) ◄── finish ◄─────────────┐
//!          └──► Dirty(DirtyLog) ──── recover ──► ReplayedLog ── go_on ──► LogWriter, LogTail
//! ```
//!
//! A filesystem is opened with a [`CleanLog`], and a dirty log becomes one in these ways only. What a crash may leave
//! behind:
//!
//! 1. before `recover`, or within it: the dirty log, with some of its blocks already written home. Recovering again
//!    ends in the same state as recovering once;
//! 2. after `recover`, before `finish`: every block durably written home, and the log still dirty. As above;
//! 3. after `finish`: an empty log;
//! 4. after [`begin`](CleanLog::begin): a dirty log of transactions that were made durable since;
//! 5. after [`go_on`](ReplayedLog::go_on), for a log that ends in fast commits: first a log without transactions and
//!    with the same fast commits, whose next transaction has the number that they name. That transaction makes the same
//!    changes and no others. Once it is durable the fast commits no longer count, because they name a transaction that
//!    is in the log. So they take effect exactly once, all together, however often recovery is interrupted.
//!
//! The log and the blocks it protects are on one device. For a read-only open that device is a copy-on-write overlay,
//! so the two cases do not differ here. No locks: one thread calls this while the filesystem is opened.

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;

use super::location::{LogBlock, LogLocation, Volume};
use super::replay::Replay;
use super::report::RecoveryReport;
use super::revoke::Revokes;
use super::ring::{LogTail, LogWriter};
use super::scan::Scan;
use super::sequence::Sequence;
use super::superblock::{LogForm, Superblock};
use crate::fast_commit::{self, FastCommitOp};

/// A log as it was found.
#[derive(Debug)]
pub(crate) enum Log {
    /// Nothing to recover.
    Clean(CleanLog),
    /// Transactions wait.
    Dirty(DirtyLog),
}

/// What the states before an empty log have in common.
#[derive(Debug)]
struct Found {
    location: LogLocation,
    volume: Volume,
    superblock: Superblock,
}

/// An empty log.
#[derive(Debug)]
pub(crate) struct CleanLog {
    found: Found,
    next: Sequence,
}

/// A log with transactions that may not have reached their homes.
#[derive(Debug)]
pub(crate) struct DirtyLog {
    found: Found,
    start: LogBlock,
}

/// A log whose blocks are durably written home, but which is still marked as dirty.
#[derive(Debug)]
pub(crate) struct ReplayedLog {
    found: Found,
    /// The first transaction that is not in the log, and where it would begin.
    end: Sequence,
    end_at: LogBlock,
    report: RecoveryReport,
    fast_commits: Vec<FastCommitOp>,
}

impl Log {
    /// Reads and validates the journal superblock.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` with the name of an unknown feature; `Io`.
    pub(crate) fn open(device: &dyn BlockDevice, location: LogLocation, volume: Volume) -> Result<Self> {
        let superblock = Superblock::read(device, &location, &volume)?;
        let next = superblock.sequence().next();
        let start = superblock.start();
        let found = Found { location, volume, superblock };
        Ok(match start {
            Some(start) => Self::Dirty(DirtyLog { found, start }),
            None => Self::Clean(CleanLog { found, next }),
        })
    }
}

impl DirtyLog {
    /// Writes every block of a committed transaction to its home.
    ///
    /// The whole log is validated before the first write, so an error other than `Io` leaves the device as it was. The
    /// caller makes a view of [`ReplayedLog::fast_commits`] and then calls [`ReplayedLog::finish`], or makes them the
    /// first transaction after [`ReplayedLog::go_on`]. The filesystem's own superblock may be among the blocks that
    /// were written: read it again.
    ///
    /// # Errors
    /// `Corrupt` when the log contradicts itself or would write outside the filesystem; `Unsupported` with the
    /// name of an unknown fast-commit feature; `Io`.
    pub(crate) fn recover(self, device: &dyn BlockDevice) -> Result<ReplayedLog> {
        let Found { location, volume, superblock } = &self.found;
        let scan = Scan::run(device, location, superblock, self.start)?;
        let revokes = Revokes::collect(device, location, superblock, &scan)?;
        let replay = Replay::prepare(device, location, superblock, volume, &scan, &revokes)?;
        let fast = fast_commit::read(device, location, &superblock.fast_commit_area, volume, scan.end)?;

        replay.write(device)?;
        device.flush()?;
        let report = RecoveryReport {
            transactions: scan.transactions,
            first_sequence: superblock.sequence().0,
            end_sequence: scan.end.0,
            blocks_logged: scan.blocks.len() as u64,
            blocks_replayed: replay.blocks(),
            revoke_records: revokes.records,
            blocks_revoked: replay.revoked,
            fast_commits: fast.commits,
            fast_commit_operations: fast.operations.len() as u64,
            fast_commits_cut_short: fast.cut_short.map(|block| block.0),
            recorded_error: superblock.recorded_error(),
        };
        let Scan { end, end_at, .. } = scan;
        Ok(ReplayedLog { end, end_at, report, fast_commits: fast.operations, found: self.found })
    }
}

impl DirtyLog {
    /// Does not look at fast commits: for a caller that found them damaged and looks at the rest.
    pub(crate) fn without_fast_commits(mut self) -> Self {
        self.found.superblock.fast_commit_area = 0..0;
        self
    }

    /// Makes the log empty without replaying it: for a filesystem that says that it needs no recovery, whose blocks
    /// are newer than the log. Linux does not replay such a log either.
    ///
    /// # Errors
    /// `Corrupt` when its end cannot be found; `Io`.
    pub(crate) fn discard(self, device: &dyn BlockDevice) -> Result<CleanLog> {
        let scan = Scan::run(device, &self.found.location, &self.found.superblock, self.start)?;
        self.found.finish(scan.end.next(), device)
    }
}

impl ReplayedLog {
    /// What was done.
    pub(crate) fn report(&self) -> &RecoveryReport {
        &self.report
    }

    /// What happened after the last transaction, in order, and still has to be applied.
    pub(crate) fn fast_commits(&self) -> &[FastCommitOp] {
        &self.fast_commits
    }

    /// Makes the log empty. Fast commits are lost, except to holders of a view of them.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn finish(self, device: &dyn BlockDevice) -> Result<CleanLog> {
        self.found.finish(self.end.next(), device)
    }

    /// Begins to write the log behind its last transaction. The first transaction must make the changes of the fast
    /// commits, which count until it is durable.
    ///
    /// It begins where the log ends, because no transaction of that number begins there now; elsewhere a crash may
    /// have left one.
    ///
    /// # Errors
    /// As for [`CleanLog::begin`].
    pub(crate) fn go_on(
        self,
        device: &dyn BlockDevice,
        form: LogForm,
    ) -> Result<(LogWriter, LogTail, Sequence)> {
        self.found.begin(device, form, self.end_at, self.end, true)
    }

    /// The error for which the last writer aborted, as a negative errno; 0 when there was none.
    pub(crate) fn recorded_error(&self) -> i32 {
        self.found.superblock.recorded_error()
    }
}

impl Found {
    fn finish(mut self, next: Sequence, device: &dyn BlockDevice) -> Result<CleanLog> {
        // Before this write a crash repeats the recovery, after it the homes must be durable: the flush that
        // `recover` ended with stands between the two. Should this write get lost, recovery repeats.
        self.superblock.make_empty(next);
        self.superblock.write(device, &self.location)?;
        device.flush()?;
        Ok(CleanLog { found: self, next })
    }

    fn begin(
        self,
        device: &dyn BlockDevice,
        form: LogForm,
        start: LogBlock,
        next: Sequence,
        fast_commits: bool,
    ) -> Result<(LogWriter, LogTail, Sequence)> {
        let Self { location, mut superblock, .. } = self;
        superblock.take_form(form, fast_commits)?;
        let writer = LogWriter::new(location.clone(), superblock.clone(), start);
        let mut tail = LogTail::new(location, superblock);
        tail.begin(device, start, next)?;
        Ok((writer, tail, next))
    }
}

impl CleanLog {
    /// Begins to write the log, which takes the form that Linux would give it, and is dirty from now on. Answers
    /// with its two ends and the number that the first transaction must have.
    ///
    /// # Errors
    /// `Unsupported` for a log whose superblock has no features; `Corrupt` for one that is too short; `Io`.
    pub(crate) fn begin(
        self,
        device: &dyn BlockDevice,
        form: LogForm,
    ) -> Result<(LogWriter, LogTail, Sequence)> {
        let first = self.found.superblock.first;
        self.found.begin(device, form, first, self.next, false)
    }

    /// The error for which the last writer aborted, as a negative errno; 0 when there was none.
    pub(crate) fn recorded_error(&self) -> i32 {
        self.found.superblock.recorded_error()
    }

    /// The number that the next transaction must have: later than any in the log's stale blocks.
    #[cfg(test)]
    pub(crate) fn next_sequence(&self) -> Sequence {
        self.next
    }
}
