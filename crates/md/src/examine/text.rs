//! How a member is shown to people.

use std::fmt;

use super::Examined;
use crate::superblock::{DeviceRole, Timestamp, Version};
use crate::{Layout, Level, ParityLayout, Raid10Copies};

const SECTOR: u64 = 512;

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linear => "linear",
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid4 => "raid4",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
            Self::Raid10 => "raid10",
        })
    }
}

impl fmt::Display for ParityLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeftAsymmetric => "left-asymmetric",
            Self::RightAsymmetric => "right-asymmetric",
            Self::LeftSymmetric => "left-symmetric",
            Self::RightSymmetric => "right-symmetric",
            Self::ParityFirst => "parity-first",
            Self::ParityLast => "parity-last",
        })
    }
}

impl fmt::Display for Raid10Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let far = if self.offset { "offset" } else { "far" };
        match (self.near, self.far) {
            (near, 1) => write!(f, "near={near}"),
            (1, copies) => write!(f, "{far}={copies}"),
            (near, copies) => write!(f, "near={near}, {far}={copies}"),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Zones(1) => f.write_str("original"),
            Self::Zones(2) => f.write_str("alternate"),
            Self::Zones(other) => write!(f, "{other}"),
            Self::Parity(parity) => parity.fmt(f),
            Self::Copies(copies) => copies.fmt(f),
        }
    }
}

/// In UTC, like `2026-11-20 10:09:36`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.seconds / 86400, self.seconds % 86400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// Year, month and day, so many days after the first of January 1970. Counts from the first of March of the year 0,
/// which puts the leap day at the end of a year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36524 - day / (DAYS_OF_400_YEARS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on, and again from August on, have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

/// `aabbccdd:...`, as mdadm has it.
fn quads(uuid: uuid::Uuid) -> String {
    let hex = uuid.simple().to_string();
    [&hex[..8], &hex[8..16], &hex[16..24], &hex[24..]].join(":")
}

fn mebibytes(bytes: u64) -> String {
    let hundredths = u128::from(bytes) * 100 / (1 << 20);
    format!("{}.{:02} MiB", hundredths / 100, hundredths % 100)
}

/// Sectors from the superblock, which may be before it.
fn from_superblock(examined: &Examined, offset: u64) -> i64 {
    (offset as i64).wrapping_sub(examined.superblock_offset as i64) / SECTOR as i64
}

impl fmt::Display for Examined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.member)?;
        if let Some(problem) = &self.problem {
            writeln!(f, "        Problem : {problem}")?;
        }
        self.array(f)?;
        self.device(f)?;
        self.state(f)
    }
}

impl Examined {
    fn array(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "        Version : {}", self.version)?;
        if self.version != Version::V0_90 {
            writeln!(f, "    Feature Map : {:#x}", self.features)?;
        }
        writeln!(f, "     Array UUID : {}", quads(self.array_uuid))?;
        writeln!(f, "           Name : {}", self.name.escape_debug())?;
        writeln!(f, "  Creation Time : {} UTC", self.created)?;
        match self.shape {
            Some((level, _)) => writeln!(f, "     Raid Level : {level}")?,
            None => writeln!(f, "     Raid Level : {}", self.level_number)?,
        }
        writeln!(f, "   Raid Devices : {}", self.raid_disks)?;
        if let Some((_, layout)) = self.shape.filter(|(_, layout)| *layout != Layout::None) {
            writeln!(f, "         Layout : {layout}")?;
        }
        if self.chunk_bytes != 0 {
            writeln!(f, "     Chunk Size : {}K", self.chunk_bytes / 1024)?;
        }
        if let Some(bytes) = self.array_bytes {
            writeln!(f, "     Array Size : {} KiB ({})", bytes / 1024, mebibytes(bytes))?;
        }
        writeln!(f)
    }

    fn device(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    Device UUID : {}", quads(self.device_uuid))?;
        let sectors = |bytes: u64| format!("{} sectors ({})", bytes / SECTOR, mebibytes(bytes));
        writeln!(f, " Avail Dev Size : {}", sectors(self.data_bytes))?;
        if self.member_bytes != 0 && self.member_bytes != self.data_bytes {
            writeln!(f, "  Used Dev Size : {}", sectors(self.member_bytes))?;
        }
        if self.data_offset != 0 {
            writeln!(f, "    Data Offset : {} sectors", self.data_offset / SECTOR)?;
        }
        writeln!(f, "   Super Offset : {} sectors", self.superblock_offset / SECTOR)?;
        if let Some(bitmap) = &self.bitmap {
            let at = from_superblock(self, bitmap.offset);
            writeln!(f, "Internal Bitmap : {at} sectors from superblock")?;
            writeln!(
                f,
                "                  {} bits of {} KiB, {} dirty, events {}, cleared at {}",
                bitmap.bits,
                bitmap.chunk_bytes / 1024,
                bitmap.dirty_bits,
                bitmap.events,
                bitmap.events_cleared
            )?;
        }
        if let Some((offset, bytes)) = self.ppl {
            let at = from_superblock(self, offset);
            writeln!(
                f,
                "            PPL : {} sectors at offset {at} sectors from superblock",
                bytes / SECTOR
            )?;
        }
        if let Some(list) = &self.bad_blocks {
            let at = from_superblock(self, list.offset);
            write!(f, "  Bad Block Log : {} entries available at offset {at} sectors", list.room)?;
            writeln!(f, "{}", if list.ranges.is_empty() { "" } else { " - bad blocks present." })?;
            for range in &list.ranges {
                writeln!(
                    f,
                    "                  bytes {} to {} of the data are bad",
                    range.start,
                    range.end - 1
                )?;
            }
        }
        writeln!(f)
    }

    fn state(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.resynced_bytes {
            None => writeln!(f, "          State : clean")?,
            Some(0) => writeln!(f, "          State : active")?,
            Some(bytes) => writeln!(f, "          State : active, consistent up to byte {bytes}")?,
        }
        if let Some(bytes) = self.recovered_bytes {
            writeln!(f, "Recovery Offset : {} sectors", bytes / SECTOR)?;
        }
        if self.is_write_mostly || self.is_fail_fast {
            let write_mostly = if self.is_write_mostly { " write-mostly" } else { "" };
            let fail_fast = if self.is_fail_fast { " failfast" } else { "" };
            writeln!(f, "          Flags :{write_mostly}{fail_fast}")?;
        }
        writeln!(f, "    Update Time : {} UTC", self.updated)?;
        if self.version != Version::V0_90 {
            let (found, expected) = (self.checksum, self.expected_checksum);
            if found == expected {
                writeln!(f, "       Checksum : {found:x} - correct")?;
            } else {
                writeln!(f, "       Checksum : {found:x} - expected {expected:x}")?;
            }
        }
        writeln!(f, "         Events : {}", self.events)?;
        match self.role {
            DeviceRole::Active(role) if self.is_replacement => {
                writeln!(f, "    Device Role : Replacement device {role}")?;
            }
            DeviceRole::Active(role) => writeln!(f, "    Device Role : Active device {role}")?,
            DeviceRole::Journal => writeln!(f, "    Device Role : Journal")?,
            DeviceRole::Spare => writeln!(f, "    Device Role : spare")?,
            DeviceRole::Faulty => writeln!(f, "    Device Role : faulty")?,
        }
        let legend = "('A' == active, '.' == missing, 'R' == replacing)";
        writeln!(f, "    Array State : {} {legend}", self.array_state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let shown = |seconds| Timestamp { seconds, microseconds: 0 }.to_string();
        assert_eq!(shown(0), "1970-01-01 00:00:00");
        assert_eq!(shown(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(shown(1_795_169_376), "2026-11-20 10:09:36");
        assert_eq!(shown(4_107_542_400), "2100-03-01 00:00:00");
    }
}
