//! RAID10: each chunk several times, *near* copies side by side, *far* copies in other parts of the members.
//!
//! Near copies are dealt out like chunks of their own: with `n` of them, copy `j` of chunk `c` is number `c * n + j` of
//! the sequence that goes row by row over all members. All that makes up one picture of the array; `f` far copies are
//! `f` such pictures, each turned round by `n` members against the one before, so that no two copies of a chunk are on
//! one member. With the *far* layout picture `k` lies in the `k`th part of each member, a *stride* further on; with the
//! *offset* layout the rows of the pictures take turns (`__raid10_find_phys` in the md driver).
//!
//! Left out: far copies turned round within sets of members (bits 17 and 18 of the layout), which `mdadm` does not
//! make; and offset with near copies that reach into the next row, where the md driver puts chunks over each other.

use crate::member::Role;
use crate::{Geometry, Layout, Raid10Copies};

impl Raid10Copies {
    /// What a superblock means by `number`: near copies in the low byte, far copies in the next, then the offset bit.
    ///
    /// # Errors
    /// What is not supported.
    pub fn from_number(number: u32) -> Result<Self, String> {
        match number >> 17 {
            0 => {}
            1 | 2 => return Err(format!("RAID10 layout {number:#x} (far copies within sets of members)")),
            _ => return Err(format!("unknown RAID10 layout {number:#x}")),
        }
        let copies = Self { near: number as u8, far: (number >> 8) as u8, offset: number >> 16 & 1 == 1 };
        if copies.near == 0 || copies.far == 0 {
            return Err(format!("RAID10 layout {number:#x} without copies"));
        }
        Ok(copies)
    }

    /// The number in the superblock.
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from(self.near) | u32::from(self.far) << 8 | u32::from(self.offset) << 16
    }

    /// On how many members each chunk lies.
    #[must_use]
    pub fn total(self) -> u32 {
        u32::from(self.near) * u32::from(self.far)
    }
}

/// Where the copies of the chunks of a RAID10 lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raid10Map {
    members: u64,
    near: u64,
    far: u64,
    offset: bool,
    chunk_shift: u32,
    /// Chunks of each member that one picture takes.
    rows: u64,
    /// Chunks of the array.
    chunks: u64,
}

/// One copy of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) role: Role,
    /// In the member's data area.
    pub(crate) member_offset: u64,
}

impl Raid10Map {
    /// The map of a checked geometry.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let Layout::Copies(copies) = geometry.layout else {
            unreachable!("a checked RAID10 says how it lays its copies")
        };
        let members = u64::from(geometry.members);
        let chunk_shift = geometry.chunk_bytes.trailing_zeros();
        let rows = (geometry.common_member_bytes() >> chunk_shift) / u64::from(copies.far);
        Self {
            members,
            near: copies.near.into(),
            far: copies.far.into(),
            offset: copies.offset,
            chunk_shift,
            rows,
            chunks: rows * members / u64::from(copies.near),
        }
    }

    pub(crate) fn array_bytes(&self) -> u64 {
        self.chunks << self.chunk_shift
    }

    /// Bytes that are used of each member.
    pub(crate) fn used_member_bytes(&self) -> u64 {
        (self.rows * self.far) << self.chunk_shift
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// On how many members each chunk lies.
    pub(crate) fn copies(&self) -> usize {
        (self.near * self.far) as usize
    }

    /// Bytes from `offset` of the array on that lie without a gap in each of their copies.
    pub(crate) fn run_bytes(&self, offset: u64) -> u64 {
        // With all copies in each row, the members are the same.
        if self.near == self.members {
            return self.array_bytes() - offset;
        }
        self.chunk_bytes() - (offset & (self.chunk_bytes() - 1))
    }

    /// Copy `number` of the byte at `offset` of the array.
    pub(crate) fn copy(&self, offset: u64, number: usize) -> Copy {
        let (near, far) = (number as u64 / self.far, number as u64 % self.far);
        let place = (offset >> self.chunk_shift) * self.near + near;
        let (row, column) = (place / self.members, place % self.members);
        let role = (column + far * self.near) % self.members;
        let row = if self.offset { row * self.far + far } else { far * self.rows + row };
        Copy {
            role: Role(role as u32),
            member_offset: (row << self.chunk_shift) + (offset & (self.chunk_bytes() - 1)),
        }
    }

    /// The copy that is best read: of near copies those take turns from row to row, so that reads of neighbouring
    /// chunks go to all members; of far copies the first, which lies as in RAID0.
    pub(crate) fn preferred_copy(&self, offset: u64) -> usize {
        let row = (offset >> self.chunk_shift) * self.near / self.members;
        (row % self.near * self.far) as usize
    }

    /// The byte of the array of which a member holds a copy; `None` where it holds none: what is left over behind the
    /// last chunk.
    pub(crate) fn array_offset(&self, role: Role, member_offset: u64) -> Option<u64> {
        let row = member_offset >> self.chunk_shift;
        let (row, far) =
            if self.offset { (row / self.far, row % self.far) } else { (row % self.rows, row / self.rows) };
        if far >= self.far {
            return None;
        }
        let column = (u64::from(role.0) + far * (self.members - self.near)) % self.members;
        let chunk = (row * self.members + column) / self.near;
        (row < self.rows && chunk < self.chunks)
            .then(|| (chunk << self.chunk_shift) + (member_offset & (self.chunk_bytes() - 1)))
    }

    /// The rows of the members' data areas that hold bytes of a range of the array: one range for each far copy, each
    /// of whole chunks.
    pub(crate) fn member_ranges(&self, array: std::ops::Range<u64>) -> Vec<std::ops::Range<u64>> {
        if array.is_empty() {
            return Vec::new();
        }
        let first = (array.start >> self.chunk_shift) * self.near / self.members;
        let last = (((array.end - 1) >> self.chunk_shift) * self.near + self.near - 1) / self.members;
        if self.offset {
            let (begin, end) = (first * self.far, (last + 1) * self.far);
            return std::iter::once(begin << self.chunk_shift..end << self.chunk_shift).collect();
        }
        let of_picture = |far| {
            let begin = far * self.rows;
            (begin + first) << self.chunk_shift..(begin + last + 1) << self.chunk_shift
        };
        (0..self.far).map(of_picture).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::Level;

    fn raid10(members: u32, near: u8, far: u8, offset: bool, chunks: u64) -> Geometry {
        Geometry {
            level: Level::Raid10,
            layout: Layout::Copies(Raid10Copies { near, far, offset }),
            members,
            chunk_bytes: 4096,
            member_bytes: vec![chunks * 4096 + 512; members as usize],
        }
    }

    /// The chunk that each member holds, row by row; put down picture by picture.
    fn drawn(members: usize, near: u64, far: usize, offset: bool, chunks: usize) -> Vec<Vec<Option<u64>>> {
        let rows = chunks / far;
        let mut sequence = (0..).flat_map(|chunk| (0..near).map(move |_| chunk));
        let first: Vec<Vec<u64>> = (0..rows).map(|_| sequence.by_ref().take(members).collect()).collect();
        // A last chunk that has not all its copies is none.
        let total = (rows * members) as u64 / near;
        let mut all = vec![vec![None; members]; rows * far];
        for copy in 0..far {
            for (number, row) in first.iter().enumerate() {
                let mut row: Vec<Option<u64>> =
                    row.iter().map(|&chunk| (chunk < total).then_some(chunk)).collect();
                row.rotate_right(copy * near as usize % members);
                all[if offset { number * far + copy } else { copy * rows + number }] = row;
            }
        }
        all
    }

    fn shapes() -> Vec<(u32, u8, u8, bool)> {
        let mut shapes = Vec::new();
        for members in 2..=9 {
            for near in 1..=members as u8 {
                for far in 1..=members as u8 / near {
                    for offset in [false, true] {
                        shapes.push((members, near, far, offset));
                    }
                }
            }
        }
        shapes
    }

    #[test]
    fn every_copy_lies_where_the_drawn_rows_have_it() {
        let mut checked = 0;
        for (members, near, far, offset) in shapes() {
            for chunks in [12, 13, 17] {
                let geometry = raid10(members, near, far, offset, chunks);
                if geometry.check().is_err() {
                    continue;
                }
                checked += 1;
                let map = Raid10Map::new(&geometry);
                let drawn = drawn(members as usize, near.into(), far.into(), offset, chunks as usize);
                let mut places: HashMap<u64, Vec<Copy>> = HashMap::new();
                for (row, line) in (0..).zip(&drawn) {
                    for (role, &chunk) in (0..).zip(line) {
                        let found = map.array_offset(Role(role), row * 4096 + 9);
                        assert_eq!(found, chunk.map(|chunk| chunk * 4096 + 9), "{geometry:?}");
                        if let Some(chunk) = chunk {
                            let copy = Copy { role: Role(role), member_offset: row * 4096 + 9 };
                            places.entry(chunk).or_default().push(copy);
                        }
                    }
                }
                assert_eq!(map.array_offset(Role(0), drawn.len() as u64 * 4096), None);
                assert_eq!(geometry.array_bytes(), places.len() as u64 * 4096, "{geometry:?}");
                for (chunk, mut expected) in places {
                    let mut found: Vec<Copy> =
                        (0..map.copies()).map(|number| map.copy(chunk * 4096 + 9, number)).collect();
                    found.sort_by_key(|copy| (copy.role, copy.member_offset));
                    expected.sort_by_key(|copy| (copy.role, copy.member_offset));
                    assert_eq!(found, expected, "{geometry:?}");
                    let rows = map.member_ranges(chunk * 4096 + 5..chunk * 4096 + 10);
                    assert!(
                        found.iter().all(|copy| rows.iter().any(|row| row.contains(&copy.member_offset)))
                    );
                    let run = map.run_bytes(chunk * 4096 + 9);
                    assert!(run == 4087 || u32::from(near) == members);
                }
            }
        }
        assert!(checked > 100);
    }

    #[test]
    fn members_are_enough_while_every_chunk_has_a_copy() {
        for (members, near, far, offset) in shapes() {
            let geometry = raid10(members, near, far, offset, 60);
            if geometry.check().is_err() {
                continue;
            }
            let map = Raid10Map::new(&geometry);
            let drawn = drawn(members as usize, near.into(), far.into(), offset, 60);
            for missing in 0..1_u32 << members {
                let mut left = std::collections::HashSet::new();
                for line in &drawn {
                    let there = line.iter().enumerate().filter(|(role, _)| missing >> role & 1 == 0);
                    left.extend(there.filter_map(|(_, chunk)| *chunk));
                }
                let whole = left.len() as u64 * 4096 == map.array_bytes();
                let said = geometry.is_enough(|role| missing >> role & 1 == 0);
                assert_eq!(said, whole, "{geometry:?} without {missing:b}");
            }
        }
    }

    #[test]
    fn numbers_of_layouts() {
        let offset_2 = Raid10Copies { near: 1, far: 2, offset: true };
        assert_eq!(Raid10Copies::from_number(0x1_0201), Ok(offset_2));
        assert_eq!(offset_2.number(), 0x1_0201);
        assert_eq!(Raid10Copies::from_number(0x102).map(Raid10Copies::total), Ok(2));
        for refused in [0x2_0201, 0x4_0201, 0x8_0102, 0, 0x100, 0x2, u32::MAX] {
            assert!(Raid10Copies::from_number(refused).is_err(), "{refused:#x}");
        }
    }
}
