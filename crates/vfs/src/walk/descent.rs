//! One thread's way through the tree: a stack of directories from where it started down to where it is.
//!
//! A step does one bounded piece of work, so that the worker pool can hand work to idle threads between steps. In
//! [`Order::Any`], a batch's entries are visited together, while the inodes that were announced for them are at hand,
//! and its directories are entered afterwards; the next batch of a directory is read after everything below the last
//! one is done, which bounds the memory. In [`Order::Sorted`], a directory's names are read and sorted first, and each
//! directory is entered right after it was visited.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_sync::{Mutex, order};

use super::batch::{Batch, Entry};
use super::{WALK_PATH_MAX_BYTES, WalkEntry, WalkEvent, WalkFlow, WalkOptions, node_listed, node_of_kind};
use crate::hash::InoHashBuilder;
use crate::{Corruption, DirOffset, Error, FileType, Ino, Node, Result, Vfs};

/// Which order entries come in, beside parents before children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Any,
    Sorted,
}

/// Entries that are announced to the filesystem at once, and read at once unless sorted.
const BATCH: usize = 1024;

/// Entries that are read at once while many wait on the stack, which happens only in very deep trees.
const BATCH_WHEN_CROWDED: usize = 16;

/// This many waiting entries count as many: about 2 MiB.
const CROWDED: usize = 64 * 1024;

/// Most entries that are sorted together; bounds the memory for one directory, at the price that a larger one
/// comes in several sorted parts.
const SORTED_TOGETHER: usize = 1 << 20;

/// The directories that a walk has entered.
pub(super) struct Seen(Mutex<HashSet<Ino, InoHashBuilder>>);

impl Seen {
    pub(super) fn new() -> Self {
        Self(Mutex::new(&order::WALK, HashSet::with_hasher(InoHashBuilder::random())))
    }

    /// Refuses a directory that was entered before: a directory has one parent.
    fn enter(&self, ino: Ino) -> Result<()> {
        if self.0.lock().insert(ino) {
            return Ok(());
        }
        let detail = "a second name leads to this directory".into();
        Err(Corruption { structure: "directory tree", ino: Some(ino), block: None, detail }.into())
    }
}

/// The visitor as a descent calls it.
pub(super) type Visit<'v> = dyn FnMut(WalkEvent<'_>) -> WalkFlow + 'v;

pub(super) struct Descent<'a> {
    vfs: &'a Vfs,
    seen: &'a Seen,
    options: WalkOptions,
    order: Order,
    /// The path of the uppermost frame's directory, or longer.
    path: Vec<u8>,
    /// Depth of the directory of the first frame.
    base_depth: u32,
    frames: Vec<Frame>,
    /// Entries of all frames that are still to be entered.
    waiting: usize,
    announced: Vec<Ino>,
    directories: Vec<u32>,
    /// A batch to use again.
    spare: Batch,
}

/// A directory on the stack.
struct Frame {
    dir: Arc<Node>,
    /// Length of its path.
    path_len: usize,
    batch: Batch,
    /// How many entries of the batch are done.
    at: usize,
    /// The entries were visited, and the batch holds the directories among them.
    visited: bool,
    /// Where the next batch begins.
    next: Option<DirOffset>,
}

/// Work to hand over: a part of a directory.
pub(super) struct Piece {
    path: Vec<u8>,
    depth: u32,
    frame: Frame,
}

impl<'a> Descent<'a> {
    pub(super) fn new(vfs: &'a Vfs, seen: &'a Seen, options: WalkOptions, order: Order) -> Self {
        Self {
            vfs,
            seen,
            options,
            order,
            path: Vec::new(),
            base_depth: 0,
            frames: Vec::new(),
            waiting: 0,
            announced: Vec::new(),
            directories: Vec::new(),
            spare: Batch::default(),
        }
    }

    /// Visits the start of the walk and puts it on the stack if it is a directory to go into.
    pub(super) fn begin(&mut self, start: &Arc<Node>, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let entry = WalkEntry {
            vfs: self.vfs,
            path: &[],
            name_start: 0,
            depth: 0,
            ino: start.ino(),
            kind: start.kind(),
            node: Some(start),
        };
        match visit(WalkEvent::Entry(entry)) {
            WalkFlow::Stop => return ControlFlow::Break(()),
            WalkFlow::Continue if start.kind() == FileType::Directory => {
                if let Err(error) = self.enter(Arc::clone(start)) {
                    return self.fail(error, visit);
                }
            }
            WalkFlow::Continue | WalkFlow::SkipSubtree => {}
        }
        ControlFlow::Continue(())
    }

    /// Takes over what another thread handed on; the stack is empty.
    pub(super) fn take(&mut self, piece: Piece) {
        self.path = piece.path;
        self.base_depth = piece.depth;
        self.waiting = piece.frame.remaining();
        self.frames.push(piece.frame);
    }

    /// Does a piece of work; false when there is none left.
    pub(super) fn step(&mut self, visit: &mut Visit<'_>) -> ControlFlow<(), bool> {
        let Some(top) = self.frames.last_mut() else { return ControlFlow::Continue(false) };
        self.path.truncate(top.path_len);
        if !top.visited && self.order == Order::Any {
            self.visit_batch(visit)?;
        } else if top.at < top.batch.entries().len() {
            self.enter_next(visit)?;
        } else if let Some(from) = top.next.take() {
            self.read_batch(from, visit)?;
        } else {
            self.spare = self.frames.pop().map(|frame| frame.batch).unwrap_or_default();
        }
        ControlFlow::Continue(true)
    }

    /// Reads the next entries of the uppermost directory.
    fn read_batch(&mut self, from: DirOffset, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let Some(top) = self.frames.last_mut() else { return ControlFlow::Continue(()) };
        let limit = match self.order {
            Order::Sorted => SORTED_TOGETHER,
            Order::Any if self.waiting > CROWDED => BATCH_WHEN_CROWDED,
            Order::Any => BATCH,
        };
        let mut stopped = top.batch.read(&top.dir, from, limit);
        if stopped.next == Some(from) {
            let detail = "its stream does not go on".into();
            let ino = Some(top.dir.ino());
            stopped.next = None;
            stopped.error = Some(Corruption { structure: "directory", ino, block: None, detail }.into());
        }
        if self.order == Order::Sorted {
            top.batch.sort();
        }
        top.at = 0;
        top.visited = false;
        top.next = stopped.next;
        self.waiting += top.batch.entries().len();
        match stopped.error {
            Some(error) => self.fail(error, visit),
            None => ControlFlow::Continue(()),
        }
    }

    /// Visits all entries of the uppermost frame's batch and keeps the directories among them.
    fn visit_batch(&mut self, visit: &mut Visit<'_>) -> ControlFlow<()> {
        self.announce();
        let depth = self.depth_below_top();
        let Some(top) = self.frames.last_mut() else { return ControlFlow::Continue(()) };
        self.directories.clear();
        for (position, entry) in top.batch.entries().iter().enumerate() {
            self.path.truncate(top.path_len);
            push_name(&mut self.path, top.batch.name(entry));
            if visit_entry(self.vfs, &self.path, top.batch.name(entry).len(), depth, entry, visit)? {
                self.directories.push(position as u32);
            }
        }
        self.path.truncate(top.path_len);
        self.waiting -= top.batch.entries().len() - self.directories.len();
        top.batch.keep_only(&self.directories);
        top.visited = true;
        ControlFlow::Continue(())
    }

    /// Enters the next directory of the uppermost frame's batch; when sorted, visits the next entry first.
    fn enter_next(&mut self, visit: &mut Visit<'_>) -> ControlFlow<()> {
        if self.order == Order::Sorted {
            self.announce();
        }
        let depth = self.depth_below_top();
        let Some(top) = self.frames.last_mut() else { return ControlFlow::Continue(()) };
        let entry = top.batch.entries()[top.at];
        let name = top.batch.name(&entry);
        push_name(&mut self.path, name);
        let (name_start, dir) = (self.path.len() - name.len(), Arc::clone(&top.dir));
        top.at += 1;
        self.waiting -= 1;
        let wanted = match self.order {
            Order::Any => true,
            Order::Sorted => visit_entry(self.vfs, &self.path, name.len(), depth, &entry, visit)?,
        };
        if wanted && let Err(error) = self.enter_listed(&dir, name_start, entry.ino) {
            return self.fail(error, visit);
        }
        ControlFlow::Continue(())
    }

    /// Announces the inodes of the next entries of the uppermost frame's batch, where a round of them begins.
    fn announce(&mut self) {
        let Some(top) = self.frames.last() else { return };
        if !top.at.is_multiple_of(BATCH) {
            return;
        }
        self.announced.clear();
        let round = top.batch.entries()[top.at..].iter().take(BATCH);
        let wanted =
            |entry: &&Entry| self.options.inodes || matches!(entry.kind, None | Some(FileType::Directory));
        self.announced.extend(round.filter(wanted).map(|entry| entry.ino));
        if self.announced.len() > 1 {
            self.vfs.filesystem().prefetch_inodes(&self.announced);
        }
    }

    /// Puts the directory that `path` stands for on the stack, an entry of `parent`.
    fn enter_listed(&mut self, parent: &Node, name_start: usize, ino: Ino) -> Result<()> {
        if self.path.len() > WALK_PATH_MAX_BYTES {
            return Err(Error::NameTooLong);
        }
        let dir = node_of_kind(self.vfs, ino, FileType::Directory)?;
        // Before it counts as entered, or of two names the right one might count as the second.
        self.vfs.check_listed(parent, &self.path[name_start..], &dir)?;
        self.enter(dir)
    }

    /// Puts a directory on the stack.
    fn enter(&mut self, dir: Arc<Node>) -> Result<()> {
        self.seen.enter(dir.ino())?;
        self.frames.push(Frame {
            dir,
            path_len: self.path.len(),
            batch: std::mem::take(&mut self.spare),
            at: 0,
            visited: true,
            next: Some(DirOffset(0)),
        });
        if let Some(top) = self.frames.last_mut() {
            top.batch.clear();
        }
        Ok(())
    }

    /// Reports a failure at `path` to the visitor.
    fn fail(&self, error: Error, visit: &mut Visit<'_>) -> ControlFlow<()> {
        report(&self.path, error, visit)
    }

    /// Depth of the entries of the uppermost frame.
    fn depth_below_top(&self) -> u32 {
        self.base_depth + self.frames.len() as u32
    }

    /// Splits work off for another thread: from the directory nearest to the start, since most lies below it.
    /// `None` when there is no more than this thread will do in its next steps.
    pub(super) fn split(&mut self) -> Option<Piece> {
        let last = self.frames.len().checked_sub(1)?;
        let at = self.frames.iter().position(|frame| frame.work() > 0)?;
        let frame = &mut self.frames[at];
        if at == last && frame.work() < 2 {
            return None;
        }
        let remaining = frame.remaining();
        let mut given = Frame {
            dir: Arc::clone(&frame.dir),
            path_len: frame.path_len,
            batch: Batch::default(),
            at: 0,
            visited: true,
            next: None,
        };
        if frame.visited && (remaining >= 2 || frame.next.is_none()) {
            given.batch = frame.batch.split_off(frame.at + remaining / 2);
            self.waiting -= given.remaining();
        } else {
            given.next = frame.next.take();
        }
        let path = self.path[..given.path_len].to_vec();
        Some(Piece { path, depth: self.base_depth + at as u32, frame: given })
    }
}

impl Frame {
    /// Entries that are still to be dealt with.
    fn remaining(&self) -> usize {
        self.batch.entries().len() - self.at
    }

    /// How many parts the work that is left could be dealt out in.
    fn work(&self) -> usize {
        let entries = if self.visited { self.remaining() } else { 1 };
        entries + usize::from(self.next.is_some())
    }
}

/// Visits an entry and returns whether it is a directory to go into.
fn visit_entry(
    vfs: &Vfs,
    path: &[u8],
    name_len: usize,
    depth: u32,
    entry: &Entry,
    visit: &mut Visit<'_>,
) -> ControlFlow<(), bool> {
    let mut node = None;
    let kind = match entry.kind {
        Some(kind) => kind,
        None => match node_listed(vfs, entry.ino) {
            Ok(read) => node.insert(read).kind(),
            Err(error) => {
                report(path, error, visit)?;
                return ControlFlow::Continue(false);
            }
        },
    };
    let name_start = path.len() - name_len;
    let entry = WalkEntry { vfs, path, name_start, depth, ino: entry.ino, kind, node: node.as_ref() };
    match visit(WalkEvent::Entry(entry)) {
        WalkFlow::Continue => ControlFlow::Continue(kind == FileType::Directory),
        WalkFlow::SkipSubtree => ControlFlow::Continue(false),
        WalkFlow::Stop => ControlFlow::Break(()),
    }
}

fn report(path: &[u8], error: Error, visit: &mut Visit<'_>) -> ControlFlow<()> {
    match visit(WalkEvent::Failure { path, error }) {
        WalkFlow::Stop => ControlFlow::Break(()),
        WalkFlow::Continue | WalkFlow::SkipSubtree => ControlFlow::Continue(()),
    }
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
