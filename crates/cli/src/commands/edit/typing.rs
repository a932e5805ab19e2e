//! A text that is typed at a terminal: Ctrl-D ends it, and Ctrl-C abandons it.
//!
//! Ctrl-C sends a signal (SIGINT) that would end the program, and in a shell all other changes with it. While a text is typed
//! the signal is caught instead, from wherever it comes; at all other times it ends the program, as without a handler. The
//! terminal keeps its settings, so that they are right whatever signal ends the program.

use std::io::{self, IsTerminal, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use signal_hook::consts::SIGINT;
use signal_hook::{flag, low_level};

use crate::signals::is_ignored;

/// The handler of SIGINT. It stays once it is there: the library cannot give back what it took the place of.
struct Handler {
    /// The signal ends the program.
    ends_program: Arc<AtomicBool>,
    /// The read end of a self-pipe, which holds a byte for each signal.
    wakeup: UnixStream,
}

impl Handler {
    /// `None` where the program was started with the signal ignored, which stays so, and where the system has no room for a
    /// handler.
    fn get() -> Option<&'static Self> {
        static HANDLER: OnceLock<Option<Handler>> = OnceLock::new();
        HANDLER.get_or_init(|| if is_ignored(SIGINT) { None } else { Self::set_up().ok() }).as_ref()
    }

    fn set_up() -> io::Result<Self> {
        let ends_program = Arc::new(AtomicBool::new(true));
        let (wakeup, write_end) = UnixStream::pair()?;
        wakeup.set_nonblocking(true)?;
        // First of both: a signal that comes between them ends the program, as it did before.
        flag::register_conditional_default(SIGINT, Arc::clone(&ends_program))?;
        low_level::pipe::register(SIGINT, write_end)?;
        Ok(Self { ends_program, wakeup })
    }

    /// Empties the self-pipe; whether there was a signal since this was asked last.
    fn drain(&self) -> bool {
        let mut bytes = [0; 64];
        let mut has_bytes = false;
        while (&self.wakeup).read(&mut bytes).is_ok_and(|read| read > 0) {
            has_bytes = true;
        }
        has_bytes
    }
}

/// A text is being typed, until this is dropped.
pub(super) struct Typing(&'static Handler);

/// What comes next of a text that is typed.
pub(super) enum Typed {
    /// So many bytes; none at its end.
    Bytes(usize),
    /// It was abandoned.
    Abandoned,
}

impl Typing {
    /// `None` where standard input is no terminal, and where SIGINT is ignored: then nothing abandons the text.
    pub(super) fn begin() -> Option<Self> {
        let handler = io::stdin().is_terminal().then(Handler::get).flatten()?;
        handler.drain();
        handler.ends_program.store(false, Ordering::SeqCst);
        Some(Self(handler))
    }

    /// Waits for a line, the end or the signal. What standard input's own buffer may hold is not read: nothing else reads
    /// from a terminal by it.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Typed> {
        loop {
            let (terminal, signal) = (stdin(), &self.0.wakeup);
            let mut polled = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(signal, PollFlags::IN)];
            match poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            if !polled[1].revents().is_empty() {
                return Ok(Typed::Abandoned);
            }
            match rustix::io::read(terminal, &mut *buffer) {
                Err(Errno::INTR) => {}
                read => return Ok(Typed::Bytes(read?)),
            }
        }
    }

    /// Whether the text was abandoned since this was asked last. The signal stays caught.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.drain()
    }

    /// Ends the text; whether it was abandoned before that.
    pub(super) fn end(self) -> bool {
        let handler = self.0;
        drop(self);
        handler.drain()
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        self.0.ends_program.store(true, Ordering::SeqCst);
    }
}
