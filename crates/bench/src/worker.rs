//! A worker's way through a measurement, in a thread or a process.
//!
//! Warm-up, then the wait for the others, then the operations with one reading of the clock for each: what an
//! operation takes includes that reading, some 25 ns. Whatever happens in the warm-up, the worker waits for the
//! others: they count on it.

use crate::script::Script;
use crate::sheet::Sheet;
use crate::usage::Usage;
use crate::{BenchError, Histogram, clock};

/// A tenth of the operations, but no more than this, warm up caches and the allocator.
const WARM_UP_MAX: u64 = 20_000;

/// Does the operations and measures them. `start` returns when all may start, `false` if no worker will.
pub(crate) fn work<S: Script>(
    script: impl FnOnce() -> Result<S, BenchError>,
    ops: u64,
    start: impl FnOnce() -> bool,
) -> Result<Option<Sheet>, BenchError> {
    let warmed = script().and_then(|mut script| {
        (0..warm_up(ops)).try_for_each(|_| script.step())?;
        Ok(script)
    });
    let mut latency = Histogram::new();
    let started = start();
    let mut script = warmed?;
    if !started {
        return Ok(None);
    }

    let usage = Usage::of_thread();
    let begun_ns = clock::now_ns();
    let mut now_ns = begun_ns;
    let mut tenths_ns = [0; 10];
    for (tenth_ns, number) in tenths_ns.iter_mut().zip(0..) {
        let tenth_begun_ns = now_ns;
        for _ in 0..tenth_of(ops, number) {
            script.step()?;
            let ended_ns = clock::now_ns();
            latency.record(ended_ns - now_ns);
            now_ns = ended_ns;
        }
        *tenth_ns = now_ns - tenth_begun_ns;
    }
    script.finish()?;
    let ended_ns = clock::now_ns();
    let usage = Usage::of_thread().since(usage);
    Ok(Some(Sheet { begun_ns, ended_ns, tenths_ns, usage, latency }))
}

/// How many operations the tenth of this number, from 0 on, has: the last one has what is left over.
pub(crate) const fn tenth_of(ops: u64, number: u64) -> u64 {
    if number == 9 { ops - 9 * (ops / 10) } else { ops / 10 }
}

/// How many operations warm a worker up.
pub(crate) const fn warm_up(ops: u64) -> u64 {
    if ops / 10 < WARM_UP_MAX { ops / 10 } else { WARM_UP_MAX }
}

/// Does operations until told to stop, for others to be measured meanwhile.
pub(crate) fn change(
    mut script: impl Script,
    start: impl FnOnce() -> bool,
    stop: impl Fn() -> bool,
) -> Result<(), BenchError> {
    /// Changes between two looks at `stop`, which may be a system call.
    const BETWEEN_LOOKS: u32 = 16;
    if !start() {
        return Ok(());
    }
    while !stop() {
        (0..BETWEEN_LOOKS).try_for_each(|_| script.step())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Workload;
    use crate::mounted::MountedDirectory;
    use crate::script::{CreateUnlink, Sizes, of_worker, prepare};
    use crate::sizes::OVERWRITE_BYTES;

    const FILE_BYTES: u64 = 4 * OVERWRITE_BYTES;
    const SIZES: Sizes = Sizes { file_bytes: FILE_BYTES, inodes: 3000, removed: 1100 };

    /// One worker's measurement.
    fn worked(
        dir: &MountedDirectory,
        workload: Workload,
        index: u32,
        ops: u64,
        start: impl FnOnce() -> bool,
    ) -> Result<Option<Sheet>, BenchError> {
        work(|| of_worker(workload, dir, index, FILE_BYTES), ops, start)
    }

    /// Names that are left in a directory after one worker's measurement.
    fn left(workload: Workload, ops: u64) -> (usize, Sheet) {
        let dir = tempfile::tempdir().unwrap();
        let mounted = MountedDirectory::open(dir.path()).unwrap();
        prepare(workload, &mounted, SIZES).unwrap();
        let sheet = worked(&mounted, workload, 3, ops, || true).unwrap().unwrap();
        (std::fs::read_dir(dir.path()).unwrap().count(), sheet)
    }

    #[test]
    fn every_workload_does_as_many_operations_as_asked_for() {
        for (workload, ops, names) in [
            (Workload::CreateUnlink, 100, 0),
            (Workload::Rename, 100, 0),
            (Workload::CreateMany, 100, 110),
            // The directories of the first thousand and of the second.
            (Workload::Populate, 1000, 2),
            // The directories of the population, and the new one.
            (Workload::InodeAlloc, 1000, 4),
            (Workload::StatOwn, 100, 1),
            (Workload::StatMany, 100, 10_000),
            (Workload::ReaddirStorm, 3, 10_000),
            (Workload::Orphan, 5000, 1),
            (Workload::Overwrite, 100, 1),
            (Workload::Write, 10, 1),
            (Workload::WriteSmall, 10, 1),
            (Workload::RaidWrite, 2, 0),
        ] {
            let (found, sheet) = left(workload, ops);
            assert_eq!((found, sheet.latency.count()), (names, ops), "{workload}");
            assert!(sheet.ended_ns - sheet.begun_ns >= sheet.latency.max(), "{workload}");
            assert!(sheet.tenths_ns.iter().sum::<u64>() <= sheet.ended_ns - sheet.begun_ns);
        }
    }

    #[test]
    fn nothing_is_timed_before_the_start_and_nothing_done_without_one() {
        let dir = tempfile::tempdir().unwrap();
        let mounted = MountedDirectory::open(dir.path()).unwrap();
        assert!(worked(&mounted, Workload::CreateMany, 0, 100, || false).unwrap().is_none());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 10, "the warm-up");
    }

    #[test]
    fn a_worker_that_fails_in_the_warm_up_waits_for_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let mounted = MountedDirectory::open(dir.path()).unwrap();
        // Worker 0 finds its names taken.
        worked(&mounted, Workload::CreateMany, 0, 100, || false).unwrap();
        let waited = Cell::new(false);
        let start = || {
            waited.set(true);
            true
        };
        let error = worked(&mounted, Workload::CreateMany, 0, 100, start).unwrap_err();
        assert!(waited.get() && error.to_string().contains("cannot create a file in"), "{error}");
    }

    #[test]
    fn a_listing_that_loses_names_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let mounted = MountedDirectory::open(dir.path()).unwrap();
        let error = worked(&mounted, Workload::ReaddirStorm, 0, 1, || true).unwrap_err();
        assert!(matches!(error, BenchError::LostNames { found: 2, expected: 10_002 }), "{error}");
    }

    #[test]
    fn a_thread_that_changes_names_stops_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let mounted = MountedDirectory::open(dir.path()).unwrap();
        let looks = Cell::new(0);
        let stop = || looks.replace(looks.get() + 1) == 5;
        change(CreateUnlink::new(&mounted, 0), || true, stop).unwrap();
        assert_eq!((looks.get(), std::fs::read_dir(dir.path()).unwrap().count()), (6, 0));
    }
}
