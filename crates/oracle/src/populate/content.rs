//! Files whose bytes are hard to find: fragmented, sparse, unwritten, inline, and of sizes beside every edge
//! of the block map.

use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;

use super::{Plan, noise};
use crate::dir::Dir;
use crate::error::Context;
use crate::{Features, Result};

pub(super) fn populate(top: &Dir, features: &Features, plan: &Plan) -> Result<()> {
    sizes(&top.dir("sizes")?, features)?;
    fragmented(top, features, plan.extent_depth)?;
    sparse(top, features)?;
    punched(top, features)?;
    if features.has("extent") {
        unwritten(top, features)?;
    }
    Ok(())
}

/// Sizes at which the place of the bytes changes: inode body, xattr space, blocks, direct and indirect map.
pub(super) fn sizes(dir: &Dir, features: &Features) -> Result<()> {
    let block = features.block_bytes as usize;
    let inline = [0, 1, 59, 60, 61, 100, 132, 155, 156, 157, 160, 161, 300, 416];
    let blocks = [block - 1, block, block + 1, 2 * block, 12 * block, 12 * block + 1, 13 * block];
    let single_indirect_end = (12 + block / 4) * block;
    let mapped = [single_indirect_end, single_indirect_end + 1];
    let mut all: Vec<usize> = inline.into_iter().chain(blocks).chain(mapped).collect();
    all.sort_unstable();
    all.dedup();
    for size in all {
        dir.file_with(format!("{size}"), size as u64, size)?;
    }
    Ok(())
}

/// Every second block written, so that no two extents can merge, until the tree must have the wanted depth.
fn fragmented(top: &Dir, features: &Features, depth: u32) -> Result<()> {
    let block = u64::from(features.block_bytes);
    // A node has a header of 12 bytes and entries of 12 bytes; the root in the inode holds 4. One more extent
    // than the shallower tree can hold makes it grow; some more keep the new level from being a corner case.
    let per_node = (block - 12) / 12;
    let shallower_holds = if depth == 0 { 1 } else { 4 * per_node.pow(depth - 1) };
    let extents = shallower_holds + shallower_holds / 16 + 2;
    let file = top.file("fragmented")?;
    let mut data = vec![0; block as usize];
    for extent in 0..extents {
        noise(extent, &mut data);
        file.write_all_at(&data, extent * 2 * block).context("write", "fragmented")?;
    }
    Ok(())
}

/// Over 8 GiB with data at odd places: beside 2^31 and 2^32 bytes, across a block edge, and a hole at the end.
/// Revision 0 has no files beyond 2 GiB; there it stays below.
pub(super) fn sparse(top: &Dir, features: &Features) -> Result<()> {
    const GIB: u64 = 1 << 30;
    let places: &[(u64, usize)] = &[
        (4095, 3),
        ((1 << 20) + 7, 5000),
        (GIB + 1, 1),
        (2 * GIB - 1500, 3000),
        (4 * GIB - 5, 10),
        (5 * GIB + 4096, 4096),
        (8 * GIB + 12_345, 777),
    ];
    let (places, size) = if features.revision == 0 {
        (&places[..3], GIB + GIB / 2 + 3)
    } else {
        (places, 8 * GIB + (1 << 20) + 1)
    };
    let file = top.file("sparse")?;
    for &(offset, len) in places {
        let mut data = vec![0; len];
        noise(offset, &mut data);
        file.write_all_at(&data, offset).context("write", "sparse")?;
    }
    file.set_len(size).context("set the size of", "sparse")?;
    top.file("only-a-hole")?
        .set_len(3 * u64::from(features.block_bytes) + 1)
        .context("set the size of", "only-a-hole")
}

/// A file that was dense, with holes punched later, and one cut off within a block.
pub(super) fn punched(top: &Dir, features: &Features) -> Result<()> {
    let block = features.block_bytes as usize;
    let file = top.file_with("punched", 77, 64 * block + 100)?;
    // Delayed allocation would otherwise never allocate what is punched.
    file.sync_all().context("sync", "punched")?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (offset, len) in [(3 * block + 10, 5 * block), (20 * block, block), (50 * block, 64 * block)] {
        rustix::fs::fallocate(&file, punch, offset as u64, len as u64).context("punch", "punched")?;
    }
    let file = top.file_with("cut", 78, 20 * block)?;
    file.sync_all().context("sync", "cut")?;
    file.set_len((7 * block + 11) as u64).context("cut", "cut")
}

/// Space that is allocated and never written: around data, instead of data, and past the end.
pub(super) fn unwritten(top: &Dir, features: &Features) -> Result<()> {
    let block = u64::from(features.block_bytes);
    let allocate = |name: &str, flags, offset, len| {
        let file = top.file(name)?;
        rustix::fs::fallocate(&file, flags, offset, len).context("allocate", name).map(|()| file)
    };
    let around = allocate("unwritten-around", FallocateFlags::empty(), 0, 256 * block)?;
    let mut data = vec![0; 2 * block as usize + 9];
    noise(79, &mut data);
    for at in [block, 100 * block + 5, 254 * block - 9] {
        around.write_all_at(&data, at).context("write", "unwritten-around")?;
    }
    allocate("unwritten-only", FallocateFlags::empty(), 4 * block, 10 * block + 1)?;
    let past = allocate("unwritten-past-the-end", FallocateFlags::KEEP_SIZE, 0, 64 * block)?;
    past.write_all_at(b"short", 0).context("write", "unwritten-past-the-end")
}
