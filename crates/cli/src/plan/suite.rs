//! What `bench suite` means.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use undercroft_bench::Workload;
use undercroft_bench::suite::{Scale, Size};

use crate::args::{SuiteAgainst, SuiteArgs};
use crate::failure::Failure;

/// Everything to measure.
#[derive(Debug)]
pub(crate) struct SuitePlan {
    /// How much and how long.
    pub(crate) scale: Scale,
    /// None of them twice.
    pub(crate) workloads: Vec<Workload>,
    pub(crate) against: Against,
    /// Where the results go.
    pub(crate) report: PathBuf,
}

/// What is measured beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Against {
    pub(crate) kernel: bool,
    pub(crate) fuse2fs: bool,
}

impl SuitePlan {
    /// On a machine with so many processors.
    pub(super) fn from_typed(typed: SuiteArgs, processors: u32) -> Result<Self, Failure> {
        let mut scale = Scale::new(if typed.full { Size::Full } else { Size::Quick }, processors);
        if let Some(seconds) = typed.seconds {
            scale.time = Duration::from_secs(seconds.get());
        }
        if let Some(divisor) = smaller() {
            scale.slice = scale.slice.map(|slice| slice / divisor);
        }
        // In the order of the list, whatever the user's.
        let wanted = |workload: &Workload| typed.only.is_empty() || typed.only.contains(workload);
        let against = Against {
            kernel: typed.against.contains(&SuiteAgainst::Kernel),
            fuse2fs: typed.against.contains(&SuiteAgainst::Fuse2fs),
        };
        let workloads = Workload::ALL.into_iter().filter(wanted).collect();
        Ok(Self { scale, workloads, against, report: typed.report })
    }
}

/// By what the time of each measurement is divided, to see that everything works; such figures mean nothing.
fn smaller() -> Option<u32> {
    env::var("UNDERCROFT_BENCH_SMALL").ok()?.parse().ok().filter(|&divisor| divisor > 0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{BenchSuite, Command, Typed};

    fn plan(words: &str) -> SuitePlan {
        let typed = Typed::parse_from(["undercroft", "bench", "suite"].into_iter().chain(words.split(' ')));
        let Command::Bench(typed) = typed.command else { panic!("not bench") };
        let Some(BenchSuite::Suite(typed)) = typed.suite else { panic!("not the suite") };
        SuitePlan::from_typed(typed, 2).unwrap()
    }

    #[test]
    fn everything_is_measured_quickly_unless_said() {
        let quick = plan("--report d");
        assert_eq!((quick.scale.size, quick.workloads.len()), (Size::Quick, Workload::ALL.len()));
        assert_eq!(quick.against, Against { kernel: false, fuse2fs: false });
        assert_eq!(plan("--report d --quick").scale, quick.scale);
        let full = plan("--full --against kernel,fuse2fs --report d");
        assert_eq!((full.scale.size, full.scale.threads.len()), (Size::Full, 7));
        assert_eq!(full.against, Against { kernel: true, fuse2fs: true });
    }

    #[test]
    fn some_workloads_in_some_time() {
        let some = plan("--only rename,create-unlink,rename --seconds 9 --report d");
        assert_eq!(some.workloads, [Workload::CreateUnlink, Workload::Rename]);
        assert_eq!(some.scale.time, Duration::from_secs(9));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in ["", "--quick --full --report d", "--only mischief --report d", "--report d --on tmpfs:"]
        {
            let words = ["undercroft", "bench", "suite"].into_iter().chain(words.split_whitespace());
            assert!(Typed::try_parse_from(words).is_err());
        }
        assert!(Typed::try_parse_from(["undercroft", "bench", "rename"]).is_err(), "on what?");
        assert!(Typed::try_parse_from(["undercroft", "bench"]).is_err());
    }
}
