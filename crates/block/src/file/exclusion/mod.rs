//! A file or a device has one writer, and readers are warned of it.
//!
//! | module | what it knows |
//! | --- | --- |
//! | `flock` | the lock between programs of this library, `udev` and others |
//! | `byte_locks` | QEMU's locks, and other programs' locks on ranges |
//! | `kernel`, `loops`, `mounts` | loop devices, mounts, swap, devices made of devices |
//! | `opened` | what this process has open |
//! | `processes`, `holder` | users by their names |
//!
//! A writer claims a block device from the kernel, takes the locks, and only then looks for other users: of two that
//! come at once at least one finds the other. The file below a loop device is locked with it. A reader shares the lock
//! between programs, keeps QEMU's writers out where there is none yet, and is warned of what may change the content.
//!
//! Not found: what the kernel begins to do afterwards (it asks for no locks), and what other machines do with a disk
//! that both can reach.
//!
//! Locks: class `DEVICE`, to look at the claim or to give it up.

mod byte_locks;
mod flock;
mod holder;
mod kernel;
mod loops;
mod mounts;
mod opened;
mod processes;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use undercroft_sync::{Mutex, order};

pub(crate) use self::holder::Shown;
pub use self::holder::{Holder, InUse};

use self::kernel::View;
use self::loops::LoopDevice;
use self::opened::{Entry, Identity};
use self::processes::{Which, holding};
use super::geometry::Kind;
use super::options::{FileOptions, Locking};
use crate::{Access, OpenError};

/// How long others may be in the way that only look, or are just leaving: `udev` looks at a block device whenever a
/// writer has closed it, and a loop device outlives its mount for as long as another program looks at it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// What is said of users that are not seen.
const CLAIMED: &str = "has claimed it from the kernel";
const LOCKED: &str = "has locked it";
const LOCKED_PARTS: &str = "has locked parts of it";

/// What keeps others out for as long as it lives.
#[derive(Debug)]
pub(super) struct Exclusion {
    /// The file that a loop device stores its bytes in, locked.
    below: Option<File>,
    /// A descriptor of its own, since the kernel releases a claim only when it is closed.
    claim: Mutex<Option<Arc<File>>>,
    _entry: Option<Entry>,
}

/// What is opened, and how.
struct Opening<'a> {
    path: &'a Path,
    kind: Kind,
    options: FileOptions,
}

/// The kernel's exclusive claim on a block device that is to be written, taken before the device is opened.
pub(super) fn claim(path: &Path, kind: Kind, options: FileOptions) -> Result<Option<File>, OpenError> {
    if kind != Kind::BlockDevice || options.access != Access::ReadWrite || options.locking == Locking::None {
        return Ok(None);
    }
    let give_up = Instant::now() + PATIENCE;
    loop {
        let source = match kernel::claim(path, true) {
            Ok(claim) => return Ok(Some(claim)),
            Err(error) => error,
        };
        if Errno::from_io_error(&source) != Some(Errno::BUSY) {
            return Err(OpenError::System { action: "open", path: path.to_owned(), source });
        }
        let holders = busy(path);
        let is_seen = !matches!(holders[..], [Holder::Unseen { .. }]);
        if is_seen || Instant::now() >= give_up {
            return Err(in_use(path, options.access, holders));
        }
        thread::sleep(PAUSE);
    }
}

/// What has claimed a block device.
pub(super) fn busy(path: &Path) -> Vec<Holder> {
    if opened::is_open(Identity::Block { number: number(path) }) {
        return vec![Holder::ThisProgram];
    }
    named(kernel_users(path), CLAIMED)
}

/// What the kernel uses a block device for.
fn kernel_users(path: &Path) -> Vec<Holder> {
    View::take().of_block(number(path))
}

fn number(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.rdev())
}

/// Keeps others out of an open file as far as `options` ask for, or says what is in the way.
pub(super) fn acquire(
    file: &File,
    path: &Path,
    kind: Kind,
    options: FileOptions,
    claim: Option<File>,
) -> Result<Exclusion, OpenError> {
    let opening = Opening { path, kind, options };
    let claim = Mutex::new(&order::DEVICE, claim.map(Arc::new));
    let metadata = file.metadata().map_err(|source| opening.system("look at", source))?;
    let around = match kind {
        Kind::BlockDevice => kernel::loop_around(metadata.rdev()),
        Kind::Regular => None,
    };
    if options.access == Access::ReadOnly {
        opening.read(file, around.as_ref())?;
        return Ok(Exclusion { below: None, claim, _entry: None });
    }
    let mut identities = vec![Identity::of(&metadata)];
    identities.extend(around.as_ref().and_then(|around| around.file));
    let Some(entry) = Entry::new(identities) else {
        return Err(opening.refused(vec![Holder::ThisProgram]));
    };
    if options.locking == Locking::None {
        let mut holders = opening.locked(file);
        holders.extend(opening.used(file, around.as_ref())?.1);
        opening.tell(&holders);
        return Ok(Exclusion { below: None, claim, _entry: Some(entry) });
    }
    let below = around.as_ref().and_then(LoopDevice::open_file);
    let exclusion = Exclusion { below, claim, _entry: Some(entry) };
    let done = opening.lock_all(file, exclusion.below.as_ref());
    match done.and_then(|()| opening.write(file, around.as_ref())) {
        Ok(()) => Ok(exclusion),
        Err(refusal) => {
            exclusion.release(file);
            Err(refusal)
        }
    }
}

impl Exclusion {
    /// Gives everything back.
    ///
    /// Closing the files is not enough: a child process that another thread is just starting holds them open for a
    /// moment.
    pub(super) fn release(&self, file: &File) {
        self.share_claim();
        for file in [Some(file), self.below.as_ref()].into_iter().flatten() {
            flock::release(file);
            byte_locks::release(file);
        }
    }

    /// The descriptor that has claimed a block device: the kernel discards and zeroes blocks for no other.
    pub(super) fn claim(&self) -> Option<Arc<File>> {
        self.claim.lock().clone()
    }

    /// Lets the kernel give the device to another.
    pub(super) fn share_claim(&self) {
        let claim = self.claim.lock().take();
        drop(claim);
    }

    /// Claims the device once more.
    pub(super) fn claim_again(&self, file: &File, path: &Path, wanted: Access) -> Result<(), OpenError> {
        let system = |source| OpenError::System { action: "open", path: path.to_owned(), source };
        let give_up = Instant::now() + PATIENCE;
        let claim = loop {
            match kernel::claim(path, true) {
                // A process that was started meanwhile holds the claim of before for a moment.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                    if Instant::now() >= give_up {
                        return Err(in_use(path, wanted, named(kernel_users(path), CLAIMED)));
                    }
                    thread::sleep(PAUSE);
                }
                claim => break claim.map_err(system)?,
            }
        };
        if claim.metadata().map_err(system)?.rdev() != file.metadata().map_err(system)?.rdev() {
            return Err(system(io::Error::other("its name leads to another device now")));
        }
        *self.claim.lock() = Some(Arc::new(claim));
        Ok(())
    }
}

impl Opening<'_> {
    fn lock_all(&self, file: &File, below: Option<&File>) -> Result<(), OpenError> {
        self.lock(file)?;
        // Nothing looks at the file in passing, as `udev` does at the device.
        below.map_or(Ok(()), |below| Opening { kind: Kind::Regular, ..*self }.lock(below))
    }

    /// Takes a writer's locks.
    fn lock(&self, file: &File) -> Result<(), OpenError> {
        self.flock(file)?;
        let conflicts = byte_locks::acquire(file, Access::ReadWrite);
        let conflicts = conflicts.map_err(|source| self.unsupported(source))?;
        if conflicts.is_empty() {
            return Ok(());
        }
        Err(self.refused(named(holding(file, &Which::Bytes(&conflicts), true), LOCKED_PARTS)))
    }

    fn flock(&self, file: &File) -> Result<(), OpenError> {
        let patience = match self.kind {
            Kind::Regular => Duration::ZERO,
            Kind::BlockDevice => PATIENCE,
        };
        let access = self.options.access;
        match flock::acquire(file, access, patience) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let which = Which::Flock { of_writers: access == Access::ReadOnly };
                Err(self.refused(self.mounted(named(holding(file, &which, true), LOCKED))))
            }
            Err(errno) => Err(self.unsupported(io::Error::from(errno))),
        }
    }

    /// Refuses what is in use, after a moment for what is just leaving.
    fn write(&self, file: &File, around: Option<&LoopDevice>) -> Result<(), OpenError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let (view, mut holders) = self.used(file, around)?;
            for holder in &mut holders {
                if let Holder::Device { path, read_only: true, holders } = holder
                    && holders.is_empty()
                    && kernel::is_claimed(path)
                {
                    holders.push(Holder::Unseen { what: CLAIMED, writes: false });
                }
            }
            holders.retain(Holder::excludes_writers);
            if holders.is_empty() {
                return Ok(());
            }
            if !view.are_going(&holders) || Instant::now() >= give_up {
                return Err(self.refused(holders));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Shares the locks of readers, and reports what may change the content.
    fn read(&self, file: &File, around: Option<&LoopDevice>) -> Result<(), OpenError> {
        let mut holders = Vec::new();
        match self.options.locking {
            Locking::Advisory => {
                self.flock(file)?;
                // A filesystem without such locks has no program of QEMU's that keeps to them.
                let conflicts = byte_locks::acquire(file, Access::ReadOnly).unwrap_or_default();
                if !conflicts.is_empty() {
                    byte_locks::release(file);
                    holders = named(holding(file, &Which::Bytes(&conflicts), true), LOCKED_PARTS);
                }
            }
            Locking::None => holders = self.locked(file),
        }
        holders.extend(self.used(file, around)?.1);
        holders.retain(Holder::writes);
        self.tell(&holders);
        Ok(())
    }

    /// The processes whose locks are left out of account.
    fn locked(&self, file: &File) -> Vec<Holder> {
        let access = self.options.access;
        let mut holders = Vec::new();
        // The lock is not taken to find out: it would be in the way of others.
        if processes::is_locked(file) {
            holders = holding(file, &Which::Flock { of_writers: access == Access::ReadOnly }, true);
        }
        let conflicts = byte_locks::conflicts(file, access).unwrap_or_default();
        if !conflicts.is_empty() {
            holders.extend(named(holding(file, &Which::Bytes(&conflicts), true), LOCKED_PARTS));
        }
        holders
    }

    /// What the kernel does with it, and with the file below.
    fn used(&self, file: &File, around: Option<&LoopDevice>) -> Result<(View, Vec<Holder>), OpenError> {
        let metadata = file.metadata().map_err(|source| self.system("look at", source))?;
        let view = View::take();
        let holders = match self.kind {
            Kind::Regular => view.of_file(&metadata, self.path, None),
            Kind::BlockDevice => {
                let mut holders = view.of_block(metadata.rdev());
                if let Some(around) = around
                    && let Some(below) = around.open_file()
                    && let Ok(below) = below.metadata()
                {
                    holders.extend(view.of_file(&below, &around.file_name, Some(around)));
                }
                holders
            }
        };
        Ok((view, holders))
    }

    /// The same, and where a server of this project's, which holds the lock, has mounted the image.
    fn mounted(&self, mut holders: Vec<Holder>) -> Vec<Holder> {
        holders.extend(kernel::served(self.path));
        holders
    }

    fn tell(&self, holders: &[Holder]) {
        if !holders.is_empty() {
            (self.options.on_use)(&InUse { path: self.path, wanted: self.options.access, holders });
        }
    }

    fn refused(&self, holders: Vec<Holder>) -> OpenError {
        in_use(self.path, self.options.access, holders)
    }

    fn unsupported(&self, source: io::Error) -> OpenError {
        OpenError::LockUnsupported { path: self.path.to_owned(), wanted: self.options.access, source }
    }

    fn system(&self, action: &'static str, source: io::Error) -> OpenError {
        OpenError::System { action, path: self.path.to_owned(), source }
    }
}

fn in_use(path: &Path, wanted: Access, holders: Vec<Holder>) -> OpenError {
    OpenError::InUse { path: path.to_owned(), wanted, holders }
}

/// The processes that were found, or one that was not.
fn named(mut holders: Vec<Holder>, what: &'static str) -> Vec<Holder> {
    if holders.is_empty() {
        holders.push(Holder::Unseen { what, writes: true });
    }
    holders
}
