//! Filesystems that we make larger, ext4 and XFS.

mod ext4;
mod xfs;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use undercroft_oracle::{Image, MountMode};

const MIB: u64 = 1 << 20;

/// Makes an image file at least so long.
fn lengthen(path: &Path, size_bytes: u64) {
    let file = File::options().write(true).open(path).unwrap();
    if file.metadata().unwrap().len() < size_bytes {
        file.set_len(size_bytes).unwrap();
    }
}

/// Puts files into a filesystem by the kernel: some in every part of it, one with holes.
fn populate(image: &Image) {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    for directory in 0..8 {
        let directory = mount.path().join(format!("d{directory}"));
        fs::create_dir(&directory).unwrap();
        for file in 0..6_u8 {
            let content: Vec<u8> = (0..20_000_u32 * u32::from(file)).map(|n| (n / 7) as u8 ^ file).collect();
            fs::write(directory.join(format!("f{file}")), content).unwrap();
        }
    }
    let sparse = File::create(mount.path().join("sparse")).unwrap();
    sparse.write_all_at(b"end", 3 * MIB).unwrap();
    drop(sparse);
    mount.unmount().unwrap();
}

/// All files and what they hold, as the kernel shows them.
fn files(image: &Image) -> BTreeMap<String, [u8; 32]> {
    fn list(root: &Path, at: &Path, found: &mut BTreeMap<String, [u8; 32]>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                list(root, &path, found);
            } else {
                let sum = undercroft_oracle::sha256_of_file(&path).unwrap();
                found.insert(path.strip_prefix(root).unwrap().display().to_string(), sum);
            }
        }
    }
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let mut found = BTreeMap::new();
    list(mount.path(), mount.path(), &mut found);
    mount.unmount().unwrap();
    found
}

/// Has the kernel fill a filesystem until there is no room.
fn fill(image: &Image) {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let chunk = vec![0x5a; MIB as usize];
    let mut file = File::create(mount.path().join("all the rest")).unwrap();
    while std::io::Write::write_all(&mut file, &chunk).is_ok() {}
    drop(file);
    mount.unmount().unwrap();
}
