//! What the targets share: a good image in which the fuzzer's bytes take the place of one structure, and a walk
//! that asks the damaged image everything.
//!
//! An image's structures are found once, by a survey of the good image. The first byte of the input picks one of
//! the wanted kind; the rest takes its place, byte for byte, as far as it reaches.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use undercroft_block::{Access, BlockDevice, Device, MemoryDevice};
use undercroft_ext4::testing::{Site, sites};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_vfs::{Access as Want, Credentials, FileType, Vfs, VfsOptions, WalkEvent, WalkFlow, WalkOptions};

/// Made by `make-images`.
static CLEAN: &[u8] = include_bytes!("../images/clean.img.zst");
/// As the kernel leaves it when the power goes, with a fast commit at the end of its journal.
static DIRTY: &[u8] = include_bytes!("../images/dirty.img.zst");

/// Which image.
#[derive(Clone, Copy, Debug)]
pub enum Victim {
    /// Unmounted.
    Clean,
    /// Must be recovered.
    Dirty,
}

struct Image {
    bytes: Vec<u8>,
    sites: Vec<Site>,
}

fn image(victim: Victim) -> &'static Image {
    static IMAGES: [OnceLock<Image>; 2] = [OnceLock::new(), OnceLock::new()];
    let packed = [CLEAN, DIRTY][victim as usize];
    IMAGES[victim as usize].get_or_init(|| {
        let mut bytes = Vec::new();
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).expect("a good frame");
        decoder.read_to_end(&mut bytes).expect("a good frame");
        let fs = Ext4::open_read_only(device(bytes.clone()), OpenOptions::default()).expect("a good image");
        let sites = sites(&fs).expect("a good image");
        Image { bytes, sites }
    })
}

fn device(bytes: Vec<u8>) -> Device {
    Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly))
}

/// Puts `input` in the place of one structure of the given kind, and walks.
pub fn damage_one(victim: Victim, structure: &str, input: &[u8]) {
    let Some((&pick, input)) = input.split_first() else { return };
    let image = image(victim);
    let wanted: Vec<&Site> = image.sites.iter().filter(|site| site.structure == structure).collect();
    assert!(!wanted.is_empty(), "the image has no {structure}");
    let site = wanted[usize::from(pick) % wanted.len()];
    let mut bytes = image.bytes.clone();
    let place = &mut bytes[site.range.start as usize..site.range.end as usize];
    let len = input.len().min(place.len());
    place[..len].copy_from_slice(&input[..len]);
    walk(device(bytes));
}

/// Changes words anywhere: each six bytes of input are an offset and the two bytes that go there.
pub fn damage_anywhere(victim: Victim, input: &[u8]) {
    let mut bytes = image(victim).bytes.clone();
    for change in input.chunks_exact(6) {
        let offset = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize;
        let at = offset % (bytes.len() - 1);
        bytes[at..at + 2].copy_from_slice(&change[4..]);
    }
    walk(device(bytes));
}

/// Opens whatever it is, and asks it everything.
pub fn walk(device: Device) {
    let Ok(fs) = Ext4::open_read_only(device, OpenOptions { buffer_bytes: 4 << 20 }) else { return };
    let _ = fs.orphans();
    let _: usize = fs.group_usage().count();
    let vfs = Vfs::new(fs, VfsOptions::default());
    let _ = vfs.filesystem().statfs();
    let Ok(root) = vfs.root() else { return };
    let stranger = Credentials { uid: 1000, gid: 1000, groups: vec![1001], override_dac: false };
    let mut buf = [0; 4096];
    let mut left = 2_000;
    vfs.walk_sorted(&root, WalkOptions::default(), &mut |event| {
        left -= 1;
        if left == 0 {
            return WalkFlow::Stop;
        }
        if let WalkEvent::Entry(entry) = event
            && let Ok(node) = entry.node()
        {
            for name in node.list_xattrs().unwrap_or_default() {
                let _ = node.xattr(&name);
            }
            let _ = undercroft_vfs::check_access(&stranger, &node, Want::READ | Want::WRITE);
            match node.kind() {
                FileType::Symlink => drop(node.read_link()),
                FileType::Directory => drop(vfs.lookup(&node, b"a name that is not there")),
                FileType::Regular => {
                    if let Ok(file) = vfs.open_node(&node) {
                        let _ = file.read_at(0, &mut buf);
                        let _ = file.read_at(node.attr().size_bytes.saturating_sub(4096), &mut buf);
                        let _ = file.seek_data(0);
                    }
                }
                _ => {}
            }
        }
        WalkFlow::Continue
    });
}

/// A device of the input's own bytes, as long as a small disk.
pub fn disk(input: &[u8]) -> impl BlockDevice {
    let mut bytes = input.to_vec();
    bytes.resize(bytes.len().max(1 << 20), 0);
    MemoryDevice::from_bytes(bytes, Access::ReadOnly)
}
