//! Makes a copy of a tree on this machine.
//!
//! One thread makes all names, parents first, each in the open directory it belongs to; workers fill the files and give
//! them their names when they are complete.
//!
//! No call below follows a symbolic link, and none accepts a name that exists, unless the copy is one that an earlier
//! run began (see `earlier`) or may replace what is there: then a name goes from what it named to the complete copy in one
//! step.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use undercroft_vfs::{Attr, FileType, Ino, Node, Vfs};

use super::Summary;
use super::content::{self, Dispatcher, Job, Word};
use super::directory::{self, Directory};
use super::earlier::{self, Earlier};
use super::metadata::{self, Keep, Privilege, Subject};
use super::partial::{self, Partial};
use super::place::Place;
use super::progress::Progress;
use super::select::Source;
use super::told::Told;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::plan::{Existing, GetPlan};
use crate::text::names::{join, safe};
use crate::walk::{Event, Order, Walk};

const WHILE_COPYING_NODE: Mode = Mode::RUSR.union(Mode::WUSR);

struct Extraction<'a> {
    vfs: &'a Vfs,
    plan: &'a GetPlan,
    /// Where names are reported, if they are.
    told: Option<Told>,
    keep: Keep,
    /// The place of the source that is being copied; those of all sources are in one directory.
    place: Place,
    /// The directory that the place names something in, or is.
    base: Arc<Directory>,
    /// From the top of the copy down to where the walk is.
    open: Vec<Arc<Directory>>,
    /// Names in the copy of files that have more than one, as paths below the place.
    names: HashMap<Ino, Vec<u8>>,
    /// Those of them that workers have not completed yet.
    in_progress: HashSet<Ino>,
    /// Files with more than one name that an earlier run made and that have their metadata now, by device and inode
    /// number in the copy.
    completed: HashSet<(u64, u64)>,
    /// Components of the directory where the walk is.
    position: Vec<Vec<u8>>,
    workers: Dispatcher,
    progress: &'a Progress,
    complaints: &'a mut Complaints,
    summary: Summary,
}

/// Copies the sources, each to its place. What is wrong with one of several is reported, and the others are copied.
pub(crate) fn run(
    vfs: &Vfs,
    plan: &GetPlan,
    sources: Vec<(Source, Place)>,
    told: Option<Told>,
    progress: &Progress,
    complaints: &mut Complaints,
) -> Result<Summary, Failure> {
    raise_open_file_limit();
    let is_single = sources.len() == 1;
    let is_one_file =
        is_single && sources.iter().all(|(source, _)| source.node.kind() != FileType::Directory);
    let strip = sources
        .iter()
        .any(|(_, place)| place.existing != Existing::Refuse || metadata::has_default_acl(place.dir.as_fd()));
    let keep = Keep { privilege: Privilege::current(), special: plan.special, strip };
    let workers = if is_one_file { 1 } else { content::worker_count() };
    let mut sources = sources.into_iter();
    let Some((first, place)) = sources.next() else { return Ok(Summary::default()) };
    let base = base_of(&place)?;
    thread::scope(|scope| {
        let (words, heard) = mpsc::channel();
        let mut queues = Vec::with_capacity(workers);
        for _ in 0..workers {
            let (queue, jobs) = mpsc::sync_channel(content::queue_length(1));
            let words = words.clone();
            scope.spawn(move || content::work(jobs, &words, keep, progress));
            queues.push(queue);
        }
        drop(words);
        let mut extraction = Extraction {
            vfs,
            plan,
            told,
            keep,
            place,
            base,
            open: Vec::new(),
            names: HashMap::new(),
            in_progress: HashSet::new(),
            completed: HashSet::new(),
            position: Vec::new(),
            workers: Dispatcher::new(queues, heard),
            progress,
            complaints,
            summary: Summary::default(),
        };
        match extraction.top(&first.node, &first.path) {
            Err(failure) if !is_single => extraction.complain(failure)?,
            done => done?,
        }
        for (source, place) in sources {
            let done = base_of(&place).and_then(|base| {
                if place.name.is_none() || extraction.place.name.is_none() {
                    // What an earlier run made is opened itself, and names are reported from there.
                    extraction.names.clear();
                }
                (extraction.base, extraction.place) = (base, place);
                extraction.top(&source.node, &source.path)
            });
            if let Err(failure) = done {
                extraction.complain(failure)?;
            }
        }
        extraction.finish()
    })
}

/// The directory that a place names something in, or is.
fn base_of(place: &Place) -> Result<Arc<Directory>, Failure> {
    let fd = rustix::io::fcntl_dupfd_cloexec(&place.dir, 0)
        .map_err(|error| Failure::host(format!("cannot use {}", place.shown), &error.into()))?;
    Ok(Directory::existing(fd))
}

impl Extraction<'_> {
    fn top(&mut self, node: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        let name = self.place.name.clone();
        if node.kind() != FileType::Directory {
            let Some(name) = name else {
                return Err(Failure::new(Kind::Usage, format!("{} has no name to be put under", safe(path)))
                    .advise("name a destination that does not exist"));
            };
            partial::remove_leftovers(&self.place.dir).map_err(|error| self.cannot_make(path, error))?;
            return match self.create(&name, node, path) {
                Ok(()) => Ok(()),
                Err(failure) => self.complain(failure),
            };
        }
        let fd = match &name {
            Some(name) => self.make_directory(name, path)?,
            // The name of a directory in itself.
            None if self.place.existing == Existing::Resume => {
                directory::reopen(&self.place.dir, b".").map_err(|error| self.cannot_make(path, error))?
            }
            None => rustix::io::fcntl_dupfd_cloexec(&self.place.dir, 0)
                .map_err(|error| self.cannot_make(path, error))?,
        };
        self.enter(name.unwrap_or_else(|| b".".to_vec()), fd, node, path);
        self.tell(path)?;
        self.walk(node, path)
    }

    fn walk(&mut self, start: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        let vfs = self.vfs;
        let mut walk = Walk::new(vfs, start, path.to_vec(), Order::Inode);
        while let Some(event) = walk.next() {
            let done = match event {
                Event::File(entry) if self.plan.exclude.has(&entry.path) => Ok(()),
                Event::Enter(entry) if self.plan.exclude.has(&entry.path) => {
                    walk.pass_over();
                    Ok(())
                }
                Event::File(entry) => self.create(&entry.name, &entry.node, &entry.path),
                Event::Enter(entry) => match self.make_directory(&entry.name, &entry.path) {
                    Ok(fd) => {
                        self.enter(entry.name, fd, &entry.node, &entry.path);
                        self.tell(&entry.path)
                    }
                    Err(failure) => {
                        walk.pass_over();
                        Err(failure)
                    }
                },
                Event::Leave => self.leave(),
                Event::Trouble { path, error } => Err(Failure::inside(&path, &error)),
            };
            if let Err(failure) = done {
                self.complain(failure)?;
            }
            while let Some(word) = self.workers.word() {
                self.hear(word)?;
            }
        }
        Ok(())
    }

    /// The directory that names are being made in.
    fn directory(&self) -> &Arc<Directory> {
        self.open.last().unwrap_or(&self.base)
    }

    fn make_directory(&self, name: &[u8], path: &[u8]) -> Result<OwnedFd, Failure> {
        let dir = &self.directory().fd;
        let made = match directory::make(dir, name) {
            Err(Errno::EXIST) if self.place.existing == Existing::Resume => directory::reopen(dir, name),
            Err(Errno::EXIST) if self.replaces() => directory::fill_up(dir, name),
            made => made,
        };
        made.map_err(|error| self.cannot_make(path, error))
    }

    /// Whether names that exist may be replaced.
    fn replaces(&self) -> bool {
        self.place.existing.replaces()
    }

    /// Tells that a copy begins.
    fn tell(&self, path: &[u8]) -> Result<(), Failure> {
        self.told.map_or(Ok(()), |told| self.progress.aside(|| told.name(path)))
    }

    /// Whether the copy that is there is as new as the original, and is to stay for that.
    fn is_up_to_date(&self, name: &[u8], attr: &Attr) -> bool {
        if self.place.existing != Existing::Update {
            return false;
        }
        let found = rustix::fs::statat(&self.directory().fd, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| {
            let is_directory = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
            let modified = metadata::timespec(attr.modified);
            let theirs = i64::try_from(found.st_mtime_nsec).unwrap_or(i64::MAX);
            !is_directory && (found.st_mtime, theirs) >= (modified.tv_sec, modified.tv_nsec)
        })
    }

    fn enter(&mut self, name: Vec<u8>, fd: OwnedFd, node: &Arc<Node>, path: &[u8]) {
        self.position.push(name);
        self.open.push(Directory::copy_of(node, path, fd));
        self.summary.count(FileType::Directory);
        self.complaints.done_some();
    }

    fn leave(&mut self) -> Result<(), Failure> {
        self.position.pop();
        if let Some(directory) = self.open.pop() {
            self.summary.not_kept.add(directory.release(self.keep)?);
        }
        Ok(())
    }

    /// Makes anything but a directory.
    fn create(&mut self, name: &[u8], node: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        let attr = node.attr();
        let is_resumed = self.place.existing == Existing::Resume;
        let earlier =
            if is_resumed { earlier::made(&self.directory().fd, name, node, path) } else { Ok(None) };
        if matches!(attr.kind, FileType::CharDevice | FileType::BlockDevice) && !self.keep.special {
            self.summary.not_kept.device_nodes += 1;
            return match earlier {
                Ok(Some(_)) => Err(Failure::new(
                    Kind::Host,
                    format!("the copy has the device node {} from an earlier run with --special", safe(path)),
                )
                .advise("remove it, or keep device nodes by --special")),
                _ => {
                    self.complaints.done_some();
                    Ok(())
                }
            };
        }
        if let Some(earlier) = earlier? {
            return self.complete(&earlier, name, node, path);
        }
        if self.is_up_to_date(name, &attr) {
            self.summary.up_to_date += 1;
            self.complaints.done_some();
            return Ok(());
        }
        self.tell(path)?;
        if attr.links > 1 && self.link(name, &attr, path)? {
            return Ok(());
        }
        match attr.kind {
            FileType::Regular => self.create_file(name, node, path)?,
            FileType::Symlink => {
                let target = node.read_link().map_err(|error| Failure::inside(path, &error))?;
                self.create_symlink(name, &target, path)?;
                self.finish_named(name, node, path)?;
            }
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                self.create_special(name, &attr, path)?;
                self.finish_named(name, node, path)?;
            }
            FileType::Directory => return Err(self.cannot_make(path, Errno::ISDIR)),
        }
        if attr.links > 1 {
            self.names.insert(attr.ino, self.path_in_copy(name));
        }
        Ok(())
    }

    /// Puts on what an earlier run copied what is to be on it, once for all its names.
    fn complete(
        &mut self,
        earlier: &Earlier,
        name: &[u8],
        node: &Arc<Node>,
        path: &[u8],
    ) -> Result<(), Failure> {
        self.summary.already_there += 1;
        self.complaints.done_some();
        let attr = node.attr();
        if attr.links > 1 {
            let in_copy = self.path_in_copy(name);
            self.names.entry(attr.ino).or_insert(in_copy);
            if !self.completed.insert(earlier.identity) {
                return Ok(());
            }
        }
        let lost = earlier.complete(&self.directory().fd, name, node, path, self.keep)?;
        self.summary.not_kept.add(lost);
        Ok(())
    }

    /// The path of a name of this directory below the place.
    fn path_in_copy(&self, name: &[u8]) -> Vec<u8> {
        join(&self.position.join(&b'/'), name)
    }

    /// Makes a further name for a file that is already there. `false`: there is none, or the destination cannot
    /// have two names for one file, so a copy must do.
    fn link(&mut self, name: &[u8], attr: &Attr, path: &[u8]) -> Result<bool, Failure> {
        // A file that is being filled has no name to link to yet.
        while self.in_progress.contains(&attr.ino) {
            let Some(word) = self.workers.next_word() else { break };
            self.hear(word)?;
        }
        let Some(first) = self.names.get(&attr.ino) else { return Ok(false) };
        let linked = open_parent_beneath(&self.place.dir, first).and_then(|(old_dir, old_name)| {
            let dir = &self.directory().fd;
            partial::make_named(dir, name, self.replaces(), |name| {
                rustix::fs::linkat(&old_dir, old_name, dir, name, AtFlags::empty())
            })
        });
        match linked {
            Ok(()) => {
                self.summary.hard_links += 1;
                self.complaints.done_some();
                Ok(true)
            }
            Err(Errno::MLINK | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::XDEV) => Ok(false),
            Err(error) => Err(self.cannot_make(path, error)),
        }
    }

    fn create_file(&mut self, name: &[u8], node: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        let from = self.vfs.open_node(node).map_err(|error| Failure::inside(path, &error))?;
        let dir = Arc::clone(self.directory());
        let to =
            Partial::create(&dir, name, self.replaces()).map_err(|error| self.cannot_make(path, error))?;
        let attr = node.attr();
        if attr.links > 1 {
            self.in_progress.insert(attr.ino);
        }
        self.workers.hand_over(Job { from, to, dir, path: path.to_vec() });
        Ok(())
    }

    fn create_symlink(&mut self, name: &[u8], target: &[u8], path: &[u8]) -> Result<(), Failure> {
        let dir = &self.directory().fd;
        partial::make_named(dir, name, self.replaces(), |name| rustix::fs::symlinkat(target, dir, name))
            .map_err(|error| self.cannot_make(path, error))
    }

    fn create_special(&mut self, name: &[u8], attr: &Attr, path: &[u8]) -> Result<(), Failure> {
        let kind = rustix::fs::FileType::from_raw_mode(attr.kind.mode_bits());
        let device = rustix::fs::makedev(attr.rdev.major, attr.rdev.minor);
        let dir = &self.directory().fd;
        let made = partial::make_named(dir, name, self.replaces(), |name| {
            rustix::fs::mknodat(dir, name, kind, WHILE_COPYING_NODE, device)
        });
        made.map_err(|error| {
            let failure = self.cannot_make(path, error);
            if error == Errno::PERM { failure.advise("only root may make device nodes") } else { failure }
        })
    }

    fn finish_named(&mut self, name: &[u8], node: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        self.summary.count(node.kind());
        self.complaints.done_some();
        let subject = Subject::Named { dir: self.directory().fd.as_fd(), name };
        let lost = metadata::apply(&subject, node, path, self.keep)?.into_result()?;
        self.summary.not_kept.add(lost);
        Ok(())
    }

    fn cannot_make(&self, path: &[u8], error: Errno) -> Failure {
        let place = &self.place.shown;
        let failure = Failure::host(format!("cannot copy {} to {place}", safe(path)), &error.into());
        match error {
            Errno::MFILE => {
                failure.advise("the tree is deeper than the limit on open files allows: see `ulimit -n`")
            }
            _ => failure,
        }
    }

    fn complain(&mut self, failure: Failure) -> Result<(), Failure> {
        let progress = self.progress;
        let complaints = &mut *self.complaints;
        progress.aside(|| complaints.add(failure))
    }

    fn hear(&mut self, word: Word) -> Result<(), Failure> {
        match word {
            Word::Copied { ino, content_bytes, lost } => {
                self.in_progress.remove(&ino);
                self.summary.count(FileType::Regular);
                self.summary.content_bytes += content_bytes;
                self.summary.not_kept.add(lost);
                self.complaints.done_some();
                Ok(())
            }
            Word::Failed { ino, failure } => {
                self.in_progress.remove(&ino);
                // The next name of the file, if it has one, tries again.
                self.names.remove(&ino);
                self.complain(failure)
            }
            Word::Left(Ok(lost)) => {
                self.summary.not_kept.add(lost);
                Ok(())
            }
            Word::Left(Err(failure)) => self.complain(failure),
        }
    }

    /// Waits for the workers and says what was lost.
    fn finish(mut self) -> Result<Summary, Failure> {
        let (no_queue, silence) = (Vec::new(), mpsc::channel().1);
        let workers = std::mem::replace(&mut self.workers, Dispatcher::new(no_queue, silence));
        for word in workers.close() {
            self.hear(word)?;
        }
        self.progress.finish();
        let not_kept = self.summary.not_kept;
        not_kept.note_owners();
        not_kept.note_special(match self.keep.privilege {
            Privilege::Root | Privilege::Mapped => "--special keeps these, from an image that you trust",
            Privilege::User => "only root may keep these, with --special",
        });
        if not_kept.unsupported_xattrs > 0 {
            let number = crate::text::human::counted(not_kept.unsupported_xattrs, "extended attribute");
            let what =
                format!("{number} could not be kept: the filesystem of {} takes none", self.place.shown);
            self.complaints.add(Failure::new(Kind::Host, what))?;
        }
        Ok(self.summary)
    }
}

/// Opens the directory of a name of the copy, component by component, so that no length of path and no link
/// stands in the way; gives the name in it.
fn open_parent_beneath<'a>(top: &OwnedFd, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8]), Errno> {
    let mut dir = rustix::io::fcntl_dupfd_cloexec(top, 0)?;
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
        dir = directory::open(&dir, &rest[..slash])?;
        rest = &rest[slash + 1..];
    }
    Ok((dir, rest))
}

/// Every level of the tree holds a directory open. Where the limit cannot be raised, deep trees fail by name.
fn raise_open_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || (limit.maximum.is_none() && limit.current.is_some()) {
        // A refusal leaves the limit as it was.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
