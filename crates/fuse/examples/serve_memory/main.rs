//! Mounts a filesystem that lives in memory: `serve_memory DIR [-o OPTIONS] [--files N] [--big BYTES]`.
//!
//! Prints `ready` when the mount answers and serves until it is unmounted or interrupted.
//! `serve_memory --unmount DIR` takes such a mount away.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_fuse::{MountOptions, mount, unmount};
use undercroft_vfs::{Vfs, VfsOptions};

mod memory;
mod sample;

fn main() -> Result<(), Box<dyn Error>> {
    let mut dir = None;
    let mut options = MountOptions::default();
    let (mut files, mut big_bytes) = (10_000, 1 << 30);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "-o" => options.apply(&value()?)?,
            "--files" => files = value()?.parse()?,
            "--unmount" => return Ok(unmount(Path::new(&value()?))?),
            "--big" => big_bytes = value()?.parse()?,
            _ => dir = Some(PathBuf::from(argument)),
        }
    }
    let dir = dir.ok_or("usage: serve_memory DIR [-o OPTIONS] [--files N] [--big BYTES]")?;
    let vfs = Vfs::new(Arc::new(sample::sample(files, big_bytes)), VfsOptions::default());
    let mut mounted = mount(vfs, &dir, options)?;
    mounted.unmount_on_signals()?;
    println!("ready");
    mounted.wait()?;
    Ok(())
}
