//! How much a suite measures: numbers of workers, sizes, rounds, and the time for all of it.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::chart::Directories;
use super::contender::Contender;
use crate::{Job, Workload};

/// What the counting of locks is left of the time.
const SHARE_OF_LOCKS: f64 = 0.1;

/// A size by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Minutes, on as many workers as there are processors.
    Quick,
    /// As long as it takes, on up to 64 workers.
    Full,
}

/// What a size means on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Its name.
    pub size: Size,
    /// Processors of the machine.
    pub processors: u32,
    /// Numbers of workers, ascending.
    pub threads: Vec<u32>,
    /// Rounds that are wanted; fewer are made if the time does not suffice.
    pub rounds: u32,
    /// The time for all measurements.
    pub time: Duration,
    /// The shortest and the longest time that one measurement is given, its warm-up left out.
    pub slice: [Duration; 2],
    /// The size of the file or the part of the device that workers share.
    pub file_bytes: NonZeroU64,
    /// Inodes of populations.
    pub inodes: NonZeroU64,
    /// What all workers of a measurement write behind what was written.
    pub written_bytes: u64,
    /// Files that all workers of a measurement create and leave.
    pub created: u64,
}

impl Size {
    /// In results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

impl Scale {
    /// A size on a machine with so many processors.
    #[must_use]
    pub fn new(size: Size, processors: u32) -> Self {
        let nonzero = |number| NonZeroU64::new(number).expect("sizes are not zero");
        match size {
            Size::Quick => Self {
                size,
                processors,
                threads: powers_of_two(processors.clamp(2, 4)),
                rounds: 3,
                time: Duration::from_secs(195),
                slice: [Duration::from_millis(8), Duration::from_millis(200)],
                file_bytes: nonzero(16 << 20),
                inodes: nonzero(4000),
                written_bytes: 64 << 20,
                created: 20_000,
            },
            Size::Full => Self {
                size,
                processors,
                threads: powers_of_two(64),
                rounds: 7,
                time: Duration::from_secs(3600),
                slice: [Duration::from_millis(50), Duration::from_secs(1)],
                file_bytes: nonzero(256 << 20),
                inodes: nonzero(20_000),
                written_bytes: 256 << 20,
                created: 100_000,
            },
        }
    }

    /// A cell's job with so many operations of each worker, or fewer if that is too many.
    pub(super) fn job(
        &self,
        workload: Workload,
        directories: Directories,
        contender: &Contender,
        threads: u32,
        ops: u64,
    ) -> Job {
        let ops = ops.clamp(1, self.most_ops(workload, threads));
        Job {
            workload,
            target: contender.target.clone(),
            threads: NonZeroU32::new(threads).unwrap_or(NonZeroU32::MIN),
            ops: NonZeroU64::new(ops).unwrap_or(NonZeroU64::MIN),
            file_bytes: self.file_bytes,
            inodes: self.inodes,
            separate: directories == Directories::Separate,
            locks: false,
        }
    }

    /// When rounds end: what is left of the time is for counting locks.
    pub(super) fn rounds_end(&self) -> Duration {
        self.time.mul_f64(1.0 - SHARE_OF_LOCKS)
    }

    /// What a worker may do at most, so that memory and images suffice. At least one.
    fn most_ops(&self, workload: Workload, threads: u32) -> u64 {
        // A tenth more warms up.
        let share = |all: u64| all * 10 / 11 / u64::from(threads.max(1));
        let most = match workload {
            Workload::Write | Workload::WriteSmall => {
                share(self.written_bytes / workload.bytes_written(0).unwrap_or(1))
            }
            Workload::CreateMany | Workload::Populate => share(self.created),
            Workload::InodeAlloc => share(self.inodes.get() / 2),
            _ => u64::MAX,
        };
        most.max(1)
    }

    /// Operations of the first measurement of a contender, which is not part of the results: a hundredth of a second or so.
    pub(super) fn first_ops(workload: Workload, contender: &Contender) -> u64 {
        (workload.default_ops(contender.role.is_in_process()).get() / 200).max(1)
    }
}

/// 1, 2, 4 and so on, up to a number.
fn powers_of_two(most: u32) -> Vec<u32> {
    (0..32).map(|bit| 1 << bit).take_while(|&power| power <= most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use crate::suite::{Filesystem, Role};

    #[test]
    fn workers_are_powers_of_two() {
        let threads = |size, processors| Scale::new(size, processors).threads;
        assert_eq!(threads(Size::Quick, 1), [1, 2]);
        assert_eq!(threads(Size::Quick, 3), [1, 2]);
        assert_eq!(threads(Size::Quick, 96), [1, 2, 4]);
        assert_eq!(threads(Size::Full, 1), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn no_job_outgrows_what_it_is_given() {
        let mounted = Contender::mounted(Role::Mount, Filesystem::Ext4, Target::Mounted("/x".into()));
        for size in [Size::Quick, Size::Full] {
            let scale = Scale::new(size, 2);
            for (workload, &threads) in
                Workload::ALL.iter().flat_map(|workload| scale.threads.iter().map(move |n| (workload, n)))
            {
                let job = scale.job(*workload, Directories::One, &mounted, threads, 1 << 40);
                let all = job.operations() * u64::from(threads);
                match workload {
                    Workload::Write => assert!(all << 20 <= scale.written_bytes, "{job:?}"),
                    Workload::WriteSmall => assert!(all << 12 <= scale.written_bytes, "{job:?}"),
                    Workload::CreateMany | Workload::Populate => assert!(all <= scale.created, "{job:?}"),
                    Workload::InodeAlloc => job.check().unwrap(),
                    _ => {}
                }
            }
        }
    }
}
