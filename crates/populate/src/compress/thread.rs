//! Reading on a thread of its own: a bounded number of pieces ahead of the reader.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

/// Bytes in a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that are read and not asked for yet.
const PIECES_AHEAD: usize = 4;

/// A piece; an empty one is the end.
type Piece = io::Result<Vec<u8>>;

/// A stream that another thread reads.
pub(super) struct Pieces {
    full: Receiver<Piece>,
    /// Pieces go back, to be filled again.
    empty: Sender<Vec<u8>>,
    piece: Vec<u8>,
    /// How much of the piece was taken.
    taken: usize,
    is_over: bool,
}

impl Pieces {
    /// Starts the thread.
    pub(super) fn of(stream: impl Read + Send + 'static) -> io::Result<Self> {
        let (filled, full) = sync_channel(PIECES_AHEAD);
        let (empty, emptied) = channel();
        let run = move || read_all(stream, &filled, &emptied);
        thread::Builder::new().name("decompress".into()).spawn(run)?;
        Ok(Self { full, empty, piece: Vec::new(), taken: 0, is_over: false })
    }
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            if self.is_over || buf.is_empty() {
                return Ok(0);
            }
            // The thread may have ended.
            let _ = self.empty.send(std::mem::take(&mut self.piece));
            self.taken = 0;
            let next = self.full.recv();
            let next =
                next.unwrap_or_else(|_| Err(io::Error::other("decompression ended without an answer")));
            self.is_over = !matches!(&next, Ok(piece) if !piece.is_empty());
            self.piece = next?;
        }
        let len = buf.len().min(self.piece.len() - self.taken);
        buf[..len].copy_from_slice(&self.piece[self.taken..self.taken + len]);
        self.taken += len;
        Ok(len)
    }
}

/// Reads until the end, a failure, or until nothing is asked for any more.
fn read_all(mut stream: impl Read, filled: &SyncSender<Piece>, emptied: &Receiver<Vec<u8>>) {
    loop {
        let mut piece = emptied.try_recv().unwrap_or_default();
        piece.resize(PIECE_BYTES, 0);
        let mut len = 0;
        let mut failed = None;
        while len < PIECE_BYTES {
            match stream.read(&mut piece[len..]) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        piece.truncate(len);
        // What came before a failure is given before it.
        let is_last = len < PIECE_BYTES;
        if len > 0 && filled.send(Ok(piece)).is_err() {
            return;
        }
        if is_last {
            let _ = filled.send(failed.map_or(Ok(Vec::new()), Err));
            return;
        }
    }
}
