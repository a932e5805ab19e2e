//! The filesystem's own part in commits and checkpoints.

use undercroft_block::Request;
use undercroft_journal::{Cause, Client, Frozen, WriteBack};
use undercroft_vfs::Result;

use super::{Block, Handle, Seal};
use crate::numbers::FsBlock;
use crate::superblock::{self, ErrorRecord};
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions};

/// Bytes of blocks that are sealed and written at once.
const BATCH_BYTES: usize = 1 << 20;

impl Client for Mounted {
    type Item = Block;

    /// # Panics
    /// For a read-only filesystem; it has no transactions.
    fn transactions(&self) -> &Transactions {
        match self.writer() {
            Ok(writer) => &writer.transactions,
            Err(_) => unreachable!("only a writable filesystem is a client of the journal"),
        }
    }

    fn flush(&self) -> Result<()> {
        Self::flush(self)
    }

    fn cached(&self, home: u64) -> Option<Block> {
        self.buffers().cached(home)
    }

    fn evict(&self, home: u64) {
        self.buffers().forget(home);
    }

    fn prepare_commit(&self, handle: undercroft_journal::Handle<'_, Self>) -> Result<()> {
        self.writer()?.allocator.prepare_commit(&Handle::new(handle))
    }

    /// Lazy times are stored with a timed commit. An error that keeps one from being stored is returned by the next
    /// change of its inode.
    fn prepare_timed_commit(&self) -> bool {
        self.writer().and_then(|writer| writer.lazy_times.store_what_fits()).unwrap_or(true)
    }

    fn write_back(&self, batch: &[WriteBack<'_, Block>]) -> Result<()> {
        let versions =
            batch.iter().map(|write| (write.item.number(), &*write.version.buffer, write.version.seal));
        let Some(last) = self.writer()?.written_back_last.get() else { return write_home(self, versions) };
        let (last, others): (Vec<_>, Vec<_>) = versions.partition(|(home, ..)| *home == last.0);
        write_home(self, others.into_iter())?;
        if !last.is_empty() {
            self.flush()?;
            write_home(self, last.into_iter())?;
        }
        Ok(())
    }

    /// File data has been written before; then come inodes and maps, then directories. So after a crash e2fsck finds no
    /// name of an inode that does not exist.
    fn write_unlogged(&self, items: &[Frozen<Block>]) -> Result<()> {
        self.flush()?;
        let (mut names, mut others): (Vec<_>, Vec<_>) = items
            .iter()
            .map(|frozen| (frozen.item.number(), &*frozen.version.buffer, frozen.version.seal))
            .partition(|(.., seal)| {
                matches!(seal, Seal::DirectoryLeaf(_) | Seal::DirectoryIndex(_) | Seal::Superblock)
            });
        for blocks in [&mut others, &mut names] {
            blocks.sort_unstable_by_key(|(home, ..)| *home);
            write_home(self, blocks.drain(..))?;
            self.flush()?;
        }
        Ok(())
    }

    fn mark_clean(&self) -> Result<()> {
        let writer = self.writer()?;
        superblock::mark_clean(&**self.device(), writer.orphans.file_is_empty(), writer.found_clean)
    }

    fn record_abort(&self, cause: &Cause) {
        let _ = superblock::mark_failed(&**self.device_below(), &ErrorRecord::of(cause));
    }
}

/// Seals blocks, in the order of their homes, and writes them there; neighbours together.
fn write_home<'a>(volume: &Volume, blocks: impl Iterator<Item = (u64, &'a [u8], Seal)>) -> Result<()> {
    let mut bytes = Vec::new();
    // First and number of blocks that lie behind one another.
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for (home, buffer, seal) in blocks {
        let begin = bytes.len();
        bytes.extend_from_slice(buffer);
        seal.apply(volume, FsBlock(home), &mut bytes[begin..]);
        match runs.last_mut() {
            Some((first, count)) if *first + *count as u64 == home => *count += 1,
            _ => runs.push((home, 1)),
        }
        if bytes.len() >= BATCH_BYTES {
            write_runs(volume, &bytes, &runs)?;
            bytes.clear();
            runs.clear();
        }
    }
    write_runs(volume, &bytes, &runs)
}

/// Writes bytes to where their parts belong: a first block and a number of blocks for each.
fn write_runs(volume: &Volume, bytes: &[u8], runs: &[(u64, usize)]) -> Result<()> {
    let block_bytes = volume.block_bytes() as usize;
    let mut requests = Vec::with_capacity(runs.len());
    let mut rest = bytes;
    for &(first, count) in runs {
        let (data, after) = rest.split_at(count * block_bytes);
        requests.push(Request::Write { offset: first * block_bytes as u64, data });
        rest = after;
    }
    Ok(volume.device().run_batch(&mut requests)?)
}
