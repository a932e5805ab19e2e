//! Zeroes over a part of one block.

use undercroft_vfs::{Error, Extent, Mapping, Result, WriteKind};

use super::{Live, block_bits, finish_write, map, prepare_write, size};

/// The largest block.
const BLOCK_MAX_BYTES: usize = 1 << 16;

/// Clears bytes that lie within one block, if they lie anywhere. Of a block that other files have too the file gets a
/// copy. The inode's state is held exclusively.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace) for a copy; corruption; I/O failure.
pub(super) fn clear(live: &Live, from: u64, to: u64) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    static ZEROES: [u8; BLOCK_MAX_BYTES] = [0; BLOCK_MAX_BYTES];
    live.volume.writer()?.transactions.check()?;
    let Extent { start, mapping, .. } = map(live, from)?;
    match mapping {
        Mapping::Device { offset } => {
            live.volume.device().write_at(offset + (from - start), &ZEROES[..(to - from) as usize])?;
            Ok(())
        }
        Mapping::Shared { offset } => clear_copy(live, offset + (from - start), from, to),
        _ => Ok(()),
    }
}

/// Clears a part of a block that lies at byte `home` of the device, in a copy.
fn clear_copy(live: &Live, home: u64, from: u64, to: u64) -> Result<()> {
    let block = 1 << block_bits(live);
    let head = from % block;
    let extent = prepare_write(live, from, to - from)?;
    let Mapping::Unwritten { offset } = extent.mapping else {
        // The other files have let go of it meanwhile.
        return clear(live, from, to);
    };
    let mut bytes = vec![0; block as usize];
    let written = live.volume.device().read_at(home - head, &mut bytes).and_then(|()| {
        bytes[head as usize..][..(to - from) as usize].fill(0);
        live.volume.device().write_at(offset + (from - head - extent.start), &bytes)
    });
    if let Err(error) = written {
        super::cancel_write(live);
        return Err(Error::from(error));
    }
    finish_write(live, from, to - from, size(live).min(to), WriteKind::Allocating)
}
