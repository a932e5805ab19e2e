//! How a user names a source: a path, with what it is in front and the image's tag behind, as skopeo has them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a source is to be taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// What it is.
    Any,
    /// A directory of files, also where it is an OCI layout.
    Directory,
    /// A tar of files, also where it is an archive of images.
    Tar,
    /// An OCI layout.
    Layout,
    /// An archive of an OCI layout.
    OciArchive,
    /// What `docker save` writes.
    DockerArchive,
}

/// What may stand in front.
const KINDS: [(&str, As); 5] = [
    ("dir:", As::Directory),
    ("tar:", As::Tar),
    ("oci:", As::Layout),
    ("oci-archive:", As::OciArchive),
    ("docker-archive:", As::DockerArchive),
];

/// What a name says in front that its source is, with the colon, and the rest; `None` where it says nothing.
#[must_use]
pub fn split_kind(typed: &Path) -> Option<(&'static str, &Path)> {
    kind_of(typed.as_os_str().as_bytes()).map(|(front, _, rest)| (front, Path::new(OsStr::from_bytes(rest))))
}

fn kind_of(typed: &[u8]) -> Option<(&'static str, As, &[u8])> {
    KINDS.iter().find_map(|&(front, kind)| Some((front, kind, typed.strip_prefix(front.as_bytes())?)))
}

/// A source as it was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) kind: As,
    pub(crate) path: PathBuf,
    /// The image's tag, or its name with the tag.
    pub(crate) reference: Option<String>,
}

impl Name {
    /// Of what has no path.
    pub(crate) fn any() -> Self {
        Self { kind: As::Any, path: PathBuf::new(), reference: None }
    }

    /// From what was typed. A path that is there is meant, whatever characters it has.
    pub(crate) fn of(typed: &Path) -> Self {
        Self::with(typed, &|path| path.symlink_metadata().is_ok())
    }

    fn with(typed: &Path, is_there: &dyn Fn(&Path) -> bool) -> Self {
        if is_there(typed) {
            return Self { kind: As::Any, path: typed.to_owned(), reference: None };
        }
        let bytes = typed.as_os_str().as_bytes();
        let (kind, rest) = kind_of(bytes).map_or((As::Any, bytes), |(_, kind, rest)| (kind, rest));
        let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
        let whole = Self { kind, path: as_path(rest).to_owned(), reference: None };
        if matches!(kind, As::Directory | As::Tar) || is_there(as_path(rest)) {
            return whole;
        }
        let colons = rest.iter().enumerate().rev().filter(|&(_, &byte)| byte == b':').map(|(at, _)| at);
        let mut splits = colons.map(|at| (as_path(&rest[..at]), &rest[at + 1..]));
        let found = splits.find(|(path, reference)| !reference.is_empty() && is_there(path));
        match found.and_then(|(path, reference)| Some((path, std::str::from_utf8(reference).ok()?))) {
            Some((path, reference)) => {
                Self { kind, path: path.to_owned(), reference: Some(reference.to_owned()) }
            }
            None => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_what_is_there() {
        let there = ["layout", "a:b", "save.tar", "oci:odd"];
        let name = |typed: &str| {
            let name =
                Name::with(Path::new(typed), &|path| there.iter().any(|known| Path::new(known) == path));
            (name.kind, name.path.to_str().unwrap().to_owned(), name.reference)
        };
        let of =
            |kind, path: &str, reference: Option<&str>| (kind, path.to_owned(), reference.map(str::to_owned));
        assert_eq!(name("layout"), of(As::Any, "layout", None));
        assert_eq!(name("layout:1.0"), of(As::Any, "layout", Some("1.0")));
        assert_eq!(name("a:b"), of(As::Any, "a:b", None));
        assert_eq!(name("a:b:latest"), of(As::Any, "a:b", Some("latest")));
        assert_eq!(name("oci:layout"), of(As::Layout, "layout", None));
        assert_eq!(name("oci:layout:x"), of(As::Layout, "layout", Some("x")));
        assert_eq!(name("oci:odd"), of(As::Any, "oci:odd", None));
        let reference = Some("docker.io/library/debian:12");
        let typed = "docker-archive:save.tar:docker.io/library/debian:12";
        assert_eq!(name(typed), of(As::DockerArchive, "save.tar", reference));
        assert_eq!(name("oci-archive:save.tar"), of(As::OciArchive, "save.tar", None));
        assert_eq!(name("dir:layout:x"), of(As::Directory, "layout:x", None));
        assert_eq!(name("tar:save.tar"), of(As::Tar, "save.tar", None));
        assert_eq!(name("none:x"), of(As::Any, "none:x", None));
    }
}
