//! Reads the fast-commit area: every complete fast commit after the last transaction.
//!
//! The area counts only when its head names the transaction that was running at the crash, which is the one
//! after the log's last. A commit counts when its tail names that transaction too and has the right checksum. The first
//! commit that does not ends the list: its durability was never reported to a caller. The kernel refuses to mount when
//! that is the very first commit; here it is an empty list, and the report says so.

use std::ops::Range;

use undercroft_block::BlockDevice;
use undercroft_vfs::{Error, Result};
use zerocopy::FromBytes;

use super::format::{RawElement, RawHead, RawTail, Tag};
use super::operation::FastCommitOp;
use crate::checksum::crc32c;
use crate::error::corrupt_block;
use crate::jbd2::Sequence;
use crate::jbd2::{LogBlock, LogLocation, Volume};
use crate::numbers::FsBlock;

/// What the area holds.
#[derive(Debug, Default)]
pub(crate) struct FastCommits {
    /// In order. Bounded by the size of the area.
    pub(crate) operations: Vec<FastCommitOp>,
    /// Complete commits.
    pub(crate) commits: u32,
    /// The block of the filesystem in which one is known to be incomplete or damaged.
    pub(crate) cut_short: Option<FsBlock>,
}

/// Reads the `area`; `running` is the transaction after the last one in the log.
///
/// # Errors
/// `Unsupported` with the number of an unknown feature; `Corrupt` when a complete commit holds what cannot be;
/// `Io`.
pub(crate) fn read(
    device: &dyn BlockDevice,
    location: &LogLocation,
    area: &Range<u32>,
    volume: &Volume,
    running: Sequence,
) -> Result<FastCommits> {
    let found = FastCommits::default();
    let mut reader = Reader { volume, running, found, pending: Vec::new(), crc: 0, home: FsBlock(0) };
    let mut block = vec![0; volume.block_bytes as usize];
    for at in area.clone() {
        location.read_block(device, LogBlock(at), &mut block)?;
        reader.home = location.home(LogBlock(at))?;
        let first = at == area.start;
        if first && !reader.begins(&block) {
            return Ok(reader.found);
        }
        if !reader.block(&block)? {
            break;
        }
    }
    // The beginning of a later commit cannot be distinguished from what an earlier round left there. The first commit
    // begins with the head, and was begun if anything follows that.
    let begun = !reader.pending.is_empty();
    let mut found = reader.found;
    if found.commits == 0 && begun {
        found.cut_short.get_or_insert(reader.home);
    }
    Ok(found)
}

/// An element of a commit whose end has not been seen.
struct Pending {
    tag: Tag,
    value: Box<[u8]>,
    home: FsBlock,
}

struct Reader<'a> {
    volume: &'a Volume,
    running: Sequence,
    found: FastCommits,
    /// Elements of the commit that is being read. They are validated once its checksum is known to be right.
    pending: Vec<Pending>,
    crc: u32,
    /// Where the block lies that is being read.
    home: FsBlock,
}

impl Reader<'_> {
    /// Whether the area's first block begins with a head of the running transaction.
    fn begins(&self, block: &[u8]) -> bool {
        let Some((Tag::HEAD, value)) = element(block, self.volume) else { return false };
        head(value).fc_tid.get() == self.running.0
    }

    /// Takes one block's elements; false when the list ends within it.
    fn block(&mut self, block: &[u8]) -> Result<bool> {
        let mut rest = block;
        while rest.len() >= size_of::<RawElement>() {
            let Some((tag, value)) = element(rest, self.volume) else {
                // Where a commit would begin, anything else is just the end.
                return Ok(false);
            };
            let (whole, after) = rest.split_at(size_of::<RawElement>() + value.len());
            rest = after;
            match tag {
                Tag::HEAD => {
                    let head = head(value);
                    if head.fc_tid.get() != self.running.0 {
                        return Ok(false);
                    }
                    if head.fc_features.get() != 0 {
                        let features = head.fc_features;
                        return Err(Error::Unsupported(
                            format!("fast-commit feature bits {features:#x}").into(),
                        ));
                    }
                    self.crc = crc32c(self.crc, whole);
                }
                Tag::TAIL => {
                    let (tail, _) = RawTail::read_from_prefix(value).expect("the length fits the tag");
                    // All but the checksum itself and the filling behind it.
                    self.crc = crc32c(self.crc, &whole[..size_of::<RawElement>() + 4]);
                    if tail.fc_tid.get() != self.running.0 {
                        // A tail of an earlier round that the next commit would have overwritten.
                        return Ok(false);
                    }
                    if tail.fc_crc.get() != self.crc {
                        self.found.cut_short = Some(self.home);
                        return Ok(false);
                    }
                    self.commit()?;
                }
                tag => {
                    self.crc = crc32c(self.crc, whole);
                    if tag != Tag::PAD {
                        self.pending.push(Pending { tag, value: value.into(), home: self.home });
                    }
                }
            }
        }
        Ok(true)
    }

    /// Ends a commit whose tail is right.
    fn commit(&mut self) -> Result<()> {
        self.crc = 0;
        self.found.commits += 1;
        for Pending { tag, value, home } in self.pending.drain(..) {
            let validated = FastCommitOp::validate(tag, &value, self.volume);
            self.found
                .operations
                .extend(validated.map_err(|detail| corrupt_block("fast commit", home, detail))?);
        }
        Ok(())
    }
}

/// The element at the start of `bytes`, if there is one.
fn element<'a>(bytes: &'a [u8], volume: &Volume) -> Option<(Tag, &'a [u8])> {
    let (raw, after) = RawElement::read_from_prefix(bytes).ok()?;
    let tag = Tag(raw.fc_tag.get());
    let value = after.get(..usize::from(raw.fc_len.get()))?;
    FastCommitOp::length_fits(tag, value.len(), volume).then_some((tag, value))
}

fn head(value: &[u8]) -> RawHead {
    RawHead::read_from_bytes(value).expect("the length fits the tag")
}
