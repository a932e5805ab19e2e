//! RAID0: chunks in turn on all members; where members differ in size, in zones.
//!
//! The first zone goes as far as the smallest member and lies on all; the next as far as the next larger one and lies
//! on those that go on; and so forth. Members are rounded down to chunks (`create_strip_zones` in the md driver).
//!
//! In zones after the first, two numberings are about. Linux before 3.14 chose the member by the chunk's number within
//! the *array*, Linux since by the number within the *zone*: with the members of the zone in order of their roles, the
//! chunk goes to the member of that number, modulo how many they are. The superblock says which (1 or 2); the row is
//! the chunk's number within the zone divided by the members, in both.

use super::Run;
use crate::member::Role;
use crate::{Geometry, Layout};

/// Where the chunks of a RAID0 lie.
#[derive(Clone, Debug)]
pub(crate) struct Raid0Map {
    chunk_bytes: u64,
    /// By rising place in the array; as many as there are different sizes of members.
    zones: Vec<Zone>,
    /// Whether a zone's chunks are dealt out by their numbers within the array.
    counts_from_array: bool,
}

#[derive(Clone, Debug)]
struct Zone {
    /// First byte of the array in and behind the zone.
    begin: u64,
    end: u64,
    /// Where it begins on each of its members.
    member_begin: u64,
    roles: Vec<Role>,
}

impl Raid0Map {
    /// The map of a checked geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let sizes: Vec<u64> =
            (0..geometry.members).map(|role| geometry.rounded_member_bytes(Role(role))).collect();
        let mut steps = sizes.clone();
        steps.sort_unstable();
        steps.dedup();
        let mut zones = Vec::with_capacity(steps.len());
        let (mut begin, mut member_begin) = (0, 0);
        for member_end in steps {
            let roles: Vec<Role> =
                (0..geometry.members).map(Role).filter(|role| sizes[role.0 as usize] >= member_end).collect();
            let end = begin + (member_end - member_begin) * roles.len() as u64;
            zones.push(Zone { begin, end, member_begin, roles });
            (begin, member_begin) = (end, member_end);
        }
        Self {
            chunk_bytes: geometry.chunk_bytes.into(),
            zones,
            counts_from_array: geometry.layout == Layout::Zones(1),
        }
    }

    /// The run at `offset` of the array, which lies within it.
    pub(crate) fn locate(&self, offset: u64) -> Run {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.end <= offset)];
        let width = zone.roles.len() as u64;
        let in_zone = offset - zone.begin;
        if width == 1 {
            let member_offset = zone.member_begin + in_zone;
            return Run { role: zone.roles[0], member_offset, len: zone.end - offset };
        }
        let in_chunk = in_zone % self.chunk_bytes;
        let row = in_zone / self.chunk_bytes / width;
        let counted = if self.counts_from_array { offset } else { in_zone };
        Run {
            role: zone.roles[(counted / self.chunk_bytes % width) as usize],
            member_offset: zone.member_begin + row * self.chunk_bytes + in_chunk,
            len: self.chunk_bytes - in_chunk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    fn raid0(chunk_bytes: u32, layout: Layout, chunks: &[u64]) -> Geometry {
        Geometry {
            level: Level::Raid0,
            layout,
            members: chunks.len() as u32,
            chunk_bytes,
            member_bytes: chunks.iter().map(|chunks| chunks * u64::from(chunk_bytes) + 100).collect(),
        }
    }

    /// Deals chunk after chunk to the members that have room in the row. `None`: the turn of a zone does not begin
    /// at its first member, so that the row must be known whole.
    fn naive(chunks: &[u64], counts_from_array: bool) -> Vec<(usize, u64)> {
        let mut dealt = Vec::new();
        let mut row = 0;
        let mut zone_begin = 0;
        let mut width_before = chunks.len();
        loop {
            let able: Vec<usize> = (0..chunks.len()).filter(|&role| chunks[role] > row).collect();
            if able.is_empty() {
                return dealt;
            }
            if able.len() != width_before {
                (zone_begin, width_before) = (dealt.len(), able.len());
            }
            for _ in 0..able.len() {
                let number = if counts_from_array { dealt.len() } else { dealt.len() - zone_begin };
                dealt.push((able[number % able.len()], row));
            }
            row += 1;
        }
    }

    #[test]
    fn every_chunk_lies_where_dealing_them_out_puts_it() {
        let shapes: &[&[u64]] =
            &[&[5], &[4, 4], &[3, 5], &[5, 3, 3], &[1, 7, 4, 4, 2], &[3, 9, 4, 6], &[2, 3, 5, 7, 11]];
        for chunks in shapes {
            for (layout, counts_from_array) in [(Layout::Zones(1), true), (Layout::Zones(2), false)] {
                for chunk_bytes in [4096, 12288] {
                    let geometry = raid0(chunk_bytes, layout, chunks);
                    geometry.check().unwrap();
                    let map = Raid0Map::new(&geometry);
                    let naive = naive(chunks, counts_from_array);
                    let chunk = u64::from(chunk_bytes);
                    let size = geometry.array_bytes();
                    assert!(size == naive.len() as u64 * chunk || !chunk.is_power_of_two());
                    assert!(size <= naive.len() as u64 * chunk);
                    for (number, &(role, row)) in naive.iter().enumerate() {
                        for byte in [0, 1, chunk - 1] {
                            let run = map.locate(number as u64 * chunk + byte);
                            let found = (run.role, run.member_offset);
                            assert_eq!(found, (Role(role as u32), row * chunk + byte), "{chunks:?} {number}");
                            assert!(run.len >= chunk - byte);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_zone_on_one_member_is_one_run() {
        let map = Raid0Map::new(&raid0(4096, Layout::Zones(2), &[1, 4]));
        assert_eq!(map.locate(8192 + 10), Run { role: Role(1), member_offset: 4106, len: 3 * 4096 - 10 });
    }
}
