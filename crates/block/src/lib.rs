//! Block devices: the contract, and every device that is not made of other devices' redundancy.
//!
//! | device | what it is |
//! | --- | --- |
//! | [`MemoryDevice`] | sparse bytes in memory |

#[cfg(feature = "conformance")]
pub mod conformance;
mod device;
mod error;
mod memory;
#[cfg(any(feature = "conformance", feature = "test-devices"))]
mod rng;
mod span;
mod sparse;

pub use device::{Access, BlockDevice, Device, Request, Topology, check_range, check_write};
pub use error::{Error, Operation, Result};
pub use memory::MemoryDevice;
