//! Reading ext4 against the kernel and fuse2fs, on the same images, in one run: a tree of 200,000 files walked cold,
//! and a file of 2 GiB read cold and warm.
//!
//! `cargo xtask bench` builds the program and runs this. Needs root, loop devices and FUSE. How it is measured stands
//! in `reading/mod.rs`.

mod reading;

use std::path::Path;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_oracle::{Image, Mke2fs};
use undercroft_vfs::{Vfs, VfsOptions};

use reading::{Contest, DIRECTORIES, Outcome, fill_with_one, fill_with_tree, program, scaled};

fn main() -> Outcome<()> {
    let program = program()?;
    let image = Mke2fs::new("ext4", 2048).inodes(230_000).make()?;
    let files = fill_with_tree(&image, scaled(DIRECTORIES)?)?;
    contest(&program, &image).walk(files)?;
    let image = Mke2fs::new("ext4", 3072).make()?;
    let bytes = fill_with_one(&image)?;
    contest(&program, &image).read(bytes)
}

fn contest<'a>(program: &'a Path, image: &'a Image) -> Contest<'a> {
    Contest { filesystem: "ext4", program, image, open, has_fuse2fs: true }
}

fn open(image: &Image) -> Outcome<Arc<Vfs>> {
    let device = FileDevice::open(image.path(), FileOptions::read_only())?;
    Ok(Vfs::new(Ext4::open_read_only(Arc::new(device), OpenOptions::default())?, VfsOptions::default()))
}
