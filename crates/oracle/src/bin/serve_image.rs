//! Serves an image on a directory until it is unmounted or killed: `serve_image KIND IMAGE DIRECTORY`, where `KIND` is `xfs`
//! or one of ext2 to ext4.
//!
//! For tests that kill the server, which has to be a process of its own.

use std::error::Error;
use std::path::Path;

use undercroft_fuse::{MountOptions, mount};
use undercroft_oracle::How;
use undercroft_vfs::{Vfs, VfsOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [kind, image, dir] = &args[..] else { return Err("give a kind, an image and a directory".into()) };
    let how = if kind == "xfs" {
        How::Xfs(undercroft_xfs::WriteOptions::default())
    } else {
        How::Ext4(undercroft_ext4::WriteOptions::default())
    };
    let fs = how.open_file(Path::new(image))?;
    let options = MountOptions { read_only: false, ..MountOptions::default() };
    mount(Vfs::new(fs, VfsOptions::default()), Path::new(dir), options)?.wait()?;
    Ok(())
}
