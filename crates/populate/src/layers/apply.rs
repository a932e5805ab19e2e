//! One entry of a layer, applied to the tree.

use super::mark::Mark;
use super::resolve::Lost;
use super::tree::{Full, Kind, Made, ROOT, Tree};
use crate::{Entry, EntryKind, SourceErrorKind};

/// Most bytes of a path.
const PATH_MAX_BYTES: usize = 32 << 10;
/// Most bytes of what a symbolic link leads to; Linux has one less than 4096.
const TARGET_MAX_BYTES: usize = 4095;

/// Why an entry cannot be applied.
fn refused(what: impl Into<String>) -> SourceErrorKind {
    SourceErrorKind::Refused(what.into())
}

impl From<Full> for SourceErrorKind {
    fn from(_: Full) -> Self {
        Self::TooLarge("the names of the layers take too much memory".into())
    }
}

impl From<Lost> for SourceErrorKind {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Full => Full.into(),
            Lost::Loop => refused("there are too many symbolic links on the way to it"),
            Lost::Missing => refused("its directory is not there"),
        }
    }
}

impl Tree {
    /// Applies the entry of this number of a layer.
    pub(super) fn apply(&mut self, made: Made, entry: &Entry) -> Result<(), SourceErrorKind> {
        let layer = made.layer;
        let target = if let EntryKind::Symlink(target) = &entry.kind { target.len() } else { 0 };
        if entry.path.as_bytes().len() > PATH_MAX_BYTES || target > TARGET_MAX_BYTES {
            return Err(refused("its path, or what it leads to, is too long"));
        }
        match (Mark::of(&entry.path), &entry.kind) {
            (Mark::Wrong(what), _) => Err(refused(what)),
            (Mark::Nothing, _) => Ok(()),
            (Mark::Opaque(dir), _) => self.opaque(dir, layer),
            (Mark::Whiteout(dir, name), _) | (Mark::File(dir, name), EntryKind::Whiteout) => {
                self.whiteout(dir, name, layer)
            }
            (Mark::File(..), EntryKind::Opaque) => self.opaque(entry.path.as_bytes(), layer),
            (Mark::File(_, b""), EntryKind::Directory) => {
                Ok(self.set_directory(ROOT, made, &entry.metadata)?)
            }
            (Mark::File(_, b""), _) => Err(refused("the root can only be a directory")),
            (Mark::File(dir, name), kind) => self.put(dir, name, made, kind, entry),
        }
    }

    /// What lower layers have in a directory is gone.
    fn opaque(&mut self, dir: &[u8], layer: u16) -> Result<(), SourceErrorKind> {
        match self.directory_at(dir, None) {
            Err(Lost::Missing) => {}
            dir => self.remove_lower(dir?, layer, false),
        }
        Ok(())
    }

    fn whiteout(&mut self, dir: &[u8], name: &[u8], layer: u16) -> Result<(), SourceErrorKind> {
        let dir = match self.directory_at(dir, None) {
            Err(Lost::Missing) => return Ok(()),
            dir => dir?,
        };
        let id = if name.is_empty() { Some(ROOT) } else { self.find(dir, name) };
        if let Some(id) = id {
            self.remove_lower(id, layer, true);
        }
        Ok(())
    }

    fn put(
        &mut self,
        dir: &[u8],
        name: &[u8],
        made: Made,
        kind: &EntryKind,
        entry: &Entry,
    ) -> Result<(), SourceErrorKind> {
        let dir = self.directory_at(dir, Some(made.layer))?;
        let there = self.find(dir, name);
        let is_directory = there.is_some_and(|id| matches!(self.kind(id), Kind::Directory(_)));
        match (kind, there) {
            (EntryKind::Directory, Some(id)) if is_directory => {
                return Ok(self.set_directory(id, made, &entry.metadata)?);
            }
            (EntryKind::HardLink(target), _) => return self.link(dir, name, made.layer, target),
            (_, Some(id)) => self.remove(id),
            (_, None) => {}
        }
        match kind {
            EntryKind::Directory => {
                self.add_directory(dir, name, made.layer, Some((made, &entry.metadata)))?;
            }
            EntryKind::Symlink(target) => {
                self.add(dir, name, made, Some(target), made.layer)?;
            }
            _ => {
                self.add(dir, name, made, None, made.layer)?;
            }
        }
        Ok(())
    }

    /// Another name of what has the path `target` now, whichever layer put it there.
    fn link(
        &mut self,
        dir: u32,
        name: &[u8],
        layer: u16,
        target: &crate::EntryPath,
    ) -> Result<(), SourceErrorKind> {
        let missing = || refused(format!("it is a hard link to {target:?}, which is not there"));
        let (above, last) = target.split().ok_or_else(missing)?;
        let above = match self.directory_at(above, None) {
            Err(Lost::Missing) => return Err(missing()),
            above => above?,
        };
        let id = self.find(above, last).ok_or_else(missing)?;
        if matches!(self.kind(id), Kind::Directory(_)) {
            return Err(refused(format!("it is a hard link to {target:?}, which is a directory")));
        }
        match self.find(dir, name) {
            Some(there) if there == id => self.place(id, layer),
            there => {
                // The target may be below the name, as what is replaced.
                let added = self.add_link(dir, name, id, layer);
                if let Some(there) = there {
                    self.remove(there);
                }
                added?;
            }
        }
        Ok(())
    }
}
