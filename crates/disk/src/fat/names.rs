//! Directories: entries of 32 bytes, one with the short name of a file, and in front of it those that have the long one.
//!
//! A short name has eight characters and three behind a dot, in capital letters. A file whose name is not such a one gets one
//! made from it, with `~` and a number, which no other file of the directory has.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::LABEL_BYTES;
use super::time::fat_time;
use super::tree::{Content, Node, Tree};

pub(super) const ENTRY_BYTES: u64 = 32;
/// Characters of a long name in one entry, and where they stand in it.
const PART: usize = 13;
const PART_AT: [usize; PART] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];
const ATTRIBUTE_LONG: u8 = 0x0f;
const ATTRIBUTE_LABEL: u8 = 0x08;
const ATTRIBUTE_DIRECTORY: u8 = 0x10;
const ATTRIBUTE_ARCHIVE: u8 = 0x20;
/// Marks the last part of a long name, which comes first.
const LAST_PART: u8 = 0x40;

type Short = [u8; 11];

/// Bytes of a directory's entries.
pub(super) fn directory_bytes(tree: &Tree, index: usize, has_label: bool) -> u64 {
    let own = match index {
        0 => u64::from(has_label),
        _ => 2,
    };
    let names = tree.nodes()[index].children.iter().map(|&child| {
        let name = &tree.nodes()[child].name;
        1 + if exact(name).is_some() { 0 } else { parts(name) as u64 }
    });
    (own + names.sum::<u64>()) * ENTRY_BYTES
}

fn parts(name: &str) -> usize {
    name.encode_utf16().count().div_ceil(PART)
}

/// The entries of a directory.
pub(super) fn directory(
    tree: &Tree,
    index: usize,
    label: Option<[u8; LABEL_BYTES]>,
    time: i64,
    places: &[Range<u32>],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let node = &tree.nodes()[index];
    if let Some(label) = label {
        bytes.extend_from_slice(&entry(&label, ATTRIBUTE_LABEL, time, 0, 0));
    }
    if index > 0 {
        // The root is called zero here.
        let above = if node.parent == 0 { 0 } else { places[node.parent].start };
        let own = places[index].start;
        bytes.extend_from_slice(&entry(b".          ", ATTRIBUTE_DIRECTORY, node.modified, own, 0));
        bytes.extend_from_slice(&entry(b"..         ", ATTRIBUTE_DIRECTORY, node.modified, above, 0));
    }
    let mut shorts = Shorts::default();
    let children: Vec<&Node> = node.children.iter().map(|&child| &tree.nodes()[child]).collect();
    shorts.used.extend(children.iter().filter_map(|child| exact(&child.name)));
    for (child, &at) in children.iter().zip(&node.children) {
        let short = exact(&child.name).unwrap_or_else(|| {
            let short = shorts.make(&child.name);
            long(&mut bytes, &child.name, &short);
            short
        });
        let (attribute, size) = match child.content {
            Content::Directory => (ATTRIBUTE_DIRECTORY, 0),
            // They have no more than 32 bits.
            Content::File(size) => (ATTRIBUTE_ARCHIVE, size as u32),
        };
        bytes.extend_from_slice(&entry(&short, attribute, child.modified, places[at].start, size));
    }
    bytes
}

fn entry(short: &Short, attribute: u8, time: i64, cluster: u32, size: u32) -> [u8; ENTRY_BYTES as usize] {
    let (date, time) = fat_time(time);
    let (date, time) = (date.to_le_bytes(), time.to_le_bytes());
    let cluster = cluster.to_le_bytes();
    let mut bytes = [0; ENTRY_BYTES as usize];
    bytes[..11].copy_from_slice(short);
    bytes[11] = attribute;
    bytes[14..16].copy_from_slice(&time);
    bytes[16..18].copy_from_slice(&date);
    bytes[18..20].copy_from_slice(&date);
    bytes[20..22].copy_from_slice(&cluster[2..]);
    bytes[22..24].copy_from_slice(&time);
    bytes[24..26].copy_from_slice(&date);
    bytes[26..28].copy_from_slice(&cluster[..2]);
    bytes[28..].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// The entries of a long name, the last part first.
fn long(bytes: &mut Vec<u8>, name: &str, short: &Short) {
    let sum = short.iter().fold(0_u8, |sum, &byte| sum.rotate_right(1).wrapping_add(byte));
    let units: Vec<u16> = name.encode_utf16().collect();
    let count = parts(name);
    for (index, part) in units.chunks(PART).enumerate().rev() {
        let mut entry = [0; ENTRY_BYTES as usize];
        // A name has at most 20 parts.
        entry[0] = (index + 1) as u8 | if index + 1 == count { LAST_PART } else { 0 };
        entry[11] = ATTRIBUTE_LONG;
        entry[13] = sum;
        // Behind the end there is a zero, and then nothing.
        let padded = part.iter().copied().chain([0]).chain(std::iter::repeat(0xffff));
        for (at, unit) in PART_AT.into_iter().zip(padded) {
            entry[at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        bytes.extend_from_slice(&entry);
    }
}

fn is_short_char(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"!#$%&'()-@^_`{}~".contains(&byte)
}

/// The short name of a name that is one.
fn exact(name: &str) -> Option<Short> {
    let (base, end) = name.split_once('.').unwrap_or((name, ""));
    let fits = |part: &str, len: usize| part.len() <= len && part.bytes().all(is_short_char);
    let is_short = !base.is_empty() && fits(base, 8) && fits(end, 3) && !name.ends_with('.');
    is_short.then(|| short(base.as_bytes(), end.as_bytes()))
}

fn short(base: &[u8], end: &[u8]) -> Short {
    let mut short = [b' '; 11];
    short[..base.len()].copy_from_slice(base);
    short[8..8 + end.len()].copy_from_slice(end);
    short
}

/// The short names of a directory.
#[derive(Default)]
struct Shorts {
    used: HashSet<Short>,
    /// The last number that was given to names of this beginning and end.
    numbers: HashMap<(Vec<u8>, Vec<u8>), u32>,
}

impl Shorts {
    /// One for this name that is not used yet.
    fn make(&mut self, name: &str) -> Short {
        let name = name.trim_start_matches('.');
        let (base, end) = name.rsplit_once('.').unwrap_or((name, ""));
        let plain = |part: &str, len: usize| -> Vec<u8> {
            let chars = part.chars().filter(|char| !matches!(char, '.' | ' '));
            let byte = |char: char| match u8::try_from(char.to_ascii_uppercase()) {
                Ok(byte) if is_short_char(byte) => byte,
                _ => b'_',
            };
            chars.map(byte).take(len).collect()
        };
        let (base, end) = (plain(base, 6), plain(end, 3));
        let number = self.numbers.entry((base.clone(), end.clone())).or_default();
        loop {
            // A directory has fewer names than numbers.
            *number += 1;
            let tail = format!("~{number}");
            let kept = base.len().min(8 - tail.len().min(7));
            let made = short(&[&base[..kept], tail.as_bytes()].concat(), &end);
            if self.used.insert(made) {
                return made;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_single() {
        for (name, is) in [
            ("BOOTX64.EFI", Some(b"BOOTX64 EFI")),
            ("A", Some(b"A          ")),
            ("a", None),
            ("A.B.C", None),
            ("NINECHARS", None),
            (".A", None),
            ("A B", None),
        ] {
            assert_eq!(exact(name).as_ref(), is, "{name}");
        }
        let mut shorts = Shorts::default();
        shorts.used.insert(*b"LONGER~2TXT");
        let made: Vec<String> =
            ["longer name.txt", "longer names.txt", ".long.er.x y", "\u{e4}.conf", "longer one.text"]
                .iter()
                .map(|name| String::from_utf8(shorts.make(name).to_vec()).unwrap())
                .collect();
        assert_eq!(
            made,
            ["LONGER~1TXT", "LONGER~3TXT", "LONGER~1XY ", "_~1     CON", "LONGER~1TEX"].map(str::to_owned)
        );
        let many: HashSet<Short> =
            (0..20_000).map(|n| shorts.make(&format!("a file of number {n}"))).collect();
        assert_eq!(many.len(), 20_000);
    }
}
