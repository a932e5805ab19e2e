//! Measuring once.

use std::io;
use std::process::Command;

use crate::{BenchError, Job, Outcome, Part, Target, processes, threads};

/// Measures once. A mounted filesystem is measured by processes: `worker` makes the command that starts this program
/// for one's part, which is to call [`serve_worker`](crate::serve_worker) with it.
///
/// # Errors
/// Whatever keeps the measurement from being made; a file that was to be made or found and was not, among it.
pub fn measure(job: &Job, worker: &dyn Fn(&Part) -> io::Result<Command>) -> Result<Outcome, BenchError> {
    job.check()?;
    let measured = match &job.target {
        Target::InProcess { filesystem, plain } => threads::run(job, *filesystem, *plain)?,
        Target::Device => threads::run_raw(job)?,
        Target::Array(form) => threads::run_array(job, *form)?,
        Target::Xor { files } => threads::run_xor(job, *files)?,
        Target::Mounted(path) => processes::run(job, path, worker)?,
    };
    Ok(Outcome::new(job, &measured))
}
