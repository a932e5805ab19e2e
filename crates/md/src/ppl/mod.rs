//! The partial parity log, which closes the write hole of RAID5.
//!
//! Before a part of a stripe is written, the XOR of the data that the write leaves as it is goes into the log
//! of the member that holds the stripe's parity. After an unclean stop, that and the data that was written, as much of
//! it as arrived, give a parity that matches, so that what was not written can be reconstructed even if a member is
//! lost. The data itself is not protected: a block that was being written is old, new, or torn.
//!
//! `raw` has the bytes and validates them, `log` writes records while the array runs, `replay` makes parity right when
//! an unclean array is opened. The log of each member lies in its own place, outside the data area.

mod log;
mod raw;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use log::{Log, LogEntry, Logged};
#[cfg(test)]
use replay::Replayed;
pub(crate) use replay::{MemberLog, empty, replay};

use undercroft_block::BlockDevice;
use uuid::Uuid;
use zerocopy::IntoBytes as _;

use crate::Result;
use crate::superblock::Area;

/// Writes an empty log, and forgets all records. Not durable before a flush.
///
/// # Errors
/// When the device fails.
pub(crate) fn format(device: &dyn BlockDevice, area: Area, array_uuid: Uuid) -> Result<()> {
    device.write_zeroes(area.offset, area.bytes)?;
    let header = raw::encode(raw::signature(array_uuid), 0, &[]);
    device.write_at(area.offset, header.as_bytes())?;
    Ok(())
}
