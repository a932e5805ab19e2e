//! What gives the files that a filesystem is filled with.

use crate::{Entry, SourceError};

/// A part of a regular file's content that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it is in the file.
    pub offset: u64,
    /// How many bytes were put into the buffer, from its beginning.
    pub len: usize,
}

/// Files in an order. Directories come before what is in them, or not at all.
///
/// A source is used by one thread at a time, from the first entry to the last. It reads what it needs when it is asked, so
/// that an error of a later part comes only there.
pub trait Source: Send {
    /// The source as a user knows it, for messages.
    fn name(&self) -> &str;

    /// The next entry; `None` at the end. What is left of the content of the entry before is skipped.
    ///
    /// # Errors
    /// Why there is none; the source is not asked again.
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError>;

    /// Reads on in the content of the regular file that came last: the data in order, without the holes. Fills `buf`
    /// unless a hole or the end comes before, however the bytes arrive; `None` at the end.
    ///
    /// # Errors
    /// As for [`next_entry`](Self::next_entry).
    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError>;

    /// Goes back to the first entry, which comes again with all others as they were.
    ///
    /// # Errors
    /// The source cannot be read again.
    fn rewind(&mut self) -> Result<(), SourceError>;
}
