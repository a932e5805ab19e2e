//! Extended attributes in each of their forms, with the tree of hashes over their leaves.

use std::borrow::Cow;
use std::collections::HashSet;

use undercroft_vfs::Result;

use super::Checker;
use super::forks::Fork;
use super::hash_index::Below;
use super::inodes::Inode;
use super::raw::{be16, be32};
use crate::attr::reserved;
use crate::da::hash_name;
use crate::format::block_header::{self, HeaderKind};
use crate::format::dinode::ForkFormat;

const LEAF: [u16; 2] = [0xfbee, 0x3bee];
const NODE: [u16; 2] = [0xfebe, 0x3ebe];
const LEVELS_MAX: u16 = 5;

/// Flags of an entry.
const LOCAL: u8 = 0x01;
const ROOT: u8 = 0x02;
const SECURE: u8 = 0x04;
const PARENT: u8 = 0x08;
const INCOMPLETE: u8 = 0x80;

/// The longest value in bytes.
const VALUE_MAX: u32 = 65_536;

/// What a walk along the leaves has seen.
#[derive(Default)]
struct Seen {
    blocks: HashSet<u64>,
    /// Blocks of values.
    value_blocks: u64,
    last_hash: u32,
    siblings: Vec<Option<(u32, u32)>>,
    complete: bool,
}

impl Checker<'_> {
    pub(super) fn check_attributes(&self, inode: &Inode<'_>, fork: &Fork) -> Result<()> {
        if inode.core.attr_fork.is_empty() {
            return Ok(());
        }
        match inode.core.attr_format {
            ForkFormat::Local => {
                self.check_short_attributes(inode);
                Ok(())
            }
            // A fork without extents is one that waits for its first attribute.
            _ if fork.extents.is_empty() || !fork.complete => Ok(()),
            _ => self.check_attribute_tree(inode, fork),
        }
    }

    fn check_short_attributes(&self, inode: &Inode<'_>) {
        let at = inode.at();
        let report =
            |detail: String| self.findings.add("xattr", at, format!("the attributes in the inode {detail}"));
        let bytes = inode.bytes.get(inode.core.attr_fork.clone()).unwrap_or(&[]);
        let total = usize::from(be16(bytes, 0));
        if total < 4 || total > bytes.len() {
            return report(format!("have {total} bytes, with room for {}", bytes.len()));
        }
        let bytes = &bytes[..total];
        let mut place = 4;
        let mut names = HashSet::new();
        for _ in 0..bytes[2] {
            let Some(&[name_bytes, value_bytes, flags]) = bytes.get(place..place + 3) else {
                return report("end within an entry".to_owned());
            };
            let name_at = place + 3;
            let end = name_at + usize::from(name_bytes) + usize::from(value_bytes);
            if name_bytes == 0 || end > total {
                return report("end within an entry".to_owned());
            }
            let (name, value) = bytes[name_at..end].split_at(usize::from(name_bytes));
            if let Some(detail) = wrong_flags(flags & !LOCAL).or_else(|| wrong_name(name, flags)) {
                report(detail);
            }
            self.wrong_value(name, flags, value).into_iter().for_each(&report);
            if flags & INCOMPLETE != 0 {
                report(format!("have \"{}\" half made or half removed", name.escape_ascii()));
            }
            if !names.insert((name, flags & !LOCAL & !INCOMPLETE)) && flags & PARENT == 0 {
                report(format!("have two entries of the name \"{}\"", name.escape_ascii()));
            }
            place = end;
        }
        if place != total {
            report(format!("have {total} bytes, and their entries end after {place}"));
        }
    }

    fn check_attribute_tree(&self, inode: &Inode<'_>, fork: &Fork) -> Result<()> {
        let at = inode.at();
        let mut seen = Seen { complete: true, ..Seen::default() };
        let mut stack: Vec<Below> = vec![(0, None, None)];
        while let Some((block, level, hash)) = stack.pop() {
            let children = self.check_attribute_block(inode, fork, &mut seen, block, level, hash)?;
            stack.extend(children.into_iter().rev());
        }
        if seen.siblings.iter().flatten().any(|&(_, next)| next != 0) {
            self.findings.add(
                "xattr",
                at,
                "the last block of a level of the attributes' tree names a next one",
            );
        }
        Ok(())
    }

    fn check_attribute_block(
        &self,
        inode: &Inode<'_>,
        fork: &Fork,
        seen: &mut Seen,
        block: u32,
        level: Option<u16>,
        expected: Option<u32>,
    ) -> Result<Vec<Below>> {
        let at = inode.at();
        let report = |detail: String| {
            self.findings.add("xattr", at, format!("block {block} of the attribute fork {detail}"));
        };
        let Some(home) = fork.block_at(block.into()) else {
            report("is led to, and is not there".to_owned());
            return Ok(Vec::new());
        };
        if !seen.blocks.insert(block.into()) {
            report("is led to twice".to_owned());
            return Ok(Vec::new());
        }
        let bytes = self.read(home, 1)?;
        let has_crc = self.geometry.has_crc();
        if let Some(daddr) = self.geometry.daddr(home)
            && let Err(detail) =
                block_header::validate(&bytes, HeaderKind::DaBlock, self.superblock, daddr, inode.number)
        {
            report(detail.into_owned());
        }
        let version = usize::from(has_crc);
        let fields = if has_crc { 56 } else { 12 };
        let magic = be16(&bytes, 8);
        let is_leaf = magic == LEAF[version];
        if !is_leaf && magic != NODE[version] {
            report(format!("has magic number {magic:#06x}"));
            return Ok(Vec::new());
        }
        let found_level = if is_leaf { 0 } else { be16(&bytes, fields + 2) };
        if level.is_some_and(|level| level != found_level)
            || found_level > LEVELS_MAX
            || !is_leaf && found_level == 0
        {
            report(format!("has level {found_level}, and should have {}", level.unwrap_or(1)));
            return Ok(Vec::new());
        }
        let slot = usize::from(found_level);
        seen.siblings.resize(seen.siblings.len().max(slot + 1), None);
        let (before, next) = seen.siblings[slot].unwrap_or((0, block));
        if be32(&bytes, 4) != before || next != block {
            report(format!("names {} as the one before it, and {before} is", be32(&bytes, 4)));
        }
        seen.siblings[slot] = Some((block, be32(&bytes, 0)));
        if is_leaf {
            let last = self.check_attribute_leaf(inode, fork, seen, &bytes, block)?;
            if let (Some(expected), Some(last)) = (expected, last)
                && expected != last
            {
                report(format!("ends with hash {last:#x}, and the block above has {expected:#x} for it"));
            }
            return Ok(Vec::new());
        }
        let header = fields + if has_crc { 8 } else { 4 };
        let count = usize::from(be16(&bytes, fields));
        if count == 0 || header + count * 8 > bytes.len() {
            report(format!("has {count} entries, none or more than have room"));
            return Ok(Vec::new());
        }
        let children: Vec<Below> = bytes[header..header + count * 8]
            .chunks_exact(8)
            .map(|entry| (be32(entry, 4), Some(found_level - 1), Some(be32(entry, 0))))
            .collect();
        if children.windows(2).any(|pair| pair[0].2 > pair[1].2) {
            report("has its hashes in the wrong order".to_owned());
        }
        if let (Some(expected), Some(last)) = (expected, children.last().and_then(|child| child.2))
            && expected != last
        {
            report(format!("ends with hash {last:#x}, and the block above has {expected:#x} for it"));
        }
        Ok(children)
    }

    /// Checks the entries of one leaf; returns its last hash.
    fn check_attribute_leaf(
        &self,
        inode: &Inode<'_>,
        fork: &Fork,
        seen: &mut Seen,
        bytes: &[u8],
        block: u32,
    ) -> Result<Option<u32>> {
        let at = inode.at();
        let report = |detail: String| {
            self.findings.add("xattr", at, format!("block {block} of the attribute fork {detail}"));
        };
        let has_crc = self.geometry.has_crc();
        let (fields, header) = if has_crc { (56, 80) } else { (12, 32) };
        let count = usize::from(be16(bytes, fields));
        let used = usize::from(be16(bytes, fields + 2));
        let first_used = match usize::from(be16(bytes, fields + 4)) {
            0 => bytes.len(),
            first => first,
        };
        let entries_end = header + count * 8;
        if entries_end > first_used || first_used > bytes.len() {
            report(format!("has {count} entries, and names from {first_used} on"));
            return Ok(None);
        }
        let mut taken: Vec<(usize, usize)> = vec![(0, entries_end)];
        let mut used_found = 0;
        let mut lowest = bytes.len();
        for entry in bytes[header..entries_end].chunks_exact(8) {
            let (hash, place, flags) = (be32(entry, 0), usize::from(be16(entry, 4)), entry[6]);
            if hash < seen.last_hash {
                report("has its hashes in the wrong order".to_owned());
            }
            seen.last_hash = hash;
            if let Some(detail) = wrong_flags(flags) {
                report(detail);
            }
            if place < first_used || place >= bytes.len() {
                report(format!("has an attribute at {place}, and names from {first_used} on"));
                return Ok(None);
            }
            let rest = &bytes[place..];
            let mut value_at = None;
            let (name, len) = if flags & LOCAL != 0 {
                let (value, name) = (usize::from(be16(rest, 0)), rest.get(2).map_or(0, |&n| usize::from(n)));
                value_at = Some(3 + name..3 + name + value);
                (rest.get(3..3 + name), 3 + name + value)
            } else {
                let name = rest.get(8).map_or(0, |&n| usize::from(n));
                // Linux counts the two bytes that its compilers put behind the nine of the structure.
                (rest.get(9..9 + name), 9 + 2 + name)
            };
            let len = len.next_multiple_of(4);
            let Some(name) = name.filter(|name| !name.is_empty() && len <= rest.len()) else {
                report(format!("has an attribute at {place} that reaches past the block"));
                return Ok(None);
            };
            if let Some(detail) = wrong_name(name, flags) {
                report(detail);
            }
            // A crash within setting one leaves this behind, and nothing shows it.
            if flags & INCOMPLETE != 0 && !self.recovered {
                report(format!("has the attribute \"{}\" half made or half removed", name.escape_ascii()));
            }
            if flags & PARENT == 0 && hash_name(name) != hash {
                report(format!("has the attribute \"{}\" under hash {hash:#x}", name.escape_ascii()));
            }
            used_found += len;
            lowest = lowest.min(place);
            taken.push((place, place + len));
            let value = match value_at {
                Some(place) => rest.get(place).map(Cow::Borrowed),
                None if flags & INCOMPLETE == 0 => {
                    let is_wanted = flags & ROOT != 0 && reserved::is_reserved(name);
                    self.check_value(inode, fork, seen, (be32(rest, 0), be32(rest, 4)), is_wanted)?
                        .map(Cow::Owned)
                }
                None => None,
            };
            if let Some(detail) = value.and_then(|value| self.wrong_value(name, flags, &value)) {
                report(detail);
            }
        }
        if used != used_found {
            report(format!("counts {used} bytes of names and values, and has {used_found}"));
        }
        // Attributes that went away may leave a gap before the first name; then the header says that there are holes.
        if count > 0 && lowest != first_used && bytes[fields + 6] == 0 {
            report(format!("has no holes and names from {first_used} on, and the first at {lowest}"));
        }
        taken.sort_unstable();
        if taken.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            report("has attributes that overlap".to_owned());
        }
        for n in 0..3 {
            let (base, size) =
                (usize::from(be16(bytes, fields + 8 + n * 4)), usize::from(be16(bytes, fields + 10 + n * 4)));
            let overlaps = taken.iter().any(|&(from, to)| base < to && from < base + size);
            if size > 0 && (base + size > bytes.len() || overlaps || base % 4 != 0 || size % 4 != 0) {
                report(format!("has {size} free bytes at {base}, which are in use or lie outside"));
            }
        }
        let last = if count > 0 { Some(seen.last_hash) } else { None };
        if count == 0 && !seen.siblings.is_empty() && fork.extents.len() > 1 {
            // A crash while a first large value is set leaves a single empty leaf.
            seen.complete = false;
        }
        Ok(last)
    }

    /// A value in blocks of its own, of which the first and the length are given. Returns it if it is wanted and there.
    fn check_value(
        &self,
        inode: &Inode<'_>,
        fork: &Fork,
        seen: &mut Seen,
        (first, len): (u32, u32),
        is_wanted: bool,
    ) -> Result<Option<Vec<u8>>> {
        let at = inode.at();
        let report = |detail: String| self.findings.add("xattr", at, detail);
        if first == 0 || len > VALUE_MAX {
            report(format!("a value of {len} bytes is said to begin at block {first} of the attribute fork"));
            return Ok(None);
        }
        let has_crc = self.geometry.has_crc();
        let header = if has_crc { 56 } else { 0 };
        let per_block = self.geometry.block_bytes() - header;
        let (mut value, mut is_whole) = (Vec::new(), true);
        let blocks = len.div_ceil(per_block);
        for n in 0..blocks {
            let number = u64::from(first) + u64::from(n);
            let Some(home) = fork.block_at(number) else {
                report(format!("block {number} of the attribute fork should hold a value, and is not there"));
                return Ok(None);
            };
            if !seen.blocks.insert(number) {
                report(format!("block {number} of the attribute fork holds two values"));
                return Ok(None);
            }
            seen.value_blocks += 1;
            if !has_crc && !is_wanted {
                continue;
            }
            let bytes = self.read(home, 1)?;
            let offset = n * per_block;
            let part = (len - offset).min(per_block);
            if has_crc
                && let Err(detail) = self.remote_header(&bytes, *b"XARM", home, inode.number, offset, part)
            {
                report(format!("a value in block {number} of the attribute fork: {detail}"));
                is_whole = false;
            }
            if is_wanted {
                value.extend_from_slice(&bytes[header as usize..(header + part) as usize]);
            }
        }
        Ok((is_wanted && is_whole).then_some(value))
    }

    /// What is wrong with the value of a name that belongs to XFS.
    fn wrong_value(&self, name: &[u8], flags: u8, value: &[u8]) -> Option<String> {
        if flags & ROOT == 0 || flags & INCOMPLETE != 0 {
            return None;
        }
        let wrong = reserved::check(name, value, self.geometry.has_crc()).err()?;
        Some(format!("have a wrong value for \"{}\": {wrong}", name.escape_ascii()))
    }
}

fn wrong_flags(flags: u8) -> Option<String> {
    let known = LOCAL | ROOT | SECURE | PARENT | INCOMPLETE;
    let spaces = (flags & (ROOT | SECURE | PARENT)).count_ones();
    (flags & !known != 0 || spaces > 1).then(|| format!("has an attribute with flags {flags:#x}"))
}

fn wrong_name(name: &[u8], flags: u8) -> Option<String> {
    (flags & PARENT == 0 && name.contains(&0))
        .then(|| format!("has the attribute \"{}\"", name.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, fork};
    use super::*;

    const OWN: u64 = 130;
    const BLOCK: u64 = 500;

    /// A name's bytes, its flags, and where its value lies if it lies elsewhere.
    type Given<'a> = (&'a [u8], u8, u32);

    /// A leaf of attributes, whose names and values are laid out from the end on as Linux does.
    fn leaf(given: &[Given<'_>]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[8..10].copy_from_slice(&LEAF[1].to_be_bytes());
        let mut put16 =
            |at: usize, value: usize| bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        let mut sorted = given.to_vec();
        sorted.sort_by_key(|given| hash_name(given.0));
        let sizes = |&(name, flags, _): &Given<'_>| match flags & LOCAL {
            0 => (11 + name.len()).next_multiple_of(4),
            _ => (3 + name.len()).next_multiple_of(4),
        };
        let used: usize = sorted.iter().map(sizes).sum();
        put16(56, sorted.len());
        put16(58, used);
        put16(60, 4096 - used);
        let mut place = 4096;
        for (n, given) in sorted.iter().enumerate() {
            let (name, flags, block) = *given;
            place -= sizes(given);
            let entry = 80 + n * 8;
            bytes[entry..entry + 4].copy_from_slice(&hash_name(name).to_be_bytes());
            bytes[entry + 4..entry + 6].copy_from_slice(&(place as u16).to_be_bytes());
            bytes[entry + 6] = flags;
            let name_at = if flags & LOCAL == 0 {
                bytes[place..place + 4].copy_from_slice(&block.to_be_bytes());
                bytes[place + 4..place + 8].copy_from_slice(&1000_u32.to_be_bytes());
                bytes[place + 8] = name.len() as u8;
                place + 9
            } else {
                bytes[place + 2] = name.len() as u8;
                place + 3
            };
            bytes[name_at..name_at + name.len()].copy_from_slice(name);
        }
        bytes
    }

    /// Checks an attribute fork of this leaf, and of values of 1,000 bytes in the blocks behind it.
    fn check_leaf(bytes: Vec<u8>, values: u32) -> Vec<String> {
        check_leaf_with(bytes, values, false)
    }

    fn check_leaf_with(bytes: Vec<u8>, values: u32, recovered: bool) -> Vec<String> {
        let bench = Bench::new(|_| {});
        bench.put_owned(BLOCK, OWN, HeaderKind::DaBlock, bytes);
        for n in 1..=values {
            let mut value = vec![0; 4096];
            value[..4].copy_from_slice(b"XARM");
            value[8..12].copy_from_slice(&1000_u32.to_be_bytes());
            bench.put_owned(BLOCK + u64::from(n), OWN, HeaderKind::Remote, value);
        }
        let inode = bench.inode(OWN, |raw| {
            raw.di_anextents.set(1);
            raw.di_nblocks.set(1);
        });
        let mut checker = bench.checker();
        checker.recovered = recovered;
        checker.check_attributes(&inode.get(), &fork(BLOCK, 1 + values)).unwrap();
        checker.reported()
    }

    #[test]
    fn attributes_that_are_not_whole_are_found_unless_a_crash_explains_them() {
        for given in [(&b"name"[..], LOCAL | INCOMPLETE, 0), (b"name", INCOMPLETE, 0)] {
            let reported = check_leaf(leaf(&[given]), 0);
            assert!(reported.len() == 1 && reported[0].contains("\"name\" half made"), "{reported:?}");
            assert_eq!(check_leaf_with(leaf(&[given]), 0, true), [""; 0]);
        }
    }

    #[test]
    fn the_first_name_lies_where_the_header_says_unless_there_are_holes() {
        let mut bytes = leaf(&[(b"one", LOCAL, 0), (b"two", LOCAL, 0)]);
        let first = be16(&bytes, 60) - 40;
        bytes[60..62].copy_from_slice(&first.to_be_bytes());
        let reported = check_leaf(bytes.clone(), 0);
        assert!(reported.len() == 1 && reported[0].contains("has no holes and names from"), "{reported:?}");
        bytes[62] = 1;
        assert_eq!(check_leaf(bytes, 0), [""; 0]);
    }

    #[test]
    fn names_of_values_elsewhere_take_two_bytes_more() {
        let names = ["a", "be", "big", "four", "fiver", "sixsix", "seven77", "SGI_ACL_DEFAULT"];
        let given: Vec<Given<'_>> =
            names.iter().enumerate().map(|(n, name)| (name.as_bytes(), 0, n as u32 + 1)).collect();
        assert_eq!(check_leaf(leaf(&given), names.len() as u32), [""; 0]);
        for given in &given {
            assert_eq!(check_leaf(leaf(&[(given.0, 0, 1)]), 1), [""; 0]);
            assert_eq!(check_leaf(leaf(&[(given.0, LOCAL, 0)]), 0), [""; 0]);
        }
    }
}
