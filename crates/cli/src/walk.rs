//! Walks a tree of an image in a fixed order, one directory at a time.
//!
//! Called by `tree` and `get`, which need parents before children, a word when a directory is finished,
//! and the same order on every run. Hostile images are the normal case: a directory that is reached twice is
//! reported and not entered again, so the walk ends; a name that no filesystem may hold is reported and skipped;
//! depth costs memory on the heap only, and ends at a length of path that no honest tree has. A directory that cannot
//! be read is reported where it stands and the walk goes on; of one that is damaged in parts the other parts are walked.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{Corruption, DirOffset, Error, FileType, Ino, Node, Result, Vfs};

use crate::text::names::join;

/// Longest path in bytes: far more than any call takes, and an end to what a hostile image can ask for.
const PATH_MAX_BYTES: usize = 64 * 1024;

/// So many parts of a directory that cannot be read are passed over; then its listing ends.
const BAD_PARTS_MAX: usize = 1000;

/// The inodes of so many names are announced to the filesystem at once.
const ROUND: usize = 1024;

/// The order of the names within a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By the bytes of the names, for people.
    Name,
    /// By inode number, which is about the order on disk.
    Inode,
}

/// What the walk meets.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something that is not a directory.
    File(Entry),
    /// A directory; its content follows, and then [`Event::Leave`], unless [`Walk::pass_over`] is called now.
    Enter(Entry),
    /// The directory that was entered last and not yet left is finished.
    Leave,
    /// Something could not be read.
    Trouble {
        /// Where.
        path: Vec<u8>,
        /// Why.
        error: Error,
    },
}

/// One name of the tree.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The name within its directory.
    pub(crate) name: Vec<u8>,
    /// The path from the walk's start, which was given.
    pub(crate) path: Vec<u8>,
    /// How many directories below the start; its entries are at 1.
    pub(crate) depth: u32,
    /// No more names follow in this directory.
    pub(crate) last: bool,
    /// What it names.
    pub(crate) node: Arc<Node>,
}

/// The names of a directory, in order. The inodes of the next ones are announced while names are taken.
pub(crate) struct Names<'a> {
    vfs: &'a Vfs,
    names: std::vec::IntoIter<(Vec<u8>, Ino)>,
    /// So many of `names` have been announced.
    announced: usize,
}

impl Iterator for Names<'_> {
    type Item = (Vec<u8>, Ino);

    fn next(&mut self) -> Option<Self::Item> {
        if self.announced == 0 {
            let round: Vec<Ino> = self.names.as_slice().iter().take(ROUND).map(|(_, ino)| *ino).collect();
            self.vfs.filesystem().prefetch_inodes(&round);
            self.announced = round.len();
        }
        self.announced = self.announced.saturating_sub(1);
        self.names.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.names.size_hint()
    }
}

impl ExactSizeIterator for Names<'_> {}

struct Frame<'a> {
    dir: Arc<Node>,
    entries: Names<'a>,
    /// How much of [`Walk::path`] is this directory's.
    path_bytes: usize,
}

/// A walk in progress.
pub(crate) struct Walk<'a> {
    vfs: &'a Vfs,
    order: Order,
    hidden: bool,
    frames: Vec<Frame<'a>>,
    /// The path of the directory where the walk is, and perhaps more behind it.
    path: Vec<u8>,
    directories: HashSet<Ino>,
    /// The directory just announced, to be opened at the next step; its path is in `path`.
    entering: Option<Arc<Node>>,
    /// What could not be read of the directory that was opened last, the last first.
    troubles: Vec<Error>,
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("depth", &self.frames.len()).finish_non_exhaustive()
    }
}

impl<'a> Walk<'a> {
    /// A walk over what is below `start`, whose path is `path`. The start itself is not reported, except that
    /// the walk's last event is its [`Event::Leave`].
    pub(crate) fn new(vfs: &'a Vfs, start: &Arc<Node>, path: Vec<u8>, order: Order) -> Self {
        Self {
            vfs,
            order,
            hidden: true,
            frames: Vec::new(),
            path,
            directories: HashSet::from([start.ino()]),
            entering: Some(Arc::clone(start)),
            troubles: Vec::new(),
        }
    }

    /// Without names that begin with a dot.
    #[must_use]
    pub(crate) fn without_hidden(mut self) -> Self {
        self.hidden = false;
        self
    }

    /// Does not go into the directory that was just announced, and does not announce its end.
    pub(crate) fn pass_over(&mut self) {
        self.entering = None;
    }

    fn open(&mut self, dir: Arc<Node>) {
        let (entries, troubles) = entries(self.vfs, &dir, self.order, self.hidden);
        self.frames.push(Frame { dir, entries, path_bytes: self.path.len() });
        self.troubles = troubles;
        self.troubles.reverse();
    }

    fn visit(&mut self, name: Vec<u8>, ino: Ino) -> Event {
        let frame = self.frames.last().expect("a name comes out of an open directory");
        let last = frame.entries.len() == 0;
        self.path.truncate(frame.path_bytes);
        let path = join(&self.path, &name);
        let node = match node_of(self.vfs, &frame.dir, &name, ino) {
            Ok(node) => node,
            Err(error) => return Event::Trouble { path, error },
        };
        let depth = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        let entry = Entry { name, path, depth, last, node };
        if entry.node.kind() != FileType::Directory {
            return Event::File(entry);
        }
        if !self.directories.insert(ino) {
            return Event::Trouble { path: entry.path, error: second_name(ino) };
        }
        if entry.path.len() > PATH_MAX_BYTES {
            return Event::Trouble { path: entry.path, error: Error::NameTooLong };
        }
        self.path.clone_from(&entry.path);
        self.entering = Some(Arc::clone(&entry.node));
        Event::Enter(entry)
    }
}

impl Iterator for Walk<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if let Some(dir) = self.entering.take() {
            self.open(dir);
        }
        if let Some(error) = self.troubles.pop() {
            return Some(Event::Trouble { path: self.path.clone(), error });
        }
        match self.frames.last_mut()?.entries.next() {
            Some((name, ino)) => Some(self.visit(name, ino)),
            None => {
                self.frames.pop();
                Some(Event::Leave)
            }
        }
    }
}

/// The names of a directory, without `.` and `..`, in order. What could be read comes with the errors of the parts that
/// could not, each once.
pub(crate) fn entries<'a>(vfs: &'a Vfs, dir: &Node, order: Order, hidden: bool) -> (Names<'a>, Vec<Error>) {
    let mut entries = Vec::new();
    let mut errors: Vec<Error> = Vec::new();
    let mut told = HashSet::new();
    let mut from = DirOffset::default();
    for _ in 0..BAD_PARTS_MAX {
        let read = dir.read_dir(from, &mut |entry| {
            if entry.name != b"." && entry.name != b".." && (hidden || entry.name.first() != Some(&b'.')) {
                entries.push((entry.name.to_vec(), entry.ino));
            }
            from = entry.next;
            ControlFlow::Continue(())
        });
        let Err(error) = read else { break };
        if told.insert(error.to_string()) {
            errors.push(error);
        }
        let Some(behind) = dir.read_dir_behind(from) else { break };
        from = behind;
    }
    match order {
        Order::Name => entries.sort_unstable(),
        Order::Inode => {
            entries.sort_unstable_by(|(name, ino), (other, other_ino)| (ino, name).cmp(&(other_ino, other)));
        }
    }
    (Names { vfs, names: entries.into_iter(), announced: 0 }, errors)
}

/// What a name in a directory names.
pub(crate) fn node_of(vfs: &Vfs, dir: &Node, name: &[u8], ino: Ino) -> Result<Arc<Node>> {
    refuse_name(name).map_or(Ok(()), Err)?;
    vfs.listed_node(dir, name, ino)
}

/// A directory has one name; one that is met by another would make a walk endless.
pub(crate) fn second_name(ino: Ino) -> Error {
    let detail = "the directory is reached a second time, by this path".into();
    Corruption { structure: "directory tree", ino: Some(ino), block: None, detail }.into()
}

/// Names that would mean something else than a name on this machine.
fn refuse_name(name: &[u8]) -> Option<Error> {
    let wrong = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0);
    wrong.then(|| {
        let detail = "the name is not one that a file can have".into();
        Corruption { structure: "directory entry", ino: None, block: None, detail }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::refuse_name;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for wrong in [&b""[..], b".", b"..", b"a/b", b"../x", b"a\0b", b"/"] {
            assert!(refuse_name(wrong).is_some(), "{wrong:?}");
        }
        for right in [&b"a"[..], b"...", b"..a", b"\xff", b"a b\n"] {
            assert!(refuse_name(right).is_none(), "{right:?}");
        }
    }
}
