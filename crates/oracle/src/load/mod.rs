//! Programs that keep a filesystem busy: random creations, writes, renames, removals and the like, some made durable
//! at once, until they are stopped or the filesystem goes away under them.

mod xfs;

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::Context;
use crate::populate::noise;
use crate::{Error, Result};
use undercroft_block::testing::Rng;

/// What the threads do.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Decides everything that is random.
    pub seed: u64,
    /// One operation in so many is followed by an fsync.
    pub sync_one_in: u64,
    /// Which operations.
    pub mix: Mix,
}

/// Which operations a load is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Everything that a journal may meet.
    Everything,
    /// What ext4 logs in fast commits, and seldom something that makes it fall back to a full commit or that it
    /// cannot replay itself.
    FastCommits,
    /// What XFS logs in chains of transactions that a crash may cut: shared blocks, copies on write, files in hundreds
    /// of pieces that are cut short, large and small attributes; and everything else beside it.
    Xfs,
    /// Of those nearly only what XFS logs in long chains, so that a crash finds some of them under way.
    XfsChains,
}

impl Mix {
    const fn is_of_xfs(self) -> bool {
        matches!(self, Self::Xfs | Self::XfsChains)
    }
}

/// Threads that work, each in a directory of its own and in one that they share. Dropping it stops them.
#[derive(Debug)]
pub struct Load {
    signals: Arc<Signals>,
    threads: Vec<JoinHandle<Result<Vec<File>>>>,
}

impl Load {
    /// Starts two threads below `root`, three of [`Mix::Xfs`] and [`Mix::XfsChains`].
    ///
    /// # Errors
    /// The directories cannot be made.
    pub fn start(root: &Path, options: LoadOptions) -> Result<Self> {
        let signals = Arc::new(Signals::default());
        let top = Dir::open(root)?;
        drop(top.dir("shared")?);
        let mut threads = Vec::new();
        for number in 0..if options.mix.is_of_xfs() { 3 } else { 2_u64 } {
            let worker = Worker {
                own: top.dir(format!("own-{number}"))?,
                shared: top.sub("shared")?,
                random: Rng::new(options.seed << 16 ^ number),
                options,
                held: Vec::new(),
            };
            let signals = Arc::clone(&signals);
            threads.push(std::thread::spawn(move || worker.work(&signals)));
        }
        Ok(Self { signals, threads })
    }

    /// Waits until `operations` have been done in all.
    ///
    /// # Errors
    /// The threads come to no end with them: a failed one stops for good.
    pub fn wait_for(&self, operations: usize) -> Result<()> {
        let limit = Instant::now() + Duration::from_secs(120);
        while self.signals.done.load(Ordering::Relaxed) < operations {
            if Instant::now() > limit || self.threads.iter().all(JoinHandle::is_finished) {
                return Err(Error::Unfit(format!("the load stood still before operation {operations}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Lets the threads go on slowly and without fsync while `work` runs: the device has pauses then.
    pub fn calm<T>(&self, work: impl FnOnce() -> T) -> T {
        self.signals.calm.store(true, Ordering::Relaxed);
        let outcome = work();
        self.signals.calm.store(false, Ordering::Relaxed);
        outcome
    }

    /// Stops the threads. The files that they unlinked and still hold open come back, for the caller to close.
    ///
    /// # Errors
    /// An operation failed in a way that neither the load itself nor the filesystem's end explains.
    pub fn stop(mut self) -> Result<Vec<File>> {
        self.signals.stop.store(true, Ordering::Relaxed);
        let mut held = Vec::new();
        for thread in self.threads.drain(..) {
            held.extend(
                thread.join().map_err(|_| Error::Unfit("a thread of the load panicked".to_owned()))??,
            );
        }
        Ok(held)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.signals.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A load is dropped because something else has failed already.
            drop(thread.join());
        }
    }
}

#[derive(Debug, Default)]
struct Signals {
    stop: AtomicBool,
    calm: AtomicBool,
    done: AtomicUsize,
}

/// Names that one directory's files have: few, so that operations meet each other's files.
const NAMES: u64 = 120;
/// Names that one directory's directories have.
const DIRECTORIES: u64 = 20;
/// Unlinked files that a worker holds open.
const HELD: usize = 12;

/// The operations of [`Mix::FastCommits`], by the numbers that [`Worker::operation`] has for them.
const FAST: [u64; 20] = [0, 0, 0, 0, 4, 4, 8, 9, 10, 11, 11, 12, 12, 12, 16, 18, 18, 19, 19, 20];
/// One operation in so many of [`Mix::FastCommits`] is another one.
const SELDOM: u64 = 60;

struct Worker {
    own: Dir,
    shared: Dir,
    random: Rng,
    options: LoadOptions,
    held: Vec<File>,
}

impl Worker {
    fn work(mut self, signals: &Signals) -> Result<Vec<File>> {
        while !signals.stop.load(Ordering::Relaxed) {
            let calm = signals.calm.load(Ordering::Relaxed);
            if calm {
                std::thread::sleep(Duration::from_millis(2));
            }
            match self.operation(calm) {
                Ok(()) => {}
                Err(error) => match consequence(&error) {
                    Consequence::GoOn => {}
                    Consequence::End => break,
                    Consequence::Fail => return Err(error),
                },
            }
            signals.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.held)
    }

    fn operation(&mut self, calm: bool) -> Result<()> {
        if self.options.mix.is_of_xfs() {
            return self.operation_of_xfs(calm);
        }
        let seed = self.random.bits();
        let name = format!("file-{:03}", self.random.below(NAMES));
        let other = format!("file-{:03}", self.random.below(NAMES));
        let dir = if self.random.below(4) == 0 { &self.shared } else { &self.own };
        let random = &mut self.random;
        let kind = match self.options.mix {
            Mix::Everything | Mix::Xfs | Mix::XfsChains => random.below(18),
            Mix::FastCommits if random.below(SELDOM) == 0 => 14 + random.below(4),
            Mix::FastCommits => FAST[random.index(FAST.len())],
        };
        let file = match kind {
            0..=3 => Some(dir.file_with(&name, seed, random.below(40_000) as usize)?),
            4..=6 => Some(write(dir, &name, seed, random.below(200_000), 1 + random.below(20_000))?),
            7 => Some(write_journal_magic(dir, &name, random.below(20))?),
            8 => {
                let file = dir.existing(&name)?;
                file.set_len(random.below(100_000)).context("truncate", &*name)?;
                Some(file)
            }
            9 => Some(allocate(dir, &name, FallocateFlags::empty(), random)?),
            10 => return dir.link(&name, &self.shared, format!("link-{other}")),
            11 => return dir.rename(&name, &other),
            12 | 13 => return dir.unlink(&name),
            14 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Some(allocate(dir, &name, punch, random)?)
            }
            15 => {
                let mut value = vec![0; random.below(700) as usize];
                noise(seed, &mut value);
                return dir.xattr(&name, &format!("user.x{}", random.below(4)), &value);
            }
            16 => return make_or_remove_directory(dir, random),
            18 => return dir.rename_to(&name, &self.shared, &other),
            19 => return dir.dir(format!("dir-{}", random.below(DIRECTORIES))).map(drop),
            20 => return dir.rmdir(&format!("dir-{}", random.below(DIRECTORIES))),
            _ => {
                let file = dir.existing(&name)?;
                dir.unlink(&name)?;
                self.hold(file);
                return Ok(());
            }
        };
        self.sync_some(calm, file, &name)
    }

    /// Keeps a file open that has lost a name; the one that was held longest is closed.
    fn hold(&mut self, file: File) {
        self.held.truncate(HELD - 1);
        self.held.insert(0, file);
    }

    /// Syncs one changed file in some, unless it has to be calm.
    fn sync_some(&mut self, calm: bool, file: Option<File>, name: &str) -> Result<()> {
        match file {
            Some(file) if !calm && self.random.below(self.options.sync_one_in) == 0 => {
                file.sync_all().context("sync", name)
            }
            _ => Ok(()),
        }
    }
}

fn write(dir: &Dir, name: &str, seed: u64, offset: u64, len: u64) -> Result<File> {
    let file = dir.existing(name)?;
    let mut data = vec![0; len as usize];
    noise(seed, &mut data);
    file.write_all_at(&data, offset).context("write", name)?;
    Ok(file)
}

/// Data that begins like one of the journal's own blocks, in every block: when data goes through the journal,
/// it must be escaped there.
fn write_journal_magic(dir: &Dir, name: &str, block: u64) -> Result<File> {
    const MAGIC: [u8; 4] = 0xC03B_3998_u32.to_be_bytes();
    let file = dir.existing(name)?;
    let mut data = vec![0x5a; 8192];
    for block in data.chunks_mut(1024) {
        block[..4].copy_from_slice(&MAGIC);
    }
    file.write_all_at(&data, block * 4096).context("write", name)?;
    Ok(file)
}

/// Changes how a piece of a file is allocated.
fn allocate(dir: &Dir, name: &str, flags: FallocateFlags, random: &mut Rng) -> Result<File> {
    let file = dir.existing(name)?;
    let (offset, len) = (random.below(150_000), 1 + random.below(50_000));
    rustix::fs::fallocate(&file, flags, offset, len).context("allocate", name).map(|()| file)
}

/// Makes a directory with up to 60 links in it, or removes one with all of them.
fn make_or_remove_directory(dir: &Dir, random: &mut Rng) -> Result<()> {
    const MOST: u64 = 60;
    let name = format!("dir-{}", random.below(DIRECTORIES));
    if random.below(2) == 0 {
        let sub = dir.dir(&name)?;
        for number in 0..random.below(MOST) {
            sub.symlink(format!("{number}"), &vec![b'l'; 1 + random.below(100) as usize])?;
        }
        return Ok(());
    }
    let sub = dir.sub(&name)?;
    for number in 0..MOST {
        match sub.unlink(format!("{number}")) {
            Err(error) if !matches!(consequence(&error), Consequence::GoOn) => return Err(error),
            _ => {}
        }
    }
    dir.rmdir(&name)
}

enum Consequence {
    GoOn,
    End,
    Fail,
}

/// What an operation's failure means: names come and go under the other operations; a filesystem that was shut
/// down answers with I/O errors.
fn consequence(error: &Error) -> Consequence {
    let Error::System { source, .. } = error else { return Consequence::Fail };
    match (source.kind(), Errno::from_io_error(source)) {
        (ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty, _)
        | (ErrorKind::StorageFull, _)
        // No holes without extents.
        | (_, Some(Errno::OPNOTSUPP))
        // Ranges that lie past the end, or where no such thing may be done.
        | (ErrorKind::InvalidInput | ErrorKind::IsADirectory | ErrorKind::NotADirectory, _)
        | (_, Some(Errno::NODATA | Errno::LOOP | Errno::FBIG))
        // Attributes of links.
        | (_, Some(Errno::PERM)) => Consequence::GoOn,
        (_, Some(Errno::IO | Errno::ROFS)) => Consequence::End,
        _ => Consequence::Fail,
    }
}
