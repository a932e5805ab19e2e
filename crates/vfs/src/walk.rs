//! The tree walk: visits everything below a directory, with several threads or in sorted order.
//!
//! Used by the program to list, search, copy and check trees. The visitor is given each entry with its path
//! before anything below it, and each failure with the path where it happened; the walk goes on after both.
//! No permissions are checked.
//!
//! Directories are read in batches of entries. A batch's inodes are announced to the filesystem, so that it
//! reads their tables in few large pieces, and live in the inode cache only while they are visited (see
//! [`Vfs::node_once`]): a walk leaves the cache as it was. Memory is bounded by the depth of the tree and the
//! size of a batch, not by the number of entries; only the sorted walk holds all names of the directories
//! between the start and where it is.
//!
//! An entry that leads to a directory outside of its one place (see `place`), which only a corrupt disk has, is
//! reported and not entered, and so is a directory that is reached a second time.
//! The walk does not recurse. A path longer than 64 KiB is reported and not entered.

mod batch;
mod descent;
mod pool;
mod sorted;

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::{Attr, Corruption, Error, FileType, Ino, Node, Result, Vfs};

/// Longest path of a directory below the start, in bytes. Linux's own calls take 4095; a tree may be deeper than that,
/// and a hostile one so deep that building its paths would never end.
const WALK_PATH_MAX_BYTES: usize = 64 * 1024;

/// How to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkOptions {
    /// How many threads work; 0 takes as many as the machine has processors.
    pub threads: usize,
    /// The visitor will ask for most entries' inodes, so they are announced to the filesystem in batches.
    /// Otherwise only directories are.
    pub inodes: bool,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self { threads: 0, inodes: true }
    }
}

/// What the visitor wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkFlow {
    /// Go on, into this directory if it is one.
    Continue,
    /// Go on, and not into this directory.
    SkipSubtree,
    /// End the walk. Other threads may still deliver what they are at.
    Stop,
}

/// What the visitor is given.
#[derive(Debug)]
pub enum WalkEvent<'a> {
    /// Something in the tree.
    Entry(WalkEntry<'a>),
    /// A directory could not be read, in whole or in part, or an entry's inode could not where the walk needed
    /// it. What the visitor returns matters only if it is [`WalkFlow::Stop`].
    Failure {
        /// Where, as in [`WalkEntry::path`].
        path: &'a [u8],
        /// Why.
        error: Error,
    },
}

/// Something in the tree.
pub struct WalkEntry<'a> {
    vfs: &'a Vfs,
    path: &'a [u8],
    name_start: usize,
    depth: u32,
    ino: Ino,
    kind: FileType,
    node: Option<&'a Arc<Node>>,
}

impl WalkEntry<'_> {
    /// The path below the start, without a slash in front; empty for the start itself.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.path
    }

    /// The last part of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.path[self.name_start..]
    }

    /// How far below the start: 0 for the start itself.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What kind of file it is, as the directory says where it does.
    #[must_use]
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// The inode. It is read here unless it is in use already; each call looks it up again.
    ///
    /// # Errors
    /// The filesystem's own; [`Corrupt`](Error::Corrupt) when it is another kind of file than the directory
    /// says.
    pub fn node(&self) -> Result<Arc<Node>> {
        if let Some(node) = self.node {
            return Ok(Arc::clone(node));
        }
        node_of_kind(self.vfs, self.ino, self.kind)
    }

    /// The attributes.
    ///
    /// # Errors
    /// As for [`node`](Self::node).
    pub fn attr(&self) -> Result<Attr> {
        Ok(self.node()?.attr())
    }
}

impl std::fmt::Debug for WalkEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WalkEntry")
            .field("path", &self.path.escape_ascii().to_string())
            .field("ino", &self.ino.0)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Vfs {
    /// Visits `start` and everything below it with several threads. Parents come before their children; apart
    /// from that there is no order. The visitor runs on all threads at once.
    ///
    /// # Panics
    /// When the visitor does.
    pub fn walk(
        &self,
        start: &Arc<Node>,
        options: WalkOptions,
        visitor: &(dyn Fn(WalkEvent<'_>) -> WalkFlow + Sync),
    ) {
        pool::walk(self, start, options, visitor);
    }

    /// Visits `start` and everything below it on this thread: a directory's entries in the order of their
    /// names' bytes, each followed by what is below it.
    pub fn walk_sorted(
        &self,
        start: &Arc<Node>,
        options: WalkOptions,
        visitor: &mut dyn FnMut(WalkEvent<'_>) -> WalkFlow,
    ) {
        // A break means that the visitor stopped the walk, so there is nothing to report.
        let _: ControlFlow<()> = sorted::walk(self, start, options, visitor);
    }
}

/// Reads an inode that a directory says is of this kind.
pub(crate) fn node_of_kind(vfs: &Vfs, ino: Ino, kind: FileType) -> Result<Arc<Node>> {
    let node = node_listed(vfs, ino)?;
    if node.kind() == kind {
        return Ok(node);
    }
    Err(wrong_entry(ino, format!("the directory says {kind:?}, the inode says {:?}", node.kind())))
}

/// Reads an inode that a directory names.
pub(crate) fn node_listed(vfs: &Vfs, ino: Ino) -> Result<Arc<Node>> {
    match vfs.node_once(ino) {
        // Of a filesystem that changes, the name may have gone with its inode since it was listed.
        Err(Error::Stale) if vfs.filesystem().is_read_only() => {
            Err(wrong_entry(ino, "the inode is not in use".into()))
        }
        node => node,
    }
}

fn wrong_entry(ino: Ino, detail: String) -> Error {
    let ino = Some(ino);
    Corruption { structure: "directory entry", ino, block: None, detail: detail.into() }.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;
    use crate::conformance::{Content, Object, Tree};
    use crate::memory_fs::{MemoryFs, ROOT};

    /// Three levels: 20 directories of 20 directories of 10 files.
    fn tree() -> Tree {
        let mut tree = Tree::new();
        for outer in 0..20 {
            tree.add(format!("{outer:02}"), Object::Directory);
            for inner in 0..20 {
                tree.add(format!("{outer:02}/{inner:02}"), Object::Directory);
                for file in 0..10 {
                    tree.add(format!("{outer:02}/{inner:02}/{file}"), Object::File(Content::default()));
                }
            }
        }
        tree
    }

    const ENTRIES: usize = 1 + 20 + 400 + 4000;

    /// What a walk with several threads reports: visits, and failures.
    fn walk(
        vfs: &Vfs,
        threads: usize,
        flow: impl Fn(&[u8]) -> WalkFlow + Sync,
    ) -> (Vec<String>, Vec<String>) {
        let (sender, receiver) = mpsc::channel();
        let options = WalkOptions { threads, ..WalkOptions::default() };
        vfs.walk(&vfs.root().unwrap(), options, &|event| match event {
            WalkEvent::Entry(entry) => {
                let failure = entry.attr().err().map(|error| format!("{}: {error}", text(entry.path())));
                sender.send((Some(text(entry.path())), failure)).unwrap();
                flow(entry.path())
            }
            WalkEvent::Failure { path, error } => {
                sender.send((None, Some(format!("{}: {error}", text(path))))).unwrap();
                WalkFlow::Continue
            }
        });
        drop(sender);
        let (visits, failures): (Vec<_>, Vec<_>) = receiver.into_iter().unzip();
        (visits.into_iter().flatten().collect(), failures.into_iter().flatten().collect())
    }

    fn text(path: &[u8]) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    #[test]
    fn several_threads_visit_everything_once() {
        let (vfs, fs) = MemoryFs::new(&tree()).mount(1 << 20, 1 << 20);
        for threads in [1, 2, 3, 8] {
            let (visits, failures) = walk(&vfs, threads, |_| WalkFlow::Continue);
            assert_eq!(failures, [""; 0]);
            assert_eq!(visits.len(), ENTRIES);
            assert_eq!(visits.iter().collect::<BTreeSet<_>>().len(), ENTRIES);
        }
        // The root, which the mount keeps, is all that is left.
        assert_eq!(fs.live_handles(), 1);
        assert_eq!(fs.calls.prefetched.load(Ordering::Relaxed), 4 * (ENTRIES as u64 - 1));
    }

    #[test]
    fn only_directories_are_announced_when_names_are_wanted() {
        let (vfs, fs) = MemoryFs::new(&tree()).mount(1 << 20, 1 << 20);
        let names = AtomicUsize::new(0);
        let options = WalkOptions { inodes: false, ..WalkOptions::default() };
        vfs.walk(&vfs.root().unwrap(), options, &|_| {
            names.fetch_add(1, Ordering::Relaxed);
            WalkFlow::Continue
        });
        assert_eq!(names.into_inner(), ENTRIES);
        assert_eq!(fs.calls.prefetched.load(Ordering::Relaxed), 420);
        assert_eq!(fs.calls.read_inode.load(Ordering::Relaxed), 421);
    }

    #[test]
    fn large_directories_are_read_in_parts() {
        let mut tree = Tree::new();
        for number in 0..5000 {
            let object = if number % 3 == 0 { Object::Directory } else { Object::Fifo };
            tree.add(format!("{number}"), object);
        }
        let (vfs, _) = MemoryFs::new(&tree).mount(1 << 20, 1 << 20);
        for threads in [1, 4] {
            let (visits, failures) = walk(&vfs, threads, |_| WalkFlow::Continue);
            assert_eq!(failures, [""; 0]);
            assert_eq!(visits.into_iter().collect::<BTreeSet<_>>().len(), 5001);
        }
    }

    #[test]
    fn subtrees_are_skipped() {
        let (vfs, _) = MemoryFs::new(&tree()).mount(1 << 20, 1 << 20);
        let skip = |path: &[u8]| match path {
            b"03" | b"04/05" => WalkFlow::SkipSubtree,
            _ => WalkFlow::Continue,
        };
        let (visits, _) = walk(&vfs, 4, skip);
        assert_eq!(visits.len(), ENTRIES - 20 * 11 - 10);
        assert!(visits.iter().any(|path| path == "03") && !visits.iter().any(|path| path.starts_with("03/")));
        let (visits, _) = walk(&vfs, 4, |_| WalkFlow::SkipSubtree);
        assert_eq!(visits, [""]);
    }

    #[test]
    fn the_visitor_stops_the_walk() {
        let (vfs, _) = MemoryFs::new(&tree()).mount(1 << 20, 1 << 20);
        for threads in [1, 4] {
            let stop = |path: &[u8]| if path == b"00" { WalkFlow::Stop } else { WalkFlow::Continue };
            let (visits, _) = walk(&vfs, threads, stop);
            assert!(visits.len() < ENTRIES, "{} visits with {threads} threads", visits.len());
        }
        let mut visits = Vec::new();
        vfs.walk_sorted(&vfs.root().unwrap(), WalkOptions::default(), &mut |event| {
            let WalkEvent::Entry(entry) = event else { panic!("{event:?}") };
            visits.push(text(entry.path()));
            if visits.len() == 4 { WalkFlow::Stop } else { WalkFlow::Continue }
        });
        assert_eq!(visits, ["", "00", "00/00", "00/00/0"]);
    }

    #[test]
    fn a_visitor_that_panics_leaves_no_thread_waiting() {
        let (vfs, _) = MemoryFs::new(&tree()).mount(1 << 20, 1 << 20);
        for threads in [1, 4] {
            let panics = || {
                walk(&vfs, threads, |path| {
                    if path == b"07/07/7" { panic!("on purpose") } else { WalkFlow::Continue }
                })
            };
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        }
    }

    #[test]
    fn a_root_that_is_no_directory_is_the_only_visit() {
        let (vfs, fs) = MemoryFs::new(&tree()).mount(1 << 20, 1 << 20);
        let start = vfs.node(fs.ino("05/05/5")).unwrap();
        let visits = AtomicUsize::new(0);
        vfs.walk(&start, WalkOptions::default(), &|event| {
            assert!(
                matches!(event, WalkEvent::Entry(entry) if entry.path().is_empty() && entry.depth() == 0)
            );
            visits.fetch_add(1, Ordering::Relaxed);
            WalkFlow::Continue
        });
        assert_eq!(visits.into_inner(), 1);
    }

    /// A tree that is corrupt in several places is walked to its end, and each corruption is reported.
    #[test]
    fn corrupt_trees_end_and_are_reported() {
        for threads in [1, 4] {
            let mut fs = MemoryFs::new(&tree());
            let (shared, file) = (fs.ino("02/02"), fs.ino("03/03/3"));
            for (dir, name, ino) in
                [("00/00", "cycle", ROOT), ("01", "second", shared), ("04", "missing", Ino(5))]
            {
                fs.inode_mut(dir).names.push((name.into(), ino));
            }
            fs.lying_kind = Some((file, FileType::Directory));
            let (vfs, _) = fs.mount(1 << 20, 1 << 20);
            let (visits, failures) = walk(&vfs, threads, |_| WalkFlow::Continue);
            assert_eq!(visits.len(), ENTRIES + 2);
            let count = |path: &str, what: &str| {
                let told = |failure: &&String| failure.starts_with(path) && failure.contains(what);
                failures.iter().filter(told).count()
            };
            assert_eq!(count("00/00/cycle:", "leads to directory 2, the root"), 1);
            assert_eq!(count("01/second:", "whose \"..\" leads to inode"), 1);
            assert_eq!(
                count("04/missing:", "corrupt directory entry of inode 5: the inode is not in use"),
                1
            );
            // Once to the visitor that asks for the attributes, once from the walk that cannot enter it.
            assert_eq!(count("03/03/3:", "the directory says Directory, the inode says Regular"), 2);
            assert_eq!(failures.len(), 5, "{failures:?}");
        }
    }

    #[test]
    fn paths_end_at_their_limit_and_not_on_the_stack() {
        let mut tree = Tree::new();
        let mut path = Vec::new();
        let name = [b'd'; 250];
        while path.len() <= WALK_PATH_MAX_BYTES {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            tree.add(&path, Object::Directory);
        }
        path.extend_from_slice(b"/beyond");
        tree.add(&path, Object::Directory);
        let count = tree.entries.len();
        let (vfs, _) = MemoryFs::new(&tree).mount(1 << 20, 1 << 20);
        let (visits, failures) = walk(&vfs, 2, |_| WalkFlow::Continue);
        assert_eq!(visits.len(), count - 1);
        assert!(failures.len() == 1 && failures[0].ends_with("name too long"));
    }
}
