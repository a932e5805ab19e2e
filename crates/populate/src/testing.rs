//! For unit tests: a source in memory, and a filesystem in memory to fill.

use std::collections::VecDeque;
use std::sync::Arc;

use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Credentials, Follow, Node, Timestamp, Vfs, VfsOptions};

use crate::{Content, Entry, EntryKind, EntryPath, Metadata, Piece, Source, SourceError, Xattr};

/// A filesystem in memory.
pub(crate) fn memory() -> Arc<Vfs> {
    Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default())
}

/// What a path stands for, a link itself.
pub(crate) fn node(vfs: &Arc<Vfs>, path: &str) -> Arc<Node> {
    vfs.resolve(&Credentials::root(), path, Follow::NoFollow).unwrap()
}

/// An entry, owned by user 7 and group 8, with permissions 0640 and a time of its own.
pub(crate) fn entry(path: &str, kind: EntryKind) -> Entry {
    let modified = Timestamp { seconds: 1000 + path.len() as i64, nanoseconds: 5 };
    let metadata = Metadata { uid: 7, gid: 8, permissions: 0o640, modified, ..Metadata::default() };
    Entry { path: EntryPath::new(path.as_bytes()).unwrap(), kind, metadata }
}

/// A regular file of `len` bytes.
pub(crate) fn file(path: &str, len: u64) -> Entry {
    entry(path, EntryKind::Regular(Content::whole(len)))
}

/// An attribute.
pub(crate) fn xattr(name: &str, value: &[u8]) -> Xattr {
    Xattr { name: name.as_bytes().into(), value: value.into() }
}

/// Entries, with the bytes of regular files.
#[derive(Default)]
pub(crate) struct Given {
    entries: VecDeque<(Entry, Vec<u8>)>,
    content: Option<(Vec<u8>, usize)>,
}

impl Given {
    pub(crate) fn with(mut self, entry: Entry, content: &[u8]) -> Self {
        self.entries.push_back((entry, content.to_vec()));
        self
    }
}

impl Source for Given {
    fn name(&self) -> &str {
        "given"
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let Some((entry, content)) = self.entries.pop_front() else { return Ok(None) };
        self.content = Some((content, 0));
        Ok(Some(entry))
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        let Some((content, at)) = &mut self.content else { return Ok(None) };
        let len = buf.len().min(content.len() - *at);
        if len == 0 {
            return Ok(None);
        }
        buf[..len].copy_from_slice(&content[*at..*at + len]);
        let piece = Piece { offset: *at as u64, len };
        *at += len;
        Ok(Some(piece))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        Ok(())
    }
}
