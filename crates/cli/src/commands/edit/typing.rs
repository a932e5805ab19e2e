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

/// The handler of SIGINT. It stays once it is there: the library cannot give back what it took the place of.
struct Handler {
    /// The signal ends the program.
    ends_program: Arc<AtomicBool>,
    /// Has a byte for each signal.
    told: UnixStream,
}

impl Handler {
    /// `None` where the system has no room for it.
    fn get() -> Option<&'static Self> {
        static HANDLER: OnceLock<Option<Handler>> = OnceLock::new();
        HANDLER.get_or_init(|| Self::set_up().ok()).as_ref()
    }

    fn set_up() -> io::Result<Self> {
        let ends_program = Arc::new(AtomicBool::new(true));
        let (told, teller) = UnixStream::pair()?;
        told.set_nonblocking(true)?;
        low_level::pipe::register(SIGINT, teller)?;
        flag::register_conditional_default(SIGINT, Arc::clone(&ends_program))?;
        Ok(Self { ends_program, told })
    }

    /// Whether there was a signal since this was asked last.
    fn was_told(&self) -> bool {
        let mut bytes = [0; 64];
        let mut has_bytes = false;
        while (&self.told).read(&mut bytes).is_ok_and(|read| read > 0) {
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
    /// `None` where standard input is no terminal.
    pub(super) fn begin() -> Option<Self> {
        let handler = io::stdin().is_terminal().then(Handler::get).flatten()?;
        handler.was_told();
        handler.ends_program.store(false, Ordering::SeqCst);
        Some(Self(handler))
    }

    /// Waits for a line, the end or the signal. What standard input's own buffer may hold is not read: nothing else reads
    /// from a terminal by it.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Typed> {
        loop {
            let (terminal, signal) = (stdin(), &self.0.told);
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

    /// Ends the text; whether it was abandoned before that.
    pub(super) fn end(self) -> bool {
        let handler = self.0;
        drop(self);
        handler.was_told()
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        self.0.ends_program.store(true, Ordering::SeqCst);
    }
}
