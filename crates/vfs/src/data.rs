//! The shared data path, read side: moves a file's bytes for every filesystem.
//!
//! The filesystem says what lies under a byte range; here holes become zeroes, inline bytes are copied and
//! device ranges are read. A read that lies in one extent is one device read straight into the caller's buffer,
//! without a lock and without memory of its own. A read over several extents gathers them, joins those that
//! follow each other on the device, and hands them over in batches.
//!
//! An extent that does not contain the byte that was asked for would make these loops run for ever, so it is
//! refused as corruption.

use undercroft_block::{Device, Request};

use crate::{Corruption, Error, Extent, Inode, Mapping, Result};

/// Most device requests in one batch; bounds the memory of a read over many small extents.
const BATCH: usize = 64;

/// Fills `buf` from `offset` of a regular file, up to the end of the file.
pub(crate) fn read_at(
    inode: &dyn Inode,
    device: Option<&Device>,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let size = inode.attr().size_bytes;
    let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
    if len == 0 {
        return Ok(0);
    }
    let buf = &mut buf[..len];
    let run = Run::at(inode, offset)?;
    if run.len < len as u64 {
        read_pieces(inode, device, offset, run, buf)?;
        return Ok(len);
    }
    match run.source {
        Source::Zeroes => buf.fill(0),
        Source::Device(from) => data_device(device, inode)?.read_at(from, buf)?,
        Source::Inline { bytes, skip } => copy_inline(&bytes, skip, buf),
    }
    Ok(len)
}

/// The first byte of data at or after `offset`.
pub(crate) fn seek_data(inode: &dyn Inode, offset: u64) -> Result<u64> {
    seek(inode, offset, |source| !matches!(source, Source::Zeroes))?.ok_or(Error::NoSuchOffset)
}

/// The first byte of a hole at or after `offset`; there is always one at the end.
pub(crate) fn seek_hole(inode: &dyn Inode, offset: u64) -> Result<u64> {
    let hole = seek(inode, offset, |source| matches!(source, Source::Zeroes))?;
    Ok(hole.unwrap_or_else(|| inode.attr().size_bytes))
}

/// The first byte at or after `offset` and before the end whose source is `wanted`.
fn seek(inode: &dyn Inode, offset: u64, wanted: fn(&Source) -> bool) -> Result<Option<u64>> {
    let size = inode.attr().size_bytes;
    if offset >= size {
        return Err(Error::NoSuchOffset);
    }
    let mut at = offset;
    while at < size {
        let run = Run::at(inode, at)?;
        if wanted(&run.source) {
            return Ok(Some(at));
        }
        at = at.saturating_add(run.len);
    }
    Ok(None)
}

/// The rest of an extent from a certain byte on.
struct Run {
    /// At least 1.
    len: u64,
    source: Source,
}

/// Where bytes come from.
enum Source {
    Zeroes,
    /// From this byte of the data device on.
    Device(u64),
    /// From these bytes after the first `skip`; zeroes after the last.
    Inline {
        bytes: std::sync::Arc<[u8]>,
        skip: u64,
    },
}

impl Run {
    /// What lies under `offset` and after it.
    fn at(inode: &dyn Inode, offset: u64) -> Result<Self> {
        let Extent { start, len, mapping } = inode.map(offset)?;
        let skip = offset.checked_sub(start);
        let Some((skip, len)) =
            skip.and_then(|skip| Some((skip, len.checked_sub(skip).filter(|&len| len > 0)?)))
        else {
            let detail = format!("asked for byte {offset}, got {len} bytes from byte {start}");
            return Err(corrupt(inode, detail));
        };
        let source = match mapping {
            Mapping::Hole | Mapping::Unwritten => Source::Zeroes,
            Mapping::Device { offset } => match offset.checked_add(skip) {
                Some(from) => Source::Device(from),
                None => return Err(corrupt(inode, format!("device byte {offset} plus {skip} overflows"))),
            },
            Mapping::Inline(bytes) => Source::Inline { bytes, skip },
        };
        Ok(Self { len, source })
    }
}

/// Fills `buf` from more than one run, of which the first is given.
fn read_pieces(
    inode: &dyn Inode,
    device: Option<&Device>,
    offset: u64,
    first: Run,
    buf: &mut [u8],
) -> Result<()> {
    let mut batch = Vec::new();
    let mut rest = buf;
    let mut at = offset;
    let mut run = first;
    // The range that ends where `rest` begins would begin: it is cut off `rest` when it cannot grow any more.
    let mut joined: Option<(u64, usize)> = None;
    loop {
        let ahead = joined.map_or(0, |(_, len)| len);
        let step = run.len.min((rest.len() - ahead) as u64) as usize;
        let follows = match (&run.source, joined) {
            (Source::Device(from), Some((start, len))) => start.checked_add(len as u64) == Some(*from),
            _ => false,
        };
        if !follows && let Some((start, len)) = joined.take() {
            let (piece, after) = rest.split_at_mut(len);
            rest = after;
            batch.push(Request::Read { offset: start, buf: piece });
            if batch.len() == BATCH {
                data_device(device, inode)?.run_batch(&mut batch)?;
                batch.clear();
            }
        }
        match run.source {
            Source::Device(from) => {
                let (start, len) = joined.unwrap_or((from, 0));
                joined = Some((start, len + step));
            }
            Source::Zeroes => {
                let (piece, after) = rest.split_at_mut(step);
                rest = after;
                piece.fill(0);
            }
            Source::Inline { bytes, skip } => {
                let (piece, after) = rest.split_at_mut(step);
                rest = after;
                copy_inline(&bytes, skip, piece);
            }
        }
        at += step as u64;
        if rest.len() == joined.map_or(0, |(_, len)| len) {
            break;
        }
        run = Run::at(inode, at)?;
    }
    if let Some((start, _)) = joined {
        batch.push(Request::Read { offset: start, buf: rest });
    }
    match &mut *batch {
        [] => Ok(()),
        [Request::Read { offset, buf }] => Ok(data_device(device, inode)?.read_at(*offset, buf)?),
        several => Ok(data_device(device, inode)?.run_batch(several)?),
    }
}

/// Copies inline bytes from `skip` on; what is missing at the end is zeroes.
fn copy_inline(bytes: &[u8], skip: u64, buf: &mut [u8]) {
    let bytes = usize::try_from(skip).ok().and_then(|skip| bytes.get(skip..)).unwrap_or_default();
    let len = bytes.len().min(buf.len());
    buf[..len].copy_from_slice(&bytes[..len]);
    buf[len..].fill(0);
}

fn data_device<'a>(device: Option<&'a Device>, inode: &dyn Inode) -> Result<&'a Device> {
    device.ok_or_else(|| corrupt(inode, "a device range in a filesystem without a data device".to_owned()))
}

fn corrupt(inode: &dyn Inode, detail: String) -> Error {
    Corruption { structure: "extent", ino: Some(inode.attr().ino), block: None, detail: detail.into() }.into()
}
