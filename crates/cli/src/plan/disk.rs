//! What the commands about whole disks mean.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::ImageFormat;
use undercroft_block::partition::{PartitionKind, Scheme};
use undercroft_disk::definition::{
    self, ContentFormat, DefinitionError, DiskDefinition, PartitionDefinition, SizeDefinition,
    SourceDefinition,
};

use super::mkfs::{self, format_of_new};
use super::sources::{self, SourcePlan};
use super::{Format, ImageSpec};
pub(crate) use crate::args::Compress;
use crate::args::{AddArgs, CreateArgs, DiskCommand, DiskFamily, ImageCommand, SourceArgs, TableKind};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// One thing to do with a disk or an image file.
#[derive(Debug)]
pub(crate) enum DiskPlan {
    Create(Box<CreatePlan>),
    List { image: ImageSpec },
    Add(Box<AddPlan>),
    Copy(CopyPlan),
    Resize { image: ImageSpec, size_bytes: Option<u64>, grow: bool },
    Compact { image: ImageSpec },
}

/// A disk that is made.
#[derive(Debug)]
pub(crate) struct CreatePlan {
    pub(crate) image: ImageSpec,
    /// It goes to standard output, raw.
    pub(crate) to_stdout: bool,
    pub(crate) compress: Option<Compress>,
    pub(crate) format: Option<ImageFormat>,
    pub(crate) scheme: Scheme,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) id: Option<String>,
    /// As the device has them, or 512, unless said.
    pub(crate) sector_bytes: Option<u32>,
    pub(crate) seed: Option<String>,
    pub(crate) architecture: Option<String>,
    pub(crate) partitions: Vec<PartitionPlan>,
    pub(crate) force: bool,
    pub(crate) quiet: bool,
}

/// A partition that is added.
#[derive(Debug)]
pub(crate) struct AddPlan {
    pub(crate) image: ImageSpec,
    pub(crate) partition: PartitionPlan,
    pub(crate) seed: Option<String>,
    pub(crate) architecture: Option<String>,
}

/// A partition that is made, and how its sources are read.
#[derive(Debug)]
pub(crate) struct PartitionPlan {
    pub(crate) definition: PartitionDefinition,
    pub(crate) how: SourcePlan,
}

/// An image that is copied.
#[derive(Debug)]
pub(crate) struct CopyPlan {
    pub(crate) from: ImageSpec,
    pub(crate) to: CopyTarget,
    pub(crate) format: Option<ImageFormat>,
    pub(crate) force: bool,
}

/// Where a copy goes.
#[derive(Debug)]
pub(crate) enum CopyTarget {
    /// Standard output, as a raw image.
    Stdout,
    /// A file that is made, or a block device.
    File(PathBuf),
    /// A partition of a disk, which stays as large as it is.
    Partition(ImageSpec),
}

impl DiskPlan {
    pub(super) fn from_typed(typed: DiskFamily) -> Result<(Self, Format), Failure> {
        Ok(match typed {
            DiskFamily::Disk { command } => Self::of_disk(command)?,
            DiskFamily::Image { command: ImageCommand::Copy { image, target, format, force, json } } => {
                let from = ImageSpec::from_typed(&image)?;
                let format = format.map(format_of_new);
                let to = CopyTarget::of(target, &from, format, json.json)?;
                (Self::Copy(CopyPlan { from, to, format, force }), Format::of(json.json))
            }
            DiskFamily::Compact { image, json } => {
                (Self::Compact { image: ImageSpec::parse(&image)? }, Format::of(json.json))
            }
        })
    }

    fn of_disk(command: DiskCommand) -> Result<(Self, Format), Failure> {
        Ok(match command {
            DiskCommand::Create(typed) => {
                let format = Format::of(typed.json.json);
                (Self::Create(Box::new(CreatePlan::from_typed(*typed)?)), format)
            }
            DiskCommand::List { image, json } => {
                (Self::List { image: ImageSpec::from_typed(&image)? }, Format::of(json.json))
            }
            DiskCommand::Add(typed) => {
                let format = Format::of(typed.json.json);
                (Self::Add(Box::new(AddPlan::from_typed(*typed)?)), format)
            }
            DiskCommand::Extract { image, file, force, json } => {
                let from = ImageSpec::from_typed(&image)?;
                let to = CopyTarget::of(file, &from, None, json.json)?;
                if from.partition.is_none() {
                    let what = format!("{} names no partition", from.shown());
                    let advice = format!("name one as {}", from.shown_with_part("N"));
                    return Err(Failure::new(Kind::Usage, what).advise(advice));
                }
                (Self::Copy(CopyPlan { from, to, format: None, force }), Format::of(json.json))
            }
            DiskCommand::Resize { image, size, grow, danger, json } => {
                let image = ImageSpec {
                    write_while_in_use: danger.write_while_in_use,
                    ..whole(ImageSpec::parse(&image)?)?
                };
                let size_bytes = size.as_deref().map(mkfs::device_size).transpose()?;
                (Self::Resize { image, size_bytes, grow }, Format::of(json.json))
            }
        })
    }
}

impl CopyTarget {
    fn of(
        typed: PathBuf,
        from: &ImageSpec,
        format: Option<ImageFormat>,
        json: bool,
    ) -> Result<Self, Failure> {
        if typed == Path::new("-") {
            let refused = |what: &str| Failure::new(Kind::Usage, what);
            if format == Some(ImageFormat::Qcow2) {
                return Err(refused(
                    "a qcow2 image cannot be written to standard output, which takes a raw one",
                )
                .advise("name a file"));
            }
            if json {
                return Err(
                    refused("standard output takes the copy, and no JSON").advise("leave `--json` off")
                );
            }
            return Ok(Self::Stdout);
        }
        let spec = ImageSpec::parse_beside(typed.as_os_str(), from)?;
        if spec == ImageSpec::plain(typed.clone()) {
            return Ok(Self::File(typed));
        }
        if spec.array.is_some() || spec.partition.is_none() || spec.log.is_some() {
            let what = format!(
                "{} is no name for a copy, which is a file, a block device or a partition",
                spec.shown()
            );
            return Err(Failure::new(Kind::Usage, what));
        }
        if format.is_some() {
            let what = format!("{} is a partition, and gets no format", spec.shown_as_typed());
            return Err(Failure::new(Kind::Usage, what).advise("leave `--format` off"));
        }
        Ok(Self::Partition(spec))
    }
}

/// A disk as a whole.
fn whole(image: ImageSpec) -> Result<ImageSpec, Failure> {
    if image.partition.is_some() {
        let what = format!("{} is about a whole disk, and not a partition", image.shown());
        return Err(Failure::new(Kind::Usage, what).advise("leave `?part=` off"));
    }
    Ok(image)
}

impl CreatePlan {
    fn from_typed(typed: CreateArgs) -> Result<Self, Failure> {
        let to_stdout = typed.image == "-";
        let image = match to_stdout {
            true => ImageSpec::plain(PathBuf::from("-")),
            false => whole(ImageSpec::parse(&typed.image)?)?,
        };
        if typed.compress.is_some() && !to_stdout {
            return Err(Failure::new(Kind::Usage, "`--compress` is for standard output")
                .advise("give `-` as the image, or leave it off"));
        }
        let definition = match (&typed.config, &typed.definitions) {
            (Some(file), _) => definition::toml::read(file).map_err(|error| no_definition(&error))?,
            (None, Some(dir)) => {
                let architecture = typed.architecture.as_deref();
                definition::repart::read(dir, typed.root.as_deref(), architecture)
                    .map_err(|error| no_definition(&error))?
            }
            (None, None) => DiskDefinition {
                partitions: typed.parts.iter().map(|part| parse_part(part)).collect::<Result<_, _>>()?,
                ..DiskDefinition::default()
            },
        };
        let scheme = match (typed.table, definition.table.as_deref()) {
            (Some(TableKind::Mbr), _) | (None, Some("mbr" | "dos")) => Scheme::Mbr,
            (Some(TableKind::Gpt), _) | (None, Some("gpt") | None) => Scheme::Gpt,
            (None, Some(other)) => {
                return Err(Failure::new(Kind::Usage, format!("{other:?} is no kind of partition table"))
                    .advise("there are gpt and mbr"));
            }
        };
        if definition.partitions.is_empty() {
            return Err(Failure::new(Kind::Usage, "the disk has no partitions")
                .advise("say which, as in root=ext4:2G:rootfs.tar, or name a file with --config"));
        }
        let size_bytes = typed.size.as_deref().map(mkfs::device_size).transpose()?.or(definition.size_bytes);
        let sector_bytes = typed.sector_size.or(definition.sector_bytes);
        if let Some(bytes) = sector_bytes.filter(|bytes| ![512, 4096].contains(bytes)) {
            return Err(Failure::new(Kind::Usage, format!("there are no sectors of {bytes} bytes"))
                .advise("a sector has 512 or 4096 bytes"));
        }
        Ok(Self {
            image,
            to_stdout,
            compress: typed.compress,
            format: typed.format.map(format_of_new),
            scheme,
            size_bytes,
            id: typed.id.or(definition.id),
            sector_bytes,
            seed: typed.seed,
            architecture: typed.architecture,
            partitions: PartitionPlan::all(definition.partitions, &typed.sources)?,
            force: typed.force,
            quiet: typed.quiet,
        })
    }
}

impl PartitionPlan {
    /// Options count for all partitions. What the definition of one says of its owner and its permissions comes before.
    fn all(definitions: Vec<PartitionDefinition>, typed: &SourceArgs) -> Result<Vec<Self>, Failure> {
        let of_all = sources_of_all(&definitions, typed)?;
        let planned = definitions.into_iter().zip(1..).map(|(definition, count)| {
            let how = sources_of(&definition, typed, &of_all).map_err(|failure| {
                let name =
                    definition.name.as_ref().map(|name| format!("partition \"{}\"", safe(name.as_bytes())));
                failure.of_part(&name.unwrap_or_else(|| format!("partition {count}")))
            })?;
            Ok(Self { definition, how })
        });
        planned.collect()
    }
}

/// How the sources of all partitions are read; options about files are refused where there are none.
fn sources_of_all(definitions: &[PartitionDefinition], typed: &SourceArgs) -> Result<SourcePlan, Failure> {
    let has_files = |of: &PartitionDefinition| !of.sources.is_empty() || !of.directories.is_empty();
    match sources::given(typed) {
        Some(option) if !definitions.iter().any(has_files) => {
            let what = format!("{option} needs a source of files, and no partition has one");
            Err(Failure::new(Kind::Usage, what)
                .advise("name them, as in root=ext4:2G:rootfs.tar, or leave it off"))
        }
        _ => {
            sources::note_rooted(typed);
            SourcePlan::of(typed)
        }
    }
}

/// How the sources of one partition are read: as all, but for what its definition says.
fn sources_of(
    definition: &PartitionDefinition,
    typed: &SourceArgs,
    of_all: &SourcePlan,
) -> Result<SourcePlan, Failure> {
    let PartitionDefinition { exclude, owner, mode, one_file_system, .. } = definition;
    let mut how = of_all.clone();
    let rules = Arc::make_mut(&mut how.rules);
    if let Some(owner) = owner {
        let (user, group) = sources::pair("owner", owner)?;
        (rules.owner, rules.group) = (Some(user), group.or(rules.group));
    }
    if let Some(changes) = mode {
        rules.mode = Some(sources::mode("mode", changes)?);
    }
    if !exclude.is_empty() {
        let patterns: Vec<_> =
            typed.exclude.iter().cloned().chain(exclude.iter().map(OsString::from)).collect();
        rules.left_out = sources::left_out(&patterns)?;
    }
    how.one_file_system |= one_file_system;
    Ok(how)
}

impl AddPlan {
    fn from_typed(typed: AddArgs) -> Result<Self, Failure> {
        let image = ImageSpec {
            write_while_in_use: typed.danger.write_while_in_use,
            ..whole(ImageSpec::parse(&typed.image)?)?
        };
        let mut partition = parse_part(&typed.part)?;
        partition.number = typed.number;
        partition.kind = typed.kind;
        let how = sources_of_all(std::slice::from_ref(&partition), &typed.sources)?;
        Ok(Self {
            image,
            partition: PartitionPlan { definition: partition, how },
            seed: typed.seed,
            architecture: typed.architecture,
        })
    }
}

fn no_definition(error: &DefinitionError) -> Failure {
    Failure::of(if error.is_unread { Kind::Host } else { Kind::Usage }, error)
}

/// `NAME=FORMAT:SIZE[:SOURCE]`, `NAME=raw:FILE`.
fn parse_part(typed: &OsStr) -> Result<PartitionDefinition, Failure> {
    let shown = safe(typed.as_bytes());
    let wrong = |what: &str| {
        Failure::new(Kind::Usage, format!("{shown}: {what}")).advise(
            "a partition is NAME=FORMAT:SIZE[:SOURCE], as in root=ext4:2G:rootfs.tar, or NAME=raw:FILE",
        )
    };
    let split = |bytes: &[u8], by: u8| -> Option<(Vec<u8>, Vec<u8>)> {
        let at = bytes.iter().position(|&byte| byte == by)?;
        Some((bytes[..at].to_vec(), bytes[at + 1..].to_vec()))
    };
    let (name, rest) = split(typed.as_bytes(), b'=').ok_or_else(|| wrong("there is no `=`"))?;
    let name = String::from_utf8(name).map_err(|_| wrong("the name is not UTF-8"))?;
    let (format, rest) = split(&rest, b':').unwrap_or((rest, Vec::new()));
    let mut part = PartitionDefinition {
        name: Some(name).filter(|name| !name.is_empty()),
        ..PartitionDefinition::default()
    };
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let format = String::from_utf8_lossy(&format).into_owned();
    if format == "raw" {
        let sized = split(&rest, b':').and_then(|(size, file)| {
            let size = SizeDefinition::parse(std::str::from_utf8(&size).ok()?).ok()?;
            Some((size, file))
        });
        let (size, file) = sized.unwrap_or((SizeDefinition::minimal(), rest));
        if file.is_empty() {
            return Err(wrong("there is no file"));
        }
        return Ok(PartitionDefinition { size, blocks: Some(path(&file)), ..part });
    }
    if format != "none" {
        part.format = Some(ContentFormat::named(&format).ok_or_else(|| {
            wrong(&format!(
                "{format:?} is no format: there are ext4, ext3, ext2, xfs, vfat, swap, raw and none"
            ))
        })?);
    }
    let (size, source) = split(&rest, b':').unwrap_or((rest, Vec::new()));
    let size = String::from_utf8_lossy(&size).into_owned();
    part.size = match &*size {
        "" if !source.is_empty() => SizeDefinition::minimal(),
        "" => return Err(wrong("there is no size")),
        size => SizeDefinition::parse(size).map_err(|what| wrong(&what))?,
    };
    if !source.is_empty() {
        if part.format.is_none_or(|format| format == ContentFormat::Swap) {
            return Err(wrong("there is no filesystem that files could be put into"));
        }
        part.sources.push(SourceDefinition { from: path(&source), to: None });
    }
    Ok(part)
}

/// The type of a partition: what is said, what its name says, or what its content asks for.
pub(crate) fn kind_of(
    part: &PartitionDefinition,
    scheme: Scheme,
    architecture: Option<&str>,
) -> Result<PartitionKind, Failure> {
    let named = |name: &str| match scheme {
        Scheme::Mbr => PartitionKind::mbr_named(name),
        _ => PartitionKind::gpt_named(name, architecture),
    };
    if let Some(said) = &part.kind {
        return named(said).ok_or_else(|| {
            let (names, architectures) = PartitionKind::names();
            let what = format!("there is no type {said:?}");
            let advice = format!(
                "name one of {}, with an architecture as in root-arm64 ({}), or a number",
                names.join(", "),
                architectures.join(", ")
            );
            Failure::new(Kind::Usage, what).advise(advice)
        });
    }
    let by_name = part.name.as_deref().filter(|name| is_word(name)).and_then(named);
    let by_content = match part.format {
        Some(ContentFormat::Swap) => "swap",
        Some(ContentFormat::Vfat) if scheme == Scheme::Mbr => "vfat",
        Some(ContentFormat::Vfat) => "msdata",
        _ => "linux-generic",
    };
    by_name
        .filter(|_| {
            scheme != Scheme::Mbr
                || part.format != Some(ContentFormat::Vfat)
                || part.name.as_deref() == Some("esp")
        })
        .or_else(|| named(by_content))
        .ok_or_else(|| Failure::new(Kind::Usage, "the partition has no type"))
}

/// A name that can be one of a type, and not a number.
fn is_word(name: &str) -> bool {
    name.len() > 2 && !name.starts_with("0x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read() {
        let part = |typed: &str| parse_part(OsStr::new(typed)).unwrap();
        let root = part("root=ext4:2G:a:b.tar");
        assert_eq!((root.name.as_deref(), root.format), (Some("root"), Some(ContentFormat::Ext4)));
        assert_eq!(root.size, SizeDefinition::fixed(2 << 30));
        assert_eq!(root.sources, [SourceDefinition { from: "a:b.tar".into(), to: None }]);
        assert_eq!(part("swap=swap:1G").format, Some(ContentFormat::Swap));
        let raw = part("boot=raw:a:b.img");
        assert_eq!((raw.blocks, raw.size.minimal), (Some("a:b.img".into()), true));
        let raw = part("boot=raw:4M:b.img");
        assert_eq!((raw.blocks, raw.size), (Some("b.img".into()), SizeDefinition::fixed(4 << 20)));
        assert_eq!(part("=none:1M").name, None);
        assert!(part("a=xfs::tree").size.minimal);
        for wrong in
            ["root", "a=ext5:1G", "a=ext4", "a=ext4:", "a=ext4:x", "a=raw:", "a=none:1M:b", "a=swap:1M:b"]
        {
            assert_eq!(parse_part(OsStr::new(wrong)).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
    }

    #[test]
    fn types_follow_from_names_and_content() {
        let kind = |typed: &str, scheme| {
            kind_of(&parse_part(OsStr::new(typed)).unwrap(), scheme, Some("arm64")).unwrap()
        };
        for (typed, name) in [
            ("root=ext4:1G", "root-arm64"),
            ("esp=vfat:1G", "esp"),
            ("boot=vfat:1G", "xbootldr"),
            ("things=ext4:1G", "linux-generic"),
            ("things=vfat:1G", "msdata"),
            ("paging=swap:1G", "swap"),
        ] {
            assert_eq!(kind(typed, Scheme::Gpt).short_name(), Some(name), "{typed}");
        }
        for (typed, number) in [
            ("root=ext4:1G", 0x83),
            ("esp=vfat:1G", 0xef),
            ("boot=vfat:1G", 0x0c),
            ("x=swap:1G", 0x82),
            ("ab=ext4:1G", 0x83),
        ] {
            assert_eq!(kind(typed, Scheme::Mbr), PartitionKind::Mbr(number), "{typed}");
        }
        let wrong = PartitionDefinition { kind: Some("rooot".to_owned()), ..PartitionDefinition::default() };
        assert!(kind_of(&wrong, Scheme::Gpt, None).unwrap_err().to_string().contains("arm64"));
    }
}
