//! A disk as the definitions of systemd-repart say it (repart.d(5)): a directory of `*.conf` files, one for each partition, in
//! the order of their names.
//!
//! Done are `Type`, `Label`, `UUID`, `Weight`, `SizeMinBytes`, `SizeMaxBytes`, `Format`, `CopyFiles`, `CopyBlocks`,
//! `MakeDirectories`, `Minimize`, `Flags`, `NoAuto`, `ReadOnly` and `GrowFileSystem`. Others are refused by name unless they
//! ask for nothing. Of specifiers there is `%%`.

use std::fs;
use std::path::{Path, PathBuf};

use undercroft_block::partition::PartitionKind;
use uuid::Uuid;

use super::{
    ContentFormat, DefinitionError, DiskDefinition, GROW_FILE_SYSTEM, NO_AUTO, PartitionDefinition,
    READ_ONLY, SizeDefinition, SourceDefinition, parse_size,
};

/// What systemd-repart gives a partition at least.
const MIN_BYTES: u64 = 10 << 20;
const WEIGHT_MAX: u32 = 1_000_000;
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Reads the definitions of a directory. Paths that they name are below `root`, if it is given; `architecture` is that of types
/// like `root`.
///
/// # Errors
/// [`DefinitionError`]: the directory or a file cannot be read, or says what cannot be done.
pub fn read(
    dir: &Path,
    root: Option<&Path>,
    architecture: Option<&str>,
) -> Result<DiskDefinition, DefinitionError> {
    let failed = |error: std::io::Error| DefinitionError::unread(dir, &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "conf") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(DefinitionError::new(dir, "there are no definitions: files whose names end in .conf"));
    }
    let partitions = files.iter().map(|path| {
        let failed = |what: &dyn std::fmt::Display| DefinitionError::new(path, what);
        let unread = |error: std::io::Error| DefinitionError::unread(path, &error);
        let found = fs::metadata(path).map_err(unread)?;
        if found.len() > FILE_MAX_BYTES {
            return Err(failed(&"it is too long for a definition"));
        }
        let text = fs::read_to_string(path).map_err(unread)?;
        parse(&text, root, architecture).map_err(|what| failed(&what))
    });
    Ok(DiskDefinition { partitions: partitions.collect::<Result<_, _>>()?, ..DiskDefinition::default() })
}

/// Three bits that have settings of their own, where they are said.
#[derive(Default)]
struct Marks {
    no_auto: Option<bool>,
    read_only: Option<bool>,
    grow: Option<bool>,
    flags: u64,
}

/// Reads the text of one definition.
///
/// # Errors
/// What is wrong, in words, with its line.
pub fn parse(
    text: &str,
    root: Option<&Path>,
    architecture: Option<&str>,
) -> Result<PartitionDefinition, String> {
    let mut found = PartitionDefinition::default();
    let mut marks = Marks::default();
    let mut in_partition = false;
    let mut continued = String::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(begun) = line.strip_suffix('\\') {
            continued.push_str(begun);
            continued.push(' ');
            continue;
        }
        let line = std::mem::take(&mut continued) + line;
        let at = |what: String| format!("line {number}: {what}");
        if let Some(section) = line.strip_prefix('[') {
            if section != "Partition]" {
                return Err(at(format!("there is no section [{section}")));
            }
            in_partition = true;
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| in_partition) else {
            return Err(at("this is no setting of a partition".to_owned()));
        };
        set(&mut found, &mut marks, key.trim(), value.trim(), root)
            .map_err(|what| at(format!("{}: {what}", key.trim())))?;
    }
    if !in_partition {
        return Err("there is no section [Partition]".to_owned());
    }
    finish(found, &marks, architecture)
}

fn set(
    found: &mut PartitionDefinition,
    marks: &mut Marks,
    key: &str,
    value: &str,
    root: Option<&Path>,
) -> Result<(), String> {
    match key {
        "Type" => found.kind = Some(value.to_owned()),
        "Label" => found.name = Some(expand(value)?),
        "UUID" => found.id = Some(Uuid::parse_str(value).map_err(|_| format!("{value:?} is no UUID"))?),
        "Weight" => {
            let weight = value.parse().ok().filter(|&weight| weight <= WEIGHT_MAX);
            found.size.weight = weight.ok_or_else(|| format!("{value:?} is no number up to {WEIGHT_MAX}"))?;
        }
        "SizeMinBytes" => found.size.min_bytes = Some(parse_size(value)?.next_multiple_of(4096)),
        "SizeMaxBytes" => found.size.max_bytes = Some(parse_size(value)? / 4096 * 4096),
        "Format" => {
            let format = ContentFormat::named(value);
            found.format = Some(format.ok_or_else(|| {
                format!("{value:?} is not made: there are ext2, ext3, ext4, xfs, vfat and swap")
            })?);
        }
        "CopyBlocks" if value == "auto" => return Err("\"auto\" is not done; name a file".to_owned()),
        "CopyBlocks" => found.blocks = Some(below(root, &expand(value)?)),
        "CopyFiles" => found.sources.push(copied(&expand(value)?, root)?),
        "MakeDirectories" => {
            for path in value.split_whitespace() {
                found.directories.push(absolute(&expand(path)?)?);
            }
        }
        "Minimize" => {
            found.size.minimal = match value {
                "best" | "guess" => true,
                _ => boolean(value).and_then(|yes| {
                    if yes { Err(format!("{value:?} is neither best, guess nor off")) } else { Ok(false) }
                })?,
            };
        }
        "Flags" => marks.flags = flags(value).ok_or_else(|| format!("{value:?} is no number of 64 bits"))?,
        "NoAuto" => marks.no_auto = Some(boolean(value)?),
        "ReadOnly" => marks.read_only = Some(boolean(value)?),
        "GrowFileSystem" => marks.grow = Some(boolean(value)?),
        // What nothing comes of here: names of files that are not split off, the use of existing partitions.
        "SplitName" => {}
        "Encrypt" | "Verity" | "FactoryReset" if boolean(value) == Ok(false) => {}
        "Priority" | "PaddingWeight" | "PaddingMinBytes" if value == "0" => {}
        _ => return Err("this is not done here; leave it out".to_owned()),
    }
    Ok(())
}

/// What follows from several settings.
fn finish(
    mut found: PartitionDefinition,
    marks: &Marks,
    architecture: Option<&str>,
) -> Result<PartitionDefinition, String> {
    let kind = found.kind.as_deref().unwrap_or("linux-generic");
    let known = PartitionKind::gpt_named(kind, architecture)
        .ok_or_else(|| format!("Type: there is no type {kind:?}"))?;
    let name = known.short_name().unwrap_or("");
    if found.name.is_none() && !name.is_empty() {
        found.name = Some(name.to_owned());
    }
    let is_verity = name.contains("-verity");
    let read_only = marks.read_only.unwrap_or(is_verity);
    let grows = ["root", "usr", "home", "srv", "var", "tmp", "xbootldr"];
    let can_grow = grows.iter().any(|kind| name.split('-').next() == Some(*kind));
    let bits = [
        (READ_ONLY, Some(read_only), marks.read_only.is_some() || is_verity),
        (NO_AUTO, marks.no_auto, marks.no_auto.is_some()),
        (
            GROW_FILE_SYSTEM,
            Some(marks.grow.unwrap_or(can_grow && !read_only)),
            marks.grow.is_some() || can_grow,
        ),
    ];
    found.attributes = marks.flags;
    for (bit, value, is_decided) in bits {
        match value {
            Some(true) => found.attributes |= bit,
            Some(false) if is_decided => found.attributes &= !bit,
            _ => {}
        }
    }
    if found.blocks.is_some() && (found.format.is_some() || !found.sources.is_empty()) {
        return Err("CopyBlocks stands without Format and CopyFiles".to_owned());
    }
    if found.format.is_none() && !(found.sources.is_empty() && found.directories.is_empty()) {
        found.format = Some(ContentFormat::Ext4);
    }
    if found.size.min_bytes.is_none() && !found.size.minimal {
        found.size.min_bytes = Some(MIN_BYTES.min(found.size.max_bytes.unwrap_or(MIN_BYTES)));
    }
    let SizeDefinition { min_bytes, max_bytes, .. } = found.size;
    if max_bytes.is_some_and(|max| max < min_bytes.unwrap_or(0)) {
        return Err("SizeMaxBytes is less than SizeMinBytes".to_owned());
    }
    Ok(found)
}

fn copied(value: &str, root: Option<&Path>) -> Result<SourceDefinition, String> {
    let (from, to) = value.split_once(':').unwrap_or((value, value));
    Ok(SourceDefinition { from: below(root, &absolute(from)?), to: Some(absolute(to)?) })
}

fn absolute(path: &str) -> Result<String, String> {
    let climbs = path.split('/').any(|name| name == "..");
    if path.starts_with('/') && !climbs {
        Ok(path.to_owned())
    } else {
        Err(format!("{path:?} is no absolute path"))
    }
}

fn below(root: Option<&Path>, path: &str) -> PathBuf {
    match root {
        Some(root) => root.join(path.trim_start_matches('/')),
        None => PathBuf::from(path),
    }
}

fn expand(value: &str) -> Result<String, String> {
    let mut expanded = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(char) = chars.next() {
        match (char, char == '%') {
            (_, false) => expanded.push(char),
            _ => match chars.next() {
                Some('%') => expanded.push('%'),
                other => {
                    let other = other.map_or_else(String::new, String::from);
                    return Err(format!("the specifier %{other} is not known; write it out"));
                }
            },
        }
    }
    Ok(expanded)
}

fn boolean(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Ok(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Ok(false),
        _ => Err(format!("{value:?} is neither yes nor no")),
    }
}

fn flags(value: &str) -> Option<u64> {
    let (digits, base) = match value.get(..2) {
        Some("0x") => (&value[2..], 16),
        Some("0b") => (&value[2..], 2),
        _ => (value, 10),
    };
    u64::from_str_radix(digits, base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<PartitionDefinition, String> {
        parse(&format!("[Partition]\n{text}"), None, Some("x86-64"))
    }

    #[test]
    fn settings_are_read() {
        let found = one(
            "# A comment\nType=root\nLabel=50%%\nFormat=ext4\nSizeMinBytes=1G\nSizeMaxBytes=2G\nWeight=333\n\
             CopyFiles=/src:/\nCopyFiles=/etc/os-release\nMakeDirectories=/usr \\\n /var\nMinimize=guess\nFlags=0x1\nSplitName=-\n",
        )
        .unwrap();
        assert_eq!((found.name.as_deref(), found.format), (Some("50%"), Some(ContentFormat::Ext4)));
        assert_eq!(
            found.size,
            SizeDefinition { min_bytes: Some(1 << 30), max_bytes: Some(2 << 30), weight: 333, minimal: true }
        );
        assert_eq!(
            found.sources,
            [
                SourceDefinition { from: "/src".into(), to: Some("/".to_owned()) },
                SourceDefinition { from: "/etc/os-release".into(), to: Some("/etc/os-release".to_owned()) },
            ]
        );
        assert_eq!(found.directories, ["/usr", "/var"]);
        assert_eq!(found.attributes, 1 | GROW_FILE_SYSTEM);
    }

    #[test]
    fn what_is_not_said_is_as_repart_has_it() {
        let swap = one("Type=swap\n").unwrap();
        assert_eq!((swap.name.as_deref(), swap.attributes), (Some("swap"), 0));
        assert_eq!(swap.size, SizeDefinition { min_bytes: Some(MIN_BYTES), ..SizeDefinition::default() });
        let root = one("Type=root\nReadOnly=yes").unwrap();
        assert_eq!((root.name.as_deref(), root.attributes), (Some("root-x86-64"), READ_ONLY));
        assert_eq!(one("Type=usr-verity").unwrap().attributes, READ_ONLY);
        assert_eq!(
            one("Type=home\nFlags=0x8000000000000000\nGrowFileSystem=no").unwrap().attributes,
            NO_AUTO
        );
        assert_eq!(one("CopyFiles=/a").unwrap().format, Some(ContentFormat::Ext4));
        let below = parse("[Partition]\nCopyBlocks=/a.img", Some(Path::new("/root")), None).unwrap();
        assert_eq!(below.blocks, Some("/root/a.img".into()));
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for (text, words) in [
            ("Encrypt=tpm2", "line 2: Encrypt: this is not done"),
            ("Verity=data", "Verity: this is not done"),
            ("Priority=5", "Priority: this is not done"),
            ("Something=1", "Something: this is not done"),
            ("Format=btrfs", "\"btrfs\" is not made"),
            ("Label=%m", "the specifier %m"),
            ("Label=%", "the specifier %"),
            ("Type=rooot", "no type \"rooot\""),
            ("CopyBlocks=auto", "name a file"),
            ("CopyBlocks=/a\nFormat=ext4", "CopyBlocks stands without"),
            ("CopyFiles=a:/b", "no absolute path"),
            ("CopyFiles=/a:/b/../..", "no absolute path"),
            ("SizeMinBytes=2G\nSizeMaxBytes=1G", "less than"),
            ("UUID=null", "no UUID"),
            ("Weight=1000001", "no number"),
            ("Minimize=yes", "neither best"),
            ("nonsense", "no setting"),
        ] {
            let what = one(text).unwrap_err();
            assert!(what.contains(words), "{what}");
        }
        assert!(parse("", None, None).unwrap_err().contains("no section"));
        assert!(parse("[Other]", None, None).unwrap_err().contains("no section [Other]"));
        assert!(parse("Type=root", None, None).is_err());
    }
}
