//! Changing the entries in a stretch of bytes: a block, or a part of an inode.
//!
//! A look goes through all entries first and validates them, so that a change begins and ends with a valid chain.
//! Source: kernel documentation, section "Linear (Classic) Directories".

use std::ops::Range;

use undercroft_vfs::FileType;

use super::entry::{Entries, Entry, EntryFormat, HEADER_BYTES, entry_bytes};
use crate::error::Verdict;

/// An entry to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) name: &'a [u8],
    pub(super) number: u32,
    pub(super) kind: FileType,
}

/// An entry in use that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) number: u32,
    at: usize,
    next: usize,
    /// Where the entry before it begins.
    before: Option<usize>,
}

/// Where an entry can be put: behind the bytes that the entry there needs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    at: usize,
    /// What the entry that is there keeps; 0 when it is unused.
    kept_bytes: usize,
    next: usize,
}

/// What a look through the entries has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The name is there.
    Found(Place),
    /// It is not, and this is the first place that could take it.
    Room(Room),
    /// It is not, and no place could take it. If the entries moved together, one could.
    Scattered,
    /// There is no room for it.
    Full,
}

/// Looks for `name`, and for room for it.
pub(super) fn look(bytes: &[u8], format: EntryFormat, name: &[u8]) -> Verdict<Look> {
    let wanted = entry_bytes(name.len());
    let (mut before, mut room, mut used_bytes) = (None, None, 0);
    for entry in Entries::new(bytes, format) {
        let entry = entry?;
        let (at, next) = (entry.at, entry.next);
        let kept_bytes = kept_bytes(&entry);
        if entry.ino != 0 && entry.name == name {
            return Ok(Look::Found(Place { number: entry.ino, at, next, before }));
        }
        if room.is_none() && next - at - kept_bytes >= wanted {
            room = Some(Room { at, kept_bytes, next });
        }
        used_bytes += kept_bytes;
        before = Some(at);
    }
    Ok(match room {
        Some(room) => Look::Room(room),
        None if used_bytes + wanted <= bytes.len() => Look::Scattered,
        None => Look::Full,
    })
}

pub(super) fn kept_bytes(entry: &Entry<'_>) -> usize {
    // A name without bytes is corrupt; the shortest entry is kept for it.
    if entry.ino == 0 { 0 } else { entry_bytes(entry.name.len().max(1)) }
}

/// Puts an entry where a look has found room for it.
pub(super) fn insert(bytes: &mut [u8], format: EntryFormat, room: Room, new: &NewEntry<'_>) {
    let start = room.at + room.kept_bytes;
    if room.kept_bytes > 0 {
        format.write_record_bytes(&mut bytes[room.at..], room.kept_bytes);
    }
    format.write(&mut bytes[start..room.next], new.number, new.name, new.kind);
}

/// Takes an entry out: its space goes to the one before it.
pub(super) fn remove(bytes: &mut [u8], format: EntryFormat, place: Place) {
    let Place { at, next, before, .. } = place;
    // Nothing of the name stays on the disk, nor of one that was there before.
    clear(&mut bytes[at + HEADER_BYTES..next]);
    match before {
        Some(before) => {
            bytes[at..at + HEADER_BYTES].fill(0);
            format.write_record_bytes(&mut bytes[before..], next - before);
        }
        None => format.write_unused(&mut bytes[at..next]),
    }
}

/// Puts an entry where a look has found room for it, and takes out the one that another look found in the same bytes.
pub(super) fn insert_and_remove(
    bytes: &mut [u8],
    format: EntryFormat,
    room: Room,
    new: &NewEntry<'_>,
    mut old: Place,
) {
    insert(bytes, format, room, new);
    let start = room.at + room.kept_bytes;
    if old.at == room.at {
        // It had more room than it needs, and has less now.
        old.next = start;
    } else if old.before == Some(room.at) {
        old.before = Some(start);
    }
    remove(bytes, format, old);
}

/// Makes all bytes zero, and writes hardly more than those that are not. Most of a record is unused; writing all of it
/// would take the block's cache lines from other threads that work in the same block.
fn clear(bytes: &mut [u8]) {
    const ZEROES: [u8; 512] = [0; 512];
    let name_bytes = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let (name, room) = bytes.split_at_mut(name_bytes);
    name.fill(0);
    for part in room.chunks_mut(ZEROES.len()) {
        if *part != ZEROES[..part.len()] {
            part.fill(0);
        }
    }
}

/// Lets an entry lead somewhere else.
pub(super) fn replace(bytes: &mut [u8], format: EntryFormat, place: Place, number: u32, kind: FileType) {
    format.write_target(&mut bytes[place.at..place.next], number, kind);
}

/// Fills the bytes with entries that lie elsewhere, without room between them; the last one takes what is left.
pub(super) fn pack(bytes: &mut [u8], format: EntryFormat, source: &[u8], records: &[Record]) {
    bytes.fill(0);
    let (mut at, mut last) = (0, 0);
    for record in records {
        let target = &mut bytes[at..at + record.len_bytes];
        target.copy_from_slice(&source[record.at..record.at + record.len_bytes]);
        format.write_record_bytes(target, record.len_bytes);
        last = at;
        at += record.len_bytes;
    }
    if records.is_empty() {
        format.write_unused(bytes);
    } else {
        let len_bytes = bytes.len() - last;
        format.write_record_bytes(&mut bytes[last..], len_bytes);
    }
}

/// The same entries without room between them.
pub(super) fn compact(bytes: &[u8], format: EntryFormat) -> Verdict<Vec<u8>> {
    let mut compacted = vec![0; bytes.len()];
    pack(&mut compacted, format, bytes, &records(bytes, format, |_| 0)?);
    Ok(compacted)
}

/// An entry in use: where it lies, and what it keeps of that space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) hash: u32,
    at: usize,
    len_bytes: usize,
}

impl Record {
    pub(super) fn of(entry: &Entry<'_>, hash: u32) -> Self {
        Self { hash, at: entry.at, len_bytes: kept_bytes(entry) }
    }

    /// Where it lies, and as much of it as it keeps.
    pub(super) fn range(&self) -> Range<usize> {
        self.at..self.at + self.len_bytes
    }
}

/// All entries in use, in the order in which they lie.
pub(super) fn records(
    bytes: &[u8],
    format: EntryFormat,
    hash: impl Fn(&[u8]) -> u32,
) -> Verdict<Vec<Record>> {
    let mut records = Vec::new();
    for entry in Entries::new(bytes, format) {
        let entry = entry?;
        if entry.ino != 0 {
            records.push(Record::of(&entry, hash(entry.name)));
        }
    }
    Ok(records)
}

/// The entries of a leaf in two parts, by their hashes.
#[derive(Debug)]
pub(super) struct Halves {
    /// By rising hash.
    records: Vec<Record>,
    middle: usize,
}

impl Halves {
    /// Parts the entries of a full leaf so that both take about the same space. Neither is empty.
    pub(super) fn new(bytes: &[u8], format: EntryFormat, hash: impl Fn(&[u8]) -> u32) -> Verdict<Self> {
        let mut records = records(bytes, format, hash)?;
        records.sort_by_key(|record| record.hash);
        let used_bytes: usize = records.iter().map(|record| record.len_bytes).sum();
        let mut lower_bytes = 0;
        let middle = records.iter().position(|record| {
            let is_past = lower_bytes + record.len_bytes / 2 >= used_bytes / 2;
            lower_bytes += record.len_bytes;
            is_past
        });
        match middle {
            _ if records.len() < 2 => Err(format!("full with {} entries", records.len()).into()),
            middle => {
                let last = records.len() - 1;
                Ok(Self { middle: middle.unwrap_or(last).clamp(1, last), records })
            }
        }
    }

    pub(super) fn lower(&self) -> &[Record] {
        &self.records[..self.middle]
    }

    pub(super) fn upper(&self) -> &[Record] {
        &self.records[self.middle..]
    }

    /// The lowest and the highest hash of all.
    pub(super) fn range(&self) -> (u32, u32) {
        (self.records[0].hash, self.records[self.records.len() - 1].hash)
    }

    /// The hash by which the index finds the upper part; its lowest bit is set when the lower part has names with
    /// the same hash.
    pub(super) fn upper_key(&self) -> u32 {
        let from = self.records[self.middle].hash;
        from | u32::from(from == self.records[self.middle - 1].hash)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use undercroft_block::testing::Rng;

    use super::*;

    fn formats() -> [EntryFormat; 4] {
        [1024, 4096, 65536, 65536 - 12].map(|block_bytes| EntryFormat {
            block_bytes: block_bytes.max(1024),
            has_file_type: block_bytes != 4096,
        })
    }

    fn entries(bytes: &[u8], format: EntryFormat) -> BTreeMap<Vec<u8>, u32> {
        let used = Entries::new(bytes, format).map(Result::unwrap).filter(|entry| entry.ino != 0);
        used.map(|entry| (entry.name.to_vec(), entry.ino)).collect()
    }

    /// What the model has must be there, and the chain must reach the end, whatever was done.
    #[test]
    fn random_changes_agree_with_a_map() {
        for format in formats() {
            for len_bytes in [56, 1012, format.block_bytes - 12, format.block_bytes] {
                let mut random = Rng::new(0x5EED + len_bytes as u64);
                let mut bytes = vec![0; len_bytes];
                format.write_unused(&mut bytes);
                let mut model = BTreeMap::new();
                let (mut refused, mut compacted) = (0, 0);
                for number in 1..5000 {
                    let most = if random.index(3) == 0 { 255 } else { 20 };
                    let len = 1 + random.index(most);
                    let mut name = vec![b'x'; len];
                    name[0] = b'a' + random.index(20) as u8;
                    let new = NewEntry { name: &name, number, kind: FileType::Fifo };
                    match look(&bytes, format, &name).unwrap() {
                        Look::Found(place) => {
                            assert_eq!(model.get(&name), Some(&place.number));
                            if random.index(2) == 0 {
                                replace(&mut bytes, format, place, number, FileType::Socket);
                                model.insert(name, number);
                            } else {
                                remove(&mut bytes, format, place);
                                model.remove(&name);
                            }
                        }
                        Look::Room(room) => {
                            let old = model.keys().nth(random.index(2 * model.len() + 1)).cloned();
                            match old {
                                Some(old) => {
                                    let Look::Found(place) = look(&bytes, format, &old).unwrap() else {
                                        panic!("{} is not there", old.escape_ascii())
                                    };
                                    insert_and_remove(&mut bytes, format, room, &new, place);
                                    model.remove(&old);
                                }
                                None => insert(&mut bytes, format, room, &new),
                            }
                            assert_eq!(model.insert(name, number), None);
                        }
                        Look::Scattered => {
                            compacted += 1;
                            bytes = compact(&bytes, format).unwrap();
                            assert!(matches!(look(&bytes, format, &name).unwrap(), Look::Room(_)));
                        }
                        Look::Full => refused += 1,
                    }
                    assert_eq!(entries(&bytes, format), model);
                }
                assert!(
                    len_bytes > 4096 || refused > 100 && compacted > 0,
                    "{len_bytes}: {refused}, {compacted}"
                );
            }
        }
    }

    #[test]
    fn a_removed_name_leaves_nothing() {
        let format = formats()[0];
        let mut bytes = vec![0; 1024];
        format.write_unused(&mut bytes);
        for name in [&b"first"[..], b"second", b"third"] {
            let Look::Room(room) = look(&bytes, format, name).unwrap() else { panic!("no room") };
            insert(&mut bytes, format, room, &NewEntry { name, number: 7, kind: FileType::Regular });
        }
        for name in [&b"second"[..], b"first", b"third"] {
            let Look::Found(place) = look(&bytes, format, name).unwrap() else { panic!("not found") };
            remove(&mut bytes, format, place);
            assert!(!bytes.windows(name.len()).any(|window| window == name));
        }
        // What was first stays as an unused entry over everything.
        assert!(format.is_one_unused_entry(&bytes));
    }

    #[test]
    fn halves_part_by_hash_and_leave_room_for_the_longest_name() {
        let format = formats()[0];
        let mut random = Rng::new(77);
        for round in 0..2000 {
            let mut bytes = vec![0; 1012];
            format.write_unused(&mut bytes);
            let mut full = false;
            while !full {
                let mut name = vec![b'n'; 1 + random.index([255, 30, 8][round % 3])];
                name.iter_mut().take(8).for_each(|byte| *byte = b'a' + random.index(26) as u8);
                match look(&bytes, format, &name).unwrap() {
                    Look::Room(room) => {
                        insert(
                            &mut bytes,
                            format,
                            room,
                            &NewEntry { name: &name, number: 9, kind: FileType::Regular },
                        );
                    }
                    Look::Found(_) => {}
                    Look::Scattered | Look::Full => full = true,
                }
            }
            let hashes = 1 + random.index(20) as u32;
            let hash = |name: &[u8]| 2 * (u32::from(name[0]) % hashes);
            let halves = Halves::new(&bytes, format, hash).unwrap();
            let all = entries(&bytes, format);
            let mut parts = BTreeMap::new();
            for (part, is_upper) in [(halves.lower(), false), (halves.upper(), true)] {
                let mut target = vec![0xEE; 1012];
                pack(&mut target, format, &bytes, part);
                assert!(!part.is_empty());
                for name in entries(&target, format).keys() {
                    let above = hash(name) >= halves.upper_key() & !1;
                    assert!(if is_upper { above } else { hash(name) < halves.upper_key() }, "round {round}");
                }
                assert!(
                    matches!(look(&target, format, &[b'?'; 255]).unwrap(), Look::Room(_)),
                    "round {round}"
                );
                parts.extend(entries(&target, format));
            }
            assert_eq!(parts, all);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_stay_a_whole_chain() {
        let format = formats()[0];
        let mut random = Rng::new(0xBAD);
        let mut good = vec![0; 1024];
        format.write_unused(&mut good);
        for n in 0..30 {
            let name = format!("name-{n}");
            let Look::Room(room) = look(&good, format, name.as_bytes()).unwrap() else { panic!("no room") };
            let new = NewEntry { name: name.as_bytes(), number: 20 + n, kind: FileType::Regular };
            insert(&mut good, format, room, &new);
        }
        let (mut refused, mut changed) = (0, 0);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..=random.index(4) {
                let at = random.index(bytes.len());
                bytes[at] = random.index(256) as u8;
            }
            let name = format!("name-{}", random.index(40));
            let new = NewEntry { name: name.as_bytes(), number: 5, kind: FileType::Regular };
            match look(&bytes, format, new.name) {
                Ok(Look::Found(place)) => remove(&mut bytes, format, place),
                Ok(Look::Room(room)) => insert(&mut bytes, format, room, &new),
                Ok(_) => bytes = compact(&bytes, format).unwrap(),
                Err(_) => {
                    refused += 1;
                    continue;
                }
            }
            if Entries::new(&bytes, format).all(|entry| entry.is_ok()) {
                changed += 1;
            }
        }
        assert!(refused > 1000 && changed > 10_000, "{refused} {changed}");
    }
}
