//! From a device to a filesystem whose journal has been recovered.
//!
//! The states are types. A [`Probed`] volume may have changes in its journal that its blocks do not show yet; only
//! [`Probed::recover_in_memory`] leads to a [`Ready`] one, and [`Probed::recover_onto_device`] to a [`Writable`] one,
//! so "mounted without replay" cannot be written.

use std::sync::Arc;

use undercroft_block::{Access, Device, LatchedDevice, Overlay};
use undercroft_vfs::{Error, Result};

use crate::error::{corrupt, corrupt_inode};
use crate::fast_commit::{FastCommitOp, FastCommitView};
use crate::features::{Compat, Incompat};
use crate::inode::{self, Inode, NamedBy};
use crate::jbd2::{
    self, CleanLog, DirtyLog, Log, LogBlock, LogForm, LogLocation, LogRun, LogTail, LogWriter,
    RecoveryReport, ReplayedLog, Sequence,
};
use crate::map;
use crate::mmp::{self, MmpWait};
use crate::options::WriteOptions;
use crate::superblock::{self, State, Superblock};
use crate::transaction::{self, Stop, Tid};
use crate::volume::Volume;
use crate::writer::Transactions;

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Bound of the metadata cache in bytes.
    pub buffer_bytes: usize,
    /// Called before the opening waits, for up to a minute, to see whether another host is using the filesystem.
    pub on_mmp_wait: fn(&MmpWait),
    /// Whether a journal that holds changes is replayed. Without it, which is for reading only, the filesystem is shown
    /// as its blocks have it: changes that the journal holds are missing, some perhaps in part.
    pub recover: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { buffer_bytes: 32 << 20, on_mmp_wait: |_| {}, recover: true }
    }
}

/// A volume whose superblock is good and whose journal has not been looked at.
pub(crate) struct Probed {
    volume: Volume,
    options: OpenOptions,
}

/// A volume that shows what a mount by Linux would show.
pub(crate) struct Ready {
    pub(crate) volume: Volume,
    pub(crate) recovery: Option<RecoveryReport>,
}

/// A volume whose journal holds no transaction and says, on the disk, that it is in use.
pub(crate) struct Writable {
    pub(crate) volume: Volume,
    /// The volume with fast commits laid over it, where the journal holds some: they have to be
    /// [redone](crate::fast_commit::redo) before anything else.
    pub(crate) shown: Option<Volume>,
    pub(crate) transactions: Transactions,
    pub(crate) recovery: Option<RecoveryReport>,
    /// Whether the filesystem had been left clean.
    pub(crate) found_clean: bool,
    /// Whether a crash had left it to its journal.
    pub(crate) needed_recovery: bool,
}

/// Blocks that a transaction has room for in a filesystem without a log: they are in memory until it is committed.
const ROOM_WITHOUT_LOG: u32 = 8192;

impl Probed {
    pub(crate) fn probe(device: Device, options: OpenOptions) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        mmp::check(&*device, &superblock, options.on_mmp_wait)?;
        Ok(Self { volume: Volume::new(device, superblock, options.buffer_bytes), options })
    }

    /// Replays the journal, if it holds changes, into a copy-on-write layer over the device.
    ///
    /// If the superblock does not say that recovery is needed, the log's content is older than the filesystem; Linux
    /// ignores it too.
    pub(crate) fn recover_in_memory(&self) -> Result<Ready> {
        self.replay_in_memory(|dirty| dirty)
    }

    /// As [`recover_in_memory`](Self::recover_in_memory), and what fast commits say is left out.
    pub(crate) fn recover_in_memory_without_fast_commits(&self) -> Result<Ready> {
        self.replay_in_memory(DirtyLog::without_fast_commits)
    }

    /// Validates the journal of a filesystem that needs no recovery, as opening it for writing does.
    ///
    /// # Errors
    /// Corruption; [`Unsupported`](Error::Unsupported) for a journal of an unknown kind; I/O failure.
    pub(crate) fn check_clean_log(&self) -> Result<()> {
        let superblock = self.volume.superblock();
        let has_journal = superblock.features().compat.contains(Compat::HAS_JOURNAL);
        if !has_journal || superblock.needs_recovery() || superblock.external_journal().is_some() {
            return Ok(());
        }
        let (location, params) = locate_log(&self.volume)?;
        Log::open(&**self.volume.device(), location, params).map(drop)
    }

    fn replay_in_memory(&self, prepare: impl FnOnce(DirtyLog) -> DirtyLog) -> Result<Ready> {
        if !self.options.recover || !self.volume.superblock().needs_recovery() {
            return Ok(self.as_found());
        }
        let (location, params) = locate_log(&self.volume)?;
        let overlay: Device = Arc::new(Overlay::new(Arc::clone(self.volume.device())));
        let dirty = match Log::open(&*overlay, location, params)? {
            Log::Clean(_) => return Ok(self.as_found()),
            Log::Dirty(dirty) => prepare(dirty),
        };
        let replayed = dirty.recover(&*overlay)?;
        let recovery = Some(*replayed.report());
        let operations = replayed.fast_commits().to_vec();
        replayed.finish(&*overlay)?;
        let superblock = Superblock::read(&*overlay)?;
        let volume = Volume::new(overlay, superblock, self.options.buffer_bytes);
        let fast_commits = FastCommitView::fold(&operations, |ino| inode::incarnation_on_disk(&volume, ino))?;
        Ok(Ready { volume: volume.with_fast_commits(fast_commits), recovery })
    }

    /// There is nothing to replay.
    fn as_found(&self) -> Ready {
        let superblock = self.volume.superblock().clone();
        let device = Arc::clone(self.volume.device());
        Ready { volume: Volume::new(device, superblock, self.options.buffer_bytes), recovery: None }
    }
}

impl Probed {
    /// Replays the journal, if it holds changes, onto the device, and begins to write the journal. From here on the
    /// disk says that the filesystem is in use.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) naming what cannot be written: nothing has changed then that recovering the
    /// journal does not change. [`ReadOnly`](Error::ReadOnly) for a device that is. Corruption; I/O failure.
    ///
    /// Unless it is `logged`, the journal must hold no changes, and stays as it is.
    pub(crate) fn recover_onto_device(self, how: &WriteOptions) -> Result<Writable> {
        let Self { volume, options } = self;
        let WriteOptions { logged, counts_mount, .. } = *how;
        // From the first change on: a flush that fails in here fails the opening, and later ones end the changes.
        let latched = Arc::new(LatchedDevice::new(Arc::clone(volume.device())));
        let device = Arc::clone(&latched) as Device;
        if device.access() == Access::ReadOnly {
            return Err(Error::ReadOnly);
        }
        volume.superblock().features().check_writable()?;
        let recorded = superblock::Recorded::of(volume.superblock().raw());
        let has_journal = volume.superblock().features().compat.contains(Compat::HAS_JOURNAL);
        let needed_recovery = volume.superblock().needs_recovery();
        if !logged && needed_recovery {
            let what = "changes past a journal that holds others";
            return Err(Error::Unsupported(what.into()));
        }
        let log =
            if has_journal && logged { Some(replay(&volume, &device, options.buffer_bytes)?) } else { None };
        let found_clean = Superblock::read(&*device)?.state().contains(State::CLEAN);
        let journal_failed = log.as_ref().is_some_and(|log| log.recorded_error() != 0);
        let recovery = log.as_ref().and_then(|log| log.report);
        superblock::mark_in_use(&*device, &recorded, journal_failed, log.is_some(), counts_mount)?;
        let superblock = Superblock::read(&*device)?;
        let stop = Arc::<Stop>::default();
        let volume =
            Volume::for_changes(latched, superblock.clone(), options.buffer_bytes, Arc::clone(&stop));
        let operations = log.as_ref().map_or(&[][..], Replayed::fast_commits);
        let shown = if operations.is_empty() {
            None
        } else {
            let fast_commits =
                FastCommitView::fold(operations, |ino| inode::incarnation_on_disk(&volume, ino))?;
            let shown = Volume::new(Arc::clone(&device), superblock.clone(), options.buffer_bytes);
            Some(shown.with_fast_commits(fast_commits))
        };
        let transactions = match log {
            None => Transactions::unlogged(Tid(1), ROOM_WITHOUT_LOG, stop),
            Some(log) => {
                let form = LogForm {
                    checksums: superblock.has_metadata_checksums(),
                    sixty_four_bit: superblock.features().incompat.contains(Incompat::SIXTY_FOUR_BIT),
                };
                let (writer, tail, first) = log.begin(&device, form)?;
                transaction::logged(first, writer, tail, superblock.geometry().block_bytes(), stop)
            }
        };
        Ok(Writable { volume, shown, transactions, recovery, found_clean, needed_recovery })
    }
}

/// A journal whose transactions have been written to their homes.
struct Replayed {
    log: ReplayedOrEmpty,
    /// What was done, if there was anything to do.
    report: Option<RecoveryReport>,
}

enum ReplayedOrEmpty {
    Empty(CleanLog),
    /// It ends in fast commits, and stays dirty until they are a transaction.
    WithFastCommits(ReplayedLog),
}

impl Replayed {
    fn fast_commits(&self) -> &[FastCommitOp] {
        match &self.log {
            ReplayedOrEmpty::Empty(_) => &[],
            ReplayedOrEmpty::WithFastCommits(log) => log.fast_commits(),
        }
    }

    fn recorded_error(&self) -> i32 {
        match &self.log {
            ReplayedOrEmpty::Empty(log) => log.recorded_error(),
            ReplayedOrEmpty::WithFastCommits(log) => log.recorded_error(),
        }
    }

    fn begin(self, device: &Device, form: LogForm) -> Result<(LogWriter, LogTail, Sequence)> {
        match self.log {
            ReplayedOrEmpty::Empty(log) => log.begin(&**device, form),
            ReplayedOrEmpty::WithFastCommits(log) => log.go_on(&**device, form),
        }
    }
}

/// Replays the journal's transactions onto the device, and makes the journal empty unless fast commits follow them.
fn replay(volume: &Volume, device: &Device, buffer_bytes: usize) -> Result<Replayed> {
    let (location, params) = locate_log(volume)?;
    let dirty = match Log::open(&**device, location.clone(), params)? {
        Log::Clean(clean) => return Ok(Replayed { log: ReplayedOrEmpty::Empty(clean), report: None }),
        Log::Dirty(dirty) => dirty,
    };
    if !volume.superblock().needs_recovery() {
        return Ok(Replayed { log: ReplayedOrEmpty::Empty(dirty.discard(&**device)?), report: None });
    }
    let replayed = dirty.recover(&**device)?;
    let report = Some(*replayed.report());
    let log = match replayed.fast_commits() {
        [] => ReplayedOrEmpty::Empty(where_it_is_now(
            replayed.finish(&**device)?,
            &location,
            device,
            buffer_bytes,
        )?),
        _ => ReplayedOrEmpty::WithFastCommits(replayed),
    };
    Ok(Replayed { log, report })
}

/// The empty log, at the place that the journal's inode has now. It is another one if the last transaction moved the journal
/// ([`shrink`](crate::shrink)) and a crash came before the log was given up.
fn where_it_is_now(
    log: CleanLog,
    was: &LogLocation,
    device: &Device,
    buffer_bytes: usize,
) -> Result<CleanLog> {
    let volume = Volume::new(Arc::clone(device), Superblock::read(&**device)?, buffer_bytes);
    let (location, params) = locate_log(&volume)?;
    if location == *was {
        return Ok(log);
    }
    match Log::open(&**device, location, params)? {
        Log::Clean(clean) => Ok(clean),
        Log::Dirty(_) => Err(corrupt("journal", "it has moved, and holds changes at its new place")),
    }
}

/// Where the journal's blocks lie, by the map of the journal's inode as the device has it now.
pub(crate) fn locate_log(volume: &Volume) -> Result<(LogLocation, jbd2::Volume)> {
    let superblock = volume.superblock();
    if let Some(uuid) = superblock.external_journal() {
        let message = format!(
            "the filesystem has its journal {uuid} on another device, which cannot be opened with it"
        );
        return Err(Error::Unsupported(message.into()));
    }
    let Some(number) = superblock.journal_inode() else {
        return Err(corrupt("superblock", "recovery is needed, but there is no journal"));
    };
    let geometry = superblock.geometry();
    let location = match superblock.needs_recovery() {
        true => inode::locate_before_recovery(volume, number)?,
        false => inode::locate(volume, number)?,
    };
    let inode = Inode::read_own_located(volume, number, location, NamedBy::SuperblockAsJournal)?;
    let blocks = inode.size_bytes >> geometry.block_bits();
    if u32::try_from(blocks).is_err() || blocks > geometry.blocks() {
        return Err(corrupt_inode("journal", number, None, format!("is {blocks} blocks long")));
    }
    let runs = map::collect_whole(volume, &inode, blocks)?
        .into_iter()
        .map(|(log, home, count)| LogRun { log: LogBlock(log.0), home, count: count as u32 })
        .collect();
    let params = jbd2::Volume {
        block_bytes: geometry.block_bytes(),
        blocks: geometry.blocks(),
        device_blocks: volume.device().size_bytes() >> geometry.block_bits(),
        inodes: geometry.inodes(),
        inode_bytes: geometry.inode_bytes(),
    };
    Ok((LogLocation::new(runs, &params)?, params))
}
