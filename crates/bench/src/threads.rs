//! Measuring a filesystem of ours: the workers are threads above one `Vfs`.
//!
//! A worker's histogram and counters are its thread's own until it ends, so workers share nothing but what is
//! measured. Each worker says through a channel that it is ready, or ends without a word; then the start is given, for which
//! all wait. A panic in the filesystem under test therefore ends the measurement, and no thread waits for ever.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle};

use undercroft_block::Device;
use undercroft_md::Array;
use undercroft_sync::{WaitQueue, stats};

use crate::in_process::{InProcess, Opened};
use crate::members::Members;
use crate::outcome::{JournalUse, Measured, StripeUse};
use crate::raw::RawDevice;
use crate::script::{self, CopyAndXor, CreateUnlink, PlainRebuild, Rebuild, Script, own_part};
use crate::usage::resident_bytes;
use crate::vfs_directory::VfsDirectory;
use crate::worker::{change, work};
use crate::workload::Needs;
use crate::{ArrayForm, BenchError, Ext4Form, Job, Workload};

/// Bytes of a member where there is a filesystem on the array; memory is taken for what is written only.
const MEMBER_BYTES_FOR_FILES: u64 = 24 << 30;
/// The same where there is none.
const MEMBER_BYTES: u64 = 1 << 44;

/// Set once memory was measured: what a later measurement allocates comes out of what an earlier one gave back, so that
/// the process does not grow by it.
static GROWN: AtomicBool = AtomicBool::new(false);

/// The start that workers wait for.
#[derive(Default)]
struct Start {
    given: AtomicBool,
    waiting: WaitQueue,
}

impl Start {
    /// Says to be ready and waits; in a process of one's own the start is always given.
    fn wait(&self, ready: mpsc::Sender<()>) -> bool {
        // Received until the last sender is gone, so it cannot fail.
        let _ = ready.send(());
        drop(ready);
        self.waiting.wait(|| self.given.load(Ordering::Acquire));
        true
    }

    fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.waiting.wake_all();
    }
}

/// Gives the start when the measuring thread leaves, also by a panic: the workers are joined then.
struct GiveAtLast<'a>(&'a Start);

impl Drop for GiveAtLast<'_> {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// Measures a filesystem once; `plain` gives each of its directories one lock.
pub(crate) fn run(job: &Job, filesystem: InProcess, plain: bool) -> Result<Measured, BenchError> {
    let filesystem = filesystem.for_workload(job.workload);
    let device = filesystem.device();
    filesystem.make_on(&device)?;
    let mut opened = filesystem.open_on(&device)?;
    let mut dir = VfsDirectory::new(Arc::clone(&opened.fs), plain)?;
    script::prepare(job.workload, &dir, job.sizes())?;
    if job.workload == Workload::InodeAlloc && filesystem.is_on_device() {
        // What is in memory of the population would help.
        drop(dir);
        opened.close()?;
        opened = filesystem.open_on(&device)?;
        dir = VfsDirectory::new(Arc::clone(&opened.fs), plain)?;
    }
    let measured = run_in(job, &dir, &|| Counted { journal: opened.journal_use(), stripes: None })?;
    drop(dir);
    // What went wrong behind a worker's back is said now.
    opened.close()?;
    Ok(measured)
}

/// Counters of what is under test; how they changed is part of the outcome.
struct Counted {
    journal: Option<JournalUse>,
    stripes: Option<StripeUse>,
}

impl Counted {
    const NOTHING: Self = Self { journal: None, stripes: None };
}

fn run_in(job: &Job, dir: &VfsDirectory, counted: &dyn Fn() -> Counted) -> Result<Measured, BenchError> {
    let shared_bytes = job.file_bytes.get();
    let changer = job.workload.has_changer().then(|| CreateUnlink::new(dir, job.threads.get()));
    let own = if job.separate { 0..job.threads.get() } else { 0..0 };
    let own = own.map(|index| script::own_directory(dir, index)).collect::<Result<Vec<_>, _>>()?;
    let worker = |index: u32| {
        let dir = own.get(index as usize).unwrap_or(dir);
        script::of_worker(job.workload, dir, index, shared_bytes)
    };
    run_threads(job, &worker, changer, counted)
}

/// Measures a device without a filesystem once.
pub(crate) fn run_raw(job: &Job) -> Result<Measured, BenchError> {
    let device = RawDevice::in_memory();
    device.prepare(job)?;
    run_threads(job, &|index| device.script(job, index), None, &|| Counted::NOTHING)
}

/// Measures an array once: through an ext4 on it where the workload needs files, otherwise by itself.
pub(crate) fn run_array(job: &Job, form: ArrayForm) -> Result<Measured, BenchError> {
    let needs = job.workload.needs();
    let member_bytes = match needs {
        Needs::Files => MEMBER_BYTES_FOR_FILES,
        Needs::Bytes | Needs::Device => MEMBER_BYTES,
        Needs::Array => ArrayForm::member_bytes(job.file_bytes.get()),
    };
    let array = Arc::new(form.open(member_bytes)?);
    let stripes = || Some(StripeUse::from(&array.status()));
    let measured = match needs {
        Needs::Files => {
            let device: Device = Arc::<Array>::clone(&array);
            Ext4Form::default().make_on(&device)?;
            let opened = Opened::ext4(Ext4Form::default().open_on(device)?);
            let dir = VfsDirectory::new(Arc::clone(&opened.fs), false)?;
            script::prepare(job.workload, &dir, job.sizes())?;
            let counted = || Counted { journal: opened.journal_use(), stripes: stripes() };
            let measured = run_in(job, &dir, &counted)?;
            drop(dir);
            opened.close()?;
            measured
        }
        Needs::Bytes | Needs::Device => {
            let device = RawDevice(Arc::<Array>::clone(&array));
            device.prepare(job)?;
            let counted = || Counted { journal: None, stripes: stripes() };
            run_threads(job, &|index| device.script(job, index), None, &counted)?
        }
        Needs::Array => {
            RawDevice(Arc::<Array>::clone(&array)).prepare(job)?;
            let worker = |_| Ok(Rebuild::new(&array, form.members, member_bytes));
            run_threads(job, &worker, None, &|| Counted { journal: None, stripes: stripes() })?
        }
    };
    array.close().map_err(|source| BenchError::Array { what: "close", source })?;
    Ok(measured)
}

/// Measures the least that an array does.
pub(crate) fn run_xor(job: &Job, files: bool) -> Result<Measured, BenchError> {
    let shared_bytes = job.file_bytes.get();
    let worker = |index| -> Result<Box<dyn Script>, BenchError> {
        if job.workload == Workload::RaidRebuild {
            let members = Members { files, ..Members::default() };
            let member_bytes = ArrayForm::member_bytes(shared_bytes);
            return Ok(Box::new(PlainRebuild::new(members, member_bytes)?));
        }
        Ok(Box::new(CopyAndXor::new(own_part(shared_bytes, job.threads.get()), index)))
    };
    run_threads(job, &worker, None, &|| Counted::NOTHING)
}

/// Runs the script of each worker in a thread, and beside them, unmeasured, that of one that changes names.
fn run_threads<S: Script>(
    job: &Job,
    worker: &(impl Fn(u32) -> Result<S, BenchError> + Sync),
    changer: Option<CreateUnlink<'_, VfsDirectory>>,
    counted: &dyn Fn() -> Counted,
) -> Result<Measured, BenchError> {
    let (start, stop) = (Start::default(), AtomicBool::new(false));
    let (ready, all_ready) = mpsc::channel();
    thread::scope(|scope| {
        let (start, stop) = (&start, &stop);
        let at_last = GiveAtLast(start);
        let spawn = |index| {
            let ready = ready.clone();
            scope.spawn(move || work(|| worker(index), job.ops.get(), || start.wait(ready)))
        };
        let workers: Vec<_> = (0..job.threads.get()).map(spawn).collect();
        let changer = changer.map(|script| {
            let ready = ready.clone();
            let stop = || stop.load(Ordering::Relaxed);
            scope.spawn(move || change(script, || start.wait(ready), stop))
        });
        drop(ready);
        // Ends when each worker has said it, or has ended.
        all_ready.iter().for_each(drop);

        let before = if GROWN.swap(true, Ordering::Relaxed) { None } else { resident_bytes() };
        if job.locks {
            stats::reset();
            stats::enable();
        }
        let counted_before = counted();
        drop(at_last);
        // A panic is passed on when no worker works any more.
        let ended: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        if job.locks {
            stats::disable();
        }
        let counted_after = counted();
        let journal = counted_after.journal.zip(counted_before.journal);
        let stripes = counted_after.stripes.zip(counted_before.stripes);
        let after = resident_bytes();
        stop.store(true, Ordering::Relaxed);
        changer.map_or(Ok(()), |changer| returned(changer.join()))?;
        let sheets =
            ended.into_iter().map(returned).filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Measured {
            sheets,
            grown_bytes: before.zip(after).map(|(before, after)| after.saturating_sub(before)),
            locks: job.locks.then(stats::report),
            journal: journal.map(|(after, before)| after.since(before)),
            stripes: stripes.map(|(after, before)| after.since(before)),
        })
    })
}

/// What a thread returned; its panic is ours.
fn returned<T>(ended: thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::num::{NonZeroU32, NonZeroU64};

    use undercroft_sync::stats::Mode;

    use super::*;
    use crate::directory::Directory;
    use crate::{Outcome, Target, Workload, measure};

    fn measured(workload: Workload, target: &str, ops: u64, locks: bool) -> Outcome {
        let job = Job {
            workload,
            target: Target::parse(OsStr::new(target)).unwrap(),
            threads: NonZeroU32::new(3).unwrap(),
            ops: NonZeroU64::new(ops).unwrap(),
            file_bytes: NonZeroU64::new(4 << 20).unwrap(),
            inodes: NonZeroU64::new(20_000).unwrap(),
            separate: false,
            locks,
        };
        measure(&job, &|_| panic!("no process is needed")).unwrap()
    }

    #[test]
    fn every_workload_runs_in_both_forms() {
        for target in
            ["tmpfs:", "tmpfs:plain", "mem:ext4", "mem:ext4:plain", "mem:ext4:no-journal", "mem:xfs"]
        {
            let on_directories =
                |workload: &Workload| matches!(workload.needs(), Needs::Files | Needs::Bytes);
            for workload in Workload::ALL.into_iter().filter(on_directories) {
                let ops = match workload {
                    Workload::ReaddirStorm => 5,
                    // The test of how memory is told runs beside this one.
                    Workload::Write | Workload::WriteSmall | Workload::RaidWrite => 2,
                    _ => 2000,
                };
                let outcome = measured(workload, target, ops, false);
                assert!(outcome.ops_per_second > 0.0 && outcome.locks.is_none(), "{outcome:?}");
                assert!(outcome.latency_us.p50 <= outcome.latency_us.p99, "{outcome:?}");
                assert!(outcome.latency_us.p99 <= outcome.latency_us.max, "{outcome:?}");
                assert_eq!(outcome.growth.is_some(), workload.keeps_files());
            }
        }
    }

    #[test]
    fn each_worker_has_its_own_directory_where_asked_for() {
        for workload in Workload::ALL {
            let target = Target::parse("tmpfs:".as_ref()).unwrap();
            let job = Job { target, separate: true, ..crate::outcome::tests::job(workload) };
            let measured = measure(&job, &|_| panic!("no process is needed"));
            assert_eq!(measured.is_ok(), workload.knows_separate_directories(), "{workload}");
        }
        let fs = InProcess::Tmpfs.open_on(&InProcess::Tmpfs.device()).unwrap().fs;
        let dir = VfsDirectory::new(fs, false).unwrap();
        let job = Job { separate: true, ..crate::outcome::tests::job(Workload::CreateMany) };
        run_in(&job, &dir, &|| Counted::NOTHING).unwrap();
        assert_eq!(dir.list().unwrap(), 2 + u64::from(job.threads.get()), "only directories, one for each");
    }

    #[test]
    fn overwriting_starts_handles_only_where_it_is_told_to() {
        let handles = |target| measured(Workload::Overwrite, target, 2000, false).journal.unwrap().handles;
        assert!(handles("mem:ext4") < 100, "times are written now and then");
        assert!(handles("mem:ext4:overwrite=journaled") >= 3 * 2000);
        assert!(handles("mem:xfs") < 100, "times are written now and then");
        assert!(handles("mem:xfs:overwrite=journaled") >= 3 * 2000);
        assert_eq!(measured(Workload::Overwrite, "tmpfs:", 20, false).journal, None);
    }

    #[test]
    fn every_way_to_remember_orphans_is_measured() {
        for target in ["mem:ext4", "mem:ext4:orphan=list", "mem:ext4:orphan=locked"] {
            let outcome = measured(Workload::Orphan, target, 5000, false);
            assert!(outcome.journal.unwrap().handles >= 3 * 5000, "{target}: {outcome:?}");
        }
    }

    #[test]
    fn a_device_takes_writes_and_has_no_names() {
        for workload in [Workload::Overwrite, Workload::Write, Workload::WriteSmall] {
            let outcome = measured(workload, "mem:raw", 2, false);
            assert!(outcome.bytes_per_second.unwrap() > outcome.ops_per_second, "{outcome:?}");
        }
        let job = Job { target: Target::Device, ..crate::outcome::tests::job(Workload::Orphan) };
        let error = job.check().unwrap_err();
        assert!(error.to_string().contains("orphan cannot be measured there"), "{error}");
    }

    #[test]
    fn arrays_count_their_stripes() {
        for target in ["mem:md5", "mem:md5:stripes=8", "mem:md5:stripe_wake=all,stripes=8", "mem:md5:files"] {
            for (workload, ops) in [
                (Workload::RaidWrite, 2),
                (Workload::RaidWriteRows, 20),
                (Workload::Overwrite, 200),
                (Workload::RaidSequential, 3),
            ] {
                let outcome = measured(workload, target, ops, false);
                let stripes = outcome.stripes.unwrap();
                let written = stripes.whole_writes + stripes.read_modify_writes + stripes.reconstruct_writes;
                assert!(written > 0 && stripes.released > 0, "{outcome:?}");
                assert!(stripes.vain_wake_ups <= stripes.wake_ups, "{outcome:?}");
                assert_eq!(outcome.journal.is_some(), workload == Workload::RaidWrite);
                if workload == Workload::RaidWriteRows {
                    assert_eq!((stripes.read_modify_writes, stripes.reconstruct_writes), (0, 0), "{target}");
                }
            }
        }
        let outcome = measured(Workload::RaidRead, "mem:md5", 100, false);
        assert_eq!(outcome.stripes.unwrap().released, 0, "reads of what is right go past the stripes");
    }

    #[test]
    fn the_limits_of_arrays_are_measured() {
        for (workload, target) in [
            (Workload::RaidSequential, "mem:xor"),
            (Workload::RaidSequential, "mem:raw"),
            (Workload::RaidRead, "mem:raw"),
            (Workload::RaidWriteRows, "mem:raw"),
        ] {
            let outcome = measured(workload, target, 20, false);
            assert!(outcome.ops_per_second > 0.0 && outcome.stripes.is_none(), "{outcome:?}");
        }
    }

    #[test]
    fn a_member_is_rebuilt_as_often_as_asked_for() {
        let job = |target| Job {
            target: Target::parse(OsStr::new(target)).unwrap(),
            threads: NonZeroU32::MIN,
            ops: NonZeroU64::new(2).unwrap(),
            ..crate::outcome::tests::job(Workload::RaidRebuild)
        };
        for target in ["mem:md5", "mem:md5:files", "mem:xor", "mem:xor:files"] {
            let outcome = measure(&job(target), &|_| panic!("no process is needed")).unwrap();
            assert!(outcome.bytes_per_second.unwrap() > outcome.ops_per_second, "{outcome:?}");
        }
        let two = Job { threads: NonZeroU32::new(2).unwrap(), ..job("mem:md5") };
        assert!(two.check().unwrap_err().to_string().contains("--threads 1"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (workload, target, says) in [
            (
                Workload::RaidRead,
                "mem:ext4",
                "raid5-read cannot be measured on mem:ext4; it can on `mem:md5`",
            ),
            (Workload::RaidRebuild, "mem:raw", "raid5-rebuild cannot be measured on mem:raw; it can on"),
            (
                Workload::Rename,
                "mem:xor",
                "rename cannot be measured on mem:xor; it can on `mem:md5`, `mem:ext4`",
            ),
        ] {
            let target = Target::parse(OsStr::new(target)).unwrap();
            let error = Job { target, ..crate::outcome::tests::job(workload) }.check().unwrap_err();
            assert!(error.to_string().starts_with(says), "{error}");
        }
    }

    #[test]
    fn inodes_are_allocated_with_and_without_the_free_inode_tree() {
        for target in ["mem:xfs", "mem:xfs:finobt=off", "mem:xfs:finobt=0,agcount=2"] {
            let outcome = measured(Workload::InodeAlloc, target, 1000, false);
            assert!(outcome.growth.unwrap().tenths_ops_per_second.is_some(), "{outcome:?}");
        }
        let job =
            Job { ops: NonZeroU64::new(1000).unwrap(), ..crate::outcome::tests::job(Workload::InodeAlloc) };
        assert!(job.check().unwrap_err().to_string().contains("`--inodes` of at least 4400"));
    }

    /// One test, since the counters are the process's.
    #[test]
    fn the_lock_report_tells_the_two_forms_apart() {
        let taken = |target, class| {
            let locks = measured(Workload::CreateUnlink, target, 2000, true).locks.unwrap();
            let rows = locks.iter().filter(|row| row.class == class && row.mode == Mode::Exclusive);
            rows.map(|row| row.acquisitions).sum::<u64>()
        };
        // Three workers, each with two changes an operation. Other tests may take some more meanwhile.
        assert!(taken("tmpfs:", "name") >= 12_000);
        assert!(taken("tmpfs:plain", "directory") >= 12_000);
    }
}
