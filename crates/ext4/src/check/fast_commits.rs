//! Replays the journal in memory, so that everything else is checked as a mount would find it.
//!
//! Transactions are blocks and are replayed as they are. Fast commits are operations: they are carried out as for a
//! mount that writes ([`redo`]), over the copy-on-write layer that the transactions lie in. Where they cannot be, that
//! is a finding, and the structures are checked as the last transaction left them.
//!
//! Orphans are left as they are, and so is the superblock's word that the journal holds changes.

use std::sync::Arc;

use undercroft_block::Device;
use undercroft_diskfs::{At, Findings};
use undercroft_vfs::{Corruption, Error, Result};

use crate::fast_commit::redo;
use crate::features::{Features, Incompat};
use crate::jbd2::RecoveryReport;
use crate::open::{Probed, Ready};
use crate::options::WriteOptions;
use crate::superblock::Superblock;
use crate::transaction::Tid;
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

const CODE: &str = "fast-commit";

/// Blocks that a transaction has room for that is never written to a log: more than the fast commits of any log change.
const ROOM: u32 = 1 << 24;

/// A filesystem as its journal leaves it.
pub(super) struct Replayed {
    pub(super) volume: Volume,
    pub(super) recovery: Option<RecoveryReport>,
    /// Why fast commits were not looked at, where nothing is wrong with them.
    pub(super) left_out: Option<String>,
}

/// Replays the journal in memory.
///
/// # Errors
/// Corruption of a transaction, or of what leads to the journal; an unknown feature; I/O failure.
pub(super) fn replay(probed: &Probed, buffer_bytes: usize, findings: &Findings) -> Result<Replayed> {
    if let Err(error) = probed.check_clean_log() {
        match error {
            Error::Corrupt(corruption) => {
                report(findings, "journal", corruption.detail.to_string(), &corruption);
            }
            Error::Unsupported(what) => findings.add("journal", At::filesystem(), what.into_owned()),
            error => return Err(error),
        }
    }
    let ready = match probed.recover_in_memory() {
        Ok(ready) => ready,
        Err(Error::Corrupt(corruption)) => {
            // If it is a transaction that is wrong, it is so here too.
            let Ready { volume, recovery } = probed.recover_in_memory_without_fast_commits()?;
            report_fast_commits(findings, &corruption);
            return Ok(Replayed { volume, recovery, left_out: None });
        }
        Err(error) => return Err(error),
    };
    let Ready { volume: shown, recovery } = ready;
    if let Some(report) = recovery
        && let (0, Some(block)) = (report.fast_commits, report.fast_commits_cut_short)
    {
        let detail = format!(
            "the first fast commit after transaction {} is damaged or incomplete, and Linux refuses to mount it",
            report.end_sequence.wrapping_sub(1)
        );
        findings.add(CODE, At::filesystem().block(block), detail);
    }
    if shown.fast_commits().is_empty() {
        return Ok(Replayed { volume: shown, recovery, left_out: None });
    }
    let left_out = match redone(&shown, buffer_bytes) {
        Ok(()) => None,
        Err(Error::Io(error)) => return Err(Error::Io(error)),
        Err(Error::Corrupt(corruption)) => {
            report_fast_commits(findings, &corruption);
            None
        }
        Err(Error::Stale) => {
            findings.add(CODE, At::filesystem(), "they change an inode that is not in use");
            None
        }
        Err(error) => Some(error.to_string()),
    };
    // The list of orphans in its superblock may have changed, and cached blocks may be out of date.
    let volume = on(shown.device(), buffer_bytes)?;
    Ok(Replayed { volume, recovery, left_out })
}

/// Carries out all fast commits. After an error nothing has changed.
fn redone(shown: &Volume, buffer_bytes: usize) -> Result<()> {
    let features = shown.superblock().features();
    // Multiple-mount protection does not matter here: only a mount has to update its number.
    Features { incompat: features.incompat.difference(Incompat::MMP), ..*features }.check_writable()?;
    let volume = Arc::new(Mounted::new(on(shown.device(), buffer_bytes)?));
    let transactions = Transactions::unlogged(Tid(1), ROOM, Arc::default());
    volume.set_writer(Writer::new(&volume, transactions, WriteOptions::default())?);
    redo::redo(&volume, shown)
}

fn on(device: &Device, buffer_bytes: usize) -> Result<Volume> {
    Ok(Volume::new(Arc::clone(device), Superblock::read(&**device)?, buffer_bytes))
}

fn report_fast_commits(findings: &Findings, corruption: &Corruption) {
    let detail = format!("cannot be carried out: {}: {}", corruption.structure, corruption.detail);
    report(findings, CODE, detail, corruption);
}

fn report(findings: &Findings, code: &'static str, detail: String, corruption: &Corruption) {
    let inode = corruption.ino.and_then(|ino| u32::try_from(ino.0).ok());
    let at = inode.map_or(At::filesystem(), At::inode);
    let at = corruption.block.map_or(at, |block| at.block(block));
    findings.add(code, at, detail);
}
