//! Damage to a good XFS: the fuzzer's bytes take the place of one structure, and its checksum is made right.

use std::sync::{Arc, OnceLock};

use undercroft_block::{Access, BlockDevice, Device, MemoryDevice, Overlay};
use undercroft_xfs::testing::{LogRecord, Site, log_records, sites};
use undercroft_xfs::{CheckOptions, OpenOptions, Xfs};

use crate::images::unpacked;
use crate::walk::walk_all;

/// Made by `make-images`.
static IMAGE: &[u8] = include_bytes!("../images/xfs.img.zst");
/// As the kernel leaves it when power is lost.
static DIRTY: &[u8] = include_bytes!("../images/xfs-dirty.img.zst");

/// One byte of input picks among the structures of a kind.
const SITES_MAX: usize = 256;

/// Kinds of structure that one target damages.
#[derive(Debug)]
pub struct Kind {
    /// The target.
    pub target: &'static str,
    structures: &'static [&'static str],
}

/// The superblock, and its copies.
pub const SUPERBLOCK: Kind = Kind { target: "xfs_superblock", structures: &["superblock"] };
/// The headers of allocation groups.
pub const GROUP: Kind = Kind { target: "xfs_group", structures: &["group header", "free list"] };
/// Blocks of B+trees.
pub const TREE: Kind = Kind {
    target: "xfs_tree",
    structures: &["free space tree", "inode tree", "reverse map tree", "reference count tree", "extent tree"],
};
/// Inodes: their fields, and what their forks hold.
pub const INODE: Kind = Kind { target: "xfs_inode", structures: &["inode"] };
/// Directory blocks of every kind.
pub const DIRECTORY_BLOCK: Kind =
    Kind { target: "xfs_directory_block", structures: &["directory block", "hash tree node"] };
/// Blocks of attributes, of values and of links' targets.
pub const ATTRIBUTE_BLOCK: Kind = Kind {
    target: "xfs_attribute_block",
    structures: &["attribute block", "attribute value", "symbolic link"],
};

/// All of them.
pub const KINDS: [&Kind; 6] = [&SUPERBLOCK, &GROUP, &TREE, &INODE, &DIRECTORY_BLOCK, &ATTRIBUTE_BLOCK];

struct Image {
    device: Device,
    sites: Vec<Site>,
}

fn image() -> &'static Image {
    static OPENED: OnceLock<Image> = OnceLock::new();
    OPENED.get_or_init(|| {
        let device: Device = Arc::new(MemoryDevice::from_bytes(unpacked(IMAGE), Access::ReadOnly));
        let sites = sites(&*device).expect("a good image");
        Image { device, sites }
    })
}

fn sites_of(kind: &Kind) -> Vec<&'static Site> {
    let of_kind = |site: &&Site| kind.structures.contains(&site.structure);
    let found: Vec<&Site> = image().sites.iter().filter(of_kind).take(SITES_MAX).collect();
    assert!(!found.is_empty(), "the image has no {:?}", kind.structures);
    found
}

fn bytes_of(site: &Site) -> Vec<u8> {
    let mut bytes = vec![0; (site.range.end - site.range.start) as usize];
    image().device.read_at(site.range.start, &mut bytes).expect("memory can be read");
    bytes
}

/// Puts the input in the place of one structure of the given kind, and walks. The first byte picks the structure; the
/// rest takes its place, byte for byte, as far as it reaches.
pub fn damage_one(kind: &Kind, input: &[u8]) {
    let Some((&pick, input)) = input.split_first() else { return };
    let wanted = sites_of(kind);
    let site = wanted[usize::from(pick) % wanted.len()];
    let mut bytes = bytes_of(site);
    let len = input.len().min(bytes.len());
    bytes[..len].copy_from_slice(&input[..len]);
    site.mend(&mut bytes);
    let device = Overlay::new(Arc::clone(&image().device));
    device.write_at(site.range.start, &bytes).expect("an overlay takes writes");
    let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
    if let Ok(fs) = Xfs::open_read_only(Arc::new(device), options) {
        walk_all(fs);
    }
}

struct Dirty {
    device: Device,
    records: Vec<LogRecord>,
}

fn dirty() -> &'static Dirty {
    static OPENED: OnceLock<Dirty> = OnceLock::new();
    OPENED.get_or_init(|| {
        let device: Device = Arc::new(MemoryDevice::from_bytes(unpacked(DIRTY), Access::ReadOnly));
        let mut records = log_records(&device).expect("a good image");
        records.truncate(SITES_MAX);
        assert!(!records.is_empty(), "the image has an empty log");
        Dirty { device, records }
    })
}

/// Puts the input in the place of one record of the log, mends the record's checksum, recovers and walks. The first
/// byte picks the record; the rest takes its place, byte for byte, as far as it reaches.
pub fn damage_log(input: &[u8]) {
    let Some((&pick, input)) = input.split_first() else { return };
    let Dirty { device, records } = dirty();
    let record = &records[usize::from(pick) % records.len()];
    let mut bytes = record.read(&**device).expect("memory can be read");
    let len = input.len().min(bytes.len());
    bytes[..len].copy_from_slice(&input[..len]);
    record.mend(&mut bytes);
    let device = Overlay::new(Arc::clone(device));
    let mut at = 0;
    for piece in &record.pieces {
        let len = (piece.end - piece.start) as usize;
        device.write_at(piece.start, &bytes[at..at + len]).expect("an overlay takes writes");
        at += len;
    }
    let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
    if let Ok(fs) = Xfs::open_read_only(Arc::new(device), options) {
        // Findings are an answer, and so is a refusal.
        let _ = fs.check(&CheckOptions { threads: 1, ..CheckOptions::default() });
        walk_all(fs);
    }
}

/// Every record of the log that a recovery replays, as it is in the image.
pub(crate) fn log() -> Vec<Vec<u8>> {
    let Dirty { device, records } = dirty();
    let bytes = |record: &LogRecord| record.read(&**device).expect("memory can be read");
    (0..=u8::MAX).zip(records).map(|(pick, record)| [&[pick][..], &bytes(record)].concat()).collect()
}

/// Every structure of the kind as it is in the image.
pub(crate) fn structures(kind: &Kind) -> Vec<Vec<u8>> {
    (0..=u8::MAX).zip(sites_of(kind)).map(|(pick, site)| [&[pick][..], &bytes_of(site)].concat()).collect()
}
