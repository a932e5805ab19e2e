//! What to measure.

use std::num::{NonZeroU32, NonZeroU64};

use crate::script::Sizes;
use crate::worker::warm_up;
use crate::workload::Needs;
use crate::{BenchError, Target, Workload};

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
    /// The size of the file that all share, where the workload has one; at least 4 KiB.
    pub file_bytes: NonZeroU64,
    /// Inodes of the population of [`InodeAlloc`](Workload::InodeAlloc).
    pub inodes: NonZeroU64,
    /// Each worker has a directory of its own, instead of one that all share.
    pub separate: bool,
    /// Count what happens at locks; costs time.
    pub locks: bool,
}

impl Job {
    /// Operations of each worker, those included that warm it up and are not timed.
    #[must_use]
    pub fn operations(&self) -> u64 {
        let ops = self.ops.get();
        ops.saturating_add(warm_up(ops))
    }

    /// Files that all workers create together where they stay, with those that warm them up.
    pub(crate) fn created(&self) -> u64 {
        self.operations().saturating_mul(self.threads.get().into())
    }

    /// What there must be before anything starts.
    pub(crate) fn sizes(&self) -> Sizes {
        let Self { file_bytes, inodes, .. } = self;
        Sizes { file_bytes: file_bytes.get(), inodes: inodes.get(), removed: self.created() }
    }

    /// Refuses what cannot be measured together.
    ///
    /// # Errors
    /// [`OnlyInProcess`](BenchError::OnlyInProcess), [`NoFiles`](BenchError::NoFiles), [`Unfit`](BenchError::Unfit),
    /// [`TooFewInodes`](BenchError::TooFewInodes).
    pub fn check(&self) -> Result<(), BenchError> {
        let workload = self.workload;
        let fits = match (&self.target, workload.needs()) {
            (Target::Device, Needs::Files) => return Err(BenchError::NoFiles { workload }),
            (Target::Array(_), _) | (Target::Device, Needs::Bytes | Needs::Device) => true,
            (Target::Device, Needs::Array) => false,
            (Target::Xor { .. }, _) => {
                matches!(workload, Workload::RaidSequential | Workload::RaidRebuild)
            }
            (Target::InProcess { .. } | Target::Mounted(_), needs) => {
                matches!(needs, Needs::Files | Needs::Bytes)
            }
        };
        if !fits {
            let fitting = match workload {
                Workload::RaidSequential => "`mem:md5`, `mem:raw` and `mem:xor`",
                Workload::RaidRebuild => "`mem:md5` and `mem:xor`",
                _ if workload.needs() == Needs::Device => "`mem:md5` and `mem:raw`",
                _ => "`mem:md5`, `mem:ext4`, `mem:xfs` and `dir:PATH`",
            };
            return Err(BenchError::Unfit { workload, target: self.target.to_string(), fitting });
        }
        if workload.has_one_worker() && self.threads.get() > 1 {
            let target = format!("{} with more than one worker", self.target);
            return Err(BenchError::Unfit { workload, target, fitting: "one: say --threads 1" });
        }
        if self.separate && !workload.knows_separate_directories() {
            let target = format!("{} in separate directories", self.target);
            return Err(BenchError::Unfit {
                workload,
                target,
                fitting: "one directory: leave --separate out",
            });
        }
        if workload == Workload::InodeAlloc && self.created().saturating_mul(2) > self.inodes.get() {
            return Err(BenchError::TooFewInodes { inodes: self.inodes.get(), created: self.created() });
        }
        if self.locks { self.target.check_in_process("the lock report") } else { Ok(()) }
    }
}
