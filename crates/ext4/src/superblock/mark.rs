//! Marks that the superblock gets outside of any transaction: that the filesystem is in use, that it was left clean,
//! that an error was found.
//!
//! Source: kernel documentation, "Super Block"; the fields as Linux leaves them after a mount, an unmount and an error,
//! and its order: the flag that the journal needs recovery is durable before the first transaction, and is cleared when
//! the log is empty.
//!
//! The superblock is read from the device, changed and written back, at once and durably. No other thread writes its
//! block at the same time: the filesystem is not open yet, or closed already, or has failed and the log's threads write
//! nothing more.

use undercroft_block::BlockDevice;
use undercroft_journal::Cause;
use undercroft_vfs::{Result, clock};
use zerocopy::{FromBytes, IntoBytes};

use super::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use crate::checksum::crc32c;
use crate::error::corrupt;
use crate::features::{Incompat, RoCompat};

/// The function name that is recorded with an error.
const FUNCTION: &[u8] = b"undercroft";

/// What the superblock keeps of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorRecord {
    /// In the numbering of the field, not an errno.
    code: u8,
    ino: u32,
    block: u64,
}

impl ErrorRecord {
    const UNKNOWN: u8 = 1;
    const IO: u8 = 2;
    const CORRUPT: u8 = 5;

    pub(crate) fn of(cause: &Cause) -> Self {
        match cause {
            // As for Linux, the filesystem must be checked.
            Cause::Inconsistency => Self { code: Self::CORRUPT, ino: 0, block: 0 },
            Cause::Io => Self { code: Self::IO, ino: 0, block: 0 },
            Cause::Corruption { ino, block } => Self {
                code: Self::CORRUPT,
                ino: ino.and_then(|ino| u32::try_from(ino).ok()).unwrap_or(0),
                block: block.unwrap_or(0),
            },
            Cause::Other => Self { code: Self::UNKNOWN, ino: 0, block: 0 },
        }
    }
}

/// What a mount must remember of the superblock over the replay of the journal: errors that were recorded beside the
/// log are not in it.
pub(crate) struct Recorded {
    state: State,
    fields: Box<[u8]>,
}

/// The fields of recorded errors, from the count to the last function's name.
const RECORDED: std::ops::Range<usize> =
    std::mem::offset_of!(RawSuperblock, s_error_count)..std::mem::offset_of!(RawSuperblock, s_mount_opts);

impl Recorded {
    pub(crate) fn of(raw: &RawSuperblock) -> Self {
        Self {
            state: State::from_bits_retain(raw.s_state.get()) & State::ERRORS,
            fields: raw.as_bytes()[RECORDED].into(),
        }
    }

    fn put_back(&self, raw: &mut RawSuperblock) {
        insert_state(raw, self.state);
        raw.as_mut_bytes()[RECORDED].copy_from_slice(&self.fields);
    }
}

/// The filesystem is open for writing from now on. `journal_failed`: the journal records that its last writer aborted.
/// `logged`: changes go to the journal. `counts_mount`: this is a mount.
///
/// # Errors
/// I/O failure.
pub(crate) fn mark_in_use(
    device: &dyn BlockDevice,
    recorded: &Recorded,
    journal_failed: bool,
    logged: bool,
    counts_mount: bool,
) -> Result<()> {
    change(device, |raw| {
        recorded.put_back(raw);
        if journal_failed {
            insert_state(raw, State::ERRORS);
        }
        if !logged {
            // Without a log a crash leaves a filesystem that must be checked.
            raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
        } else {
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::RECOVER.bits());
        }
        if counts_mount {
            raw.s_mnt_count.set(raw.s_mnt_count.get().saturating_add(1));
            (raw.s_mtime, raw.s_mtime_hi) = (raw.s_wtime, raw.s_wtime_hi);
        }
    })
}

/// Marks the filesystem as clean: everything is written back, and the log is empty. `without_orphans`: the orphan file
/// is empty as well. `was_clean`: the filesystem was clean when it was opened; without a log it must not become clean
/// otherwise.
///
/// # Errors
/// I/O failure.
pub(crate) fn mark_clean(device: &dyn BlockDevice, without_orphans: bool, was_clean: bool) -> Result<()> {
    change(device, |raw| {
        raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::RECOVER.bits());
        if without_orphans {
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !RoCompat::ORPHAN_PRESENT.bits());
        }
        if was_clean {
            insert_state(raw, State::CLEAN);
        }
    })
}

/// Records an error, which the next opening of the filesystem and a check report.
///
/// # Errors
/// I/O failure.
pub(crate) fn mark_failed(device: &dyn BlockDevice, error: &ErrorRecord) -> Result<()> {
    change(device, |raw| {
        insert_state(raw, State::ERRORS);
        let mut function = [0; 32];
        function[..FUNCTION.len()].copy_from_slice(FUNCTION);
        raw.s_last_error_func = function;
        raw.s_last_error_line.set(0);
        raw.s_last_error_ino.set(error.ino);
        raw.s_last_error_block.set(error.block);
        raw.s_last_error_errcode = error.code;
        (raw.s_last_error_time, raw.s_last_error_time_hi) = (raw.s_wtime, raw.s_wtime_hi);
        if raw.s_first_error_time.get() == 0 {
            raw.s_first_error_func = function;
            raw.s_first_error_line.set(0);
            raw.s_first_error_ino.set(error.ino);
            raw.s_first_error_block.set(error.block);
            raw.s_first_error_errcode = error.code;
            (raw.s_first_error_time, raw.s_first_error_time_hi) = (raw.s_wtime, raw.s_wtime_hi);
        }
        raw.s_error_count.set(raw.s_error_count.get().saturating_add(1));
    })
}

fn insert_state(raw: &mut RawSuperblock, state: State) {
    raw.s_state.set(raw.s_state.get() | state.bits());
}

fn change(device: &dyn BlockDevice, change: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
    let mut bytes = [0; size_of::<RawSuperblock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let Ok(raw) = RawSuperblock::mut_from_bytes(&mut bytes) else {
        return Err(corrupt("superblock", "too short"));
    };
    // A clock that stands before 1970 counts as 1970.
    let now = u64::try_from(clock::now().seconds).unwrap_or(0);
    raw.s_wtime.set(now as u32);
    raw.s_wtime_hi = (now >> 32) as u8;
    change(raw);
    if raw.s_feature_ro_compat.get() & RoCompat::METADATA_CSUM.bits() != 0 {
        let sum = crc32c(!0, &raw.as_bytes()[..size_of::<RawSuperblock>() - 4]);
        raw.s_checksum.set(sum);
    }
    device.write_at(SUPERBLOCK_OFFSET, &bytes)?;
    Ok(device.flush()?)
}
