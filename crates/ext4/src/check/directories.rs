//! The third pass: every entry of every directory, and the index over them.

use std::collections::{BTreeMap, HashSet};

use undercroft_diskfs::At;
use undercroft_vfs::Result;

use super::checker::Checker;
use super::index::Index;
use super::map::Mode;
use super::raw::{Inode, le16, le32};
use crate::checksum::crc32c;
use crate::dir::{self, ENCRYPTED_MIN_BYTES};
use crate::features::{Compat, Incompat};
use crate::inode::{InodeFlags, ROOT_INODE};
use crate::numbers::FsBlock;

const HEADER_BYTES: usize = 8;
const TAIL_BYTES: usize = 12;
const TAIL_KIND: u8 = 0xDE;

/// A directory whose entries are being looked at.
pub(super) struct Listed<'a> {
    pub(super) inode: Inode<'a>,
    /// Where in the directory the next entry stands: 0 is `.`, 1 is `..`.
    entries_seen: u64,
}

/// One entry.
#[derive(Clone, Copy)]
struct Entry<'a> {
    ino: u32,
    name: &'a [u8],
    kind: u8,
}

impl Checker<'_> {
    pub(super) fn check_directories(&mut self) -> Result<()> {
        let mut from = 0;
        while let Some(number) = self.directories.next_from(from) {
            from = number + 1;
            let number = number as u32;
            let bytes = self.read_inode(number)?;
            let Some(inode) = Inode::new(number, &bytes) else { continue };
            self.places.entry(number).or_default();
            if inode.links() == 0 {
                // It waits to be released, and has no names.
                continue;
            }
            if inode.flags().contains(InodeFlags::INLINE_DATA) {
                self.check_inline_directory(inode);
            } else if !self.damaged.contains(u64::from(number)) {
                self.check_directory(inode)?;
            }
        }
        Ok(())
    }

    /// An inode's bytes, which the pass before has seen.
    fn read_inode(&self, number: u32) -> Result<Vec<u8>> {
        let geometry = self.volume.superblock().geometry();
        let per_group = geometry.inodes_per_group();
        let table = self.groups[((number - 1) / per_group) as usize].inode_table << geometry.block_bits();
        let offset = table + u64::from((number - 1) % per_group) * u64::from(geometry.inode_bytes());
        let buffer = self.volume.read_block(FsBlock(offset >> geometry.block_bits()))?;
        let byte = (offset % u64::from(geometry.block_bytes())) as usize;
        Ok(buffer[byte..byte + usize::from(geometry.inode_bytes())].to_vec())
    }

    fn check_directory(&mut self, inode: Inode<'_>) -> Result<()> {
        let number = inode.number;
        let walked = self.walk_map(&inode, Mode::LookOnly)?;
        let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
        let mut next = 0;
        for run in &walked.runs {
            if run.file_block != next {
                let detail = format!("has no blocks from {next} to {}", run.file_block - 1);
                self.findings.add("directory-hole", At::inode(number), detail);
            }
            blocks.extend((0..run.count).map(|n| (run.file_block + n, run.first + n)));
            next = run.file_block + run.count;
        }
        let has_index = self.volume.superblock().features().compat.contains(Compat::DIR_INDEX)
            && inode.flags().contains(InodeFlags::INDEXED);
        let index = if has_index { Index::read(self, &inode, &blocks)? } else { Index::default() };
        let mut listed = Listed { inode, entries_seen: 0 };
        for run in &walked.runs {
            self.volume.buffers().prefetch(run.first, run.count);
            for n in 0..run.count {
                let (file_block, home) = (run.file_block + n, run.first + n);
                let buffer = self.volume.read_block(FsBlock(home))?;
                if index.is_node(file_block) && file_block != 0 {
                    continue;
                }
                if index.is_node(file_block) {
                    // The root looks like a block of entries without a checksum.
                    self.check_entries(&mut listed, Some(home), &buffer, None);
                    continue;
                }
                let end = self.check_tail(&listed.inode, home, &buffer);
                let range = index.leaf(file_block);
                if has_index && !index.is_broken && range.is_none() {
                    let detail = format!("no entry of the index leads to file block {file_block}");
                    self.findings.add("directory-index", At::inode(number).block(home), detail);
                }
                self.check_entries(
                    &mut listed,
                    Some(home),
                    &buffer[..end],
                    range.map(|range| (&index, range)),
                );
            }
        }
        if listed.entries_seen < 2 {
            self.findings.add("directory-dots", At::inode(number), "has no entries . and ..");
        }
        Ok(())
    }

    /// Validates the checksum of a block of entries; returns where the entries end.
    fn check_tail(&mut self, inode: &Inode<'_>, home: u64, bytes: &[u8]) -> usize {
        let superblock = self.volume.superblock();
        if !superblock.has_metadata_checksums() {
            return bytes.len();
        }
        let at = At::inode(inode.number).block(home);
        let end = bytes.len() - TAIL_BYTES;
        let tail = &bytes[end..];
        let is_tail = le32(tail, 0) == 0
            && usize::from(le16(tail, 4)) == TAIL_BYTES
            && tail[6] == 0
            && tail[7] == TAIL_KIND;
        if !is_tail {
            self.findings.add("directory-checksum", at, "a block of entries has no checksum at its end");
            return bytes.len();
        }
        let (stored, computed) = (le32(tail, 8), crc32c(inode.seed(superblock), &bytes[..end]));
        if stored != computed {
            let detail = format!("checksum is {stored:#010x}, its content gives {computed:#010x}");
            self.findings.add("directory-checksum", at, detail);
        }
        end
    }

    fn check_inline_directory(&mut self, inode: Inode<'_>) {
        let number = inode.number;
        let parent = le32(&inode.raw.i_block, 0);
        let in_inode = inode.raw.i_block[4..].to_vec();
        let in_attribute = inline_attribute(&inode);
        // `.` and `..` are not written down.
        self.count_link(number, number);
        self.note_dot_dot(number, parent);
        let mut listed = Listed { inode, entries_seen: 2 };
        self.check_entries(&mut listed, None, &in_inode, None);
        if !in_attribute.is_empty() {
            self.check_entries(&mut listed, None, &in_attribute, None);
        }
    }

    fn check_entries(
        &mut self,
        listed: &mut Listed<'_>,
        home: Option<u64>,
        bytes: &[u8],
        hashed: Option<(&Index, (u32, u32))>,
    ) {
        let number = listed.inode.number;
        let at = home.map_or(At::inode(number), |home| At::inode(number).block(home));
        let block_bytes = self.volume.block_bytes() as usize;
        let mut names: HashSet<&[u8]> = HashSet::new();
        let mut byte = 0;
        while byte < bytes.len() {
            let rest = &bytes[byte..];
            let len = dir::record_bytes(le16(rest, 4), block_bytes);
            let name_len = rest.get(6).map_or(0, |&len| usize::from(len));
            let fits =
                len >= 12 && len.is_multiple_of(4) && len <= rest.len() && HEADER_BYTES + name_len <= len;
            // A directory in its inode may end in less than an entry.
            if !fits {
                if home.is_some() || rest.iter().any(|&byte| byte != 0) {
                    let detail = format!("entry at byte {byte} is {len} bytes long, its name {name_len}");
                    self.findings.add("directory-entry", at, detail);
                }
                return;
            }
            let entry = Entry {
                ino: le32(rest, 0),
                name: &rest[HEADER_BYTES..HEADER_BYTES + name_len],
                kind: rest[7],
            };
            let place = listed.entries_seen;
            listed.entries_seen += 1;
            byte += len;
            if place < 2 && home.is_some() {
                self.check_dot(number, at, place, entry, rest[HEADER_BYTES + 1 + place as usize]);
                continue;
            }
            if entry.ino == 0 {
                continue;
            }
            self.check_entry(&listed.inode, at, entry);
            if !names.insert(entry.name) {
                let detail = format!("name {:?} comes twice", String::from_utf8_lossy(entry.name));
                self.findings.add("directory-name-twice", at, detail);
            }
            if let Some((index, (low, high))) = hashed
                && let Some(hash) = index.hash(self.volume, &listed.inode, entry.name)
                && !(low & !1..=high).contains(&hash)
            {
                let name = String::from_utf8_lossy(entry.name);
                let detail =
                    format!("name {name:?} has the hash {hash:#010x}, outside {low:#010x} to {high:#010x}");
                self.findings.add("directory-index-hash", at, detail);
            }
        }
    }

    fn check_dot(&mut self, number: u32, at: At, place: u64, entry: Entry<'_>, rest_of_name: u8) {
        let expected: &[u8] = if place == 0 { b"." } else { b".." };
        if entry.name != expected || entry.ino == 0 {
            let shown = String::from_utf8_lossy(expected);
            self.findings.add("directory-dots", at, format!("entry {place} is not {shown}"));
            return;
        }
        if rest_of_name != 0 {
            let shown = String::from_utf8_lossy(expected);
            self.findings.add("directory-dots", at, format!("{shown} does not end with a NUL byte"));
        }
        if place == 0 {
            if entry.ino != number {
                self.findings.add("directory-dots", at, format!(". leads to inode {}", entry.ino));
                return;
            }
            self.count_link(number, number);
        } else {
            self.note_dot_dot(number, entry.ino);
        }
        self.check_kind(at, entry);
    }

    fn note_dot_dot(&mut self, number: u32, parent: u32) {
        self.places.entry(number).or_default().dot_dot = parent;
        self.count_link(number, parent);
    }

    fn check_entry(&mut self, directory: &Inode<'_>, at: At, entry: Entry<'_>) {
        let Entry { ino, name, .. } = entry;
        let shown = String::from_utf8_lossy(name).into_owned();
        let encrypted = directory.flags().contains(InodeFlags::ENCRYPTED);
        let is_dot = matches!(name, b"." | b"..");
        if name.is_empty() || is_dot || !encrypted && name.iter().any(|&byte| byte == 0 || byte == b'/') {
            self.findings.add("directory-name", at, format!("an entry is named {shown:?}"));
        }
        if encrypted && name.len() < ENCRYPTED_MIN_BYTES {
            let detail = format!("an encrypted name has {} bytes", name.len());
            self.findings.add("encryption", at, detail);
        }
        let superblock = self.volume.superblock();
        let geometry = superblock.geometry();
        let own = [superblock.journal_inode(), superblock.orphan_file_inode()];
        let is_quota = superblock.quota_inodes().contains(&ino);
        let reserved = ino < geometry.first_inode() && ino != ROOT_INODE
            || ino != 0 && (is_quota || own.contains(&Some(ino)));
        if ino > geometry.inodes() || reserved {
            let detail = format!("entry {shown:?} leads to inode {ino}, which no name may have");
            self.findings.add("directory-entry", at, detail);
            return;
        }
        if !self.inodes.contains(u64::from(ino)) {
            let detail = format!("entry {shown:?} leads to inode {ino}, which is not in use");
            self.findings.add("directory-entry", at, detail);
            return;
        }
        if self.directories.contains(u64::from(ino)) {
            let place = self.places.entry(ino).or_default();
            if ino == ROOT_INODE || place.parent != 0 {
                let detail = format!("entry {shown:?} is one more name of directory {ino}");
                self.findings.add("directory-linked-twice", at, detail);
            } else {
                place.parent = directory.number;
            }
        }
        self.links.of(ino).found += 1;
        self.check_kind(at, entry);
        self.check_policy_of_entry(directory.number, at, ino, &shown);
    }

    fn count_link(&mut self, from: u32, to: u32) {
        let exists = to != 0 && to <= self.volume.superblock().geometry().inodes();
        if exists && self.inodes.contains(u64::from(to)) {
            self.links.of(to).found += 1;
        } else {
            let detail = format!("its entry .. leads to inode {to}, which is not in use");
            self.findings.add("directory-entry", At::inode(from), detail);
        }
    }

    fn check_kind(&mut self, at: At, entry: Entry<'_>) {
        let has_kinds = self.volume.superblock().features().incompat.contains(Incompat::FILETYPE);
        let expected = if has_kinds { self.kinds.get(entry.ino) } else { 0 };
        // An inode of no kind has been reported already.
        if expected != entry.kind && !(has_kinds && expected == 0) {
            let shown = String::from_utf8_lossy(entry.name);
            let detail =
                format!("entry {shown:?} says kind {}, inode {} is {expected}", entry.kind, entry.ino);
            self.findings.add("directory-entry-kind", at, detail);
        }
    }
}

/// The part of an inline directory that does not fit `i_block`.
fn inline_attribute(inode: &Inode<'_>) -> Vec<u8> {
    use crate::xattr::{Attributes, Value};
    const SYSTEM: u8 = 7;
    let area = inode.attribute_area();
    let entries = area.get(4..).unwrap_or(&[]);
    let value = Attributes::validate(entries, 0).ok().and_then(|attributes| attributes.find(SYSTEM, b"data"));
    match value.map(|entry| entry.value) {
        Some(Value::Here(value)) => value.to_vec(),
        _ => Vec::new(),
    }
}
