//! Cutting a byte range at the boundaries of equal chunks: a pure function that the sparse devices share.

/// The part of a range that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The chunk's number: its offset divided by the chunk size.
    pub(crate) chunk: u64,
    /// First byte, counted from the chunk's start.
    pub(crate) start: usize,
    /// Number of bytes, at least one.
    pub(crate) len: usize,
}

/// The parts of `len` bytes at `offset`, in order. The range must not reach past `u64::MAX`.
pub(crate) fn spans(offset: u64, len: u64, chunk_bytes: usize) -> impl Iterator<Item = Span> {
    let chunk_bytes = chunk_bytes as u64;
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = at % chunk_bytes;
        let len = (end - at).min(chunk_bytes - start);
        let span = Span { chunk: at / chunk_bytes, start: start as usize, len: len as usize };
        at += len;
        Some(span)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_chunk_boundaries() {
        let cut: Vec<_> = spans(10, 30, 16).map(|span| (span.chunk, span.start, span.len)).collect();
        assert_eq!(cut, [(0, 10, 6), (1, 0, 16), (2, 0, 8)]);
        assert_eq!(spans(16, 16, 16).count(), 1);
        assert_eq!(spans(5, 0, 16).count(), 0);
        let end: Vec<_> = spans(u64::MAX - 4, 4, 16).map(|span| (span.start, span.len)).collect();
        assert_eq!(end, [(11, 4)]);
    }
}
