//! Standard output: what kind of place it is, and how a value is put there.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use super::names::safe;
use super::style::Palette;
use crate::failure::Failure;

/// Widest picture or column layout that is still easy to read.
const WIDTH_MAX: usize = 100;
/// What is assumed where the terminal does not say.
const WIDTH_DEFAULT: usize = 80;

/// Buffered standard output that knows whether a person is looking.
#[derive(Debug)]
pub(crate) struct Out {
    sink: BufWriter<StdoutLock<'static>>,
    /// A terminal: names are escaped, columns are laid out.
    pub(crate) terminal: bool,
    /// Colours, by terminal, `NO_COLOR`, `CLICOLOR_FORCE` and `--color`.
    pub(crate) palette: Palette,
    /// Columns to lay out for.
    pub(crate) width: usize,
}

impl Out {
    /// Standard output.
    pub(crate) fn stdout() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let colours = AutoStream::choice(&stdout) != ColorChoice::Never;
        let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
        let width = if columns == 0 { WIDTH_DEFAULT } else { columns.min(WIDTH_MAX) };
        Self {
            sink: BufWriter::with_capacity(64 * 1024, stdout.lock()),
            terminal,
            palette: Palette { colours },
            width,
        }
    }

    /// A name as this output wants it: escaped for a person, exact for a program.
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        if self.terminal { safe(bytes).into_bytes().into() } else { bytes.into() }
    }

    /// A value as one JSON document and a line end.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let written = if self.terminal {
            serde_json::to_writer_pretty(&mut self.sink, value)
        } else {
            serde_json::to_writer(&mut self.sink, value)
        };
        written.map_err(|error| Failure::output(&error.into()))?;
        Ok(self.sink.write_all(b"\n")?)
    }

    /// Hands over what is buffered; the caller's last act.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        Ok(self.sink.flush()?)
    }
}

impl Write for Out {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.sink.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Columns that a text takes on a terminal.
pub(crate) fn columns(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// A JSON array whose elements are written as they come, for results that do not fit into memory.
#[derive(Debug, Default)]
pub(crate) struct JsonArray {
    started: bool,
}

impl JsonArray {
    /// Writes one element.
    pub(crate) fn element<T: Serialize>(&mut self, out: &mut Out, value: &T) -> Result<(), Failure> {
        out.write_all(if self.started { b",\n" } else { b"[\n" })?;
        self.started = true;
        serde_json::to_writer(&mut *out, value).map_err(|error| Failure::output(&error.into()))
    }

    /// Ends the array.
    pub(crate) fn end(self, out: &mut Out) -> Result<(), Failure> {
        out.write_all(if self.started { b"\n]\n" } else { b"[]\n" })?;
        Ok(())
    }
}
