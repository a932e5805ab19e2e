//! `cp`: copies files and trees within an image.
//!
//! A file is copied to one without a name, which gets its name when it is complete. Where the filesystem shares blocks, the copies
//! share them. A tree is copied name by name; below what was named no symbolic link is followed, and one that has the name
//! of a copy is replaced.

use std::collections::HashMap;
use std::sync::Arc;

use undercroft_vfs::{Error, FileType, Ino, NewKind, NewObject, Node, Result as VfsResult, Vfs};

use super::metadata;
use super::place::{Destination, Made, Place, is_within};
use super::session::{CALLER, UMASK};
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::plan::edit::{Cp, CpKeep};
use crate::text::names::safe;
use crate::walk::{Event, Order, Walk};

/// Bits of an original's mode that a new copy gets unless modes are kept, before the mask: as cp asks for them, and as Linux
/// gives them.
const NEW_FILE_BITS: u16 = 0o777;
const NEW_DIRECTORY_BITS: u16 = 0o1777;
const NEW_SPECIAL_BITS: u16 = 0o7777;

struct Copying<'a> {
    vfs: &'a Vfs,
    plan: &'a Cp,
    /// The first copy of each original that has several names.
    linked: HashMap<Ino, Arc<Node>>,
    complaints: Complaints,
    made: Made,
}

pub(super) fn run(vfs: &Vfs, plan: &Cp) -> Result<Option<Kind>, Failure> {
    let dest = Destination::of(vfs, &plan.dest, plan.as_name, true, plan.sources.len() > 1)?;
    let (linked, complaints, made) = (HashMap::new(), Complaints::default(), Made::default());
    let mut copying = Copying { vfs, plan, linked, complaints, made };
    for source in &plan.sources {
        match copying.source(source, &dest) {
            Ok(()) => copying.complaints.done_some(),
            Err(failure) => copying.complaints.add(failure)?,
        }
    }
    Ok(copying.complaints.outcome())
}

impl Copying<'_> {
    fn source(&mut self, source: &[u8], dest: &Destination) -> Result<(), Failure> {
        let node = image::resolve(self.vfs, source, self.plan.follow)?;
        if node.kind() != FileType::Directory {
            let mut to = dest.place(self.vfs, source)?;
            if !self.plan.no_clobber {
                self.made.refuse(&to, source)?;
            }
            let name = to.name.clone();
            if self.plan.follow {
                to = Place::followed(self.vfs, &to.path)?;
            }
            if to.is_directory {
                return Err(to.failure(&Error::NotDirectory));
            }
            self.object(source, &node, &to)?;
            self.made.add(&name);
            return Ok(());
        }
        if !self.plan.recursive {
            return Err(
                Failure::inside(source, &Error::IsDirectory).advise("`-r` copies it with all that is in it")
            );
        }
        let to = self.directory_place(source, dest)?;
        let within = is_within(self.vfs, &to.dir, &node).map_err(|error| to.failure(&error))?;
        let itself = to.node(self.vfs)?.is_some_and(|found| found.ino() == node.ino());
        if within || itself {
            let what = format!("{} cannot be copied into itself, {}", safe(source), safe(&to.path));
            return Err(Failure::new(Kind::Path, what));
        }
        self.tree(source, &node, &to)
    }

    /// Where the copy of a directory goes: `DIR/.` stands for what is in it, which goes into the destination itself.
    fn directory_place(&self, source: &[u8], dest: &Destination) -> Result<Place, Failure> {
        match dest {
            Destination::Into { path, .. } if source.ends_with(b"/.") => Place::of(self.vfs, path),
            dest => dest.place(self.vfs, source),
        }
    }

    /// Copies a directory and all that is below it.
    fn tree(&mut self, source: &[u8], node: &Arc<Node>, to: &Place) -> Result<(), Failure> {
        // The copies of the directories that the walk is in, with their originals and paths.
        let mut open = vec![(self.directory(node, to)?, Arc::clone(node), to.path.clone())];
        let mut walk = Walk::new(self.vfs, node, source.to_vec(), Order::Inode);
        while let Some(event) = walk.next() {
            match event {
                Event::File(entry) => {
                    let Some((dir, _, path)) = open.last() else { break };
                    let to = Place::below(dir, path, &entry.name);
                    if let Err(failure) = self.object(&entry.path, &entry.node, &to) {
                        self.complaints.add(failure)?;
                    }
                }
                Event::Enter(entry) => {
                    let Some((dir, _, path)) = open.last() else { break };
                    let to = Place::below(dir, path, &entry.name);
                    match self.directory(&entry.node, &to) {
                        Ok(copy) => open.push((copy, entry.node, to.path)),
                        Err(failure) => {
                            walk.pass_over();
                            self.complaints.add(failure)?;
                        }
                    }
                }
                Event::Leave => {
                    let Some((copy, original, path)) = open.pop() else { break };
                    self.put_metadata(&original, &copy).map_err(|error| Failure::inside(&path, &error))?;
                }
                Event::Trouble { path, error } => self.complaints.add(Failure::inside(&path, &error))?,
            }
        }
        Ok(())
    }

    /// Makes the copy of a directory, or takes the one that is there.
    fn directory(&self, original: &Arc<Node>, to: &Place) -> Result<Arc<Node>, Failure> {
        if let Some(found) = to.node(self.vfs)? {
            return match found.kind() {
                FileType::Directory => Ok(found),
                _ => Err(to.failure(&Error::NotDirectory)),
            };
        }
        let permissions = original.attr().permissions & NEW_DIRECTORY_BITS;
        let object = NewObject { umask: UMASK, ..NewObject::directory(permissions) };
        self.vfs.create(&CALLER, &to.dir, &to.name, &object).map_err(|error| to.failure(&error))
    }

    /// Copies anything but a directory.
    fn object(&mut self, source: &[u8], original: &Arc<Node>, to: &Place) -> Result<(), Failure> {
        let found = to.node(self.vfs)?;
        if let Some(found) = &found {
            if found.ino() == original.ino() {
                let what = format!("{} and {} are the same file", safe(source), safe(&to.path));
                return Err(Failure::new(Kind::Path, what));
            }
            if found.kind() == FileType::Directory {
                return Err(to.failure(&Error::IsDirectory));
            }
            if self.plan.no_clobber {
                return Ok(());
            }
        }
        let attr = original.attr();
        if !self.plan.recursive && !matches!(attr.kind, FileType::Regular | FileType::Symlink) {
            return Err(Failure::inside(source, &Error::InvalidArgument("it is no regular file"))
                .advise("`-r` copies it as what it is"));
        }
        let keeps_links = self.plan.keep == CpKeep::All && attr.links > 1;
        let first = self.linked.get(&attr.ino).filter(|_| keeps_links).cloned();
        let copied = match first {
            Some(first) => to
                .make(self.vfs, found.is_some(), |name| self.vfs.link(&CALLER, &first, &to.dir, name))
                .map(|()| None),
            None if attr.kind == FileType::Regular => self.file(original, found.as_ref(), to).map(Some),
            None => self.special(original, found.is_some(), to).map(Some),
        };
        if let Some(copy) = copied.map_err(|error| to.failure(&error))?
            && keeps_links
        {
            self.linked.insert(attr.ino, copy);
        }
        Ok(())
    }

    fn file(&self, original: &Arc<Node>, replaced: Option<&Arc<Node>>, to: &Place) -> VfsResult<Arc<Node>> {
        let permissions = original.attr().permissions & NEW_FILE_BITS;
        let from = self.vfs.open_node(original)?;
        let copy = to.nameless(self.vfs, permissions)?;
        let size = from.size_bytes();
        let mut at = 0;
        while at < size {
            match from.copy_range(at, &copy, at, size - at)? {
                0 => break,
                copied => at += copied,
            }
        }
        if copy.size_bytes() < at {
            copy.truncate(at)?;
        }
        // As cp has it, a file that is there keeps its owner and mode, unless those of the original are asked for.
        if let Some(replaced) =
            replaced.filter(|node| node.kind() == FileType::Regular && self.plan.keep == CpKeep::Mode)
        {
            metadata::keep_of_replaced(self.vfs, replaced, copy.node())?;
        }
        self.put_metadata(original, copy.node())?;
        to.publish(self.vfs, &copy, replaced.is_some())?;
        Ok(Arc::clone(copy.node()))
    }

    /// Copies what has no content of its own.
    fn special(&self, original: &Arc<Node>, replaces: bool, to: &Place) -> VfsResult<Arc<Node>> {
        let attr = original.attr();
        let target;
        let kind = match attr.kind {
            FileType::Symlink => {
                target = original.read_link()?;
                NewKind::Symlink(&target)
            }
            FileType::Fifo => NewKind::Fifo,
            FileType::Socket => NewKind::Socket,
            FileType::CharDevice => NewKind::CharDevice(attr.rdev),
            FileType::BlockDevice => NewKind::BlockDevice(attr.rdev),
            FileType::Regular | FileType::Directory => {
                return Err(Error::InvalidArgument("it is no special file"));
            }
        };
        let object = NewObject { kind, permissions: attr.permissions & NEW_SPECIAL_BITS, umask: UMASK };
        let made = std::cell::RefCell::new(None);
        to.make(self.vfs, replaces, |name| {
            let copy = self.vfs.create(&CALLER, &to.dir, name, &object)?;
            if let Err(error) = self.put_metadata(original, &copy) {
                // What the caller is told of is the first error.
                let _ = self.vfs.unlink(&CALLER, &to.dir, name);
                return Err(error);
            }
            *made.borrow_mut() = Some(copy);
            Ok(())
        })?;
        made.into_inner().ok_or(Error::NotFound)
    }

    fn put_metadata(&self, original: &Node, copy: &Arc<Node>) -> VfsResult<()> {
        if self.plan.keep >= CpKeep::Main {
            metadata::copy_rights(self.vfs, original, copy)?;
        }
        if self.plan.keep == CpKeep::All {
            metadata::copy_xattrs(self.vfs, original, copy, true)?;
        }
        if self.plan.keep >= CpKeep::Main {
            metadata::copy_times(self.vfs, original, copy)?;
        }
        Ok(())
    }
}
