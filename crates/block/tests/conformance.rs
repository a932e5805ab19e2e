//! Every device of the crate keeps the contract; qcow2 images have the suite in `crates/oracle`.

use std::sync::Arc;

use std::io::Write;

use undercroft_block::testing::{FailNth, Latency, LoseUnflushed, Recorder, Repeat, Slow};
use undercroft_block::{
    Access, Device, FileDevice, FileOptions, MemoryDevice, Operation, Overlay, OverlayStore, PartitionDevice,
    block_conformance,
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

fn overlay_on(content: &[u8], store: &OverlayStore) -> Device {
    let base = Arc::new(MemoryDevice::from_bytes(content.to_vec(), Access::ReadOnly));
    Arc::new(Overlay::with_store(base, store).unwrap())
}

fn overlay(content: &[u8], access: Access) -> Option<Device> {
    (access == Access::ReadWrite).then(|| overlay_on(content, &OverlayStore::Memory))
}

fn overlay_in_a_file(content: &[u8], access: Access) -> Option<Device> {
    let store = OverlayStore::TempFile(env!("CARGO_TARGET_TMPDIR").into());
    (access == Access::ReadWrite).then(|| overlay_on(content, &store))
}

/// A window onto an overlay whose chunks lie across those of the window, and which ends inside a chunk.
fn overlay_in_a_window(content: &[u8], access: Access) -> Option<Device> {
    if access == Access::ReadOnly {
        return None;
    }
    let around = [&[0xee; 777], content, &[0xee; 555]].concat();
    Some(Arc::new(
        PartitionDevice::new(overlay_on(&around, &OverlayStore::Memory), 777, content.len() as u64).unwrap(),
    ))
}

block_conformance!(overlay_device, overlay);
block_conformance!(overlay_device_in_a_file, overlay_in_a_file);
block_conformance!(overlay_device_in_a_window, overlay_in_a_window);

fn base(content: &[u8], access: Access) -> Device {
    Arc::new(MemoryDevice::from_bytes(content.to_vec(), access))
}

fn recorder(content: &[u8], access: Access) -> Option<Device> {
    (access == Access::ReadWrite).then(|| Arc::new(Recorder::new(base(content, Access::ReadOnly))) as Device)
}

fn failing_never(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(FailNth::new(base(content, access), Operation::Read, 0, Repeat::Once)))
}

fn slow(content: &[u8], access: Access) -> Option<Device> {
    let latency = Latency { queue_depth: 4, ..Latency::of_all(std::time::Duration::ZERO) };
    Some(Arc::new(Slow::new(base(content, access), latency)))
}

fn volatile(content: &[u8], access: Access) -> Option<Device> {
    Some(Arc::new(LoseUnflushed::new(base(content, access), 1)))
}

block_conformance!(recording_device, recorder);
block_conformance!(failing_device, failing_never);
block_conformance!(slow_device, slow);
block_conformance!(volatile_device, volatile);
