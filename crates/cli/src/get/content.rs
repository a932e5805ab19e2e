//! Copies the bytes of regular files, several files at a time.
//!
//! The thread that makes names hands over each new file with [`Job`]; a worker fills it, leaves the holes out and
//! sets its metadata. The queue is bounded, so the names are never far ahead of the bytes and few files are open.
//! A file that cannot be read to its end keeps what was read, and the failure names it.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError};

use undercroft_vfs as vfs;

use super::metadata::{self, Lost, Privilege, Subject};
use super::progress::Progress;
use crate::failure::Failure;
use crate::text::names::safe;

/// Bytes moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// More workers than this have no image that feeds them.
const WORKERS_MAX: usize = 8;
/// Files that wait, per worker.
const QUEUE_PER_WORKER: usize = 4;

/// A file that exists and is empty.
#[derive(Debug)]
pub(crate) struct Job {
    /// The source.
    pub(crate) from: vfs::File,
    /// The destination.
    pub(crate) to: File,
    /// The source's path inside the image, for messages.
    pub(crate) path: Vec<u8>,
}

/// What a worker has to say.
#[derive(Debug)]
pub(crate) enum Word {
    /// A file is complete.
    Copied {
        /// Bytes moved.
        content_bytes: u64,
        /// What of its metadata could not be kept.
        lost: Lost,
    },
    /// A file is not complete.
    Failed(Failure),
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

    /// No more jobs come; gives what the workers still say, until the last one ends.
    pub(crate) fn close(self) -> Receiver<Word> {
        self.words
    }
}

/// One worker's life.
pub(crate) fn work(jobs: Receiver<Job>, words: &Sender<Word>, privilege: Privilege, progress: &Progress) {
    let mut buffer = vec![0; CHUNK_BYTES];
    for job in jobs {
        let word = match fill(&job, &mut buffer, privilege, progress) {
            Ok((content_bytes, lost)) => Word::Copied { content_bytes, lost },
            Err(failure) => Word::Failed(failure),
        };
        if words.send(word).is_err() {
            return;
        }
    }
}

fn fill(
    job: &Job,
    buffer: &mut [u8],
    privilege: Privilege,
    progress: &Progress,
) -> Result<(u64, Lost), Failure> {
    let content_bytes = copy(job, buffer, progress)?;
    let subject = Subject::Open(job.to.as_fd());
    let node = Arc::clone(job.from.node());
    let lost = metadata::apply(&subject, &node, &job.path, privilege)?;
    Ok((content_bytes, lost))
}

/// Copies what is not a hole.
fn copy(job: &Job, buffer: &mut [u8], progress: &Progress) -> Result<u64, Failure> {
    let inside = |error: vfs::Error| Failure::inside(&job.path, &error);
    let outside = |error: std::io::Error| {
        Failure::host(format!("cannot write the copy of {}", safe(&job.path)), &error)
    };
    let size = job.from.node().attr().size_bytes;
    job.to.set_len(size).map_err(outside)?;
    let mut copied = 0;
    let mut at = 0;
    while at < size {
        let start = match job.from.seek_data(at) {
            Ok(start) => start,
            Err(vfs::Error::NoSuchOffset) => break,
            Err(error) => return Err(inside(error)),
        };
        let end = job.from.seek_hole(start).map_err(inside)?.min(size);
        at = start;
        while at < end {
            let want = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let read = job.from.read_at(at, &mut buffer[..want]).map_err(inside)?;
            if read == 0 {
                return Ok(copied);
            }
            job.to.write_all_at(&buffer[..read], at).map_err(outside)?;
            at += read as u64;
            copied += read as u64;
            progress.advance(read as u64);
        }
    }
    Ok(copied)
}
