//! Lines over a socket, bounded in size and time, and the user at the other end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

/// Bytes of a request, its line end included.
pub(super) const REQUEST_MAX: usize = 256 << 10;

/// Bytes of a line of an answer, its line end included.
pub(super) const ANSWER_MAX: usize = 4 << 20;

/// How long a server waits for a request, and for its answer to be taken.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// The user at the other end, as the kernel noted it when the connection was made.
pub(super) fn peer(stream: &UnixStream) -> io::Result<u32> {
    Ok(sockopt::socket_peercred(stream)?.uid.as_raw())
}

/// How long a server waits for a client's next request.
pub(super) const PAUSE_LIMIT: Duration = Duration::from_secs(30);

/// Reads lines and keeps what came after them.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    stream: &'a UnixStream,
    read: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) const fn new(stream: &'a UnixStream) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// The next line without its end, of at most `max` bytes, within `limit`. `None`: the other side has closed.
    pub(super) fn next(&mut self, max: usize, limit: Option<Duration>) -> io::Result<Option<Vec<u8>>> {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut searched = 0;
        loop {
            if let Some(at) = self.read[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(Some(line));
            }
            searched = self.read.len();
            if searched >= max {
                let what = format!("a line of more than {max} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
            }
            self.stream.set_read_timeout(left)?;
            let mut piece = [0; 16 << 10];
            let room = piece.len().min(max - searched);
            match (&mut &*self.stream).read(&mut piece[..room]) {
                Ok(0) if searched == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.read.extend_from_slice(&piece[..len]),
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Writes a line, within a limit for each piece that the other side takes.
pub(super) fn send(stream: &UnixStream, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    stream.set_write_timeout(Some(REQUEST_LIMIT))?;
    (&mut &*stream).write_all(&line)
}

/// Whether to look at the clock and try again.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_in_size_and_time() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(b"one\ntwo\nthr").unwrap();
        let mut lines = Lines::new(&ours);
        assert_eq!(lines.next(10, None).unwrap().unwrap(), b"one");
        assert_eq!(lines.next(10, None).unwrap().unwrap(), b"two");
        let late = lines.next(10, Some(Duration::from_millis(20))).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        (&theirs).write_all(b"ee and more").unwrap();
        assert_eq!(lines.next(10, None).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(theirs);
        let mut lines = Lines::new(&ours);
        assert!(matches!(lines.next(10, None), Ok(Some(_) | None) | Err(_)));
    }
}
