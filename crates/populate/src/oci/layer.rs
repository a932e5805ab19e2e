//! A layer of an image: a tar, mostly compressed, in a blob.

use std::cell::Cell;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::blob::{Blob, Identity};
use super::documents;
use super::layout::{self, Layout};
use crate::layers::{Layer, LayerSource};
use crate::tar::{Archive, TarSource};
use crate::verify::{Digest, Mismatch, Verified};
use crate::{Compression, Entry, Piece, Source, SourceError, SourceErrorKind, Stream, decompressed, failure};

/// What becomes true once all was read and has its digest.
type Right = Vec<Arc<AtomicBool>>;

/// Which blob a layer is, and what it must be.
#[derive(Clone, Debug)]
pub(super) struct Unpacked {
    pub(super) path: String,
    /// The digest of the blob, and its size in bytes, where they are known.
    pub(super) digest: Option<Digest>,
    pub(super) size: Option<u64>,
    /// The digest of what is in it.
    pub(super) diff_id: Digest,
}

/// A layer of a layout.
pub(super) struct BlobLayer {
    layout: Layout,
    of: Unpacked,
    most_bytes: u64,
    /// The file as it was when it was verified.
    identity: OnceLock<Identity>,
}

impl BlobLayer {
    /// The layer `of` a layout; no more than `most_bytes` may come out of its decompression.
    pub(super) fn new(layout: Layout, of: Unpacked, most_bytes: u64) -> Self {
        Self { layout, of, most_bytes, identity: OnceLock::new() }
    }

    fn blob(&self) -> Result<Blob, SourceErrorKind> {
        let blob = self.layout.store.open(&self.of.path)?.ok_or_else(layout::missing)?;
        if let Some(size) = self.of.size.filter(|&size| size != blob.len()) {
            return Err(documents::wrong_size(&blob, size));
        }
        let identity = blob.identity().map_err(SourceErrorKind::Io)?;
        if *self.identity.get_or_init(|| identity) != identity {
            return Err(SourceErrorKind::Malformed("it was changed while it was read".into()));
        }
        Ok(blob)
    }

    /// What is in the blob, compared with the digests.
    fn verified(&self, blob: &Blob) -> io::Result<(Box<dyn Archive>, Right)> {
        let mut right = Vec::new();
        let mut stream = blob.stream();
        if let Some(digest) = &self.of.digest {
            let (verified, is_right) = Verified::new(stream, "it", digest.clone());
            stream = Box::new(verified);
            right.push(is_right);
        }
        let stream = decompressed(stream, self.most_bytes)?;
        let (stream, is_right) = Verified::new(stream, "what is in it", self.of.diff_id.clone());
        right.push(is_right);
        Ok((Box::new(Whole(Box::new(stream))), right))
    }

    /// What is in the blob, where it was verified.
    fn again(&self, blob: &Blob) -> io::Result<Box<dyn Archive>> {
        let mut first = Vec::new();
        blob.stream().take(16).read_to_end(&mut first)?;
        if Compression::recognised(&first).is_none() {
            return Ok(blob.archive());
        }
        Ok(Box::new(Whole(decompressed(blob.stream(), self.most_bytes)?)))
    }
}

impl Layer for BlobLayer {
    fn open(&self, verified: bool) -> Result<Box<dyn LayerSource>, SourceError> {
        let failed = |kind| self.layout.failed(&self.of.path, kind);
        let blob = self.blob().map_err(failed)?;
        let suspect = verified.then(|| Suspect {
            blob: blob.clone(),
            of: self.of.clone(),
            most_bytes: self.most_bytes,
        });
        let opened =
            if verified { self.verified(&blob) } else { self.again(&blob).map(|again| (again, Vec::new())) };
        let (archive, right) = opened.map_err(|error| {
            failed(suspect.as_ref().and_then(Suspect::mismatch).unwrap_or_else(|| failure(error)))
        })?;
        let shown = format!("{}: {}", self.layout.shown, self.of.path);
        // It is read once.
        let archive = Cell::new(Some(archive));
        let open = move || archive.take().ok_or_else(|| io::Error::other("a layer is read once"));
        Ok(Box::new(Opened { source: TarSource::new(shown, Box::new(open)), right, suspect }))
    }
}

/// A stream as an archive.
struct Whole(Stream);

impl Read for Whole {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Archive for Whole {}

/// A blob that may be another one than its digest names: then no other fault of it says anything.
struct Suspect {
    blob: Blob,
    of: Unpacked,
    most_bytes: u64,
}

impl Suspect {
    /// That it has another digest, if it has; all of it is read.
    fn mismatch(&self) -> Option<SourceErrorKind> {
        let all = match &self.of.digest {
            Some(digest) => Ok((self.blob.stream(), "it", digest)),
            None => decompressed(self.blob.stream(), self.most_bytes)
                .map(|stream| (stream, "what is in it", &self.of.diff_id)),
        };
        let read = all.and_then(|(stream, what, digest)| {
            let (mut verified, _) = Verified::new(stream, what, digest.clone());
            io::copy(&mut verified, &mut io::sink())
        });
        let error = read.err()?;
        let is_mismatch = matches!(error.get_ref(), Some(cause) if cause.is::<Mismatch>());
        is_mismatch.then(|| failure(error))
    }
}

/// A layer that is being read.
struct Opened {
    source: TarSource,
    right: Right,
    /// While it is read for the first time.
    suspect: Option<Suspect>,
}

impl Opened {
    /// The first reason of a failure.
    fn reason(&self, error: SourceError) -> SourceError {
        match self.suspect.as_ref().and_then(Suspect::mismatch) {
            Some(mismatch) => SourceError::new(self.source.name(), mismatch),
            None => error,
        }
    }
}

impl Source for Opened {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        self.source.next_entry().map_err(|error| self.reason(error))
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        self.source.read_content(buf).map_err(|error| self.reason(error))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.source.rewind()
    }
}

impl LayerSource for Opened {
    fn finish(&mut self) -> Result<(), SourceError> {
        self.source.drain().map_err(|error| self.reason(error))?;
        if self.right.iter().all(|right| right.load(Ordering::Acquire)) {
            return Ok(());
        }
        let what = "there is more in it than what was compressed".into();
        Err(SourceError::new(self.source.name(), SourceErrorKind::Malformed(what)))
    }
}
