//! Block devices: the contract, and every device that is not made of other devices' redundancy.
//!
//! | device | what it is |
//! | --- | --- |
//! | [`FileDevice`] | a regular file or a block device |
//! | [`MemoryDevice`] | sparse bytes in memory |
//! | [`Qcow2Device`] | a qcow2 image; [`open_image`] tells it from a raw one |
//! | [`Overlay`] | writes beside a base that stays as it is |
//! | [`PartitionDevice`] | a range of another device, as [`partition`] tables name them |
//! | [`CutShortDevice`] | the front of a device whose end is missing, for reading |
//! | [`ForgettingDevice`] | another device, whose discarded ranges count as zeroes |
//! | [`FreezableDevice`] | another device, whose writes wait while it is frozen |
//! | [`LatchedDevice`] | another device, of which a failed flush is remembered |
//!
//! ```
//! use std::sync::Arc;
//! use undercroft_block::{BlockDevice, MemoryDevice, Overlay};
//!
//! // Changes on trial: the base stays as it is.
//! let base = Arc::new(MemoryDevice::new(1 << 20));
//! let trial = Overlay::new(base.clone());
//! trial.write_at(512, b"changed")?;
//! let mut read = [0; 7];
//! base.read_at(512, &mut read)?;
//! assert_eq!(read, [0; 7]);
//! # Ok::<(), undercroft_block::Error>(())
//! ```
//!
//! Two modules are for tests, here and in the crates above, each behind a feature of its own name: `conformance`, a
//! suite that any device must pass, and `testing` (`test-devices`), devices built to fail and to crash, and the random
//! numbers of all tests.
//!
//! This crate knows nothing of filesystems, arrays or caches but the marks that [`probe`] finds. `unsafe` is allowed in the module that hands
//! buffers to io_uring, in the one that asks loop devices for their files, and in those that stand between the crate imago and the files of a qcow2 image.

#[cfg(feature = "conformance")]
pub mod conformance;
mod copy;
mod cut_short;
mod device;
mod error;
mod file;
mod flush_latch;
mod forgetting;
mod forward;
mod freeze;
mod image;
mod memory;
pub mod mountinfo;
mod open_error;
mod overlay;
pub mod partition;
mod partition_device;
pub mod probe;
#[cfg(feature = "test-devices")]
mod rng;
mod span;
mod sparse;
#[cfg(feature = "test-devices")]
pub mod testing;

pub use copy::{Copied, copy};
pub use cut_short::CutShortDevice;
pub use device::{
    Access, BlockDevice, ClaimedDevice, Device, NextData, Request, Topology, check_range, check_write,
};
pub use error::{Error, Operation, Result};
pub use file::{FileDevice, FileOptions, Holder, InUse, Locking};
pub use flush_latch::{FlushLatch, LatchedDevice};
pub use forgetting::ForgettingDevice;
pub use freeze::{FreezableDevice, FreezerGone};
pub use image::{ImageFormat, ImageOptions, Qcow2Device, open_image};
pub use memory::MemoryDevice;
pub use open_error::OpenError;
pub use overlay::{Overlay, OverlayStore};
pub use partition_device::PartitionDevice;
