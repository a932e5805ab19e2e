//! The wire: requests come in over `/dev/fuse`, replies go out.
//!
//! Agrees with the kernel on how to talk, and runs the event loops: each thread reads a request from its own
//! descriptor of the connection, answers it by itself and reads the next, so no request ever waits for another
//! thread to be woken. Errors become errnos here, and nowhere else.
//!
//! | module      | holds                                                |
//! | ----------- | ---------------------------------------------------- |
//! | `abi`       | the protocol's structures and numbers                |
//! | `device`    | the descriptor                                       |
//! | `request`   | taking a request apart                               |
//! | `reply`     | putting a reply together                             |
//! | `encode`    | attributes and names in the kernel's terms           |
//! | `watch`     | waiting for requests; `turns` tells who does         |
//! | `ring`      | requests over io_uring; `placement` of its threads   |
//! | `latency`   | keeping processors from halting meanwhile            |
//! | `negotiate` | the first message                                    |
//! | `dispatch`  | which request is answered by what                    |
//!
//! Where the kernel offers it and the system has rings, requests come over io_uring instead, see `ring`; what is told
//! here of event loops is then true of those that the kernel sends over the device even so.
//!
//! Not done: replies without copying (`splice`).

mod abi;
mod device;
mod dispatch;
mod encode;
mod latency;
mod negotiate;
mod placement;
mod reply;
mod request;
mod ring;
mod turns;
mod watch;

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub(crate) use device::Device;

use crate::MountOptions;
use crate::server::Server;
use abi::InitFlags;
use dispatch::{Dispatcher, Next};
use latency::{Keeping, Latency, Pace};
use reply::Reply;
use turns::Turns;
use watch::{Watch, Watcher};

/// Largest read and write: 256 pages, the most that an ordinary kernel allows.
const REQUEST_BYTES: u32 = 1 << 20;

/// How long what nobody waits for is gathered, where nothing else comes over the device.
const GATHERING: Duration = Duration::from_millis(1);

/// What a request has besides the bytes of a write, at most.
const HEADERS_BYTES: usize = 4096;

/// Room for any request.
fn buffer() -> Vec<u8> {
    vec![0; REQUEST_BYTES as usize + HEADERS_BYTES]
}

/// An agreed connection, ready to be served.
pub(crate) struct Connection {
    device: Device,
    dispatcher: Dispatcher,
    loops: usize,
    /// Where requests come over io_uring.
    rings: Option<ring::Plan>,
    /// Where the kernel is told that processors should not halt.
    latency_request: Option<File>,
}

impl Connection {
    /// Agrees with the kernel on how to talk. When this returns, the mount answers.
    pub(crate) fn open(fd: OwnedFd, server: Arc<Server>, options: &MountOptions) -> io::Result<Self> {
        let device = Device::from(fd);
        let loops = options.threads.get();
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let rings = if options.io_uring { ring::Plan::new(loops.div_ceil(processors)) } else { None };
        let agreed = negotiate::negotiate(&device, options, rings.is_some())?;
        let rings = rings.filter(|_| agreed.contains(InitFlags::OVER_IO_URING));
        let dispatcher = Dispatcher::new(server, options, agreed);
        let loops = if rings.is_some() { 1 } else { loops };
        let latency_request = latency::open_request(options.poll_idle);
        Ok(Self { device, dispatcher, loops, rings, latency_request })
    }

    /// Serves until the mount is gone.
    pub(crate) fn run(self) -> io::Result<()> {
        let Self { device, dispatcher, loops, rings, latency_request } = self;
        // Where the device may not be opened again, as for some users, all loops read from one descriptor.
        let others: Vec<Option<Device>> = (1..loops).map(|_| device.another().ok()).collect();
        let (watch, turns) = (Watch::new(), Turns::new());
        let latency = Latency::new();
        thread::scope(|scope| {
            let keeping = latency_request.and_then(|request| latency.start(scope, request).ok());
            let latency = keeping.as_ref().map(Keeping::latency);
            let mut running = Vec::with_capacity(loops);
            for (index, own) in others.iter().chain([&None]).enumerate() {
                let (device, watch) = match own {
                    Some(own) => (own, Some(&watch)),
                    None => (&device, None),
                };
                let (turns, dispatcher) = (&turns, &dispatcher);
                let gathering = rings.is_some().then_some(GATHERING);
                let serve = move || {
                    serve(Watcher::new(device, watch, turns, Pace::new(latency)), dispatcher, gathering)
                };
                running
                    .push(thread::Builder::new().name(format!("fuse-{index}")).spawn_scoped(scope, serve)?);
            }
            if let Some(rings) = rings {
                running.extend(rings.start(scope, &device, &dispatcher, latency)?);
            }
            let ended = running.into_iter().map(|running| {
                running.join().unwrap_or_else(|_| Err(io::Error::other("an event loop panicked")))
            });
            ended.fold(Ok(()), Result::and)
        })
    }
}

/// One event loop. Beside rings only what the kernel forgets comes here, one message for each inode if somebody always
/// waits for it, and to wake who waits costs whoever removes files more than most requests. So with `gathering` nobody
/// waits for that long after such a message, and the next one brings all that was forgotten meanwhile.
fn serve(mut watcher: Watcher<'_>, dispatcher: &Dispatcher, gathering: Option<Duration>) -> io::Result<()> {
    let mut buffer = buffer();
    let mut reply = Reply::new();
    while let Some(len) = watcher.receive(&mut buffer)? {
        match dispatcher.answer(&buffer[..len], &mut reply)? {
            Next::Reply(bytes) => watcher.device().send(bytes)?,
            Next::Nothing => gathering.into_iter().for_each(thread::sleep),
        }
    }
    Ok(())
}
