//! The entries of a directory, in each of its forms, and their sums for the comparison with its hash index.

use std::borrow::Cow;
use std::collections::HashSet;

use undercroft_vfs::Result;

use super::Checker;
use super::forks::Fork;
use super::inodes::Inode;
use super::raw::{be16, be32, be64, mix};
use crate::da::{Layout, fold_case};
use crate::format::Daddr;
use crate::format::block_header::{self, HeaderKind};
use crate::format::dinode::ForkFormat;
use crate::format::extent::Extent;

/// The tag of a piece of unused space.
const UNUSED: u16 = 0xffff;

/// What `bests` has for a block that is not there.
pub(super) const NO_BLOCK: u16 = 0xffff;

/// A directory while it is checked.
pub(super) struct Directory<'a> {
    pub(super) inode: Inode<'a>,
    pub(super) fork: &'a Fork,
    /// Sum and count over all entries: of each, its hash and place.
    pub(super) sum: u64,
    pub(super) entries: u64,
    /// The largest unused space of each block of entries; [`NO_BLOCK`] where none is.
    pub(super) best: Vec<u16>,
    pub(super) complete: bool,
}

/// The sizes that a directory's blocks have.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) block_bytes: usize,
    /// Filesystem blocks in a directory block.
    pub(super) unit: u32,
    /// First filesystem block of the hash index, and of the free index.
    pub(super) index_start: u64,
    pub(super) free_start: u64,
    pub(super) data_header: usize,
    pub(super) has_crc: bool,
    pub(super) has_ftype: bool,
    layout: Layout,
}

impl Sizes {
    fn hash(&self, name: &[u8]) -> u32 {
        self.layout.hash(name)
    }

    /// What is the same of two names that a directory does not tell apart.
    pub(super) fn key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        if self.layout.folds_case {
            name.iter().map(|&byte| fold_case(byte)).collect::<Vec<_>>().into()
        } else {
            name.into()
        }
    }

    fn entry_bytes(&self, name: usize) -> usize {
        (8 + 1 + name + usize::from(self.has_ftype) + 2).next_multiple_of(8)
    }
}

/// What an index entry and the entry that it leads to have in common.
pub(super) fn term(hash: u32, place: u64) -> u64 {
    mix(&[hash.into(), place])
}

impl Checker<'_> {
    pub(super) fn sizes(&self) -> Sizes {
        let geometry = &self.geometry;
        let has_crc = geometry.has_crc();
        let layout = Layout::of(self.superblock);
        Sizes {
            block_bytes: geometry.dir_block_bytes() as usize,
            unit: geometry.dir_block_fsblocks(),
            index_start: layout.index_start().into(),
            free_start: layout.free_start().into(),
            data_header: if has_crc { 64 } else { 16 },
            has_crc,
            has_ftype: self.superblock.features().has_ftype(),
            layout,
        }
    }

    pub(super) fn check_directory(&self, inode: &Inode<'_>, fork: &Fork) -> Result<()> {
        let sizes = self.sizes();
        if inode.core.data_format == ForkFormat::Local {
            self.check_short(inode, &sizes);
            return Ok(());
        }
        if !fork.complete {
            return Ok(());
        }
        let mut directory =
            Directory { inode: *inode, fork, sum: 0, entries: 0, best: Vec::new(), complete: true };
        let unit = u64::from(sizes.unit);
        let is_block = fork.end() == unit;
        let data_end = fork.extents.iter().take_while(|extent| extent.file.0 < sizes.index_start).last();
        let data_blocks = data_end.map_or(0, Extent::end).div_ceil(unit);
        let at = inode.at();
        if inode.core.size_bytes != data_blocks * sizes.block_bytes as u64 {
            let detail = format!(
                "the directory has {} bytes, and {data_blocks} blocks of entries",
                inode.core.size_bytes
            );
            self.findings.add("directory-size", at, detail);
        }
        let mut extent = 0;
        for number in 0..data_blocks {
            let first = number * unit;
            // Extents are in order: where none reaches into the block, it is a hole.
            while fork.extents.get(extent).is_some_and(|extent| extent.end() <= first) {
                extent += 1;
            }
            if fork.extents.get(extent).is_none_or(|extent| extent.file.0 >= first + unit) {
                let gap = fork
                    .extents
                    .get(extent)
                    .map_or(data_blocks, |extent| extent.file.0 / unit)
                    .min(data_blocks);
                if gap > number && directory.best.len() as u64 == number {
                    directory.best.push(NO_BLOCK);
                }
                continue;
            }
            let Some(bytes) =
                self.read_directory_block(&mut directory, &sizes, first, HeaderKind::DirBlock)?
            else {
                directory.best.push(NO_BLOCK);
                continue;
            };
            self.check_data_block(&mut directory, &sizes, &bytes, number, is_block);
        }
        if !is_block {
            self.check_hash_index(&mut directory, &sizes)?;
        }
        Ok(())
    }

    /// Reads a block of a directory, which may lie in several extents; reports one that is not there in full.
    pub(super) fn read_directory_block(
        &self,
        directory: &mut Directory<'_>,
        sizes: &Sizes,
        first: u64,
        kind: HeaderKind,
    ) -> Result<Option<Vec<u8>>> {
        let at = directory.inode.at();
        let block_bytes = self.geometry.block_bytes() as usize;
        let mut bytes = vec![0; sizes.block_bytes];
        let mut home = None;
        for (n, part) in bytes.chunks_exact_mut(block_bytes).enumerate() {
            let Some(block) = directory.fork.block_at(first + n as u64) else {
                let detail = format!("the directory's block {first} is not there in full");
                self.findings.add("directory", at, detail);
                directory.complete = false;
                return Ok(None);
            };
            home.get_or_insert(block);
            self.read_into(block, part)?;
        }
        if let Some(home) = home {
            let daddr = self.geometry.daddr(home).unwrap_or(Daddr(0));
            let verdict =
                block_header::validate(&bytes, kind, self.superblock, daddr, directory.inode.number);
            if let Err(detail) = verdict {
                let detail = format!("the directory's block {first}: {detail}");
                self.findings.add("directory", at.block(home.0), detail);
            }
        }
        Ok(Some(bytes))
    }

    /// One block of entries.
    fn check_data_block(
        &self,
        directory: &mut Directory<'_>,
        sizes: &Sizes,
        bytes: &[u8],
        number: u64,
        is_block: bool,
    ) {
        let at = directory.inode.at();
        let report = |detail: String| {
            self.findings.add("directory", at, format!("block {number} of the directory {detail}"));
        };
        let magic = match (is_block, sizes.has_crc) {
            (true, true) => *b"XDB3",
            (true, false) => *b"XD2B",
            (false, true) => *b"XDD3",
            (false, false) => *b"XD2D",
        };
        if bytes[..4] != magic {
            report(format!("has magic number {:#010x}", be32(bytes, 0)));
            directory.complete = false;
            directory.best.push(NO_BLOCK);
            return;
        }
        let mut end = bytes.len();
        let mut index: &[u8] = &[];
        if is_block {
            let count = be32(bytes, end - 8) as usize;
            let room = (end - 8 - sizes.data_header) / 8;
            if count > room {
                report(format!("has an index of {count} entries, with room for {room}"));
                directory.complete = false;
                return;
            }
            index = &bytes[end - 8 - count * 8..end - 8];
            end -= 8 + count * 8;
        }
        let mut place = sizes.data_header;
        let mut unused: Vec<(u16, u16)> = Vec::new();
        let mut was_unused = false;
        let mut named = 0;
        while place < end {
            if be16(bytes, place) == UNUSED {
                let len = usize::from(be16(bytes, place + 2));
                if len < 8
                    || len % 8 != 0
                    || place + len > end
                    || be16(bytes, place + len - 2) != place as u16
                {
                    report(format!("has unused space of {len} bytes at {place}, which cannot be"));
                    directory.complete = false;
                    return directory.best.push(NO_BLOCK);
                }
                if was_unused {
                    report(format!("has unused space at {place} that goes on from the piece before it"));
                }
                was_unused = true;
                unused.push((place as u16, len as u16));
                place += len;
                continue;
            }
            was_unused = false;
            let name_bytes = bytes.get(place + 8).map_or(0, |&len| usize::from(len));
            let len = sizes.entry_bytes(name_bytes);
            if name_bytes == 0 || place + len > end || be16(bytes, place + len - 2) != place as u16 {
                report(format!("has an entry of {len} bytes at {place}, which cannot be"));
                directory.complete = false;
                return directory.best.push(NO_BLOCK);
            }
            let name = &bytes[place + 9..place + 9 + name_bytes];
            let code = if sizes.has_ftype { bytes[place + 9 + name_bytes] } else { 0 };
            let global = (number * bytes.len() as u64 + place as u64) / 8;
            directory.sum = directory.sum.wrapping_add(term(sizes.hash(name), global));
            directory.entries += 1;
            let order = if number == 0 { named } else { 2 };
            self.check_entry(&directory.inode, name, be64(bytes, place), code, order);
            named += 1;
            place += len;
        }
        if number == 0 && named < 2 {
            report("has no entries for \".\" and \"..\"".to_owned());
        }
        self.check_best(directory, sizes, bytes, number, &mut unused);
        if is_block {
            self.check_index_in_block(directory, sizes, bytes, index);
        }
    }

    /// The table of a block's three largest pieces of unused space.
    fn check_best(
        &self,
        directory: &mut Directory<'_>,
        sizes: &Sizes,
        bytes: &[u8],
        number: u64,
        unused: &mut [(u16, u16)],
    ) {
        unused.sort_by_key(|&(_, len)| std::cmp::Reverse(len));
        let table = if sizes.has_crc { 48 } else { 4 };
        let mut seen = [0_u16; 3];
        for (n, seen) in seen.iter_mut().enumerate() {
            let (place, len) = (be16(bytes, table + n * 4), be16(bytes, table + n * 4 + 2));
            *seen = len;
            let expected = unused.get(n).map_or(0, |&(_, len)| len);
            let is_there = len == 0 && place == 0 || unused.contains(&(place, len));
            if len != expected || !is_there {
                let detail = format!(
                    "block {number} of the directory names {len} bytes at {place} as its unused space {n}, and the largest has \
                     {expected}"
                );
                self.findings.add("directory", directory.inode.at(), detail);
            }
        }
        directory.best.push(unused.first().map_or(0, |&(_, len)| len));
    }

    /// The hash index at the end of the only block.
    fn check_index_in_block(&self, directory: &mut Directory<'_>, sizes: &Sizes, bytes: &[u8], index: &[u8]) {
        let report = |detail: String| self.findings.add("directory-index", directory.inode.at(), detail);
        let (mut sum, mut count, mut stale, mut before) = (0_u64, 0_u64, 0, 0);
        for entry in index.chunks_exact(8) {
            let (hash, place) = (be32(entry, 0), be32(entry, 4));
            if hash < before {
                report("the directory's index is not in the order of hashes".to_owned());
            }
            before = hash;
            if place == 0 {
                stale += 1;
                continue;
            }
            sum = sum.wrapping_add(term(hash, place.into()));
            count += 1;
        }
        let stored = be32(bytes, bytes.len() - 4);
        if stored != stale {
            report(format!("the directory's index counts {stored} stale entries, and has {stale}"));
        }
        if (sum, count) != (directory.sum, directory.entries) {
            report(format!(
                "the directory's index has {count} entries, the directory {}, and they differ",
                directory.entries
            ));
        }
        let mut names = HashSet::new();
        for pair in index.chunks_exact(8).filter(|entry| be32(entry, 4) != 0) {
            let place = be32(pair, 4) as usize * 8;
            let len = bytes.get(place + 8).map_or(0, |&len| usize::from(len));
            if let Some(name) = bytes.get(place + 9..place + 9 + len)
                && !names.insert(sizes.key(name))
            {
                report(format!("two entries have the name \"{}\"", name.escape_ascii()));
            }
        }
    }

    /// One entry: what it leads to, and its name. The first two of a directory are `.` and `..`.
    ///
    /// A directory without links was removed and waits to be released. Its entries are not counted: their links were
    /// taken away when it was removed, and the parent may be gone.
    fn check_entry(&self, inode: &Inode<'_>, name: &[u8], ino: u64, code: u8, order: usize) {
        let directory = inode.number;
        let is_removed = inode.core.links == 0;
        let report = |detail: String| {
            let detail = format!("entry \"{}\" {detail}", name.escape_ascii());
            self.findings.add("directory-entry", inode.at(), detail);
        };
        match order {
            0 => {
                if name != b"." || ino != directory {
                    report(format!("is the first, and leads to inode {ino}"));
                }
            }
            1 => {
                if name != b".." {
                    report("is the second, and should be \"..\"".to_owned());
                }
                if !is_removed {
                    self.note_parent(directory, ino);
                }
            }
            _ => {
                if name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                    report("has a name that no file can have".to_owned());
                }
                if self.superblock.own_inodes().any(|own| own == ino) {
                    report(format!("leads to inode {ino}, which is the filesystem's own"));
                }
                if code == 2 && !is_removed {
                    self.note_name(ino, directory);
                }
            }
        }
        if self.superblock.features().has_ftype() && !(1..=7).contains(&code) {
            report(format!("has the unknown kind of file {code}"));
        }
        if !is_removed && !self.count_link(ino, code) {
            report(format!("leads to inode {ino}, which does not exist"));
        }
    }

    /// A directory in its inode.
    fn check_short(&self, inode: &Inode<'_>, sizes: &Sizes) {
        let at = inode.at();
        let report =
            |detail: &str| self.findings.add("directory", at, format!("the directory in its inode {detail}"));
        let size = inode.core.size_bytes as usize;
        let Some(bytes) = inode.bytes.get(inode.core.data_fork.clone()).and_then(|fork| fork.get(..size))
        else {
            return report("is longer than its fork");
        };
        let (&[count, wide, ..], Some(_)) = (bytes, bytes.get(..6)) else { return report("is too short") };
        let ino_bytes = if wide > 0 { 8 } else { 4 };
        let ino_at = |place: usize| if wide > 0 { be64(bytes, place) } else { be32(bytes, place).into() };
        let mut place = 2 + ino_bytes;
        if bytes.len() < place {
            return report("is too short");
        }
        let parent = ino_at(2);
        if inode.core.links > 0 {
            self.note_parent(inode.number, parent);
            if !self.count_link(parent, if sizes.has_ftype { 2 } else { 0 }) {
                report("has a parent that does not exist");
            }
            // Of "." nothing is stored.
            self.count_link(inode.number, 0);
        }
        let mut wide_found = u32::from(parent > u32::MAX.into());
        let mut offset_from = sizes.data_header + sizes.entry_bytes(1) + sizes.entry_bytes(2);
        let mut names = HashSet::new();
        for _ in 0..count {
            let name_bytes = bytes.get(place).map_or(0, |&len| usize::from(len));
            let name_at = place + 3;
            let code_bytes = usize::from(sizes.has_ftype);
            let ino_place = name_at + name_bytes + code_bytes;
            if name_bytes == 0 || ino_place + ino_bytes > bytes.len() {
                return report("ends within an entry");
            }
            let name = &bytes[name_at..name_at + name_bytes];
            let code = if sizes.has_ftype { bytes[name_at + name_bytes] } else { 0 };
            let offset = usize::from(be16(bytes, place + 1));
            if offset < offset_from {
                report("has entries whose places overlap");
            }
            offset_from = offset + sizes.entry_bytes(name_bytes);
            let ino = ino_at(ino_place);
            wide_found += u32::from(ino > u32::MAX.into());
            if !names.insert(sizes.key(name)) {
                report("has two entries of one name");
            }
            self.check_entry(inode, name, ino, code, 2);
            place = ino_place + ino_bytes;
        }
        if place != bytes.len() {
            report("is longer than its entries");
        }
        if wide_found != u32::from(wide) {
            report("counts large inode numbers wrongly");
        }
        if offset_from + (usize::from(count) + 2) * 8 + 8 > sizes.block_bytes {
            report("has entries whose places lie past a block");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, fork};
    use super::*;
    use crate::da::Layout;
    use crate::dir::testing::single_block_of;

    const OWN: u64 = 130;
    const PARENT: u64 = 128;
    const BLOCK: u64 = 500;

    /// Checks a directory of one block, which has so many links.
    fn check_block<'b>(bench: &'b Bench, entries: &[(&[u8], u64, u8)], links: u32) -> Checker<'b> {
        let bytes = single_block_of(&Layout::of(&bench.superblock), OWN, PARENT, entries);
        bench.put_owned(BLOCK, OWN, HeaderKind::DirBlock, bytes);
        let inode = bench.inode(OWN, |raw| {
            raw.di_mode.set(0o040_755);
            raw.di_nlink.set(links);
            raw.di_size.set(4096);
            raw.di_nextents.set(1);
            raw.di_nblocks.set(1);
        });
        let checker = bench.checker();
        checker.check_directory(&inode.get(), &fork(BLOCK, 1)).unwrap();
        checker
    }

    /// Checks a directory in its inode without entries, which has so many links.
    fn check_short(bench: &Bench, links: u32) -> Checker<'_> {
        let mut inode = bench.inode(OWN, |raw| {
            raw.di_mode.set(0o040_755);
            raw.di_nlink.set(links);
            raw.di_format = 1;
            raw.di_size.set(6);
        });
        inode.change(|bytes| bytes[176 + 2..176 + 6].copy_from_slice(&(PARENT as u32).to_be_bytes()));
        let checker = bench.checker();
        checker.check_directory(&inode.get(), &fork(BLOCK, 0)).unwrap();
        checker
    }

    /// The version bit of a filesystem in which directories do not distinguish capital letters.
    fn folding() -> Bench {
        Bench::new(|raw| raw.sb_versionnum.set(raw.sb_versionnum.get() | 0x4000))
    }

    #[test]
    fn names_hash_with_small_letters_where_the_filesystem_folds_case() {
        let entries: &[(&[u8], u64, u8)] =
            &[(b"ReadMe", 131, 1), (b"MAKEFILE", 132, 1), (b"\xc4\xd7", 133, 1)];
        assert_eq!(check_block(&folding(), entries, 2).reported(), [""; 0]);
        assert_eq!(check_block(&Bench::new(|_| {}), entries, 2).reported(), [""; 0]);
    }

    #[test]
    fn names_that_a_directory_does_not_tell_apart_are_found() {
        let entries: &[(&[u8], u64, u8)] = &[(b"ReadMe", 131, 1), (b"README", 132, 1)];
        let reported = check_block(&folding(), entries, 2).reported();
        assert!(reported.len() == 1 && reported[0].contains("two entries have the name"), "{reported:?}");
        assert_eq!(check_block(&Bench::new(|_| {}), entries, 2).reported(), [""; 0]);
    }

    #[test]
    fn a_removed_directory_has_no_links_to_give() {
        let bench = Bench::new(|_| {});
        for checker in [check_block(&bench, &[], 2), check_short(&bench, 2)] {
            assert_eq!((checker.links_found(OWN), checker.links_found(PARENT)), (1, 1));
            assert_eq!(checker.reported(), [""; 0]);
        }
        for checker in [check_block(&bench, &[], 0), check_short(&bench, 0)] {
            assert_eq!((checker.links_found(OWN), checker.links_found(PARENT)), (0, 0));
            assert!(checker.directories.lock().is_empty(), "its parent does not count");
            assert_eq!(checker.reported(), [""; 0]);
        }
    }
}
