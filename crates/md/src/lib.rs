//! Linux software RAID ("md") in user space: an [`Array`] is a block device made of block devices.
//!
//! ```
//! use std::sync::Arc;
//! use undercroft_block::{BlockDevice, Device, MemoryDevice};
//! use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};
//!
//! let disks: Vec<Device> = (0..3).map(|_| Arc::new(MemoryDevice::new(16 << 20)) as Device).collect();
//! let array = Array::create(disks, &CreateOptions::new(Level::Raid5), ArrayOptions::default())?;
//! array.write_at(1 << 20, b"striped, with parity")?;
//! array.fail(0)?;
//! let mut read = [0; 7];
//! array.read_at(1 << 20, &mut read)?;
//! assert_eq!(&read, b"striped");
//! array.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Array affairs are kept apart from level arithmetic. What an array is ([`Geometry`]), which members take part in it and how
//! far each may be believed (`member`), and what is told to the superblocks (`recorder`) know nothing of levels; a
//! level (`level`) knows nothing of superblocks.
//!
//! All offsets and lengths are in bytes; sectors of 512 bytes appear in on-disk structures only.

mod array;
mod assemble;
mod bad_blocks;
mod bitmap;
mod corrected;
mod create;
mod error;
mod examine;
mod fan_out;
#[cfg(test)]
mod fixtures;
mod geometry;
mod helpers;
#[cfg_attr(not(test), expect(dead_code, reason = "what tells of devices without starting them is under way"))]
mod layout;
mod level;
mod member;
pub mod parity;
mod ppl;
mod quiesce;
mod recorder;
mod redundancy;
mod stripe;
mod superblock;
mod timeout;

pub use array::{
    Action, Array, ArrayOptions, BitmapStatus, ConsistencyPolicy, Duty, Event, Finished, MemberStatus,
    Progress, Status,
};
pub use assemble::LeftOutReason;
pub use create::{CreateOptions, create_array};
pub use error::{Error, Result};
pub use examine::{Examined, ExaminedBadBlocks, ExaminedBitmap, examine};
pub use geometry::{Geometry, Layout, Level, ParityLayout, Raid10Copies};
pub use level::Counters;
pub use stripe::StripeWake;
pub use superblock::{DeviceRole, Timestamp, Version};
