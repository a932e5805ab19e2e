//! Every device of the crate keeps the contract.

use std::sync::Arc;

use std::io::Write;

use undercroft_block::{
    Access, Device, FileDevice, FileOptions, MemoryDevice, PartitionDevice, block_conformance,
};

fn memory(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(MemoryDevice::from_bytes(content.to_vec(), access)))
}

block_conformance!(memory_device, memory);

/// A file that has no name any more by the time the test uses it. On the disk of the build, not in memory, so that
/// direct I/O is what it says.
fn file(content: &[u8], options: FileOptions) -> FileDevice {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(content).unwrap();
    FileDevice::open(file.path(), options).unwrap()
}

fn options(access: Access) -> FileOptions {
    FileOptions { access, ..FileOptions::read_only() }
}

fn file_with_io_uring(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(file(content, options(access))))
}

fn file_without_io_uring(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(file(content, FileOptions { io_uring: false, ..options(access) })))
}

fn direct_file(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(file(content, FileOptions { direct: true, ..options(access) })))
}

fn direct_file_without_io_uring(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(file(content, FileOptions { direct: true, io_uring: false, ..options(access) })))
}

block_conformance!(file_device, file_with_io_uring);
block_conformance!(file_device_without_io_uring, file_without_io_uring);
block_conformance!(direct_file_device, direct_file);
block_conformance!(direct_file_device_without_io_uring, direct_file_without_io_uring);

/// A window that begins and ends inside a sector of its base.
fn partition(content: &[u8], access: Access) -> Option<Device> {
    let around = [&[0xee; 777], content, &[0xee; 555]].concat();
    let base = Arc::new(MemoryDevice::from_bytes(around, access));
    Some(Arc::new(PartitionDevice::new(base, 777, content.len() as u64).unwrap()))
}

block_conformance!(partition_device, partition);
