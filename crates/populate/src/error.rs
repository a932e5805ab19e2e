//! Why a filesystem could not be filled, and where.

use std::fmt;
use std::io;

use undercroft_vfs as vfs;

use crate::EntryPath;
use crate::path::SHOWN_MAX_BYTES;

/// Why a filesystem could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source cannot be read, or cannot be what it says.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The filesystem refused an entry.
    #[error("{}{}: {error}", prefix(.source_name.as_deref()), .path.shown())]
    Filesystem {
        /// The source that it is of, where that is known.
        source_name: Option<String>,
        /// The entry.
        path: EntryPath,
        /// Why.
        error: vfs::Error,
    },
    /// The source says something that cannot be in this filesystem.
    #[error("{}{}: {what}", prefix(.source_name.as_deref()), .path.shown())]
    Entry {
        /// The source that it is of, where that is known.
        source_name: Option<String>,
        /// The entry.
        path: EntryPath,
        /// Why not.
        what: String,
    },
    /// The thread that reads the sources ended without an answer.
    #[error("reading the sources ended too early")]
    Reader,
}

impl Error {
    pub(crate) const fn filesystem(path: EntryPath, error: vfs::Error) -> Self {
        Self::Filesystem { source_name: None, path, error }
    }

    pub(crate) const fn entry(path: EntryPath, what: String) -> Self {
        Self::Entry { source_name: None, path, what }
    }

    /// The same of an entry of this source.
    pub(crate) fn of_source(mut self, name: &str) -> Self {
        if let Self::Filesystem { source_name, .. } | Self::Entry { source_name, .. } = &mut self {
            *source_name = Some(name.to_owned());
        }
        self
    }
}

fn prefix(source_name: Option<&str>) -> String {
    source_name.map_or_else(String::new, |name| format!("{name}: "))
}

/// What is wrong with a source, and where.
#[derive(Debug, thiserror::Error)]
pub struct SourceError {
    /// The source as the user named it.
    pub source_name: String,
    /// The member or path within it, in its own bytes.
    pub member: Option<Box<[u8]>>,
    /// The byte of the source at which it is wrong, where that says more.
    pub offset: Option<u64>,
    /// What is wrong.
    pub kind: SourceErrorKind,
}

/// What is wrong with a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceErrorKind {
    /// The system refused.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// It is damaged, or contradicts itself.
    #[error("{0}")]
    Malformed(String),
    /// It has something that is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// It has more than was allowed.
    #[error("{0}")]
    TooLarge(String),
    /// It asks for something that is never done: a path that leads upwards, a link through a link.
    #[error("{0}")]
    Refused(String),
}

impl SourceError {
    /// A failure of a source as a whole.
    #[must_use]
    pub fn new(source_name: impl Into<String>, kind: SourceErrorKind) -> Self {
        Self { source_name: source_name.into(), member: None, offset: None, kind }
    }

    /// The same, at a member.
    #[must_use]
    pub fn at_member(self, member: &[u8]) -> Self {
        Self { member: Some(member.into()), ..self }
    }

    /// The same, at a byte.
    #[must_use]
    pub fn at_byte(self, offset: u64) -> Self {
        Self { offset: Some(offset), ..self }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source_name)?;
        if let Some(member) = &self.member {
            let shown = member.get(..SHOWN_MAX_BYTES).unwrap_or(member);
            let rest = if shown.len() < member.len() { "…" } else { "" };
            write!(f, ": {}{rest}", String::from_utf8_lossy(shown).escape_debug())?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.kind)
    }
}
