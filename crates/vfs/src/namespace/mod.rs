//! The namespace: creating, linking and removing names, the same for every filesystem.
//!
//! An inode that gets another name has its state locked exclusively, one that loses a name shared: otherwise a file
//! could lose its last name after a link to it was counted and before the link is there.
//!
//! Called with a directory's node and a name in it. Checks what POSIX has checked (the order of refusals is Linux's),
//! decides the owner of a new object, locks the names that change (see `locks.rs`), calls the filesystem, and updates
//! the name cache. Moving names is in `rename.rs`.
//!
//! A server whose kernel has checked permissions already passes credentials that override them.

mod barrier;
mod inherit;
mod locks;
mod rename;

use std::sync::Arc;

pub(crate) use barrier::RemovalBarrier;
pub(crate) use inherit::inherit;
pub(crate) use locks::NamespaceLocks;

use self::inherit::Inherited;
use crate::acl;
use crate::name_table;
use crate::permission::{check_access_of, check_delete_of};
use crate::place;
use crate::{
    Access, Credentials, Error, FileType, HashedName, InodeFlags, NewInode, NewKind, NewObject, Node,
    Ownership, Result, Vfs, new_file_owner,
};

/// Longest target of a symbolic link in bytes, as Linux has it.
const SYMLINK_MAX_BYTES: usize = 4095;

impl Vfs {
    /// Makes an object and gives it a name.
    ///
    /// # Errors
    /// [`Exists`](Error::Exists), [`NotFound`](Error::NotFound) for a directory that has been removed,
    /// [`PermissionDenied`](Error::PermissionDenied), [`NotPermitted`](Error::NotPermitted) in an immutable
    /// directory, [`ReadOnly`](Error::ReadOnly), [`NotDirectory`](Error::NotDirectory),
    /// [`NameTooLong`](Error::NameTooLong), [`InvalidArgument`](Error::InvalidArgument) for a name or a link's
    /// target that cannot be; the filesystem's own, [`NoSpace`](Error::NoSpace) first.
    pub fn create(
        &self,
        caller: &Credentials,
        dir: &Arc<Node>,
        name: &[u8],
        object: &NewObject<'_>,
    ) -> Result<Arc<Node>> {
        let name = &HashedName::new(name);
        self.locks().expect(dir, name);
        dir.inode().expect_name(name);
        self.check_new_name(name)?;
        check_symlink(object)?;
        let attr = dir.ownership();
        // Decided and made while the name's lock is being fetched.
        self.with_new_inode(caller, dir, &attr, object, |new| {
            let made = dir.inode().make_ahead(new);
            let _name = self.locks().add(dir, name)?;
            self.may_add(caller, dir, &attr, name)?;
            let node = self.node_of(dir.inode().create(name, new, made)?)?;
            Self::set_place(dir, name, &node);
            self.remember(dir, name, &node);
            Ok(node)
        })
    }

    /// Makes a regular file without a name (`O_TMPFILE`), which goes with its last handle unless it is linked. Its
    /// owner is decided as for a file in `dir`.
    ///
    /// # Errors
    /// As for [`create`](Self::create), less those about names.
    pub fn tmpfile(
        &self,
        caller: &Credentials,
        dir: &Arc<Node>,
        permissions: u16,
        umask: u16,
    ) -> Result<Arc<Node>> {
        dir.directory()?;
        let attr = dir.ownership();
        check_access_of(caller, dir, &attr, Access::WRITE | Access::EXECUTE)?;
        self.check_writable()?;
        check_changeable(&attr)?;
        let object = NewObject { kind: NewKind::Regular, permissions, umask };
        self.with_new_inode(caller, dir, &attr, &object, |new| {
            let node = self.node_of(dir.inode().tmpfile(new)?)?;
            self.drop_unless_named(&node);
            Ok(node)
        })
    }

    /// Gives an object another name.
    ///
    /// # Errors
    /// [`NotPermitted`](Error::NotPermitted) for a directory and for what is immutable or append-only; otherwise
    /// as for [`create`](Self::create).
    pub fn link(&self, caller: &Credentials, node: &Arc<Node>, dir: &Arc<Node>, name: &[u8]) -> Result<()> {
        self.check_new_name(name)?;
        let name = &HashedName::new(name);
        let _name = self.locks().add(dir, name)?;
        self.may_add(caller, dir, &dir.ownership(), name)?;
        let refused = if node.kind() == FileType::Directory {
            Err(Error::NotPermitted)
        } else {
            check_nailed(&node.ownership())
        };
        if refused.is_err() && self.look_up_locked(caller, dir, name).is_ok() {
            return Err(Error::Exists);
        }
        refused?;
        // No other name of it is taken between its being counted and its being there.
        let _state = node.state().write();
        dir.inode().link(name, node)?;
        self.remember(dir, name, node);
        Ok(())
    }

    /// Removes the name of anything but a directory.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`IsDirectory`](Error::IsDirectory),
    /// [`PermissionDenied`](Error::PermissionDenied), [`NotPermitted`](Error::NotPermitted) in a sticky
    /// directory and for what is immutable or append-only, [`ReadOnly`](Error::ReadOnly); the filesystem's own.
    pub fn unlink(&self, caller: &Credentials, dir: &Arc<Node>, name: &[u8]) -> Result<()> {
        if name == b"." || name == b".." {
            return Err(Error::IsDirectory);
        }
        let name = &HashedName::new(name);
        let victim;
        {
            let _name = self.locks().remove(dir, name)?;
            let _table = stay_in_table(dir);
            victim = self.look_up_locked(caller, dir, name)?;
            self.check_writable()?;
            may_remove(caller, dir, &victim.ownership())?;
            if victim.kind() == FileType::Directory {
                return Err(Error::IsDirectory);
            }
            let _state = victim.state().read();
            self.take_name(dir, name, &victim)?;
        }
        // The last handle goes after the name's lock.
        drop(victim);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`NotEmpty`](Error::NotEmpty), [`NotDirectory`](Error::NotDirectory), [`Busy`](Error::Busy) for the root,
    /// [`InvalidArgument`](Error::InvalidArgument) for `.`; otherwise as for [`unlink`](Self::unlink).
    pub fn rmdir(&self, caller: &Credentials, dir: &Arc<Node>, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(Error::InvalidArgument("\".\" cannot be removed")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        let name = &HashedName::new(name);
        dir.directory()?;
        loop {
            check_access_of(caller, dir, &dir.ownership(), Access::EXECUTE)?;
            let victim = self.lookup_hashed(dir, name)?;
            if victim.kind() != FileType::Directory {
                self.check_writable()?;
                may_remove(caller, dir, &victim.ownership())?;
                return Err(Error::NotDirectory);
            }
            if victim.ino() == self.root_ino() {
                return Err(Error::Busy);
            }
            let raised = match self.locks().raise(&victim) {
                // Another thread has removed it; the name may stand for another directory by now.
                Err(Error::NotFound) => {
                    self.expect_gone(dir, name, &victim)?;
                    continue;
                }
                raised => raised?,
            };
            let _name = self.locks().remove(dir, name)?;
            if !Arc::ptr_eq(&victim, &self.look_up_locked(caller, dir, name)?) {
                continue;
            }
            self.check_writable()?;
            may_remove(caller, dir, &victim.ownership())?;
            dir.inode().unlink(name, &victim)?;
            self.forget(dir, name);
            self.drop_unless_named(&victim);
            raised.removed();
            return Ok(());
        }
    }

    /// Refuses a name that leads to a directory that was removed: each thread that removes or replaces one takes its
    /// name away before the barrier says so, and a directory has no other name unless the disk is damaged. So a retry
    /// after this has its reason in another thread's progress.
    fn expect_gone(&self, dir: &Node, name: &HashedName<'_>, removed: &Arc<Node>) -> Result<()> {
        let _name = self.locks().share(dir, name);
        match self.look_and_remember(dir, name) {
            Ok(node) if Arc::ptr_eq(&node, removed) => Err(place::removed(dir, name, removed)),
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What `name` stands for, while its lock is held.
    fn look_up_locked(&self, caller: &Credentials, dir: &Node, name: &HashedName<'_>) -> Result<Arc<Node>> {
        check_access_of(caller, dir, &dir.ownership(), Access::EXECUTE)?;
        if let Some(known) = dir.children().and_then(|children| children.node(name)) {
            return Ok(known);
        }
        self.check_name(name)?;
        self.look_and_remember(dir, name)
    }

    /// Refuses unless `caller` may add `name`. `Exists` for a name that exists comes before any other error.
    fn may_add(
        &self,
        caller: &Credentials,
        dir: &Node,
        attr: &Ownership,
        name: &HashedName<'_>,
    ) -> Result<()> {
        let may = check_access_of(caller, dir, attr, Access::WRITE | Access::EXECUTE)
            .and_then(|()| self.check_writable())
            .and_then(|()| check_changeable(attr));
        // The filesystem checks for the name when it adds it; a hit in the cache is faster.
        if may.is_ok() {
            let exists = dir.children().is_some_and(|children| children.has(name));
            return if exists { Err(Error::Exists) } else { Ok(()) };
        }
        check_access_of(caller, dir, attr, Access::EXECUTE)?;
        match self.look_up_locked(caller, dir, name) {
            Ok(_) => Err(Error::Exists),
            Err(Error::NotFound) => may,
            Err(error) => Err(error),
        }
    }

    fn check_new_name(&self, name: &[u8]) -> Result<()> {
        if name == b"." || name == b".." {
            return Err(Error::Exists);
        }
        self.check_name(name)
    }

    /// Removes a name of anything but a directory, and drops its entries in the caches.
    fn take_name(&self, dir: &Node, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
        // First, because the name cache hands out nodes too, and the check below must see all users of this one.
        self.forget(dir, name);
        if let Some(leaving) = self.leave_with_last_name(victim) {
            dir.inode().unlink_unused(name, victim)?;
            leaving.gone();
            return Ok(());
        }
        dir.inode().unlink(name, victim)?;
        self.drop_unless_named(victim);
        Ok(())
    }

    /// Decides owner, permissions and lists of a new object and hands it to `make`.
    fn with_new_inode<R>(
        &self,
        caller: &Credentials,
        dir: &Node,
        attr: &Ownership,
        object: &NewObject<'_>,
        make: impl FnOnce(&NewInode<'_>) -> Result<R>,
    ) -> Result<R> {
        let owner = new_file_owner(caller, attr, object.kind.file_type(), object.permissions);
        let NewObject { kind, umask, .. } = *object;
        let Inherited { permissions, access, default } =
            inherit(dir, kind.file_type(), owner.permissions, umask)?;
        let mut xattrs: [(&[u8], &[u8]); 2] = [(b"", b""); 2];
        let mut count = 0;
        for (name, list) in [(acl::ACCESS_XATTR, &access), (acl::DEFAULT_XATTR, &default)] {
            if let Some(list) = list {
                xattrs[count] = (name, list);
                count += 1;
            }
        }
        let being_made = self.being_made();
        make(&NewInode {
            kind,
            permissions,
            uid: owner.uid,
            gid: owner.gid,
            xattrs: &xattrs[..count],
            announce: being_made.announce(),
        })
    }

    fn remember(&self, dir: &Node, name: &HashedName<'_>, node: &Arc<Node>) {
        if let Some(children) = dir.children() {
            children.insert(name, node);
        }
    }

    fn forget(&self, dir: &Node, name: &HashedName<'_>) {
        if let Some(children) = dir.children() {
            children.remove(name);
        }
    }
}

/// Makes several lookups in a directory in memory cheaper. Called only after the names are locked: that may take long,
/// and while this is held nothing that was removed can be freed.
fn stay_in_table(dir: &Node) -> Option<impl Drop> {
    dir.children().is_none().then(name_table::stay)
}

fn check_symlink(object: &NewObject<'_>) -> Result<()> {
    let NewKind::Symlink(target) = object.kind else { return Ok(()) };
    match target {
        [] => Err(Error::NotFound),
        target if target.len() > SYMLINK_MAX_BYTES => Err(Error::NameTooLong),
        target if target.contains(&0) => {
            Err(Error::InvalidArgument("a link's target cannot hold a NUL byte"))
        }
        _ => Ok(()),
    }
}

/// Refuses to add names to an immutable directory.
fn check_changeable(dir: &Ownership) -> Result<()> {
    if dir.flags.contains(InodeFlags::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Refuses to give another name to, or to take one from, what is immutable or can only be appended to.
fn check_nailed(attr: &Ownership) -> Result<()> {
    let nailed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if attr.flags.intersects(nailed) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Refuses unless `caller` may take the name of `victim` out of `dir`.
fn may_remove(caller: &Credentials, dir: &Node, victim: &Ownership) -> Result<()> {
    let attr = dir.ownership();
    check_delete_of(caller, dir, &attr, victim)?;
    check_nailed(&attr)?;
    check_nailed(victim)
}
