//! Block devices: the contract, and every device that is not made of other devices' redundancy.

mod device;
mod error;
mod memory;

pub use device::{Access, BlockDevice, Device, Request, Topology};
pub use error::{Error, Operation, Result};
pub use memory::MemoryDevice;
