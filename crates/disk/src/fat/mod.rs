//! FAT filesystems, made and filled in one go: what an EFI system partition holds.
//!
//! The sources are read twice. First their names make the tree (`tree`), which decides where everything lies (`shape`):
//! directories in front, then files one after the other, in one piece each. Then content is copied to its place, and
//! directories and tables are written, the boot sector last.
//!
//! From 34 MiB on it is FAT32, as firmware wants it. Names are long ones, in UTF-16; what FAT cannot have, and two names
//! that differ only in case, are refused with the file's path. Owners, modes and attributes are left out, as by a copy to
//! a mounted FAT. Times are UTC, and none is later than [`FatOptions::time`]: the same sources make the same bytes.
//!
//! Format: Microsoft's "FAT: General Overview of On-Disk Format" 1.03; what dosfstools and Linux take counts. The crate fatfs
//! (0.3) was tried: fsck.vfat refuses the directories that it makes.

mod boot;
mod names;
mod shape;
mod time;
mod tree;

use std::ops::Range;

use undercroft_block::BlockDevice;
use undercroft_populate::{EntryKind, Source};

use self::shape::{Kind, Shape};
use self::tree::{Content, Tree};
use crate::Error;

const SECTOR_BYTES: u64 = 512;
const PIECE_BYTES: usize = 1 << 20;
const LABEL_BYTES: usize = 11;

/// How a FAT filesystem is to be.
#[derive(Clone, Debug)]
pub struct FatOptions {
    /// Its label: at most 11 characters of ASCII, made large.
    pub label: Option<String>,
    /// Its serial number.
    pub volume_id: u32,
    /// The latest time of a file, and the time of what a source says nothing about, in seconds since 1970.
    pub time: i64,
    /// Bytes in front of the filesystem on its disk, for boot loaders that know no partitions.
    pub start_bytes: u64,
}

/// The least size in bytes of a FAT32 that holds what the sources have.
///
/// # Errors
/// [`Error`]: a source failed, or has what FAT cannot have.
pub fn least_fat_bytes(sources: &mut [Box<dyn Source>]) -> Result<u64, Error> {
    let tree = Tree::collect(sources, i64::MAX)?;
    shape::least_bytes(&tree)
}

/// Makes a FAT filesystem of a whole device, which reads as zeroes, and fills it.
///
/// # Errors
/// [`Error`]: the device is too small or failed; a source failed or has what FAT cannot have.
pub fn make_fat<D: BlockDevice + ?Sized>(
    device: &D,
    sources: &mut [Box<dyn Source>],
    options: &FatOptions,
) -> Result<(), Error> {
    let label = options.label.as_deref().map(fat_label).transpose()?;
    let shape = Shape::of(device.size_bytes())?;
    let tree = Tree::collect(sources, options.time)?;
    let places = shape.place(&tree, label.is_some())?;
    copy_content(device, sources, &shape, &tree, &places)?;
    for (index, place) in places.iter().enumerate().filter(|&(index, _)| tree.is_directory(index)) {
        let label = label.filter(|_| index == 0);
        let bytes = names::directory(&tree, index, label, options.time, &places);
        let offset = match (index, shape.kind) {
            (0, Kind::Fat12 | Kind::Fat16) => shape.root_offset(),
            _ => shape.cluster_offset(place.start),
        };
        device.write_at(offset, &bytes)?;
    }
    write_tables(device, &shape, &places)?;
    boot::write(device, &shape, options, label, next_free(&places))?;
    Ok(device.flush()?)
}

/// The first cluster behind all that are used.
fn next_free(places: &[Range<u32>]) -> u32 {
    places.iter().map(|place| place.end).max().unwrap_or(0).max(shape::FIRST_CLUSTER)
}

/// Reads the sources a second time, and copies the files that have a place.
fn copy_content<D: BlockDevice + ?Sized>(
    device: &D,
    sources: &mut [Box<dyn Source>],
    shape: &Shape,
    tree: &Tree,
    places: &[Range<u32>],
) -> Result<(), Error> {
    let mut buf = vec![0; PIECE_BYTES];
    let mut ordinal = 0;
    for source in sources {
        while let Some(entry) = source.next_entry()? {
            ordinal += 1;
            let EntryKind::Regular(content) = &entry.kind else { continue };
            let Some(index) = tree.by_ordinal(ordinal) else { continue };
            let place = shape.cluster_offset(places[index].start);
            while content.size_bytes > 0
                && let Some(piece) = source.read_content(&mut buf)?
            {
                let end = piece.offset.saturating_add(piece.len as u64);
                if tree.content(index) != Content::File(content.size_bytes) || end > content.size_bytes {
                    let what = "the source was changed while it was read";
                    return Err(Error::Refused(format!("{:?}: {what}", entry.path)));
                }
                device.write_at(place + piece.offset, &buf[..piece.len])?;
            }
        }
    }
    Ok(())
}

/// Writes both tables: every place is a chain from its first cluster to its last.
fn write_tables<D: BlockDevice + ?Sized>(
    device: &D,
    shape: &Shape,
    places: &[Range<u32>],
) -> Result<(), Error> {
    let used = next_free(places);
    let mut is_last = vec![false; used as usize + 1];
    for place in places.iter().filter(|place| !place.is_empty()) {
        is_last[place.end as usize - 1] = true;
    }
    let value = |cluster: u32| match cluster {
        0 => shape.kind.end() & !0xff | u32::from(boot::MEDIA),
        1 => shape.kind.end(),
        _ if is_last[cluster as usize] => shape.kind.end(),
        _ => cluster + 1,
    };
    let bytes = match shape.kind {
        Kind::Fat32 => (0..used).flat_map(|cluster| value(cluster).to_le_bytes()).collect(),
        Kind::Fat16 => (0..used).flat_map(|cluster| (value(cluster) as u16).to_le_bytes()).collect(),
        Kind::Fat12 => {
            let pairs = (0..used).step_by(2).map(|cluster| {
                let second = if cluster + 1 < used { value(cluster + 1) } else { 0 };
                value(cluster) | second << 12
            });
            pairs.flat_map(|pair| pair.to_le_bytes().into_iter().take(3)).collect::<Vec<u8>>()
        }
    };
    for table in 0..shape::TABLES {
        device.write_at(shape.table_offset(table), &bytes)?;
    }
    Ok(())
}

fn fat_label(label: &str) -> Result<[u8; LABEL_BYTES], Error> {
    let is_fit =
        |byte: u8| byte == b' ' || (byte.is_ascii_graphic() && !b"\"*+,./:;<=>?[\\]|".contains(&byte));
    if label.is_empty() || label.len() > LABEL_BYTES || label.starts_with(' ') || !label.bytes().all(is_fit) {
        return Err(Error::Refused(format!(
            "{label:?} is no label of FAT, which has at most {LABEL_BYTES} letters, digits and some signs of ASCII"
        )));
    }
    let mut bytes = [b' '; LABEL_BYTES];
    bytes[..label.len()].copy_from_slice(label.to_ascii_uppercase().as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests;
