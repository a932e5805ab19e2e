//! Bytes at an address that writing past the page cache asks for.

/// What devices ask for at most: a page.
const ALIGNMENT: usize = 4096;

/// Bytes that begin at a multiple of a page.
pub(crate) struct AlignedBytes {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many times this byte.
    pub(crate) fn filled(len: usize, byte: u8) -> Self {
        let bytes = vec![byte; len + ALIGNMENT];
        // The vector does not move its bytes when it is moved itself.
        let begin = bytes.as_ptr().addr().next_multiple_of(ALIGNMENT) - bytes.as_ptr().addr();
        Self { bytes, begin, len }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.begin..self.begin + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_at_a_page_wherever_they_are_moved() {
        for len in [1, 4096, 1 << 20] {
            let bytes = Box::new(AlignedBytes::filled(len, 7));
            assert_eq!(bytes.get(), vec![7; len]);
            assert_eq!(bytes.get().as_ptr().addr() % ALIGNMENT, 0);
        }
    }
}
