//! Where a file has no data: what a filesystem knows of holes spares reading them.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::geometry::Kind;
use crate::NextData;

/// The first data of a file of `size` bytes from `offset` on. A block device keeps no account of that.
pub(super) fn next_data(file: &File, kind: Kind, offset: u64, size: u64) -> io::Result<NextData> {
    if kind == Kind::BlockDevice {
        return Ok(NextData::Unknown);
    }
    if offset >= size {
        return Ok(NextData::Nowhere);
    }
    // The position that this moves is used by nothing: all requests say where.
    let start = match seek(file, SeekFrom::Data(offset)) {
        Ok(start) if start < size => start.max(offset),
        Ok(_) | Err(Errno::NXIO) => return Ok(NextData::Nowhere),
        // A filesystem that has no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(NextData::At(offset..size)),
        Err(errno) => return Err(errno.into()),
    };
    let end = match seek(file, SeekFrom::Hole(start)) {
        Ok(end) if end > start => end.min(size),
        _ => size,
    };
    Ok(NextData::At(start..end))
}
