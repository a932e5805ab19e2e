//! Where a disk seems to have no partition table, its backup at the end may still be there.

use undercroft_block::partition::{Table, lost_gpt};
use undercroft_block::probe::{Class, Format, probe};
use undercroft_block::{BlockDevice, Device};
use {undercroft_ext4 as ext4, undercroft_xfs as xfs};

use crate::text::human;

/// Bytes of a GPT's entries for 128 partitions. At the end of a disk they lie before the sector of the backup's header.
const ENTRIES_BYTES: u64 = 16 << 10;

/// How a lost table is written again. sgdisk's `--load-backup` reads a file of its own, and not the end of the disk.
pub(crate) const WRITE_ANEW: &str =
    "`gdisk` writes the partition table anew from it: answer 1 (use the current GPT) if asked, then w and y";

/// How to read what is left of a partition table that the device does not begin with. `None` where the device holds
/// something else: the table may be left from an older use.
pub(crate) fn advice(device: &dyn BlockDevice) -> Option<String> {
    if other_content(device).is_some() {
        return None;
    }
    Some(sentence(&lost_table(device)?, ""))
}

/// The same where the user asks for partitions. Where the device holds something else, the sentence names both. `None` where
/// that reaches to the end, over the backup of the table: then the table is older.
pub(crate) fn advice_on_disk(device: &Device) -> Option<String> {
    let Some(format) = other_content(&**device) else { return advice(&**device) };
    let table = lost_table(&**device)?;
    if covers_backup(device, format, &table) {
        return None;
    }
    Some(format!("it holds {}, and {}", format.what, sentence(&table, ", of an older or a later use")))
}

/// The same for one who named a partition.
pub(crate) fn advice_on_partition(device: &Device) -> String {
    advice_on_disk(device).unwrap_or_else(|| "it has no partition table: leave `?part=` off".to_owned())
}

/// What the device holds beside a partition table.
fn other_content(device: &dyn BlockDevice) -> Option<Format> {
    let found = probe(device).ok().flatten()?;
    Some(found.format).filter(|format| format.class != Class::Table)
}

fn lost_table(device: &dyn BlockDevice) -> Option<Table> {
    lost_gpt(device).ok().filter(|table| !table.partitions.is_empty())
}

fn sentence(table: &Table, of_use: &str) -> String {
    let partitions = human::counted(table.partitions.len() as u64, "partition");
    format!(
        "a GPT with {partitions} is left on it{of_use}: put `?gpt=backup` behind its name to read these, as in \
         `undercroft info`"
    )
}

/// Whether what is on a device takes the place of a GPT's backup at its end. A volume takes the whole device, and so do
/// filesystems whose size is not read here.
fn covers_backup(device: &Device, format: Format, table: &Table) -> bool {
    let size_bytes = match (format.class, format.name) {
        (Class::File, _) => return false,
        (_, "btrfs") => btrfs_bytes(&**device),
        (_, "xfs") => xfs::Superblock::declared_bytes(&**device).ok(),
        (_, "ext2" | "ext3" | "ext4") => ext4::Superblock::declared_bytes(&**device).ok(),
        _ => return true,
    };
    let sector = u64::from(table.sector_bytes);
    let backup = device.size_bytes().saturating_sub(sector + ENTRIES_BYTES.next_multiple_of(sector.max(1)));
    size_bytes.is_some_and(|bytes| bytes > backup)
}

/// As many bytes as all devices of a btrfs filesystem have, by its superblock.
fn btrfs_bytes(device: &dyn BlockDevice) -> Option<u64> {
    const TOTAL_BYTES_AT: u64 = 0x1_0070;
    let mut bytes = [0; 8];
    device.read_at(TOTAL_BYTES_AT, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// The same for one who wants to change the table.
pub(crate) fn advice_on_change(device: &dyn BlockDevice) -> Option<String> {
    let advice = advice(device)?;
    Some(format!("{advice}; {WRITE_ANEW}"))
}
