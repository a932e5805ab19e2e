//! How large an array is, what its background work counts, and which numbers make an array at all.
//!
//! Members are rounded down to whole chunks; levels with redundancy use as much of each member as the smallest has
//! (`raid1_size`, `raid5_size`, `raid10_size` and their like in the md driver, which `mdadm --create` repeats).

use std::ops::Range;

use super::Raid10Map;
use crate::member::Role;
use crate::{Error, Geometry, Layout, Level, Raid10Copies, Result};

/// As many roles as an array may have: more have no place in the first page of a superblock (4096 bytes, of which 256
/// and two for each role are taken; Linux counts 384 for what all versions can do).
const MOST_MEMBERS: u32 = 384;

/// Sizes of devices are signed in Linux.
const MOST_BYTES: u64 = i64::MAX as u64;

impl Level {
    /// Chunks of a stripe that hold parity.
    #[must_use]
    pub fn parities(self) -> u32 {
        match self {
            Self::Raid4 | Self::Raid5 => 1,
            Self::Raid6 => 2,
            Self::Linear | Self::Raid0 | Self::Raid1 | Self::Raid10 => 0,
        }
    }
}

impl Geometry {
    /// Refuses numbers that make no array, wherever they come from. All other methods, and the maps, are for
    /// geometries that pass.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the number that is wrong.
    pub fn check(&self) -> Result<()> {
        self.validate().map_err(Error::Invalid)
    }

    fn validate(&self) -> std::result::Result<(), String> {
        let members = self.members;
        if !(1..=MOST_MEMBERS).contains(&members) {
            return Err(format!("an array of {members} members: it has 1 to {MOST_MEMBERS}"));
        }
        if self.member_bytes.len() != members as usize {
            return Err(format!("sizes of {} members for {members} roles", self.member_bytes.len()));
        }
        let least = match self.level {
            Level::Linear | Level::Raid0 | Level::Raid1 => 1,
            Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
            Level::Raid6 => 4,
        };
        if members < least {
            return Err(format!("{:?} has at least {least} members, not {members}", self.level));
        }
        // 255 powers of two differ, and there are P and Q.
        if self.level == Level::Raid6 && members > 257 {
            return Err(format!("RAID6 has 257 members at most, not {members}"));
        }
        self.validate_chunk()?;
        self.validate_layout()?;
        self.validate_sizes()
    }

    fn validate_chunk(&self) -> std::result::Result<(), String> {
        let chunk = self.chunk_bytes;
        let fits = match self.level {
            Level::Raid1 => chunk == 0,
            Level::Linear => chunk.is_multiple_of(512),
            Level::Raid0 => chunk != 0 && chunk.is_multiple_of(4096),
            Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
                chunk.is_power_of_two() && chunk >= 4096
            }
        };
        if fits { Ok(()) } else { Err(format!("chunks of {chunk} bytes do not do for {:?}", self.level)) }
    }

    fn validate_layout(&self) -> std::result::Result<(), String> {
        match (self.level, self.layout) {
            (Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4, Layout::None)
            | (Level::Raid0, Layout::Zones(1 | 2))
            | (Level::Raid4 | Level::Raid5 | Level::Raid6, Layout::Parity(_)) => Ok(()),
            (Level::Raid10, Layout::Copies(copies)) => self.validate_copies(copies),
            (level, layout) => Err(format!("layout {layout:?} does not do for {level:?}")),
        }
    }

    fn validate_copies(&self, copies: Raid10Copies) -> std::result::Result<(), String> {
        let Raid10Copies { near, far, offset } = copies;
        if copies.total() < 2 || copies.total() > self.members {
            return Err(format!("{near} near and {far} far copies on {} members", self.members));
        }
        if offset && far > 1 && !self.members.is_multiple_of(near.into()) {
            return Err(format!("{near} near copies on {} members with the offset layout", self.members));
        }
        Ok(())
    }

    fn validate_sizes(&self) -> std::result::Result<(), String> {
        if let Some(&size) = self.member_bytes.iter().find(|&&size| size > MOST_BYTES) {
            return Err(format!("a member of {size} bytes"));
        }
        // Sums of what is at most 384 times 2^63 bytes.
        let total: u128 =
            (0..self.members).map(|role| u128::from(self.rounded_member_bytes(Role(role)))).sum();
        if total > u128::from(MOST_BYTES) {
            return Err(format!("members of {total} bytes together"));
        }
        let has_empty = self.level != Level::Linear
            && (0..self.members).any(|role| self.rounded_member_bytes(Role(role)) == 0);
        if has_empty || total == 0 {
            return Err("a member without room for a chunk".to_owned());
        }
        if self.level == Level::Raid0 && self.layout == Layout::None {
            let first = self.rounded_member_bytes(Role(0));
            if (0..self.members).any(|role| self.rounded_member_bytes(Role(role)) != first) {
                return Err(
                    "a RAID0 with members of different sizes and no number for its layout: it was made \
                            by one of two kinds of kernels, and only its maker knows which (1: before Linux \
                            3.14, 2: since)"
                        .to_owned(),
                );
            }
        }
        if self.level == Level::Raid10 && Raid10Map::new(self).array_bytes() == 0 {
            return Err("members without room for a chunk of each copy".to_owned());
        }
        Ok(())
    }

    /// What a member's data area has of whole chunks.
    pub(crate) fn rounded_member_bytes(&self, role: Role) -> u64 {
        let bytes = self.member_bytes[role.0 as usize];
        match u64::from(self.chunk_bytes) {
            0 => bytes,
            chunk => bytes - bytes % chunk,
        }
    }

    /// The same of the smallest member: what a level with redundancy can use of each.
    pub(crate) fn common_member_bytes(&self) -> u64 {
        (0..self.members).map(|role| self.rounded_member_bytes(Role(role))).min().unwrap_or(0)
    }

    /// Bytes of the array.
    #[must_use]
    pub fn array_bytes(&self) -> u64 {
        match self.level {
            Level::Linear => (0..self.members).map(|role| self.rounded_member_bytes(Role(role))).sum(),
            // Linux clears the bits below the chunk size as if it were a power of two (`raid0_size`), also where it
            // is not; the end of the last row is then not used, and a filesystem must not believe that it is there.
            Level::Raid0 => {
                let mask = u64::from(self.chunk_bytes / 512 - 1) * 512;
                (0..self.members).map(|role| self.rounded_member_bytes(Role(role)) & !mask).sum()
            }
            Level::Raid1 => self.common_member_bytes(),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                self.common_member_bytes() * u64::from(self.members - self.level.parities())
            }
            Level::Raid10 => Raid10Map::new(self).array_bytes(),
        }
    }

    /// Bytes of the *sync space*, which resync, check, repair and the write-intent bitmap go through: the members'
    /// data areas side by side (RAID1, 4, 5, 6), or the array itself (RAID10). None without redundancy.
    #[must_use]
    pub fn sync_bytes(&self) -> u64 {
        match self.level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 => self.common_member_bytes(),
            Level::Raid10 => self.array_bytes(),
        }
    }

    /// Bytes of the space that recovery goes through: what each member has to hold, in RAID10 as well
    /// (`recovery_offset` in the superblock counts the member's bytes).
    #[must_use]
    pub fn recover_bytes(&self) -> u64 {
        match self.level {
            Level::Raid10 => Raid10Map::new(self).used_member_bytes(),
            _ => self.sync_bytes(),
        }
    }

    /// The range of the sync space that a range of the array touches.
    #[must_use]
    pub fn sync_range(&self, array: Range<u64>) -> Range<u64> {
        if array.is_empty() {
            return 0..0;
        }
        match self.level {
            Level::Linear | Level::Raid0 => 0..0,
            Level::Raid1 | Level::Raid10 => array,
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                let chunk = u64::from(self.chunk_bytes);
                let row = chunk * u64::from(self.members - self.level.parities());
                let (first, last) = (array.start / row, (array.end - 1) / row);
                if first == last && array.start / chunk == (array.end - 1) / chunk {
                    // Within one chunk: only these bytes of the row change.
                    return first * chunk + array.start % chunk..first * chunk + (array.end - 1) % chunk + 1;
                }
                first * chunk..(last + 1) * chunk
            }
        }
    }

    /// Ranges of the recovery space that hold what a range of the sync space is about: for recovery by bitmap.
    #[must_use]
    pub fn recover_ranges(&self, sync: Range<u64>) -> Vec<Range<u64>> {
        match self.level {
            Level::Raid10 => Raid10Map::new(self).member_ranges(sync),
            _ => vec![sync],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ParityLayout;
    use crate::layout::{LinearMap, ParityMap, Raid0Map};

    fn geometry(level: Level, layout: Layout, chunk_bytes: u32, member_bytes: &[u64]) -> Geometry {
        let members = member_bytes.len() as u32;
        Geometry { level, layout, members, chunk_bytes, member_bytes: member_bytes.to_vec() }
    }

    const LEFT: Layout = Layout::Parity(ParityLayout::LeftSymmetric);
    const NEAR: Layout = Layout::Copies(Raid10Copies { near: 2, far: 1, offset: false });

    #[test]
    fn sizes_as_mdadm_makes_them() {
        let mib = 1 << 20;
        // What the members of the fixtures have behind their first MiB.
        let seven = [7 * mib; 4];
        assert_eq!(geometry(Level::Raid5, LEFT, 65536, &seven).array_bytes(), 21 * mib);
        assert_eq!(geometry(Level::Raid6, LEFT, 65536, &seven).array_bytes(), 14 * mib);
        assert_eq!(geometry(Level::Raid10, NEAR, 65536, &seven).array_bytes(), 14 * mib);
        assert_eq!(geometry(Level::Raid1, Layout::None, 0, &seven).array_bytes(), 7 * mib);
        assert_eq!(geometry(Level::Raid0, Layout::None, 65536, &seven).array_bytes(), 28 * mib);
        // Rounded to chunks, to the smallest member, and to rows of all copies.
        let ragged = [10 * 65536 + 512, 11 * 65536 - 512, 12 * 65536];
        assert_eq!(geometry(Level::Raid4, Layout::None, 65536, &ragged).array_bytes(), 20 * 65536);
        assert_eq!(geometry(Level::Raid1, Layout::None, 0, &ragged).array_bytes(), 10 * 65536 + 512);
        assert_eq!(geometry(Level::Raid0, Layout::Zones(2), 65536, &ragged).array_bytes(), 32 * 65536);
        assert_eq!(geometry(Level::Linear, Layout::None, 0, &ragged).array_bytes(), 33 * 65536);
        assert_eq!(geometry(Level::Raid10, NEAR, 65536, &ragged).array_bytes(), 15 * 65536);
        let far = Layout::Copies(Raid10Copies { near: 1, far: 3, offset: false });
        let far = geometry(Level::Raid10, far, 65536, &ragged);
        assert_eq!((far.array_bytes(), far.recover_bytes()), (9 * 65536, 9 * 65536));
    }

    #[test]
    fn what_makes_no_array_is_refused_by_its_number() {
        let refused = [
            (geometry(Level::Raid1, Layout::None, 0, &[]), "0 members"),
            (geometry(Level::Raid1, Layout::None, 0, &[4096; 385]), "385 members"),
            (geometry(Level::Raid5, LEFT, 4096, &[8192]), "at least 2"),
            (geometry(Level::Raid6, LEFT, 4096, &[8192; 3]), "at least 4"),
            (geometry(Level::Raid5, LEFT, 12288, &[1 << 20; 3]), "12288"),
            (geometry(Level::Raid5, LEFT, 0, &[1 << 20; 3]), "chunks of 0"),
            (geometry(Level::Raid0, Layout::None, 5000, &[1 << 20; 3]), "5000"),
            (geometry(Level::Raid0, Layout::None, 4096, &[8192, 12288]), "3.14"),
            (geometry(Level::Raid0, Layout::Zones(3), 4096, &[8192, 12288]), "Zones(3)"),
            (geometry(Level::Raid0, Layout::None, 4096, &[8192, 100]), "without room"),
            (geometry(Level::Raid5, NEAR, 4096, &[8192; 3]), "Copies"),
            (geometry(Level::Raid1, Layout::None, 4096, &[8192; 3]), "4096"),
            (geometry(Level::Raid10, LEFT, 4096, &[8192; 3]), "Parity"),
            (geometry(Level::Raid1, Layout::None, 0, &[u64::MAX; 3]), "18446744073709551615"),
            (geometry(Level::Raid1, Layout::None, 0, &[MOST_BYTES; 3]), "together"),
            (geometry(Level::Linear, Layout::None, 0, &[0, 0]), "without room"),
        ];
        for (geometry, word) in refused {
            let error = geometry.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error} does not say {word}");
        }
        for (near, far, offset) in [(1, 1, false), (3, 1, false), (0, 2, false), (2, 0, false), (2, 2, true)]
        {
            let layout = Layout::Copies(Raid10Copies { near, far, offset });
            assert!(geometry(Level::Raid10, layout, 4096, &[1 << 20; 2]).check().is_err());
        }
        let offset = Layout::Copies(Raid10Copies { near: 2, far: 2, offset: true });
        assert!(geometry(Level::Raid10, offset, 4096, &[1 << 20; 5]).check().is_err());
        let far = Layout::Copies(Raid10Copies { near: 1, far: 3, offset: false });
        assert!(geometry(Level::Raid10, far, 4096, &[8192; 3]).check().is_err());
    }

    /// Any numbers, near to what passes and far from it.
    fn any_geometry() -> impl Strategy<Value = Geometry> {
        let level = prop::sample::select(vec![
            Level::Linear,
            Level::Raid0,
            Level::Raid1,
            Level::Raid4,
            Level::Raid5,
            Level::Raid6,
            Level::Raid10,
        ]);
        let layout =
            prop_oneof![
                Just(Layout::None),
                (0..4_u32).prop_map(Layout::Zones),
                (0..6_u32).prop_map(|number| Layout::Parity(
                    ParityLayout::from_number(Level::Raid6, number).unwrap()
                )),
                (0..5_u8, 0..5_u8, any::<bool>())
                    .prop_map(|(near, far, offset)| Layout::Copies(Raid10Copies { near, far, offset })),
            ];
        let chunk = prop_oneof![
            any::<u32>(),
            Just(0),
            (12..32_u32).prop_map(|shift| 1 << shift),
            (1..9_u32).prop_map(|pages| pages * 4096)
        ];
        let size = prop_oneof![any::<u64>(), 0..100_000_u64, (0..62_u32).prop_map(|shift| 1 << shift)];
        let sizes = (prop::collection::vec(size, 1..9), any::<bool>()).prop_map(|(sizes, same)| match same {
            true => vec![sizes[0]; sizes.len()],
            false => sizes,
        });
        (level, layout, chunk, sizes)
            .prop_map(|(level, layout, chunk, sizes)| geometry(level, layout, chunk, &sizes))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// The first and the last byte, and one between, are within their members; nothing overflows on the way.
        #[test]
        fn what_passes_can_be_asked_anything(geometry in any_geometry(), between in any::<u64>()) {
            if geometry.check().is_err() {
                return Ok(());
            }
            let size = geometry.array_bytes();
            prop_assert!(size > 0 && size <= MOST_BYTES);
            for offset in [0, size - 1, between % size] {
                let within = |role: Role, member_offset: u64| {
                    member_offset < geometry.member_bytes[role.0 as usize]
                };
                match geometry.level {
                    Level::Linear => {
                        let run = LinearMap::new(&geometry).locate(offset);
                        prop_assert!(run.len > 0 && within(run.role, run.member_offset + run.len - 1));
                    }
                    Level::Raid0 => {
                        let run = Raid0Map::new(&geometry).locate(offset);
                        prop_assert!(run.len > 0 && within(run.role, run.member_offset + run.len - 1));
                    }
                    Level::Raid1 => prop_assert!(within(Role(0), offset)),
                    Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                        let map = ParityMap::new(&geometry);
                        let place = map.locate(offset);
                        prop_assert!(within(place.role, place.member_offset));
                        prop_assert!(map.member_offset(place.stripe) < geometry.sync_bytes());
                    }
                    Level::Raid10 => {
                        let map = Raid10Map::new(&geometry);
                        for number in 0..map.copies() {
                            let copy = map.copy(offset, number);
                            prop_assert!(within(copy.role, copy.member_offset));
                            prop_assert_eq!(map.array_offset(copy.role, copy.member_offset), Some(offset));
                        }
                    }
                }
                let sync = geometry.sync_range(offset..size);
                prop_assert!(sync.end <= geometry.sync_bytes());
                for range in geometry.recover_ranges(sync) {
                    prop_assert!(range.start <= range.end && range.end <= geometry.recover_bytes());
                }
            }
        }
    }

    #[test]
    fn a_range_of_the_array_is_found_in_the_sync_space() {
        let raid5 = geometry(Level::Raid5, LEFT, 4096, &[1 << 20; 4]);
        for (array, sync) in [
            (0..10, 0..10),
            (4096 + 5..4096 + 10, 5..10),
            (4090..4100, 0..4096),
            (3 * 4096..3 * 4096 + 1, 4096..4097),
            (3 * 4096 - 1..3 * 4096 + 1, 0..8192),
            (5..5, 0..0),
        ] {
            assert_eq!(raid5.sync_range(array.clone()), sync, "{array:?}");
        }
        assert_eq!(geometry(Level::Raid10, NEAR, 4096, &[1 << 20; 4]).sync_range(7..9), 7..9);
        assert_eq!(geometry(Level::Raid0, Layout::None, 4096, &[1 << 20; 4]).sync_range(7..9), 0..0);
    }
}
