//! Paths of entries: below the root of what is filled, and never above it.

use std::fmt;

/// A path below the root: names separated by single slashes, none of them empty, `.` or `..`, without NUL bytes. The
/// root itself is the empty path. Names are bytes, not necessarily UTF-8.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryPath(Box<[u8]>);

/// Longest path in bytes. Linux takes 4096 at once, and trees may be deeper than that.
pub(crate) const PATH_MAX_BYTES: usize = 32 << 10;
/// Longest name in bytes, as Linux has it.
const NAME_MAX_BYTES: usize = 255;

/// As many bytes of a path are in a message.
pub(crate) const SHOWN_MAX_BYTES: usize = 200;

/// Why bytes are no path of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It leads upwards.
    #[error("the path has a \"..\" in it")]
    Upwards,
    /// It has a NUL byte.
    #[error("the path has a NUL byte in it")]
    Nul,
    /// It has too many bytes.
    #[error("the path has more than {PATH_MAX_BYTES} bytes")]
    PathTooLong,
    /// One of its names has too many bytes.
    #[error("the path has a name of more than {NAME_MAX_BYTES} bytes in it")]
    NameTooLong,
}

impl EntryPath {
    /// The root.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// From a path as archives have it: slashes in front, behind and twice in a row and names `.` are left out.
    ///
    /// # Errors
    /// A name `..`, a NUL byte, or more bytes than Linux allows.
    pub fn new(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        let mut path = Vec::with_capacity(bytes.len().min(PATH_MAX_BYTES));
        for name in bytes.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Err(PathError::Upwards),
                name if name.len() > NAME_MAX_BYTES => return Err(PathError::NameTooLong),
                name if path.len() + 1 + name.len() > PATH_MAX_BYTES => return Err(PathError::PathTooLong),
                name => {
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(name);
                }
            }
        }
        Ok(Self(path.into()))
    }

    /// The path of `name` in this directory.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        let mut path = Vec::with_capacity(self.0.len() + 1 + name.len());
        path.extend_from_slice(&self.0);
        path.push(b'/');
        path.extend_from_slice(name);
        Self::new(&path)
    }

    /// The bytes, without a slash in front.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The names from the root down.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// The bytes of the directory's path, and the last name; `None` for the root.
    #[must_use]
    pub fn split(&self) -> Option<(&[u8], &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => Some((&self.0[..slash], &self.0[slash + 1..])),
            None => Some((&[], &self.0)),
        }
    }
}

impl EntryPath {
    /// The path as messages have it, which cut a long one short.
    pub(crate) fn shown(&self) -> String {
        let shown = self.0.get(..SHOWN_MAX_BYTES).unwrap_or(&self.0);
        let rest = if shown.len() < self.0.len() { "…" } else { "" };
        format!("/{}{rest}", shown.escape_ascii())
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        for (typed, path) in [
            ("/", ""),
            ("", ""),
            (".", ""),
            ("./a", "a"),
            ("//a//./b/", "a/b"),
            ("a/...", "a/..."),
            ("..a", "..a"),
        ] {
            assert_eq!(EntryPath::new(typed.as_bytes()).unwrap().as_bytes(), path.as_bytes(), "{typed}");
        }
        for climbing in ["..", "a/..", "/../a", "a/../b"] {
            assert_eq!(EntryPath::new(climbing.as_bytes()), Err(PathError::Upwards));
        }
        assert_eq!(EntryPath::new(b"a\0b"), Err(PathError::Nul));
        assert_eq!(EntryPath::new(&[b'a'; 256]), Err(PathError::NameTooLong));
        assert_eq!(EntryPath::new(&b"a/".repeat(20_000)), Err(PathError::PathTooLong));
        assert!(EntryPath::new(&[b'a'; 255]).is_ok() && EntryPath::new(&b"a/".repeat(2048)).is_ok());
        let path = EntryPath::new(b"a/b").unwrap();
        assert_eq!(path.join(b"c").unwrap().split(), Some((&b"a/b"[..], &b"c"[..])));
        assert_eq!(EntryPath::new(b"a").unwrap().split(), Some((&b""[..], &b"a"[..])));
        assert_eq!(EntryPath::root().split(), None);
    }
}
