//! Why a measurement did not come about.

use std::io;
use std::path::PathBuf;

use undercroft_block as block;
use undercroft_vfs as vfs;

use crate::Workload;

/// One sentence that says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The target is none.
    #[error(
        "{0}: not a target; there are `tmpfs:`, `mem:ext4`, `mem:xfs`, `mem:md5`, `mem:raw` and `mem:xor` in process, forms \
             of them that `undercroft bench --help` names, and `dir:PATH`"
    )]
    UnknownTarget(String),
    /// A target that is not there yet.
    #[error(
        "{0} cannot be measured: images are not; there are `tmpfs:`, `mem:ext4`, `mem:xfs` and `dir:PATH`, where an \
         image can be mounted"
    )]
    NotYet(String),
    /// A way to measure that only our own filesystems have.
    #[error("{target}: {what} is known only of a filesystem in process; leave it out, or measure `tmpfs:`")]
    OnlyInProcess {
        /// The target.
        target: String,
        /// What was asked for.
        what: &'static str,
    },
    /// A directory of the machine refuses.
    #[error("cannot {what} in {path}: {source}", path = path.display())]
    Directory {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A filesystem in process refuses.
    #[error("cannot {what} in the filesystem under test: {source}")]
    Vfs {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: vfs::Error,
    },
    /// A workload that needs files, and a device that has none.
    #[error(
        "mem:raw is a device without files, so {workload} cannot be measured there; overwrite and write can"
    )]
    NoFiles {
        /// The workload.
        workload: Workload,
    },
    /// A workload and a target that do not fit together otherwise.
    #[error("{workload} cannot be measured on {target}; it can on {fitting}")]
    Unfit {
        /// The workload.
        workload: Workload,
        /// The target, as typed.
        target: String,
        /// Where it can be measured.
        fitting: &'static str,
    },
    /// The array refuses.
    #[error("cannot {what} the array under test: {source}")]
    Array {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: undercroft_md::Error,
    },
    /// A rebuild that did not come to its end.
    #[error("the array under test was not rebuilt: it is {0}")]
    NotRebuilt(String),
    /// A file in memory could not be made.
    #[error("cannot make a file in memory: {0}")]
    MemoryFile(String),
    /// The device refuses that is measured by itself.
    #[error("the device under test: {0}")]
    Device(block::Error),
    /// The filesystem to measure could not be made.
    #[error("cannot make the filesystem under test: {0}")]
    Mkfs(undercroft_xfs::MkfsError),
    /// More files are created than a population can have room for.
    #[error(
        "{created} files with those that warm up, in a population of {inodes} inodes: give `--inodes` of at least {}, or \
         fewer `--ops`", created.saturating_mul(2)
    )]
    TooFewInodes {
        /// Inodes of the population.
        inodes: u64,
        /// Files that are created.
        created: u64,
    },
    /// A listing that lacks names which were there all the time.
    #[error("a listing gave {found} names, where at least {expected} were there all the time")]
    LostNames {
        /// How many came.
        found: u64,
        /// How many had to.
        expected: u64,
    },
    /// A worker process could not be started or spoken to.
    #[error("cannot {what} a worker process: {source}")]
    Worker {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A worker process was refused what it tried, and says so.
    #[error("{0}")]
    WorkerRefused(String),
    /// A worker process ended without a result. It was killed, or panicked.
    #[error("worker process {index} ended without a result: {status}")]
    WorkerFailed {
        /// Which.
        index: u32,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// What a worker process said is not what it should say.
    #[error("worker process {index} did not say what it measured: {source}")]
    WorkerWords {
        /// Which.
        index: u32,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A picture could not be drawn.
    #[error("cannot draw the plot: {0}")]
    Plot(String),
}
