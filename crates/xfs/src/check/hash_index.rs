//! The hash index of a directory that has several blocks, with its tree, and the index of unused space.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use undercroft_vfs::Result;

use super::Checker;
use super::directories::{Directory, NO_BLOCK, Sizes, term};
use super::raw::{be16, be32};
use crate::format::block_header::HeaderKind;

/// Magic numbers of version 4; those of version 5 have the same last byte and begin with 0x3d or 0x3e.
const LEAF_1: [u16; 2] = [0xd2f1, 0x3df1];
const LEAF_N: [u16; 2] = [0xd2ff, 0x3dff];
const NODE: [u16; 2] = [0xfebe, 0x3ebe];

/// No tree is deeper than this.
const LEVELS_MAX: u16 = 5;

/// Entries whose names are compared because they have one hash. In a directory that was not made for it few do.
const SAME_HASH_MAX: usize = 1 << 20;

/// A block, the level that it must have, unless it is the root, and the highest hash that the block above has for it.
pub(super) type Below = (u32, Option<u16>, Option<u32>);

/// A sum over the index.
#[derive(Default)]
struct Seen {
    sum: u64,
    count: u64,
    last_hash: u32,
    /// Hash and place of the entry before.
    before: Option<(u32, u32)>,
    /// Places of entries that share their hash with another.
    same_hash: Vec<u32>,
    /// Blocks of the index, by their first filesystem block.
    blocks: HashSet<u64>,
    /// The last block of each level, and the one that it names as the next.
    siblings: Vec<Option<(u32, u32)>>,
}

impl Checker<'_> {
    pub(super) fn check_hash_index(&self, directory: &mut Directory<'_>, sizes: &Sizes) -> Result<()> {
        let mut seen = Seen::default();
        let end = directory.fork.end();
        let is_leaf = end == sizes.index_start + u64::from(sizes.unit);
        if is_leaf {
            self.check_only_leaf(directory, sizes, &mut seen)?;
        } else {
            self.check_index_tree(directory, sizes, &mut seen)?;
            self.check_free_index(directory, sizes)?;
        }
        if !directory.complete {
            return Ok(());
        }
        let at = directory.inode.at();
        if (seen.sum, seen.count) != (directory.sum, directory.entries) {
            let detail = format!(
                "the directory's index has {} entries, the directory {}, and they differ",
                seen.count, directory.entries
            );
            self.findings.add("directory-index", at, detail);
        } else {
            self.check_equal_names(directory, sizes, std::mem::take(&mut seen.same_hash))?;
        }
        let unit = u64::from(sizes.unit);
        let blocks: u64 = directory
            .fork
            .extents
            .iter()
            .filter(|extent| (sizes.index_start..sizes.free_start).contains(&extent.file.0))
            .map(|extent| u64::from(extent.count))
            .sum();
        if blocks != seen.blocks.len() as u64 * unit {
            let detail = format!(
                "the directory's index has {} blocks, and {} are in use",
                seen.blocks.len(),
                blocks / unit
            );
            self.findings.add("directory-index", at, detail);
        }
        Ok(())
    }

    /// Compares the names of the entries at these places: only names of one hash can be equal. A number is kept for
    /// each name that an image cannot predict.
    fn check_equal_names(
        &self,
        directory: &Directory<'_>,
        sizes: &Sizes,
        mut places: Vec<u32>,
    ) -> Result<()> {
        places.sort_unstable();
        places.dedup();
        let numbers = RandomState::new();
        let mut names = HashSet::new();
        let mut bytes = vec![0; sizes.block_bytes];
        let mut read = None;
        for place in places {
            let byte = u64::from(place) * 8;
            let (number, at) = (byte / sizes.block_bytes as u64, (byte % sizes.block_bytes as u64) as usize);
            if read != Some(number) {
                let parts = bytes.chunks_exact_mut(self.geometry.block_bytes() as usize);
                for (part, n) in parts.zip(number * u64::from(sizes.unit)..) {
                    let Some(block) = directory.fork.block_at(n) else { return Ok(()) };
                    self.read_into(block, part)?;
                }
                read = Some(number);
            }
            let len = bytes.get(at + 8).map_or(0, |&len| usize::from(len));
            if let Some(name) = bytes.get(at + 9..at + 9 + len)
                && !names.insert(numbers.hash_one(sizes.key(name)))
            {
                let detail = format!("two entries have the name \"{}\"", name.escape_ascii());
                self.findings.add("directory-index", directory.inode.at(), detail);
            }
        }
        Ok(())
    }

    /// Checks the entries of a leaf that begins at `header`; returns whether they can be used.
    fn take_leaf(
        &self,
        directory: &mut Directory<'_>,
        bytes: &[u8],
        header: usize,
        end: usize,
        seen: &mut Seen,
    ) -> Option<u32> {
        let at = directory.inode.at();
        let report = |detail: String| self.findings.add("directory-index", at, detail);
        let (count, stale) = (usize::from(be16(bytes, header - 8)), be16(bytes, header - 6));
        let (count, stale) =
            if header == 16 { (usize::from(be16(bytes, 12)), be16(bytes, 14)) } else { (count, stale) };
        if header + count * 8 > end {
            report(format!("a leaf of the directory's index has {count} entries, more than have room"));
            directory.complete = false;
            return None;
        }
        let mut found = 0;
        for entry in bytes[header..header + count * 8].chunks_exact(8) {
            let (hash, place) = (be32(entry, 0), be32(entry, 4));
            if hash < seen.last_hash {
                report("the directory's index is not in the order of hashes".to_owned());
            }
            seen.last_hash = hash;
            if place == 0 {
                found += 1;
                continue;
            }
            seen.sum = seen.sum.wrapping_add(term(hash, place.into()));
            seen.count += 1;
            if let Some((hash_before, place_before)) = seen.before.replace((hash, place))
                && hash_before == hash
                && seen.same_hash.len() < SAME_HASH_MAX
            {
                seen.same_hash.extend([place_before, place]);
            }
        }
        if found != stale {
            report(format!("a leaf of the directory's index counts {stale} stale entries, and has {found}"));
        }
        (count > 0).then_some(seen.last_hash)
    }

    /// The index in one block, which has the unused space of all blocks at its end.
    fn check_only_leaf(&self, directory: &mut Directory<'_>, sizes: &Sizes, seen: &mut Seen) -> Result<()> {
        let at = directory.inode.at();
        let report = |detail: String| self.findings.add("directory-index", at, detail);
        let Some(bytes) =
            self.read_directory_block(directory, sizes, sizes.index_start, HeaderKind::DaBlock)?
        else {
            return Ok(());
        };
        seen.blocks.insert(sizes.index_start);
        if be16(&bytes, 8) != LEAF_1[usize::from(sizes.has_crc)] {
            report(format!("the directory's index has magic number {:#06x}", be16(&bytes, 8)));
            directory.complete = false;
            return Ok(());
        }
        if (be32(&bytes, 0), be32(&bytes, 4)) != (0, 0) {
            report("the only block of the directory's index names siblings".to_owned());
        }
        let bests = be32(&bytes, bytes.len() - 4) as usize;
        let header = if sizes.has_crc { 64 } else { 16 };
        if bests * 2 + header + 4 > bytes.len() {
            report(format!(
                "the directory's index has the unused space of {bests} blocks, more than have room"
            ));
            return Ok(());
        }
        let end = bytes.len() - 4 - bests * 2;
        self.take_leaf(directory, &bytes, header, end, seen);
        let stored: Vec<u16> = (0..bests).map(|n| be16(&bytes, end + n * 2)).collect();
        if directory.complete && stored != directory.best {
            report("the directory's index has another unused space than its blocks".to_owned());
        }
        Ok(())
    }

    fn check_index_tree(&self, directory: &mut Directory<'_>, sizes: &Sizes, seen: &mut Seen) -> Result<()> {
        // Block, the level it must have (the root's is not known), and the highest hash that the block above has for it.
        let mut stack: Vec<Below> = vec![(sizes.index_start as u32, None, None)];
        while let Some((block, level, hash)) = stack.pop() {
            let Some(children) = self.check_index_block(directory, sizes, seen, block, level, hash)? else {
                continue;
            };
            stack.extend(children.into_iter().rev());
        }
        let at = directory.inode.at();
        if seen.siblings.iter().flatten().any(|&(_, next)| next != 0) {
            self.findings.add(
                "directory-index",
                at,
                "the last block of a level of the directory's index names a next one",
            );
        }
        Ok(())
    }

    /// One block of the tree; the blocks below it.
    fn check_index_block(
        &self,
        directory: &mut Directory<'_>,
        sizes: &Sizes,
        seen: &mut Seen,
        block: u32,
        level: Option<u16>,
        expected: Option<u32>,
    ) -> Result<Option<Vec<Below>>> {
        let at = directory.inode.at();
        let report = |detail: String| {
            self.findings.add(
                "directory-index",
                at,
                format!("block {block} of the directory's index {detail}"),
            );
        };
        let place = u64::from(block);
        if !(sizes.index_start..sizes.free_start).contains(&place) || !seen.blocks.insert(place) {
            report("is led to twice, or lies outside it".to_owned());
            directory.complete = false;
            return Ok(None);
        }
        let Some(bytes) = self.read_directory_block(directory, sizes, place, HeaderKind::DaBlock)? else {
            return Ok(None);
        };
        let version = usize::from(sizes.has_crc);
        let header = if sizes.has_crc { 64 } else { 16 };
        let fields = if sizes.has_crc { 56 } else { 12 };
        let magic = be16(&bytes, 8);
        let found_level = if magic == NODE[version] { be16(&bytes, fields + 2) } else { 0 };
        let is_leaf = magic == LEAF_N[version];
        if !is_leaf && magic != NODE[version] {
            report(format!("has magic number {magic:#06x}"));
            directory.complete = false;
            return Ok(None);
        }
        if level.is_some_and(|level| level != found_level)
            || found_level > LEVELS_MAX
            || !is_leaf && found_level == 0
        {
            report(format!("has level {found_level}, and should have {}", level.unwrap_or(1)));
            directory.complete = false;
            return Ok(None);
        }
        let slot = usize::from(found_level);
        seen.siblings.resize(seen.siblings.len().max(slot + 1), None);
        let (before, next) = seen.siblings[slot].unwrap_or((0, block));
        if be32(&bytes, 4) != before || next != block {
            report(format!("names {} as the one before it, and {before} is", be32(&bytes, 4)));
        }
        seen.siblings[slot] = Some((block, be32(&bytes, 0)));
        if is_leaf {
            let last = self.take_leaf(directory, &bytes, header, bytes.len(), seen);
            if let (Some(expected), Some(last)) = (expected, last)
                && expected != last
            {
                report(format!("ends with hash {last:#x}, and the block above has {expected:#x} for it"));
            }
            return Ok(None);
        }
        let count = usize::from(be16(&bytes, fields));
        if count == 0 || header + count * 8 > bytes.len() {
            report(format!("has {count} entries, none or more than have room"));
            directory.complete = false;
            return Ok(None);
        }
        let children: Vec<Below> = bytes[header..header + count * 8]
            .chunks_exact(8)
            .map(|entry| (be32(entry, 4), Some(found_level - 1), Some(be32(entry, 0))))
            .collect();
        if children.windows(2).any(|pair| pair[0].2 > pair[1].2) {
            report("has its hashes in the wrong order".to_owned());
        }
        let last = children.last().and_then(|child| child.2);
        if let (Some(expected), Some(last)) = (expected, last)
            && expected != last
        {
            report(format!("ends with hash {last:#x}, and the block above has {expected:#x} for it"));
        }
        Ok(Some(children))
    }

    /// The unused space of each block of entries, in blocks of their own.
    fn check_free_index(&self, directory: &mut Directory<'_>, sizes: &Sizes) -> Result<()> {
        let at = directory.inode.at();
        let report = |detail: String| self.findings.add("directory-free-index", at, detail);
        let header = if sizes.has_crc { 64 } else { 16 };
        let fields = if sizes.has_crc { 48 } else { 4 };
        let room = (sizes.block_bytes - header) / 2;
        let unit = u64::from(sizes.unit);
        let mut stored = vec![NO_BLOCK; directory.best.len()];
        let extents = directory.fork.extents.iter().filter(|extent| extent.file.0 >= sizes.free_start);
        let numbers = extents.flat_map(|extent| {
            let first = (extent.file.0 - sizes.free_start).div_ceil(unit);
            let end = (extent.end() - sizes.free_start).div_ceil(unit);
            first..end
        });
        for number in numbers {
            let first = sizes.free_start + number * unit;
            let Some(bytes) = self.read_directory_block(directory, sizes, first, HeaderKind::DirBlock)?
            else {
                continue;
            };
            let magic = if sizes.has_crc { *b"XDF3" } else { *b"XD2F" };
            if bytes[..4] != magic {
                report(format!("block {first} of the directory has magic number {:#010x}", be32(&bytes, 0)));
                directory.complete = false;
                continue;
            }
            let (start, valid, used) = (
                u64::from(be32(&bytes, fields)),
                be32(&bytes, fields + 4) as usize,
                be32(&bytes, fields + 8),
            );
            if start != number * room as u64 || valid > room {
                report(format!(
                    "block {first} of the directory has the unused space of {valid} blocks from {start} on"
                ));
                continue;
            }
            let mut found = 0;
            for n in 0..valid {
                let best = be16(&bytes, header + n * 2);
                found += u32::from(best != NO_BLOCK);
                match stored.get_mut(start as usize + n) {
                    Some(slot) => *slot = best,
                    None if best != NO_BLOCK => {
                        report(format!(
                            "the unused space of block {} is listed, but the block is not there",
                            start as usize + n
                        ));
                    }
                    None => {}
                }
            }
            if found != used {
                report(format!(
                    "block {first} of the directory counts {used} blocks with entries, and has {found}"
                ));
            }
        }
        if directory.complete && stored != directory.best {
            report("the directory's free index has another unused space than its blocks".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, fork};
    use super::*;
    use crate::da::Layout;
    use crate::dir::testing::single_block_of;

    /// Takes the index of these names as a leaf's, and compares names of one hash.
    fn check_names(bench: &Bench, names: &[&[u8]]) -> Vec<String> {
        const BLOCK: u64 = 500;
        let entries: Vec<(&[u8], u64, u8)> = names.iter().map(|name| (*name, 131, 1)).collect();
        let block = single_block_of(&Layout::of(&bench.superblock), 130, 128, &entries);
        bench.put(BLOCK, &block);
        let count = names.len() + 2;
        let mut leaf = vec![0; 4096];
        leaf[56..58].copy_from_slice(&(count as u16).to_be_bytes());
        leaf[64..64 + count * 8].copy_from_slice(&block[4096 - 8 - count * 8..4096 - 8]);
        let inode = bench.inode(130, |raw| {
            raw.di_mode.set(0o040_755);
            raw.di_size.set(4096);
        });
        let (checker, fork) = (bench.checker(), fork(BLOCK, 1));
        let sizes = checker.sizes();
        let mut directory = Directory {
            inode: inode.get(),
            fork: &fork,
            sum: 0,
            entries: 0,
            best: Vec::new(),
            complete: true,
        };
        let mut seen = Seen::default();
        checker.take_leaf(&mut directory, &leaf, 64, 4096, &mut seen);
        checker.check_equal_names(&directory, &sizes, seen.same_hash).unwrap();
        checker.reported()
    }

    #[test]
    fn equal_names_are_found_and_names_of_one_hash_are_none() {
        let bench = Bench::new(|_| {});
        // Each of these two bytes makes up for the other, seven bits apart.
        let (one, other): (&[u8], &[u8]) = (b"x\x41\x01", b"x\x40\x81");
        assert_eq!(crate::da::hash_name(one), crate::da::hash_name(other));
        assert_eq!(check_names(&bench, &[one, other, b"name", b"NAME"]), [""; 0]);
        for names in [[one, other, one, b"name"], [b"name", b"a", b"name", b"b"]] {
            let reported = check_names(&bench, &names);
            assert!(reported.len() == 1 && reported[0].contains("two entries have the name"), "{reported:?}");
        }
    }

    #[test]
    fn equal_names_are_found_where_case_is_folded() {
        let bench = Bench::new(|raw| raw.sb_versionnum.set(raw.sb_versionnum.get() | 0x4000));
        let reported = check_names(&bench, &[b"name", b"other", b"NAME"]);
        assert!(reported.len() == 1 && reported[0].contains("two entries have the name"), "{reported:?}");
    }
}
