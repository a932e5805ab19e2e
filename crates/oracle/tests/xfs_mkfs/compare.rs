//! Whether two images hold the same bytes, looking at what is not a hole in either.
//!
//! Three inodes carry the moment at which they were made: root directory, bitmap and summary of the real-time section.
//! Their times of modification, change and creation count as equal, and so do their checksums, which cover those;
//! xfs_repair verifies the checksums elsewhere. Nothing else is left out.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use undercroft_oracle::data_segments;

const CHUNK: u64 = 1 << 20;
/// Inodes that carry times.
const TIMED: u64 = 3;
/// Within an inode: modification and change; checksum; creation.
const MASKED: [Range<u64>; 3] = [40..56, 100..104, 144..152];

struct Side {
    file: File,
    data: Vec<Range<u64>>,
    masked: Vec<Range<u64>>,
}

impl Side {
    fn open(path: &Path) -> Self {
        let file = File::open(path).expect("an image");
        let len = file.metadata().expect("its size").len();
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, 0).expect("a superblock");
        // sb_rootino and sb_inodelog; inode numbers of the first group count inodes from the start of the device.
        let root = u64::from_be_bytes(*sector[56..].first_chunk().expect("eight bytes"));
        let inode_log = sector[122];
        let inodes = (root..root + TIMED).map(|ino| ino << inode_log);
        let masked = inodes.flat_map(|at| MASKED.map(|range| at + range.start..at + range.end)).collect();
        let data = data_segments(&file, len).expect("its data");
        let data = data.into_iter().map(|(start, end)| start..end).collect();
        Self { file, data, masked }
    }

    fn read(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut bytes, range.start).expect("an image's bytes");
        for mask in &self.masked {
            for at in mask.start.max(range.start)..mask.end.min(range.end) {
                bytes[(at - range.start) as usize] = 0;
            }
        }
        bytes
    }
}

/// The first bytes that differ, in words.
pub(crate) fn difference(ours: &Path, theirs: &Path) -> Option<String> {
    let (ours, theirs) = (Side::open(ours), Side::open(theirs));
    let len = |side: &Side| side.file.metadata().expect("its size").len();
    if len(&ours) != len(&theirs) {
        return Some(format!("the image has {} bytes, mkfs.xfs's {}", len(&ours), len(&theirs)));
    }
    for segment in ours.data.iter().chain(&theirs.data) {
        let mut at = segment.start;
        while at < segment.end {
            let end = segment.end.min(at + CHUNK);
            let (mine, other) = (ours.read(at..end), theirs.read(at..end));
            if mine != other {
                let first = mine.iter().zip(&other).position(|(a, b)| a != b).expect("a difference");
                let part = |bytes: &[u8]| bytes[first..bytes.len().min(first + 16)].to_vec();
                return Some(format!(
                    "byte {}: {:02x?}, mkfs.xfs has {:02x?}",
                    at + first as u64,
                    part(&mine),
                    part(&other)
                ));
            }
            at = end;
        }
    }
    None
}
