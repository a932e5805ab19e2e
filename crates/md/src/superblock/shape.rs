//! Level, layout and chunk as the superblock's numbers, and as [`Level`] and [`Layout`]. Version 0.90 and 1 agree.
//!
//! Source: the numbers of `md_p.h`, `drivers/md/raid5.h` and `drivers/md/raid10.c`; `mdadm(8)`, "--layout".

use crate::{Layout, Level, ParityLayout, Raid10Copies};

/// Why a superblock cannot be used.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It says what cannot be.
    Corrupt(String),
    /// Linux could.
    Unsupported(String),
}

/// What a superblock says of the array's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    pub(crate) layout: Layout,
    /// 0 where the level has none.
    pub(crate) chunk_bytes: u32,
    /// Linear: each member counts in whole multiples of this, which is 0 where it does not matter.
    pub(crate) rounding_bytes: u32,
}

/// The superblock's number of a level.
pub(crate) fn level_number(level: Level) -> i32 {
    match level {
        Level::Linear => -1,
        Level::Raid0 => 0,
        Level::Raid1 => 1,
        Level::Raid4 => 4,
        Level::Raid5 => 5,
        Level::Raid6 => 6,
        Level::Raid10 => 10,
    }
}

/// The superblock's number of a layout.
pub(crate) fn layout_number(layout: Layout) -> u32 {
    match layout {
        Layout::None => 0,
        Layout::Zones(number) => number,
        Layout::Parity(parity) => parity as u32,
        Layout::Copies(Raid10Copies { near, far, offset }) => {
            u32::from(near) | u32::from(far) << 8 | u32::from(offset) << 16
        }
    }
}

/// Validates the numbers of a superblock. `has_raid0_layout`: the number of the layout counts on RAID0.
pub(crate) fn shape(
    level: i32,
    layout: u32,
    chunk_sectors: u32,
    raid_disks: u32,
    has_raid0_layout: bool,
) -> Result<Shape, Refusal> {
    let level = match level {
        -1 => Level::Linear,
        0 => Level::Raid0,
        1 => Level::Raid1,
        4 => Level::Raid4,
        5 => Level::Raid5,
        6 => Level::Raid6,
        10 => Level::Raid10,
        -4 => return Err(Refusal::Unsupported("a multipath set".to_owned())),
        -5 => return Err(Refusal::Unsupported("the level \"faulty\"".to_owned())),
        other => return Err(Refusal::Corrupt(format!("there is no RAID level {other}"))),
    };
    if has_raid0_layout && level != Level::Raid0 {
        return Err(Refusal::Corrupt("it claims a layout of RAID0 and is of another level".to_owned()));
    }
    let layout = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => Layout::None,
        Level::Raid0 if has_raid0_layout => zones(layout)?,
        Level::Raid0 => Layout::None,
        Level::Raid5 | Level::Raid6 => Layout::Parity(parity(level, layout)?),
        Level::Raid10 => Layout::Copies(copies(layout, raid_disks)?),
    };
    let fewest = match level {
        Level::Linear | Level::Raid0 | Level::Raid1 => 1,
        Level::Raid4 | Level::Raid5 | Level::Raid10 => 2,
        Level::Raid6 => 4,
    };
    if raid_disks < fewest {
        return Err(Refusal::Corrupt(format!("{raid_disks} devices are too few for its level")));
    }
    let bytes = u64::from(chunk_sectors) * 512;
    let (chunk_bytes, rounding_bytes) = match level {
        Level::Raid1 => (0, 0),
        Level::Linear => (0, u32::try_from(bytes).map_err(|_| chunk_refused(bytes))?),
        _ => (chunk(level, bytes)?, 0),
    };
    Ok(Shape { level, layout, chunk_bytes, rounding_bytes })
}

fn chunk_refused(bytes: u64) -> Refusal {
    Refusal::Corrupt(format!("its chunk size is {bytes} bytes"))
}

fn chunk(level: Level, bytes: u64) -> Result<u32, Refusal> {
    let chunk_bytes = u32::try_from(bytes).map_err(|_| chunk_refused(bytes))?;
    let must_be_power_of_two = !matches!(level, Level::Raid0);
    if chunk_bytes == 0 || must_be_power_of_two && !chunk_bytes.is_power_of_two() {
        return Err(chunk_refused(bytes));
    }
    if !chunk_bytes.is_multiple_of(4096) {
        return Err(Refusal::Unsupported(format!(
            "a chunk size of {chunk_bytes} bytes, not whole 4 KiB blocks,"
        )));
    }
    Ok(chunk_bytes)
}

fn zones(layout: u32) -> Result<Layout, Refusal> {
    match layout {
        // As a kernel writes it that was told no layout: members of one size need none.
        0 => Ok(Layout::None),
        1 | 2 => Ok(Layout::Zones(layout)),
        other => Err(Refusal::Unsupported(format!("layout {other} of RAID0"))),
    }
}

fn parity(level: Level, layout: u32) -> Result<ParityLayout, Refusal> {
    Ok(match layout {
        0 => ParityLayout::LeftAsymmetric,
        1 => ParityLayout::RightAsymmetric,
        2 => ParityLayout::LeftSymmetric,
        3 => ParityLayout::RightSymmetric,
        4 => ParityLayout::ParityFirst,
        5 => ParityLayout::ParityLast,
        8..=10 if level == Level::Raid6 => {
            let name = ["ddf-zero-restart", "ddf-N-restart", "ddf-N-continue"][layout as usize - 8];
            return Err(Refusal::Unsupported(format!("the RAID6 layout {name}")));
        }
        16..=20 if level == Level::Raid6 => {
            let names = [
                "left-asymmetric-6",
                "right-asymmetric-6",
                "left-symmetric-6",
                "right-symmetric-6",
                "parity-first-6",
            ];
            return Err(Refusal::Unsupported(format!("the RAID6 layout {}", names[layout as usize - 16])));
        }
        other => return Err(Refusal::Corrupt(format!("there is no parity layout {other}"))),
    })
}

fn copies(layout: u32, raid_disks: u32) -> Result<Raid10Copies, Refusal> {
    if layout >> 17 != 0 {
        return Err(Refusal::Unsupported(format!("the RAID10 layout {layout:#x}, with sets of far copies,")));
    }
    let copies = Raid10Copies { near: layout as u8, far: (layout >> 8) as u8, offset: layout & 1 << 16 != 0 };
    let total = u32::from(copies.near) * u32::from(copies.far);
    if total == 0 || total > raid_disks {
        return Err(Refusal::Corrupt(format!(
            "its RAID10 layout {layout:#x} wants {total} copies on {raid_disks} devices"
        )));
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_shapes_and_numbers_again() {
        for (level, layout, chunk_sectors, disks, zones) in [
            (-1, 0, 128, 1, false),
            (0, 0, 128, 2, false),
            (0, 2, 24, 2, true),
            (1, 0, 0, 2, false),
            (4, 0, 128, 3, false),
            (5, 2, 1024, 3, false),
            (6, 5, 8, 4, false),
            (10, 0x102, 128, 3, false),
            (10, 0x1_0201, 128, 2, false),
        ] {
            let shape = shape(level, layout, chunk_sectors, disks, zones).unwrap();
            assert_eq!(level_number(shape.level), level);
            assert_eq!(layout_number(shape.layout), layout);
            assert_eq!((shape.chunk_bytes + shape.rounding_bytes) / 512, chunk_sectors);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (level, layout, chunk_sectors, disks) in [
            (7, 0, 128, 4),
            (5, 6, 128, 4),
            (5, 2, 0, 4),
            (5, 2, 24, 4),
            (5, 2, u32::MAX, 4),
            (6, 2, 128, 3),
            (10, 0x002, 128, 4),
            (10, 0x305, 128, 4),
        ] {
            assert!(matches!(shape(level, layout, chunk_sectors, disks, false), Err(Refusal::Corrupt(_))));
        }
        for (level, layout, chunk_sectors) in
            [(-4, 0, 0), (6, 9, 128), (6, 18, 128), (10, 0x2_0102, 128), (5, 2, 4)]
        {
            assert!(matches!(shape(level, layout, chunk_sectors, 6, false), Err(Refusal::Unsupported(_))));
        }
    }
}
