//! What an array looks like: its level and the numbers that say where a byte lies. No I/O.

/// How the members of an array make up one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// One member after the other.
    Linear,
    /// Chunks in turn on all members, no redundancy.
    Raid0,
    /// The same on every member.
    Raid1,
    /// Chunks in turn, parity on the last member.
    Raid4,
    /// Chunks in turn, parity in turn.
    Raid5,
    /// Chunks in turn, two syndromes in turn.
    Raid6,
    /// Chunks in turn, each several times.
    Raid10,
}

/// Where parity and data lie in a stripe of RAID5 and RAID6; the numbers are those of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ParityLayout {
    /// Parity moves from the last member to the first; data goes on at the first member.
    LeftAsymmetric = 0,
    /// Parity moves from the first member to the last; data goes on at the first member.
    RightAsymmetric = 1,
    /// Parity moves from the last member to the first; data goes on after it. What `mdadm` makes.
    LeftSymmetric = 2,
    /// Parity moves from the first member to the last; data goes on after it.
    RightSymmetric = 3,
    /// Parity on the first member (or the first two).
    ParityFirst = 4,
    /// Parity on the last member (or the last two).
    ParityLast = 5,
}

/// How RAID10 lays its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raid10Copies {
    /// Copies beside each other in one row of chunks; at least 1.
    pub near: u8,
    /// Copies far away; at least 1.
    pub far: u8,
    /// Whether the far copies lie in the next row, and not in the next part of each member.
    pub offset: bool,
}

/// What a level wants to know besides its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Nothing: linear, RAID1, RAID4; RAID0 with members of one size, where it may be left out.
    None,
    /// RAID0: how zones after the first are numbered (1: as before Linux 3.14, 2: as since), which matters where
    /// members differ in size.
    Zones(u32),
    /// RAID5, RAID6.
    Parity(ParityLayout),
    /// RAID10.
    Copies(Raid10Copies),
}

/// The shape of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The level.
    pub level: Level,
    /// What the level wants to know besides.
    pub layout: Layout,
    /// Number of roles (`raid_disks`), whether they are filled or not; at least 1.
    pub members: u32,
    /// Bytes of a chunk, a multiple of 4096 (RAID0: a power of two or not; RAID4/5/6 and RAID10: a power of two);
    /// 0 for RAID1; for linear 0, or what its members are rounded down to.
    pub chunk_bytes: u32,
    /// Bytes used of each member's data area (levels with redundancy), by role for linear and RAID0, where they may
    /// differ. One entry for each role.
    pub member_bytes: Vec<u64>,
}
