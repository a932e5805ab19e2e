//! What Linux makes of a dirty image, what we make of it, and whether the two agree.

use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::{
    Differences, Entry, Error, Image, Manifest, MountMode, Result, Space, Tool, kernel_manifest, our_manifest,
};
use undercroft_vfs::{FileSystem, Mapping, Node, Vfs, VfsOptions};
use undercroft_xfs::{CheckOptions, OpenOptions, Recovery, Xfs};

use crate::setup::{Dirty, LoopDevice};
use crate::writing::{self, Written};

/// The part of [`Recovery::unfinished_by_kind`] for changes of files' maps.
pub(crate) const MAPS: usize = 3;

/// Files of an image whose extents are compared.
const MAPPED_FILES: usize = 24;

/// What we made of an image.
pub(crate) enum Seen {
    Refused(String),
    Shown { recovery: Option<Recovery>, written: Option<Written> },
}

/// Opens an image as a user would.
pub(crate) fn open(dirty: &Dirty) -> undercroft_vfs::Result<Arc<Xfs>> {
    let device = |image: &Image| -> Device {
        Arc::new(FileDevice::open(image.path(), FileOptions::read_only()).unwrap())
    };
    let options = OpenOptions { log_device: dirty.log.as_ref().map(device), ..OpenOptions::default() };
    Xfs::open_read_only(device(&dirty.image), options)
}

/// Compares what we show with what the kernel shows; then a copy is written to.
pub(crate) fn judge(dirty: &Dirty, name: &str) -> Seen {
    let sums = || {
        let of = |image: &Image| image.sha256().unwrap();
        (of(&dirty.image), dirty.log.as_ref().map(of))
    };
    let before = sums();
    let fs = match open(dirty) {
        Ok(fs) => fs,
        Err(error) => {
            assert_eq!(before, sums(), "{name}: refusing changed the image");
            return Seen::Refused(format!("{name}: {error}"));
        }
    };
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let mut ours = our_manifest(&vfs).unwrap_or_else(|error| panic!("{name}: {error}"));
    let files: Vec<(&Vec<u8>, &Entry)> = ours.entries.iter().filter(|(_, entry)| is_mapped(entry)).collect();
    let step = files.len().div_ceil(MAPPED_FILES).max(1);
    let maps: Vec<Mapped> = files
        .into_iter()
        .step_by(step)
        .map(|(path, entry)| Mapped {
            path: path.clone(),
            size: entry.size,
            pieces: before_end(our_map(&vfs, path), entry.size),
        })
        .collect();
    let recovery = fs.recovery().cloned();
    let expected = match &dirty.live {
        Some(live) => {
            ours.space = None;
            as_on_the_disk(live.clone(), &ours)
        }
        None => {
            let mut tree =
                recovered_by_kernel(dirty, &maps, name).unwrap_or_else(|error| panic!("{name}: {error}"));
            if let (Some(theirs), Some(ours)) = (&mut tree.space, &mut ours.space) {
                ours.fsid = 0;
                let given_back = recovery
                    .as_ref()
                    .map_or(0, |recovery| (recovery.unlinked_inodes() + recovery.unfinished_steps()) as u64)
                    + COPIES;
                grant_tree_blocks(theirs, ours, given_back);
            }
            tree
        }
    };
    let expected = grant_map_blocks(expected, &ours, recovery.as_ref());
    Differences::between(&expected, &ours)
        .assert_none(&format!("{name}: ours against the kernel's, {recovery:?}"));
    let found = fs.check(&CheckOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let told: Vec<String> = found.findings.iter().take(20).map(ToString::to_string).collect();
    assert!(found.is_clean(), "{name}: our check, {recovery:?}:\n{}", told.join("\n"));
    drop((vfs, fs));
    assert_eq!(before, sums(), "{name}: reading changed the image");
    let written = Some(writing::judge(dirty, &ours, recovery.as_ref(), name));
    Seen::Shown { recovery, written }
}

/// Compares as far as the kernel takes an image with a torn log: what it refuses we refuse, and otherwise both trees are
/// the same. `None` where both refuse it.
///
/// What lay in the lost records may have been written in place already, since the image was not torn when the kernel
/// wrote it: neither xfs_repair nor our check judges such an image, and a tree that the kernel cannot read is passed over.
pub(crate) fn judge_torn(dirty: &Dirty, name: &str) -> Option<Seen> {
    let before = dirty.image.sha256().unwrap();
    let opened = open(dirty);
    assert_eq!(before, dirty.image.sha256().unwrap(), "{name}: opening changed the image");
    let copy = dirty.image.reflink().unwrap();
    let mount = match copy.mount(MountMode::Recovering, "") {
        Ok(mount) => mount,
        Err(error) => {
            assert!(opened.is_err(), "{name}: the kernel refuses it, and we do not: {error}");
            return None;
        }
    };
    let theirs = kernel_manifest(mount.path());
    mount.unmount().unwrap();
    let fs = opened.unwrap_or_else(|error| panic!("{name}: the kernel recovers it: {error}"));
    let Ok(theirs) = theirs else { return None };
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let ours = our_manifest(&vfs).unwrap_or_else(|error| panic!("{name}: {error}"));
    let expected = Manifest { space: None, ..theirs };
    let recovery = fs.recovery().cloned();
    Differences::between(&expected, &ours)
        .assert_none(&format!("{name}: ours against the kernel's, {recovery:?}"));
    Some(Seen::Shown { recovery, written: None })
}

fn is_mapped(entry: &Entry) -> bool {
    entry.is_regular() && entry.sectors > 0
}

/// A live tree as it is on the disk: files have space set aside in memory for what will be written.
fn as_on_the_disk(live: Manifest, ours: &Manifest) -> Manifest {
    Manifest { space: None, ..live }.map(|path, entry| {
        if let Some(ours) = ours.entries.get(path)
            && entry.is_regular()
            && entry.sectors > ours.sectors
        {
            entry.sectors = ours.sectors;
        }
    })
}

/// Copies on write that were being made are given back too, and their number is not known here: as if they were so many
/// steps.
const COPIES: u64 = 4;

/// Takes over our number of free blocks if the kernel's differs by no more than what the trees of free space and of free
/// inodes can have gained or lost when it gave back this many inodes and interrupted steps: those blocks are not free
/// then, and we do not see it, since the trees stay as the log has them.
fn grant_tree_blocks(theirs: &mut Space, ours: &Space, given_back: u64) {
    const BLOCKS_FOR_EACH: u64 = 4;
    let used = |space: &Space| space.inodes - space.inodes_free;
    if theirs.free.abs_diff(ours.free) <= BLOCKS_FOR_EACH * given_back && used(theirs) == used(ours) {
        (theirs.free, theirs.available) = (ours.free, ours.available);
        (theirs.inodes, theirs.inodes_free) = (ours.inodes, ours.inodes_free);
    }
}

/// A tree with the sizes of maps that `other` shows, where they differ by no more blocks than interrupted changes of maps can
/// add to trees of extents or take from them. A recovery that finishes such a change counts those blocks to the file; a
/// read-only opening, which shows the file as it will be, does not know them.
pub(crate) fn grant_map_blocks(tree: Manifest, other: &Manifest, recovery: Option<&Recovery>) -> Manifest {
    const SECTORS_FOR_EACH: u64 = 3 * 4096 / 512;
    let changes = recovery.map_or(0, |recovery| recovery.unfinished_by_kind()[MAPS]) as u64;
    let mut left = changes * SECTORS_FOR_EACH;
    tree.map(|path, entry| {
        let Some(other) = other.entries.get(path).filter(|other| other.is_regular()) else { return };
        let differ = entry.sectors.abs_diff(other.sectors);
        if differ <= left {
            left -= differ;
            entry.sectors = other.sectors;
        }
    })
}

/// The kernel's tree of a copy that it recovers, and its map of the same files; xfs_repair finds nothing in the copy.
fn recovered_by_kernel(dirty: &Dirty, maps: &[Mapped], name: &str) -> Result<Manifest> {
    assert!(!dirty.small_blocks, "the kernel must not recover this image");
    let copy = dirty.image.reflink()?;
    let log = dirty.log.as_ref().map(Image::reflink).transpose()?;
    let log_device = log.as_ref().map(LoopDevice::of).transpose()?;
    let options = log_device.as_ref().map_or_else(String::new, |device| format!("logdev={}", device.path()));
    let mount = copy.mount(MountMode::Recovering, &options)?;
    let mut tree = kernel_manifest(mount.path())?;
    for Mapped { path, size, pieces } in maps {
        let path = mount.path().join(std::str::from_utf8(path).expect("the load's names are text"));
        let theirs = before_end(kernel_map(&path)?, *size);
        assert_eq!(&theirs, pieces, "{name}: extents of {}", path.display());
    }
    mount.unmount()?;
    if let Some(space) = &mut tree.space {
        space.fsid = 0;
    }
    repair_finds_nothing(copy.path(), log_device.as_ref().map(LoopDevice::path))?;
    Ok(tree)
}

/// Whether xfs_repair finds anything in an image.
pub(crate) fn repair_finds_nothing(image: &Path, log_device: Option<&str>) -> Result<()> {
    let mut repair = Tool::new("xfs_repair").args(["-n", "-o", "force_geometry"]);
    if let Some(device) = log_device {
        repair = repair.args(["-l", device]);
    }
    match repair.arg(image).run() {
        // An attribute that a crash found half written stays so for ever; xfs_repair would take the fork away.
        Err(Error::ToolFailed { said, .. }) if said.contains("is INCOMPLETE") => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// A piece of a file: first byte, length and first byte on the device.
type Piece = (u64, u64, u64);

/// A file, its size, and where the blocks before its end lie.
struct Mapped {
    path: Vec<u8>,
    size: u64,
    pieces: Vec<Piece>,
}

/// The pieces before a file's end. Behind it an interrupted truncation leaves written blocks, which we show as a hole.
fn before_end(map: Vec<Piece>, size: u64) -> Vec<Piece> {
    let end = size.next_multiple_of(4096);
    let pieces = map.into_iter().filter(|piece| piece.0 < end);
    pieces.map(|(at, len, on_device)| (at, len.min(end - at), on_device)).collect()
}

fn push(map: &mut Vec<Piece>, piece: Piece) {
    match map.last_mut() {
        Some((at, len, on_device)) if *at + *len == piece.0 && *on_device + *len == piece.2 => {
            *len += piece.1;
        }
        _ => map.push(piece),
    }
}

fn our_map(vfs: &Vfs, path: &[u8]) -> Vec<Piece> {
    let mut node: Arc<Node> = vfs.root().unwrap();
    for part in path.split(|&byte| byte == b'/') {
        node = vfs.lookup(&node, part).unwrap();
    }
    let mut map = Vec::new();
    let (mut at, mut past) = (0, false);
    while !past {
        let extent = node.map(at).unwrap();
        match extent.mapping {
            Mapping::Device { offset } | Mapping::Shared { offset } | Mapping::Unwritten { offset } => {
                push(&mut map, (extent.start, extent.len, offset));
            }
            _ => {}
        }
        at = extent.start + extent.len;
        past = at >= 1 << 40;
    }
    map
}

fn kernel_map(path: &Path) -> Result<Vec<Piece>> {
    let told = Tool::new("xfs_io").args(["-r", "-c", "fiemap"]).arg(path).run_text()?;
    let mut map = Vec::new();
    for line in told.lines().skip(1) {
        // "0: [0..7]: 96..103", in units of 512 bytes.
        let mut numbers =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok());
        let all: [Option<u64>; 4] = std::array::from_fn(|_| numbers.next());
        if line.contains("hole") {
            continue;
        }
        let [_, Some(first), Some(last), Some(on_device)] = all else {
            panic!("a line of fiemap: {line}");
        };
        push(&mut map, (first * 512, (last - first + 1) * 512, on_device * 512));
    }
    Ok(map)
}
