//! Multiple-mount protection: a block that a host which uses the filesystem keeps changing.
//!
//! Source: kernel documentation, section "Multiple Mount Protection". A user of the filesystem writes a new
//! sequence number every few seconds and a fixed "clean" value when it leaves; a checker writes another fixed
//! value. An image that was copied while in use, or whose host died, holds an old number that no longer
//! changes, so an unclean number alone is no refusal: [`check`] waits and looks whether it moves.

use std::mem::size_of;
use std::time::Duration;

use undercroft_block::BlockDevice;
use undercroft_vfs::{Error, Result};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::error::corrupt_block;
use crate::numbers::FsBlock;
use crate::superblock::Superblock;

const STRUCTURE: &str = "multiple-mount protection block";
const MAGIC: u32 = 0x004D_4D50;
const SEQUENCE_CLEAN: u32 = 0xFF4D_4D50;
const SEQUENCE_CHECKER: u32 = 0xE24D_4D50;
/// Seconds between a host's updates, unless the filesystem says otherwise.
pub(crate) const DEFAULT_INTERVAL_SECONDS: u16 = 5;
/// However large the interval on disk is, an opener waits no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMmp {
    mmp_magic: U32,
    mmp_seq: U32,
    mmp_time: U64,
    mmp_nodename: [u8; 64],
    mmp_bdevname: [u8; 32],
    mmp_check_interval: U16,
    mmp_pad1: U16,
    mmp_pad2: [U32; 226],
    mmp_checksum: U32,
}

const _: () = assert!(size_of::<RawMmp>() == 1024);

/// A wait that begins: an unclean number was found, and only waiting shows whether another host changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmpWait {
    /// The host that wrote the number, in its own words. It comes from the disk: escape it before showing it.
    pub host: String,
    /// How long it takes to be sure that no other host is there. It ends earlier if one is.
    pub at_most: Duration,
}

/// Refuses a filesystem that another host is using now. Calls `on_wait` before a wait.
///
/// # Errors
/// [`Error::InUse`] naming the host; corruption of the block.
pub(crate) fn check(device: &dyn BlockDevice, superblock: &Superblock, on_wait: fn(&MmpWait)) -> Result<()> {
    let Some((block, superblock_interval)) = superblock.mmp() else { return Ok(()) };
    let block = FsBlock(block);
    let first = read(device, superblock, block)?;
    let in_use = |found: &RawMmp, what: &str| {
        let (host, device) = (text(&found.mmp_nodename), text(&found.mmp_bdevname));
        Err(Error::InUse(format!("host {host:?} {what} through {device:?}")))
    };
    match first.mmp_seq.get() {
        SEQUENCE_CLEAN => return Ok(()),
        SEQUENCE_CHECKER => return in_use(&first, "is checking the filesystem"),
        _ => {}
    }
    let interval = u64::from(first.mmp_check_interval.get().max(superblock_interval).max(1));
    let wait = Duration::from_secs(2 * interval + 1).min(LONGEST_WAIT);
    on_wait(&MmpWait { host: text(&first.mmp_nodename), at_most: wait });
    let step = Duration::from_millis(500);
    let mut waited = Duration::ZERO;
    while waited < wait {
        std::thread::sleep(step);
        waited += step;
        let now = read(device, superblock, block)?;
        if now.mmp_seq != first.mmp_seq {
            return in_use(&now, "has the filesystem mounted");
        }
    }
    Ok(())
}

/// The bytes up to a NUL.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|&b| b == 0).next().unwrap_or_default()).into_owned()
}

/// The block of a filesystem that is not in use.
pub(crate) fn clean_block(superblock: &Superblock, seconds: u64, interval_s: u16) -> Vec<u8> {
    let mut mmp = RawMmp::new_zeroed();
    mmp.mmp_magic.set(MAGIC);
    mmp.mmp_seq.set(SEQUENCE_CLEAN);
    mmp.mmp_time.set(seconds);
    mmp.mmp_check_interval.set(interval_s);
    if superblock.has_metadata_checksums() {
        let sum = crc32c(superblock.checksum_seed(), &mmp.as_bytes()[..size_of::<RawMmp>() - 4]);
        mmp.mmp_checksum.set(sum);
    }
    mmp.as_bytes().to_vec()
}

fn read(device: &dyn BlockDevice, superblock: &Superblock, block: FsBlock) -> Result<RawMmp> {
    let geometry = superblock.geometry();
    if !geometry.contains(block, 1) {
        return Err(corrupt_block(STRUCTURE, block, "lies outside the filesystem"));
    }
    // Straight from the device: the point is to see another host's writes.
    let mut bytes = [0; size_of::<RawMmp>()];
    device.read_at(block.0 * u64::from(geometry.block_bytes()), &mut bytes)?;
    let computed = crc32c(superblock.checksum_seed(), &bytes[..size_of::<RawMmp>() - 4]);
    let mmp: RawMmp = zerocopy::transmute!(bytes);
    if mmp.mmp_magic.get() != MAGIC {
        let detail = format!("magic number is {:#010x}, not {MAGIC:#010x}", mmp.mmp_magic.get());
        return Err(corrupt_block(STRUCTURE, block, detail));
    }
    let stored = mmp.mmp_checksum.get();
    if superblock.has_metadata_checksums() && stored != computed {
        let detail = format!("checksum is {stored:#010x}, its content gives {computed:#010x}");
        return Err(corrupt_block(STRUCTURE, block, detail));
    }
    Ok(mmp)
}
