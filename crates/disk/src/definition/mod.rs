//! What a disk is to be, as files say it: a TOML file of our own ([`toml`]), or a directory of definitions of systemd-repart
//! ([`repart`]).
//!
//! Nothing is looked up here but the files themselves. What a format has and cannot be done is refused by its name.

pub mod repart;
pub mod toml;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::layout::WEIGHT;

/// Attribute bits of a GPT entry, of the Discoverable Partitions Specification.
pub const GROW_FILE_SYSTEM: u64 = 1 << 59;
/// To be mounted read-only.
pub const READ_ONLY: u64 = 1 << 60;
/// Not to be mounted without being asked for.
pub const NO_AUTO: u64 = 1 << 63;
/// The platform needs the partition.
pub const REQUIRED: u64 = 1;

/// A file of definitions that cannot be used, in one sentence.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", .path.display())]
pub struct DefinitionError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
    /// The file or directory could not be read; otherwise what it says cannot be.
    pub is_unread: bool,
}

impl DefinitionError {
    fn new(path: &Path, what: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), what: what.to_string(), is_unread: false }
    }

    fn unread(path: &Path, error: &io::Error) -> Self {
        Self { is_unread: true, ..Self::new(path, error) }
    }
}

/// What makes the content of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFormat {
    /// A filesystem without a journal and extents.
    Ext2,
    /// The same with a journal.
    Ext3,
    /// The same with extents and checksums.
    Ext4,
    /// XFS.
    Xfs,
    /// FAT.
    Vfat,
    /// Swap space.
    Swap,
}

impl ContentFormat {
    /// By the name that mkfs and mount have for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ext2" => Self::Ext2,
            "ext3" => Self::Ext3,
            "ext4" => Self::Ext4,
            "xfs" => Self::Xfs,
            "vfat" | "fat" | "fat32" | "msdos" => Self::Vfat,
            "swap" => Self::Swap,
            _ => return None,
        })
    }
}

/// How large a partition is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeDefinition {
    /// At least so many bytes.
    pub min_bytes: Option<u64>,
    /// At most so many bytes.
    pub max_bytes: Option<u64>,
    /// Its share of what is left.
    pub weight: u32,
    /// As small as its content allows, within the other limits.
    pub minimal: bool,
}

impl Default for SizeDefinition {
    fn default() -> Self {
        Self { min_bytes: None, max_bytes: None, weight: WEIGHT, minimal: false }
    }
}

impl SizeDefinition {
    /// So many bytes.
    #[must_use]
    pub fn fixed(bytes: u64) -> Self {
        Self { min_bytes: Some(bytes), max_bytes: Some(bytes), ..Self::default() }
    }

    /// As small as the content allows.
    #[must_use]
    pub fn minimal() -> Self {
        Self { minimal: true, weight: 0, ..Self::default() }
    }

    /// `10G`, `min`, or `rest`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(typed: &str) -> Result<Self, String> {
        Ok(match typed {
            "rest" => Self::default(),
            "min" | "minimal" | "auto" => Self::minimal(),
            _ => Self::fixed(parse_size(typed)?),
        })
    }
}

/// Where files of a partition come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDefinition {
    /// A directory, a file or an archive of this machine.
    pub from: PathBuf,
    /// Where it goes in the filesystem; the root unless said.
    pub to: Option<String>,
}

/// What a partition is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionDefinition {
    /// Its number; counted from 1 unless said.
    pub number: Option<u32>,
    /// Its name in the table.
    pub name: Option<String>,
    /// The name or the UUID of its type.
    pub kind: Option<String>,
    /// Its own UUID.
    pub id: Option<Uuid>,
    /// Attribute bits of a GPT.
    pub attributes: u64,
    /// Whether it is marked for booting.
    pub bootable: bool,
    /// Its size.
    pub size: SizeDefinition,
    /// What is made in it.
    pub format: Option<ContentFormat>,
    /// The label of what is made in it.
    pub label: Option<String>,
    /// The UUID of what is made in it.
    pub content_id: Option<Uuid>,
    /// Files that are put into it.
    pub sources: Vec<SourceDefinition>,
    /// Directories on other filesystems are not entered, as by `tar` and `cp -x`; they stay, empty.
    pub one_file_system: bool,
    /// Directories that are made in it.
    pub directories: Vec<String>,
    /// A file whose bytes it gets.
    pub blocks: Option<PathBuf>,
}

/// What a disk is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskDefinition {
    /// `gpt` or `mbr`.
    pub table: Option<String>,
    /// Size of the disk in bytes.
    pub size_bytes: Option<u64>,
    /// The UUID of a GPT, or the signature of an MBR in hexadecimal.
    pub id: Option<String>,
    /// The unit of the table.
    pub sector_bytes: Option<u32>,
    /// In the order in which they lie.
    pub partitions: Vec<PartitionDefinition>,
}

/// A size with a binary unit: `10G`, `512M`, `4096`.
///
/// # Errors
/// That it is none, in words.
pub fn parse_size(typed: &str) -> Result<u64, String> {
    let digits = typed.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match typed[digits.len()..].to_ascii_lowercase().as_str() {
        "" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        "t" | "tib" => Some(40),
        "p" | "pib" => Some(50),
        _ => None,
    };
    // Rust's parser takes a plus sign, which means a change elsewhere.
    let is_absolute = digits.starts_with(|first: char| first.is_ascii_digit());
    let bytes = shift.and_then(|shift| digits.parse::<u64>().ok()?.checked_mul(1 << shift));
    bytes
        .filter(|&bytes| is_absolute && bytes <= i64::MAX as u64)
        .ok_or_else(|| format!("{typed:?} is no size: write it as 10G, 512M or in bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let sizes = ["4096", "1k", "3M", "10G", "2TiB", "7Mib"].map(|typed| parse_size(typed).unwrap());
        assert_eq!(sizes, [4096, 1024, 3 << 20, 10 << 30, 2 << 40, 7 << 20]);
        for wrong in ["", "G", "10X", "-1", "+1", "1.5G", "99999999P", "7MB", "10b", "1Gibib"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(SizeDefinition::parse("rest").unwrap(), SizeDefinition::default());
        assert!(SizeDefinition::parse("min").unwrap().minimal);
        assert_eq!(SizeDefinition::parse("1M").unwrap(), SizeDefinition::fixed(1 << 20));
    }
}
