//! Where a name goes in an image, and how it takes the place of another.
//!
//! A file that replaces another gets a temporary name beside it and is renamed over it, since no operation gives a
//! file without a name the name of another. Both steps join one transaction, unless the process is killed and a commit falls between them:
//! then the temporary name stays beside the old file.

use std::collections::HashSet;
use std::sync::Arc;

use undercroft_populate::replace_in_one_step;
use undercroft_vfs::{Durable, Error, File, FileType, Node, Result, Vfs};

use super::session::{CALLER, UMASK};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::text::names::{join, safe};

/// As many symbolic links are followed from a name.
const LINKS_MAX: u32 = 40;

/// A name in a directory, whether or not it is there.
pub(super) struct Place {
    pub(super) dir: Arc<Node>,
    pub(super) name: Vec<u8>,
    pub(super) path: Vec<u8>,
    /// Slashes stand behind it: it can be a directory only.
    pub(super) is_directory: bool,
}

impl Place {
    /// The name that a path ends in. Symbolic links are followed up to it.
    pub(super) fn of(vfs: &Vfs, path: &[u8]) -> std::result::Result<Self, Failure> {
        let Some((above, name)) = split(path) else {
            return Err(Failure::new(Kind::Path, format!("{} is the root directory", safe(path))));
        };
        if name == b"." || name == b".." {
            let what = format!("{} ends in no name", safe(path));
            return Err(Failure::new(Kind::Path, what).advise("write the directory's own name"));
        }
        let dir = image::resolve(vfs, above, true)?;
        if dir.kind() != FileType::Directory {
            return Err(Failure::inside(above, &Error::NotDirectory));
        }
        Ok(Self { dir, name: name.to_vec(), path: path.to_vec(), is_directory: path.ends_with(b"/") })
    }

    /// The same, and where a symbolic link has the name, the place to which it leads.
    pub(super) fn followed(vfs: &Vfs, path: &[u8]) -> std::result::Result<Self, Failure> {
        let mut place = Self::of(vfs, path)?;
        let mut is_directory = place.is_directory;
        for _ in 0..LINKS_MAX {
            let Some(node) = place.node(vfs)?.filter(|node| node.kind() == FileType::Symlink) else {
                return Ok(place);
            };
            let target = node.read_link().map_err(|error| place.failure(&error))?;
            let above = split(&place.path).map_or(&b"/"[..], |(above, _)| above);
            let leads_to = if target.starts_with(b"/") { target } else { join(above, &target) };
            place = Self::of(vfs, &leads_to)?;
            is_directory |= place.is_directory;
            place.is_directory = is_directory;
        }
        Err(Failure::inside(path, &Error::TooManySymlinks))
    }

    /// A name in a directory.
    pub(super) fn below(dir: &Arc<Node>, path: &[u8], name: &[u8]) -> Self {
        Self { dir: Arc::clone(dir), name: name.to_vec(), path: join(path, name), is_directory: false }
    }

    /// What has the name.
    pub(super) fn node(&self, vfs: &Vfs) -> std::result::Result<Option<Arc<Node>>, Failure> {
        match vfs.lookup(&self.dir, &self.name) {
            Ok(node) => Ok(Some(node)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// What is said of an error about it.
    pub(super) fn failure(&self, error: &Error) -> Failure {
        Failure::inside(&self.path, error)
    }

    /// Makes something new that has the name, in place of what is there if `replaces`: `make` makes it under the name that it
    /// is given.
    pub(super) fn make(&self, vfs: &Vfs, replaces: bool, make: impl Fn(&[u8]) -> Result<()>) -> Result<()> {
        if !replaces {
            return make(&self.name);
        }
        replace_in_one_step(vfs, &self.dir, &self.name, make, |&()| Ok(()))
    }

    /// Gives a file without a name the name, in place of what is there if `replaces`, once its content is durable.
    pub(super) fn publish(&self, vfs: &Vfs, file: &File, replaces: bool) -> Result<()> {
        if replaces {
            file.sync(Durable::Everything)?;
        }
        self.make(vfs, replaces, |name| vfs.link(&CALLER, file.node(), &self.dir, name))
    }

    /// A file without a name, with these permissions before the mask, to be filled and published here.
    pub(super) fn nameless(&self, vfs: &Vfs, permissions: u16) -> Result<File> {
        let node = vfs.tmpfile(&CALLER, &self.dir, permissions, UMASK)?;
        vfs.open_node_for_writing(&node)
    }
}

/// Where several things go, or one.
pub(super) enum Destination {
    /// Into this directory, under their own names.
    Into { dir: Arc<Node>, path: Vec<u8> },
    /// The one gets this name.
    As(Vec<u8>),
}

impl Destination {
    /// Decides by what is there. `follow` says that a symbolic link to a directory is the directory.
    pub(super) fn of(
        vfs: &Vfs,
        dest: &[u8],
        as_name: bool,
        follow: bool,
        several: bool,
    ) -> std::result::Result<Self, Failure> {
        if as_name {
            return Ok(Self::As(dest.to_vec()));
        }
        match image::resolve(vfs, dest, follow) {
            Ok(dir) if dir.kind() == FileType::Directory => Ok(Self::Into { dir, path: dest.to_vec() }),
            Ok(_) if several => {
                Err(Failure::inside(dest, &Error::NotDirectory)
                    .advise("several things are put into a directory"))
            }
            Err(failure) if several => Err(failure.advise("several things are put into a directory")),
            Ok(_) => Ok(Self::As(dest.to_vec())),
            // What is wrong with it is told when the name is made.
            Err(_) => Ok(Self::As(dest.to_vec())),
        }
    }

    /// The place of one of them.
    pub(super) fn place(&self, vfs: &Vfs, source: &[u8]) -> std::result::Result<Place, Failure> {
        match self {
            Self::As(path) => Place::of(vfs, path),
            Self::Into { dir, path } => match split(source) {
                Some((_, name)) if name != b"." && name != b".." => Ok(Place::below(dir, path, name)),
                _ => {
                    let what = format!("{} ends in no name", safe(source));
                    Err(Failure::new(Kind::Path, what).advise("write the directory's own name"))
                }
            },
        }
    }
}

/// The last names that a command has made in the directory that its sources go into.
#[derive(Default)]
pub(super) struct Made(HashSet<Vec<u8>>);

impl Made {
    pub(super) fn add(&mut self, name: &[u8]) {
        self.0.insert(name.to_vec());
    }

    /// Refuses that a source takes a name which another source of the same command has got.
    pub(super) fn refuse(&self, place: &Place, source: &[u8]) -> std::result::Result<(), Failure> {
        if !self.0.contains(&place.name) {
            return Ok(());
        }
        let what = format!("will not overwrite just-created {} with {}", safe(&place.path), safe(source));
        Err(Failure::new(Kind::Path, what))
    }
}

/// The path above the last name, and the name; the root has none.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let above = if start == 0 { b"/" } else { &path[..start] };
    Some((above, &path[start..end]))
}

/// Whether a directory is another one or lies below it.
pub(super) fn is_within(vfs: &Vfs, dir: &Arc<Node>, other: &Node) -> Result<bool> {
    let mut dir = Arc::clone(dir);
    let mut passed = HashSet::new();
    while dir.ino() != other.ino() {
        // A tree that a damaged image has as a circle has no top.
        if dir.ino() == vfs.filesystem().root() || !passed.insert(dir.ino()) {
            return Ok(false);
        }
        dir = vfs.lookup(&dir, b"..")?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_path_ends_in_a_name() {
        for (path, expected) in [
            (&b"/"[..], None),
            (b"//", None),
            (b"/a", Some((&b"/"[..], &b"a"[..]))),
            (b"/a/b//", Some((b"/a/", b"b"))),
            (b"/a/..", Some((b"/a/", b".."))),
        ] {
            assert_eq!(split(path), expected);
        }
    }
}
