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
//! exclude = ["*.o", ".git"]  # patterns of what is left out, as tar takes them
//! owner = "0:0"              # of everything, as a number, or OWNER:GROUP
//! mode = "go-w"              # an octal number, or changes as chmod takes them
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

use serde::{Deserialize, Deserializer};
use undercroft_populate::split_kind;
use uuid::Uuid;

use super::{
    ContentFormat, DefinitionError, DiskDefinition, GROW_FILE_SYSTEM, NO_AUTO, PartitionDefinition,
    READ_ONLY, REQUIRED, SizeDefinition, SourceDefinition, parse_device_size,
};
use crate::layout::WEIGHT;

/// A file of definitions is no longer than this.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Disk {
    table: Option<String>,
    size: Option<Size>,
    uuid: Option<String>,
    sector_size: Option<u32>,
    #[serde(default)]
    partition: Vec<toml::Spanned<Partition>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Partition {
    number: Option<u32>,
    name: Option<String>,
    r#type: Option<String>,
    uuid: Option<Uuid>,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    bootable: bool,
    size: Option<SizeDefinition>,
    min_size: Option<Size>,
    max_size: Option<Size>,
    weight: Option<u32>,
    format: Option<ContentFormat>,
    label: Option<String>,
    fs_uuid: Option<Uuid>,
    source: Option<OneOrSeveral<PathBuf>>,
    #[serde(default)]
    one_file_system: bool,
    exclude: Option<OneOrSeveral<String>>,
    owner: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    directories: Vec<String>,
    blocks: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "it is neither a text nor a list of texts")]
enum OneOrSeveral<T> {
    One(T),
    Several(Vec<T>),
}

impl<T> OneOrSeveral<T> {
    fn all(of: Option<Self>) -> Vec<T> {
        match of {
            None => Vec::new(),
            Some(Self::One(one)) => vec![one],
            Some(Self::Several(several)) => several,
        }
    }
}

/// Deserializes a string by a function that says what is wrong with it: the parser adds the line.
macro_rules! from_string {
    ($target:ty, $parse:expr) => {
        impl<'de> Deserialize<'de> for $target {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let typed = String::deserialize(deserializer)?;
                let parse: fn(&str) -> Result<Self, String> = $parse;
                parse(&typed).map_err(serde::de::Error::custom)
            }
        }
    };
}

/// In bytes.
struct Size(u64);

from_string!(Size, |typed| parse_device_size(typed).map(Self));
from_string!(SizeDefinition, Self::parse);
from_string!(ContentFormat, |name| {
    Self::named(name)
        .ok_or_else(|| format!("{name:?} is not made: there are ext2, ext3, ext4, xfs, vfat and swap"))
});

#[derive(Clone, Copy)]
enum Attribute {
    /// Of the entry in a GPT.
    Bits(u64),
    LegacyBoot,
}

from_string!(Attribute, |name| {
    Ok(match name {
        "grow-file-system" => Self::Bits(GROW_FILE_SYSTEM),
        "read-only" => Self::Bits(READ_ONLY),
        "no-auto" => Self::Bits(NO_AUTO),
        "required" => Self::Bits(REQUIRED),
        "legacy-boot" => Self::LegacyBoot,
        _ => {
            return Err(format!(
                "there is no attribute {name:?}: there are grow-file-system, read-only, no-auto, required and legacy-boot"
            ));
        }
    })
});

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
    let line = |at: usize| text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
    let disk: Disk = toml::from_str(text).map_err(|error| {
        let message = error.message().replace('\n', "; ");
        error.span().map_or_else(|| message.clone(), |span| format!("line {}: {message}", line(span.start)))
    })?;
    let partitions = disk.partition.into_iter().map(|partition| {
        let at = partition.span().start;
        partition.into_inner().defined(dir).map_err(|what| format!("line {}: {what}", line(at)))
    });
    Ok(DiskDefinition {
        table: disk.table,
        size_bytes: disk.size.map(|Size(bytes)| bytes),
        id: disk.uuid,
        sector_bytes: disk.sector_size,
        partitions: partitions.collect::<Result<_, _>>()?,
    })
}

impl Partition {
    fn defined(self, dir: &Path) -> Result<PartitionDefinition, String> {
        let size = match (self.size, &self.min_size, &self.max_size, self.weight) {
            (Some(size), None, None, None) => size,
            (Some(_), ..) => {
                return Err(
                    "`size` says all, and stands without `min-size`, `max-size` and `weight`".to_owned()
                );
            }
            (None, None, None, None) if self.blocks.is_some() || self.source.is_some() => {
                SizeDefinition::minimal()
            }
            (None, min, max, weight) => SizeDefinition {
                min_bytes: min.as_ref().map(|&Size(bytes)| bytes),
                max_bytes: max.as_ref().map(|&Size(bytes)| bytes),
                weight: weight.unwrap_or(WEIGHT),
                minimal: false,
            },
        };
        let (sources, exclude) = (OneOrSeveral::all(self.source), OneOrSeveral::all(self.exclude));
        if let Some(rooted) = exclude.iter().find(|pattern| pattern.starts_with('/')) {
            let without = rooted.trim_start_matches('/');
            return Err(format!(
                "{rooted:?} in `exclude` matches nothing, as paths begin without a slash: {without:?}"
            ));
        }
        let has_rules = !exclude.is_empty() || self.owner.is_some() || self.mode.is_some();
        if has_rules && sources.is_empty() && self.directories.is_empty() {
            return Err("`exclude`, `owner` and `mode` are about files, and it has no `source`".to_owned());
        }
        if self.format == Some(ContentFormat::Vfat) && (self.owner.is_some() || self.mode.is_some()) {
            return Err("FAT keeps no owners and no permissions: leave `owner` and `mode` out".to_owned());
        }
        let mut defined = PartitionDefinition {
            number: self.number,
            name: self.name,
            kind: self.r#type,
            id: self.uuid,
            bootable: self.bootable,
            size,
            format: self.format,
            label: self.label,
            content_id: self.fs_uuid,
            one_file_system: self.one_file_system,
            exclude,
            owner: self.owner,
            mode: self.mode,
            directories: self.directories,
            blocks: self.blocks.map(|path| dir.join(path)),
            sources: sources
                .iter()
                .map(|typed| SourceDefinition { from: beside(dir, typed), to: None })
                .collect(),
            ..PartitionDefinition::default()
        };
        for attribute in self.attributes {
            match attribute {
                Attribute::Bits(bits) => defined.attributes |= bits,
                Attribute::LegacyBoot => defined.bootable = true,
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
            exclude = ["*.o"]
            owner = "0:0"
            mode = "go-w"
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
        assert_eq!(root.exclude, ["*.o"]);
        assert_eq!((root.owner.as_deref(), root.mode.as_deref()), (Some("0:0"), Some("go-w")));
        assert_eq!((&firmware.blocks, firmware.number), (&Some("dir/firmware.img".into()), Some(9)));
        assert!(firmware.size.minimal);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, words) in [
            ("tabel = 1", "line 1: unknown field `tabel`"),
            ("size = \"much\"", "line 1: \"much\" is no size"),
            ("\n[[partition]]\nformat = \"btrfs\"", "line 3: \"btrfs\" is not made"),
            ("[[partition]]\nname = \"a\"\nsize = \"1X\"", "line 3: \"1X\" is no size"),
            ("[[partition]]\nmax-size = \"1X\"", "line 2: \"1X\" is no size"),
            ("[[partition]]\n\n[[partition]]\nsize = \"1M\"\nweight = 1", "line 3: `size` says all"),
            ("[[partition]]\nsource = 1", "line 2: it is neither a text nor a list of texts"),
            (
                "[[partition]]\nformat = \"swap\"\nowner = \"7\"",
                "line 1: `exclude`, `owner` and `mode` are about files",
            ),
            (
                "[[partition]]\nformat = \"vfat\"\nsource = \"x\"\nmode = \"0644\"",
                "line 1: FAT keeps no owners",
            ),
            ("[[partition]]\nsource = \"x\"\nexclude = \"/b\"", "\"/b\" in `exclude` matches nothing"),
            ("[[partition]]\nattributes = [\"x\"]", "line 2: there is no attribute \"x\""),
            ("[[partition]]\nuuid = \"x\"", "line 2: UUID parsing failed"),
            ("table", "line 1: "),
        ] {
            let what = parse(text, Path::new("")).unwrap_err();
            assert!(what.contains(words) && !what.contains('\n'), "{what}");
        }
    }
}
