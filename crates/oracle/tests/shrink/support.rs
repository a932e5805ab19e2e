//! Images with files in every part, made smaller, and what is compared.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undercroft_block::{Device, FileDevice, FileOptions, OpenError};
use undercroft_ext4::{CheckOptions, OpenOptions, Shrunk, check, shrink};
use undercroft_oracle::populate::{Plan, noise, populate};
use undercroft_oracle::{Image, LoopMount, Manifest, MountMode, Tool, kernel_manifest};
use undercroft_vfs::Result;

pub(crate) const MIB: u64 = 1 << 20;

/// A generator of random numbers that a seed replays.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }

    /// Seeds that lie close together begin differently.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
}

/// Waits for what still uses it: a mount that ended here may live on for an instant in another mount namespace.
pub(crate) fn open_device(path: &Path) -> Device {
    let began = Instant::now();
    loop {
        match FileDevice::open(path, FileOptions::read_write()) {
            Ok(device) => return Arc::new(device),
            Err(OpenError::InUse { .. }) if began.elapsed() < Duration::from_secs(30) => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
}

/// Makes the filesystem in an image file smaller, and cuts the file, as a user does.
pub(crate) fn shrink_file(path: &Path, size_bytes: Option<u64>) -> Result<Shrunk> {
    let shrunk = shrink(&open_device(path), OpenOptions::default(), size_bytes, &mut |_, _| ())?;
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(shrunk.blocks.1 * u64::from(shrunk.block_bytes)).unwrap();
    Ok(shrunk)
}

/// What e2fsck and our own check find.
pub(crate) fn assert_sound(image: &Image, what: &str) {
    image.check().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_nothing_found(image, what);
}

/// What our own check finds, after a recovery in memory if one is needed.
pub(crate) fn assert_nothing_found(image: &Image, what: &str) {
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let report = check(Arc::new(device), &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
}

/// A field of dumpe2fs.
pub(crate) fn field(image: &Path, name: &str) -> String {
    let dump = Tool::new("dumpe2fs").args(["-h"]).arg(image).run_text().unwrap();
    let value = dump.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("dumpe2fs has no {name}")).trim().to_owned()
}

pub(crate) fn blocks(image: &Path) -> u64 {
    field(image, "Block count").parse().unwrap()
}

/// The tree as the kernel shows it, but for what changes where inodes get other numbers: names of one inode have a common
/// number all the same.
pub(crate) fn tree(image: &Image) -> Manifest {
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let tree = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    let mut numbers = HashMap::new();
    let tree = tree.map(|_, entry| {
        let next = numbers.len() as u64;
        entry.ino = *numbers.entry(entry.ino).or_insert(next);
        assert!(entry.listed_ino.is_none_or(|listed| numbers.contains_key(&listed)));
        entry.listed_ino = None;
        entry.dots = None;
        entry.sectors = 0;
        if let Some(identity) = &mut entry.identity {
            identity.generation = 0;
        }
    });
    Manifest { space: None, ..tree }
}

/// One of everything, a little of each.
pub(crate) fn fill_with_everything(image: &Image) {
    let features = image.features().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    let plan = Plan { many: 1200, many_name_bytes: 20, subdirectories: 40, extent_depth: 1 };
    populate(mount.path(), &features, &plan).unwrap();
    mount.unmount().unwrap();
}

/// Files of random sizes in several directories, some of them in pieces, and free space between them.
pub(crate) fn fill_at_random(image: &Image, random: &mut Random, files: u64, bytes_most: u64) {
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    for directory in 0..6 {
        fs::create_dir(mount.path().join(format!("d{directory}"))).unwrap();
    }
    for number in 0..files {
        let name = format!("d{}/file with a name of some length {number}", number % 6);
        write_random(&mount, &name, random, bytes_most, number);
    }
    for number in (0..files).filter(|number| number % 3 == 1) {
        let name = format!("d{}/file with a name of some length {number}", number % 6);
        fs::remove_file(mount.path().join(name)).unwrap();
    }
    for number in 0..files / 4 {
        let name = format!("d{}/later {number}", number % 6);
        write_random(&mount, &name, random, bytes_most, number);
        fs::hard_link(mount.path().join(&name), mount.path().join(format!("d5/link {number}"))).unwrap();
    }
    mount.unmount().unwrap();
}

fn write_random(mount: &LoopMount, name: &str, random: &mut Random, bytes_most: u64, seed: u64) {
    let file = File::create(mount.path().join(name)).unwrap();
    let mut content = vec![0; random.below(bytes_most) as usize];
    noise(seed, &mut content);
    let hole = if random.below(4) == 0 { random.below(MIB) } else { 0 };
    // A full filesystem leaves the file shorter.
    let _ = file.write_all_at(&content, hole);
}

/// How many blocks resize2fs leaves a copy; `None` where it finds no room for what it moves.
pub(crate) fn blocks_by_resize2fs(image: &Image) -> Option<u64> {
    let copy = image.copy().unwrap();
    Tool::new("e2fsck").args(["-fp"]).arg(copy.path()).accept(&[0, 1]).run().unwrap();
    match Tool::new("resize2fs").arg("-M").arg(copy.path()).run() {
        Ok(_) => Some(blocks(copy.path())),
        Err(error) if error.to_string().contains("No space left on device") => None,
        Err(error) => panic!("{error}"),
    }
}
