//! The server's side: a thread listens beside the mount, and a thread serves each connection.
//!
//! It begins when the mount answers and ends before what the filesystem lies on is closed ([`Control::end`]): connections
//! are shut down, requests under way finish, and the socket's name goes. The name of a server that was killed stays, refuses
//! connections, and goes when the same user's next server starts.

use std::io::{self, PipeReader, PipeWriter};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::{fs, net::Shutdown};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use undercroft_sync::{Mutex, order};

use super::client::is_dead;
use super::directory::SocketDirectory;
use super::protocol::{self, Answer, Request};
use super::wire::{self, Lines, PAUSE_LIMIT, REQUEST_LIMIT, REQUEST_MAX};
use crate::exit::Kind;
use crate::failure::Failure;

/// Connections at a time. Later ones wait in the kernel's queue.
pub(super) const CONNECTIONS_MAX: usize = 32;

/// Of these, how many may wait for long work.
pub(super) const WAITING_MAX: usize = 16;

/// When a connection that could not be accepted is tried again.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// One process serves no more mounts than names that are tried.
const NAMES_MAX: u32 = 64;

/// What requests are about.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Does what is asked for. With `during`, tells how far long work is; `false` from it: nothing waits any more.
    ///
    /// # Errors
    /// Why it was not done.
    fn answer(&self, request: Request, during: &mut dyn FnMut(Answer) -> bool) -> Result<Answer, Failure>;

    /// Whether it may take as long as work on a whole array does.
    fn may_wait(&self, request: &Request) -> bool;
}

/// The control socket of one mount.
#[derive(Debug)]
pub(crate) struct Control {
    shared: Arc<Shared>,
    /// The listening thread, and what ends it when closed.
    running: Mutex<Option<(JoinHandle<()>, PipeWriter)>>,
}

#[derive(Debug)]
struct Shared {
    is_over: AtomicBool,
    waiting: AtomicUsize,
    connections: Mutex<Vec<(u64, UnixStream)>>,
}

impl Control {
    /// Not listening yet.
    pub(crate) fn new() -> Arc<Self> {
        let shared = Shared {
            is_over: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            connections: Mutex::new(&order::MOUNT, Vec::new()),
        };
        Arc::new(Self { shared: Arc::new(shared), running: Mutex::new(&order::MOUNT, None) })
    }

    /// Listens, unless the mount has ended meanwhile.
    ///
    /// # Errors
    /// There is no safe place for a socket, or none can be made.
    pub(crate) fn begin(&self, serve: Arc<dyn Serve>) -> io::Result<()> {
        let directory = SocketDirectory::make()?;
        directory.lock(true)?;
        let bound = bind(&directory);
        directory.lock(false)?;
        let (listener, name) = bound?;
        let (ends, end) = io::pipe()?;
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("control".to_owned()).spawn(move || {
            shared.listen(&listener, &ends, &*serve);
            directory.remove(&name);
        })?;
        *self.running.lock() = Some((thread, end));
        if self.shared.is_over.load(Ordering::SeqCst) {
            self.end();
        }
        Ok(())
    }

    /// Whether requests should come to their end.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::SeqCst)
    }

    /// Stops listening, and waits for requests that are under way. A second call does nothing.
    pub(crate) fn end(&self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let running = self.running.lock().take();
        if let Some((thread, end)) = running {
            drop(end);
            // A panic of it has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.end();
    }
}

/// A socket with a name of its own. Called with the directory's lock, so that a name that refuses connections is a killed
/// server's and not one of a server that is about to listen.
fn bind(directory: &SocketDirectory) -> io::Result<(UnixListener, String)> {
    for name in directory.sockets() {
        if is_dead(directory, &name) {
            directory.remove(&name);
        }
    }
    let process = std::process::id();
    for number in 0..NAMES_MAX {
        let name = format!("{process}-{number}.sock");
        let path = directory.at(&name);
        match UnixListener::bind(&path) {
            Ok(listener) => {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                listener.set_nonblocking(true)?;
                return Ok((listener, name));
            }
            // A process of this number in another container.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

impl Shared {
    fn listen(&self, listener: &UnixListener, ends: &PipeReader, serve: &dyn Serve) {
        let mut number = 0;
        thread::scope(|scope| {
            while !self.is_over.load(Ordering::SeqCst) {
                let mut polled =
                    [PollFd::new(ends, PollFlags::empty()), PollFd::new(listener, PollFlags::IN)];
                let polled_well = poll(&mut polled, None);
                if polled_well.is_err() || !polled[0].revents().is_empty() {
                    continue;
                }
                let Ok((stream, _)) = listener.accept() else {
                    // Without a free descriptor the connection stays in the queue, and would be polled again at once.
                    let _ = poll(&mut [PollFd::new(ends, PollFlags::empty())], Some(&RETRY));
                    continue;
                };
                // Others do not get here but by a mistake in the permissions above.
                if !is_welcome(&stream) || stream.set_nonblocking(false).is_err() {
                    continue;
                }
                number += 1;
                let Some(slot) = self.slot(number, &stream) else { continue };
                // Without a thread the connection is closed, which the client sees.
                let _ = thread::Builder::new().name("control".to_owned()).spawn_scoped(scope, move || {
                    let _slot = slot;
                    let _ = self.converse(&stream, serve);
                });
            }
            for (_, stream) in &*self.connections.lock() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    /// A place among the connections, if there is one.
    fn slot(&self, number: u64, stream: &UnixStream) -> Option<Slot<'_>> {
        let stream = stream.try_clone().ok()?;
        let mut connections = self.connections.lock();
        if connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        connections.push((number, stream));
        Some(Slot { shared: self, number })
    }

    /// Requests and answers, until the client has enough.
    fn converse(&self, stream: &UnixStream, serve: &dyn Serve) -> io::Result<()> {
        let mut lines = Lines::new(stream);
        let mut limit = REQUEST_LIMIT;
        while let Some(line) = lines.next(REQUEST_MAX, Some(limit))? {
            limit = PAUSE_LIMIT;
            let answer = protocol::request(&line).and_then(|request| self.answer(stream, serve, request));
            tell(stream, &answer.unwrap_or_else(Answer::from))?;
        }
        Ok(())
    }

    fn answer(&self, stream: &UnixStream, serve: &dyn Serve, request: Request) -> Result<Answer, Failure> {
        let may_wait = serve.may_wait(&request);
        let waiting = Waiting(&self.waiting);
        if waiting.0.fetch_add(1, Ordering::SeqCst) >= WAITING_MAX && may_wait {
            let what = format!("{WAITING_MAX} commands wait for the server of this mount already");
            return Err(Failure::new(Kind::Host, what).advise("try again later"));
        }
        let mut during = |progress: Answer| tell(stream, &progress).is_ok();
        let done = catch_unwind(AssertUnwindSafe(|| serve.answer(request, &mut during)));
        done.unwrap_or_else(|_| {
            Err(Failure::new(Kind::Host, "a defect of the mount's server, please report it"))
        })
    }
}

/// A request that is under way.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A place among the connections, until it is dropped.
struct Slot<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.shared.connections.lock().retain(|(number, _)| *number != self.number);
    }
}

fn tell(stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    wire::send(stream, protocol::line(answer)?)
}

/// This user and root are.
fn is_welcome(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    wire::peer(stream).is_ok_and(|user| user == own || user == 0)
}
