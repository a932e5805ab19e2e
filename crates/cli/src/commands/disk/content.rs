//! What goes into a partition: filesystems with files, swap space, the bytes of a file.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Device, copy};
use undercroft_disk::Error;
use undercroft_disk::definition::{ContentFormat, SourceDefinition};
use undercroft_disk::fat::{FatOptions, make_fat};
use undercroft_disk::sources::{Below, Directories, OneFile};
use undercroft_disk::swap::make_swap;
use undercroft_diskfs::mkfs::MkfsError;
use undercroft_ext4 as ext4;
use undercroft_populate::{DirectorySource, EntryPath, FileId, Ruled, Source, SourceError, open_source};
use undercroft_vfs::Timestamp;
use undercroft_xfs as xfs;

use super::parts::Part;
use crate::commands::mkfs::fill::{FillFailure, Filling, kind};
use crate::commands::mkfs::size::{fix_blocks, least_bytes, with_advice};
use crate::commands::mkfs::{is_only_small, make_on};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, OpenArray};
use crate::plan::{ImageSpec, NewFormat};
use crate::text::bar::Bar;
use crate::text::names::safe;

/// Bytes of the labels of ext2, ext3 and ext4, XFS, swap space and FAT.
const LABEL_BYTES: [(ContentFormat, usize); 6] = [
    (ContentFormat::Ext2, 16),
    (ContentFormat::Ext3, 16),
    (ContentFormat::Ext4, 16),
    (ContentFormat::Xfs, 12),
    (ContentFormat::Swap, 16),
    (ContentFormat::Vfat, 11),
];

/// How much of a partition is zeroed at either end where it may hold something else.
const ENDS_BYTES: u64 = 1 << 20;

/// Makes the content of a partition on a device, which reads as zeroes if `is_zeroed`. It lies at `start_bytes` of its disk.
pub(super) fn make(
    part: &Part<'_>,
    device: &Device,
    start_bytes: u64,
    is_zeroed: bool,
) -> Result<(), Failure> {
    if !is_zeroed {
        forget_old(part, device)?;
    }
    if let Some(blocks) = &part.definition.blocks {
        return copy_blocks(part, blocks, device, is_zeroed);
    }
    match part.definition.format {
        None => Ok(()),
        Some(ContentFormat::Swap) => make_swap(&**device, &label(part).unwrap_or_default(), part.content_id)
            .map_err(|error| failure(part, &error)),
        Some(ContentFormat::Vfat) => {
            if !is_zeroed {
                let zeroed = device.write_zeroes(0, device.size_bytes());
                zeroed.map_err(|error| failure(part, &error.into()))?;
            }
            let [a, b, c, d, ..] = *part.content_id.as_bytes();
            let options = FatOptions {
                label: label(part),
                volume_id: u32::from_be_bytes([a, b, c, d]),
                time: part.time,
                start_bytes,
            };
            make_fat(&**device, &mut sources(part)?, &options).map_err(|error| failure(part, &error))
        }
        Some(format) => make_filesystem(part, format, device, is_zeroed),
    }
}

/// The label that is said, or the partition's name where that can be one.
fn label(part: &Part<'_>) -> Option<String> {
    let format = part.definition.format?;
    let most = LABEL_BYTES.iter().find(|(known, _)| *known == format).map_or(0, |&(_, most)| most);
    let is_fit = |name: &&String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        name.len() <= most && (format != ContentFormat::Vfat || name.bytes().all(is_plain))
    };
    part.definition.label.clone().or_else(|| part.definition.name.as_ref().filter(is_fit).cloned())
}

/// What older content is found by lies at the ends of a device.
fn forget_old(part: &Part<'_>, device: &Device) -> Result<(), Failure> {
    let size = device.size_bytes();
    let len = ENDS_BYTES.min(size);
    let zeroed = device.write_zeroes(0, len).and_then(|()| device.write_zeroes(size - len, len));
    zeroed.map_err(|error| failure(part, &error.into()))
}

/// The file whose bytes a partition gets: all of it, whatever it holds, unless a part of it is named.
pub(super) fn open_blocks(blocks: &Path) -> Result<(Device, Option<OpenArray>), Failure> {
    let spec = ImageSpec::parse(blocks.as_os_str())?;
    if spec.array.is_none() {
        let found = std::fs::metadata(&spec.path);
        found.map_err(|error| Failure::host(spec.shown(), &error))?;
    }
    image::open_whole(&spec)
}

fn copy_blocks(part: &Part<'_>, blocks: &Path, device: &Device, is_zeroed: bool) -> Result<(), Failure> {
    let (from, _array) = open_blocks(blocks)?;
    let bar = Bar::new();
    let all = from.size_bytes();
    let copied = copy(&*from, &**device, is_zeroed, &mut |at| bar.show("copying", at, all));
    copied.map_err(|error| failure(part, &error.into()))?;
    if !is_zeroed {
        let zeroed = device.write_zeroes(all, device.size_bytes() - all);
        zeroed.map_err(|error| failure(part, &error.into()))?;
    }
    Ok(())
}

/// How a filesystem is made: by the same arguments and at the same time always the same, whatever the machine's mke2fs.conf
/// says.
fn options_of(part: &Part<'_>, format: ContentFormat) -> Result<NewFormat, Failure> {
    let label = label(part).unwrap_or_default().into_bytes();
    let time = Some(time_of(part));
    let family = match format {
        ContentFormat::Xfs => {
            let uuid = Some(part.content_id);
            let options = xfs::MkfsOptions { label, uuid, time, ..xfs::MkfsOptions::default() };
            return Ok(NewFormat::Xfs(options));
        }
        ContentFormat::Ext2 => ext4::Family::Ext2,
        ContentFormat::Ext3 => ext4::Family::Ext3,
        _ => ext4::Family::Ext4,
    };
    let mut options = NewFormat::Ext(ext4::MkfsOptions {
        label,
        uuid: Some(part.content_id),
        hash_seed: Some(part.hash_seed),
        time,
        ..ext4::MkfsOptions::new(family)
    });
    if part.definition.size.minimal {
        fix_blocks(&mut options)?;
    }
    Ok(options)
}

fn time_of(part: &Part<'_>) -> Timestamp {
    Timestamp { seconds: part.time, nanoseconds: 0 }
}

fn make_filesystem(
    part: &Part<'_>,
    format: ContentFormat,
    device: &Device,
    is_zeroed: bool,
) -> Result<(), Failure> {
    let options = options_of(part, format)?;
    if let NewFormat::Xfs(xfs) = &options
        && let Err(error @ MkfsError::Refused(_)) = xfs::plan_mkfs(&**device, xfs)
        && is_only_small(&**device, xfs)
    {
        return Err(part
            .failed(Kind::of_mkfs(&error), &error)
            .advise("make the partition larger, or its format ext4"));
    }
    let sources = sources(part)?;
    if sources.is_empty() {
        return make_on(&**device, options, is_zeroed)
            .map(drop)
            .map_err(|failure| failure.of_part(&part.shown));
    }
    let made = Filling::of(sources, part.how, time_of(part), false).make(device, &options, is_zeroed);
    made.map(drop).map_err(|failure| fill_failure(part, failure))
}

/// The least size of a filesystem with its files.
pub(super) fn least_filesystem(part: &Part<'_>, format: ContentFormat) -> Result<u64, Failure> {
    if matches!(format, ContentFormat::Ext2 | ContentFormat::Ext3) {
        return Err(part
            .failed(Kind::Unsupported, &"least sizes are found for ext4, xfs, vfat and raw")
            .advise("say how large it is to be"));
    }
    let mut filling = Filling::of(sources(part)?, part.how, time_of(part), false);
    let least = least_bytes(&options_of(part, format)?, &mut filling);
    least.map_err(|failure| {
        with_advice(failure.of_part(&part.shown), "set TMPDIR to a directory with more room")
    })
}

/// Everything that is put into a partition, in order. Directories that are to be there come first: what sources say of them
/// counts.
pub(super) fn sources(part: &Part<'_>) -> Result<Vec<Box<dyn Source>>, Failure> {
    let mut all: Vec<Box<dyn Source>> = Vec::new();
    let entry_path = |path: &str| {
        EntryPath::new(path.as_bytes()).map_err(|error| part.failed(Kind::Usage, &format!("{path}: {error}")))
    };
    if !part.definition.directories.is_empty() {
        let paths = part.definition.directories.iter().map(|path| entry_path(path));
        let time = Timestamp { seconds: part.time, nanoseconds: 0 };
        let directories = Directories::new(paths.collect::<Result<_, _>>()?, time);
        all.push(Box::new(Ruled::new(Box::new(directories), part.how.changes())));
    }
    for SourceDefinition { from, to } in &part.definition.sources {
        let to = to.as_deref().map(&entry_path).transpose()?;
        all.push(open(part, from, to)?);
    }
    Ok(all)
}

/// Refuses sources that can be read only once, for what reads them twice.
pub(super) fn refuse_streams(part: &Part<'_>) -> Result<(), Failure> {
    let is_stream = |from: &Path| {
        from == Path::new("-")
            || std::fs::metadata(from).is_ok_and(|found| !found.is_file() && !found.is_dir())
    };
    let mut whole = part.definition.sources.iter().filter(|source| source.to.is_none());
    let Some(source) = whole.find(|source| is_stream(&source.from)) else { return Ok(()) };
    let what = format!(
        "{} can be read only once, and the partition's size is found by reading it before",
        safe(source.from.as_os_str().as_bytes())
    );
    Err(part
        .failed(Kind::Usage, &what)
        .advise("say how large the partition is to be, or put the archive into a file"))
}

/// A source: what its name stands for with `mkfs --from`, unless it has a place of its own.
fn open(part: &Part<'_>, from: &Path, to: Option<EntryPath>) -> Result<Box<dyn Source>, Failure> {
    let failed = |error: SourceError| part.failed(kind(&error.kind), &error);
    let Some(to) = to else {
        let how = part.how.opening(part.not_these.clone(), std::env::temp_dir());
        let source = open_source(from, &how).map_err(failed)?;
        return Ok(Box::new(Ruled::new(source, Arc::clone(&part.how.rules))));
    };
    let found = std::fs::metadata(from);
    let found = found.map_err(|error| Failure::host(safe(from.as_os_str().as_bytes()), &error))?;
    if !found.is_dir() {
        if part.not_these.contains(&FileId::of(&found)) {
            let what = format!("{} is the disk itself", safe(from.as_os_str().as_bytes()));
            return Err(part.failed(Kind::Usage, &what));
        }
        // A file that is named with its place is that file, and no archive.
        return Ok(Box::new(Ruled::new(Box::new(OneFile::new(from, to)), part.how.changes())));
    }
    let source = DirectorySource::open(from, part.not_these.iter().copied()).map_err(failed)?;
    // Patterns are about its own paths, wherever it goes.
    let source = source.leaving_out(part.how.rules.left_out.clone());
    let source = Box::new(source.within_one_file_system(part.how.one_file_system));
    let source = if to.is_root() { source as Box<dyn Source> } else { Box::new(Below::new(to, source)) };
    Ok(Box::new(Ruled::new(source, part.how.changes())))
}

/// A failure of a part of a disk.
pub(super) fn failure(part: &Part<'_>, error: &Error) -> Failure {
    let kind = match error {
        Error::Device(_) => Kind::Io,
        Error::Source(error) => self::kind(&error.kind),
        Error::Refused(_) => Kind::Host,
    };
    part.failed(kind, error)
}

fn fill_failure(part: &Part<'_>, failure: FillFailure) -> Failure {
    match failure {
        FillFailure::NoSpace => part
            .failed(Kind::Host, &"its files need more space, or more inodes, than it has")
            .advise("make the partition larger"),
        FillFailure::Other(failure) => failure.of_part(&part.shown),
    }
}
