//! What `bench` means: one measurement, a comparison, a plot, or a worker's part in another process's measurement.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::thread;

use undercroft_bench::{BenchError, Job, Part, Rounds, Target};

use super::suite::SuitePlan;
use crate::args::{BenchArgs, BenchSuite};
use crate::exit::Kind;
use crate::failure::Failure;

/// More workers than this are a slip of the finger.
const THREADS_MAX: u32 = 1024;

const MIB: NonZeroU64 = NonZeroU64::new(1 << 20).unwrap();

const COMPARE_ROUNDS: NonZeroU32 = NonZeroU32::new(5).unwrap();
const PLOT_ROUNDS: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// Something to measure.
#[derive(Debug)]
pub(crate) enum BenchPlan {
    /// Once.
    Once(Job),
    /// Two targets in turn.
    Compare(Rounds),
    /// Each target with 1 worker, 2, and so on.
    Plot { jobs: Vec<Job>, rounds: NonZeroU32, file: PathBuf },
    /// All workloads.
    Suite(SuitePlan),
    /// As a worker process of another `bench`.
    Worker(Part),
}

impl BenchPlan {
    pub(super) fn from_typed(mut typed: BenchArgs) -> Result<Self, Failure> {
        if let Some(BenchSuite::Suite(typed)) = typed.suite.take() {
            return SuitePlan::from_typed(typed, processors().get()).map(Self::Suite);
        }
        let (Some(workload), Some(on)) = (typed.workload, typed.on.take()) else {
            return Err(Failure::new(Kind::Usage, "`bench` needs a workload and a target")
                .advise("undercroft bench create-unlink --on tmpfs:"));
        };
        let threads = match typed.threads {
            Some(threads) => threads,
            None if workload.has_one_worker() => NonZeroU32::MIN,
            None => processors(),
        };
        if threads.get() > THREADS_MAX {
            return Err(Failure::new(Kind::Usage, format!("{threads} workers are too many"))
                .advise(format!("there can be {THREADS_MAX}")));
        }
        let file_bytes = NonZeroU64::from(typed.file_mib).saturating_mul(MIB);
        let job = |target: Target, locks| {
            let ops = typed.ops.unwrap_or_else(|| workload.default_ops(target.is_in_process()));
            Job {
                workload,
                target,
                threads,
                ops,
                file_bytes,
                inodes: typed.inodes,
                separate: typed.separate,
                locks,
            }
        };
        let mut on = Target::parse(&on)?;
        if let Some(index) = typed.worker {
            let Target::Mounted(dir) = &on else {
                return Err(Failure::new(Kind::Usage, "a worker process is for `dir:PATH` only"));
            };
            let (dir, ops) = (dir.clone(), job(on, false).ops);
            let separate = typed.separate;
            return Ok(Self::Worker(Part { workload, dir, index, threads, separate, ops, file_bytes }));
        }
        if typed.plain {
            on = on.into_plain()?;
        }
        let other = typed.compare.as_deref().map(Target::parse).transpose()?;
        let checked = |job: Job| job.check().map(|()| job);
        if let Some(file) = typed.plot {
            if typed.locks {
                return Err(Failure::new(
                    Kind::Usage,
                    "--plot draws throughput, which counting locks would cut",
                )
                .advise("leave --locks out"));
            }
            let plain = on.clone().into_plain().ok().filter(|_| workload.is_about_names());
            let mut targets = Vec::new();
            for target in [Some(on), plain, other].into_iter().flatten() {
                if !targets.contains(&target) {
                    targets.push(target);
                }
            }
            let jobs = targets.into_iter().map(|target| job(target, false)).collect();
            return Ok(Self::Plot { jobs, rounds: typed.rounds.unwrap_or(PLOT_ROUNDS), file });
        }
        let on = checked(job(on, typed.locks))?;
        match other {
            Some(other) => {
                let b = checked(job(other, typed.locks))?;
                Ok(Self::Compare(Rounds { a: on, b, rounds: typed.rounds.unwrap_or(COMPARE_ROUNDS) }))
            }
            None if typed.rounds.is_some() => {
                Err(Failure::new(Kind::Usage, "--rounds is for --compare and --plot")
                    .advise("name what to compare with"))
            }
            None => Ok(Self::Once(on)),
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::of(Kind::of_bench(&error), &error)
    }
}

fn processors() -> NonZeroU32 {
    // Where no number is given, there is one.
    thread::available_parallelism().ok().and_then(|count| count.try_into().ok()).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Command, Typed};

    fn plan(words: &str) -> Result<BenchPlan, Failure> {
        let typed = Typed::parse_from(["undercroft", "bench"].into_iter().chain(words.split(' ')));
        let Command::Bench(typed) = typed.command else { panic!("not bench") };
        BenchPlan::from_typed(typed)
    }

    #[test]
    fn one_target_is_measured_once_and_two_are_compared() {
        let BenchPlan::Once(job) = plan("rename --on tmpfs: --plain --threads 3 --ops 7 --locks").unwrap()
        else {
            panic!("one target")
        };
        assert_eq!(job.target.to_string(), "tmpfs:plain");
        assert_eq!((job.threads.get(), job.ops.get(), job.locks), (3, 7, true));

        let BenchPlan::Compare(rounds) = plan("rename --on tmpfs: --plain --compare dir:/x").unwrap() else {
            panic!("two targets")
        };
        assert_eq!(
            (rounds.a.target.to_string(), rounds.b.target.to_string()),
            ("tmpfs:plain".into(), "dir:/x".into())
        );
        assert_eq!((rounds.a.threads, rounds.rounds.get()), (processors(), 5));
        assert!(rounds.a.ops > rounds.b.ops, "a second's worth of each");
        let BenchPlan::Compare(rounds) = plan("rename --on dir:/x --compare dir:/y --rounds 2").unwrap()
        else {
            panic!("two targets")
        };
        assert_eq!(rounds.rounds.get(), 2);
    }

    #[test]
    fn a_plot_shows_the_plain_form_of_directories_too_and_nothing_twice() {
        let targets = |words| match plan(words).unwrap() {
            BenchPlan::Plot { jobs, .. } => {
                jobs.iter().map(|job| job.target.to_string()).collect::<Vec<_>>().join(" ")
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(targets("rename --on tmpfs: --plot f --compare dir:/x"), "tmpfs: tmpfs:plain dir:/x");
        assert_eq!(targets("rename --on tmpfs: --plot f --compare tmpfs:plain"), "tmpfs: tmpfs:plain");
        assert_eq!(targets("rename --on dir:/x --plot f"), "dir:/x");
        assert_eq!(targets("overwrite --on tmpfs: --plot f --compare mem:raw"), "tmpfs: mem:raw");
    }

    #[test]
    fn a_worker_gets_its_part() {
        let BenchPlan::Worker(part) =
            plan("rename --on dir:/x --threads 4 --ops 9 --file-mib 3 --worker 2").unwrap()
        else {
            panic!("a worker")
        };
        assert_eq!((part.dir.as_path(), part.index), ("/x".as_ref(), 2));
        assert_eq!((part.threads.get(), part.ops.get(), part.file_bytes.get()), (4, 9, 3 << 20));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (words, kind, says) in [
            ("--on nowhere.img", Kind::Usage, "nowhere.img: not a target"),
            ("--on tmpfs: --compare mem:xor", Kind::Usage, "rename cannot be measured on mem:xor"),
            ("--on mem:md5 --plain", Kind::Usage, "mem:md5: the plain form"),
            ("--on dir:/x --plain", Kind::Usage, "dir:/x: the plain form"),
            ("--on dir:/x --locks", Kind::Usage, "dir:/x: the lock report"),
            ("--on tmpfs: --compare dir:/x --locks", Kind::Usage, "dir:/x: the lock report"),
            ("--on tmpfs: --plot f --locks", Kind::Usage, "--plot draws throughput"),
            ("--on tmpfs: --rounds 3", Kind::Usage, "--rounds is for"),
            ("--on tmpfs: --threads 1025", Kind::Usage, "1025 workers"),
            ("--on mem:raw", Kind::Usage, "mem:raw is a device without files"),
            ("--on tmpfs: --worker 0", Kind::Usage, "a worker process"),
        ] {
            let failure = plan(&format!("rename {words}")).unwrap_err();
            assert_eq!(failure.kind(), kind, "{words}");
            assert!(failure.to_string().starts_with(says), "{words}: {failure}");
        }
    }
}
