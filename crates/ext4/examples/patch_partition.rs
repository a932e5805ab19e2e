//! Replaces a piece of one file in a partition of a disk image, raw or qcow2:
//!
//! ```sh
//! cargo run -p undercroft-ext4 --example patch_partition disk.qcow2 2 /etc/hostname old new
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::{ImageOptions, PartitionDevice, open_image, partition::partitions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_vfs::{Credentials, Vfs, VfsOptions};

const ROOT: Credentials = Credentials::root();

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, number, path, old, new] = &args[..] else {
        return Err("usage: patch_partition IMAGE PARTITION PATH OLD NEW".into());
    };
    run(&PathBuf::from(image), number.parse()?, path, old, new)
}

pub(crate) fn run(image: &Path, number: u32, path: &str, old: &str, new: &str) -> Result<(), Box<dyn Error>> {
    let disk = open_image(image, ImageOptions::read_write())?;
    let table = partitions(&*disk)?;
    let partition =
        table.partition(number).ok_or_else(|| format!("{} has no partition {number}", disk.name()))?;
    let device = Arc::new(PartitionDevice::open(disk, partition)?);
    let vfs =
        Vfs::new(Ext4::open(device, OpenOptions::default(), WriteOptions::default())?, VfsOptions::default());

    let content = String::from_utf8(vfs.read(&ROOT, path)?)?;
    let at = content.find(old).ok_or_else(|| format!("{path} does not hold {old:?}"))?;
    let file = vfs.open_for_writing(&ROOT, path)?;
    // What follows the piece is written as well: it may have moved.
    let rest = [new, &content[at + old.len()..]].concat();
    file.write_all_at(at as u64, rest.as_bytes())?;
    file.truncate((at + rest.len()) as u64)?;
    Ok(vfs.close()?)
}
