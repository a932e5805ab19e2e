//! Writing.
//!
//! Written bytes are overwritten in place: extents are gathered into batches, and `finish_write` is called afterwards.
//! For holes, unwritten space and inline files the filesystem first prepares space (`prepare_write`); the bytes are
//! written there, and `finish_write` makes them readable, together with the file's new size. So a crash in between
//! leaves the old content. Each write first checks whether the filesystem still takes changes; if it stops later, its
//! device refuses the request.
//!
//! The first write to a block of the device writes all of it: the caller's bytes with zeroes around them, or, where the
//! block replaces a shared one, with the bytes of that one. No other thread may write the block at the same time,
//! because its bytes would be overwritten.
//!
//! Locks: the caller holds the inode's state, exclusively if the file grows. Shared is enough within the size; where a
//! block would have to be filled up, [`write`] stops with [`Stop::NeedsExclusive`].

use undercroft_block::Request;

use super::{BATCH, Backing, Run, Source};
use crate::{Error, Extent, Result, WriteKind};

/// Most bytes that are copied to be written in one request with the zeroes around them.
const PADDED_MAX: u64 = 1 << 20;

/// How the caller holds the inode's state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Shared,
    Exclusive,
}

/// Why a write stopped before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The next bytes can be written only with the inode's state held exclusively.
    NeedsExclusive,
    Failed(Error),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Overwrites with all of `data`, if the filesystem knows at once where the old bytes lie. `false` if not; nothing has
/// been written then.
///
/// Answers of a few words: an extent with all that can lie under it takes longer to hand over than to find.
#[inline]
pub(crate) fn overwrite_at_once(backing: Backing<'_>, offset: u64, data: &[u8]) -> Result<bool> {
    let (inode, len) = (backing.inode, data.len() as u64);
    let Some(device) = backing.device else { return Ok(false) };
    let Some(to) = inode.written_at(offset, len) else { return Ok(false) };
    if let Err(error) = device.write_at(to, data) {
        // The cause, if the filesystem has stopped.
        inode.check_changes()?;
        return Err(error.into());
    }
    inode.finish_write(offset, len, offset + len, WriteKind::Overwrite)?;
    Ok(true)
}

/// Writes `data` at `offset`, and returns how much of it, and why not all. The counted bytes are readable.
pub(crate) fn write(backing: Backing<'_>, offset: u64, data: &[u8], hold: Hold) -> (usize, Option<Stop>) {
    let mut done = 0;
    while done < data.len() {
        match write_some(backing, offset + done as u64, &data[done..], hold) {
            Ok(len) => done += len,
            Err(stop) => return (done, Some(stop)),
        }
    }
    (done, None)
}

/// Writes at least one byte.
fn write_some(
    backing: Backing<'_>,
    offset: u64,
    data: &[u8],
    hold: Hold,
) -> std::result::Result<usize, Stop> {
    // After the look at the map, which is valid only while the filesystem takes changes. A refusal here has written
    // nothing. If the filesystem stops after this, its device refuses the write; a request that has passed the device
    // may or may not reach the disk, as in a crash.
    let first = backing.run_at(offset)?;
    backing.inode.check_changes()?;
    let (len, written) = match first.source {
        Source::Device(_) | Source::Kept => (overwrite(backing, offset, data, first)?, WriteKind::Overwrite),
        Source::Hole | Source::Unwritten(_) | Source::Inline { .. } | Source::Shared(_) => {
            let data = &data[..first.len.min(data.len() as u64) as usize];
            (write_first(backing, offset, data, &first, hold)?, WriteKind::Allocating)
        }
    };
    backing.inode.finish_write(offset, len as u64, offset + len as u64, written)?;
    Ok(len)
}

/// Writes over what is there, from the run that is given on, up to a hole.
fn overwrite(backing: Backing<'_>, offset: u64, data: &[u8], first: Run) -> Result<usize> {
    if let Source::Device(to) = first.source
        && first.len >= data.len() as u64
    {
        backing.device()?.write_at(to, data)?;
        return Ok(data.len());
    }
    let mut batch = Vec::new();
    let mut rest = data;
    let mut run = first;
    loop {
        let (piece, after) = rest.split_at(run.len.min(rest.len() as u64) as usize);
        match run.source {
            Source::Device(to) => batch.push(Request::Write { offset: to, data: piece }),
            Source::Kept => backing.inode.write_kept(offset + (data.len() - rest.len()) as u64, piece)?,
            Source::Hole | Source::Unwritten(_) | Source::Inline { .. } | Source::Shared(_) => break,
        }
        rest = after;
        if rest.is_empty() || batch.len() == BATCH {
            break;
        }
        run = backing.run_at(offset + (data.len() - rest.len()) as u64)?;
    }
    if !batch.is_empty() {
        backing.device()?.run_batch(&mut batch)?;
    }
    Ok(data.len() - rest.len())
}

/// Writes where nothing was written before, or where the bytes are shared, as far as the filesystem prepares it. `old` is
/// what lies there; all of `data` lies in it.
pub(super) fn write_first(
    backing: Backing<'_>,
    offset: u64,
    data: &[u8],
    old: &Run,
    hold: Hold,
) -> std::result::Result<usize, Stop> {
    let whole_blocks = || {
        let block = backing.block_bytes();
        offset.is_multiple_of(block) && (data.len() as u64).is_multiple_of(block)
    };
    // The blocks that a shared one is replaced by take its place when the write is finished: no other thread may use the
    // old one then.
    let is_shared = matches!(old.source, Source::Shared(_));
    if hold == Hold::Shared && backing.device.is_some() && (is_shared || !whole_blocks()) {
        return Err(Stop::NeedsExclusive);
    }
    let extent = backing.inode.prepare_write(offset, data.len() as u64)?;
    let written = write_prepared(backing, offset, data, extent, old);
    if written.is_err() {
        backing.inode.cancel_write(offset, data.len() as u64);
    }
    Ok(written?)
}

/// Writes as much of `data` as `extent` holds, which was prepared for it.
fn write_prepared(
    backing: Backing<'_>,
    offset: u64,
    data: &[u8],
    extent: Extent,
    old: &Run,
) -> Result<usize> {
    let run = backing.run_in(offset, extent)?;
    let data = &data[..run.len.min(data.len() as u64) as usize];
    match run.source {
        Source::Unwritten(to) => write_padded(backing, offset, data, to, &run, old),
        // Another thread wrote the same whole blocks at the same time, or they came out of the inode.
        Source::Device(to) => {
            backing.device()?.write_at(to, data)?;
            Ok(data.len())
        }
        Source::Kept => {
            backing.inode.write_kept(offset, data)?;
            Ok(data.len())
        }
        Source::Hole => Err(backing.corrupt(format!("byte {offset} is a hole after it was prepared"))),
        Source::Shared(_) => Err(backing.corrupt(format!("byte {offset} is shared after it was prepared"))),
        Source::Inline { .. } => Err(Error::Unsupported("writing into an inode's inline bytes".into())),
    }
}

/// Writes into unwritten space at byte `to` of the device. The rest of the blocks that `data` does not fill gets what
/// `old` has there: zeroes, or shared bytes. Returns how many bytes of `data` were written: of long data not those that
/// would have to be copied because of that rest.
fn write_padded(
    backing: Backing<'_>,
    offset: u64,
    data: &[u8],
    to: u64,
    run: &Run,
    old: &Run,
) -> Result<usize> {
    let (device, block) = (backing.device()?, backing.block_bytes());
    let (len, head) = (data.len() as u64, (offset % block).min(run.before).min(to));
    if head == 0 && (len.is_multiple_of(block) || len > PADDED_MAX.max(block)) {
        let whole = &data[..(len - len % block) as usize];
        device.write_at(to, whole)?;
        return Ok(whole.len());
    }
    let data = &data[..len.min(PADDED_MAX.max(block) - head) as usize];
    let filled = offset % block + data.len() as u64;
    let tail = (filled.next_multiple_of(block) - filled).min(run.len - data.len() as u64);
    let mut padded = vec![0; head as usize + data.len() + tail as usize];
    if let Source::Shared(from) = old.source {
        if old.before < head || old.len < data.len() as u64 + tail {
            return Err(backing.corrupt(format!("byte {offset} is shared, and its block is not")));
        }
        device.read_at(from - head, &mut padded)?;
    }
    padded[head as usize..][..data.len()].copy_from_slice(data);
    device.write_at(to - head, &padded)?;
    Ok(data.len())
}
