//! How an unmounting process learns that the server has let go of everything.
//!
//! The server listens on an abstract socket whose name tells the mount's device number and its place, and never
//! accepts: the number alone is another mount's as soon as this one is gone, while its server still closes the image.
//! Whoever unmounts connects first; when the server closes the socket, which it does last, or dies, the kernel hangs
//! the connection up. No file has to be placed where both sides may write, and none is left behind.
//!
//! The name can be taken by anybody on the machine. All that is gained by this is that an unmount waits for its
//! time limit, so nothing is checked.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::mount_table::MountDevice;

/// The sign that a server is alive; gone when dropped.
pub(crate) struct Presence {
    _listener: UnixListener,
}

impl Presence {
    /// Shows that this process serves the mount.
    pub(crate) fn announce(device: MountDevice, point: &Path) -> io::Result<Self> {
        Ok(Self { _listener: UnixListener::bind_addr(&address(device, point)?)? })
    }
}

/// The server of a mount, as seen by somebody who waits for its end.
pub(crate) struct ServerWatch {
    connection: UnixStream,
}

impl ServerWatch {
    /// `None` if nobody claims to serve the mount.
    pub(crate) fn connect(device: MountDevice, point: &Path) -> Option<Self> {
        Some(Self { connection: UnixStream::connect_addr(&address(device, point).ok()?).ok()? })
    }

    /// Waits for the server's end and returns whether it came in time.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.connection, PollFlags::RDHUP)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(count) => return count > 0,
                Err(_) => return false,
            }
        }
    }
}

fn address(device: MountDevice, point: &Path) -> io::Result<SocketAddr> {
    // A path is longer than such a name can be.
    let mut place = DefaultHasher::new();
    point.hash(&mut place);
    SocketAddr::from_abstract_name(format!("undercroft/mount/{device}/{:016x}", place.finish()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_end_of_a_server_is_noticed() {
        // Above any number that the kernel gives to a mount.
        let device = MountDevice { major: u32::MAX, minor: std::process::id() };
        assert!(ServerWatch::connect(device, Path::new("/here")).is_none());
        let presence = Presence::announce(device, Path::new("/here")).unwrap();
        let watch = ServerWatch::connect(device, Path::new("/here")).unwrap();
        assert!(!watch.wait(Duration::from_millis(20)));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| watch.wait(Duration::from_secs(10)));
            drop(presence);
            assert!(waiting.join().unwrap());
        });
        assert!(ServerWatch::connect(device, Path::new("/here")).is_none());
    }
}
