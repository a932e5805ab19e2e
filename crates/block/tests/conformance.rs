//! Every device of the crate keeps the contract.

use std::sync::Arc;

use undercroft_block::{Access, Device, MemoryDevice, block_conformance};

fn memory(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(MemoryDevice::from_bytes(content.to_vec(), access)))
}

block_conformance!(memory_device, memory);
