//! The forks of an inode: its content and its extended attributes, as the inode's bytes have them.

use std::sync::{Arc, OnceLock};

use undercroft_vfs::DeviceNumber;
use zerocopy::FromBytes;

use super::incore_extents::IncoreExtents;
use crate::error::Verdict;
use crate::format::Geometry;
use crate::format::dinode::ForkFormat;
use crate::format::extent::{EXTENT_BYTES, Extent, RawExtent};

/// Which fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForkKind {
    Data,
    Attr,
}

/// What a fork holds.
#[derive(Clone, Debug)]
pub(crate) enum Fork {
    /// A device's number.
    Device(DeviceNumber),
    /// The bytes themselves.
    Local(Arc<[u8]>),
    /// Extents, validated and in order.
    Extents(Arc<[Extent]>),
    /// A B+tree of extents.
    Btree(Arc<ExtentTree>),
}

/// A B+tree of extents whose root is in the inode.
#[derive(Debug)]
pub(crate) struct ExtentTree {
    /// The fork's bytes, validated where they are read.
    pub(crate) root: Arc<[u8]>,
    /// As many extents as the inode counts.
    pub(crate) extents: u64,
    /// What the tree has, once all of it has been read.
    pub(crate) found: OnceLock<Found>,
}

/// What a tree of extents has.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// How many extents; at most one more than the inode counts. A leaf that lost records reads as a hole, and only this
    /// number shows it.
    pub(crate) extents: u64,
    /// The extents, if they are as many as the inode counts and few enough to be kept.
    pub(crate) known: Option<IncoreExtents>,
}

impl Fork {
    /// From a fork's bytes, whose format and count fit them. Of content in the fork `size_bytes` count.
    pub(super) fn new(
        bytes: &[u8],
        format: ForkFormat,
        extents: u64,
        size_bytes: u64,
        geometry: &Geometry,
    ) -> Verdict<Self> {
        Ok(match format {
            ForkFormat::Device => Self::Device(device_number(bytes)),
            ForkFormat::Local => Self::Local(bytes[..bytes.len().min(size_bytes as usize)].into()),
            ForkFormat::Extents => {
                let records = &bytes[..bytes.len().min(extents as usize * EXTENT_BYTES)];
                Self::Extents(read_extents(records, geometry)?.into())
            }
            ForkFormat::Btree => {
                Self::Btree(Arc::new(ExtentTree { root: bytes.into(), extents, found: OnceLock::new() }))
            }
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Device(_) => 0,
            Self::Local(bytes) => bytes.len(),
            Self::Btree(tree) => {
                let known = tree.found.get().and_then(|found| found.known.as_ref());
                size_of::<ExtentTree>() + tree.root.len() + known.map_or(0, IncoreExtents::memory_bytes)
            }
            Self::Extents(extents) => size_of_val(&extents[..]),
        }
    }
}

/// Validates extent records: each by itself, and their order.
fn read_extents(records: &[u8], geometry: &Geometry) -> Verdict<Vec<Extent>> {
    let mut extents: Vec<Extent> = Vec::with_capacity(records.len() / EXTENT_BYTES);
    for bytes in records.chunks_exact(EXTENT_BYTES) {
        let Ok(raw) = RawExtent::read_from_bytes(bytes) else { continue };
        let extent = raw.unpack();
        extent.validate(geometry)?;
        if let Some(before) = extents.last()
            && before.end() > extent.file.0
        {
            return Err(format!(
                "the extent at file block {} follows one that ends at {}",
                extent.file,
                before.end()
            )
            .into());
        }
        extents.push(extent);
    }
    Ok(extents)
}

/// Linux keeps 14 bits of the driver above 18 bits of the device.
fn device_number(bytes: &[u8]) -> DeviceNumber {
    let raw = bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    DeviceNumber { major: raw >> 18 & 0x3fff, minor: raw & 0x3_ffff }
}
