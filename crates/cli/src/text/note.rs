//! Words on standard error that nothing depends on: where they cannot be written, the work goes on without them.

use std::fmt::Display;
use std::io::{self, Write};

/// Says something that the user should know about what was asked for.
pub(crate) fn note(what: impl Display) {
    line(format_args!("undercroft: note: {what}"));
}

/// Says something in its own words.
pub(crate) fn line(words: impl Display) {
    // In one piece, so that what other processes say does not come between.
    let _ = io::stderr().write_all(format!("{words}\n").as_bytes());
}
