//! A mounted filesystem: from the first message of the kernel to the last trace of the mount.
//!
//! Order of the beginning: the guardian is there before the mount is, so that a server killed at any later moment
//! leaves nothing behind. Order of the end: the mount is gone, the event loops have ended, everything is durable,
//! the filesystem is closed, the guardian has gone, and last the presence is withdrawn, on which whoever unmounts has
//! been waiting. All of that is done by the thread of the event loops, so nobody has to ask for it.
//!
//! Who was told that all has ended mounts something else here, perhaps with the same device number. So [`Traces`]
//! are taken away under their lock, and whoever wants to touch the mount asks under that lock whether they are there.

use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Vfs;

use crate::guardian::Guardian;
use crate::mount_table::{self, MountDevice};
use crate::presence::Presence;
use crate::server::Server;
use crate::transport::Connection;
use crate::unmount::detach;
use crate::{MountError, MountOptions, UnmountError, attach};

/// How far the kernel reads ahead of a program that reads a file from front to back, where we may say so.
const READ_AHEAD_KIB: u32 = 1024;

/// Mounts `vfs` on the directory `dir` and starts serving it. When this returns, the mount answers.
///
/// The server takes over the handle: for the image to be closed when the mount ends, the caller must not keep
/// another one.
///
/// # Errors
/// [`MountError`]; nothing is left mounted.
pub fn mount(vfs: Arc<Vfs>, dir: &Path, mut options: MountOptions) -> Result<Mounted, MountError> {
    options.check(!vfs.filesystem().is_read_only())?;
    let kind = vfs.filesystem().kind();
    let (faults, access_times) = (mem::take(&mut options.faults), options.atime && !options.read_only);
    let server = Arc::new(Server::new(vfs, faults, access_times).map_err(MountError::Root)?);
    let point = |cause| MountError::Point { dir: dir.to_owned(), cause };
    let dir = mount_table::absolute(dir).map_err(point)?;
    let start = |what| move |cause| MountError::Start { what, cause };

    let mut guardian = Guardian::start(&dir).map_err(start("start the mount's guardian"))?;
    let fd = attach::attach(&dir, kind, &options)?;
    let device = match guard(&dir, &mut guardian) {
        Ok(device) => device,
        Err(error) => {
            // The guardian does not know yet what it guards.
            let _ = detach(&dir, true);
            return Err(error);
        }
    };
    // From here on every early return drops the guardian, which takes the mount away.
    let serve = |cause| MountError::Serve { dir: dir.clone(), cause };
    let connection = Connection::open(fd, Arc::clone(&server), &options).map_err(serve)?;
    if !options.read_only {
        // For people to read in the superblock, and no reason not to serve where it cannot be written.
        let _ = server.vfs().filesystem().mounted_on(&dir);
    }
    widen_cache(device);
    // Without it an unmount does not know when we end, which is no reason not to serve.
    let presence = Presence::announce(device, &dir).ok();
    let traces = Arc::new(Mutex::new(&order::MOUNT, Some(Traces { guardian, _presence: presence })));
    let (report, events) = channel();
    let weak_server = Arc::downgrade(&server);
    let loops = {
        let (report, traces) = (report.clone(), Arc::clone(&traces));
        thread::Builder::new()
            .name("undercroft-fuse".to_owned())
            .spawn(move || {
                let served = connection.run();
                // What the kernel forgot last may not have been told any more.
                server.nodes().let_go();
                let synced = server.finish();
                // The filesystem is closed before anybody is told that it is.
                drop(server);
                withdraw(&traces, served.is_ok());
                let ended = served.map_err(End::Served).and(synced.map_err(End::Synced));
                // Nobody listens any more if the mount was given up.
                let _ = report.send(Event::Ended(ended));
            })
            .map_err(start("start the event loops"))?
    };
    Ok(Mounted {
        dir,
        device,
        server: weak_server,
        events,
        report,
        signals: None,
        loops: Some(loops),
        traces,
    })
}

/// Tells the guardian which mount it guards.
fn guard(dir: &Path, guardian: &mut Guardian) -> Result<MountDevice, MountError> {
    let point = |cause| MountError::Point { dir: dir.to_owned(), cause };
    match mount_table::mount_at(dir).map_err(point)? {
        Some(entry) if attach::is_ours(&entry.fs_type) => {
            let what = "tell the mount's guardian what to guard";
            guardian.guard(&entry).map_err(|cause| MountError::Start { what, cause })?;
            Ok(entry.device)
        }
        _ => Err(point(io::Error::other("the mount has disappeared"))),
    }
}

/// A mounted filesystem and its server. Dropping it unmounts: if nobody is inside, everything is durable and the
/// filesystem is closed afterwards; users who are still inside keep what they have open until this process ends.
pub struct Mounted {
    dir: PathBuf,
    device: MountDevice,
    server: Weak<Server>,
    events: Receiver<Event>,
    report: Sender<Event>,
    signals: Option<(Handle, JoinHandle<()>)>,
    loops: Option<JoinHandle<()>>,
    traces: Arc<Mutex<Option<Traces>>>,
}

/// What is there beside the mount while it is served. The fields go in this order.
struct Traces {
    guardian: Guardian,
    _presence: Option<Presence>,
}

/// The server has ended: its traces go. `gone` tells whether the mount has.
fn withdraw(traces: &Mutex<Option<Traces>>, gone: bool) {
    let mut traces = traces.lock();
    if let Some(Traces { guardian, _presence }) = traces.take()
        && gone
    {
        guardian.release();
    }
}

/// What ends a wait.
enum Event {
    /// The event loops are done.
    Ended(Result<(), End>),
    /// Somebody does not want to wait for the last user any longer.
    GivenUp,
}

/// What went wrong at the end.
enum End {
    Served(io::Error),
    Synced(undercroft_vfs::Error),
}

impl Mounted {
    /// The mount point, absolute.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How many inodes the kernel holds at the moment, without the root.
    #[must_use]
    pub fn inodes_in_kernel(&self) -> usize {
        self.server.upgrade().map_or(0, |server| server.nodes().len())
    }

    /// From now on an interrupt, a hang-up or a request to terminate unmounts. If somebody is still inside, the
    /// mount disappears at once for everybody else and [`wait`](Self::wait) returns when they have left, or at
    /// the second signal.
    ///
    /// # Errors
    /// [`MountError::Start`] when the signals cannot be caught.
    pub fn unmount_on_signals(&mut self) -> Result<(), MountError> {
        let what = "catch signals";
        let start = |cause| MountError::Start { what, cause };
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(start)?;
        let handle = signals.handle();
        let (dir, report) = (self.dir.clone(), self.report.clone());
        let thread = thread::Builder::new().name("undercroft-signals".to_owned()).spawn(move || {
            let mut detached = false;
            for _ in signals.forever() {
                if detached {
                    let _ = report.send(Event::GivenUp);
                    return;
                }
                detached = true;
                let result = match detach(&dir, false) {
                    Err(UnmountError::Busy(_)) => {
                        eprintln!(
                            "undercroft: {} is still in use; serving until its users leave or the next signal",
                            dir.display()
                        );
                        detach(&dir, true)
                    }
                    other => other,
                };
                if let Err(error) = result {
                    eprintln!("undercroft: {error}");
                }
            }
        });
        self.signals = Some((handle, thread.map_err(start)?));
        Ok(())
    }

    /// Unmounts, if nobody is inside.
    ///
    /// # Errors
    /// [`UnmountError::Busy`] and the like; the mount is still served then.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        detach(&self.dir, false)
    }

    /// Serves until the mount is gone, whoever takes it away.
    ///
    /// # Errors
    /// [`MountError::Serve`] when the connection to the kernel broke, [`MountError::Sync`] when not everything
    /// that was written is durable.
    pub fn wait(mut self) -> Result<(), MountError> {
        let event = self.events.recv();
        match event {
            Ok(Event::Ended(ended)) => {
                self.join_loops();
                let dir = self.dir.clone();
                ended.map_err(|end| match end {
                    End::Served(cause) => MountError::Serve { dir, cause },
                    End::Synced(cause) => MountError::Sync { dir, cause },
                })
            }
            // The loops cannot be stopped while users are inside; they end with the process.
            Ok(Event::GivenUp) | Err(_) => {
                let synced = self.server.upgrade().map_or(Ok(()), |server| server.finish());
                synced.map_err(|cause| MountError::Sync { dir: self.dir.clone(), cause })
            }
        }
    }

    /// Takes the mount away if it is there, and returns whether the loops are bound to end.
    fn leave(&self) -> bool {
        let mut traces = self.traces.lock();
        if traces.is_none() {
            return true;
        }
        if !mount_table::is_mounted(self.device).unwrap_or(true) {
            return false;
        }
        let gone = detach(&self.dir, false).is_ok();
        if !gone && detach(&self.dir, true).is_err() {
            // The guardian knows other ways.
            *traces = None;
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

/// Asks for more of the kernel's cache than the protocol can: a larger read-ahead, and as much of what was written in
/// memory as a disk's filesystem may have. The kernel allows a FUSE mount next to nothing of it, lest a server that
/// does not answer hold memory for ever, and stops whoever writes for milliseconds at a time. Only root may ask; for
/// others the defaults stay.
fn widen_cache(device: MountDevice) {
    let read_ahead = READ_AHEAD_KIB.to_string();
    for (setting, value) in [("read_ahead_kb", &*read_ahead), ("strict_limit", "0"), ("max_ratio", "40")] {
        let _ = fs::write(format!("/sys/class/bdi/{device}/{setting}"), value);
    }
}
