//! Makes the tree through the vfs, in a filesystem that can be written to.
//!
//! The same steps as [`populate`](super::populate) takes by system calls. Of a file only its pieces of data are
//! written, so that what lies between them stays a hole.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::check::show;
use super::tree::{Content, Entry, Object, Tree};
use crate::{
    AttrChange, Credentials, Error, File, Follow, NewKind, NewObject, NewTime, Node, Result, Vfs, XattrMode,
};

/// Bytes that are written at once.
const STEP: usize = 1 << 20;

/// Makes `tree` in the existing, empty directory at `base`, an absolute path.
///
/// # Errors
/// The first call that fails, with the path.
pub fn populate_through(vfs: &Arc<Vfs>, base: &[u8], tree: &Tree) -> std::result::Result<(), String> {
    let failed = |path: &[u8], error: Error| format!("{}: {error}", show(path));
    let top = vfs
        .resolve(&Credentials::root(), [base, b"/"].concat(), Follow::Last)
        .map_err(|error| failed(base, error))?;
    let mut made = Made { vfs, nodes: BTreeMap::from([(Vec::new(), top)]) };
    for entry in &tree.entries {
        made.create(entry).map_err(|error| failed(&entry.path, error))?;
    }
    // Children first, because making a name changes its directory's times.
    for entry in tree.entries.iter().rev().filter(|entry| entry.object.kind().is_some()) {
        made.set_metadata(entry).map_err(|error| failed(&entry.path, error))?;
    }
    Ok(())
}

/// What was made so far, by path.
struct Made<'a> {
    vfs: &'a Vfs,
    nodes: BTreeMap<Vec<u8>, Arc<Node>>,
}

impl Made<'_> {
    fn node(&self, path: &[u8]) -> Result<&Arc<Node>> {
        self.nodes.get(path).ok_or(Error::NotFound)
    }

    fn create(&mut self, entry: &Entry) -> Result<()> {
        if entry.path.is_empty() {
            return Ok(());
        }
        let slash = entry.path.iter().rposition(|&byte| byte == b'/');
        let dir = self.node(slash.map_or(&[][..], |slash| &entry.path[..slash]))?;
        let make = |kind| {
            let object = NewObject { kind, permissions: 0o600, umask: 0 };
            self.vfs.create(&Credentials::root(), dir, entry.name(), &object)
        };
        let node = match &entry.object {
            Object::Directory => make(NewKind::Directory)?,
            Object::File(_) => make(NewKind::Regular)?,
            Object::Symlink(target) => make(NewKind::Symlink(target))?,
            Object::Fifo => make(NewKind::Fifo)?,
            Object::Socket => make(NewKind::Socket)?,
            Object::CharDevice(number) => make(NewKind::CharDevice(*number))?,
            Object::BlockDevice(number) => make(NewKind::BlockDevice(*number))?,
            Object::HardLink(target) => {
                let node = Arc::clone(self.node(target)?);
                self.vfs.link(&Credentials::root(), &node, dir, entry.name())?;
                node
            }
        };
        if let Object::File(content) = &entry.object {
            write(&self.vfs.open_node_for_writing(&node)?, content)?;
        }
        self.nodes.insert(entry.path.clone(), node);
        Ok(())
    }

    fn set_metadata(&self, entry: &Entry) -> Result<()> {
        let (caller, node) = (Credentials::root(), self.node(&entry.path)?);
        let owner = AttrChange { uid: Some(entry.uid), gid: Some(entry.gid), ..AttrChange::default() };
        self.vfs.set_attr(&caller, node, &owner)?;
        for (name, value) in &entry.xattrs {
            self.vfs.set_xattr(&caller, node, name, value, XattrMode::Create)?;
        }
        // After the owner and the access control list, both of which change the bits.
        let has_permissions = !matches!(entry.object, Object::Symlink(_));
        let rest = AttrChange {
            permissions: has_permissions.then_some(entry.permissions),
            accessed: Some(NewTime::At(entry.accessed)),
            modified: Some(NewTime::At(entry.modified)),
            ..AttrChange::default()
        };
        self.vfs.set_attr(&caller, node, &rest)
    }
}

fn write(file: &File, content: &Content) -> Result<()> {
    let mut buf = Vec::new();
    for piece in &content.pieces {
        for skip in (0..piece.len).step_by(STEP) {
            buf.resize((piece.len - skip).min(STEP as u64) as usize, 0);
            piece.fill(skip, &mut buf);
            let written = file.write_at(piece.offset + skip, &buf)?;
            if written < buf.len() {
                return Err(Error::NoSpace);
            }
        }
    }
    file.truncate(content.size_bytes)
}
