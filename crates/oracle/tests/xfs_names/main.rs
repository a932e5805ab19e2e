//! XFS: directories in every form as they grow and shrink, attributes in every form, and what the kernel shows of both.
//!
//! What goes further than the matrix: the positions of names are Linux's own, names and attributes that all have one
//! hash fill several leaves, and directories are read again after most names were removed. Needs root for the loop
//! mounts.

mod attributes;
mod directories;

use std::path::Path;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_oracle::Image;
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};
use undercroft_xfs::{OpenOptions, Xfs};

/// Makes of mkfs.xfs, with the image's size in MiB.
const VOLUMES: [(u64, &str); 7] = [
    (160, ""),
    (160, "-b size=1024"),
    (160, "-n size=16384"),
    (256, "-b size=1024 -n size=65536"),
    (160, "-i size=2048"),
    (900, "-b size=65536"),
    (160, "-m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0"),
];

fn open(image: &Image) -> Arc<Vfs> {
    let device = Arc::new(FileDevice::open(image.path(), FileOptions::read_only()).unwrap());
    let fs: Arc<dyn FileSystem> = Xfs::open_read_only(device, OpenOptions::default()).unwrap();
    Vfs::new(fs, VfsOptions::default())
}

/// The name of this number among more than 16,000 that all have one hash. A hash rotates by seven bits with each byte,
/// so that a bit and the one three above it, five bytes later, cancel each other out.
fn colliding(number: usize) -> Vec<u8> {
    const PAIRS: usize = 7;
    let mut name = vec![0xc0; PAIRS + 5];
    for place in 0..PAIRS {
        let bits = (number >> (2 * place) & 3) as u8;
        name[place] ^= bits;
        name[place + 5] ^= bits << 3;
    }
    name
}

fn in_dir(dir: &Path, name: &[u8]) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt;
    dir.join(std::ffi::OsStr::from_bytes(name))
}

#[test]
fn made_names_have_one_hash() {
    let hash = |name: &[u8]| name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(7) ^ u32::from(byte));
    let names: std::collections::BTreeSet<Vec<u8>> = (0..16_384).map(colliding).collect();
    assert_eq!(names.len(), 16_384);
    assert!(names.iter().all(|name| hash(name) == hash(&colliding(0)) && !name.contains(&b'/')));
}
