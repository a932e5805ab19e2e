//! Direct I/O with the alignment that the kernel asks for, on behalf of callers that know no alignment.
//!
//! The kernel takes direct requests only if the offset, the length and the buffer's address are multiples of
//! sizes that depend on the file. Requests that are not go through an aligned buffer of our own. A write that
//! covers a part of a block must read that block first; so that it does not put back bytes which another thread has
//! changed meanwhile, it excludes all other writes. Aligned writes, the common case, only share that lock.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, StatxFlags, statx};
use undercroft_sync::{RwLock, RwLockReadGuard, order};

use super::geometry::Kind;
use crate::{Request, Topology};

/// Largest buffer for a request that is not aligned; longer ones are done in pieces.
const PIECE_BYTES: u64 = 1024 * 1024;

/// What one file's direct I/O needs, and the lock that unaligned writes take.
#[derive(Debug)]
pub(super) struct Direct {
    offset_align: u64,
    memory_align: usize,
    /// Exclusive for a write that reads a block to put a part of it back, shared for all other writes.
    edges: RwLock<()>,
}

impl Direct {
    /// Asks the kernel what the file needs; before Linux 6.1 it cannot say, and a block or a page is assumed.
    pub(super) fn new(file: &File, kind: Kind, topology: Topology) -> Self {
        let assumed = match kind {
            Kind::Regular => 4096,
            Kind::BlockDevice => topology.logical_block_bytes,
        };
        let known = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
            .ok()
            .filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
            .map(|stat| (stat.stx_dio_offset_align, stat.stx_dio_mem_align));
        let (offset_align, memory_align) = match known {
            Some((offset, memory)) if offset.is_power_of_two() && memory.is_power_of_two() => {
                (offset, memory)
            }
            _ => (assumed, assumed.max(4096)),
        };
        Self {
            offset_align: offset_align.into(),
            memory_align: memory_align as usize,
            edges: RwLock::new(&order::DEVICE, ()),
        }
    }

    /// The unit of offsets and lengths in bytes.
    pub(super) fn offset_align(&self) -> u64 {
        self.offset_align
    }

    /// Keeps writes of parts of blocks away while an aligned write is in progress.
    pub(super) fn share_edges(&self) -> RwLockReadGuard<'_, ()> {
        self.edges.read()
    }

    fn is_aligned_range(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.offset_align) && len.is_multiple_of(self.offset_align)
    }

    fn is_aligned_memory(&self, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(self.memory_align)
    }

    /// Whether the kernel takes the request as it is.
    pub(super) fn is_aligned(&self, request: &Request<'_>) -> bool {
        let memory = match request {
            Request::Read { buf, .. } => self.is_aligned_memory(buf),
            Request::Write { data, .. } => self.is_aligned_memory(data),
        };
        memory && self.is_aligned_range(request.offset(), request.len())
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read(&self, file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.is_aligned_range(offset, buf.len() as u64) && self.is_aligned_memory(buf) {
            return file.read_exact_at(buf, offset);
        }
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let piece = self.piece_around(at, rest.len() as u64);
            let (part, tail) = rest.split_at_mut(piece.inner_len);
            let mut bounce = AlignedBuffer::new(piece.outer_len, self.memory_align);
            self.read_blocks(file, piece.outer_offset, bounce.bytes(), piece.inner_start + piece.inner_len)?;
            part.copy_from_slice(&bounce.bytes()[piece.inner_start..][..piece.inner_len]);
            at += piece.inner_len as u64;
            rest = tail;
        }
        Ok(())
    }

    /// Stores `data` at `offset`.
    pub(super) fn write(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.is_aligned_range(offset, data.len() as u64) {
            let _alone = self.edges.write();
            return self.write_pieces(file, offset, data);
        }
        let _edges = self.share_edges();
        if self.is_aligned_memory(data) {
            return file.write_all_at(data, offset);
        }
        self.write_pieces(file, offset, data)
    }

    /// Writes through an aligned buffer; the caller holds the lock that the range asks for.
    fn write_pieces(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let piece = self.piece_around(at, rest.len() as u64);
            let (part, tail) = rest.split_at(piece.inner_len);
            let mut bounce = AlignedBuffer::new(piece.outer_len, self.memory_align);
            let bytes = bounce.bytes();
            let inner_end = piece.inner_start + piece.inner_len;
            let block = self.offset_align as usize;
            if piece.inner_start > 0 {
                self.read_blocks(file, piece.outer_offset, &mut bytes[..block], block)?;
            }
            let last = piece.outer_len - block;
            if inner_end < piece.outer_len && (last > 0 || piece.inner_start == 0) {
                self.read_blocks(file, piece.outer_offset + last as u64, &mut bytes[last..], block)?;
            }
            bytes[piece.inner_start..inner_end].copy_from_slice(part);
            file.write_all_at(bytes, piece.outer_offset)?;
            at += piece.inner_len as u64;
            rest = tail;
        }
        Ok(())
    }

    /// The whole blocks around the start of a range, as many as one buffer holds.
    fn piece_around(&self, offset: u64, len: u64) -> Piece {
        let outer_offset = offset / self.offset_align * self.offset_align;
        let outer_end = (offset + len).next_multiple_of(self.offset_align);
        let outer_len = (outer_end - outer_offset).min(PIECE_BYTES.max(self.offset_align));
        let inner_start = offset - outer_offset;
        let inner_len = len.min(outer_len - inner_start);
        Piece {
            outer_offset,
            outer_len: outer_len as usize,
            inner_start: inner_start as usize,
            inner_len: inner_len as usize,
        }
    }

    /// Reads whole blocks, of which at least the first `needed` bytes exist: the last block of a file may be cut
    /// off by its end.
    fn read_blocks(&self, file: &File, offset: u64, bytes: &mut [u8], needed: usize) -> io::Result<()> {
        let mut done = 0;
        while done < needed {
            match file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(count) => {
                    done += count;
                    // After a partial block nothing more can come: it was the end of the file.
                    if count == 0 || (done < needed && !(done as u64).is_multiple_of(self.offset_align)) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A part of a request and the whole blocks around it.
#[derive(Clone, Copy, Debug)]
struct Piece {
    outer_offset: u64,
    outer_len: usize,
    inner_start: usize,
    inner_len: usize,
}

/// Bytes at an aligned address: a slice of an allocation that is a little larger. The allocation never moves.
struct AlignedBuffer {
    allocation: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    fn new(len: usize, align: usize) -> Self {
        let allocation = vec![0; len + align];
        let start = allocation.as_ptr().addr().next_multiple_of(align) - allocation.as_ptr().addr();
        Self { allocation, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.allocation[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned() {
        for align in [1, 4, 512, 4096, 65536] {
            let mut buffer = AlignedBuffer::new(1000, align);
            assert_eq!(buffer.bytes().len(), 1000);
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(align));
        }
    }

    #[test]
    fn pieces_cover_whole_blocks() {
        let direct = Direct { offset_align: 512, memory_align: 512, edges: RwLock::new(&order::DEVICE, ()) };
        let piece = direct.piece_around(1000, 100);
        assert_eq!(
            (piece.outer_offset, piece.outer_len, piece.inner_start, piece.inner_len),
            (512, 1024, 488, 100)
        );
        let piece = direct.piece_around(513, 2 * PIECE_BYTES);
        assert_eq!(piece.outer_len as u64, PIECE_BYTES);
        assert_eq!(piece.inner_len as u64, PIECE_BYTES - 1);
    }
}
