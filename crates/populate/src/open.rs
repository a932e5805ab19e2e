//! Opening what a user names as a source, by what it is.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::tar::{Archive, OpenArchive};
use crate::{
    Compression, DirectorySource, FileId, LeftOut, Source, SourceError, SourceErrorKind, Stream, TarSource,
    archive_from, archive_in, decompressed, failure,
};

/// How sources are opened.
#[derive(Clone)]
pub struct OpenSource {
    /// Files that are no part of a directory: the image that is being made.
    pub not_these: Vec<FileId>,
    /// Paths that a directory does not even look at; see [`Rules::left_out`](crate::Rules::left_out).
    pub left_out: Option<LeftOut>,
    /// Where a stream is kept that can be read only once.
    pub keep_in: PathBuf,
    /// Most bytes that may come out of a compressed source.
    pub most_bytes: u64,
}

impl std::fmt::Debug for OpenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenSource").field("not_these", &self.not_these).finish_non_exhaustive()
    }
}

/// Opens a directory, or a tar archive in a file; `-` is an archive on standard input. An archive may be compressed, which
/// its first bytes say.
///
/// # Errors
/// There is nothing of this name that can be read.
pub fn open_source(path: &Path, how: &OpenSource) -> Result<Box<dyn Source>, SourceError> {
    if path == Path::new("-") {
        let open = archive_from(&mut io::stdin().lock(), &how.keep_in, how.most_bytes);
        return archive("standard input", open, how);
    }
    let shown = path.display().to_string();
    let fail = |error| SourceError::new(&shown, SourceErrorKind::Io(error));
    // Without waiting for a pipe's other end when it is no pipe.
    let kind = std::fs::metadata(path).map_err(fail)?.file_type();
    if kind.is_dir() {
        let source = DirectorySource::open(path, how.not_these.iter().copied())?;
        return Ok(Box::new(source.leaving_out(how.left_out.clone())));
    }
    let mut file = File::open(path).map_err(fail)?;
    let open = if kind.is_fifo() || kind.is_char_device() {
        archive_from(&mut file, &how.keep_in, how.most_bytes)
    } else if kind.is_file() {
        archive_in(file)
    } else {
        let what = "it is neither a directory nor a file with an archive";
        return Err(SourceError::new(&shown, SourceErrorKind::Unsupported(what.into())));
    };
    archive(&shown, open, how)
}

/// A tar archive, whether it is compressed or not.
fn archive(
    shown: &str,
    open: io::Result<OpenArchive>,
    how: &OpenSource,
) -> Result<Box<dyn Source>, SourceError> {
    let fail = |error| SourceError::new(shown, failure(error));
    let open = open.map_err(fail)?;
    let mut first = [0; 16];
    let mut beginning = open().map_err(fail)?;
    let mut len = 0;
    while len < first.len() {
        match beginning.read(&mut first[len..]).map_err(fail)? {
            0 => break,
            more => len += more,
        }
    }
    if Compression::recognised(&first[..len]).is_none() {
        // It may be compressed with something that is known by name only.
        decompressed(open().map(|archive| Box::new(archive) as Stream).map_err(fail)?, how.most_bytes)
            .map_err(|error| SourceError::new(shown, failure(error)))?;
        return Ok(Box::new(TarSource::new(shown, open)));
    }
    let most_bytes = how.most_bytes;
    let open: OpenArchive = Box::new(move || {
        let stream: Stream = Box::new(open()?);
        Ok(Box::new(Plain(decompressed(stream, most_bytes)?)))
    });
    Ok(Box::new(TarSource::new(shown, open)))
}

/// What comes out of a compressed archive.
struct Plain(Stream);

impl Read for Plain {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Archive for Plain {}
