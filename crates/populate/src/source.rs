//! What gives the files that a filesystem is filled with.

use std::ops::Range;

use crate::{Entry, SourceError};

/// A part of a regular file's content that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it is in the file.
    pub offset: u64,
    /// How many bytes were put into the buffer, from its beginning.
    pub len: usize,
}

/// Pieces of a file end at multiples of this, as far as they do not end where its data does.
pub(crate) const GRID_BYTES: usize = 64 << 10;

/// How much of `range`, in bytes of a file, comes into a buffer of `room` bytes at once: a part of it ends on the grid,
/// where the buffer reaches that far.
pub(crate) fn piece_len(range: &Range<u64>, room: usize) -> usize {
    let len = range.end - range.start;
    if let Ok(len) = usize::try_from(len)
        && len <= room
    {
        return len;
    }
    let past_grid = (range.start.wrapping_add(room as u64) % GRID_BYTES as u64) as usize;
    if past_grid < room { room - past_grid } else { room }
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
    /// unless a hole or the end comes before, however the bytes arrive; a large file's pieces may end on a grid of 64 KiB
    /// instead. `None` at the end.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_on_the_grid_or_with_the_data() {
        let grid = GRID_BYTES as u64;
        for (range, room, len) in [
            (0..10, 100, 10),
            (0..1 << 20, GRID_BYTES * 2 + 5, GRID_BYTES * 2),
            (5..1 << 20, GRID_BYTES, GRID_BYTES - 5),
            (5..1 << 20, 100, 100),
            (grid - 10..1 << 20, 100, 10),
            (grid..1 << 20, GRID_BYTES, GRID_BYTES),
            (grid..grid * 2 - 1, GRID_BYTES, GRID_BYTES - 1),
        ] {
            assert_eq!(piece_len(&range, room), len, "{range:?} {room}");
        }
    }
}
