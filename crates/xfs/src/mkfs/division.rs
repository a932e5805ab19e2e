//! The division into allocation groups. Source: as for `shape`.

use undercroft_diskfs::mkfs::{MkfsError, refuse};

use super::options::Groups;
use super::stripes::Stripes;
use super::units::Units;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// An allocation group has no fewer bytes.
pub(super) const GROUP_MIN_BYTES: u64 = 16 * MIB;
/// An allocation group has fewer bytes.
const GROUP_END_BYTES: u64 = TIB;
/// Group numbers end before this one.
const GROUPS_END: u64 = 0xffff_fffe;

/// How the blocks are divided into groups.
#[derive(Clone, Copy)]
pub(super) struct Division {
    pub(super) blocks: u64,
    pub(super) group_blocks: u64,
    pub(super) groups: u64,
}

impl Division {
    pub(super) fn decide(
        wanted: Groups,
        units: &Units,
        stripes: &Stripes,
        blocks: u64,
    ) -> Result<Self, MkfsError> {
        let group_blocks = match wanted {
            Groups::Usual => usual_group(blocks, units.block_log, stripes.unit > 0),
            Groups::Count(0) => return refuse("a filesystem has at least one group"),
            Groups::Count(count) => blocks.div_ceil(count),
            Groups::Bytes(bytes) if bytes == 0 || !bytes.is_multiple_of(units.block_bytes()) => {
                let block = units.block_bytes();
                return refuse(format!(
                    "groups of {bytes} bytes are no multiple of the block size, {block} bytes"
                ));
            }
            Groups::Bytes(bytes) => bytes >> units.block_log,
        };
        let groups = match wanted {
            Groups::Count(count) => count,
            Groups::Usual | Groups::Bytes(_) => blocks.div_ceil(group_blocks),
        };
        let mut division = Self { blocks, group_blocks, groups };
        if stripes.unit > 0 {
            division.align(wanted, units, stripes)?;
        }
        division.end(units)
    }

    /// Lets groups begin at stripe units, and on different members of an array.
    fn align(&mut self, wanted: Groups, units: &Units, stripes: &Stripes) -> Result<(), MkfsError> {
        let (least, most) = (GROUP_MIN_BYTES >> units.block_log, (GROUP_END_BYTES - 1) >> units.block_log);
        let unit = stripes.unit;
        if !self.group_blocks.is_multiple_of(unit) {
            let up = self.group_blocks.next_multiple_of(unit);
            let aligned = if up > most { up - unit } else { up };
            if !(least..=most).contains(&aligned) {
                return refuse(format!(
                    "allocation groups of {} blocks cannot be aligned to a stripe unit of {unit} blocks",
                    self.group_blocks
                ));
            }
            self.group_blocks = aligned;
            if !matches!(wanted, Groups::Count(_)) {
                self.groups = self.blocks.div_ceil(aligned);
            }
        }
        let on_one_member = self.group_blocks.is_multiple_of(stripes.width) && stripes.width != unit;
        if on_one_member && self.groups > 1 && wanted == Groups::Usual {
            let mut shifted = self.group_blocks - unit;
            if shifted < least {
                shifted = self.group_blocks + unit;
                if self.blocks < self.group_blocks {
                    shifted = self.group_blocks;
                }
            }
            self.group_blocks = shifted;
            self.groups = self.blocks.div_ceil(shifted);
        }
        Ok(())
    }

    /// Leaves out a last group that is too small, and refuses what Linux does not mount.
    fn end(mut self, units: &Units) -> Result<Self, MkfsError> {
        let (least, most) = (GROUP_MIN_BYTES >> units.block_log, (GROUP_END_BYTES - 1) >> units.block_log);
        let last = self.blocks % self.group_blocks;
        if last != 0 && last < least && self.groups == self.blocks.div_ceil(self.group_blocks) {
            self.blocks = (self.groups - 1) * self.group_blocks;
            self.groups -= 1;
        }
        let Self { blocks, group_blocks, groups } = self;
        if group_blocks < least || group_blocks > most {
            return refuse(format!(
                "an allocation group has {least} to {most} blocks, and not {group_blocks}"
            ));
        }
        if group_blocks > blocks {
            return refuse(format!(
                "an allocation group of {group_blocks} blocks does not fit into {blocks}"
            ));
        }
        if groups != blocks.div_ceil(group_blocks) || groups > GROUPS_END {
            return refuse(format!(
                "{blocks} blocks do not make {groups} allocation groups of {group_blocks} blocks"
            ));
        }
        Ok(self)
    }
}

/// Blocks of a group where nothing else is asked for: four groups on a single disk up to 4 TiB, more on an array.
fn usual_group(blocks: u64, block_log: u8, is_array: bool) -> u64 {
    let most = (GROUP_END_BYTES - 1) >> block_log;
    let bytes = |bytes: u64| bytes >> block_log;
    let largest = if is_array { 32 * TIB } else { 4 * TIB };
    if blocks >= bytes(largest) {
        return most;
    }
    let shift = if !is_array && blocks >= bytes(128 * MIB) {
        2
    } else {
        let fewer = [
            blocks <= bytes(512 * GIB),
            blocks <= bytes(8 * GIB),
            blocks < bytes(128 * MIB),
            blocks < bytes(64 * MIB),
            blocks < bytes(32 * MIB),
        ];
        5 - fewer.iter().filter(|&&is| is).count()
    };
    blocks.div_ceil(1 << shift).min(most)
}
