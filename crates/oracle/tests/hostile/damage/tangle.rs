//! Directory graphs that are no trees: entries of real directories that lead to other directories, to the root, to the
//! directory that holds them. Checksums are recomputed, so that nothing else is wrong.

use std::sync::Arc;

use undercroft_block::testing::Rng;

use super::{Damaged, Victim};

const ROOT: u32 = 2;
const DIRECTORY: u8 = 2;
/// Most entries that are led astray.
const MOST: u64 = 6;

/// An entry in a block.
#[derive(Clone, Copy)]
struct Entry {
    at: usize,
    is_dots: bool,
}

impl Victim {
    /// Some entries changed.
    pub(crate) fn tangled(&self, random: &mut Rng) -> Damaged {
        let blocks: Vec<usize> = (0..self.sites.len())
            .filter(|&site| self.sites[site].structure == "directory block")
            .filter(|&site| !entries(self.good(site)).is_empty())
            .collect();
        let directories: Vec<u32> = blocks.iter().filter_map(|&site| owner(self.good(site))).collect();
        let mut damaged = Damaged { base: Arc::clone(&self.bytes), patches: Vec::new() };
        for _ in 0..=random.below(MOST) {
            let site = blocks[random.below(blocks.len() as u64) as usize];
            let start = self.sites[site].range.start;
            let known = damaged.patches.iter().position(|(patched, _)| *patched == start);
            let mut bytes =
                known.map_or_else(|| self.good(site).to_vec(), |known| damaged.patches.swap_remove(known).1);
            let candidates = entries(&bytes);
            let entry = candidates[random.below(candidates.len() as u64) as usize];
            let any = directories[random.below(directories.len() as u64) as usize];
            let to = match random.below(5) {
                0 => ROOT,
                1 => owner(&bytes).unwrap_or(any),
                _ => any,
            };
            bytes[entry.at..entry.at + 4].copy_from_slice(&to.to_le_bytes());
            if !entry.is_dots && bytes[entry.at + 7] != 0 {
                bytes[entry.at + 7] = DIRECTORY;
            }
            self.sites[site].mend(&mut bytes);
            damaged.patches.push((start, bytes));
        }
        damaged
    }

    fn good(&self, site: usize) -> &[u8] {
        let range = &self.sites[site].range;
        &self.bytes[range.start as usize..range.end as usize]
    }
}

/// The directory whose first block this is.
fn owner(bytes: &[u8]) -> Option<u32> {
    let is_first = bytes[6] == 1 && bytes[8] == b'.';
    is_first.then(|| u32::from_le_bytes(bytes[..4].try_into().unwrap()))
}

/// The entries in use, `.` left out.
fn entries(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut at = 0;
    while at + 12 <= bytes.len() {
        let len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        if len < 12 || at + len > bytes.len() {
            break;
        }
        let name = &bytes[at + 8..(at + 8 + usize::from(bytes[at + 6])).min(bytes.len())];
        if bytes[at..at + 4] != [0; 4] && !name.is_empty() && name != b"." {
            entries.push(Entry { at, is_dots: name == b".." });
        }
        at += len;
    }
    entries
}
