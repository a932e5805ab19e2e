//! Transactions on images that mkfs.xfs made, in memory. The blocks that they change are free ones of the image, which
//! hold parts of symbolic links that no inode has: Linux accepts them at a recovery, and xfs_repair does not look at
//! them.

mod crash;
mod failing;
mod linux;
mod reuse;
mod whole;

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::{Image, MkfsXfs};

use super::{Handle, Seal, Tid};
use crate::ag::Agf;
use crate::alloc::Allocator;
use crate::format::FsBlock;
use crate::format::block_header::HeaderKind;
use crate::format::crc;
use crate::log::Recovery;
use crate::open::{OpenOptions, Probed, ReadyToWrite};
use crate::options::WriteOptions;
use crate::writer::{Mounted, Service, Transactions, Writer};

/// Blocks that tests change.
const BLOCKS: u64 = 400;
/// Where the content of such a block begins, behind its header.
const CONTENT: usize = 56;

fn image(mib: u64, args: &str) -> Image {
    MkfsXfs::new(mib, args).make().unwrap()
}

fn in_memory(image: &Image) -> Device {
    Arc::new(MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite))
}

/// Everything on a device.
fn bytes_of(device: &Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A writable filesystem.
struct Open {
    volume: Arc<Mounted>,
    service: Service,
    recovery: Option<Recovery>,
    /// The first of [`BLOCKS`] free blocks.
    free: u64,
}

impl Open {
    fn new(device: Device) -> undercroft_vfs::Result<Self> {
        // Only when it is asked for.
        let options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
        let writable =
            Probed::probe(device, OpenOptions { buffer_bytes: 1 << 20, ..OpenOptions::default() })?
                .recover_onto_device()?;
        let ReadyToWrite { volume, transactions, recovery, .. } = writable;
        let geometry = *volume.geometry();
        let last = geometry.ags().last().unwrap();
        let mut free = None;
        Agf::read(&volume, last)?.by_space(&volume)?.for_each(|extent| {
            if u64::from(extent.count) > BLOCKS {
                free = geometry.join(last, extent.start).and_then(|block| geometry.linear(block));
            }
            Ok(())
        })?;
        let volume = Arc::new(Mounted::new(volume));
        let allocator = Arc::new(Allocator::without_groups());
        volume.set_writer(Writer::with(allocator, transactions, options));
        let service = Service::start(Arc::clone(&volume), options.commit_interval());
        Ok(Self { volume, service, recovery, free: free.unwrap() })
    }

    fn transactions(&self) -> &Transactions {
        &self.volume.writer().unwrap().transactions
    }

    #[track_caller]
    fn commit(&self, tid: Tid) {
        self.transactions().commit(tid).unwrap();
    }

    /// One of the free blocks.
    fn block(&self, number: u64) -> FsBlock {
        self.volume.geometry().block_at_linear(self.free + number).unwrap()
    }

    /// Makes a block metadata.
    fn make(&self, handle: &Handle<'_>, number: u64, version: u32) {
        let block = self.block(number);
        let content = content(&self.volume, number, version);
        let daddr = self.volume.geometry().daddr(block).unwrap();
        handle
            .make(block, Seal::Symlink, |bytes| {
                bytes[..4].copy_from_slice(b"XSLM");
                bytes[8..12].copy_from_slice(&512_u32.to_be_bytes());
                bytes[16..32].copy_from_slice(self.volume.superblock().meta_uuid().as_bytes());
                bytes[32..40].copy_from_slice(&99_u64.to_be_bytes());
                bytes[40..48].copy_from_slice(&daddr.0.to_be_bytes());
                bytes[CONTENT..].copy_from_slice(&content);
            })
            .unwrap();
    }

    /// Changes it.
    fn put(&self, handle: &Handle<'_>, number: u64, version: u32) {
        let content = content(&self.volume, number, version);
        handle
            .change(self.block(number), Seal::Symlink, |bytes| bytes[CONTENT..].copy_from_slice(&content))
            .unwrap();
    }

    /// Writes data over it, durably.
    fn write_data(&self, number: u64, version: u32) {
        let device = self.volume.device();
        let bytes = data(&self.volume, number, version);
        device
            .write_at((self.free + number) * u64::from(self.volume.geometry().block_bytes()), &bytes)
            .unwrap();
        device.flush().unwrap();
    }

    fn on_device(&self, device: &Device, number: u64) -> Vec<u8> {
        let len = self.volume.geometry().block_bytes();
        let mut bytes = vec![0; len as usize];
        device.read_at((self.free + number) * u64::from(len), &mut bytes).unwrap();
        bytes
    }

    /// Whether the block has this version on a device, and is sealed.
    fn has(&self, device: &Device, number: u64, version: u32) -> bool {
        let bytes = self.on_device(device, number);
        crc::verify(&bytes, HeaderKind::Remote.crc_offset()).is_ok()
            && bytes[CONTENT..] == content(&self.volume, number, version)
    }
}

/// What follows a block's header in a version: never the same for two blocks or two versions. Some have the log's magic
/// number where words are displaced.
fn content(volume: &Mounted, number: u64, version: u32) -> Vec<u8> {
    let mut bytes = data(volume, number, version);
    if version.is_multiple_of(5) {
        bytes.chunks_exact_mut(8).for_each(|word| word[..4].copy_from_slice(&0xFEED_BABE_u32.to_be_bytes()));
    }
    bytes.truncate(bytes.len() - CONTENT);
    bytes
}

/// File content: no block of metadata.
fn data(volume: &Mounted, number: u64, version: u32) -> Vec<u8> {
    [number as u32, version]
        .map(u32::to_le_bytes)
        .concat()
        .repeat(volume.geometry().block_bytes() as usize / 8)
}
