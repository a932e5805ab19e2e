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
            _ => Self::fixed(parse_device_size(typed)?),
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
    /// Patterns of what is left out of its sources, as tar takes them.
    pub exclude: Vec<String>,
    /// The owner of everything in it: a number, or `OWNER:GROUP`.
    pub owner: Option<String>,
    /// How permissions are changed: an octal number, or changes as chmod takes them.
    pub mode: Option<String>,
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

/// What fits every sector and nearly every block.
const DEVICE_GRAIN_BYTES: u64 = 4096;

/// A size: in bytes (`4096`), with a binary unit (`10G`, `512MiB`) or a decimal one (`500MB`). A number of units may have a
/// fraction (`1.5G`), of which a part of a byte is left out.
///
/// # Errors
/// That it is none, in words.
pub fn parse_size(typed: &str) -> Result<u64, String> {
    size_of(typed).filter(|&bytes| bytes <= i64::MAX as u64).ok_or_else(|| no_size(typed))
}

/// The size of a device, a partition or a filesystem: as [`parse_size`], but what a decimal unit or a fraction makes is rounded
/// down to 4 KiB, so that `500MB` is one.
///
/// # Errors
/// That it is none, in words.
pub fn parse_device_size(typed: &str) -> Result<u64, String> {
    let bytes = parse_size(typed)?;
    let is_exact = typed.bytes().all(|byte| byte.is_ascii_digit()) || bytes.is_multiple_of(1024);
    if is_exact {
        return Ok(bytes);
    }
    let rounded = bytes / DEVICE_GRAIN_BYTES * DEVICE_GRAIN_BYTES;
    if rounded == 0 && bytes > 0 { Err(no_size(typed)) } else { Ok(rounded) }
}

fn no_size(typed: &str) -> String {
    format!("{typed:?} is no size: write it as 10G, 1.5T, 512M or in bytes")
}

fn size_of(typed: &str) -> Option<u64> {
    let number = typed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match typed[number.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "p" | "pib" => 1 << 50,
        "kb" => 10_u64.pow(3),
        "mb" => 10_u64.pow(6),
        "gb" => 10_u64.pow(9),
        "tb" => 10_u64.pow(12),
        "pb" => 10_u64.pow(15),
        _ => return None,
    };
    // Rust's parser takes a plus sign, which means a change elsewhere.
    let digits = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<u64>().ok()).flatten()
    };
    let Some((whole, fraction)) = number.split_once('.') else { return digits(number)?.checked_mul(unit) };
    let parts = 10_u64.checked_pow(fraction.len().try_into().ok()?)?;
    let bytes = u128::from(unit) * u128::from(digits(fraction)?) / u128::from(parts);
    let bytes = u128::from(digits(whole)?.checked_mul(unit)?) + bytes;
    (unit > 1).then(|| bytes.try_into().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let sizes = ["4096", "1k", "3M", "10G", "2TiB", "7Mib"].map(|typed| parse_size(typed).unwrap());
        assert_eq!(sizes, [4096, 1024, 3 << 20, 10 << 30, 2 << 40, 7 << 20]);
        let sizes =
            ["1.5G", "0.25k", "0.3G", "500MB", "2kB", "1.5tb"].map(|typed| parse_size(typed).unwrap());
        assert_eq!(sizes, [3 << 29, 256, 322_122_547, 500_000_000, 2000, 1_500_000_000_000]);
        let sizes = ["1.5G", "500MB", "0.5GB", "0.3G", "1000001", "0M", "3k"];
        let sizes = sizes.map(|typed| parse_device_size(typed).unwrap());
        assert_eq!(sizes, [3 << 29, 499_998_720, 499_998_720, 322_121_728, 1_000_001, 0, 3072]);
        assert!(parse_device_size("0.25k").is_err());
        let wrong = [
            "",
            "G",
            "10X",
            "-1",
            "+1",
            "1.5",
            "1.G",
            ".5G",
            "1.5.5G",
            "1.+5G",
            "-1.5G",
            "99999999P",
            "9223372036854775808",
            "10b",
            "1Gibib",
            "1e3",
            "1.00000000000000000000000001G",
            "7 M",
            "7é",
        ];
        for wrong in wrong {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(SizeDefinition::parse("rest").unwrap(), SizeDefinition::default());
        assert!(SizeDefinition::parse("min").unwrap().minimal);
        assert_eq!(SizeDefinition::parse("1M").unwrap(), SizeDefinition::fixed(1 << 20));
    }
}
