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
//! | `negotiate` | the first message                                    |
//! | `dispatch`  | which request is answered by what                    |
//!
//! Not done: replies without copying (`splice`) and io_uring.

mod abi;
mod device;
mod dispatch;
mod encode;
mod negotiate;
mod reply;
mod request;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

pub(crate) use device::Device;

use crate::MountOptions;
use crate::server::Server;
use dispatch::{Dispatcher, Next};
use reply::Reply;

/// Largest read and write: 256 pages, the most that an ordinary kernel allows.
const REQUEST_BYTES: u32 = 1 << 20;

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
}

impl Connection {
    /// Agrees with the kernel on how to talk. When this returns, the mount answers.
    pub(crate) fn open(fd: OwnedFd, server: Arc<Server>, options: &MountOptions) -> io::Result<Self> {
        let device = Device::from(fd);
        let agreed = negotiate::negotiate(&device, options)?;
        let dispatcher = Dispatcher::new(server, options, agreed);
        Ok(Self { device, dispatcher, loops: options.threads.get() })
    }

    /// Serves until the mount is gone.
    pub(crate) fn run(self) -> io::Result<()> {
        let Self { device, dispatcher, loops } = self;
        // Where the device may not be opened again, as for some users, all loops read from one descriptor.
        let others: Vec<Option<Device>> = (1..loops).map(|_| device.another().ok()).collect();
        thread::scope(|scope| {
            let mut running = Vec::with_capacity(loops);
            for (index, own) in others.iter().chain([&None]).enumerate() {
                let (device, dispatcher) = (own.as_ref().unwrap_or(&device), &dispatcher);
                let serve = move || serve(device, dispatcher);
                running
                    .push(thread::Builder::new().name(format!("fuse-{index}")).spawn_scoped(scope, serve)?);
            }
            let ended = running.into_iter().map(|running| {
                running.join().unwrap_or_else(|_| Err(io::Error::other("an event loop panicked")))
            });
            ended.fold(Ok(()), Result::and)
        })
    }
}

/// One event loop.
fn serve(device: &Device, dispatcher: &Dispatcher) -> io::Result<()> {
    let mut buffer = buffer();
    let mut reply = Reply::new();
    while let Some(len) = device.receive(&mut buffer)? {
        match dispatcher.answer(&buffer[..len], &mut reply)? {
            Next::Reply(bytes) => device.send(bytes)?,
            Next::Nothing => {}
        }
    }
    Ok(())
}
