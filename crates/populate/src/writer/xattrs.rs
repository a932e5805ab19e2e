//! Extended attributes: those that Linux keeps, and what a filesystem says to them.

use std::fmt;
use std::sync::Arc;

use undercroft_vfs::{Credentials, Error as VfsError, Node, XattrMode};

use super::Writer;
use crate::{EntryKind, EntryPath, Error, Metadata, Xattr};

pub(super) use crate::access_list::ACCESS_LIST;

/// Where Linux keeps the list that new files of a directory inherit.
pub(super) const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// Longest name and value in bytes, as Linux has them.
const NAME_MAX_BYTES: usize = 255;
const VALUE_MAX_BYTES: usize = 65536;

/// Free blocks of a filesystem in which there is room for any attribute, if its inode can hold it.
const ENOUGH_BLOCKS: u64 = 1024;

/// Attributes that were left out, as Linux does not keep them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnkeptXattrs {
    /// How many.
    pub count: u64,
    /// The first one: its name, and whose it was.
    pub first: Option<(Box<[u8]>, EntryPath)>,
}

impl fmt::Display for UnkeptXattrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        write!(f, "{count} extended attributes that Linux does not keep were left out")?;
        match &self.first {
            Some((name, path)) => write!(f, " (first: {} of {})", shown(name), path.shown()),
            None => Ok(()),
        }
    }
}

/// Why an entry was refused, and at which of its attributes.
pub(super) struct Refusal {
    error: VfsError,
    /// What is wrong with an attribute in itself; the error says it of the filesystem otherwise.
    xattr: Option<String>,
}

impl From<VfsError> for Refusal {
    fn from(error: VfsError) -> Self {
        Self { error, xattr: None }
    }
}

impl Refusal {
    /// The error that names an entry.
    pub(super) fn at(self, path: EntryPath) -> Error {
        match self.xattr {
            Some(what) => Error::entry(path, what),
            None => Error::filesystem(path, self.error),
        }
    }
}

impl Writer {
    /// Takes the attributes that Linux does not keep out of an entry, and counts them.
    pub(super) fn leave_out_xattrs(&mut self, path: &EntryPath, kind: &EntryKind, metadata: &mut Metadata) {
        if matches!(kind, EntryKind::HardLink(_) | EntryKind::Whiteout | EntryKind::Opaque) {
            return;
        }
        let unkept = &mut self.filled.unkept_xattrs;
        metadata.xattrs.retain(|xattr| {
            let is_kept = is_kept(xattr, kind);
            if !is_kept {
                unkept.count += 1;
                unkept.first.get_or_insert_with(|| (xattr.name.clone(), path.clone()));
            }
            is_kept
        });
    }

    /// Sets an attribute.
    pub(super) fn set_xattr(&self, node: &Arc<Node>, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let set = self.vfs.set_xattr(&Credentials::root(), node, name, value, XattrMode::Set);
        set.map_err(|error| {
            let has_space = matches!(error, VfsError::NoSpace) && self.has_space();
            let xattr = fault_of(name, value.len(), &error, has_space);
            Refusal { error, xattr }
        })
    }

    /// Whether it is not for want of blocks that an attribute finds no space.
    fn has_space(&self) -> bool {
        self.vfs.filesystem().statfs().is_ok_and(|stat| stat.blocks_free >= ENOUGH_BLOCKS)
    }
}

/// What is wrong with an attribute in itself, if that is why it was refused.
fn fault_of(name: &[u8], len: usize, error: &VfsError, has_space: bool) -> Option<String> {
    match error {
        VfsError::NoSpace => has_space.then(|| {
            format!("its extended attribute {} of {len} bytes does not fit beside the others", shown(name))
        }),
        VfsError::NotPermitted
        | VfsError::PermissionDenied
        | VfsError::NameTooLong
        | VfsError::ValueTooLarge
        | VfsError::InvalidArgument(_)
        | VfsError::Unsupported(_) => Some(format!("its extended attribute {}: {error}", shown(name))),
        _ => None,
    }
}

fn shown(name: &[u8]) -> std::slice::EscapeAscii<'_> {
    name.get(..NAME_MAX_BYTES).unwrap_or(name).escape_ascii()
}

/// Whether Linux keeps an attribute of a file of this kind. A list is kept however long it is, so that one that is too long is
/// refused: without its list, the mode of a file would give its group what the mask lets others have.
fn is_kept(Xattr { name, value }: &Xattr, kind: &EntryKind) -> bool {
    let is_possible = name.len() <= NAME_MAX_BYTES && !name.contains(&0) && value.len() <= VALUE_MAX_BYTES;
    let is_of = |namespace: &[u8]| name.strip_prefix(namespace).is_some_and(|rest| !rest.is_empty());
    match kind {
        _ if **name == *ACCESS_LIST => !matches!(kind, EntryKind::Symlink(_)),
        _ if **name == *DEFAULT_LIST => *kind == EntryKind::Directory,
        _ if !is_possible => false,
        EntryKind::Directory | EntryKind::Regular(_) if is_of(b"user.") => true,
        _ => is_of(b"trusted.") || is_of(b"security."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_an_inode_is_no_want_of_space() {
        let fault = |error: VfsError, has_space| fault_of(b"user.a\n", 5000, &error, has_space);
        let does_not_fit = fault(VfsError::NoSpace, true).unwrap();
        assert_eq!(
            does_not_fit,
            "its extended attribute user.a\\n of 5000 bytes does not fit beside the others"
        );
        assert_eq!(fault(VfsError::NoSpace, false), None);
        assert_eq!(fault(VfsError::ReadOnly, true), None);
        let refused = fault(VfsError::InvalidArgument("no list"), false).unwrap();
        assert!(refused.starts_with("its extended attribute user.a\\n: ") && refused.contains("no list"));
    }
}
