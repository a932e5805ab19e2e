//! The command line of `bench suite` as typed.

use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use undercroft_bench::Workload;

use super::JsonArg;

/// What to measure, how long, and where the results go.
#[derive(Debug, Args)]
pub(crate) struct SuiteArgs {
    /// Four minutes at most, with up to four workers; this is the default
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,

    /// About an hour, with 1, 2, 4 and so on up to 64 workers
    #[arg(long)]
    pub(crate) full: bool,

    /// Measure these beside ours, separated by commas
    #[arg(long, value_name = "OTHERS", value_delimiter = ',')]
    pub(crate) against: Vec<SuiteAgainst>,

    /// Write index.html and results.json into this directory, which is made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) report: PathBuf,

    /// Only these workloads, separated by commas
    #[arg(long, value_name = "WORKLOADS", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(Workload::ALL.map(Workload::name))
            .try_map(|typed| typed.parse::<Workload>()))]
    pub(crate) only: Vec<Workload>,

    /// Measure for so long; 195 with --quick, 3600 with --full
    #[arg(long, value_name = "N")]
    pub(crate) seconds: Option<NonZeroU64>,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

/// What can be measured beside ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SuiteAgainst {
    /// Linux's own tmpfs, ext4 and XFS, the latter two on loop devices; needs root
    Kernel,
    /// ext4 through fuse2fs
    Fuse2fs,
}

pub(super) const NOTES: &str = "\
Measures each workload on tmpfs, ext4, XFS and RAID5 in this process, in the best form and in the plain form of what the \
workload is about; beside them the device without a filesystem, the same filesystems through a mount, and what --against \
names. Image files lie in memory (/dev/shm) where there is room. Of create-unlink, rename and create-many there are two \
charts: all workers in one directory, and each in its own.

Every round measures everything once, one contender after the other; medians and the lowest and highest round are told. \
Each measurement gets the same time, as much as lets three rounds (--full: seven) be made. What cannot be had here, a mount \
without FUSE, the kernel's filesystems without root, a round that the time did not suffice for, is named in the report with \
its reason. The report describes the machine, how long a cache line takes from one processor to another, and how much of \
their time the host kept for itself.

index.html is one file without anything from elsewhere, for light and dark screens, wide and narrow; results.json has every \
round. --json prints the latter too. A workload alone is measured by `undercroft bench WORKLOAD`.

Examples:
  undercroft bench suite --report bench
  undercroft bench suite --quick --against kernel,fuse2fs --report bench
  undercroft bench suite --full --against kernel --report bench-full
  undercroft bench suite --only rename,overwrite --seconds 30 --report bench
  undercroft bench suite --report bench --json | jq '.gaps'";
