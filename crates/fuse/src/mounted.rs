//! A mounted filesystem: from the first message of the kernel to the last trace of the mount.
//!
//! Order of the beginning: the guardian is there before the mount is, so that a server killed at any later moment
//! leaves nothing behind. Order of the end: the mount is gone, the event loops have ended, everything is durable,
//! the filesystem and what it lies on are closed, the guardian has gone, and last the pipe is closed on which an
//! unmounting process waits. All of that is done by the thread of the event loops, without a call for it.
//!
//! As soon as the mount is gone another may take its place, with the same numbers: before anything is taken away,
//! [`OwnMount`] is asked whether it is still there. After the end nothing is: [`Traces`] are taken away under their lock,
//! and a thread that wants to touch the mount asks under that lock whether they are there.

use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use undercroft_block::ClaimedDevice;
use undercroft_block::mountinfo::{Mount, MountDevice};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Vfs;

use crate::dirty_limit::DirtyLimit;
use crate::guardian::Guardian;
use crate::liveness::Liveness;
use crate::mount_point::MountPoint;
use crate::mount_table;
use crate::own_mount::OwnMount;
use crate::panics::caught;
use crate::server::Server;
use crate::transport::{Connection, WeakConnection};
use crate::{MountError, MountOptions, UnmountError, abort, attach};

/// How far the kernel reads ahead of a program that reads a file from front to back, where we may say so.
const READ_AHEAD_KIB: u32 = 1024;

/// Closes what a filesystem lies on, after the filesystem.
pub type CloseBelow = Box<dyn FnOnce() -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

/// Mounts `vfs` on the directory `dir` and starts serving it. When this returns, the mount answers.
///
/// The server takes over the filesystem, and [closes](undercroft_vfs::FileSystem::close) it when the mount ends. For
/// files that have lost their names to be gone by then, and the image to be free, the caller must not keep the handle.
///
/// # Errors
/// [`MountError`]; nothing is left mounted.
pub fn mount(vfs: Arc<Vfs>, dir: &Path, options: MountOptions) -> Result<Mounted, MountError> {
    mount_above(vfs, Box::new(|| Ok(())), dir, options)
}

/// As [`mount`], for a filesystem on something that has to be closed as well, such as an array: that is `below`'s, which is
/// called when the filesystem is closed. How that went is told like the rest of the end.
///
/// # Errors
/// [`MountError`]; nothing is left mounted, and nothing was closed.
pub fn mount_above(
    vfs: Arc<Vfs>,
    below: CloseBelow,
    dir: &Path,
    mut options: MountOptions,
) -> Result<Mounted, MountError> {
    options.check(!vfs.filesystem().is_read_only())?;
    let kind = vfs.filesystem().kind();
    let (faults, access_times) = (mem::take(&mut options.faults), options.atime && !options.read_only);
    let last_word = faults.clone();
    let server = Arc::new(Server::new(vfs, faults, access_times).map_err(MountError::Root)?);
    let point = |cause| MountError::Point { dir: dir.to_owned(), cause };
    let dir = mount_table::absolute(dir).map_err(point)?;
    let start = |what| move |cause| MountError::Start { what, cause };

    let on = MountPoint::open(&dir).map_err(point)?;
    let mut guardian = Guardian::start(&on, &dir).map_err(start("start the mount's guardian"))?;
    let claimed = server.vfs().filesystem().data_device().and_then(|device| device.claimed());
    let fd = attach::attach(&on, &dir, kind, &options, claimed)?;
    let entry = match guard(&on, &dir, &mut guardian, claimed) {
        Ok(entry) => entry,
        Err(error) => {
            // First, for an unmount may wait for an answer. The guardian may not know what it guards.
            drop(fd);
            let _ = attach::detach(&on.path(), &dir, UnmountFlags::DETACH);
            return Err(error);
        }
    };
    let device = entry.device;
    let own = Arc::new(OwnMount::new(dir.clone(), on, entry));
    // From here on every early return drops the guardian, which takes the mount away.
    let serve = |cause| MountError::Serve { dir: dir.clone(), cause };
    let limit = Arc::new(DirtyLimit::new(&mount_table::cache_settings(&own.entry)));
    let connection =
        Connection::open(fd, Arc::clone(&server), &options, Arc::clone(&limit)).map_err(serve)?;
    let weak_connection = connection.downgrade();
    if !options.read_only {
        // For people to read in the superblock, and no reason not to serve where it cannot be written.
        let _ = server.vfs().filesystem().mounted_on(&dir);
    }
    read_far_ahead(&own.entry);
    if !options.read_only
        && let Ok(space) = server.statfs()
    {
        limit.adapt(space.blocks_available.saturating_mul(u64::from(space.block_bytes)));
    }
    let liveness = Liveness::begin().map_err(start("make the pipe that tells of the mount's end"))?;
    server.tell(liveness.told(&own.point).map_err(start("tell of the mount's server"))?);
    let traces = Traces { guardian, liveness: Some(liveness) };
    let traces = Arc::new(Mutex::new(&order::MOUNT, Some(traces)));
    let (report, events) = channel();
    let weak_server = Arc::downgrade(&server);
    let loops = {
        let (report, traces, own) = (report.clone(), Arc::clone(&traces), Arc::clone(&own));
        let weak_connection = weak_connection.clone();
        thread::Builder::new()
            .name("undercroft-fuse".to_owned())
            .spawn(move || {
                // A panic must not keep the others from learning that the end has come.
                let served = caught(|| connection.run(&lost(&server, device, weak_connection, &report)))
                    .unwrap_or_else(|panic| Err(io::Error::other(format!("a thread panicked: {panic}"))));
                let finished =
                    caught(move || finish(server, below)).unwrap_or_else(|panic| Err(End::Defect(panic)));
                let ended = served.map_err(End::Served).and(finished).map_err(|end| end.of(own.dir.clone()));
                ended.as_ref().err().into_iter().for_each(|error| last_word.say_end(error));
                withdraw(&traces, &own, ended.as_ref().err());
                // The receiver is gone if the mount was given up.
                let _ = report.send(Event::Ended(ended));
            })
            .map_err(start("start the event loops"))?
    };
    Ok(Mounted {
        own,
        server: weak_server,
        connection: weak_connection,
        events,
        report,
        signals: None,
        loops: Some(loops),
        traces,
    })
}

/// What a thread is to tell that cannot go on serving. Requests would wait for it for ever, so the connection is
/// aborted, which fails them and ends the other threads. Where that is not permitted, the end of the process does it.
fn lost(
    server: &Arc<Server>,
    device: MountDevice,
    connection: WeakConnection,
    report: &Sender<Event>,
) -> impl Fn(&io::Error) + Sync + use<> {
    let (server, report) = (Arc::downgrade(server), report.clone());
    move |cause| {
        if let Some(server) = server.upgrade() {
            server.complain(&format!("a thread of the server cannot go on, so the mount ends: {cause}"));
        }
        if abort::abort(device, || !connection.has_ended()).is_err() {
            let _ = report.send(Event::Lost(cause.to_string()));
        }
    }
}

/// After the last request: everything becomes durable, the filesystem is closed, and then what it lies on.
fn finish(server: Arc<Server>, below: CloseBelow) -> Result<(), End> {
    // What the kernel forgot last may not have been told any more.
    server.nodes().let_go();
    let synced = server.finish();
    let defect = server.defect().map(str::to_owned);
    let filesystem = Arc::clone(server.vfs().filesystem());
    // Unlinked inodes go with the last handle, which is a change.
    drop(server);
    let closed = filesystem.close();
    drop(filesystem);
    let below = below();
    synced.and(closed).map_err(End::Synced)?;
    below.map_err(End::Below)?;
    defect.map_or(Ok(()), |what| Err(End::Defect(what)))
}

/// Tells the guardian which mount it guards.
fn guard(
    on: &MountPoint,
    dir: &Path,
    guardian: &mut Guardian,
    claimed: Option<&dyn ClaimedDevice>,
) -> Result<Mount, MountError> {
    let point = |cause| MountError::Point { dir: dir.to_owned(), cause };
    match mount_table::mount_on(on).map_err(point)? {
        Some(entry) if entry.is_ours() => {
            let what = "tell the mount's guardian what to guard";
            guardian.guard(&entry).map_err(|cause| MountError::Start { what, cause })?;
            let number = rustix::fs::makedev(entry.device.major, entry.device.minor);
            if mount_table::is_on_device(&entry)
                && claimed.map(ClaimedDevice::number).transpose().map_err(point)? != Some(number)
            {
                return Err(point(io::Error::other("the name of the block device leads to another one now")));
            }
            Ok(entry)
        }
        _ => Err(point(io::Error::other("the mount has disappeared"))),
    }
}

/// A mounted filesystem and its server. Dropping it unmounts: if no process uses it, everything is durable and the
/// filesystem is closed afterwards; processes that still use it keep what they have open until this process ends.
pub struct Mounted {
    own: Arc<OwnMount>,
    server: Weak<Server>,
    connection: WeakConnection,
    events: Receiver<Event>,
    report: Sender<Event>,
    signals: Option<(Handle, JoinHandle<()>)>,
    loops: Option<JoinHandle<()>>,
    traces: Arc<Mutex<Option<Traces>>>,
}

/// What is there beside the mount while it is served.
struct Traces {
    guardian: Guardian,
    /// Until the end has been told.
    liveness: Option<Liveness>,
}

/// The server has ended: its traces go. The guardian takes the mount away, if it is still there: its connection was
/// aborted then.
fn withdraw(traces: &Mutex<Option<Traces>>, own: &OwnMount, ill: Option<&MountError>) {
    let mut traces = traces.lock();
    let Some(Traces { guardian, liveness }) = traces.take() else { return };
    if own.is_there() {
        drop(guardian);
    } else {
        guardian.release();
    }
    tell_end(liveness, ill);
}

/// Tells the process that unmounts how all has ended.
fn tell_end(liveness: Option<Liveness>, ill: Option<&MountError>) {
    if let Some(liveness) = liveness {
        liveness.end(ill.map(MountError::to_string).as_deref());
    }
}

/// What ends a wait.
enum Event {
    /// The event loops are done.
    Ended(Result<(), MountError>),
    /// A thread cannot go on, and the others cannot be stopped.
    Lost(String),
    /// The caller does not want to wait for the last user any longer.
    GivenUp,
}

/// What went wrong at the end.
enum End {
    Served(io::Error),
    Synced(undercroft_vfs::Error),
    Below(Box<dyn Error + Send + Sync>),
    /// A panic, while serving or at the end.
    Defect(String),
}

impl End {
    fn of(self, dir: PathBuf) -> MountError {
        match self {
            Self::Served(cause) => MountError::Serve { dir, cause },
            Self::Synced(cause) => MountError::Sync { dir, cause },
            Self::Below(cause) => MountError::Below { dir, cause },
            Self::Defect(what) => MountError::Defect { dir, what },
        }
    }
}

impl Mounted {
    /// The mount point, absolute.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.own.dir
    }

    /// The number of the filesystem's device, which is `st_dev` of all that lies in it.
    #[must_use]
    pub fn device_number(&self) -> u64 {
        let device = self.own.entry.device;
        rustix::fs::makedev(device.major, device.minor)
    }

    /// Tells whether the mount is gone, and with it its hold on [`device_number`](Self::device_number).
    #[must_use]
    pub fn connection(&self) -> WeakConnection {
        self.connection.clone()
    }

    /// How many inodes the kernel holds at the moment, without the root.
    #[must_use]
    pub fn inodes_in_kernel(&self) -> usize {
        self.server.upgrade().map_or(0, |server| server.nodes().len())
    }

    /// From now on an interrupt, a hang-up or a request to terminate unmounts. If processes still use it, the
    /// mount disappears at once for all others and [`wait`](Self::wait) returns when they have left, or at
    /// the second signal.
    ///
    /// # Errors
    /// [`MountError::Start`] when the signals cannot be caught.
    pub fn unmount_on_signals(&mut self) -> Result<(), MountError> {
        let what = "catch signals";
        let start = |cause| MountError::Start { what, cause };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(start)?;
        let handle = signals.handle();
        let (own, report) = (Arc::clone(&self.own), self.report.clone());
        let thread = thread::Builder::new().name("undercroft-signals".to_owned()).spawn(move || {
            let mut detached = false;
            for _ in signals.forever() {
                if detached {
                    let _ = report.send(Event::GivenUp);
                    return;
                }
                detached = true;
                let result = match own.detach(false) {
                    Err(UnmountError::Busy(_)) => {
                        let _ = writeln!(
                            io::stderr(),
                            "undercroft: {} is still in use; serving until its users leave or the next signal",
                            own.dir.display()
                        );
                        own.detach(true)
                    }
                    other => other,
                };
                if let Err(error) = result {
                    let _ = writeln!(io::stderr(), "undercroft: {error}");
                }
            }
        });
        self.signals = Some((handle, thread.map_err(start)?));
        Ok(())
    }

    /// Unmounts, if no process uses it.
    ///
    /// # Errors
    /// [`UnmountError::Busy`] and the like; the mount is still served then.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        self.own.detach(false)
    }

    /// Serves until the mount is gone, whichever process takes it away.
    ///
    /// # Errors
    /// [`MountError::Serve`] when the connection to the kernel broke, [`MountError::Sync`] when not everything
    /// that was written is durable or the filesystem could not be closed, [`MountError::Below`] when what it lies on
    /// could not.
    pub fn wait(mut self) -> Result<(), MountError> {
        let event = self.events.recv();
        match event {
            Ok(Event::Ended(ended)) => {
                self.join_loops();
                ended
            }
            // The loops cannot be stopped; they end with the process.
            Ok(Event::GivenUp) | Err(_) => self.end_early(None),
            Ok(Event::Lost(cause)) => self.end_early(Some(End::Served(io::Error::other(cause)))),
        }
    }

    /// Makes everything durable while threads are left that go with the process.
    fn end_early(&self, end: Option<End>) -> Result<(), MountError> {
        let Some(server) = self.server.upgrade() else {
            // The requests are at an end, and the filesystem is being closed.
            let ended = self.events.iter().find_map(|event| match event {
                Event::Ended(ended) => Some(ended),
                _ => None,
            });
            return ended.unwrap_or(Ok(()));
        };
        let synced = server.finish();
        drop(server);
        let ended = synced.map_err(End::Synced).and(end.map_or(Ok(()), Err));
        let ended = ended.map_err(|end| end.of(self.own.dir.clone()));
        let liveness = self.traces.lock().as_mut().and_then(|traces| traces.liveness.take());
        tell_end(liveness, ended.as_ref().err());
        ended
    }

    /// Takes the mount away if it is there, and returns whether the loops are bound to end.
    fn leave(&self) -> bool {
        let mut traces = self.traces.lock();
        if traces.is_none() {
            return true;
        }
        if !self.own.is_there() {
            return false;
        }
        let gone = self.own.detach(false).is_ok();
        if !gone && self.own.detach(true).is_err() {
            // The guardian knows other ways.
            if let Some(traces) = traces.take() {
                traces.guardian.detach();
            }
        }
        gone
    }

    fn join_loops(&mut self) {
        if let Some(loops) = self.loops.take() {
            // Whatever it had to say came as an event before.
            let _ = loops.join();
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.signals.take() {
            handle.close();
            let _ = thread.join();
        }
        if self.leave() || self.loops.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join_loops();
        }
    }
}

/// Asks for a larger read-ahead than the protocol can. Only root may; for others the default stays.
fn read_far_ahead(mount: &Mount) {
    let _ = fs::write(mount_table::cache_settings(mount).join("read_ahead_kb"), READ_AHEAD_KIB.to_string());
}
