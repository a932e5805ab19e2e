//! Serves an image on a directory until it is unmounted or killed: `serve_ext4 IMAGE DIRECTORY`.
//!
//! For tests that kill the server, which has to be a process of its own.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_fuse::{MountOptions, mount};
use undercroft_vfs::{Vfs, VfsOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, dir] = &args[..] else { return Err("give an image and a directory".into()) };
    let device = FileDevice::open(Path::new(image), FileOptions::read_write())?;
    let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default())?;
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    mount(Vfs::new(fs, VfsOptions::default()), Path::new(dir), options)?.wait()?;
    Ok(())
}
