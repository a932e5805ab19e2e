//! Copies the bytes of regular files, several files at a time.
//!
//! The thread that makes names hands over each new file with [`Job`]; a worker fills it, leaves the holes out and
//! sets its metadata and gives it its name. The queue is bounded, so the names are never far ahead of the bytes and few files are open.
//! A file that cannot be read to its end ends where reading did, and the failure names it; a file that cannot be
//! written does not appear.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError};

use rustix::io::Errno;
use undercroft_vfs as vfs;

use super::directory::Directory;
use super::metadata::{self, Keep, Lost, Subject};
use super::partial::Partial;
use super::progress::Progress;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// More workers than this have no image that feeds them.
const WORKERS_MAX: usize = 8;
/// Files that wait, per worker.
const QUEUE_PER_WORKER: usize = 4;

/// A file that is to be filled.
#[derive(Debug)]
pub(crate) struct Job {
    /// The source.
    pub(crate) from: vfs::File,
    /// The destination, which is empty.
    pub(crate) to: Partial,
    /// The directory of the copy that it belongs to.
    pub(crate) dir: Arc<Directory>,
    /// The source's path inside the image, for messages.
    pub(crate) path: Vec<u8>,
}

/// What a worker has to say.
#[derive(Debug)]
pub(crate) enum Word {
    /// A file is complete.
    Copied {
        /// Its inode in the image.
        ino: vfs::Ino,
        /// Bytes moved.
        content_bytes: u64,
        /// What of its metadata could not be kept.
        lost: Lost,
    },
    /// A file is not complete.
    Failed {
        /// Its inode in the image.
        ino: vfs::Ino,
        /// Why.
        failure: Failure,
    },
    /// A worker was the last to need a directory, which has its metadata now.
    Left(Result<Lost, Failure>),
}

/// How many workers to start.
pub(crate) fn worker_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(1, WORKERS_MAX)
}

/// Jobs that may wait.
pub(crate) fn queue_length(workers: usize) -> usize {
    workers * QUEUE_PER_WORKER
}

/// Gives every worker a queue of its own in turn; the receiving end of a channel has one owner.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    queues: Vec<SyncSender<Job>>,
    next: usize,
    words: Receiver<Word>,
}

impl Dispatcher {
    pub(crate) fn new(queues: Vec<SyncSender<Job>>, words: Receiver<Word>) -> Self {
        Self { queues, next: 0, words }
    }

    /// Hands a job to the first worker that has room; waits for one when none has.
    pub(crate) fn hand_over(&mut self, job: Job) {
        let mut job = job;
        for _ in 0..self.queues.len() {
            self.next = (self.next + 1) % self.queues.len();
            match self.queues[self.next].try_send(job) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => {
                    job = back;
                }
            }
        }
        // A worker ends only when this sender is dropped.
        self.queues[self.next].send(job).expect("workers outlive their queue");
    }

    /// Something a worker said, if one did.
    pub(crate) fn word(&self) -> Option<Word> {
        self.words.try_recv().ok()
    }

    /// What a worker says next; `None` when no worker is left.
    pub(crate) fn next_word(&self) -> Option<Word> {
        self.words.recv().ok()
    }

    /// No more jobs come; gives what the workers still say, until the last one ends.
    pub(crate) fn close(self) -> Receiver<Word> {
        self.words
    }
}

/// One worker's life.
pub(crate) fn work(jobs: Receiver<Job>, words: &Sender<Word>, keep: Keep, progress: &Progress) {
    let mut buffer = vec![0; CHUNK_BYTES];
    for Job { from, to, dir, path } in jobs {
        let ino = from.node().attr().ino;
        let filled = fill(&from, to, &path, &mut buffer, keep, progress);
        // Before the file is reported: when the last file was, the directories are complete too.
        let left = dir.release(keep);
        let word = match filled {
            Ok((content_bytes, lost)) => Word::Copied { ino, content_bytes, lost },
            Err(failure) => Word::Failed { ino, failure },
        };
        if words.send(Word::Left(left)).is_err() || words.send(word).is_err() {
            return;
        }
    }
}

fn fill(
    from: &vfs::File,
    mut to: Partial,
    path: &[u8],
    buffer: &mut [u8],
    keep: Keep,
    progress: &Progress,
) -> Result<(u64, Lost), Failure> {
    let copied = copy(from, &to.file, path, buffer, progress);
    if let Err(failure) = &copied
        && failure.kind() == Kind::Host
    {
        return copied.map(|bytes| (bytes, Lost::default()));
    }
    if copied.is_err() {
        to.is_incomplete();
    }
    let applied = metadata::apply(&Subject::Open(to.file.as_fd()), from.node(), path, keep)?;
    match (to.publish(), copied) {
        // What is there is more than what could be read.
        (Err(Errno::EXIST), Err(failure)) => Err(failure.noting("what has its name stays".to_owned())),
        (Err(error), _) => {
            Err(Failure::host(format!("cannot name the copy of {}", safe(path)), &error.into()))
        }
        (Ok(()), copied) => Ok((copied?, applied.into_result()?)),
    }
}

/// Copies what is not a hole.
fn copy(
    from: &vfs::File,
    to: &File,
    path: &[u8],
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<u64, Failure> {
    let outside =
        |error: std::io::Error| Failure::host(format!("cannot write the copy of {}", safe(path)), &error);
    let size = from.node().attr().size_bytes;
    to.set_len(size).map_err(outside)?;
    let mut copied = 0;
    // What cannot be read ends the copy: behind it nothing is known, zeroes least of all.
    let unreadable = |at: u64, error: vfs::Error| {
        to.set_len(at).map_err(outside)?;
        Err(Failure::inside(path, &error).advise(format!("the copy ends after {at} of {size} bytes")))
    };
    let mut data = from.data_ranges(0..size);
    while let Some(found) = data.next() {
        let Range { start: mut at, end } = match found {
            Ok(range) => range,
            Err(error) => return unreadable(data.position(), error),
        };
        while at < end {
            let want = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let read = match from.read_at(at, &mut buffer[..want]) {
                Ok(0) => return Ok(copied),
                Ok(read) => read,
                Err(error) => return unreadable(at, error),
            };
            to.write_all_at(&buffer[..read], at).map_err(outside)?;
            at += read as u64;
            copied += read as u64;
            progress.advance(read as u64);
        }
    }
    Ok(copied)
}
