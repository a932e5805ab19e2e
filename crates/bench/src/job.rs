//! What to measure, and measuring it once.

use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::process::Command;

use crate::{BenchError, Outcome, Part, Target, Workload, processes, threads};

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What the workers do.
    pub workload: Workload,
    /// To which filesystem.
    pub target: Target,
    /// How many workers.
    pub threads: NonZeroU32,
    /// Operations of each worker.
    pub ops: NonZeroU64,
    /// Count what happens at locks; costs time.
    pub locks: bool,
}

impl Job {
    /// Refuses what cannot be measured together.
    ///
    /// # Errors
    /// [`OnlyInProcess`](BenchError::OnlyInProcess).
    pub fn check(&self) -> Result<(), BenchError> {
        if self.locks { self.target.check_in_process("the lock report") } else { Ok(()) }
    }
}

/// Measures once. A mounted filesystem is measured by processes: `worker` makes the command that starts this program
/// for one's part, which is to call [`serve_worker`](crate::serve_worker) with it.
///
/// # Errors
/// Whatever keeps the measurement from being made; a file that was to be made or found and was not, among it.
pub fn measure(job: &Job, worker: &dyn Fn(&Part) -> io::Result<Command>) -> Result<Outcome, BenchError> {
    job.check()?;
    let measured = match &job.target {
        Target::InProcess { filesystem, plain } => threads::run(job, filesystem.open()?, *plain)?,
        Target::Mounted(path) => processes::run(job, path, worker)?,
    };
    Ok(Outcome::new(job, &measured))
}
