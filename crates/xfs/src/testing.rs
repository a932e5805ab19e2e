//! For tests: where the metadata of a good image lies, and how to mend a checksum after damage.
//!
//! Damage that breaks a checksum is caught by the checksum. To test what stands behind it, [`sites`] lists the
//! structures of a good image and [`Site::mend`] makes the checksum right again after the bytes were changed.
//!
//! Structures are found by their magic numbers, wherever they lie, and accepted if their checksum holds. So what is no
//! longer in use is found too, and a directory block in several extents is not. Of the log all blocks are listed that
//! are not empty; their checksums are not mended. [`log_records`] has the records that a recovery replays, whose
//! checksums are.

#[cfg(all(test, feature = "oracle"))]
pub(crate) mod writable;

use std::ops::Range;

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;

use crate::format::{Geometry, Superblock, crc, dinode, superblock};
pub use crate::log::survey::{LogRecord, log_records};

/// A structure, and where its checksum lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// What it is.
    pub structure: &'static str,
    /// Where it lies on the device, in bytes.
    pub range: Range<u64>,
    /// Offset of the checksum; version 4 has none.
    crc: Option<usize>,
}

impl Site {
    /// Stores the checksum that `bytes` (the whole structure) should have.
    pub fn mend(&self, bytes: &mut [u8]) {
        if let Some(field) = self.crc {
            crc::seal(bytes, field);
        }
    }
}

/// A kind of structure that begins at a block: its magic number at `at`, in versions 4 and 5, and the offset of its
/// checksum in version 5.
struct Kind {
    structure: &'static str,
    at: usize,
    magic: [&'static [u8]; 2],
    crc: usize,
    /// Its size is that of a directory block.
    of_directory: bool,
}

const fn kind(structure: &'static str, magic: [&'static [u8]; 2], crc: usize) -> Kind {
    Kind { structure, at: 0, magic, crc, of_directory: false }
}

/// A block of entries, or of the free index.
const fn entries(magic: [&'static [u8]; 2]) -> Kind {
    Kind { structure: "directory block", at: 0, magic, crc: 4, of_directory: true }
}

/// A block of a hash tree, whose magic number follows its siblings.
const fn hash_tree(structure: &'static str, magic: [&'static [u8]; 2], of_directory: bool) -> Kind {
    Kind { structure, at: 8, magic, crc: 12, of_directory }
}

/// No structure of version 4 begins so.
const NONE: &[u8] = b"none";

const KINDS: [Kind; 17] = [
    kind("free space tree", [b"ABTB", b"AB3B"], 52),
    kind("free space tree", [b"ABTC", b"AB3C"], 52),
    kind("inode tree", [b"IABT", b"IAB3"], 52),
    kind("inode tree", [NONE, b"FIB3"], 52),
    kind("reverse map tree", [NONE, b"RMB3"], 52),
    kind("reference count tree", [NONE, b"R3FC"], 52),
    kind("extent tree", [b"BMAP", b"BMA3"], 64),
    entries([b"XD2B", b"XDB3"]),
    entries([b"XD2D", b"XDD3"]),
    entries([b"XD2F", b"XDF3"]),
    hash_tree("directory block", [&[0xd2, 0xf1, 0, 0], &[0x3d, 0xf1, 0, 0]], true),
    hash_tree("directory block", [&[0xd2, 0xff, 0, 0], &[0x3d, 0xff, 0, 0]], true),
    hash_tree("hash tree node", [&[0xfe, 0xbe, 0, 0], &[0x3e, 0xbe, 0, 0]], true),
    hash_tree("hash tree node", [&[0xfe, 0xbe, 0, 0], &[0x3e, 0xbe, 0, 0]], false),
    hash_tree("attribute block", [&[0xfb, 0xee, 0, 0], &[0x3b, 0xee, 0, 0]], false),
    kind("attribute value", [NONE, b"XARM"], 12),
    kind("symbolic link", [NONE, b"XSLM"], 12),
];

/// Headers of a group: each in a sector of its own, in this order.
const HEADERS: [(&str, &[u8; 4], usize); 4] = [
    ("superblock", b"XFSB", superblock::CRC_OFFSET),
    ("group header", b"XAGF", 216),
    ("group header", b"XAGI", 312),
    ("free list", b"XAFL", 32),
];

/// The structures of the filesystem on `device`: the headers of groups first, then in the order in which they lie there.
///
/// # Errors
/// The superblock is not readable; I/O failure.
pub fn sites(device: &dyn BlockDevice) -> Result<Vec<Site>> {
    let superblock = Superblock::read(device)?;
    let geometry = superblock.geometry();
    let mut survey = Survey { geometry, self_describing: superblock.features().has_crc(), sites: Vec::new() };
    let block_bytes = u64::from(geometry.block_bytes());
    let mut block = vec![0; geometry.dir_block_bytes() as usize];
    let group_bytes = u64::from(geometry.ag_blocks()) * block_bytes;
    for group in 0..u64::from(geometry.ag_count()) {
        let mut sector = vec![0; geometry.sector_bytes() as usize];
        for (number, header) in HEADERS.iter().enumerate() {
            let at = group * group_bytes + number as u64 * sector.len() as u64;
            device.read_at(at, &mut sector)?;
            survey.add_header(at, &sector, *header);
        }
    }
    let log = superblock
        .log_start()
        .and_then(|start| geometry.linear(start))
        .map_or(0..0, |start| start..start + u64::from(superblock.log_blocks()));
    for number in 0..geometry.blocks() {
        let at = number * block_bytes;
        if log.contains(&number) {
            let bytes = &mut block[..block_bytes as usize];
            device.read_at(at, bytes)?;
            if bytes.iter().any(|&byte| byte != 0) {
                survey.sites.push(Site { structure: "log block", range: at..at + block_bytes, crc: None });
            }
            continue;
        }
        // The last blocks of the device are shorter than a directory block.
        let len = (block.len() as u64).min(geometry.data_bytes() - at) as usize;
        device.read_at(at, &mut block[..len])?;
        survey.add_block(at, &block[..len]);
    }
    Ok(survey.sites)
}

struct Survey<'a> {
    geometry: &'a Geometry,
    self_describing: bool,
    sites: Vec<Site>,
}

impl Survey<'_> {
    fn add_header(
        &mut self,
        at: u64,
        sector: &[u8],
        (structure, magic, crc): (&'static str, &[u8; 4], usize),
    ) {
        if sector.starts_with(magic) {
            self.add(structure, at, sector, crc);
        }
    }

    fn add_block(&mut self, at: u64, bytes: &[u8]) {
        let block_bytes = self.geometry.block_bytes() as usize;
        if bytes.starts_with(b"IN") {
            let inode_bytes = self.geometry.inode_bytes() as usize;
            for (number, inode) in bytes[..block_bytes].chunks_exact(inode_bytes).enumerate() {
                if inode.starts_with(b"IN") {
                    self.add("inode", at + (number * inode_bytes) as u64, inode, dinode::CRC_OFFSET);
                }
            }
            return;
        }
        for kind in &KINDS {
            let magic = kind.magic[usize::from(self.self_describing)];
            let len = if kind.of_directory { self.geometry.dir_block_bytes() as usize } else { block_bytes };
            let Some(structure) = bytes.get(..len).filter(|bytes| bytes[kind.at..].starts_with(magic)) else {
                continue;
            };
            if self.add(kind.structure, at, structure, kind.crc) {
                return;
            }
        }
    }

    /// Whether it is what it seems to be.
    fn add(&mut self, structure: &'static str, at: u64, bytes: &[u8], crc: usize) -> bool {
        let holds = !self.self_describing || crc::verify(bytes, crc).is_ok();
        if holds {
            let range = at..at + bytes.len() as u64;
            self.sites.push(Site { structure, range, crc: self.self_describing.then_some(crc) });
        }
        holds
    }
}

#[cfg(all(test, feature = "oracle"))]
mod tests {
    use std::collections::BTreeSet;

    use undercroft_block::{FileDevice, FileOptions};

    use super::*;
    use crate::da::testing::Image;

    #[test]
    fn structures_are_found_and_mended() {
        let names: String =
            (0..3000).map(|number| format!("a-rather-long-name-{number} ---644 0 0 CONTENT\n")).collect();
        for (args, mends) in
            [("", true), ("-b size=1024 -n size=8192 -m rmapbt=1", true), ("-m crc=0", false)]
        {
            let image =
                Image::make(args, &format!("/dev/null\n0 0\nd--755 0 0\nmany d--755 0 0\n{names}$\n$\n"));
            let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
            let sites = sites(&device).unwrap();
            let kinds: BTreeSet<&str> = sites.iter().map(|site| site.structure).collect();
            for kind in
                ["superblock", "group header", "free space tree", "inode tree", "inode", "directory block"]
            {
                assert!(kinds.contains(kind), "{kind} of mkfs.xfs {args}: {kinds:?}");
            }
            assert_eq!(sites.iter().filter(|site| site.structure == "group header").count(), 8);
            for site in &sites {
                let mut bytes = vec![0; (site.range.end - site.range.start) as usize];
                device.read_at(site.range.start, &mut bytes).unwrap();
                let good = bytes.clone();
                site.mend(&mut bytes);
                assert_eq!(bytes, good, "{site:?}");
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                let damaged = bytes.clone();
                site.mend(&mut bytes);
                let mends = mends && site.structure != "log block";
                assert_eq!(bytes != damaged, mends, "{site:?}");
            }
        }
    }
}
