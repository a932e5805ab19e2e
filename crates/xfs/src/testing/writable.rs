//! For unit tests: an image by mkfs.xfs that is open for changes, and what checks the outcome.
//!
//! The volume works on the image file itself, and without a log: a commit writes home. Nothing commits by itself: a test
//! commits when it wants the disk to have what it did, and [`Writable::finish`] does so a last time, stores the
//! superblock's counters, and has xfs_repair and this crate's own check look at the image.

use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions, Locking};
use undercroft_oracle::{Image, MkfsXfs};
use undercroft_vfs::Ino;

use crate::check::{CheckOptions, CheckReport, check};
use crate::format::Superblock;
use crate::inode::Inode;
use crate::live::Live;
use crate::log;
use crate::options::WriteOptions;
use crate::transaction::{Stop, Tid};
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

/// Units of 512 bytes that a transaction has room for.
const ROOM: u32 = 200_000;

/// An image that is open for changes.
pub(crate) struct Writable {
    pub(crate) volume: Arc<Mounted>,
    image: Image,
}

impl Writable {
    /// Has mkfs.xfs make an image of so many MiB with these arguments, separated by spaces, and opens it.
    pub(crate) fn make(size_mib: u64, args: &str) -> Self {
        Self::open(MkfsXfs::new(size_mib, args).make().unwrap(), WriteOptions::default())
    }

    /// Opens an image, which must have been unmounted.
    pub(crate) fn open(image: Image, options: WriteOptions) -> Self {
        // Tools look at the file while it is open.
        let file = FileOptions { locking: Locking::None, ..FileOptions::read_write() };
        let device = FileDevice::open(image.path(), file).unwrap();
        Self::open_on(Arc::new(device), image, options)
    }

    /// As [`open`](Self::open), through a device that the test has laid over the image's file.
    pub(crate) fn open_on(device: Device, image: Image, options: WriteOptions) -> Self {
        let superblock = Superblock::read(&*device).unwrap();
        let recovered = log::recover(&device, None, &superblock).unwrap();
        assert!(recovered.recovery.is_none(), "the image was not unmounted");
        let stop = Arc::<Stop>::default();
        let volume = Volume::for_changes(device, superblock, 8 << 20, Arc::clone(&stop));
        let volume = Arc::new(Mounted::new(volume));
        let transactions = Transactions::unlogged(Tid(1), ROOM, stop);
        volume.set_writer(Writer::new(&volume, transactions, options).unwrap());
        Self { volume, image }
    }

    /// What makes changes.
    pub(crate) fn writer(&self) -> &Writer {
        self.volume.writer().unwrap()
    }

    /// An in-memory inode.
    pub(crate) fn live(&self, ino: Ino) -> Arc<Live> {
        Live::shared(Arc::clone(&self.volume), Inode::read(&self.volume, ino).unwrap())
    }

    /// The root directory.
    pub(crate) fn root(&self) -> Arc<Live> {
        self.live(self.volume.superblock().root())
    }

    /// Commits and writes everything to the disk.
    pub(crate) fn commit(&self) {
        self.writer().transactions.commit_running(&self.volume).unwrap();
    }

    /// Commits, leaves the image as an unmount does, and releases it without checking it.
    pub(crate) fn close(self) -> Image {
        self.commit();
        log::store_counters(self.volume.device(), self.volume.superblock()).unwrap();
        self.image
    }

    /// Commits and checks whether everything is in order.
    pub(crate) fn finish(self) -> Image {
        let image = self.close();
        check_image(&image);
        image
    }

    /// Commits, stores the counters and has this crate's own check look; the image stays open.
    pub(crate) fn own_check(&self) -> CheckReport {
        self.commit();
        log::store_counters(self.volume.device(), self.volume.superblock()).unwrap();
        own_check(&self.image)
    }

    /// Commits, stores the counters and checks; the image stays open.
    pub(crate) fn check(&self) {
        self.commit();
        log::store_counters(self.volume.device(), self.volume.superblock()).unwrap();
        check_image(&self.image);
    }
}

/// This crate's own check of an image that was left clean.
fn own_check(image: &Image) -> CheckReport {
    let file = FileOptions { locking: Locking::None, ..FileOptions::read_only() };
    let device: Device = Arc::new(FileDevice::open(image.path(), file).unwrap());
    check(&device, &CheckOptions { threads: 1, ..CheckOptions::default() }).unwrap()
}

/// Has xfs_repair and this crate's own check look at an image that was left clean.
pub(crate) fn check_image(image: &Image) {
    let ours = own_check(image);
    if let Err(error) = image.xfs_repair_check() {
        panic!("xfs_repair: {error}; our check: {:?}", ours.findings);
    }
    assert!(ours.is_clean(), "our check, not xfs_repair: {:?}", ours.findings);
}

#[test]
fn an_unchanged_image_stays_as_it_was() {
    for args in ["", "-m crc=1,rmapbt=1,reflink=1 -b size=1024", "-s size=4096"] {
        let writable = Writable::make(64, args);
        assert_eq!(writable.root().ino, writable.volume.superblock().root());
        writable.finish();
    }
}
