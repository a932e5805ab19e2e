//! Moving names: rename, replacing or not, and exchange.
//!
//! Most moves are of a file, and replace at most a file: that takes the locks of the two names and no others. So they
//! are taken first, and released again only if a directory is found to be involved. Then what is moved and what is
//! replaced decides which locks are needed: both are looked up first, and again under the locks, and if anything has
//! changed meanwhile everything starts anew.
//!
//! **Directories that go to another directory** take the rename lock, so that nothing above them moves while it is
//! made sure that no directory becomes its own ancestor. **A directory that is replaced** has its barrier raised, as
//! one that is removed.
//!
//! Lock order: rename lock, barrier of the replaced directory, the two names, the state of what is replaced. Of the
//! two names one may be locked before the other if that one is not waited for.

use std::sync::Arc;

use undercroft_sync::MutexGuard;

use super::locks::{Locked, Raised};
use super::{check_changeable, check_nailed, may_remove, stay_in_table};
use crate::permission::check_access_of;
use crate::place;
use crate::{
    Access, Corruption, Credentials, DeviceNumber, Error, FileType, HashedName, NewInode, NewKind, NewObject,
    Node, RenameFlags, Result, Vfs,
};

/// A name in a directory.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: &'a Arc<Node>,
    name: &'a HashedName<'a>,
}

impl Vfs {
    /// Moves what `from` names to `to`, a name in the same or another directory. What `to` named before is
    /// replaced in one step.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`Exists`](Error::Exists) with [`NO_REPLACE`](RenameFlags::NO_REPLACE),
    /// [`NotDirectory`](Error::NotDirectory) and [`IsDirectory`](Error::IsDirectory) where only one of the two is
    /// a directory, [`NotEmpty`](Error::NotEmpty), [`InvalidArgument`](Error::InvalidArgument) for a directory
    /// that would get into itself, [`Busy`](Error::Busy) for `.`, `..` and the root,
    /// [`PermissionDenied`](Error::PermissionDenied), [`NotPermitted`](Error::NotPermitted),
    /// [`ReadOnly`](Error::ReadOnly); the filesystem's own.
    pub fn rename(
        &self,
        caller: &Credentials,
        from: (&Arc<Node>, &[u8]),
        to: (&Arc<Node>, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let to_name = HashedName::new(to.1);
        let to = Place { dir: to.0, name: &to_name };
        // As early as can be: the other name is at hand.
        self.locks().expect(to.dir, to.name);
        to.dir.inode().expect_name(to.name);
        let name = HashedName::new(from.1);
        let from = Place { dir: from.0, name: &name };
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if flags.bits() & !RenameFlags::all().bits() != 0
            || (exchange && flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT))
        {
            return Err(Error::InvalidArgument("these ways to rename exclude each other"));
        }
        let is_dots = |name: &[u8]| name == b"." || name == b"..";
        if is_dots(from.name) {
            return Err(Error::Busy);
        }
        if is_dots(to.name) {
            return Err(if flags.contains(RenameFlags::NO_REPLACE) { Error::Exists } else { Error::Busy });
        }
        from.dir.directory()?;
        to.dir.directory()?;
        if let Some(renamed) = self.rename_file(caller, from, to, flags) {
            return renamed;
        }
        // Handles go after all locks.
        let mut handles = Vec::new();
        loop {
            if self.try_rename(caller, from, to, flags, &mut handles)? {
                return Ok(());
            }
        }
    }

    /// Moves a file that replaces at most a file; `None` if a directory is involved.
    fn rename_file(
        &self,
        caller: &Credentials,
        from: Place<'_>,
        to: Place<'_>,
        flags: RenameFlags,
    ) -> Option<Result<()>> {
        // Handles go after the locks.
        let (moved, target);
        let (_names, _table);
        (_names, _table, moved) = self.lock_and_find(caller, from, to)?;
        if self.moves_to_new_name(caller, from, to, &moved, flags) {
            return Some(Ok(()));
        }
        target = self.find_locked(caller, to).ok()?;
        let is_directory = |node: &Arc<Node>| node.kind() == FileType::Directory;
        if is_directory(&moved) || target.as_ref().is_some_and(is_directory) {
            return None;
        }
        if target.is_none() && flags.contains(RenameFlags::EXCHANGE) {
            return Some(Err(Error::NotFound));
        }
        if target.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
            return Some(Err(Error::Exists));
        }
        Some(self.rename_locked(caller, from, to, &moved, target.as_ref(), flags, None))
    }

    /// Tries to move a file to a name that is not cached, without a lookup: a filesystem that does not keep nodes
    /// checks for the name when it adds it. If it refuses, the existing name decides the error.
    fn moves_to_new_name(
        &self,
        caller: &Credentials,
        from: Place<'_>,
        to: Place<'_>,
        moved: &Arc<Node>,
        flags: RenameFlags,
    ) -> bool {
        let is_unknown = to.dir.children().is_some_and(|children| children.get(to.name).is_none());
        is_unknown
            && moved.kind() != FileType::Directory
            && !flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT)
            && self.check_name(to.name).is_ok()
            && self.rename_locked(caller, from, to, moved, None, flags, None).is_ok()
    }

    /// Locks both names and finds what is moved, while the lock of the added name is prefetched: a thread that has
    /// made a file and gives it its final name has the lock of the old name in its cache, and most likely not the
    /// other one.
    fn lock_and_find<'a>(
        &'a self,
        caller: &Credentials,
        from: Place<'a>,
        to: Place<'a>,
    ) -> Option<(Locked<'a>, Option<impl Drop>, Arc<Node>)> {
        if let Some(removed) = self.locks().remove_first(from.dir, from.name) {
            let table = stay_in_table(from.dir);
            let moved = self.find_locked(caller, from).ok()??;
            if let Some(names) = self.locks().try_add_too(removed, to.dir, to.name) {
                return Some((names, table, moved));
            }
        }
        let names = self.locks().move_name((from.dir, from.name), (to.dir, to.name), None).ok()?;
        let table = stay_in_table(from.dir);
        let moved = self.find_locked(caller, from).ok()??;
        Some((names, table, moved))
    }

    /// `false` when the names changed while their locks were taken.
    fn try_rename(
        &self,
        caller: &Credentials,
        from: Place<'_>,
        to: Place<'_>,
        flags: RenameFlags,
        handles: &mut Vec<Arc<Node>>,
    ) -> Result<bool> {
        let moved = self.find(caller, from)?.ok_or(Error::NotFound)?;
        let target = self.find(caller, to)?;
        handles.push(Arc::clone(&moved));
        handles.extend(target.clone());
        let exchange = flags.contains(RenameFlags::EXCHANGE);

        let moves = self.lock_moves(from, to, &moved, target.as_ref());
        // This error is returned only if both names exist; it stays true while the rename lock is held.
        let ancestry = match moves {
            Some(_) => self.check_ancestry(from, to, &moved, target.as_ref(), exchange)?,
            None => None,
        };
        let raised = match &target {
            // The same directory under both names stays as it is.
            Some(victim)
                if !exchange
                    && ancestry.is_none()
                    && victim.kind() == FileType::Directory
                    && moved.kind() == FileType::Directory
                    && !Arc::ptr_eq(victim, &moved)
                    && victim.ino() != self.root_ino() =>
            {
                // Its own raised barrier would be waited for.
                if Arc::ptr_eq(victim, to.dir) {
                    return Err(place::leads_to_itself(to.dir, to.name));
                }
                match self.locks().raise(victim) {
                    Err(Error::NotFound) => {
                        self.expect_gone(to.dir, to.name, victim)?;
                        return Ok(false);
                    }
                    raised => Some(raised?),
                }
            }
            _ => None,
        };
        let _names = match self.locks().move_name((from.dir, from.name), (to.dir, to.name), raised.as_ref()) {
            Err(Error::Busy) => return Ok(false),
            names => names?,
        };
        let same = |now: &Option<Arc<Node>>, then: Option<&Arc<Node>>| {
            now.as_ref().map(Arc::as_ptr) == then.map(Arc::as_ptr)
        };
        let (moved_now, target_now) = (self.find_locked(caller, from)?, self.find_locked(caller, to)?);
        if !same(&moved_now, Some(&moved)) || !same(&target_now, target.as_ref()) {
            handles.extend(moved_now);
            handles.extend(target_now);
            return Ok(false);
        }
        handles.extend(moved_now);
        handles.extend(target_now);
        match (&target, ancestry) {
            (None, _) if exchange => return Err(Error::NotFound),
            (Some(_), _) if flags.contains(RenameFlags::NO_REPLACE) => return Err(Error::Exists),
            (_, Some(refusal)) => return Err(refusal),
            _ => {}
        }
        self.rename_locked(caller, from, to, &moved, target.as_ref(), flags, raised)?;
        Ok(true)
    }

    /// Checks and does it, with everything locked.
    #[expect(clippy::too_many_arguments, reason = "two names, what they stand for, and how")]
    fn rename_locked(
        &self,
        caller: &Credentials,
        from: Place<'_>,
        to: Place<'_>,
        moved: &Arc<Node>,
        target: Option<&Arc<Node>>,
        flags: RenameFlags,
        raised: Option<Raised<'_>>,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        self.check_writable()?;
        if moved.ino() == self.root_ino() || target.is_some_and(|target| target.ino() == self.root_ino()) {
            return Err(Error::Busy);
        }
        // Two names of one file: nothing to do, says POSIX.
        if target.is_some_and(|target| Arc::ptr_eq(target, moved)) {
            return Ok(());
        }
        may_remove(caller, from.dir, &moved.ownership())?;
        let is_directory = |node: &Node| node.kind() == FileType::Directory;
        match target {
            None => {
                let attr = to.dir.ownership();
                check_access_of(caller, to.dir, &attr, Access::WRITE | Access::EXECUTE)?;
                check_changeable(&attr)?;
            }
            Some(target) => {
                may_remove(caller, to.dir, &target.ownership())?;
                match (is_directory(moved), is_directory(target)) {
                    (true, false) if !exchange => return Err(Error::NotDirectory),
                    (false, true) if !exchange => return Err(Error::IsDirectory),
                    _ => {}
                }
            }
        }
        if !Arc::ptr_eq(from.dir, to.dir) {
            // Its `..` changes.
            for node in [Some(moved), target.filter(|_| exchange)].into_iter().flatten() {
                if is_directory(node) {
                    check_access_of(caller, node, &node.ownership(), Access::WRITE)?;
                }
            }
        }
        self.forget(from.dir, from.name);
        self.forget(to.dir, to.name);
        if exchange {
            let other = target.ok_or(Error::NotFound)?;
            check_nailed(&other.ownership())?;
            from.dir.inode().exchange(from.name, moved, to.dir, to.name, other)?;
            self.forget_parent(moved);
            self.forget_parent(other);
            Self::set_place(to.dir, to.name, moved);
            Self::set_place(from.dir, from.name, other);
            return Ok(());
        }
        // It may lose its last name; see `mod.rs`.
        let _state = target.map(|target| target.state().read());
        let rename = |whiteout: Option<&NewInode<'_>>| {
            from.dir.inode().rename(from.name, moved, to.dir, to.name, target, whiteout)
        };
        if flags.contains(RenameFlags::WHITEOUT) {
            let object =
                NewObject { kind: NewKind::CharDevice(DeviceNumber::default()), permissions: 0, umask: 0 };
            self.with_new_inode(caller, from.dir, &from.dir.ownership(), &object, |new| rename(Some(new)))?;
        } else {
            rename(None)?;
        }
        self.forget_parent(moved);
        Self::set_place(to.dir, to.name, moved);
        self.remember(to.dir, to.name, moved);
        if let Some(replaced) = target {
            self.drop_unless_named(replaced);
        }
        if let Some(raised) = raised {
            raised.removed();
        }
        Ok(())
    }

    /// Drops the cached `..` of a directory that has moved.
    fn forget_parent(&self, moved: &Node) {
        if moved.kind() == FileType::Directory {
            self.forget(moved, &HashedName::new(b".."));
        }
    }

    /// The rename lock, if a directory may get another parent, or is replaced from elsewhere.
    fn lock_moves(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        moved: &Node,
        target: Option<&Arc<Node>>,
    ) -> Option<MutexGuard<'_, ()>> {
        let is_directory = |node: &Node| node.kind() == FileType::Directory;
        let needed = !Arc::ptr_eq(from.dir, to.dir)
            && (is_directory(moved) || target.is_some_and(|target| is_directory(target)));
        needed.then(|| self.locks().rename())
    }

    /// Why this would make a directory its own ancestor, or remove one that contains the other name; `None` if it
    /// would not. The rename lock is held.
    fn check_ancestry(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        moved: &Arc<Node>,
        target: Option<&Arc<Node>>,
        exchange: bool,
    ) -> Result<Option<Error>> {
        let into_itself = Error::InvalidArgument("a directory cannot be moved into itself");
        if moved.kind() == FileType::Directory && self.is_at_or_above(moved, to.dir)? {
            return Ok(Some(into_itself));
        }
        let Some(target) = target.filter(|target| target.kind() == FileType::Directory) else {
            return Ok(None);
        };
        let contains = self.is_at_or_above(target, from.dir)?;
        Ok(contains.then_some(if exchange { into_itself } else { Error::NotEmpty }))
    }

    /// Whether `above` is `dir` or one of its ancestors.
    fn is_at_or_above(&self, above: &Arc<Node>, dir: &Arc<Node>) -> Result<bool> {
        let mut at = Arc::clone(dir);
        for _ in 0..DEPTH_MAX {
            if Arc::ptr_eq(&at, above) {
                return Ok(true);
            }
            if at.ino() == self.root_ino() {
                return Ok(false);
            }
            at = match self.lookup(&at, b"..") {
                // The directory was removed, and then its parent: nothing is above it any more.
                Err(Error::Stale) => return Ok(false),
                parent => parent?,
            };
        }
        // A tree whose `..` runs in a circle.
        let detail = format!("the root is not among the first {DEPTH_MAX} directories above it");
        let ino = Some(dir.ino());
        Err(Corruption { structure: "directory tree", ino, block: None, detail: detail.into() }.into())
    }

    fn find(&self, caller: &Credentials, place: Place<'_>) -> Result<Option<Arc<Node>>> {
        check_access_of(caller, place.dir, &place.dir.ownership(), Access::EXECUTE)?;
        found(self.lookup_hashed(place.dir, place.name))
    }

    fn find_locked(&self, caller: &Credentials, place: Place<'_>) -> Result<Option<Arc<Node>>> {
        found(self.look_up_locked(caller, place.dir, place.name))
    }
}

/// More directories than any path leads through: a path has at most 4095 bytes, but a tree may be built deeper by
/// moving its parts together.
const DEPTH_MAX: u32 = 1 << 20;

fn found(looked: Result<Arc<Node>>) -> Result<Option<Arc<Node>>> {
    match looked {
        Ok(node) => Ok(Some(node)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
