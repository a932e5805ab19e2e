//! Makes a copy of a tree on this machine.
//!
//! One thread makes all names, parents first, each in the open directory it belongs to; workers fill the files.
//! A directory gets its metadata when all its names are made: making names would change its times, and may need
//! rights that its mode does not give. Filling files does not touch the directory, so nobody waits for the workers.
//!
//! No call below follows a symbolic link, and none accepts a name that exists.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use undercroft_vfs::{Attr, FileType, Ino, Node, Vfs};

use super::Summary;
use super::content::{self, Dispatcher, Job, Word};
use super::metadata::{self, Lost, Privilege, Subject};
use super::place::Place;
use super::progress::Progress;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::text::names::{join, safe};
use crate::walk::{Event, Order, Walk};

/// Only the owner may look in while a copy is being made.
const WHILE_COPYING_DIRECTORY: Mode = Mode::RWXU;
const WHILE_COPYING_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory of the copy that is being filled.
struct OpenDirectory {
    fd: OwnedFd,
    node: Arc<Node>,
    /// Path inside the image.
    path: Vec<u8>,
}

struct Extraction<'a> {
    vfs: &'a Vfs,
    privilege: Privilege,
    place: Place,
    /// From the top of the copy down to where the walk is.
    open: Vec<OpenDirectory>,
    /// Names in the copy of files that have more than one, as paths below the place.
    names: HashMap<Ino, Vec<u8>>,
    /// Components of the directory where the walk is.
    position: Vec<Vec<u8>>,
    workers: Dispatcher,
    progress: &'a Progress,
    complaints: &'a mut Complaints,
    summary: Summary,
    lost: Lost,
}

/// Copies `node`, whose path inside the image is `path`.
pub(crate) fn run(
    vfs: &Vfs,
    node: &Arc<Node>,
    path: &[u8],
    place: Place,
    progress: &Progress,
    complaints: &mut Complaints,
) -> Result<Summary, Failure> {
    raise_open_file_limit();
    let privilege = Privilege::current();
    let workers = if node.kind() == FileType::Directory { content::worker_count() } else { 1 };
    thread::scope(|scope| {
        let (words, heard) = mpsc::channel();
        let mut queues = Vec::with_capacity(workers);
        for _ in 0..workers {
            let (queue, jobs) = mpsc::sync_channel(content::queue_length(1));
            let words = words.clone();
            scope.spawn(move || content::work(jobs, &words, privilege, progress));
            queues.push(queue);
        }
        drop(words);
        let mut extraction = Extraction {
            vfs,
            privilege,
            place,
            open: Vec::new(),
            names: HashMap::new(),
            position: Vec::new(),
            workers: Dispatcher::new(queues, heard),
            progress,
            complaints,
            summary: Summary::default(),
            lost: Lost::default(),
        };
        extraction.top(node, path)?;
        extraction.finish()
    })
}

impl Extraction<'_> {
    fn top(&mut self, node: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        let name = self.place.name.clone();
        if node.kind() != FileType::Directory {
            let Some(name) = name else {
                return Err(Failure::new(Kind::Usage, format!("{} has no name to be put under", safe(path)))
                    .advise("name a destination that does not exist"));
            };
            return match self.create(&name, node, path) {
                Ok(()) => Ok(()),
                Err(failure) => self.complain(failure),
            };
        }
        let fd = match &name {
            Some(name) => {
                make_directory(&self.place.dir, name).map_err(|error| self.cannot_make(path, error))?
            }
            None => rustix::io::fcntl_dupfd_cloexec(&self.place.dir, 0)
                .map_err(|error| self.cannot_make(path, error))?,
        };
        self.enter(name.unwrap_or_else(|| b".".to_vec()), fd, node, path);
        self.walk(node, path)
    }

    fn walk(&mut self, start: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        let vfs = self.vfs;
        let mut walk = Walk::new(vfs, start, path.to_vec(), Order::Inode);
        while let Some(event) = walk.next() {
            let done = match event {
                Event::File(entry) => self.create(&entry.name, &entry.node, &entry.path),
                Event::Enter(entry) => {
                    let made = make_directory(self.directory(), &entry.name)
                        .map_err(|error| self.cannot_make(&entry.path, error));
                    match made {
                        Ok(fd) => {
                            self.enter(entry.name, fd, &entry.node, &entry.path);
                            Ok(())
                        }
                        Err(failure) => {
                            walk.pass_over();
                            Err(failure)
                        }
                    }
                }
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
    fn directory(&self) -> &OwnedFd {
        self.open.last().map_or(&self.place.dir, |directory| &directory.fd)
    }

    fn enter(&mut self, name: Vec<u8>, fd: OwnedFd, node: &Arc<Node>, path: &[u8]) {
        self.position.push(name);
        self.open.push(OpenDirectory { fd, node: Arc::clone(node), path: path.to_vec() });
        self.summary.count(FileType::Directory);
        self.complaints.done_some();
    }

    fn leave(&mut self) -> Result<(), Failure> {
        self.position.pop();
        let Some(directory) = self.open.pop() else { return Ok(()) };
        let subject = Subject::Open(directory.fd.as_fd());
        self.lost.add(metadata::apply(&subject, &directory.node, &directory.path, self.privilege)?);
        Ok(())
    }

    /// Makes anything but a directory.
    fn create(&mut self, name: &[u8], node: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        let attr = node.attr();
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
            self.names.insert(attr.ino, join(&self.position.join(&b'/'), name));
        }
        Ok(())
    }

    /// Makes a further name for a file that is already there. `false`: there is none, or the destination cannot
    /// have two names for one file, so a copy must do.
    fn link(&mut self, name: &[u8], attr: &Attr, path: &[u8]) -> Result<bool, Failure> {
        let Some(first) = self.names.get(&attr.ino) else { return Ok(false) };
        let linked = open_parent_beneath(&self.place.dir, first).and_then(|(old_dir, old_name)| {
            rustix::fs::linkat(old_dir, old_name, self.directory(), name, AtFlags::empty())
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
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = rustix::fs::openat(self.directory(), name, flags, WHILE_COPYING_FILE)
            .map_err(|error| self.cannot_make(path, error))?;
        self.workers.hand_over(Job { from, to: File::from(to), path: path.to_vec() });
        Ok(())
    }

    fn create_symlink(&mut self, name: &[u8], target: &[u8], path: &[u8]) -> Result<(), Failure> {
        rustix::fs::symlinkat(target, self.directory(), name).map_err(|error| self.cannot_make(path, error))
    }

    fn create_special(&mut self, name: &[u8], attr: &Attr, path: &[u8]) -> Result<(), Failure> {
        let kind = rustix::fs::FileType::from_raw_mode(attr.kind.mode_bits());
        let device = rustix::fs::makedev(attr.rdev.major, attr.rdev.minor);
        rustix::fs::mknodat(self.directory(), name, kind, WHILE_COPYING_FILE, device).map_err(|error| {
            let failure = self.cannot_make(path, error);
            if error == Errno::PERM { failure.advise("only root may make device nodes") } else { failure }
        })
    }

    fn finish_named(&mut self, name: &[u8], node: &Arc<Node>, path: &[u8]) -> Result<(), Failure> {
        self.summary.count(node.kind());
        self.complaints.done_some();
        let subject = Subject::Named { dir: self.directory().as_fd(), name };
        let lost = metadata::apply(&subject, node, path, self.privilege)?;
        self.lost.add(lost);
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
            Word::Copied { content_bytes, lost } => {
                self.summary.count(FileType::Regular);
                self.summary.content_bytes += content_bytes;
                self.lost.add(lost);
                self.complaints.done_some();
                Ok(())
            }
            Word::Failed(failure) => self.complain(failure),
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
        note(self.lost.owners, "owner", "run as root to keep owners");
        note(self.lost.privileged_xattrs, "extended attribute", "only root may set these");
        if self.lost.unsupported_xattrs > 0 {
            let number = crate::text::human::counted(self.lost.unsupported_xattrs, "extended attribute");
            let what =
                format!("{number} could not be kept: the filesystem of {} takes none", self.place.shown);
            self.complaints.add(Failure::new(Kind::Host, what))?;
        }
        Ok(self.summary)
    }
}

/// Says on standard error what a user cannot have.
fn note(number: u64, noun: &str, advice: &str) {
    if number > 0 {
        eprintln!("undercroft: note: {} not kept; {advice}", crate::text::human::counted(number, noun));
    }
}

fn make_directory(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(dir, name, WHILE_COPYING_DIRECTORY)?;
    open_directory(dir, name)
}

fn open_directory(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Opens the directory of a name of the copy, component by component, so that no length of path and no link
/// stands in the way; gives the name in it.
fn open_parent_beneath<'a>(top: &OwnedFd, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8]), Errno> {
    let mut dir = rustix::io::fcntl_dupfd_cloexec(top, 0)?;
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
        dir = open_directory(&dir, &rest[..slash])?;
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
