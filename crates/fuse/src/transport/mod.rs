//! The wire: requests come in over `/dev/fuse`, replies go out.
//!
//! Agrees with the kernel on how to talk, and runs the event loops: each thread reads a request from its own
//! descriptor of the connection, answers it by itself and reads the next, so no request ever waits for another
//! thread to be woken. The kernel is told of errors by their errnos here, and nowhere else.
//!
//! **Every request is answered.** What is not understood is refused, a panic is an I/O error for its request alone, and
//! a reply that the kernel does not take is replaced by a refusal. A thread that cannot go on even so would leave its
//! requests waiting for ever, so its end is told at once to the `Lost` of [`Connection::run`], which ends the mount.
//!
//! | module      | holds                                                |
//! | ----------- | ---------------------------------------------------- |
//! | `abi`       | the protocol's structures and numbers                |
//! | `device`    | the descriptor                                       |
//! | `request`   | taking a request apart                               |
//! | `reply`     | putting a reply together                             |
//! | `encode`    | attributes and names in the kernel's terms           |
//! | `ring`      | requests over io_uring                               |
//! | `ending`    | how its threads learn of the connection's end        |
//! | `idle`      | what threads do between requests                     |
//! | `negotiate` | the first message                                    |
//! | `dispatch`  | which request is answered by what                    |
//! | `notify`    | what the kernel is told without having asked         |
//! | `write_cache` | what is done about what the kernel caches of writes |
//!
//! Where the kernel offers it and the system has rings, requests come over io_uring instead, see `ring`; what is told
//! here of event loops is then true of those that the kernel sends over the device even so.
//!
//! Not done: replies without copying (`splice`).

mod abi;
mod device;
mod dispatch;
mod encode;
mod ending;
mod idle;
mod negotiate;
mod notify;
mod reply;
mod request;
mod ring;
mod write_cache;

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(crate) use device::Device;
pub use device::WeakConnection;

use rustix::io::Errno;

use crate::MountOptions;
use crate::dirty_limit::DirtyLimit;
use crate::panics::caught;
use crate::server::Server;
use abi::{InitFlags, MINOR_ASKING_FOR_MODE};
use dispatch::{Dispatcher, Next};
use ending::Ending;
use idle::limit::WaitPermits;
use idle::polling::{self, Keeping, Latency, Pace};
use idle::spin::{Watch, Watcher};
use notify::{EndOnDrop, Notifier};
use reply::Reply;
use request::unique_of;
use write_cache::WriteCache;

/// Largest read and write: 256 pages, the most that an ordinary kernel allows.
const REQUEST_BYTES: u32 = 1 << 20;

/// How long requests that no caller waits for are gathered, where nothing else comes over the device.
const GATHERING: Duration = Duration::from_millis(1);

/// What a request has besides the bytes of a write, at most.
const HEADERS_BYTES: usize = 4096;

/// Room for any request.
fn buffer() -> Vec<u8> {
    vec![0; REQUEST_BYTES as usize + HEADERS_BYTES]
}

/// An agreed connection, ready to be served.
pub(crate) struct Connection {
    device: Arc<Device>,
    dispatcher: Dispatcher,
    notifier: Arc<Notifier>,
    server: Arc<Server>,
    /// Where changes are made durable when they pause.
    commit_pause: Option<Duration>,
    loops: usize,
    /// Where requests come over io_uring.
    rings: Option<ring::Plan>,
    ending: Ending,
    /// Where the kernel is told that processors should not halt.
    latency_request: Option<File>,
}

impl Connection {
    /// Agrees with the kernel on how to talk. When this returns, the mount answers.
    pub(crate) fn open(
        fd: OwnedFd,
        server: Arc<Server>,
        options: &MountOptions,
        limit: Arc<DirtyLimit>,
    ) -> io::Result<Self> {
        let device = Arc::new(Device::from(fd));
        let loops = options.threads.get();
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let rings = if options.io_uring { ring::Plan::new(loops.div_ceil(processors)) } else { None };
        let step_ns = server.vfs().filesystem().time_step_ns();
        let (agreed, minor) = negotiate::negotiate(&device, options, rings.is_some(), step_ns)?;
        if agreed.contains(InitFlags::WRITEBACK_CACHE) {
            server.let_kernel_keep_times();
        }
        let rings = rings.filter(|_| agreed.contains(InitFlags::OVER_IO_URING));
        let notifier = Arc::new(Notifier::new(Arc::clone(&device)));
        let asks = agreed.contains(InitFlags::WRITEBACK_CACHE)
            && minor >= MINOR_ASKING_FOR_MODE
            && options.attr_timeout >= write_cache::LASTING;
        let cache = WriteCache::new(Arc::clone(&server), Arc::clone(&notifier), limit, asks);
        let dispatcher = Dispatcher::new(Arc::clone(&server), options, agreed, Arc::clone(&notifier), cache);
        let keeps_something = !options.read_only && server.vfs().filesystem().data_device().is_some();
        let commit_pause = options.commit_pause.filter(|_| keeps_something);
        let loops = if rings.is_some() { 1 } else { loops };
        let latency_request = if options.poll_idle { polling::open_request() } else { None };
        let ending = Ending::new()?;
        Ok(Self { device, dispatcher, notifier, server, commit_pause, loops, rings, ending, latency_request })
    }

    /// A handle that reports whether the connection has ended, and does not keep it open.
    pub(crate) fn downgrade(&self) -> WeakConnection {
        WeakConnection::new(Arc::downgrade(&self.device))
    }

    /// Serves until the mount is gone. `lost` is told, by a thread that cannot go on, why.
    pub(crate) fn run(self, lost: &Lost<'_>) -> io::Result<()> {
        let Self {
            device,
            dispatcher,
            notifier,
            server,
            commit_pause,
            loops,
            rings,
            ending,
            latency_request,
        } = self;
        // Where the device may not be opened again, as for some users, all loops read from one descriptor.
        let others: Vec<Option<Device>> = (1..loops).map(|_| device.another().ok()).collect();
        let (watch, turns) = (Watch::new(), WaitPermits::new());
        let latency = Latency::new();
        thread::scope(|scope| {
            let _end = EndOnDrop(&notifier);
            let notify = || {
                until_lost(lost, || {
                    notifier.run();
                    Ok(())
                })
            };
            let notifying = thread::Builder::new().name("fuse-notify".to_owned()).spawn_scoped(scope, notify);
            let _end_pauses = EndPauses(&server);
            let server = &*server;
            let syncing = commit_pause.map(|pause| {
                let sync = move || {
                    until_lost(lost, || {
                        server.sync_in_pauses(pause);
                        Ok(())
                    })
                };
                thread::Builder::new().name("fuse-sync".to_owned()).spawn_scoped(scope, sync)
            });
            let keeping = latency_request.and_then(|request| latency.start(scope, request).ok());
            let latency = keeping.as_ref().map(Keeping::latency);
            let mut running = Vec::with_capacity(loops);
            let mut not_started = notifying.and(syncing.transpose().map(drop));
            for (index, own) in others.iter().chain([&None]).enumerate() {
                let (device, watch) = match own {
                    Some(own) => (own, Some(&watch)),
                    None => (&*device, None),
                };
                let (turns, dispatcher, ending) = (&turns, &dispatcher, &ending);
                let gathering = rings.is_some().then_some(GATHERING);
                let serve = move || {
                    until_lost(lost, || {
                        serve(Watcher::new(device, watch, turns, Pace::new(latency)), dispatcher, gathering)?;
                        ending.tell();
                        Ok(())
                    })
                };
                match thread::Builder::new().name(format!("fuse-{index}")).spawn_scoped(scope, serve) {
                    Ok(handle) => running.push(handle),
                    Err(error) => not_started = Err(error),
                }
            }
            if let Some(rings) = rings {
                let (device, dispatcher, ending) = (&*device, &dispatcher, &ending);
                let shared = ring::Shared { device, dispatcher, ending, latency, lost };
                let started = rings.start(scope, shared, &mut running);
                not_started = not_started.and(started);
            }
            // The kernel holds everything back until all queues are served, and the loops that are there wait for it.
            let not_started = until_lost(lost, || not_started);
            let ended = running.into_iter().map(|running| {
                running.join().unwrap_or_else(|_| Err(io::Error::other("an event loop panicked")))
            });
            ended.fold(not_started, Result::and)
        })
    }
}

/// Ends the making durable with the scope that it is in.
struct EndPauses<'a>(&'a Server);

impl Drop for EndPauses<'_> {
    fn drop(&mut self) {
        self.0.pauses().end();
    }
}

/// Is told why a thread cannot go on.
pub(crate) type Lost<'a> = dyn Fn(&io::Error) + Sync + 'a;

/// The work of a thread, whose failure or panic is told before it ends.
fn until_lost(lost: &Lost<'_>, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let done = caught(work).unwrap_or_else(|panic| Err(io::Error::other(format!("it panicked: {panic}"))));
    done.inspect_err(|error| drop(caught(|| lost(error))))
}

/// So many failures in a row are taken for moments in which the system lacks memory; after each comes a pause.
const FAILURES_MAX: u32 = 100;
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// Failures in a row.
#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// One more. Waits a moment.
    ///
    /// # Errors
    /// The last of too many.
    fn note(&mut self, error: io::Error) -> io::Result<()> {
        self.0 += 1;
        if self.0 == FAILURES_MAX {
            return Err(error);
        }
        thread::sleep(FAILURE_PAUSE);
        Ok(())
    }

    fn end(&mut self) {
        self.0 = 0;
    }
}

/// One event loop. Beside rings only what the kernel forgets comes here, one message for each inode if a thread always
/// waits for it, and waking that thread costs a process that removes files more than most requests. So with `gathering`
/// no thread waits for that long after such a message, and the next one brings all that was forgotten meanwhile.
fn serve(mut watcher: Watcher<'_>, dispatcher: &Dispatcher, gathering: Option<Duration>) -> io::Result<()> {
    let mut buffer = buffer();
    let mut reply = Reply::new();
    let mut failures = Failures::default();
    loop {
        let len = match watcher.receive(&mut buffer) {
            Ok(Some(len)) => len,
            Ok(None) => return Ok(()),
            // The kernel has refused the request, if there was one, itself.
            Err(error) => {
                failures.note(error)?;
                continue;
            }
        };
        failures.end();
        match dispatcher.answer(&buffer[..len], &mut reply) {
            Next::Reply(bytes) => {
                if let Err(error) = watcher.device().send(bytes) {
                    dispatcher.complain(&format!("the kernel did not take a reply: {error}"));
                    // The kernel has ended the request already, or takes this.
                    let unique = unique_of(&buffer[..len]).unwrap_or_default();
                    watcher.device().send(reply.refuse(unique, Errno::IO))?;
                }
            }
            Next::Nothing => gathering.into_iter().for_each(thread::sleep),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::path::Path;
    use undercroft_vfs::{Vfs, VfsOptions};
    use zerocopy::IntoBytes;

    use super::*;
    use crate::fault_log::{Fault, FaultSink};
    use crate::sample::sample;

    /// A request of this kind for the root, with these arguments, as long as `len` says.
    fn request(opcode: u32, unique: u64, len: u32, arguments: &[u8]) -> Vec<u8> {
        let header = [len, opcode];
        let rest = [1_u64, 0, 0];
        [header.as_bytes(), unique.as_bytes(), rest.as_bytes(), arguments].concat()
    }

    /// Every request that has a number gets a reply with that number, whatever it is, and the last one is answered
    /// as if nothing had been before it.
    #[test]
    fn nothing_that_comes_ends_an_event_loop() {
        let (tell, told) = channel();
        let sink = FaultSink::new(move |fault: &Fault<'_>| tell.send(fault.to_string()).unwrap());
        let vfs = Vfs::new(Arc::new(sample(1, 0)), VfsOptions::default());
        let server = Arc::new(Server::new(vfs, sink, false).unwrap());
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, kernels) = pair.unwrap();
        let (device, kernel) = (Arc::new(Device::from(ours)), Device::from(kernels));
        let notifier = Arc::new(Notifier::new(Arc::clone(&device)));
        let limit = Arc::new(DirtyLimit::new(Path::new("")));
        let cache = WriteCache::new(Arc::clone(&server), Arc::clone(&notifier), limit, false);
        let dispatcher =
            Dispatcher::new(server, &MountOptions::default(), InitFlags::empty(), notifier, cache);
        let turns = WaitPermits::new();
        thread::scope(|scope| {
            let served = scope
                .spawn(|| serve(Watcher::new(&device, None, &turns, Pace::new(None)), &dispatcher, None));
            let mut unique = 0;
            let answered = |bytes: &[u8]| {
                kernel.send(bytes).unwrap();
                let mut reply = vec![0; 1 << 17];
                assert!(matches!(kernel.receive(&mut reply).unwrap(), device::Received::Request(16..)));
                let error = i32::from_ne_bytes(*reply[4..].first_chunk().unwrap());
                (error, u64::from_ne_bytes(*reply[8..].first_chunk().unwrap()))
            };
            // Without arguments, with too few, of a kind that there is not, and with a length that is not its own.
            for opcode in (0..=64).chain([4096, u32::MAX]).filter(|opcode| ![2, 42].contains(opcode)) {
                for len in [0, 1, 7, 16] {
                    for claimed in [40 + len, 41 + len] {
                        unique += 2;
                        let bytes = request(opcode, unique, claimed, &vec![0xff; len as usize]);
                        assert_eq!(answered(&bytes).1, unique, "{opcode} {len} {claimed}");
                    }
                }
            }
            // What has no number, and what has nothing but one; messages without a reply that are cut short.
            kernel.send(&[1; 15]).unwrap();
            assert_eq!(answered(&[9; 16]), (-5, 0x0909_0909_0909_0909));
            kernel.send(&request(2, 1, 40, b"")).unwrap();
            kernel.send(&request(42, 1, 44, b"\xff\xff\xff\xff")).unwrap();
            // The attributes of the root.
            assert_eq!(answered(&request(3, 77, 56, &[0; 16])), (0, 77));
            drop(kernel);
            served.join().unwrap().unwrap();
        });
        assert_eq!(told.iter().next().as_deref(), Some("the kernel sent half a request, which was refused"));
    }
}
