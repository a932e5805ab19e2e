//! What any [`BlockDevice`] must do, as a suite that every device runs.
//!
//! A device's tests call [`block_conformance!`](crate::block_conformance) with a factory: a function that makes a
//! fresh device of given content and access, or `None` if it cannot be made with that access. The macro writes
//! one test per case. The content handed out is [`SIZE`] bytes, a multiple of 4096, so that devices that only
//! come in whole blocks can take part.
//!
//! Covered: ranges and refusals, zeroing and discarding, batches, threads, and a random sequence of operations
//! against a model. Not covered: durability, which takes a crash; see the devices in the module `testing` for that.

pub mod batches;
pub mod model;
pub mod ranges;
pub mod threads;

use crate::rng::Rng;
use crate::{Access, BlockDevice, Device};

/// Size in bytes of the devices that the suite asks for.
pub const SIZE: usize = 1024 * 1024 + 3 * 4096;

/// Makes a device of this content and access.
pub type Factory<'a> = &'a dyn Fn(&[u8], Access) -> Option<Device>;

/// Content that differs from place to place, has no zero bytes and depends on `seed`.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| (rng.bits() % 255 + 1) as u8).collect()
}

/// A fresh writable device and its content, or nothing to check if the factory makes none.
fn writable(factory: Factory<'_>) -> Option<(Device, Vec<u8>)> {
    let content = pattern(1, SIZE);
    Some((factory(&content, Access::ReadWrite)?, content))
}

/// A fresh device of either kind and its content.
fn readable(factory: Factory<'_>) -> (Device, Vec<u8>) {
    let content = pattern(2, SIZE);
    let device = factory(&content, Access::ReadOnly)
        .or_else(|| factory(&content, Access::ReadWrite))
        .expect("the factory makes a device of some kind");
    (device, content)
}

/// The bytes of a range.
fn bytes_at<D: BlockDevice + ?Sized>(device: &D, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    device.read_at(offset, &mut buf).unwrap_or_else(|error| panic!("read {len} bytes at {offset}: {error}"));
    buf
}

/// Fails with the first differing byte rather than with a megabyte of numbers.
#[track_caller]
fn assert_same(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "length");
    if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
        panic!("byte {at} is {:#04x}, expected {:#04x}", found[at], expected[at]);
    }
}

/// Fails unless the device holds exactly `expected`.
#[track_caller]
fn assert_content<D: BlockDevice + ?Sized>(device: &D, expected: &[u8]) {
    assert_same(&bytes_at(device, 0, expected.len()), expected);
}

/// Writes a module of tests, one per case of the suite, for the devices that a factory makes.
///
/// ```
/// # fn main() {}
/// # use std::sync::Arc;
/// # use undercroft_block::{Access, Device, MemoryDevice};
/// fn memory(content: &[u8], access: Access) -> Option<Device> {
///     Some(Arc::new(MemoryDevice::from_bytes(content.to_vec(), access)))
/// }
/// undercroft_block::block_conformance!(memory_device, memory);
/// ```
#[macro_export]
macro_rules! block_conformance {
    ($module:ident, $factory:expr) => {
        mod $module {
            use super::*;
            $crate::block_conformance!(@case $factory, ranges:
                content_and_size, reads_of_any_alignment, writes_of_any_alignment, later_write_wins, end_of_device,
                out_of_range_is_refused, empty_requests, zeroing, discarding,
                data_is_where_it_is_said_to_be, read_only_refuses, flush_and_topology);
            $crate::block_conformance!(@case $factory, batches:
                mixed_batch, batch_of_writes, empty_and_single_batches, large_requests_in_a_batch,
                batch_with_a_bad_range, read_only_batch);
            $crate::block_conformance!(@case $factory, threads:
                neighbours_keep_their_bytes, regions_in_parallel, overlapping_writes_are_old_or_new);
            $crate::block_conformance!(@case $factory, model: random_operations);
        }
    };
    (@case $factory:expr, $group:ident: $($case:ident),+) => {
        $(
            #[test]
            fn $case() {
                $crate::conformance::$group::$case(&$factory);
            }
        )+
    };
}
