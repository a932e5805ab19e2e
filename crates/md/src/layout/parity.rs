//! RAID4, 5 and 6: which member of a stripe holds which chunk of data, and which the parity.
//!
//! A *stripe* is one row of chunks, one chunk on each member, at the same place on all. Of its chunks one is *P*, the
//! XOR of the data; in RAID6 one more is *Q*. Data chunks have an *index* in the order of the array's bytes.
//!
//! The layouts are those of `raid5_compute_sector` in the md driver. P moves by one member from stripe to stripe: to
//! the left from the last member, or to the right from the first. Q is on the member after P, going round. Data fills
//! the members that are left: *symmetric* layouts begin after the parity and go round, *asymmetric* ones begin at the
//! first member. RAID4 is RAID5 whose parity stays on the last member.
//!
//! Q is the sum of the data chunks times powers of two in GF(2^8). The exponents count the data chunks in the order of
//! the *members*, from the one after Q and going round (`raid6_d0`), which is the order of the array's bytes in the
//! symmetric layouts and not in the asymmetric ones; see [`exponent`](ParityMap::exponent).

use crate::member::Role;
use crate::{Geometry, Layout, Level, ParityLayout};

impl ParityLayout {
    /// The layout that a superblock of `level` means by `number`.
    ///
    /// # Errors
    /// The name of a layout that is not supported, or the number of one that does not exist.
    pub fn from_number(level: Level, number: u32) -> Result<Self, String> {
        let unsupported = match number {
            0 => return Ok(Self::LeftAsymmetric),
            1 => return Ok(Self::RightAsymmetric),
            2 => return Ok(Self::LeftSymmetric),
            3 => return Ok(Self::RightSymmetric),
            4 => return Ok(Self::ParityFirst),
            5 => return Ok(Self::ParityLast),
            8 => "ddf-zero-restart",
            9 => "ddf-N-restart",
            10 => "ddf-N-continue",
            16 => "left-asymmetric-6",
            17 => "right-asymmetric-6",
            18 => "left-symmetric-6",
            19 => "right-symmetric-6",
            20 => "parity-first-6",
            _ => return Err(format!("unknown layout {number:#x}")),
        };
        if level == Level::Raid6 {
            Err(format!("layout {unsupported}"))
        } else {
            Err(format!("unknown layout {number:#x}"))
        }
    }

    /// The number in the superblock.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The name that `mdadm` gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LeftAsymmetric => "left-asymmetric",
            Self::RightAsymmetric => "right-asymmetric",
            Self::LeftSymmetric => "left-symmetric",
            Self::RightSymmetric => "right-symmetric",
            Self::ParityFirst => "parity-first",
            Self::ParityLast => "parity-last",
        }
    }
}

/// Where the chunks of a RAID4, 5 or 6 lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParityMap {
    members: u32,
    /// 1, or 2 with Q.
    parities: u32,
    layout: ParityLayout,
    chunk_shift: u32,
}

/// Where a byte of the array lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataPlace {
    pub(crate) stripe: u64,
    /// Which data chunk of the stripe.
    pub(crate) index: u32,
    pub(crate) role: Role,
    /// In the member's data area.
    pub(crate) member_offset: u64,
}

/// What a member holds of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The data chunk of this index.
    Data(u32),
    P,
    Q,
}

impl ParityMap {
    /// The map of a checked geometry of one of these levels.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let layout = match geometry.layout {
            Layout::Parity(layout) if geometry.level != Level::Raid4 => layout,
            _ => ParityLayout::ParityLast,
        };
        Self {
            members: geometry.members,
            parities: if geometry.level == Level::Raid6 { 2 } else { 1 },
            layout,
            chunk_shift: geometry.chunk_bytes.trailing_zeros(),
        }
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Data chunks of a stripe.
    pub(crate) fn data_members(&self) -> u32 {
        self.members - self.parities
    }

    /// Bytes of data in a stripe.
    pub(crate) fn stripe_data_bytes(&self) -> u64 {
        u64::from(self.data_members()) << self.chunk_shift
    }

    /// Where the byte at `offset` of the array lies.
    pub(crate) fn locate(&self, offset: u64) -> DataPlace {
        let chunk = offset >> self.chunk_shift;
        let stripe = chunk / u64::from(self.data_members());
        let index = (chunk % u64::from(self.data_members())) as u32;
        DataPlace {
            stripe,
            index,
            role: self.data_role(stripe, index),
            member_offset: self.member_offset(stripe) + (offset & (self.chunk_bytes() - 1)),
        }
    }

    /// First byte of the array in a data chunk.
    pub(crate) fn array_offset(&self, stripe: u64, index: u32) -> u64 {
        (stripe * u64::from(self.data_members()) + u64::from(index)) << self.chunk_shift
    }

    /// First byte of a stripe in the members' data areas.
    pub(crate) fn member_offset(&self, stripe: u64) -> u64 {
        stripe << self.chunk_shift
    }

    /// The role that holds P.
    pub(crate) fn p_role(&self, stripe: u64) -> Role {
        let turn = (stripe % u64::from(self.members)) as u32;
        Role(match self.layout {
            ParityLayout::LeftAsymmetric | ParityLayout::LeftSymmetric => self.members - 1 - turn,
            ParityLayout::RightAsymmetric | ParityLayout::RightSymmetric => turn,
            ParityLayout::ParityFirst => 0,
            ParityLayout::ParityLast => self.data_members(),
        })
    }

    /// The role that holds Q, in RAID6.
    pub(crate) fn q_role(&self, stripe: u64) -> Option<Role> {
        (self.parities == 2).then(|| self.round(self.p_role(stripe).0 + 1))
    }

    /// The role that holds the data chunk of an index.
    pub(crate) fn data_role(&self, stripe: u64, index: u32) -> Role {
        let p = self.p_role(stripe).0;
        match self.layout {
            ParityLayout::LeftSymmetric | ParityLayout::RightSymmetric => {
                self.round(p + self.parities + index)
            }
            // The parity that does not go round takes the roles from `p` on; one that does, the first as well.
            _ if p + self.parities > self.members => Role(index + (p + self.parities - self.members)),
            _ if index < p => Role(index),
            _ => Role(index + self.parities),
        }
    }

    /// What a role holds of a stripe: the other way round.
    pub(crate) fn slot(&self, stripe: u64, role: Role) -> Slot {
        let p = self.p_role(stripe).0;
        // How far the role is behind P, going round.
        let behind = self.round(role.0 + self.members - p).0;
        if behind == 0 {
            return Slot::P;
        }
        if behind < self.parities {
            return Slot::Q;
        }
        Slot::Data(match self.layout {
            ParityLayout::LeftSymmetric | ParityLayout::RightSymmetric => behind - self.parities,
            _ if p + self.parities > self.members => role.0 - (p + self.parities - self.members),
            _ if role.0 < p => role.0,
            _ => role.0 - self.parities,
        })
    }

    /// The power of two by which the data chunk of an index goes into Q.
    pub(crate) fn exponent(&self, stripe: u64, index: u32) -> u32 {
        let first = self.p_role(stripe).0 + self.parities;
        self.round(self.data_role(stripe, index).0 + 2 * self.members - first).0
    }

    fn round(&self, role: u32) -> Role {
        Role(role % self.members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUTS: [ParityLayout; 6] = [
        ParityLayout::LeftAsymmetric,
        ParityLayout::RightAsymmetric,
        ParityLayout::LeftSymmetric,
        ParityLayout::RightSymmetric,
        ParityLayout::ParityFirst,
        ParityLayout::ParityLast,
    ];

    fn geometry(level: Level, layout: ParityLayout, members: u32) -> Geometry {
        Geometry {
            level,
            layout: if level == Level::Raid4 { Layout::None } else { Layout::Parity(layout) },
            members,
            chunk_bytes: 4096,
            member_bytes: vec![100 * 4096; members as usize],
        }
    }

    /// Rows as they are drawn: the parity is put down, then data into the gaps.
    fn drawn(layout: ParityLayout, members: usize, parities: usize, rows: usize) -> Vec<Vec<Slot>> {
        use ParityLayout::*;
        let mut p = match layout {
            LeftAsymmetric | LeftSymmetric => members - 1,
            RightAsymmetric | RightSymmetric | ParityFirst => 0,
            ParityLast => members - parities,
        };
        let mut picture = Vec::new();
        for _ in 0..rows {
            let mut row = vec![None; members];
            row[p] = Some(Slot::P);
            if parities == 2 {
                row[if p + 1 == members { 0 } else { p + 1 }] = Some(Slot::Q);
            }
            let mut at = if matches!(layout, LeftSymmetric | RightSymmetric) { p } else { 0 };
            for index in 0..members - parities {
                while row[at].is_some() {
                    at = if at + 1 == members { 0 } else { at + 1 };
                }
                row[at] = Some(Slot::Data(index as u32));
            }
            picture.push(row.into_iter().flatten().collect());
            match layout {
                LeftAsymmetric | LeftSymmetric => p = if p == 0 { members - 1 } else { p - 1 },
                RightAsymmetric | RightSymmetric => p = if p + 1 == members { 0 } else { p + 1 },
                ParityFirst | ParityLast => {}
            }
        }
        picture
    }

    fn matrix() -> Vec<(Geometry, ParityLayout, usize)> {
        let mut matrix = Vec::new();
        for members in [2, 3, 4, 5, 6, 7, 8, 32] {
            matrix.push((
                geometry(Level::Raid4, ParityLayout::ParityLast, members),
                ParityLayout::ParityLast,
                1,
            ));
            for layout in LAYOUTS {
                matrix.push((geometry(Level::Raid5, layout, members), layout, 1));
                if members >= 4 {
                    matrix.push((geometry(Level::Raid6, layout, members), layout, 2));
                }
            }
        }
        matrix
    }

    #[test]
    fn every_chunk_lies_where_the_drawn_rows_have_it() {
        for (geometry, layout, parities) in matrix() {
            geometry.check().unwrap();
            let map = ParityMap::new(&geometry);
            let picture = drawn(layout, geometry.members as usize, parities, 100);
            let mut array_offset = 0;
            for (stripe, row) in (0..).zip(&picture) {
                for index in 0..map.data_members() {
                    let role = row.iter().position(|&slot| slot == Slot::Data(index)).unwrap() as u32;
                    let place =
                        DataPlace { stripe, index, role: Role(role), member_offset: stripe * 4096 + 17 };
                    assert_eq!(map.locate(array_offset + 17), place, "{layout:?} of {}", geometry.members);
                    assert_eq!(map.array_offset(stripe, index), array_offset);
                    array_offset += 4096;
                }
                for (role, &slot) in (0..).zip(row) {
                    assert_eq!(map.slot(stripe, Role(role)), slot, "{layout:?} of {}", geometry.members);
                    match slot {
                        Slot::P => assert_eq!(map.p_role(stripe), Role(role)),
                        Slot::Q => assert_eq!(map.q_role(stripe), Some(Role(role))),
                        Slot::Data(_) => {}
                    }
                }
            }
            assert_eq!(array_offset, geometry.array_bytes());
            assert_eq!(array_offset, 100 * map.stripe_data_bytes());
        }
    }

    #[test]
    fn exponents_count_the_data_members_from_the_one_after_q() {
        for (geometry, layout, parities) in matrix() {
            if parities == 1 {
                continue;
            }
            let map = ParityMap::new(&geometry);
            for (stripe, row) in (0..).zip(drawn(layout, geometry.members as usize, 2, 20)) {
                let q = row.iter().position(|&slot| slot == Slot::Q).unwrap();
                let after_q = row[q + 1..].iter().chain(&row[..q]);
                let data = after_q.filter_map(|&slot| match slot {
                    Slot::Data(index) => Some(index),
                    Slot::P | Slot::Q => None,
                });
                for (exponent, index) in (0..).zip(data) {
                    assert_eq!(map.exponent(stripe, index), exponent, "{layout:?} of {}", geometry.members);
                }
            }
        }
    }

    #[test]
    fn numbers_and_names_of_layouts() {
        for (number, layout) in (0..).zip(LAYOUTS) {
            assert_eq!(ParityLayout::from_number(Level::Raid5, number), Ok(layout));
            assert_eq!(layout.number(), number);
        }
        assert_eq!(ParityLayout::from_number(Level::Raid6, 10), Err("layout ddf-N-continue".to_owned()));
        assert_eq!(ParityLayout::from_number(Level::Raid5, 10), Err("unknown layout 0xa".to_owned()));
        assert_eq!(
            ParityLayout::from_number(Level::Raid6, u32::MAX),
            Err("unknown layout 0xffffffff".to_owned())
        );
        assert_eq!(ParityLayout::LeftSymmetric.name(), "left-symmetric");
    }
}
