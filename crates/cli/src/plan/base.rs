//! Where the paths inside an image begin that are typed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::exit::Kind;
use crate::failure::Failure;

/// A path inside an image: absolute, bytes.
pub(crate) type InsidePath = Vec<u8>;

/// Where relative paths begin.
#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// At a command line: at the root, with or without a slash.
    Root,
    /// In `shell`: in this directory, an absolute path.
    In(InsidePath),
}

impl Base {
    /// Whether it is that of a command line.
    pub(crate) const fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }

    /// What is meant where no path is typed.
    pub(crate) fn here(&self) -> InsidePath {
        match self {
            Self::Root => b"/".to_vec(),
            Self::In(dir) => dir.clone(),
        }
    }

    /// A path from the root on.
    ///
    /// # Errors
    /// [`Kind::Usage`] for an empty one.
    pub(crate) fn path(&self, typed: OsString) -> Result<InsidePath, Failure> {
        let path = typed.into_vec();
        if path.is_empty() {
            return Err(
                Failure::new(Kind::Usage, "the path inside the image is empty").advise("the root is `/`")
            );
        }
        if path[0] == b'/' {
            return Ok(path);
        }
        let above = self.here();
        let slash: &[u8] = if above.ends_with(b"/") { b"" } else { b"/" };
        Ok([&above[..], slash, &path].concat())
    }

    /// The same of several.
    pub(crate) fn paths(&self, typed: Vec<OsString>) -> Result<Vec<InsidePath>, Failure> {
        typed.into_iter().map(|path| self.path(path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Base;
    use crate::exit::Kind;

    #[test]
    fn paths_start_at_the_root_or_in_a_directory() {
        assert_eq!(Base::Root.path("etc/passwd".into()).unwrap(), b"/etc/passwd");
        assert_eq!(Base::Root.path("/".into()).unwrap(), b"/");
        assert_eq!(Base::Root.path("".into()).unwrap_err().kind(), Kind::Usage);
        let dir = Base::In(b"/etc".to_vec());
        assert_eq!(dir.path("../x".into()).unwrap(), b"/etc/../x");
        assert_eq!(dir.path("/x".into()).unwrap(), b"/x");
        assert_eq!(Base::In(b"/".to_vec()).path("x".into()).unwrap(), b"/x");
    }
}
