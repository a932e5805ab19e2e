//! Whole operations by path, in the manner of [`std::fs`]: the calls for programs that use a filesystem as a library.
//!
//! | module       | holds                                                        |
//! | ------------ | ------------------------------------------------------------ |
//! | this one     | reading and writing whole files, making, renaming, removing  |
//! | `read_dir`   | a directory's entries, one by one                            |
//! | `remove_all` | a directory and everything below it                          |
//!
//! Each call resolves its paths (see `path.rs`) and uses the calls by node; between the two another thread may change
//! what a path stands for, as between two system calls. Paths are bytes: `&str` and `&[u8]` are taken as they are, a
//! [`Path`](std::path::Path) by its `as_os_str().as_encoded_bytes()`. Relative paths start at the root.
//!
//! New files get the permissions 0644 and new directories 0755, less nothing: there is no umask. For others there are
//! [`Vfs::create_at`] and [`Vfs::set_attr`].

mod read_dir;
mod remove_all;

use std::sync::Arc;

pub use self::read_dir::{ReadDir, ReadDirEntry};

use crate::path::check_path;
use crate::{
    Access, Credentials, Error, File, FileType, Follow, NewKind, NewObject, Node, RenameFlags, Result, Vfs,
    check_access,
};

/// Largest file that [`Vfs::read`] reads at once. A size on a disk is not trusted, and a hole of any size takes no
/// space.
const READ_MAX_BYTES: u64 = 1 << 30;

/// A path's last name, and what is before it.
struct Split<'a> {
    parent: &'a [u8],
    name: &'a [u8],
    /// Slashes after the name: it must be a directory.
    slashes: bool,
}

impl<'a> Split<'a> {
    /// `None` for a path without a name: the root, or nothing.
    fn of(path: &'a [u8]) -> Option<Self> {
        let end = path.iter().rposition(|&byte| byte != b'/')? + 1;
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let parent = if start == 0 { b"/" } else { &path[..start] };
        Some(Self { parent, name: &path[start..end], slashes: end < path.len() })
    }
}

impl Vfs {
    /// The content of the regular file that a path stands for.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a file of more than 1 GiB, which a program
    /// [opens](Self::open) and reads in parts; otherwise as for [`open`](Self::open) and [`File::read_at`].
    pub fn read(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let file = self.open(caller, path)?;
        let size = file.size_bytes();
        if size > READ_MAX_BYTES {
            return Err(Error::InvalidArgument("the file has more than 1 GiB: open it and read it in parts"));
        }
        let mut content = vec![0; size as usize];
        let read = file.read_at(0, &mut content)?;
        content.truncate(read);
        Ok(content)
    }

    /// Makes `content` the content of the regular file that a path stands for, which is made if it is missing.
    ///
    /// # Errors
    /// As for [`create_file`](Self::create_file) and [`File::write_all_at`]; a part may have been written then.
    pub fn write(
        &self,
        caller: &Credentials,
        path: impl AsRef<[u8]>,
        content: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.create_file(caller, path)?.write_all_at(0, content.as_ref())
    }

    /// Opens a regular file for reading and writing. One that is there loses its content, and, as on Linux, its
    /// capabilities and what else a change by `caller` takes from it; one that is missing is made, with permissions 0644.
    ///
    /// # Errors
    /// [`Exists`](Error::Exists) for a symbolic link that leads nowhere, through which no file is made; otherwise as for
    /// [`open_for_writing`](Self::open_for_writing), [`create_at`](Self::create_at) and [`File::truncate`].
    pub fn create_file(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<File> {
        let (file, is_new) = self.open_or_make(caller, path.as_ref())?;
        if !is_new {
            empty(caller, &file)?;
        }
        Ok(file)
    }

    /// Opens a file that is there, or makes one; whether it is new.
    fn open_or_make(&self, caller: &Credentials, path: &[u8]) -> Result<(File, bool)> {
        if let Some(split @ Split { slashes: true, .. }) = Split::of(path) {
            return self.directory_before(caller, path, &split).and(Err(Error::IsDirectory));
        }
        match self.open_for_writing(caller, path) {
            Err(Error::NotFound) => {}
            answer => return answer.map(|file| (file, false)),
        }
        match self.create_at(caller, path, &NewObject::file(0o644)) {
            Ok(node) => Ok((self.open_node_for_writing(&node)?, true)),
            // Another thread has made it, or it is a link.
            Err(Error::Exists) => match self.open_for_writing(caller, path) {
                Err(Error::NotFound) => Err(Error::Exists),
                answer => answer.map(|file| (file, false)),
            },
            Err(error) => Err(error),
        }
    }

    /// Lets the file `to` have the content of `from` by sharing its blocks, at no cost of time or space; each is written to
    /// apart from the other afterwards. A file that is there at `to` loses what it had, and one that is missing is made, as
    /// [`create_file`](Self::create_file) does.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) from a filesystem that shares no blocks, before anything has changed; otherwise as
    /// for [`open`](Self::open), [`create_file`](Self::create_file) and [`File::clone_range`], after which the new file may
    /// have a part of the content.
    pub fn clone_file(
        &self,
        caller: &Credentials,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> Result<()> {
        let source = self.open(caller, from)?;
        if !source.node().inode().shares_blocks() {
            return Err(Error::Unsupported("files with blocks in common".into()));
        }
        let (target, is_new) = self.open_or_make(caller, to.as_ref())?;
        // Of the file that was opened, before it loses anything: its name may have become another's meanwhile.
        if Arc::ptr_eq(target.node(), source.node()) {
            return Err(Error::InvalidArgument("a file cannot be a clone of itself"));
        }
        if !is_new {
            empty(caller, &target)?;
        }
        source.clone_range(0, &target, 0, 0)
    }

    /// Makes an object of any kind and gives it a path.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve) and [`create`](Self::create); [`NotFound`](Error::NotFound) for a slash behind
    /// the name of what is no directory.
    pub fn create_at(
        &self,
        caller: &Credentials,
        path: impl AsRef<[u8]>,
        object: &NewObject<'_>,
    ) -> Result<Arc<Node>> {
        let path = path.as_ref();
        let Some(split) = Split::of(path) else {
            return Err(if path.is_empty() { Error::NotFound } else { Error::Exists });
        };
        let dir = self.directory_before(caller, path, &split)?;
        if split.slashes && object.kind != NewKind::Directory {
            let there = self.look_in(caller, &dir, split.name);
            return Err(there.err().unwrap_or(Error::Exists));
        }
        self.create(caller, &dir, split.name, object)
    }

    /// Makes a directory, with permissions 0755.
    ///
    /// # Errors
    /// As for [`create_at`](Self::create_at).
    pub fn create_dir(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<()> {
        self.create_at(caller, path, &NewObject::directory(0o755)).map(drop)
    }

    /// Makes a directory and those above it that are missing, with permissions 0755. One that is there already is
    /// good, too.
    ///
    /// # Errors
    /// [`Exists`](Error::Exists) and [`NotDirectory`](Error::NotDirectory) for what is there and no directory;
    /// otherwise as for [`create_at`](Self::create_at). Directories that were made stay.
    pub fn create_dir_all(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        if path.is_empty() {
            return Ok(());
        }
        match self.make_directory(caller, path) {
            Err(Error::NotFound) => {}
            answer => return answer,
        }
        // From the top down, each part as long as the path is that leads to it.
        let ends = path.iter().enumerate().filter(|&(at, &byte)| byte == b'/' && at > 0).map(|(at, _)| at);
        ends.chain([path.len()]).try_for_each(|end| self.make_directory(caller, &path[..end]))
    }

    /// Makes a directory, unless there is one.
    fn make_directory(&self, caller: &Credentials, path: &[u8]) -> Result<()> {
        let made = self.create_dir(caller, path);
        match made {
            Err(_) if matches!(self.resolve(caller, path, Follow::Last), Ok(node) if node.kind() == FileType::Directory) => {
                Ok(())
            }
            made => made,
        }
    }

    /// Removes the name of anything but a directory. A symbolic link goes itself, not what it leads to.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve) and [`unlink`](Self::unlink).
    pub fn remove_file(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let Some(split) = Split::of(path) else {
            return Err(if path.is_empty() { Error::NotFound } else { Error::IsDirectory });
        };
        let dir = self.directory_before(caller, path, &split)?;
        if split.slashes {
            let directory = self.look_in(caller, &dir, split.name)?.kind() == FileType::Directory;
            return Err(if directory { Error::IsDirectory } else { Error::NotDirectory });
        }
        self.unlink(caller, &dir, split.name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve) and [`rmdir`](Self::rmdir).
    pub fn remove_dir(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let Some(split) = Split::of(path) else {
            return Err(if path.is_empty() { Error::NotFound } else { Error::Busy });
        };
        let dir = self.directory_before(caller, path, &split)?;
        self.rmdir(caller, &dir, split.name)
    }

    /// Moves what one path stands for to another, in place of what stands there.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve) and [`rename`](Self::rename), which moves names of directories.
    pub fn rename_path(
        &self,
        caller: &Credentials,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        if from.is_empty() || to.is_empty() {
            return Err(Error::NotFound);
        }
        let (Some(old), Some(new)) = (Split::of(from), Split::of(to)) else { return Err(Error::Busy) };
        let old_dir = self.directory_before(caller, from, &old)?;
        let new_dir = self.directory_before(caller, to, &new)?;
        if old.slashes || new.slashes {
            let moved = self.look_in(caller, &old_dir, old.name)?;
            if moved.kind() != FileType::Directory {
                return Err(Error::NotDirectory);
            }
        }
        self.rename(caller, (&old_dir, old.name), (&new_dir, new.name), flags)
    }

    /// The directory in which a path's last name stands.
    fn directory_before(&self, caller: &Credentials, path: &[u8], split: &Split<'_>) -> Result<Arc<Node>> {
        check_path(path)?;
        let dir = self.resolve(caller, split.parent, Follow::Last)?;
        if dir.kind() == FileType::Directory { Ok(dir) } else { Err(Error::NotDirectory) }
    }

    /// What a name in a directory stands for, if `caller` may look there.
    fn look_in(&self, caller: &Credentials, dir: &Arc<Node>, name: &[u8]) -> Result<Arc<Node>> {
        check_access(caller, dir, Access::EXECUTE)?;
        self.lookup(dir, name)
    }
}

/// Takes the content of a file away, and what else a change by `caller` takes from it.
fn empty(caller: &Credentials, file: &File) -> Result<()> {
    if !caller.override_dac {
        file.drop_privilege_bits()?;
    }
    file.drop_capabilities()?;
    file.truncate(0)
}
