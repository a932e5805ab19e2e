//! What one worker does, step by step: the names it chooses and the operations it asks for.
//!
//! Whatever is random comes from a seed that is the worker's index, so that a run does the same as the run before.

mod content;
mod device;
mod files;
mod name;
mod names;
mod population;
mod rebuild;

use crate::directory::{Caching, Directory};
use crate::sizes::{SMALL_WRITE_BYTES, WRITE_BYTES};
use crate::{BenchError, Workload};
use content::Orphan;
pub(crate) use content::{Overwrite, Write, fill};
pub(crate) use device::{CopyAndXor, Read, Rows, Sequential, own_part};
use files::WriteFiles;
use name::{Name, STANDING};
pub(crate) use names::CreateUnlink;
use names::{CreateMany, ReaddirStorm, Rename, StatMany, StatOwn};
pub(crate) use population::Sizes;
use population::{InodeAlloc, Populate, populate};
pub(crate) use rebuild::{PlainRebuild, Rebuild};

/// Names that the workloads about existing names find in their directory.
pub(crate) const STANDING_NAMES: u64 = 10_000;

/// The number in the name of a worker's own directory: no file of any worker comes to it.
const OWN_DIRECTORY: u64 = u64::MAX;

/// One worker's part in a workload.
pub(crate) trait Script {
    /// One operation.
    fn step(&mut self) -> Result<(), BenchError>;

    /// What belongs to the measured time after the last operation.
    fn finish(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}

impl<S: Script + ?Sized> Script for Box<S> {
    fn step(&mut self) -> Result<(), BenchError> {
        (**self).step()
    }

    fn finish(&mut self) -> Result<(), BenchError> {
        (**self).finish()
    }
}

/// The part of the worker with this index, in a directory that was [prepared](prepare) alike.
pub(crate) fn of_worker<'d, D: Directory>(
    workload: Workload,
    dir: &'d D,
    index: u32,
    file_bytes: u64,
) -> Result<Box<dyn Script + 'd>, BenchError> {
    let own = Name::new(index, 0);
    Ok(match workload {
        Workload::CreateUnlink => Box::new(CreateUnlink::new(dir, index)),
        Workload::Rename => Box::new(Rename::new(dir, index)),
        Workload::CreateMany => Box::new(CreateMany::new(dir, index)),
        Workload::Populate => Box::new(Populate::new(dir, index)?),
        Workload::InodeAlloc => Box::new(InodeAlloc::new(dir, index)?),
        Workload::StatOwn => Box::new(StatOwn::new(dir, index)?),
        Workload::StatMany => Box::new(StatMany::new(dir, index)),
        Workload::ReaddirStorm => Box::new(ReaddirStorm::new(dir)),
        Workload::Orphan => Box::new(Orphan::new(dir.open(&own.0, Caching::Any)?)?),
        Workload::Overwrite => {
            let shared = dir.open(&Name::new(STANDING, 0).0, Caching::None)?;
            Box::new(Overwrite::new(shared, file_bytes, index))
        }
        Workload::Write => Box::new(Write::new(dir.open(&own.0, Caching::Any)?, index, WRITE_BYTES)),
        Workload::WriteSmall => {
            Box::new(Write::new(dir.open(&own.0, Caching::Any)?, index, SMALL_WRITE_BYTES))
        }
        Workload::RaidWrite => Box::new(WriteFiles::new(dir, index)),
        Workload::RaidWriteRows | Workload::RaidSequential | Workload::RaidRead | Workload::RaidRebuild => {
            unreachable!("the job was checked: {workload} is for devices")
        }
    })
}

/// The directory of the worker with this index, where each has its own; made if it is not there.
pub(crate) fn own_directory<D: Directory>(dir: &D, index: u32) -> Result<D, BenchError> {
    dir.inside(&Name::new(index, OWN_DIRECTORY).0)
}

/// Makes what must be there before anything starts.
pub(crate) fn prepare<D: Directory>(workload: Workload, dir: &D, sizes: Sizes) -> Result<(), BenchError> {
    match workload {
        Workload::CreateUnlink
        | Workload::Rename
        | Workload::CreateMany
        | Workload::Populate
        | Workload::StatOwn
        | Workload::Orphan
        | Workload::Write
        | Workload::WriteSmall
        | Workload::RaidWrite
        | Workload::RaidWriteRows
        | Workload::RaidSequential
        | Workload::RaidRead
        | Workload::RaidRebuild => Ok(()),
        Workload::StatMany | Workload::ReaddirStorm => {
            (0..STANDING_NAMES).try_for_each(|number| dir.create(&Name::new(STANDING, number).0))
        }
        Workload::InodeAlloc => populate(dir, sizes),
        Workload::Overwrite => fill(&dir.open(&Name::new(STANDING, 0).0, Caching::None)?, sizes.file_bytes),
    }
}
