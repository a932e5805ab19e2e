//! Path walking: from a path to a node.
//!
//! Relative paths start at the root, as absolute ones do. The walk is a loop: the target of a symbolic link
//! becomes a new segment in front of what is left of the path, and the directories passed are kept on a stack,
//! so that `..` needs no disk and a false `..` on a disk leads nowhere. Symbolic links are limited in number and
//! length, which bounds the work and the memory.
//!
//! Every directory must let the user pass (execute permission), also for `.` and `..`. A slash after the last
//! name demands a directory and follows a symbolic link.

use std::borrow::Cow;
use std::sync::Arc;

use crate::{Access, Credentials, Error, File, FileType, Node, Result, Vfs, check_access};

/// What to do when the last name is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Give what it points to.
    Last,
    /// Give the link itself.
    NoFollow,
}

/// Longest path, and longest target of a symbolic link, in bytes: Linux's 4096 less the terminating NUL.
pub const PATH_MAX_BYTES: usize = 4095;

/// Most symbolic links that one walk follows.
const SYMLINKS_MAX: u32 = 40;

impl Vfs {
    /// The node that a path stands for.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`NotDirectory`](Error::NotDirectory),
    /// [`PermissionDenied`](Error::PermissionDenied), [`NameTooLong`](Error::NameTooLong),
    /// [`TooManySymlinks`](Error::TooManySymlinks), [`InvalidArgument`](Error::InvalidArgument) for a path with
    /// a NUL byte; the filesystem's own.
    pub fn resolve(&self, who: &Credentials, path: &[u8], follow: Follow) -> Result<Arc<Node>> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        if path.len() > PATH_MAX_BYTES {
            return Err(Error::NameTooLong);
        }
        if path.contains(&0) {
            return Err(Error::InvalidArgument("a path cannot hold a NUL byte"));
        }
        let root = self.root_ref()?;
        let mut rest = Rest(vec![Segment { bytes: Cow::Borrowed(path), at: 0 }]);
        // The directories from below the root down to where the walk is.
        let mut passed: Vec<Arc<Node>> = Vec::new();
        let mut symlinks = 0;

        while let Some(name) = rest.next_name() {
            let dir = passed.last().unwrap_or(root);
            check_access(who, dir, Access::EXECUTE)?;
            if rest.name(&name) == b"." {
                continue;
            }
            if rest.name(&name) == b".." {
                passed.pop();
                continue;
            }
            let node = self.lookup(dir, rest.name(&name))?;
            let more = rest.more();
            match node.kind() {
                FileType::Directory => passed.push(node),
                FileType::Symlink if more != More::Nothing || follow == Follow::Last => {
                    symlinks += 1;
                    if symlinks > SYMLINKS_MAX {
                        return Err(Error::TooManySymlinks);
                    }
                    let target = node.read_link()?;
                    if target.is_empty() {
                        return Err(Error::NotFound);
                    }
                    if target.len() > PATH_MAX_BYTES {
                        return Err(Error::NameTooLong);
                    }
                    if target[0] == b'/' {
                        passed.clear();
                    }
                    rest.push(target);
                }
                _ if more == More::Nothing => return Ok(node),
                _ => return Err(Error::NotDirectory),
            }
        }
        Ok(passed.pop().unwrap_or_else(|| Arc::clone(root)))
    }

    /// Opens the regular file that a path stands for, following symbolic links, if `who` may read it.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve) and [`open_node`](Self::open_node).
    pub fn open(&self, who: &Credentials, path: &[u8]) -> Result<File> {
        let node = self.resolve(who, path, Follow::Last)?;
        node.check_regular()?;
        check_access(who, &node, Access::READ)?;
        self.open_node(&node)
    }
}

/// What is left of the path: the path itself and above it the targets of links that are being followed, each
/// with the position up to which it is consumed. The last segment comes next.
struct Rest<'a>(Vec<Segment<'a>>);

struct Segment<'a> {
    bytes: Cow<'a, [u8]>,
    at: usize,
}

/// A name within the last segment.
struct Name {
    start: usize,
    end: usize,
}

/// What follows a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Nothing,
    /// Slashes alone: the name must stand for a directory.
    Slashes,
    Names,
}

impl Rest<'_> {
    /// Consumes the next name; `None` at the end of the path.
    fn next_name(&mut self) -> Option<Name> {
        loop {
            let segment = self.0.last_mut()?;
            let left = &segment.bytes[segment.at..];
            let Some(slashes) = left.iter().position(|&byte| byte != b'/') else {
                self.0.pop();
                continue;
            };
            let start = segment.at + slashes;
            let len = left[slashes..].iter().position(|&byte| byte == b'/').unwrap_or(left.len() - slashes);
            segment.at = start + len;
            return Some(Name { start, end: segment.at });
        }
    }

    /// The bytes of the name that was consumed last.
    fn name(&self, name: &Name) -> &[u8] {
        self.0.last().map_or(&[], |segment| &segment.bytes[name.start..name.end])
    }

    fn more(&self) -> More {
        let mut more = More::Nothing;
        for segment in &self.0 {
            let left = &segment.bytes[segment.at..];
            if left.iter().any(|&byte| byte != b'/') {
                return More::Names;
            }
            if !left.is_empty() {
                more = More::Slashes;
            }
        }
        more
    }

    fn push(&mut self, target: Vec<u8>) {
        self.0.push(Segment { bytes: Cow::Owned(target), at: 0 });
    }
}
