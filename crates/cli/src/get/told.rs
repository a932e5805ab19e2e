//! Prints each name when its copy begins (`--verbose`).

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;
use crate::text::names::safe;

/// Where names are printed: on standard error if standard output has the copy or the summary for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Stdout,
    Stderr,
}

impl Told {
    /// Prints a path inside the image, escaped for people.
    pub(crate) fn name(self, path: &[u8]) -> Result<(), Failure> {
        let line = |is_terminal: bool| {
            let shown = if is_terminal { safe(path).into_bytes() } else { path.to_vec() };
            [&shown[..], b"\n"].concat()
        };
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                let line = line(stdout.is_terminal());
                match stdout.write_all(&line) {
                    // Nobody reads the names any more, and the copy is still wanted.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    written => written?,
                }
            }
            Self::Stderr => {
                let mut stderr = io::stderr().lock();
                let line = line(stderr.is_terminal());
                // Where it cannot be told, the copy goes on.
                let _ = stderr.write_all(&line);
            }
        }
        Ok(())
    }
}
