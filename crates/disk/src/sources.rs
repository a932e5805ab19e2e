//! Sources of files beside directories and archives: one that is put below a directory, single files, and directories that
//! are to be there.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use undercroft_populate::{
    Content, Entry, EntryKind, EntryPath, Metadata, Piece, Source, SourceError, SourceErrorKind,
};
use undercroft_vfs::Timestamp;

/// A source whose root is put below a directory.
pub struct Below {
    base: EntryPath,
    source: Box<dyn Source>,
}

impl Below {
    /// What `source` gives, at `base`.
    #[must_use]
    pub fn new(base: EntryPath, source: Box<dyn Source>) -> Self {
        Self { base, source }
    }

    fn moved(&self, path: &EntryPath) -> Result<EntryPath, SourceError> {
        self.base.join(path.as_bytes()).map_err(|error| refused(self.name(), &error))
    }
}

fn refused(name: &str, error: &dyn std::fmt::Display) -> SourceError {
    SourceError::new(name, SourceErrorKind::Refused(error.to_string()))
}

impl Source for Below {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let Some(mut entry) = self.source.next_entry()? else { return Ok(None) };
        entry.path = self.moved(&entry.path)?;
        if let EntryKind::HardLink(to) = &entry.kind {
            entry.kind = EntryKind::HardLink(self.moved(to)?);
        }
        Ok(Some(entry))
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        self.source.read_content(buf)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.source.rewind()
    }
}

/// One file of this machine, under another name. Its owner, mode and time are the file's.
pub struct OneFile {
    shown: String,
    from: PathBuf,
    to: EntryPath,
    is_given: bool,
    open: Option<(File, u64, u64)>,
}

impl OneFile {
    /// The file `from`, as `to`.
    #[must_use]
    pub fn new(from: &Path, to: EntryPath) -> Self {
        let shown = from.display().to_string();
        Self { shown, from: from.to_owned(), to, is_given: false, open: None }
    }

    fn failed(&self, error: std::io::Error) -> SourceError {
        SourceError::new(&self.shown, SourceErrorKind::Io(error))
    }
}

impl Source for OneFile {
    fn name(&self) -> &str {
        &self.shown
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        if std::mem::replace(&mut self.is_given, true) {
            return Ok(None);
        }
        let file = File::open(&self.from).map_err(|error| self.failed(error))?;
        let found = file.metadata().map_err(|error| self.failed(error))?;
        if !found.is_file() {
            let what = "it is neither a directory nor a regular file".to_owned();
            return Err(SourceError::new(&self.shown, SourceErrorKind::Unsupported(what)));
        }
        let metadata = Metadata {
            uid: found.uid(),
            gid: found.gid(),
            permissions: (found.mode() & 0o7777) as u16,
            modified: Timestamp { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 },
            ..Metadata::default()
        };
        self.open = Some((file, 0, found.len()));
        let kind = EntryKind::Regular(Content::whole(found.len()));
        Ok(Some(Entry { path: self.to.clone(), kind, metadata }))
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        let Some((file, at, size)) = &mut self.open else { return Ok(None) };
        let wanted = (*size - *at).min(buf.len() as u64) as usize;
        let mut len = 0;
        while len < wanted {
            match file.read(&mut buf[len..wanted]) {
                Ok(0) => {
                    let what = "it became shorter while it was read".to_owned();
                    return Err(SourceError::new(&self.shown, SourceErrorKind::Malformed(what)));
                }
                Ok(read) => len += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SourceError::new(&self.shown, SourceErrorKind::Io(error))),
            }
        }
        let offset = *at;
        *at += len as u64;
        Ok((len > 0).then_some(Piece { offset, len }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        (self.is_given, self.open) = (false, None);
        Ok(())
    }
}

/// Directories of root that everybody may look into.
pub struct Directories {
    paths: Vec<EntryPath>,
    modified: Timestamp,
    at: usize,
}

impl Directories {
    /// Directories of these paths and of this time.
    #[must_use]
    pub fn new(paths: Vec<EntryPath>, modified: Timestamp) -> Self {
        Self { paths, modified, at: 0 }
    }
}

impl Source for Directories {
    fn name(&self) -> &str {
        "directories"
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let Some(path) = self.paths.get(self.at) else { return Ok(None) };
        self.at += 1;
        let metadata = Metadata { permissions: 0o755, modified: self.modified, ..Metadata::default() };
        Ok(Some(Entry { path: path.clone(), kind: EntryKind::Directory, metadata }))
    }

    fn read_content(&mut self, _buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        Ok(None)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.at = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn sources_are_put_below_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "content").unwrap();
        let one = OneFile::new(&file, EntryPath::new(b"x/y").unwrap());
        let mut below = Below::new(EntryPath::new(b"/top").unwrap(), Box::new(one));
        for _ in 0..2 {
            let entry = below.next_entry().unwrap().unwrap();
            assert_eq!(
                (entry.path.as_bytes(), entry.metadata.uid),
                (&b"top/x/y"[..], fs::metadata(&file).unwrap().uid())
            );
            assert_eq!(entry.kind, EntryKind::Regular(Content::whole(7)));
            let mut buf = [0; 5];
            let pieces: Vec<Piece> = std::iter::from_fn(|| below.read_content(&mut buf).unwrap()).collect();
            assert_eq!(pieces, [Piece { offset: 0, len: 5 }, Piece { offset: 5, len: 2 }]);
            assert!(below.next_entry().unwrap().is_none());
            below.rewind().unwrap();
        }
        let mut missing = OneFile::new(&dir.path().join("none"), EntryPath::root());
        assert!(missing.next_entry().is_err());
        let time = Timestamp { seconds: 7, nanoseconds: 0 };
        let mut directories = Directories::new(vec![EntryPath::new(b"a/b").unwrap()], time);
        assert_eq!(directories.next_entry().unwrap().unwrap().metadata.permissions, 0o755);
        assert!(directories.next_entry().unwrap().is_none());
    }
}
