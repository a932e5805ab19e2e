//! The journal superblock, validated.
//!
//! The first block of the log says how long the log is, where its oldest transaction begins and what the writer used.
//! One conversion validates all of it against the place the log was found in; later code relies on these numbers. A
//! start of 0 means that the log is empty.

use undercroft_block::BlockDevice;
use undercroft_vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::features::{Checksums, Compat, Incompat};
use super::format::{
    BlockType, ChecksumType, DEFAULT_FAST_COMMIT_BLOCKS, MAGIC, MIN_LOG_BLOCKS, RawSuperblock,
    SUPERBLOCK_BYTES, SUPERBLOCK_CHECKSUM_OFFSET,
};
use super::location::{LogBlock, LogLocation, Volume};
use super::sequence::Sequence;
use crate::checksum::{crc32c, crc32c_around};
use crate::error::corrupt;

/// What a filesystem asks of the log that it writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogForm {
    /// Every block carries a checksum.
    pub(crate) checksums: bool,
    /// Block numbers have 64 bits.
    pub(crate) sixty_four_bit: bool,
}

const STRUCTURE: &str = "journal superblock";

/// The journal superblock after every check.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    /// Kept for writing it back: fields that mean nothing to us survive.
    raw: Box<RawSuperblock>,
    incompat: Incompat,
    pub(super) checksums: Checksums,
    /// Starts every checksum of version 2 and 3 but the superblock's own.
    pub(super) checksum_seed: u32,
    pub(super) block_bytes: u32,
    /// First block after the superblock that transactions use.
    pub(super) first: LogBlock,
    /// One past the last block that transactions use.
    pub(super) end: LogBlock,
    /// The fast-commit area; empty without one.
    pub(super) fast_commit_area: std::ops::Range<u32>,
}

impl Superblock {
    /// Reads and validates it.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` by the feature's name, `Io`.
    pub(super) fn read(device: &dyn BlockDevice, location: &LogLocation, volume: &Volume) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_at(location.offset_bytes(LogBlock(0))?, &mut bytes)?;
        Self::validate(&bytes, location.blocks(), volume)
    }

    fn validate(bytes: &[u8; SUPERBLOCK_BYTES], log_blocks: u32, volume: &Volume) -> Result<Self> {
        let raw = RawSuperblock::read_from_bytes(bytes).expect("the size is the structure's");
        let wrong = |detail: String| Err(corrupt(STRUCTURE, detail));
        if raw.s_header.h_magic.get() != MAGIC {
            return wrong(format!("magic is {:#x}, not {MAGIC:#x}", raw.s_header.h_magic));
        }
        let version_2 = match BlockType(raw.s_header.h_blocktype.get()) {
            BlockType::SUPERBLOCK_V1 => false,
            BlockType::SUPERBLOCK_V2 => true,
            BlockType(other) => return wrong(format!("block type is {other}, neither 3 nor 4")),
        };
        // The feature words of version 1 were never written, whatever they hold.
        let (compat, incompat) = if version_2 {
            (
                Compat::from_bits_retain(raw.s_feature_compat.get()),
                Incompat::from_bits_retain(raw.s_feature_incompat.get()),
            )
        } else {
            (Compat::empty(), Incompat::empty())
        };
        incompat.refuse_unknown()?;
        if version_2 && raw.s_feature_ro_compat.get() != 0 {
            // jbd2 has never had one, and replay writes.
            let bits = raw.s_feature_ro_compat.get();
            return Err(Error::Unsupported(
                format!("journal read-only-compatible feature bits {bits:#x}").into(),
            ));
        }
        let checksums = validate_checksums(&raw, compat, incompat)?;
        if checksums.per_block() {
            let computed = crc32c_around(!0, bytes, checksum_field());
            if computed != raw.s_checksum.get() {
                return wrong(format!("checksum is {:#x}, computed {computed:#x}", raw.s_checksum));
            }
        }

        if raw.s_blocksize.get() != volume.block_bytes {
            return wrong(format!(
                "blocks of {} bytes in a filesystem with blocks of {}",
                raw.s_blocksize, volume.block_bytes
            ));
        }
        let (first, length) = (raw.s_first.get(), raw.s_maxlen.get());
        if length > log_blocks {
            return wrong(format!("the log has {length} blocks, the journal inode {log_blocks}"));
        }
        if first == 0 || first >= length {
            return wrong(format!("the first block of a log of {length} is {first}"));
        }
        let (end, fast_commit_area) = fast_commit_area(&raw, incompat);
        let start = raw.s_start.get();
        if start != 0 && !(first..end).contains(&start) {
            return wrong(format!("the log begins at block {start}, outside blocks {first} to {end}"));
        }
        Ok(Self {
            checksum_seed: crc32c(!0, &raw.s_uuid),
            incompat,
            checksums,
            block_bytes: volume.block_bytes,
            first: LogBlock(first),
            end: LogBlock(end),
            fast_commit_area,
            raw: Box::new(raw),
        })
    }

    /// Where the oldest transaction begins; `None` when the log is empty.
    pub(super) fn start(&self) -> Option<LogBlock> {
        Some(LogBlock(self.raw.s_start.get())).filter(|&start| start != LogBlock(0))
    }

    /// Number of the oldest transaction.
    pub(super) fn sequence(&self) -> Sequence {
        Sequence(self.raw.s_sequence.get())
    }

    /// The error for which the last writer aborted, as a negative errno; 0 when there was none.
    pub(super) fn recorded_error(&self) -> i32 {
        self.raw.s_errno.get().cast_signed()
    }

    pub(super) fn has(&self, feature: Incompat) -> bool {
        self.incompat.contains(feature)
    }

    /// The block that follows in the ring of transactions.
    pub(super) fn after(&self, block: LogBlock) -> LogBlock {
        if block.0 + 1 >= self.end.0 { self.first } else { LogBlock(block.0 + 1) }
    }

    /// Number of blocks in the ring of transactions.
    pub(super) fn ring_blocks(&self) -> u32 {
        self.end.0 - self.first.0
    }

    /// Turns it into the superblock of an empty log whose next transaction will be `next`.
    ///
    /// An empty log has no fast commits either, so that feature goes, as the kernel does it; a writer sets
    /// it again with its first fast commit.
    pub(super) fn make_empty(&mut self, next: Sequence) {
        self.incompat.remove(Incompat::FAST_COMMIT);
        self.raw.s_start = 0.into();
        self.raw.s_sequence = next.0.into();
        if BlockType(self.raw.s_header.h_blocktype.get()) == BlockType::SUPERBLOCK_V2 {
            self.raw.s_feature_incompat = self.incompat.bits().into();
            // 0: the next writer begins at the first block.
            self.raw.s_head = 0.into();
        }
        self.seal();
    }

    /// Says that the oldest transaction is `sequence`, at `start`.
    pub(super) fn set_tail(&mut self, start: LogBlock, sequence: Sequence) {
        self.raw.s_start = start.0.into();
        self.raw.s_sequence = sequence.0.into();
        self.seal();
    }

    /// Records that its writer gave up because of the device.
    pub(super) fn record_error(&mut self) {
        const EIO: i32 = 5;
        self.raw.s_errno = (-EIO).cast_unsigned().into();
        self.seal();
    }

    /// Gives a log that is about to be written the features that Linux would write it with. With `fast_commits` it
    /// keeps the area that holds some. The error that the last writer recorded is cleared; it has been reported by now.
    ///
    /// # Errors
    /// `Unsupported` for version 1 of the superblock, which has no features; `Corrupt` for a log that is too short.
    pub(super) fn take_form(&mut self, form: LogForm, fast_commits: bool) -> Result<()> {
        if BlockType(self.raw.s_header.h_blocktype.get()) != BlockType::SUPERBLOCK_V2 {
            return Err(Error::Unsupported(
                "writing a journal of the oldest kind, which cannot revoke blocks; open the filesystem read-only, or \
                 make its journal anew with tune2fs"
                    .into(),
            ));
        }
        let blocks = self.raw.s_maxlen.get();
        if blocks < MIN_LOG_BLOCKS {
            return Err(corrupt(STRUCTURE, format!("the log has {blocks} blocks, too few to be written")));
        }
        self.incompat.remove(Incompat::ASYNC_COMMIT | Incompat::CSUM_V2 | Incompat::CSUM_V3);
        if !fast_commits {
            self.incompat.remove(Incompat::FAST_COMMIT);
            self.end = LogBlock(blocks);
            self.fast_commit_area = 0..0;
        }
        self.incompat.insert(Incompat::REVOKE);
        self.incompat.set(Incompat::CSUM_V3, form.checksums);
        if form.sixty_four_bit {
            self.incompat.insert(Incompat::SIXTY_FOUR_BIT);
        }
        self.checksums = if form.checksums { Checksums::V3 } else { Checksums::None };
        let compat = Compat::from_bits_retain(self.raw.s_feature_compat.get()).difference(Compat::CHECKSUM);
        self.raw.s_feature_compat = compat.bits().into();
        self.raw.s_feature_incompat = self.incompat.bits().into();
        let kind = if form.checksums { ChecksumType::CRC32C } else { ChecksumType::NONE };
        self.raw.s_checksum_type = kind.0;
        self.raw.s_checksum = 0.into();
        self.raw.s_errno = 0.into();
        Ok(())
    }

    fn seal(&mut self) {
        if self.checksums.per_block() {
            let computed = crc32c_around(!0, self.raw.as_bytes(), checksum_field());
            self.raw.s_checksum = computed.into();
        }
    }

    /// The UUID of the log's filesystem, as tags repeat it.
    pub(super) fn uuid(&self) -> &[u8; 16] {
        &self.raw.s_uuid
    }

    /// Writes it to its place.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn write(&self, device: &dyn BlockDevice, location: &LogLocation) -> Result<()> {
        Ok(device.write_at(location.offset_bytes(LogBlock(0))?, self.raw.as_bytes())?)
    }
}

fn checksum_field() -> std::ops::Range<usize> {
    SUPERBLOCK_CHECKSUM_OFFSET..SUPERBLOCK_CHECKSUM_OFFSET + 4
}

fn validate_checksums(raw: &RawSuperblock, compat: Compat, incompat: Incompat) -> Result<Checksums> {
    let found = (
        compat.contains(Compat::CHECKSUM),
        incompat.contains(Incompat::CSUM_V2),
        incompat.contains(Incompat::CSUM_V3),
    );
    let checksums = match found {
        (false, false, false) => Checksums::None,
        (true, false, false) => Checksums::V1,
        (false, true, false) => Checksums::V2,
        (false, false, true) => Checksums::V3,
        _ => return Err(corrupt(STRUCTURE, "more than one version of checksums is set")),
    };
    let kind = ChecksumType(raw.s_checksum_type);
    if checksums.per_block() && kind != ChecksumType::CRC32C {
        return Err(Error::Unsupported(
            format!("journal checksum type {}, only CRC-32C is known", kind.0).into(),
        ));
    }
    Ok(checksums)
}

/// The end of the ring of transactions, and the fast-commit area.
///
/// The block between the two belongs to neither: that is how the kernel lays it out. An area that would
/// leave too small a ring is not an area, which is the kernel's rule as well.
fn fast_commit_area(raw: &RawSuperblock, incompat: Incompat) -> (u32, std::ops::Range<u32>) {
    let length = raw.s_maxlen.get();
    if !incompat.contains(Incompat::FAST_COMMIT) {
        return (length, 0..0);
    }
    let area = match raw.s_num_fc_blks.get() {
        0 => DEFAULT_FAST_COMMIT_BLOCKS,
        blocks => blocks,
    };
    match length.checked_sub(area) {
        Some(end) if end >= MIN_LOG_BLOCKS && end > raw.s_first.get() => (end, end + 1..length),
        _ => (length, 0..0),
    }
}
