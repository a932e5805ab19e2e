//! Directories: a concurrent table of names, and what happens to inodes when names change.
//!
//! The caller holds the locks of the names that change. Everything here that several names have in common (a
//! directory's count of links, its times) is an atomic of its own; there is no lock of a directory.
//!
//! **Moving a name** is one step for every lookup. The old name is first marked as moving; then the new name is put
//! in, or takes the place of what was there; then the old name goes. A lookup that finds a mark waits for the name's
//! lock. So a thread that has seen the new name never finds the old one. In an exchange both are marked.
//!
//! An inode's place in the table of numbers is made before its first name and released after its last.
//!
//! **The count of links** of a directory includes one for each subdirectory. It changes while the subdirectory's name is
//! locked. Where no other name takes that name's place, it is lowered *before* the name goes. The thread that removes the
//! directory waits for threads that add names to it, but not for threads that remove names: it may find the directory
//! empty while another thread is still removing the last subdirectory. It must find the count of an empty directory then,
//! because only a count that becomes 0 releases the inode.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use undercroft_sync::order;
use undercroft_vfs::clock::Coarse;
use undercroft_vfs::{
    DirEntry, DirOffset, Error, FileType, Found, HashedName, Ino, InsertError, NameTable, NewInode, Node,
    Result,
};

use crate::inode::TmpInode;

pub(crate) struct Directory {
    names: NameTable<Name>,
    /// The directory that `..` stands for.
    parent: AtomicU64,
}

/// What a name stands for. The table of numbers owns the inode.
struct Name {
    node: Weak<Node>,
    ino: Ino,
    kind: FileType,
    moving: AtomicBool,
}

/// Positions in a directory: these two, then the keys of the names, moved up by [`FIRST_NAME`].
const DOT: u64 = 0;
const DOT_DOT: u64 = 1;
const FIRST_NAME: u64 = 2;

impl Directory {
    pub(crate) fn new(parent: Ino) -> Self {
        Self { names: NameTable::new(&order::NAME_TABLE), parent: AtomicU64::new(parent.0) }
    }

    fn parent(&self) -> Ino {
        Ino(self.parent.load(Ordering::Relaxed))
    }

    /// Sets or clears a name's mark.
    fn mark_moving(&self, name: &HashedName<'_>, moving: bool) {
        // Release: a reader that sees the mark cleared sees what was done before.
        let _ = self.names.get(name, |entry| entry.moving.store(moving, Ordering::Release));
    }

    fn insert(&self, name: &HashedName<'_>, entry: Name) -> Result<()> {
        self.names.insert(name, entry).map_err(|error| match error {
            InsertError::Exists => Error::Exists,
            InsertError::Full => Error::NoSpace,
        })
    }
}

impl Name {
    fn of(node: &Arc<Node>) -> Self {
        Self::marked(node, false)
    }

    fn marked(node: &Arc<Node>, moving: bool) -> Self {
        Self {
            node: Arc::downgrade(node),
            ino: node.ino(),
            kind: node.kind(),
            moving: AtomicBool::new(moving),
        }
    }

    fn found(&self) -> Option<Found> {
        if self.moving.load(Ordering::Acquire) {
            return Some(Found::Moving);
        }
        self.node.upgrade().map(Found::Node)
    }
}

pub(crate) fn lookup(dir: &TmpInode, name: &HashedName<'_>) -> Result<Option<Found>> {
    let directory = dir.directory()?;
    let by_number = |ino| dir.home().find(ino).map(|node| Some(Found::Node(node))).ok_or(Error::Stale);
    match name.bytes() {
        b"." => return by_number(dir.ino()),
        b".." => return by_number(directory.parent()),
        _ => {}
    }
    loop {
        match directory.names.get(name, Name::found) {
            None => return Ok(None),
            Some(Some(found)) => return Ok(Some(found)),
            // The inode went after the table was read, and the name before the inode: look again.
            Some(None) => std::hint::spin_loop(),
        }
    }
}

pub(crate) fn expect_name(dir: &TmpInode, name: &HashedName<'_>) {
    if let Ok(directory) = dir.directory() {
        directory.names.prefetch(name);
    }
}

pub(crate) fn read_dir(
    dir: &TmpInode,
    from: DirOffset,
    sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let directory = dir.directory()?;
    let dots: [(u64, &[u8], Ino); 2] = [(DOT, b".", dir.ino()), (DOT_DOT, b"..", directory.parent())];
    for (at, name, ino) in dots {
        let next = DirOffset(at + 1);
        let entry = DirEntry { name, ino, kind: Some(FileType::Directory), next };
        if from.0 <= at && sink(entry).is_break() {
            return Ok(());
        }
    }
    let _ = directory.names.scan(from.0.saturating_sub(FIRST_NAME), |key, name, entry| {
        let next = DirOffset(FIRST_NAME + key + 1);
        sink(DirEntry { name, ino: entry.ino, kind: Some(entry.kind), next })
    });
    Ok(())
}

/// An inode with one name, which it has not got yet.
pub(crate) fn make(dir: &TmpInode, new: &NewInode<'_>) -> Result<Arc<Node>> {
    let node = TmpInode::make(dir.home().here(), new, Some(dir.ino()), Coarse::now())?;
    let inode: &TmpInode = node.inode_as()?;
    inode.set_links(if inode.is_directory() { 2 } else { 1 });
    Ok(node)
}

pub(crate) fn create(
    dir: &TmpInode,
    name: &HashedName<'_>,
    new: &NewInode<'_>,
    made: Option<Arc<Node>>,
) -> Result<Arc<Node>> {
    let moment = Coarse::now();
    let directory = dir.directory()?;
    // That the name is there comes before what keeps an inode from being made.
    let exists = || directory.names.get(name, |_| ()).is_some();
    let node = made
        .map_or_else(|| make(dir, new), Ok)
        .map_err(|error| if exists() { Error::Exists } else { error })?;
    let inode: &TmpInode = node.inode_as()?;
    dir.home().name(&node);
    if let Err(error) = directory.insert(name, Name::of(&node)) {
        dir.home().forget(node.ino());
        return Err(error);
    }
    if inode.is_directory() {
        dir.add_link()?;
    }
    dir.meta().touch_content(moment);
    Ok(node)
}

pub(crate) fn tmpfile(dir: &TmpInode, new: &NewInode<'_>) -> Result<Arc<Node>> {
    let moment = Coarse::now();
    let node = TmpInode::make(dir.home().here(), new, Some(dir.ino()), moment)?;
    let inode: &TmpInode = node.inode_as()?;
    inode.make_linkable();
    inode.stay_known();
    dir.home().know_unnamed(&node);
    Ok(node)
}

pub(crate) fn link(dir: &TmpInode, name: &HashedName<'_>, node: &Arc<Node>) -> Result<()> {
    let moment = Coarse::now();
    let directory = dir.directory()?;
    let inode: &TmpInode = node.inode_as()?;
    if directory.names.get(name, |_| ()).is_some() {
        return Err(Error::Exists);
    }
    if inode.add_link()? {
        dir.home().name(node);
    }
    if let Err(error) = directory.insert(name, Name::of(node)) {
        take_link(dir, node, inode);
        return Err(error);
    }
    inode.meta().touch_inode(moment);
    dir.meta().touch_content(moment);
    Ok(())
}

pub(crate) fn unlink(dir: &TmpInode, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
    let moment = Coarse::now();
    let directory = dir.directory()?;
    let inode: &TmpInode = victim.inode_as()?;
    let is_directory = inode.is_directory();
    if is_directory {
        if !inode.directory()?.names.is_empty() {
            return Err(Error::NotEmpty);
        }
        // Before the name goes; see above.
        dir.drop_link();
    }
    if !directory.names.remove(name) {
        if is_directory {
            dir.add_link()?;
        }
        return Err(Error::NotFound);
    }
    release(dir, victim, inode, moment);
    dir.meta().touch_content(moment);
    Ok(())
}

pub(crate) fn rename(
    dir: &TmpInode,
    name: &HashedName<'_>,
    moved: &Arc<Node>,
    to: &TmpInode,
    to_name: &HashedName<'_>,
    replaced: Option<&Arc<Node>>,
    whiteout: Option<&NewInode<'_>>,
) -> Result<()> {
    let moment = Coarse::now();
    let (from_directory, to_directory) = (dir.directory()?, to.directory()?);
    let inode: &TmpInode = moved.inode_as()?;
    if let Some(replaced) = replaced {
        let replaced: &TmpInode = replaced.inode_as()?;
        if replaced.is_directory() && !replaced.directory()?.names.is_empty() {
            return Err(Error::NotEmpty);
        }
    }
    let whiteout =
        whiteout.map(|new| TmpInode::make(dir.home().here(), new, Some(dir.ino()), moment)).transpose()?;

    let changes_parent = inode.is_directory() && dir.ino() != to.ino();
    if changes_parent {
        to.add_link()?;
    }
    from_directory.mark_moving(name, true);
    if replaced.is_some() {
        to_directory.names.replace(to_name, Name::of(moved));
    } else if let Err(error) = to_directory.insert(to_name, Name::of(moved)) {
        from_directory.mark_moving(name, false);
        if changes_parent {
            to.drop_link();
        }
        return Err(error);
    }
    if changes_parent {
        // Before the old name goes; see above. `..` changes before it too: the old parent may be removed once it is empty.
        inode.directory()?.parent.store(to.ino().0, Ordering::Relaxed);
        dir.drop_link();
    }
    if let Some(whiteout) = &whiteout {
        whiteout.inode_as::<TmpInode>()?.set_links(1);
        dir.home().name(whiteout);
        from_directory.names.replace(name, Name::of(whiteout));
    } else {
        from_directory.names.remove(name);
    }

    if let Some(replaced) = replaced {
        let replaced_inode: &TmpInode = replaced.inode_as()?;
        if replaced_inode.is_directory() {
            to.drop_link();
        }
        release(to, replaced, replaced_inode, moment);
    }
    inode.meta().touch_inode(moment);
    dir.meta().touch_content(moment);
    if dir.ino() != to.ino() {
        to.meta().touch_content(moment);
    }
    Ok(())
}

pub(crate) fn exchange(
    dir: &TmpInode,
    name: &HashedName<'_>,
    one: &Arc<Node>,
    to: &TmpInode,
    to_name: &HashedName<'_>,
    other: &Arc<Node>,
) -> Result<()> {
    let moment = Coarse::now();
    let (one_directory, other_directory) = (dir.directory()?, to.directory()?);
    let (one_inode, other_inode): (&TmpInode, &TmpInode) = (one.inode_as()?, other.inode_as()?);
    one_directory.mark_moving(name, true);
    other_directory.mark_moving(to_name, true);
    one_directory.names.replace(name, Name::marked(other, true));
    other_directory.names.replace(to_name, Name::of(one));
    one_directory.mark_moving(name, false);

    if dir.ino() != to.ino() {
        for (inode, from, to) in [(one_inode, dir, to), (other_inode, to, dir)] {
            if inode.is_directory() {
                inode.directory()?.parent.store(to.ino().0, Ordering::Relaxed);
                to.add_link()?;
                from.drop_link();
            }
        }
        to.meta().touch_content(moment);
    }
    one_inode.meta().touch_inode(moment);
    other_inode.meta().touch_inode(moment);
    dir.meta().touch_content(moment);
    Ok(())
}

/// The inode has lost a name in `dir`, which does not count it as a subdirectory any more.
fn release(dir: &TmpInode, victim: &Arc<Node>, inode: &TmpInode, moment: Coarse) {
    if inode.is_directory() {
        // Its own `.` goes with it.
        inode.drop_link();
    }
    take_link(dir, victim, inode);
    inode.meta().touch_inode(moment);
}

/// Takes one from the inode's count, and with the last one its place among those with names.
///
/// The caller has the only handle, unless the inode is used elsewhere: then it stays known by number. A lookup of a
/// name at the very moment when it goes may be missed here, and has an inode without a name that is not found by
/// number; that cannot be told from a lookup a moment later.
fn take_link(dir: &TmpInode, node: &Arc<Node>, inode: &TmpInode) {
    if !inode.drop_link() {
        return;
    }
    if Arc::strong_count(node) > ITS_OWN_AND_THE_TABLE_S {
        inode.stay_known();
        dir.home().know_unnamed(node);
    } else {
        dir.home().forget(node.ino());
    }
}

/// The handles of an unused inode whose last name is being removed.
const ITS_OWN_AND_THE_TABLE_S: usize = 2;
