//! One operation of a fast commit, validated.

use zerocopy::FromBytes;

use super::format::{RawAddRange, RawDelRange, RawName, Tag};
use crate::error::Verdict;
use crate::jbd2::Volume;
use crate::numbers::{FileBlock, FsBlock};

/// Inodes are at least this long; later fields are optional.
const SHORTEST_INODE_BYTES: usize = 128;

/// Longest run of an extent that is written; longer ones are unwritten, by the excess.
const LONGEST_WRITTEN: u16 = 1 << 15;

/// Something that happened after the last full transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FastCommitOp {
    /// Blocks of a file are mapped; what was there is replaced.
    AddRange {
        /// The file.
        ino: u32,
        /// First block of the file.
        lblk: FileBlock,
        /// Number of blocks; not 0.
        len: u32,
        /// Where the first of them lies.
        pblk: FsBlock,
        /// Whether they read as zeroes.
        unwritten: bool,
    },
    /// Blocks of a file are a hole.
    DelRange {
        /// The file.
        ino: u32,
        /// First block of the file.
        lblk: FileBlock,
        /// Number of blocks; not 0.
        len: u32,
    },
    /// A new inode has its first name. Its `Inode` and `AddRange` come right before.
    Create {
        /// The directory.
        parent: u32,
        /// The new inode.
        ino: u32,
        /// 1 to 255 bytes.
        name: Box<[u8]>,
    },
    /// An inode has one more name.
    Link {
        /// The directory.
        parent: u32,
        /// The inode.
        ino: u32,
        /// 1 to 255 bytes.
        name: Box<[u8]>,
    },
    /// A name is gone, provided that it led to this inode.
    Unlink {
        /// The directory.
        parent: u32,
        /// The inode.
        ino: u32,
        /// 1 to 255 bytes.
        name: Box<[u8]>,
    },
    /// An inode's fields.
    Inode {
        /// The inode.
        ino: u32,
        /// Its first bytes as they would lie on disk: at least 128, at most the inode size.
        raw: Box<[u8]>,
    },
}

impl FastCommitOp {
    /// Validates an element of a commit whose checksum is right; `None` for one that changes nothing.
    ///
    /// # Errors
    /// It names an inode, block or name that cannot be.
    pub(super) fn validate(tag: Tag, value: &[u8], volume: &Volume) -> Verdict<Option<Self>> {
        Ok(match tag {
            Tag::ADD_RANGE => Self::add_range(value, volume)?,
            Tag::DEL_RANGE => Self::del_range(value, volume)?,
            Tag::CREAT => {
                let (parent, ino, name) = validate_name(value, volume)?;
                Some(Self::Create { parent, ino, name })
            }
            Tag::LINK => {
                let (parent, ino, name) = validate_name(value, volume)?;
                Some(Self::Link { parent, ino, name })
            }
            Tag::UNLINK => {
                let (parent, ino, name) = validate_name(value, volume)?;
                Some(Self::Unlink { parent, ino, name })
            }
            Tag::INODE => {
                let Some((ino, raw)) = value.split_first_chunk::<4>() else { return Err("too short".into()) };
                let ino = validate_ino(u32::from_le_bytes(*ino), volume)?;
                if !(SHORTEST_INODE_BYTES..=usize::from(volume.inode_bytes)).contains(&raw.len()) {
                    return Err(format!("an inode of {} bytes", raw.len()).into());
                }
                Some(Self::Inode { ino, raw: raw.into() })
            }
            _ => None,
        })
    }

    /// Whether an element's length fits its tag; whatever does not is not an element.
    pub(super) fn length_fits(tag: Tag, bytes: usize, volume: &Volume) -> bool {
        match tag {
            Tag::ADD_RANGE => bytes == size_of::<RawAddRange>(),
            Tag::DEL_RANGE => bytes == size_of::<RawDelRange>(),
            Tag::CREAT | Tag::LINK | Tag::UNLINK => {
                (size_of::<RawName>() + 1..=size_of::<RawName>() + 255).contains(&bytes)
            }
            Tag::INODE => (4 + SHORTEST_INODE_BYTES..=4 + usize::from(volume.inode_bytes)).contains(&bytes),
            Tag::PAD => true,
            Tag::TAIL => bytes >= 8,
            Tag::HEAD => bytes == 8,
            _ => false,
        }
    }

    fn add_range(value: &[u8], volume: &Volume) -> Verdict<Option<Self>> {
        let raw = RawAddRange::read_from_bytes(value).map_err(|_| "a range of the wrong size")?;
        let ino = validate_ino(raw.fc_ino.get(), volume)?;
        let (len, unwritten) = match raw.ee_len.get() {
            len if len > LONGEST_WRITTEN => (len - LONGEST_WRITTEN, true),
            len => (len, false),
        };
        let lblk = raw.ee_block.get();
        let pblk = u64::from(raw.ee_start_hi.get()) << 32 | u64::from(raw.ee_start_lo.get());
        if lblk.checked_add(u32::from(len)).is_none() || pblk + u64::from(len) > volume.blocks {
            return Err(format!(
                "inode {ino}: {len} blocks from file block {lblk} on at block {pblk}, in a filesystem of {} blocks",
                volume.blocks
            )
            .into());
        }
        let add = Self::AddRange {
            ino,
            lblk: FileBlock(lblk),
            len: u32::from(len),
            pblk: FsBlock(pblk),
            unwritten,
        };
        Ok(Some(add).filter(|_| len > 0))
    }

    fn del_range(value: &[u8], volume: &Volume) -> Verdict<Option<Self>> {
        let raw = RawDelRange::read_from_bytes(value).map_err(|_| "a range of the wrong size")?;
        let ino = validate_ino(raw.fc_ino.get(), volume)?;
        let (lblk, len) = (raw.fc_lblk.get(), raw.fc_len.get());
        if lblk.checked_add(len).is_none() {
            return Err(format!("inode {ino}: {len} file blocks from {lblk} on").into());
        }
        Ok(Some(Self::DelRange { ino, lblk: FileBlock(lblk), len }).filter(|_| len > 0))
    }
}

fn validate_name(value: &[u8], volume: &Volume) -> Verdict<(u32, u32, Box<[u8]>)> {
    let (raw, name) = RawName::read_from_prefix(value).map_err(|_| "a name that is too short")?;
    let parent = validate_ino(raw.fc_parent_ino.get(), volume)?;
    let ino = validate_ino(raw.fc_ino.get(), volume)?;
    let bad = name.is_empty() || name.len() > 255 || name.contains(&b'/') || name.contains(&0);
    if bad || name == b"." || name == b".." {
        let name = String::from_utf8_lossy(name);
        return Err(format!("the impossible name {name:?} in directory {parent}").into());
    }
    Ok((parent, ino, name.into()))
}

fn validate_ino(ino: u32, volume: &Volume) -> Verdict<u32> {
    if (1..=volume.inodes).contains(&ino) {
        return Ok(ino);
    }
    Err(format!("inode {ino} of {}", volume.inodes).into())
}
