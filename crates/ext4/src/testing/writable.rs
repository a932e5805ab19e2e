//! For unit tests: an image that is open for changes, and what checks the outcome; see `images`.
//!
//! The volume works on the image file itself. Nothing commits by itself: a test commits when it wants the disk to
//! have what it did, and [`Writable::finish`] does so a last time and hands the image to its checkers.

use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};

use crate::inode::{self, Inode};
use crate::live::Live;
use crate::options::WriteOptions;
use crate::superblock::{self, Superblock};
use crate::testing::images::{Image, Mke2fs};
use crate::transaction::Tid;
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

/// Blocks that a transaction has room for.
const ROOM: u32 = 10_000;

/// An image that is open for changes.
pub(crate) struct Writable {
    pub(crate) volume: Arc<Mounted>,
    image: Image,
}

impl Writable {
    /// Makes an image and opens it.
    pub(crate) fn make(mke2fs: &Mke2fs) -> Self {
        Self::open(mke2fs.make().unwrap(), WriteOptions::default())
    }

    /// Opens an image, which must have been left clean.
    pub(crate) fn open(image: Image, options: WriteOptions) -> Self {
        let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
        Self::open_on(Arc::new(device), image, options)
    }

    /// As [`open`](Self::open), through a device that the test has laid over the image's file.
    pub(crate) fn open_on(device: Device, image: Image, options: WriteOptions) -> Self {
        let superblock = Superblock::read(&*device).unwrap();
        assert!(!superblock.needs_recovery(), "the image has not been left clean");
        let volume = Arc::new(Mounted::new(Volume::new(device, superblock, 8 << 20)));
        let transactions = Transactions::unlogged(Tid(1), ROOM, Arc::default());
        volume.set_writer(Writer::new(&volume, transactions, options).unwrap());
        Self { volume, image }
    }

    /// An in-memory inode.
    pub(crate) fn live(&self, number: u32) -> Arc<Live> {
        let location = inode::locate(&self.volume, number).unwrap();
        let inode = Inode::read_located(&self.volume, number, location).unwrap();
        Arc::new(Live::new(Arc::clone(&self.volume), inode, location))
    }

    /// Commits and writes everything to the disk.
    pub(crate) fn commit(&self) {
        self.volume.writer().unwrap().transactions.commit_running(&self.volume).unwrap();
    }

    /// Commits, leaves the image clean but for orphans, and releases it without closing it.
    pub(crate) fn close(self) -> Image {
        self.commit();
        let without_orphans = self.volume.writer().unwrap().orphans.file_is_empty();
        superblock::mark_clean(&**self.volume.device(), without_orphans, true).unwrap();
        self.image
    }

    /// Commits and checks whether everything is in order.
    pub(crate) fn finish(self) -> Image {
        let image = self.close();
        image.check().unwrap();
        image
    }
}

#[test]
fn an_unchanged_image_stays_as_it_was() {
    let writable = Writable::make(&Mke2fs::new("ext4", 8).features("^has_journal"));
    assert_eq!(writable.live(inode::ROOT_INODE).number, inode::ROOT_INODE);
    writable.finish();
}
