//! Redo: turns fast commits, which log operations, into one transaction of blocks.
//!
//! A read-only open lays fast commits over what the disk has ([`FastCommitView`]). A filesystem that is opened for
//! writing has to have them on the disk, and in one transaction: the first one behind them in the log. It has the
//! number that they name, so they stop counting with it (see `jbd2::log` for what a crash leaves). Until it is durable
//! none of its blocks is written back, so a redo that a crash interrupts begins again with the same disk and the same
//! fast commits.
//!
//! The view has the result, and redo makes the disk match it. Before the first change it determines every name that
//! fast commits touch ([`names`]); the number of names that each inode then has, and so which inodes are new, changed
//! or deleted; and the blocks that files gain and lose ([`plan`]). Then it claims the blocks that files have gained,
//! writes inodes, adds and removes names, and frees blocks. An inode without a name left becomes an orphan, and is
//! deleted as one.
//!
//! Links are counted, not copied from the log: names and counts agree where the disk was good.
//!
//! Called once while a filesystem is opened, by a single thread, before the commit thread starts. Left out: fast
//! commits that are more than fits a transaction, and names in encrypted directories and those that ignore case: these
//! are refused by name.

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

/// Makes the state that `shown` has the state of `volume`, durably. Both are of one device, and `shown` has fast
/// commits laid over it.
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
