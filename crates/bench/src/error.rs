//! Why a measurement did not come about.

use std::io;
use std::path::PathBuf;

use undercroft_vfs as vfs;

/// One sentence that says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The target is none.
    #[error("{0}: not a target; there are `tmpfs:` (in process), `tmpfs:plain` and `dir:PATH`")]
    UnknownTarget(String),
    /// A target that is not there yet.
    #[error("{0} cannot be measured yet: it takes no changes; there are `tmpfs:` and `dir:PATH`")]
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
