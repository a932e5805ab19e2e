//! Fast commits, made a transaction: what the log says in operations is said in blocks.
//!
//! A read-only open lays fast commits over what the disk has ([`FastCommitView`]). A filesystem that is opened for
//! writing has to have them on the disk, and in one transaction: the first one behind them in the log, which has the
//! number that they name and so ends them (`jbd2::log` tells what a crash leaves). Until that is durable nothing of
//! it has come home, so a redo that is cut short begins again with the same disk and the same fast commits.
//!
//! The reader says what must come of it, and this makes the disk agree: every name that fast commits touch
//! ([`names`]), the number of names that each inode has then, and so which of them are new, changed or gone, and the
//! blocks that files gain and lose ([`plan`]). All that is worked out before the first change. Then blocks that files
//! have come to own are claimed, inodes written, names put and taken, and blocks given back. What is gone becomes an
//! orphan, and is deleted as such.
//!
//! Links are counted, not copied from the log: names and counts agree where the disk was good.
//!
//! Called once by the opener of a filesystem, alone, before the threads that commit. Left out: fast commits that are
//! more than fits a transaction, and names in encrypted directories and those that ignore case: these are refused by
//! name.

mod apply;
mod names;
mod plan;
mod runs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use self::apply::Apply;
use self::plan::Plan;
use crate::volume::Volume;
use crate::writer::Mounted;

/// Makes what `shown` shows the state of `volume`, durably. Both are of one device, and `shown` has fast commits laid
/// over it.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) and [`NoKey`](Error::NoKey), naming what cannot be written; corruption of
/// the filesystem, or fast commits that contradict it; I/O failure. The disk has not changed then.
pub(crate) fn redo(volume: &Arc<Mounted>, shown: &Volume) -> Result<()> {
    let names = names::resolve(volume, shown.fast_commits())?;
    let plan = Plan::new(volume, shown, &names)?;
    Apply::new(volume, shown)?.run(&plan, &names)?;
    volume.writer()?.transactions.commit_running(volume)
}

fn too_large() -> Error {
    Error::Unsupported(
        "more fast commits than fit into one transaction of the journal; let Linux mount the filesystem once, or \
         e2fsck recover it"
            .into(),
    )
}
