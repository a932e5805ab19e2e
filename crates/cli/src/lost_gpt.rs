//! Where a disk seems to have no partition table, its backup at the end may still be there.

use undercroft_block::BlockDevice;
use undercroft_block::partition::lost_gpt;
use undercroft_block::probe::{Class, probe};

use crate::text::human;

/// How a lost table is written again. sgdisk's `--load-backup` reads a file of its own, and not the end of the disk.
pub(crate) const WRITE_ANEW: &str =
    "`gdisk` writes the partition table anew from it: answer 1 (use the current GPT) if asked, then w and y";

/// How to read what is left of a partition table that the device does not begin with. A device that holds something else has
/// none: what is left of an older use is not told of.
pub(crate) fn advice(device: &dyn BlockDevice) -> Option<String> {
    let found = probe(device).ok().flatten();
    if found.is_some_and(|found| found.format.class != Class::Table) {
        return None;
    }
    let table = lost_gpt(device).ok().filter(|table| !table.partitions.is_empty())?;
    let partitions = human::counted(table.partitions.len() as u64, "partition");
    Some(format!(
        "a GPT with {partitions} is left on it: put `?gpt=backup` behind its name to read these, as in `undercroft info`"
    ))
}

/// The same for one who named a partition.
pub(crate) fn advice_on_partition(device: &dyn BlockDevice) -> String {
    advice(device).unwrap_or_else(|| "it has no partition table: leave `?part=` off".to_owned())
}

/// The same for one who wants to change the table.
pub(crate) fn advice_on_change(device: &dyn BlockDevice) -> Option<String> {
    let advice = advice(device)?;
    Some(format!("{advice}; {WRITE_ANEW}"))
}
