//! Arrays of every level keep the contract of block devices.

use std::sync::Arc;

use undercroft_block::{Access, BlockDevice as _, Device, block_conformance};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Layout, Level, Raid10Copies};

use super::support::{blank, modest, small};

const CHUNK: u64 = 4096;
/// The suite's content is 7 * 37 blocks of 4 KiB.
const ROWS: u64 = 37;

/// What members need for so many chunks: RAID1 wants whole 64 KiB.
fn room(level: Level, chunks: u64) -> u64 {
    let bytes = chunks * CHUNK;
    if level == Level::Raid1 { bytes.next_multiple_of(64 << 10) } else { bytes }
}

/// An array of `members`, with `chunks` on each, that holds `content`.
fn array(content: &[u8], access: Access, new: &CreateOptions, members: usize, chunks: u64) -> Option<Device> {
    let devices = blank(members, room(new.level, chunks));
    let chunk_bytes = new.chunk_bytes.map(|_| CHUNK as u32);
    let new = CreateOptions {
        chunk_bytes,
        member_bytes: new.level.is_redundant().then_some(chunks * CHUNK),
        ..new.clone()
    };
    let array = Array::create(devices.clone(), &new, modest()).unwrap();
    assert_eq!(array.size_bytes(), content.len() as u64);
    array.write_at(0, content).unwrap();
    if access == Access::ReadWrite {
        return Some(Arc::new(array));
    }
    array.close().unwrap();
    let options = ArrayOptions { read_only: true, ..modest() };
    Some(Arc::new(Array::open(devices, options).unwrap()))
}

/// The same with the first member lost.
fn degraded(content: &[u8], access: Access, level: Level, members: usize, chunks: u64) -> Option<Device> {
    if access == Access::ReadOnly {
        return None;
    }
    let devices = blank(members, room(level, chunks));
    let chunk_bytes = small(level).chunk_bytes.map(|_| CHUNK as u32);
    let new = CreateOptions { chunk_bytes, member_bytes: Some(chunks * CHUNK), ..small(level) };
    let array = Array::create(devices, &new, modest()).unwrap();
    array.write_at(0, content).unwrap();
    array.fail(0).unwrap();
    Some(Arc::new(array))
}

fn linear(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &small(Level::Linear), 7, ROWS)
}

fn raid0(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &small(Level::Raid0), 7, ROWS)
}

fn raid1(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &small(Level::Raid1), 3, 7 * ROWS)
}

fn raid4(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &small(Level::Raid4), 8, ROWS)
}

fn raid5(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &small(Level::Raid5), 8, ROWS)
}

fn raid6(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &small(Level::Raid6), 9, ROWS)
}

fn raid10(near: u8, far: u8, offset: bool) -> CreateOptions {
    let layout = Some(Layout::Copies(Raid10Copies { near, far, offset }));
    CreateOptions { layout, ..small(Level::Raid10) }
}

fn raid10_near(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &raid10(2, 1, false), 7, 2 * ROWS)
}

fn raid10_far(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &raid10(1, 2, false), 7, 2 * ROWS)
}

fn raid10_offset(content: &[u8], access: Access) -> Option<Device> {
    array(content, access, &raid10(1, 2, true), 7, 2 * ROWS)
}

fn raid5_with_bitmap(content: &[u8], access: Access) -> Option<Device> {
    let new = CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(16384), ..small(Level::Raid5) };
    array(content, access, &new, 8, ROWS)
}

fn raid5_with_log(content: &[u8], access: Access) -> Option<Device> {
    // The log wants a MiB before the data.
    let devices: Vec<Device> = (0..8)
        .map(|_| Arc::new(undercroft_block::MemoryDevice::new((2 << 20) + ROWS * CHUNK)) as Device)
        .collect();
    let new = CreateOptions {
        ppl: true,
        chunk_bytes: Some(CHUNK as u32),
        data_offset: Some(2 << 20),
        member_bytes: Some(ROWS * CHUNK),
        ..small(Level::Raid5)
    };
    let array = Array::create(devices, &new, modest()).unwrap();
    array.write_at(0, content).unwrap();
    (access == Access::ReadWrite).then(|| Arc::new(array) as Device)
}

fn raid1_degraded(content: &[u8], access: Access) -> Option<Device> {
    degraded(content, access, Level::Raid1, 2, 7 * ROWS)
}

fn raid5_degraded(content: &[u8], access: Access) -> Option<Device> {
    degraded(content, access, Level::Raid5, 8, ROWS)
}

fn raid6_degraded(content: &[u8], access: Access) -> Option<Device> {
    degraded(content, access, Level::Raid6, 9, ROWS)
}

block_conformance!(linear_array, linear);
block_conformance!(raid0_array, raid0);
block_conformance!(raid1_array, raid1);
block_conformance!(raid4_array, raid4);
block_conformance!(raid5_array, raid5);
block_conformance!(raid6_array, raid6);
block_conformance!(raid10_near_array, raid10_near);
block_conformance!(raid10_far_array, raid10_far);
block_conformance!(raid10_offset_array, raid10_offset);
block_conformance!(raid5_array_with_bitmap, raid5_with_bitmap);
block_conformance!(raid5_array_with_log, raid5_with_log);
block_conformance!(raid1_array_degraded, raid1_degraded);
block_conformance!(raid5_array_degraded, raid5_degraded);
block_conformance!(raid6_array_degraded, raid6_degraded);
