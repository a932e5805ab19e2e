//! How an unmounting process learns that the server has let go of everything, and how that ended.
//!
//! The mount itself tells which process serves it: an extended attribute of its root, which no list shows, names a process, a pipe
//! that it has open, and the directory under the mount. An unmounting process opens both through `/proc`, which is for
//! root and the server's own user, before the mount goes. The server writes into the pipe how all ended, and closes it
//! last, or dies; the kernel tells the reader.
//!
//! No name is taken that another user could take first, nothing is listened on that another user could fill, and no file
//! is left behind. Users that may look into the mount may read the numbers, which are of no use to them.
//!
//! The answer is not to be trusted: any user may serve a mount of our type, and name what is root's. So the process must
//! run for the user that mounted, what is opened must be a pipe before it is opened, no more is read than a sentence, and
//! the directory must be the one under the mount that was asked.

use std::fs::{self, File};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use undercroft_block::mountinfo::Mount;

use crate::mount_point::MountPoint;
use crate::mount_table;

/// The attribute that a mount's root has for callers that ask for it by name.
pub(crate) const ATTRIBUTE: &str = "system.undercroft.server";

/// What the pipe holds at a good end. Something else is a sentence; nothing is a server that died.
const WELL: &str = "well";

/// No sentence is longer: what a pipe takes at once.
const WORDS_MAX: usize = 4096;

/// A server that is alive; ends when dropped.
pub(crate) struct Liveness {
    /// Kept open, so that writing meets a reader.
    reading: PipeReader,
    writing: PipeWriter,
}

impl Liveness {
    pub(crate) fn begin() -> io::Result<Self> {
        let (reading, writing) = io::pipe()?;
        Ok(Self { reading, writing })
    }

    /// The attribute's value.
    pub(crate) fn told(&self, point: &MountPoint) -> io::Result<String> {
        let pipe = rustix::fs::fstat(&self.reading)?;
        let (process, descriptor, point) = (std::process::id(), self.reading.as_raw_fd(), point.raw());
        Ok(format!("{process} {descriptor} {} {} {point}", pipe.st_dev, pipe.st_ino))
    }

    /// Ends, and says how: with a sentence if not well.
    pub(crate) fn end(mut self, ill: Option<&str>) {
        let words = ill.unwrap_or(WELL).as_bytes();
        // A reader that learns nothing takes the server for dead.
        let _ = self.writing.write_all(&words[..words.len().min(WORDS_MAX)]);
    }
}

/// The server of a mount, as seen by a process that waits for its end.
pub(crate) struct ServerWatch {
    pub(crate) process: u32,
    pipe: File,
    /// The directory under the mount.
    pub(crate) point: Option<MountPoint>,
}

/// How a server has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ServerEnd {
    Well,
    /// Why not.
    Ill(String),
    /// Without a word.
    Died,
    /// Not in time.
    Lingers,
}

/// What a mount answers that is asked for its server.
pub(crate) enum Asked {
    Server(ServerWatch),
    /// Its server is gone.
    Dead,
    /// Its server is of another version, or cannot be seen from here.
    Unknown,
    /// Nothing in time.
    Silence,
}

impl ServerWatch {
    /// Asks `mount`, whose root this is, for its server. Another thread does, which may be left behind: what waits for a
    /// server that has taken a request and never answers cannot be stopped.
    pub(crate) fn ask(mount: &Mount, root: OwnedFd, limit: Duration) -> Asked {
        let (tell, told) = channel();
        thread::spawn(move || {
            let mut value = [0; 256];
            let path = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
            let len = rustix::fs::getxattr(&path, ATTRIBUTE, &mut value);
            // It must not keep the mount busy when the answer is known.
            drop(root);
            let _ = tell.send(len.map(|len| String::from_utf8_lossy(&value[..len]).into_owned()));
        });
        match told.recv_timeout(limit) {
            Ok(Ok(told)) => {
                Self::open(&told, mount.owner().map(|(user, _)| user)).map_or(Asked::Unknown, |server| {
                    // As the table is now: names may have been changed while it was asked.
                    let now = mount_table::find(mount.id, mount.device).ok().flatten();
                    let point = server.point.filter(|point| now.is_some_and(|now| point.is_below(&now)));
                    Asked::Server(Self { point, ..server })
                })
            }
            // The connection was aborted, by the end of the server or by the kernel.
            Ok(Err(Errno::NOTCONN | Errno::CONNABORTED)) => Asked::Dead,
            Ok(Err(_)) => Asked::Unknown,
            Err(_) => Asked::Silence,
        }
    }

    /// Opens what was `told`, if it is of a process of `user`'s.
    fn open(told: &str, user: Option<u32>) -> Option<Self> {
        let mut words = told.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (process, pipe, dev, ino) = (number()?, number()?, number()?, number()?);
        let point = number();
        let at = |descriptor: u64| format!("/proc/{process}/fd/{descriptor}");
        if real_user(process)? != user? {
            return None;
        }
        // Opening something for reading may do something, and asking a file for its attributes may ask its server: so it is
        // looked at first, without asking.
        let looked_at = rustix::fs::open(at(pipe), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(&looked_at, "", flags, StatxFlags::TYPE | StatxFlags::INO).ok()?;
        let on = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        let pipes = rustix::fs::fstat(io::pipe().ok()?.0).ok()?.st_dev;
        // In another namespace the number may be another process's. All pipes without a name are in one filesystem.
        let is_it = (on, found.stx_ino) == (dev, ino) && on == pipes;
        if !is_it || FileType::from_raw_mode(found.stx_mode.into()) != FileType::Fifo {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", looked_at.as_raw_fd());
        let pipe = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let point = point.and_then(|descriptor| MountPoint::open(at(descriptor).as_ref()).ok());
        Some(Self { process: process.try_into().ok()?, pipe: pipe.into(), point })
    }

    /// Waits for the server's end.
    pub(crate) fn wait(&mut self, limit: Duration) -> ServerEnd {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut polled = [PollFd::new(&self.pipe, PollFlags::empty())];
            match poll(&mut polled, Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => return ServerEnd::Lingers,
                Ok(_) => break,
            }
        }
        let mut words = String::new();
        match (&self.pipe).take(WORDS_MAX as u64).read_to_string(&mut words) {
            Ok(_) if words == WELL => ServerEnd::Well,
            Ok(1..) => ServerEnd::Ill(words),
            Ok(0) | Err(_) => ServerEnd::Died,
        }
    }
}

/// The real user of a process.
fn real_user(process: u64) -> Option<u32> {
    let told = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let users = told.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The user that this process runs for.
    fn user() -> Option<u32> {
        Some(rustix::process::getuid().as_raw())
    }

    fn another_user() -> Option<u32> {
        user().map(|user| user + 1)
    }

    #[test]
    fn the_end_of_a_server_is_noticed_and_how_it_came() {
        let point = MountPoint::open("/".as_ref()).unwrap();
        for (words, end) in [
            (Some(None), ServerEnd::Well),
            (Some(Some("the disk is broken")), ServerEnd::Ill("the disk is broken".to_owned())),
            (None, ServerEnd::Died),
        ] {
            let liveness = Liveness::begin().unwrap();
            let told = liveness.told(&point).unwrap();
            let mut watch = ServerWatch::open(&told, user()).unwrap();
            assert!(watch.point.is_some());
            assert_eq!(watch.wait(Duration::from_millis(20)), ServerEnd::Lingers);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| watch.wait(Duration::from_secs(60)));
                if let Some(ill) = words {
                    liveness.end(ill);
                } else {
                    drop(liveness);
                }
                assert_eq!(waiting.join().unwrap(), end);
            });
            assert!(ServerWatch::open(&told, user()).is_none());
        }
    }

    #[test]
    fn another_process_of_that_number_is_not_taken_for_the_server() {
        let liveness = Liveness::begin().unwrap();
        let told = liveness.told(&MountPoint::open("/".as_ref()).unwrap()).unwrap();
        let mut words: Vec<&str> = told.split(' ').collect();
        words[3] = "1";
        assert!(ServerWatch::open(&words.join(" "), user()).is_none());
        assert!(ServerWatch::open("", user()).is_none() && ServerWatch::open("1 2 3", user()).is_none());
    }

    #[test]
    fn only_a_pipe_of_the_mounting_user_is_opened() {
        let point = MountPoint::open("/".as_ref()).unwrap();
        let liveness = Liveness::begin().unwrap();
        let told = liveness.told(&point).unwrap();
        assert!(ServerWatch::open(&told, user()).is_some());
        assert!(
            ServerWatch::open(&told, another_user()).is_none() && ServerWatch::open(&told, None).is_none()
        );
        let file = tempfile::tempfile().unwrap();
        let found = rustix::fs::fstat(&file).unwrap();
        let process = std::process::id();
        let told =
            format!("{process} {} {} {} {}", file.as_raw_fd(), found.st_dev, found.st_ino, point.raw());
        assert!(ServerWatch::open(&told, user()).is_none());
    }
}
