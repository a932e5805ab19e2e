//! Measuring a mounted filesystem: the workers are processes, as the programs are that a kernel serves.
//!
//! The parent makes a directory of its own in the target and starts the workers on it. Each says on its standard
//! output that it is ready, and waits. Their standard input is one pipe that all share: a byte for each is the start,
//! and the end of it, when the parent lets go, tells every worker that still waits or works that it is over. So a worker
//! does not outlive its parent's interest.
//!
//! What a worker says is one [`Word`] of JSON a line.

use std::io::{self, BufRead, BufReader, PipeWriter, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use serde::{Deserialize, Serialize};

use crate::mounted::{MountedDirectory, Scratch};
use crate::outcome::Measured;
use crate::script::{self, CreateUnlink};
use crate::sheet::Sheet;
use crate::worker::{change, work};
use crate::{BenchError, Job, Workload};

/// One process's part in a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What the workers do.
    pub workload: Workload,
    /// Where all of them do it.
    pub dir: PathBuf,
    /// Which of them this is, counted from 0. One more than there are, where the workload has it, changes names while
    /// the others work.
    pub index: u32,
    /// How many they are.
    pub threads: NonZeroU32,
    /// Each works in a directory of its own in `dir`.
    pub separate: bool,
    /// Operations of each.
    pub ops: NonZeroU64,
    /// The size of the file that all share, where the workload has one.
    pub file_bytes: NonZeroU64,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    Ready,
    Measured(Box<Sheet>),
    Done,
    Refused(String),
}

/// A worker as its parent knows it.
struct Worker {
    index: u32,
    child: Child,
    words: BufReader<ChildStdout>,
}

/// Measures once.
pub(crate) fn run(
    job: &Job,
    parent: &Path,
    worker: &dyn Fn(&Part) -> io::Result<Command>,
) -> Result<Measured, BenchError> {
    let scratch = Scratch::new(parent)?;
    script::prepare(job.workload, &MountedDirectory::open(scratch.path())?, job.sizes())?;
    let count = job.threads.get() + u32::from(job.workload.has_changer());
    let mut crew = WorkerPool::start((0..count).map(|index| Part::new(job, scratch.path(), index)), worker)?;
    for worker in &mut crew.workers {
        worker.hear(|word| matches!(word, Word::Ready).then_some(()))?;
    }
    crew.start_all()?;
    let (workers, changers) = crew.workers.split_at_mut(job.threads.get() as usize);
    let measured = |word| if let Word::Measured(sheet) = word { Some(*sheet) } else { None };
    let sheets = workers.iter_mut().map(|worker| worker.hear(measured)).collect::<Result<_, _>>()?;
    crew.pipe = None;
    for changer in changers {
        changer.hear(|word| matches!(word, Word::Done).then_some(()))?;
    }
    Ok(Measured { sheets, grown_bytes: None, locks: None, journal: None, stripes: None })
}

/// All workers, and the end of the pipe that they wait at. Dropping it ends and reaps them.
struct WorkerPool {
    workers: Vec<Worker>,
    pipe: Option<PipeWriter>,
}

impl WorkerPool {
    fn start(
        parts: impl Iterator<Item = Part>,
        worker: &dyn Fn(&Part) -> io::Result<Command>,
    ) -> Result<Self, BenchError> {
        let refused = |source| BenchError::Worker { what: "start", source };
        let (reader, writer) = io::pipe().map_err(refused)?;
        let mut crew = Self { workers: Vec::new(), pipe: Some(writer) };
        for part in parts {
            let mut command = worker(&part).map_err(refused)?;
            let stdin = reader.try_clone().map_err(refused)?;
            let mut child = command.stdin(stdin).stdout(Stdio::piped()).spawn().map_err(refused)?;
            let Some(stdout) = child.stdout.take() else {
                return Err(refused(io::ErrorKind::BrokenPipe.into()));
            };
            crew.workers.push(Worker { index: part.index, child, words: BufReader::new(stdout) });
        }
        Ok(crew)
    }

    fn start_all(&mut self) -> Result<(), BenchError> {
        let bytes = vec![0; self.workers.len()];
        let written = self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(&bytes));
        written.map_err(|source| BenchError::Worker { what: "speak to", source })
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.pipe = None;
        for worker in &mut self.workers {
            // One that has said its last word is on its way out; one that has not is not waited for.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Worker {
    /// The next word, which must be the one that `expected` takes.
    fn hear<T>(&mut self, expected: impl FnOnce(Word) -> Option<T>) -> Result<T, BenchError> {
        let index = self.index;
        let mut line = String::new();
        let read = self.words.read_line(&mut line);
        let read = read.map_err(|source| BenchError::Worker { what: "hear", source })?;
        let word = match read {
            0 => None,
            _ => Some(
                serde_json::from_str(&line).map_err(|source| BenchError::WorkerWords { index, source })?,
            ),
        };
        if let Some(Word::Refused(why)) = word {
            return Err(BenchError::WorkerRefused(why));
        }
        if let Some(heard) = word.and_then(expected) {
            return Ok(heard);
        }
        let _ = self.child.kill();
        let status = self.child.wait().map_err(|source| BenchError::Worker { what: "wait for", source })?;
        Err(BenchError::WorkerFailed { index, status })
    }
}

/// Does one process's part: waits at standard input and speaks on standard output.
///
/// # Errors
/// Standard output's own; what is wrong with the measurement is told to the parent.
pub fn serve_worker(part: &Part) -> io::Result<()> {
    let word = part.work().unwrap_or_else(|error| Word::Refused(error.to_string()));
    say(&word)
}

impl Part {
    fn new(job: &Job, dir: &Path, index: u32) -> Self {
        let &Job { workload, threads, separate, ops, file_bytes, .. } = job;
        Self { workload, dir: dir.to_owned(), index, threads, separate, ops, file_bytes }
    }

    fn work(&self) -> Result<Word, BenchError> {
        let mut dir = MountedDirectory::open(&self.dir)?;
        if self.separate {
            dir = script::own_directory(&dir, self.index)?;
        }
        // A worker that cannot be heard need not start.
        let start = || say(&Word::Ready).is_ok() && take_start();
        if self.index == self.threads.get() {
            change(CreateUnlink::new(&dir, self.index), start, is_over)?;
            return Ok(Word::Done);
        }
        let script = || script::of_worker(self.workload, &dir, self.index, self.file_bytes.get());
        let sheet = work(script, self.ops.get(), start)?;
        Ok(sheet.map_or(Word::Done, |sheet| Word::Measured(Box::new(sheet))))
    }
}

/// Waits for one byte, and takes no more: the next is another worker's.
fn take_start() -> bool {
    matches!(retry_on_intr(|| rustix::io::read(io::stdin(), &mut [0_u8])), Ok(1))
}

fn say(word: &Word) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// Whether the parent has let go of the pipe.
fn is_over() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_err() || fds[0].revents().contains(PollFlags::HUP)
}
