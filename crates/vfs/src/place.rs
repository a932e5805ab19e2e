//! The one place of a directory: the directory that holds its name, and the name.
//!
//! A directory on a sound disk has one name, and its `..` leads to the directory that holds this name. A damaged disk
//! may give a directory several names, or lead from a directory to one of its ancestors, to itself or to the root. The
//! kernel keeps a tree of names and refuses such a graph in its own ways, a walk through it may never end, and
//! removing a directory with two names leaves one name behind. So an entry that leads to a directory outside of its
//! one place is corruption, for a look-up as well as for a listing with attributes.
//!
//! **The rule.** An entry may lead to a directory if that directory is neither the root nor the one that holds the
//! entry, if its `..` leads to the directory that holds the entry, and if it is not in use under another name. The
//! second condition holds for one parent only, so a path from the root never meets a directory twice, and there are no
//! loops. The third separates several names in one directory: which of them is right, the disk does not say, so the
//! first that is looked up stays right for as long as the node lives.
//!
//! **What it costs.** `..` is read once, when a directory is first looked up, from the block that a look inside reads
//! next anyway. The node then keeps its place as one word, and whatever moves the directory stores the new word.
//! Cached names, and files, are not concerned.
//!
//! **Locks.** The word is stored and compared while the name is locked (shared or exclusively), or in a filesystem that
//! takes no changes, so a directory that is being moved is never mistaken for one with two names. A listing locks no
//! names: it looks an entry up that seems to be wrong.
//!
//! Without regard to case several spellings are one name, so in such a directory only the parent is compared. A
//! filesystem that keeps nodes is in memory, and its directories are not checked.

use std::sync::Arc;

use crate::place_word::UNKNOWN;
use crate::{Corruption, Error, FileType, Found, HashedName, Ino, InodeFlags, Node, Result, Vfs};

/// The word for a name in a directory.
fn word(dir: &Node, name: &HashedName<'_>) -> u64 {
    let folds_case = dir.ownership().flags.contains(InodeFlags::CASEFOLD);
    let name = if folds_case { 0 } else { name.hash() };
    (dir.ino().0.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name).max(UNKNOWN + 1)
}

impl Vfs {
    /// Refuses `node` under `name` in `dir` if it is a directory that has its place elsewhere. The name is locked, or
    /// the filesystem takes no changes.
    ///
    /// # Errors
    /// Corruption; the filesystem's own where `..` cannot be read.
    pub(crate) fn check_place(&self, dir: &Node, name: &HashedName<'_>, node: &Node) -> Result<()> {
        let Ok(directory) = node.directory() else { return Ok(()) };
        if is_dots(name) || directory.children().is_none() {
            return Ok(());
        }
        let word = word(dir, name);
        if directory.place().is(word) {
            return Ok(());
        }
        if node.ino() == dir.ino() {
            return Err(leads_to_itself(dir, name));
        }
        let leads_to = |what: String| misplaced(dir, name, node, &what);
        if node.ino() == self.root_ino() {
            return Err(leads_to("the root, which has no name".into()));
        }
        match parent_of(node)? {
            Some(parent) if parent == dir.ino() => {}
            Some(parent) => return Err(leads_to(format!("whose \"..\" leads to inode {parent}"))),
            None => return Err(leads_to("which has no \"..\"".into())),
        }
        if !directory.place().take(word) {
            return Err(leads_to("which is in use under another name".into()));
        }
        Ok(())
    }

    /// As [`check_place`](Self::check_place) for an entry of a listing, which may have changed since it was read.
    pub(crate) fn check_listed(&self, dir: &Node, name: &[u8], node: &Node) -> Result<()> {
        let Ok(directory) = node.directory() else { return Ok(()) };
        if directory.children().is_none() {
            return Ok(());
        }
        let name = &HashedName::new(name);
        if self.filesystem().is_read_only() {
            return self.check_place(dir, name, node);
        }
        if directory.place().is(word(dir, name)) {
            return Ok(());
        }
        match self.lookup_hashed(dir, name) {
            // It was removed, or names another inode by now.
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The node of an entry that a listing of `dir` gave, for a caller that passes each inode once (see
    /// [`node_once`](Self::node_once)).
    ///
    /// # Errors
    /// Corruption for an entry that leads to no live inode, or to a directory that has its place elsewhere; the
    /// filesystem's own.
    pub fn listed_node(&self, dir: &Node, name: &[u8], ino: Ino) -> Result<Arc<Node>> {
        let node = match self.node_once(ino) {
            // Of a filesystem that changes, the entry may have gone with its inode.
            Err(Error::Stale) if self.filesystem().is_read_only() => {
                return Err(dangling(dir, &HashedName::new(name), ino));
            }
            Err(Error::Stale) => self.lookup(dir, name)?,
            node => node?,
        };
        self.check_listed(dir, name, &node)?;
        Ok(node)
    }

    /// Sets the place of a directory. Its name is locked exclusively, or not visible to other threads yet.
    pub(crate) fn set_place(dir: &Node, name: &HashedName<'_>, node: &Node) {
        if let Ok(directory) = node.directory() {
            directory.place().set(word(dir, name));
        }
    }

    /// A name that was right when it was cached leads to this node, which may have been read anew since.
    ///
    /// # Errors
    /// As for [`check_place`](Self::check_place).
    pub(crate) fn keep_place(&self, dir: &Node, name: &HashedName<'_>, node: &Node) -> Result<()> {
        match node.directory() {
            Ok(directory) if !is_dots(name) && !directory.place().is_known() => {
                Self::set_place(dir, name, node);
                Ok(())
            }
            _ => self.check_place(dir, name, node),
        }
    }
}

/// Why an entry is wrong that leads to an inode that is not in use.
pub(crate) fn dangling(dir: &Node, name: &HashedName<'_>, ino: Ino) -> Error {
    entry_is_corrupt(dir, format!("{} leads to inode {ino}, which is not in use", shown(name)))
}

/// Why an entry is wrong that leads to a directory that was removed under another name.
pub(crate) fn removed(dir: &Node, name: &HashedName<'_>, node: &Node) -> Error {
    misplaced(dir, name, node, "which was removed under another name")
}

/// Why an entry is wrong that leads to the directory that holds it.
pub(crate) fn leads_to_itself(dir: &Node, name: &HashedName<'_>) -> Error {
    misplaced(dir, name, dir, "which is this directory itself")
}

fn misplaced(dir: &Node, name: &HashedName<'_>, node: &Node, what: &str) -> Error {
    entry_is_corrupt(dir, format!("{} leads to directory {}, {what}", shown(name), node.ino()))
}

/// A name as a sentence has room for it.
fn shown(name: &[u8]) -> String {
    const MOST_BYTES: usize = 40;
    match name.get(..MOST_BYTES) {
        Some(start) if name.len() > MOST_BYTES => format!("\"{}...\"", start.escape_ascii()),
        _ => format!("\"{}\"", name.escape_ascii()),
    }
}

fn entry_is_corrupt(dir: &Node, detail: String) -> Error {
    let ino = Some(dir.ino());
    Corruption { structure: "directory entry", ino, block: None, detail: detail.into() }.into()
}

/// Where a directory's `..` leads.
fn parent_of(node: &Node) -> Result<Option<Ino>> {
    debug_assert_eq!(node.kind(), FileType::Directory);
    Ok(node.inode().lookup(&HashedName::new(b".."))?.and_then(|found| match found {
        Found::Ino(ino) | Found::Made(ino, _) => Some(ino),
        Found::Node(node) => Some(node.ino()),
        Found::Moving => None,
    }))
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
