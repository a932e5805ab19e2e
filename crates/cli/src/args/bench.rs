//! The command line of `bench` as typed.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueHint};
use undercroft_bench::Workload;

use super::JsonArg;
use super::suite::{self, SuiteArgs};

/// What and how to measure.
#[derive(Debug, Args)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
#[command(
    override_usage = "undercroft bench [OPTIONS] --on <TARGET> <WORKLOAD>\n       undercroft bench suite [OPTIONS] --report <DIR>"
)]
pub(crate) struct BenchArgs {
    /// All workloads at once.
    #[command(subcommand)]
    pub(crate) suite: Option<BenchSuite>,

    /// What the workers do
    #[arg(required = true, value_parser = PossibleValuesParser::new(Workload::ALL.map(Workload::name))
        .try_map(|typed| typed.parse::<Workload>()))]
    pub(crate) workload: Option<Workload>,

    /// What to measure
    #[arg(long, value_name = "TARGET", required = true)]
    pub(crate) on: Option<OsString>,

    /// Workers; as many as there are processors by default
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroU32>,

    /// Operations of each worker; about a second's worth by default
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<NonZeroU64>,

    /// Size of what the workers of `overwrite` and of `raid5-...` share, and of the array that is rebuilt, in MiB
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) file_mib: NonZeroU32,

    /// Files of the population of `inode-alloc`
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(crate) inodes: NonZeroU64,

    /// Give each directory of the --on target one lock, as Linux does: the same as `tmpfs:plain`, `mem:ext4:plain` or `mem:xfs:plain`
    #[arg(long)]
    pub(crate) plain: bool,

    /// Give each worker a directory of its own; of create-unlink, rename and create-many
    #[arg(long)]
    pub(crate) separate: bool,

    /// Count what happens at locks, and report it; costs time, and only in process
    #[arg(long)]
    pub(crate) locks: bool,

    #[command(flatten)]
    pub(crate) json: JsonArg,

    /// Measure this too, in turn, and compare
    #[arg(long, value_name = "TARGET")]
    pub(crate) compare: Option<OsString>,

    /// Measure so often, and show medians; 5 with --compare by default, 3 with --plot
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<NonZeroU32>,

    /// Measure with 1 worker, 2, and so on, and draw throughput into this SVG file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,

    /// Set by the parent of a worker process: which of the workers this is
    #[arg(long, hide = true, value_name = "INDEX")]
    pub(crate) worker: Option<u32>,
}

impl BenchArgs {
    /// Whether JSON is asked for.
    pub(crate) const fn wants_json(&self) -> bool {
        match &self.suite {
            Some(BenchSuite::Suite(suite)) => suite.json.json,
            None => self.json.json,
        }
    }
}

/// What `bench` does beside one workload.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchSuite {
    /// Measure all workloads on all filesystems, and write a page of pictures
    #[command(after_help = suite::NOTES)]
    Suite(SuiteArgs),
}

const TARGETS: &str = "\
TARGET is one of
  tmpfs:       the filesystem in memory, in this process; workers are threads
  tmpfs:plain  the same with one lock for each directory
  mem:ext4     ext4 on a device in memory, in this process; after a colon, separated by commas:
                 plain                one lock for each directory
                 orphan=list          orphans in the list, even though there is an orphan file
                 orphan=locked        the same, with the list's lock for every question
                 overwrite=journaled  each overwrite starts a handle
                 no-journal           no journal, and so no orphan file
  mem:xfs      XFS on a device in memory of this process; after a colon, separated by commas:
                 plain                one lock for each directory
                 finobt=0             without the B+tree of free inodes
                 finobt=off           the same tree kept and not searched
                 overwrite=journaled  overwriting starts a handle
                 agcount=N            so many allocation groups; inode-alloc has one by default
  mem:raw      a device in memory without a filesystem, for overwrite, write and raid5-...: the limit
  mem:md5      RAID5 of four devices in memory, chunks of 64 KiB, with an ext4 on it where files are needed;
               after a colon, separated by commas:
                 stripe_wake=all      a thread that waits for a stripe is woken with all others, as in Linux once
                 stripe_wake=all-spinning  the same, and spins a little before it sleeps
                 stripes=N            so many stripes in the cache: of 4 KiB if there are fewer than 64
                 member_us=N          each request to a member sleeps so many microseconds
                 polled               with member_us: it does not sleep but looks for the end of that time, and
                                      lets other threads run between two looks
                 files                members are files in memory
  mem:xor      copying, XOR, reading and writing without an array, for raid5-sequential and
               raid5-rebuild: the limit; mem:xor:files on files in memory
  dir:PATH     whatever is mounted at PATH, by system calls; workers are processes,
               in a directory undercroft-bench-PID that is removed afterwards";

const EXAMPLES: &str = "\
The time runs from the first worker's start to the last one's end, after a warm-up. Processor time and context \
switches are the workers'. A rename's operations a second are renames a second. Orphan with --threads 10 is the \
program that Linux's orphan list was measured with when it became the orphan file.

Examples:
  undercroft bench create-unlink --on tmpfs:
  undercroft bench create-unlink --on tmpfs: --compare dir:/dev/shm
  undercroft bench rename --on tmpfs: --compare tmpfs:plain --rounds 9
  undercroft bench create-unlink --on tmpfs: --plain --locks
  undercroft bench create-many --on dir:/mnt --ops 200000 --json
  undercroft bench orphan --on mem:ext4 --compare mem:ext4:orphan=locked --threads 10
  undercroft bench overwrite --on mem:ext4 --compare mem:raw --threads 8
  undercroft bench inode-alloc --on mem:xfs --compare mem:xfs:finobt=0 --inodes 10000000 --threads 1
  undercroft bench raid5-write --on mem:md5:stripes=16 --compare mem:md5:stripes=16,stripe_wake=all --threads 64
  undercroft bench raid5-sequential --on mem:md5 --compare mem:xor --threads 1
  undercroft bench create-unlink --on mem:ext4 --separate --threads 8
  undercroft bench rename --on tmpfs: --threads 16 --plot rename.svg
  undercroft bench suite --quick --report bench      # everything, as a page of pictures";

pub(super) fn notes() -> String {
    let workloads = Workload::ALL.map(|workload| {
        let operation = workload.operation().trim_start_matches("one operation ");
        format!("  {:<16}  {operation}", workload.name())
    });
    let workloads = workloads.join("\n");
    format!(
        "{TARGETS}\n\nWorkloads, all workers in one directory without --separate; one operation of each\n{workloads}\n\n{EXAMPLES}"
    )
}
