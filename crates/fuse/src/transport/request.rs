//! A request as it lies in the buffer it was read into.

use std::mem;

use zerocopy::FromBytes;

use super::abi::{InHeader, Opcode};
use crate::caller::Caller;
use crate::nodes::NodeId;

/// A request: its header, and what has not been taken of its arguments.
pub(super) struct Request<'a> {
    header: InHeader,
    rest: &'a [u8],
    /// What follows when that is used up: where a request comes in two parts, arguments do not lie across.
    next: &'a [u8],
}

/// The request is shorter than its kind says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What the reply has to name to a request that may be cut short.
pub(super) fn unique_of(bytes: &[u8]) -> Option<u64> {
    const AT: usize = mem::offset_of!(InHeader, unique);
    Some(u64::from_ne_bytes(*bytes.get(AT..)?.first_chunk()?))
}

impl<'a> Request<'a> {
    /// A request in the bytes that were read.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed)?;
        if header.len as usize != bytes.len() {
            return Err(Malformed);
        }
        // Extensions come last, and none was asked for.
        let extensions = usize::from(header.total_extlen) * 8;
        let rest = rest.len().checked_sub(extensions).and_then(|len| rest.get(..len)).ok_or(Malformed)?;
        Ok(Self { header, rest, next: &[] })
    }

    /// A request whose header, first structure and further arguments lie in places of their own. The first two have
    /// room to spare; how long the structure is tells the header.
    pub(super) fn parse_parts(header: &[u8], first: &'a [u8], further: &'a [u8]) -> Result<Self, Malformed> {
        let (header, _) = InHeader::read_from_prefix(header).map_err(|_| Malformed)?;
        let arguments = (header.len as usize).checked_sub(size_of::<InHeader>()).ok_or(Malformed)?;
        let first_bytes = arguments.checked_sub(further.len()).ok_or(Malformed)?;
        let first = first.get(..first_bytes).ok_or(Malformed)?;
        let extensions = usize::from(header.total_extlen) * 8;
        let further_bytes = further.len().checked_sub(extensions).ok_or(Malformed)?;
        Ok(Self { header, rest: first, next: &further[..further_bytes] })
    }

    pub(super) fn opcode(&self) -> Opcode {
        Opcode(self.header.opcode)
    }

    /// What the reply has to name.
    pub(super) fn unique(&self) -> u64 {
        self.header.unique
    }

    /// The inode that the request is about.
    pub(super) fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { uid: self.header.uid, gid: self.header.gid, thread: self.header.pid }
    }

    /// Goes on to the next part where the first is used up.
    fn advance(&mut self) {
        if self.rest.is_empty() {
            self.rest = std::mem::take(&mut self.next);
        }
    }

    /// Takes a structure from the front of the arguments.
    pub(super) fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        self.advance();
        let (taken, rest) = T::read_from_prefix(self.rest).map_err(|_| Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes a name, which ends with a NUL.
    pub(super) fn take_name(&mut self) -> Result<&'a [u8], Malformed> {
        self.advance();
        let len = self.rest.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let (name, rest) = self.rest.split_at(len);
        self.rest = &rest[1..];
        Ok(name)
    }

    /// Takes as many bytes.
    pub(super) fn take_bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        self.advance();
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::abi::LinkIn;

    fn request(arguments: &[u8], extensions: u16) -> Vec<u8> {
        let len = 40 + arguments.len() as u32;
        let mut bytes = Vec::new();
        for word in [len, 13, 7, 0, 99, 0, 1000, 1001, 1234] {
            bytes.extend_from_slice(&u32::to_ne_bytes(word));
        }
        bytes.extend_from_slice(&extensions.to_ne_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(arguments);
        bytes
    }

    #[test]
    fn arguments_are_taken_one_after_the_other() {
        let bytes = request(b"\x05\0\0\0\0\0\0\0name\0rest", 0);
        let mut request = Request::parse(&bytes).unwrap();
        assert_eq!((request.opcode(), request.unique(), request.node()), (Opcode::LINK, 7, NodeId(99)));
        assert_eq!(request.caller(), Caller { uid: 1000, gid: 1001, thread: 1234 });
        assert_eq!(request.take::<LinkIn>().unwrap().oldnodeid, 5);
        assert_eq!(request.take_name().unwrap(), b"name");
        assert_eq!(request.take_name(), Err(Malformed));
        assert_eq!(request.take_bytes(5), Err(Malformed));
        assert_eq!(request.take_bytes(4).unwrap(), b"rest");
    }

    #[test]
    fn a_request_may_come_in_parts() {
        let whole = request(b"\x05\0\0\0\0\0\0\0name\0rest\0\0\0\0extended", 1);
        let (mut header, mut first) = ([7; 128], [7; 128]);
        header[..40].copy_from_slice(&whole[..40]);
        first[..8].copy_from_slice(&whole[40..48]);
        let mut request = Request::parse_parts(&header, &first, &whole[48..]).unwrap();
        assert_eq!(request.take::<LinkIn>().unwrap().oldnodeid, 5);
        assert_eq!(request.take_name().unwrap(), b"name");
        assert_eq!(request.take_bytes(8).unwrap(), b"rest\0\0\0\0");
        assert_eq!(request.take_bytes(1), Err(Malformed));
        assert!(Request::parse_parts(&header, &first, &[0; 1000]).is_err());
        assert!(Request::parse_parts(&header, &first[..4], &whole[48..]).is_err());
    }

    #[test]
    fn extensions_are_no_arguments() {
        let bytes = request(b"name\0\0\0\0extended", 1);
        let mut request = Request::parse(&bytes).unwrap();
        assert_eq!(request.take_bytes(8).unwrap(), b"name\0\0\0\0");
        assert_eq!(request.take_bytes(1), Err(Malformed));
    }

    #[test]
    fn what_is_too_short_is_refused() {
        let bytes = request(b"", 0);
        for len in 0..bytes.len() {
            assert!(Request::parse(&bytes[..len]).is_err());
        }
        assert!(Request::parse(&request(b"short", 1)).is_err());
        assert!(Request::parse(&bytes).unwrap().take::<LinkIn>().is_err());
        assert_eq!((unique_of(&bytes[..16]), unique_of(&bytes[..15])), (Some(7), None));
    }
}
