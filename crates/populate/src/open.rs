//! Opening what a user names as a source, by what it is.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::archive::once;
use crate::oci::{
    As, Name, image_in_archive, image_in_layout, is_image_archive, is_image_layout, may_be_image_archive,
};
use crate::tar::{Archive, OpenArchive, RECORD_BYTES};
use crate::{
    ArchiveKind, Compression, DirectorySource, FileId, ImageOptions, LeftOut, Platform, Source, SourceError,
    SourceErrorKind, Stream, TarSource, archive_from, archive_in, decompressed, failure,
};

/// How much of a stream is looked at to see whether it may be an image.
const FIRST_BYTES: u64 = 256 << 10;

/// What is said of a source without a byte: what makes the archive has failed, as a rule.
const EMPTY: &str = "the archive is empty";

/// How sources are opened.
#[derive(Clone)]
pub struct OpenSource {
    /// Files that are no part of a directory: the image that is being made.
    pub not_these: Vec<FileId>,
    /// Paths that a directory does not even look at; see [`Rules::left_out`](crate::Rules::left_out).
    pub left_out: Option<LeftOut>,
    /// A directory's files are those of its own filesystem; see [`DirectorySource::within_one_file_system`].
    pub one_file_system: bool,
    /// Where a stream is kept that can be read only once.
    pub keep_in: PathBuf,
    /// Most bytes that may come out of a compressed source, or of a layer of an image.
    pub most_bytes: u64,
    /// Which of an image's platforms; that of this machine if there are several and none is said.
    pub platform: Option<Platform>,
    /// The source is read once and never rewound: a plain archive on a stream is then not kept.
    pub is_read_once: bool,
}

impl std::fmt::Debug for OpenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenSource").field("not_these", &self.not_these).finish_non_exhaustive()
    }
}

/// Opens a directory, a tar archive in a file, or an image of containers: an OCI layout, an archive of one, or what
/// `docker save` writes; `-` is an archive on standard input. An archive may be compressed, which its first bytes say.
///
/// What a source is, is seen by what is in it. A name may say it in front, as skopeo has it (`oci:`, `oci-archive:`,
/// `docker-archive:`), or `dir:` and `tar:` for what would be an image otherwise; behind a colon it may have the tag of an
/// image.
///
/// # Errors
/// There is nothing of this name that can be read.
pub fn open_source(typed: &Path, how: &OpenSource) -> Result<Box<dyn Source>, SourceError> {
    if typed == Path::new("-") {
        return on_stream("standard input", Box::new(io::stdin()), &Name::any(), how);
    }
    let name = Name::of(typed);
    let path = &*name.path;
    let shown = typed.display().to_string();
    let fail = |error| SourceError::new(&shown, SourceErrorKind::Io(error));
    // Without waiting for a pipe's other end when it is no pipe.
    let kind = std::fs::metadata(path).map_err(fail)?.file_type();
    if kind.is_dir() {
        return directory(&shown, &name, how);
    }
    if matches!(name.kind, As::Directory | As::Layout) {
        return Err(fail(io::ErrorKind::NotADirectory.into()));
    }
    let file = File::open(path).map_err(fail)?;
    if kind.is_fifo() || kind.is_char_device() {
        return on_stream(&shown, Box::new(file), &name, how);
    }
    if !kind.is_file() {
        let what = "it is neither a directory nor a file with an archive";
        return Err(SourceError::new(&shown, SourceErrorKind::Unsupported(what.into())));
    }
    let same = file.try_clone().map_err(fail)?;
    archive(&shown, archive_in(file), Some(same), &name, how)
}

/// A directory, or the layout in one.
fn directory(shown: &str, name: &Name, how: &OpenSource) -> Result<Box<dyn Source>, SourceError> {
    let is_layout = name.kind == As::Layout || (name.kind == As::Any && is_image_layout(&name.path));
    if is_layout {
        return image_in_layout(&name.path, shown, &options(name, how));
    }
    if !matches!(name.kind, As::Any | As::Directory) || name.reference.is_some() {
        return Err(no_image(shown));
    }
    let source = DirectorySource::open(&name.path, how.not_these.iter().copied())?;
    let source = source.leaving_out(how.left_out.clone());
    Ok(Box::new(source.within_one_file_system(how.one_file_system)))
}

fn options(name: &Name, how: &OpenSource) -> ImageOptions {
    ImageOptions {
        platform: how.platform.clone(),
        reference: name.reference.clone(),
        most_bytes: how.most_bytes,
    }
}

fn no_image(shown: &str) -> SourceError {
    SourceError::new(shown, SourceErrorKind::Refused("it is no image of containers".into()))
}

/// An archive on a stream. It is kept, unless it is to be read once and its first members are no image's.
fn on_stream(
    shown: &str,
    mut stream: Stream,
    name: &Name,
    how: &OpenSource,
) -> Result<Box<dyn Source>, SourceError> {
    if how.is_read_once && name.reference.is_none() && matches!(name.kind, As::Any | As::Tar) {
        let fail = |error| SourceError::new(shown, failure(error));
        stream = decompressed(stream, how.most_bytes).map_err(fail)?;
        let mut first = Vec::new();
        (&mut stream).take(FIRST_BYTES).read_to_end(&mut first).map_err(fail)?;
        if first.is_empty() {
            return Err(SourceError::new(shown, SourceErrorKind::Malformed(EMPTY.into())));
        }
        let begin = once(Box::new(Plain(Box::new(Cursor::new(first.clone())))));
        let is_plain =
            name.kind == As::Tar || begins_with_zeroes(&first) || !may_be_image_archive(shown, &begin);
        stream = Box::new(Cursor::new(first).chain(stream));
        if is_plain {
            return Ok(Box::new(TarSource::new(shown, once(Box::new(Plain(stream))))));
        }
    }
    archive(shown, archive_from(&mut stream, &how.keep_in, how.most_bytes), None, name, how)
}

/// Whether a stream has no members, and nothing to be kept for.
fn begins_with_zeroes(first: &[u8]) -> bool {
    first.iter().take(RECORD_BYTES).all(|&byte| byte == 0)
}

/// An archive of files or of an image. `file`: the file that it is in, all of it.
fn archive(
    shown: &str,
    open: io::Result<OpenArchive>,
    file: Option<File>,
    name: &Name,
    how: &OpenSource,
) -> Result<Box<dyn Source>, SourceError> {
    let fail = |error| SourceError::new(shown, failure(error));
    let (open, is_compressed) = plain(open.map_err(fail)?, how.most_bytes).map_err(fail)?;
    let kind = match name.kind {
        As::OciArchive => ArchiveKind::Oci,
        As::DockerArchive => ArchiveKind::Docker,
        As::Any if is_image_archive(shown, &open)? => ArchiveKind::Any,
        _ if name.reference.is_some() => return Err(no_image(shown)),
        _ => return Ok(Box::new(TarSource::new(shown, open))),
    };
    let file = match file.filter(|_| !is_compressed) {
        Some(file) => file,
        None => {
            let mut kept = tempfile::tempfile_in(&how.keep_in).map_err(fail)?;
            io::copy(&mut open().map_err(fail)?, &mut kept).map_err(fail)?;
            kept
        }
    };
    image_in_archive(file, kind, shown, &options(name, how))
}

/// An archive without its compression, and whether it has one.
fn plain(open: OpenArchive, most_bytes: u64) -> io::Result<(OpenArchive, bool)> {
    let mut first = Vec::new();
    open()?.take(16).read_to_end(&mut first)?;
    if first.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, EMPTY));
    }
    if Compression::recognised(&first).is_none() {
        // It may be compressed with something that is known by name only.
        decompressed(Box::new(open()?), most_bytes)?;
        return Ok((open, false));
    }
    let open: OpenArchive = Box::new(move || {
        let stream: Stream = Box::new(open()?);
        Ok(Box::new(Plain(decompressed(stream, most_bytes)?)))
    });
    Ok((open, true))
}

/// An archive that is a stream: what comes out of a compressed one, for example.
struct Plain(Stream);

impl Read for Plain {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Archive for Plain {}
