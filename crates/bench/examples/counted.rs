//! One measurement with one worker, for a tool that counts what the processor does meanwhile: `cargo xtask counts` runs
//! this program under callgrind.
//!
//! It prints how many operations there were, those of the warm-up included. The allocator is the system's, whose
//! functions such a tool knows by name.

use std::error::Error;
use std::num::{NonZeroU32, NonZeroU64};

use undercroft_bench::{Job, Target, Workload, measure};

/// Small: what is counted is the difference between many operations and fewer.
const FILE_BYTES: NonZeroU64 = NonZeroU64::new(4 << 20).unwrap();

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [workload, target, ops] = &args[..] else {
        return Err("usage: counted WORKLOAD TARGET OPERATIONS".into());
    };
    let job = Job {
        workload: workload.parse::<Workload>()?,
        target: Target::parse(target.as_ref())?,
        threads: NonZeroU32::MIN,
        ops: ops.parse()?,
        file_bytes: FILE_BYTES,
        inodes: NonZeroU64::MIN,
        separate: false,
        locks: false,
    };
    measure(&job, &|_| Err(std::io::Error::other("its worker is a thread")))?;
    println!("{}", job.operations());
    Ok(())
}
