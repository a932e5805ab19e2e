//! Puts entries into a filesystem.
//!
//! | module      | holds                                                         |
//! | ----------- | ------------------------------------------------------------- |
//! | this one    | entries by their kinds, and the content of the file put last  |
//! | `metadata`  | owners, permissions, attributes and times                     |
//! | `one_step`  | names that change in one step                                 |
//! | `parents`   | the directory that an entry is in: looked up, or made         |
//! | `links`     | symbolic links that lead to such a directory                  |
//! | `replace`   | what is there already                                         |
//! | `xattrs`    | attributes that Linux keeps                                   |
//!
//! Later entries replace earlier ones, and directories stay, as GNU tar does. Symbolic links that were there before the
//! source began are followed within the filesystem, and a directory's entry keeps one that leads to a directory. An entry
//! below a link that the same source has made is refused.
//!
//! A directory gets its times, its set-group-ID bit and its default list at the end, so that what is put into it neither
//! changes nor inherits them.

mod links;
mod metadata;
mod one_step;
mod parents;
mod replace;
#[cfg(test)]
mod tests;
mod xattrs;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use undercroft_vfs::{
    Credentials, Error as VfsError, FallocateMode, File, FileType, Ino, NewKind, NewObject, Node, Timestamp,
    Vfs,
};

use self::metadata::Late;
use self::one_step::Pending;
pub use self::one_step::replace_in_one_step;
use self::parents::Parents;
use self::xattrs::Refusal;
pub use self::xattrs::UnkeptXattrs;
use crate::{Content, Entry, EntryKind, EntryPath, Error, Metadata, Rules};

/// How entries are put.
#[derive(Clone, Debug, Default)]
pub struct WriterOptions {
    /// The time of change of every inode that is put, and the times of directories that no entry names; now by default.
    pub changed: Option<Timestamp>,
    /// What is changed of directories that no entry names: of those that are made, which the superuser owns with
    /// permissions 0755, and of the base. Without it they inherit what their directories hand on, and the base stays as
    /// it is.
    pub unnamed: Option<Arc<Rules>>,
    /// Content is not written, and files get the space that it needs.
    pub only_space: bool,
}

/// What was put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Entries, of any kind.
    pub entries: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// What was left out of the entries.
    pub unkept_xattrs: UnkeptXattrs,
}

/// Puts entries into a filesystem, one after the other.
pub struct Writer {
    vfs: Arc<Vfs>,
    options: WriterOptions,
    parents: Parents,
    /// What directories get at the end, in the order of their inodes.
    late: BTreeMap<Ino, Late>,
    /// The regular file that was put last.
    open: Option<Open>,
    /// The symbolic links that this source has made.
    own_links: HashSet<Ino>,
    /// What is replaced stays until what replaces it is complete.
    one_step: bool,
    filled: Filled,
}

/// A regular file whose content is being written.
struct Open {
    path: EntryPath,
    file: File,
    content: Content,
    metadata: Metadata,
    /// How the file is different from what it is to be, as it was made.
    inherited: bool,
    /// The name that it gets when it is complete, if it has none yet.
    pending: Option<Pending>,
    /// How often its content was written to.
    writes: u64,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("vfs", &self.vfs).field("filled", &self.filled).finish_non_exhaustive()
    }
}

impl Writer {
    /// A writer of entries below `base`, a directory.
    #[must_use]
    pub fn new(vfs: Arc<Vfs>, base: Arc<Node>, options: WriterOptions) -> Self {
        Self {
            vfs,
            options,
            parents: Parents::new(base),
            late: BTreeMap::new(),
            open: None,
            own_links: HashSet::new(),
            one_step: false,
            filled: Filled::default(),
        }
    }

    /// Puts an entry. The content of a regular file is written next, with [`write`](Self::write).
    ///
    /// # Errors
    /// The filesystem refuses it, or it lies below what is no directory.
    pub fn put(&mut self, entry: Entry) -> Result<(), Error> {
        self.finish_file()?;
        self.filled.entries += 1;
        let Entry { path, kind, mut metadata } = entry;
        self.leave_out_xattrs(&path, &kind, &mut metadata);
        match kind {
            EntryKind::Directory => self.put_directory(&path, metadata),
            EntryKind::Regular(content) => self.put_file(path, content, metadata),
            EntryKind::HardLink(target) => self.put_link(&path, &target),
            EntryKind::Whiteout => self.remove(&path),
            EntryKind::Opaque => self.clear(&path),
            EntryKind::Symlink(target) => self.put_other(&path, NewKind::Symlink(&target), &metadata),
            EntryKind::CharDevice(number) => self.put_other(&path, NewKind::CharDevice(number), &metadata),
            EntryKind::BlockDevice(number) => self.put_other(&path, NewKind::BlockDevice(number), &metadata),
            EntryKind::Fifo => self.put_other(&path, NewKind::Fifo, &metadata),
            EntryKind::Socket => self.put_other(&path, NewKind::Socket, &metadata),
        }
    }

    /// Writes a part of the content of the regular file that was put last. What is not written stays a hole.
    ///
    /// # Errors
    /// The filesystem refuses it, or there is no such file.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let Some(open) = &mut self.open else {
            let error = VfsError::InvalidArgument("content without a file");
            return Err(Error::filesystem(EntryPath::root(), error));
        };
        self.filled.data_bytes += data.len() as u64;
        open.writes += 1;
        open.file.write_all_at(offset, data).map_err(refused(&open.path))
    }

    /// Ends the last file and gives directories what they get at the end.
    ///
    /// # Errors
    /// The filesystem refuses it.
    pub fn finish(mut self) -> Result<Filled, Error> {
        self.finish_file()?;
        self.parents.forget();
        self.dress_unnamed_base()?;
        let late = std::mem::take(&mut self.late);
        for (ino, late) in late {
            self.apply_late(ino, &late).map_err(|refusal| refusal.at(late.path()))?;
        }
        Ok(self.filled)
    }

    /// Ends after a failure: directories get what they get at the end, as far as that is possible still.
    pub fn give_up(mut self) {
        self.open = None;
        self.parents.forget();
        for (ino, late) in std::mem::take(&mut self.late) {
            // Why it failed at first says more.
            let _ = self.apply_late(ino, &late);
        }
    }

    fn put_directory(&mut self, path: &EntryPath, metadata: Metadata) -> Result<(), Error> {
        let Some((dir, name)) = path.split() else {
            let root = self.parents.base();
            return self.dress_directory(&root, path, None, metadata, false);
        };
        let dir = self.parent(path, dir)?;
        let place = self.parents.place(name);
        let object = NewObject::directory(metadata.permissions & 0o1777);
        let caller = owner(&metadata);
        let made = self.vfs.create(&caller, &dir, name, &object);
        let (node, is_new) = match made {
            Err(VfsError::Exists) => match self.vfs.lookup(&dir, name).map_err(refused(path))? {
                there if there.kind() == FileType::Directory => (there, false),
                there => match self.linked_directory(&dir, &there).map_err(refused(path))? {
                    Some(there) => (there, false),
                    None => {
                        drop(there);
                        self.vfs.unlink(&Credentials::root(), &dir, name).map_err(refused(path))?;
                        (self.vfs.create(&caller, &dir, name, &object).map_err(refused(path))?, true)
                    }
                },
            },
            made => (made.map_err(refused(path))?, true),
        };
        self.dress_directory(&node, path, Some(place), metadata, is_new)
    }

    fn put_file(&mut self, path: EntryPath, content: Content, metadata: Metadata) -> Result<(), Error> {
        let (node, inherited, pending) = if self.one_step {
            let (node, pending) = self.make_nameless(&path, &metadata)?;
            (node, self.parents.hands_on(), Some(pending))
        } else {
            let (node, inherited) = self.make(&path, NewKind::Regular, &metadata)?;
            (node, inherited, None)
        };
        let file = self.vfs.open_node_for_writing(&node).map_err(refused(&path))?;
        self.open = Some(Open { path, file, content, metadata, inherited, pending, writes: 0 });
        Ok(())
    }

    /// Ends the regular file that was put last: its size and its metadata.
    fn finish_file(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let Open { path, file, content, metadata, inherited, pending, writes } = open;
        if self.options.only_space {
            allocate(&file, &content).map_err(refused(&path))?;
        }
        // What is reserved for a file that grew is free for the next one, and not when its inode leaves the cache: where files lie
        // depends on the sources only.
        if writes > 1 || file.size_bytes() != content.size_bytes {
            file.truncate(content.size_bytes).map_err(refused(&path))?;
        }
        self.dress(file.node(), &metadata, inherited).map_err(refused(&path))?;
        match pending {
            Some(pending) => self.publish(&path, &file, &pending),
            None => Ok(()),
        }
    }

    fn put_other(&mut self, path: &EntryPath, kind: NewKind<'_>, metadata: &Metadata) -> Result<(), Error> {
        if let (true, Some((dir, name))) = (self.one_step, path.split()) {
            let dir = self.parent(path, dir)?;
            if self.vfs.lookup(&dir, name).is_ok_and(|there| there.kind() != FileType::Directory) {
                let object = NewObject { kind, permissions: metadata.permissions & 0o7777, umask: 0 };
                let (inherited, caller) = (self.parents.hands_on(), owner(metadata));
                let make = |name: &[u8]| self.vfs.create(&caller, &dir, name, &object);
                let dress = |node: &Arc<Node>| self.dress(node, metadata, inherited);
                let node = replace_in_one_step(&self.vfs, &dir, name, make, dress).map_err(refused(path))?;
                self.note_link(&node);
                return Ok(());
            }
        }
        let (node, inherited) = self.make(path, kind, metadata)?;
        self.note_link(&node);
        self.dress(&node, metadata, inherited).map_err(refused(path))
    }

    fn put_link(&mut self, path: &EntryPath, target: &EntryPath) -> Result<(), Error> {
        if path == target {
            return Ok(());
        }
        let Some((dir, name)) = path.split() else { return Err(not_the_root(path)) };
        let node = self.find(target).map_err(|error| match error {
            VfsError::NotFound | VfsError::NotDirectory => Error::entry(
                path.clone(),
                format!("it is a hard link to {}, which is not there", target.shown()),
            ),
            error => Error::filesystem(path.clone(), error),
        })?;
        if node.kind() == FileType::Directory {
            let what = format!("it is a hard link to {}, which is a directory", target.shown());
            return Err(Error::entry(path.clone(), what));
        }
        let dir = self.parent(path, dir)?;
        let caller = Credentials::root();
        match self.vfs.link(&caller, &node, &dir, name) {
            Err(VfsError::Exists) => {
                // It may be one name of the file already, which then must not lose its last one.
                if self.vfs.lookup(&dir, name).is_ok_and(|there| there.ino() == node.ino()) {
                    return Ok(());
                }
                if self.one_step {
                    self.replace(path, &dir, name, |vfs, name| vfs.link(&caller, &node, &dir, name))?;
                } else {
                    self.make_way(path, &dir, name)?;
                    self.vfs.link(&caller, &node, &dir, name).map_err(refused(path))?;
                }
            }
            linked => linked.map_err(refused(path))?,
        }
        self.note_link(&node);
        self.keep_change_time(&node).map_err(refused(path))
    }

    /// Makes anything but a directory, in place of what is there. Says whether its directory may have handed it metadata.
    fn make(
        &mut self,
        path: &EntryPath,
        kind: NewKind<'_>,
        metadata: &Metadata,
    ) -> Result<(Arc<Node>, bool), Error> {
        let Some((dir, name)) = path.split() else { return Err(not_the_root(path)) };
        let dir = self.parent(path, dir)?;
        let hands_on = self.parents.hands_on();
        let object = NewObject { kind, permissions: metadata.permissions & 0o7777, umask: 0 };
        let caller = owner(metadata);
        let node = match self.vfs.create(&caller, &dir, name, &object) {
            Err(VfsError::Exists) => {
                self.make_way(path, &dir, name)?;
                self.vfs.create(&caller, &dir, name, &object)
            }
            made => made,
        };
        Ok((node.map_err(refused(path))?, hands_on))
    }
}

/// Zeroes that are written at once.
const ZEROES_MAX_BYTES: u64 = 1 << 20;

/// Takes the space that content needs. A file that cannot have space without content, as in ext2, gets zeroes.
fn allocate(file: &File, content: &Content) -> undercroft_vfs::Result<()> {
    let take = |start: u64, end: u64| match file.fallocate(FallocateMode::Allocate, start, end - start, false)
    {
        Err(VfsError::Unsupported(_)) => {
            let zeroes = vec![0; (end - start).min(ZEROES_MAX_BYTES) as usize];
            (start..end).step_by(ZEROES_MAX_BYTES as usize).try_for_each(|at| {
                let len = (end - at).min(ZEROES_MAX_BYTES) as usize;
                file.write_all_at(at, &zeroes[..len])
            })
        }
        taken => taken,
    };
    let whole = 0..content.size_bytes;
    let parts = content.data.as_deref().unwrap_or(std::slice::from_ref(&whole));
    parts.iter().filter(|part| !part.is_empty()).try_for_each(|part| take(part.start, part.end))
}

/// Credentials whose new files have this owner, and which permissions do not bind.
fn owner(metadata: &Metadata) -> Credentials {
    Credentials { override_dac: true, ..Credentials::user(metadata.uid, metadata.gid, Vec::new()) }
}

fn not_the_root(path: &EntryPath) -> Error {
    Error::entry(path.clone(), "the root can only be a directory".into())
}

/// A refusal of the filesystem, with the entry that it is about.
fn refused<E: Into<Refusal>>(path: &EntryPath) -> impl FnOnce(E) -> Error {
    move |error| error.into().at(path.clone())
}
