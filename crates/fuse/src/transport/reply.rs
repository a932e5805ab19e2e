//! A reply while it is put together: one buffer for each event loop, used again and again, or the place from which the
//! kernel takes it.

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::abi::OutHeader;

pub(super) const HEADER_BYTES: usize = size_of::<OutHeader>();

/// A reply: room for the header, and the payload so far.
pub(super) struct Reply<'a> {
    bytes: Bytes<'a>,
    len: usize,
}

enum Bytes<'a> {
    /// Grow to the largest reply seen and are never cleared, so that a large read costs no zeroing.
    Owned(Vec<u8>),
    /// Lent, as long as they suffice.
    Lent(&'a mut [u8]),
}

impl Bytes<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Lent(bytes) => bytes,
        }
    }
}

impl<'a> Reply<'a> {
    pub(super) fn new() -> Self {
        Self { bytes: Bytes::Owned(vec![0; 4096]), len: HEADER_BYTES }
    }

    /// A reply that is put together in these bytes, as long as they suffice; there have to be as many as a header has.
    pub(super) fn within(bytes: &'a mut [u8]) -> Self {
        assert!(bytes.len() >= HEADER_BYTES);
        Self { bytes: Bytes::Lent(bytes), len: HEADER_BYTES }
    }

    /// Whether the bytes that were lent have sufficed.
    pub(super) fn is_within(&self) -> bool {
        matches!(self.bytes, Bytes::Lent(_))
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.len = HEADER_BYTES;
    }

    /// Adds a structure.
    pub(super) fn push<T: IntoBytes + Immutable>(&mut self, part: &T) {
        self.push_bytes(part.as_bytes());
    }

    /// Adds bytes.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Room for `len` more bytes, which hold anything; [`grow`](Self::grow) makes them part of the reply.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        match &mut self.bytes {
            Bytes::Owned(bytes) if bytes.len() < end => bytes.resize(end, 0),
            Bytes::Lent(lent) if lent.len() < end => {
                let mut bytes = lent[..self.len].to_vec();
                bytes.resize(end, 0);
                self.bytes = Bytes::Owned(bytes);
            }
            _ => {}
        }
        &mut self.bytes.as_mut()[self.len..end]
    }

    /// The first `len` bytes of the room are part of the reply now.
    pub(super) fn grow(&mut self, len: usize) {
        assert!(self.len + len <= self.bytes.as_mut().len(), "more than there is room for");
        self.len += len;
    }

    /// How long the payload is.
    pub(super) fn payload_bytes(&self) -> usize {
        self.len - HEADER_BYTES
    }

    /// The whole reply to the request `unique`.
    pub(super) fn finish(&mut self, unique: u64) -> &[u8] {
        self.set_header(unique, 0)
    }

    /// The refusal of the request `unique`; whatever was put together is dropped.
    pub(super) fn refuse(&mut self, unique: u64, errno: Errno) -> &[u8] {
        self.clear();
        self.set_header(unique, -errno.raw_os_error())
    }

    fn set_header(&mut self, unique: u64, error: i32) -> &[u8] {
        let header = OutHeader { len: self.len as u32, error, unique };
        let bytes = self.bytes.as_mut();
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        &bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_its_length_and_its_request() {
        let mut reply = Reply::new();
        reply.push_bytes(b"pay");
        reply.room(5000)[..4].copy_from_slice(b"load");
        reply.grow(4);
        assert_eq!(reply.payload_bytes(), 7);
        let bytes = reply.finish(9).to_vec();
        assert_eq!(bytes[..4], 23_u32.to_ne_bytes());
        assert_eq!(bytes[4..8], [0; 4]);
        assert_eq!(bytes[8..16], 9_u64.to_ne_bytes());
        assert_eq!(&bytes[16..], b"payload");
        let refusal = reply.refuse(10, Errno::NOENT).to_vec();
        assert_eq!(refusal[..4], 16_u32.to_ne_bytes());
        assert_eq!(refusal[4..8], (-2_i32).to_ne_bytes());
        assert_eq!(refusal.len(), 16);
        reply.clear();
        assert_eq!(reply.finish(11).len(), 16);
    }

    #[test]
    fn a_reply_stays_where_it_has_room() {
        let mut room = [0; 24];
        let mut reply = Reply::within(&mut room);
        reply.push_bytes(b"12345678");
        assert_eq!(&reply.finish(1)[16..], b"12345678");
        assert!(reply.is_within());
        reply.push_bytes(b"9");
        assert_eq!(&reply.finish(1)[16..], b"123456789");
        assert!(!reply.is_within());
        assert_eq!(&room[16..], b"12345678");
    }
}
