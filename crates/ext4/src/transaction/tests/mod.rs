//! Transactions on images that mke2fs made, in memory. The blocks that they change are free ones of the image, so that
//! the outcome is compared with a model and the filesystem stays one that e2fsck finds in order.

mod crash;
mod failing;
#[cfg(feature = "oracle")]
mod linux;
mod threads;

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice};

use super::{Handle, Seal, Tid};
use crate::jbd2::RecoveryReport;
use crate::numbers::FsBlock;
use crate::open::{OpenOptions, Probed, Writable};
use crate::options::WriteOptions;
use crate::testing::images::{Image, Mke2fs};
use crate::writer::{Mounted, Service, Transactions, Writer};

/// The image's size.
const MIB: u64 = 8;
/// A block that the image does not use, and as many after it.
const FREE: u64 = 6000;
/// jbd2's magic, which a block that begins with it is logged without.
const MAGIC: [u8; 4] = 0xC03B_3998_u32.to_be_bytes();

/// A small filesystem with the smallest log there is, 1024 blocks, or none.
fn image(features: &str) -> Image {
    let mke2fs = Mke2fs::new("ext4", MIB).block_bytes(1024).features(features);
    if features.contains("^has_journal") { mke2fs.make() } else { mke2fs.args(["-J", "size=1"]).make() }
        .unwrap()
}

fn in_memory(image: &Image) -> Device {
    Arc::new(MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite))
}

/// Everything on a device.
#[cfg(feature = "oracle")]
fn bytes_of(device: &Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A writable filesystem.
struct Open {
    volume: Arc<Mounted>,
    service: Service,
    recovery: Option<RecoveryReport>,
}

impl Open {
    fn new(device: Device) -> undercroft_vfs::Result<Self> {
        // Only when it is asked for.
        let options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
        let writable =
            Probed::probe(device, OpenOptions { buffer_bytes: 1 << 20, ..OpenOptions::default() })?
                .recover_onto_device(&WriteOptions::default())?;
        let Writable { volume, transactions, recovery, found_clean, .. } = writable;
        let volume = Arc::new(Mounted::new(volume));
        volume.set_writer(Writer { found_clean, ..Writer::new(&volume, transactions, options)? });
        let service = Service::start(Arc::clone(&volume), options.commit_interval());
        Ok(Self { volume, service, recovery })
    }

    fn transactions(&self) -> &Transactions {
        &self.volume.writer().unwrap().transactions
    }

    #[track_caller]
    fn commit(&self, tid: Tid) {
        self.transactions().commit(tid).unwrap();
    }
}

/// What the block has in a version: never the same for two blocks or two versions; some begin with the log's magic.
fn content(block: u64, version: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = [block as u32, version].map(u32::to_le_bytes).concat().repeat(128);
    if version.is_multiple_of(5) {
        bytes[..4].copy_from_slice(&MAGIC);
    }
    bytes
}

fn put(handle: &Handle<'_>, block: u64, version: u32) {
    handle
        .change(FsBlock(block), Seal::Plain, |bytes| bytes.copy_from_slice(&content(block, version)))
        .unwrap();
}

fn on_device(device: &Device, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    device.read_at(block * 1024, &mut bytes).unwrap();
    bytes
}
