//! Directories of images that mke2fs and e2fsck make, or this crate itself, read through a volume.

#[cfg(feature = "oracle")]
mod casefolded;
mod changed;
mod cold;
mod damage;
#[cfg(feature = "oracle")]
mod encrypted;
mod fast_commits;
mod positions;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Access, BlockDevice, Device, MemoryDevice, Overlay};
#[cfg(feature = "oracle")]
use undercroft_oracle::MountMode;
use undercroft_vfs::{DirOffset, FileType, Result};

use super::{lookup, read_dir};
use crate::inode::{Inode, ROOT_INODE};
use crate::map::{self, RunState};
use crate::numbers::FileBlock;
use crate::superblock::Superblock;
use crate::testing::images::{Image, Mke2fs, Scratch};
use crate::volume::Volume;

/// An image whose root is a copy of the directory that `fill` fills; mke2fs makes no indices.
fn image(mke2fs: Mke2fs, fill: impl FnOnce(&Path)) -> Image {
    let source = Scratch::new("tree").unwrap();
    fill(source.path());
    mke2fs.args(["-d", source.path().to_str().unwrap()]).make().unwrap()
}

/// The same, filled by the kernel.
#[cfg(feature = "oracle")]
fn image_by_kernel(mke2fs: &Mke2fs, fill: impl FnOnce(&Path)) -> Image {
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    fill(mount.path());
    mount.unmount().unwrap();
    image
}

/// The same, filled by this crate, which makes the forms that the kernel makes.
#[cfg(not(feature = "oracle"))]
fn image_by_kernel(mke2fs: &Mke2fs, fill: impl FnOnce(&Path)) -> Image {
    image(mke2fs.clone(), fill)
}

/// Gives each directory that is large enough an index.
fn index_directories(image: &Image) {
    // This crate's own writer has done so.
    #[cfg(feature = "oracle")]
    image.rebuild_directories().unwrap();
    #[cfg(not(feature = "oracle"))]
    image.check().unwrap();
}

fn touch(directory: &Path, names: impl IntoIterator<Item = impl AsRef<Path>>) {
    std::fs::create_dir_all(directory).unwrap();
    for name in names {
        std::fs::write(directory.join(name), "").unwrap();
    }
}

/// Names so long that a directory of 1 KiB blocks holds few in each.
fn long_names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("{number:04}-{}", "long".repeat(20 + number % 10)))
}

/// An image in memory that can be opened many times, with changes.
struct Loaded {
    base: Device,
    block_bytes: u64,
}

impl Loaded {
    fn new(image: &Image) -> Self {
        let bytes = std::fs::read(image.path()).unwrap();
        let base: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly));
        let block_bytes = u64::from(Superblock::read(&*base).unwrap().geometry().block_bytes());
        Self { base, block_bytes }
    }

    fn open(&self) -> Volume {
        self.open_changed(|_| {})
    }

    fn open_changed(&self, change: impl FnOnce(&dyn BlockDevice)) -> Volume {
        let device: Device = Arc::new(Overlay::new(Arc::clone(&self.base)));
        change(&*device);
        let superblock = Superblock::read(&*device).unwrap();
        Volume::new(device, superblock, 1 << 20)
    }

    /// The blocks of a directory, in order.
    fn blocks(&self, path: &str) -> Vec<u64> {
        let volume = self.open();
        let inode = inode(&volume, path);
        let block = |at: u64| match map::lookup(&volume, &inode, FileBlock(at as u32)).unwrap().state {
            RunState::Mapped(block) => block.0,
            other => panic!("no block at {at}: {other:?}"),
        };
        (0..inode.size_bytes / self.block_bytes).map(block).collect()
    }

    /// Byte `at` of a block, on the device.
    fn byte(&self, block: u64, at: u64) -> u64 {
        block * self.block_bytes + at
    }
}

fn inode(volume: &Volume, path: &str) -> Inode {
    let mut inode = Inode::read(volume, ROOT_INODE).unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let number = lookup(volume, &inode, name.as_bytes()).unwrap().expect("a name on the path");
        inode = Inode::read(volume, number).unwrap();
    }
    inode
}

/// One listed name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    name: Vec<u8>,
    ino: u32,
    kind: Option<FileType>,
    next: DirOffset,
}

/// What is listed from a position on, and how that ended.
fn list_some(volume: &Volume, inode: &Inode, from: u64, most: usize) -> (Vec<Listed>, Result<()>) {
    let mut listed = Vec::new();
    let end = read_dir(volume, inode, DirOffset(from), &mut |entry| {
        let (name, ino) = (entry.name.to_vec(), u32::try_from(entry.ino.0).unwrap());
        listed.push(Listed { name, ino, kind: entry.kind, next: entry.next });
        if listed.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (listed, end)
}

fn list(volume: &Volume, inode: &Inode, from: u64) -> Vec<Listed> {
    let (listed, end) = list_some(volume, inode, from, usize::MAX);
    end.unwrap();
    listed
}

/// Where every name leads, by listing.
fn names(volume: &Volume, inode: &Inode) -> BTreeMap<Vec<u8>, u32> {
    list(volume, inode, 0).into_iter().map(|listed| (listed.name, listed.ino)).collect()
}
