//! A disk as a TOML file says it.
//!
//! ```toml
//! table = "gpt"              # or "mbr"
//! size = "4G"                # as small as its partitions allow unless said
//!
//! [[partition]]
//! name = "esp"               # its name in the table; its type too, unless `type` says it
//! format = "vfat"            # ext2, ext3, ext4, xfs, vfat, swap
//! size = "100M"              # a size, "min" or "rest"
//! source = "boot/"           # a directory or an archive, or several in a list
//!
//! [[partition]]
//! name = "root"
//! type = "root-arm64"
//! format = "ext4"
//! label = "rootfs"
//! min-size = "1G"            # with max-size and weight in place of size
//! attributes = ["read-only"] # grow-file-system, no-auto, required, legacy-boot
//! source = ["base.tar", "overlay/"]
//! one-file-system = true     # do not enter directories on other filesystems, as tar and cp -x
//!
//! [[partition]]
//! name = "firmware"
//! type = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
//! blocks = "firmware.img"    # the bytes of a file
//! ```
//!
//! Paths are relative to the file's directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use undercroft_populate::split_kind;
use uuid::Uuid;

use super::{
    ContentFormat, DefinitionError, DiskDefinition, GROW_FILE_SYSTEM, NO_AUTO, PartitionDefinition,
    READ_ONLY, REQUIRED, SizeDefinition, SourceDefinition, parse_size,
};
use crate::layout::WEIGHT;

/// A file of definitions is no longer than this.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Disk {
    table: Option<String>,
    size: Option<String>,
    uuid: Option<String>,
    sector_size: Option<u32>,
    #[serde(default)]
    partition: Vec<Partition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Partition {
    number: Option<u32>,
    name: Option<String>,
    r#type: Option<String>,
    uuid: Option<Uuid>,
    #[serde(default)]
    attributes: Vec<String>,
    #[serde(default)]
    bootable: bool,
    size: Option<String>,
    min_size: Option<String>,
    max_size: Option<String>,
    weight: Option<u32>,
    format: Option<String>,
    label: Option<String>,
    fs_uuid: Option<Uuid>,
    source: Option<Sources>,
    #[serde(default)]
    one_file_system: bool,
    #[serde(default)]
    directories: Vec<String>,
    blocks: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Sources {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

/// Reads a file.
///
/// # Errors
/// [`DefinitionError`]: it cannot be read, or says what cannot be.
pub fn read(path: &Path) -> Result<DiskDefinition, DefinitionError> {
    let failed = |error: std::io::Error| DefinitionError::unread(path, &error);
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_BYTES {
        return Err(DefinitionError::new(path, "it is too long for a definition"));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    parse(&text, path.parent().unwrap_or(Path::new(""))).map_err(|what| DefinitionError::new(path, what))
}

/// Reads the text of a file; relative paths in it are those of `dir`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse(text: &str, dir: &Path) -> Result<DiskDefinition, String> {
    let disk: Disk = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let message = error.message().replace('\n', "; ");
        line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
    })?;
    let partitions = disk.partition.into_iter().zip(1..).map(|(partition, count)| {
        let shown = partition.name.clone().unwrap_or_else(|| count.to_string());
        partition.defined(dir).map_err(|what| format!("partition {shown}: {what}"))
    });
    Ok(DiskDefinition {
        table: disk.table,
        size_bytes: disk.size.as_deref().map(parse_size).transpose()?,
        id: disk.uuid,
        sector_bytes: disk.sector_size,
        partitions: partitions.collect::<Result<_, _>>()?,
    })
}

impl Partition {
    fn defined(self, dir: &Path) -> Result<PartitionDefinition, String> {
        let size = match (&self.size, &self.min_size, &self.max_size, self.weight) {
            (Some(size), None, None, None) => SizeDefinition::parse(size)?,
            (Some(_), ..) => return Err("`size` says all, and stands alone".to_owned()),
            (None, None, None, None) if self.blocks.is_some() || self.source.is_some() => {
                SizeDefinition::minimal()
            }
            (None, min, max, weight) => SizeDefinition {
                min_bytes: min.as_deref().map(parse_size).transpose()?,
                max_bytes: max.as_deref().map(parse_size).transpose()?,
                weight: weight.unwrap_or(WEIGHT),
                minimal: false,
            },
        };
        let format = self.format.as_deref().map(|name| {
            ContentFormat::named(name).ok_or_else(|| {
                format!("{name:?} is not made: there are ext2, ext3, ext4, xfs, vfat and swap")
            })
        });
        let mut defined = PartitionDefinition {
            number: self.number,
            name: self.name,
            kind: self.r#type,
            id: self.uuid,
            bootable: self.bootable,
            size,
            format: format.transpose()?,
            label: self.label,
            content_id: self.fs_uuid,
            one_file_system: self.one_file_system,
            directories: self.directories,
            blocks: self.blocks.map(|path| dir.join(path)),
            ..PartitionDefinition::default()
        };
        let sources = match self.source {
            None => Vec::new(),
            Some(Sources::One(path)) => vec![path],
            Some(Sources::Several(paths)) => paths,
        };
        defined.sources = sources
            .into_iter()
            .map(|typed| SourceDefinition { from: beside(dir, &typed), to: None })
            .collect();
        for attribute in &self.attributes {
            match attribute.as_str() {
                "grow-file-system" => defined.attributes |= GROW_FILE_SYSTEM,
                "read-only" => defined.attributes |= READ_ONLY,
                "no-auto" => defined.attributes |= NO_AUTO,
                "required" => defined.attributes |= REQUIRED,
                "legacy-boot" => defined.bootable = true,
                _ => {
                    return Err(format!(
                        "there is no attribute {attribute:?}: there are grow-file-system, read-only, no-auto, \
                         required and legacy-boot"
                    ));
                }
            }
        }
        Ok(defined)
    }
}

/// A source beside the definition: its path, behind what says what it is.
fn beside(dir: &Path, typed: &Path) -> PathBuf {
    let Some((kind, path)) = split_kind(typed) else { return dir.join(typed) };
    let mut beside = OsString::from(kind);
    beside.push(dir.join(path));
    beside.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_read() {
        let text = r#"
            table = "gpt"
            size = "4G"
            [[partition]]
            name = "esp"
            format = "vfat"
            size = "100M"
            source = "boot"
            [[partition]]
            name = "root"
            type = "root-arm64"
            format = "ext4"
            label = "rootfs"
            min-size = "1G"
            weight = 500
            attributes = ["read-only", "legacy-boot"]
            source = ["/base.tar", "overlay", "oci:layout:tag"]
            directories = ["/var"]
            one-file-system = true
            [[partition]]
            blocks = "firmware.img"
            number = 9
        "#;
        let disk = parse(text, Path::new("dir")).unwrap();
        assert_eq!((disk.table.as_deref(), disk.size_bytes), (Some("gpt"), Some(4 << 30)));
        let [esp, root, firmware] = &disk.partitions[..] else { panic!("{disk:?}") };
        assert_eq!((esp.format, esp.size), (Some(ContentFormat::Vfat), SizeDefinition::fixed(100 << 20)));
        assert_eq!(esp.sources, [SourceDefinition { from: "dir/boot".into(), to: None }]);
        assert_eq!((root.size.min_bytes, root.size.max_bytes, root.size.weight), (Some(1 << 30), None, 500));
        let sources: Vec<_> = root.sources.iter().map(|source| source.from.to_str().unwrap()).collect();
        assert_eq!(sources, ["/base.tar", "dir/overlay", "oci:dir/layout:tag"]);
        assert_eq!((root.attributes, root.bootable), (READ_ONLY, true));
        assert_eq!((esp.one_file_system, root.one_file_system), (false, true));
        assert_eq!((&firmware.blocks, firmware.number), (&Some("dir/firmware.img".into()), Some(9)));
        assert!(firmware.size.minimal);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, words) in [
            ("tabel = 1", "line 1: unknown field `tabel`"),
            ("\n[[partition]]\nformat = \"btrfs\"", "partition 1: \"btrfs\" is not made"),
            ("[[partition]]\nname = \"a\"\nsize = \"1X\"", "partition a: \"1X\" is no size"),
            ("[[partition]]\nsize = \"1M\"\nweight = 1", "stands alone"),
            ("[[partition]]\nattributes = [\"x\"]", "no attribute \"x\""),
            ("[[partition]]\nuuid = \"x\"", "line 2: UUID parsing failed"),
            ("table", "line 1: "),
        ] {
            let what = parse(text, Path::new("")).unwrap_err();
            assert!(what.contains(words) && !what.contains('\n'), "{what}");
        }
    }
}
