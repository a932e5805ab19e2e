//! Names by which a layer says that something of lower layers is gone.
//!
//! Format: OCI image specification 1.1, "Image Layer Filesystem Changeset", "Whiteouts".

use crate::EntryPath;

/// In front of the name of what is gone.
const PREFIX: &[u8] = b".wh.";
/// In front of the names that AUFS keeps for itself; but for one they say nothing about files.
const OF_AUFS: &[u8] = b".wh..wh.";
/// The name by which everything in a directory is gone.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What a path says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark<'a> {
    /// It is that of a file, with its directory and its name; the root has no name.
    File(&'a [u8], &'a [u8]),
    /// What has this name in this directory is gone.
    Whiteout(&'a [u8], &'a [u8]),
    /// What is in this directory is gone.
    Opaque(&'a [u8]),
    /// Nothing.
    Nothing,
    /// Something that cannot be.
    Wrong(&'static str),
}

impl<'a> Mark<'a> {
    pub(super) fn of(path: &'a EntryPath) -> Self {
        let Some((dir, name)) = path.split() else { return Self::File(b"", b"") };
        let mut above = dir.split(|&byte| byte == b'/');
        if let Some(marked) = above.find(|name| name.starts_with(PREFIX)) {
            let is_of_aufs = marked.starts_with(OF_AUFS);
            return if is_of_aufs { Self::Nothing } else { Self::Wrong("it lies below a whiteout") };
        }
        if name == OPAQUE {
            return Self::Opaque(dir);
        }
        if name.starts_with(OF_AUFS) {
            return Self::Nothing;
        }
        match name.strip_prefix(PREFIX) {
            None => Self::File(dir, name),
            Some(b"") => Self::Wrong("it is a whiteout of no name"),
            Some(b"." | b"..") => Self::Wrong("it is a whiteout of a name that leads elsewhere"),
            Some(name) => Self::Whiteout(dir, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_gone() {
        for (path, says) in [
            ("", Mark::File(b"", b"")),
            ("a/b", Mark::File(b"a", b"b")),
            ("a/.wh.b", Mark::Whiteout(b"a", b"b")),
            (".wh.b", Mark::Whiteout(b"", b"b")),
            ("a/.wh..wh..opq", Mark::Opaque(b"a")),
            (".wh..wh..opq", Mark::Opaque(b"")),
            (".wh..wh.plnk/1.2", Mark::Nothing),
            (".wh..wh.aufs", Mark::Nothing),
            ("a/.wh", Mark::File(b"a", b".wh")),
            ("a/.wh..b", Mark::Whiteout(b"a", b".b")),
        ] {
            assert_eq!(Mark::of(&EntryPath::new(path.as_bytes()).unwrap()), says, "{path}");
        }
        for wrong in ["a/.wh.", "a/.wh..", "a/.wh...", "a/.wh.b/c"] {
            assert!(
                matches!(Mark::of(&EntryPath::new(wrong.as_bytes()).unwrap()), Mark::Wrong(_)),
                "{wrong}"
            );
        }
    }
}
