//! Alignment: the stripe that data and inodes follow, and the log's. Source: as for `shape`.

use undercroft_block::BlockDevice;
use undercroft_diskfs::mkfs::{MkfsError, refuse};

use super::options::{MkfsOptions, Stripe};
use super::units::Units;

/// A larger stripe unit of the log is replaced.
const LOG_STRIPE_MAX_BYTES: u64 = 256 << 10;
const LOG_STRIPE_BYTES: u64 = 32 << 10;
/// A smaller filesystem does not follow the device's stripe.
const STRIPE_FROM_BYTES: u64 = 1 << 30;

/// Stripe unit and width, and the log's stripe unit, in blocks; 0 without.
pub(super) struct Stripes {
    pub(super) unit: u64,
    pub(super) width: u64,
    pub(super) log: u64,
}

impl Stripes {
    pub(super) fn decide(
        options: &MkfsOptions,
        device: &dyn BlockDevice,
        units: &Units,
        blocks: u64,
    ) -> Result<Self, MkfsError> {
        let (unit, width) = match options.stripe {
            Stripe::OfDevice => Self::of_device(device, units, blocks),
            Stripe::None | Stripe::Bytes { unit: 0, width: 0 } => (0, 0),
            Stripe::Bytes { unit, width } => Self::given(unit, width, units)?,
        };
        let mut log = match options.log_stripe_bytes {
            Some(bytes) if bytes == 0 || bytes > LOG_STRIPE_MAX_BYTES => {
                return refuse(format!(
                    "the log's stripe unit has up to {LOG_STRIPE_MAX_BYTES} bytes, and not {bytes}"
                ));
            }
            Some(bytes) if !bytes.is_multiple_of(units.block_bytes()) => {
                let block = units.block_bytes();
                return refuse(format!(
                    "the log's stripe unit of {bytes} bytes is no multiple of the block size, {block} bytes"
                ));
            }
            Some(bytes) => bytes >> units.block_log,
            // Records fill whole sectors; blocks do.
            None if units.sector_log > 9 => 1,
            None => unit,
        };
        if log << units.block_log > LOG_STRIPE_MAX_BYTES {
            log = LOG_STRIPE_BYTES >> units.block_log;
        }
        Ok(Self { unit, width, log })
    }

    /// What the device reports, where it makes sense.
    fn of_device(device: &dyn BlockDevice, units: &Units, blocks: u64) -> (u64, u64) {
        let topology = device.topology();
        let physical = topology.physical_block_bytes;
        let reported = |bytes: u32| if bytes > physical { u64::from(bytes) } else { 0 };
        let (unit, width) = (reported(topology.minimum_io_bytes), reported(topology.optimal_io_bytes));
        let makes_sense = unit > 0
            && width >= unit
            && width.is_multiple_of(unit)
            && unit.is_multiple_of(units.block_bytes())
            && width.is_multiple_of(units.block_bytes())
            && blocks >= STRIPE_FROM_BYTES >> units.block_log;
        if makes_sense { (unit >> units.block_log, width >> units.block_log) } else { (0, 0) }
    }

    fn given(unit: u64, width: u64, units: &Units) -> Result<(u64, u64), MkfsError> {
        if unit == 0 || width == 0 || !width.is_multiple_of(unit) {
            return refuse(format!(
                "the stripe width of {width} bytes is no multiple of the stripe unit of {unit} bytes"
            ));
        }
        let block = units.block_bytes();
        if !unit.is_multiple_of(block) {
            return refuse(format!(
                "the stripe unit of {unit} bytes is no multiple of the block size, {block} bytes"
            ));
        }
        if width >> 9 > i32::MAX as u64 {
            return refuse(format!("the stripe width of {width} bytes is too large"));
        }
        Ok((unit >> units.block_log, width >> units.block_log))
    }
}
