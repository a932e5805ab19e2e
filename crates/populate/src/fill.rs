//! Filling a filesystem: a thread reads the sources, the calling thread writes.
//!
//! What is read travels in batches. Entries and pieces of content are in the order of the source, and where a batch ends
//! depends on nothing but what the sources say, so the same sources are written in the same way every time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};
use std::thread;

use undercroft_vfs::Vfs;

use crate::source::GRID_BYTES;
use crate::{Entry, EntryKind, Error, Filled, Source, SourceError, Writer, WriterOptions};

/// Bytes of content in a batch; and of what entries hold beside it, before the last of them.
const BATCH_BYTES: usize = 1 << 20;
/// Entries and pieces in a batch.
const BATCH_ITEMS: usize = 512;
/// Batches that are read and not written yet.
const BATCHES_AHEAD: usize = 4;

/// How a filesystem is filled.
#[derive(Clone, Debug, Default)]
pub struct FillOptions {
    /// How entries are put.
    pub writer: WriterOptions,
    /// Reading and writing on one thread, one after the other.
    pub single_thread: bool,
    /// Content is not read, and space is allocated for it only: to learn how much all of it takes.
    pub only_space: bool,
}

/// What was read, in order.
enum Item {
    Entry(Entry),
    /// The entries that follow are the next source's.
    NextSource,
    /// So many bytes of the batch, from this byte of the file on.
    Data {
        offset: u64,
        len: usize,
    },
}

/// Items, with the bytes of their content one after the other.
#[derive(Default)]
struct Batch {
    items: Vec<Item>,
    bytes: Vec<u8>,
}

/// Fills a filesystem from its root down with what the sources give, one source after the other.
///
/// # Errors
/// The first failure of a source or of the filesystem; what came before it has been put, and the last file may be cut
/// short.
pub fn fill(vfs: &Arc<Vfs>, sources: &mut [Box<dyn Source>], options: &FillOptions) -> Result<Filled, Error> {
    let root = vfs.root().map_err(|error| Error::filesystem(crate::EntryPath::root(), error))?;
    let how = WriterOptions { only_space: options.only_space, ..options.writer.clone() };
    let names = sources.iter().map(|source| source.name().to_owned());
    let mut filling = Filling {
        writer: Writer::new(Arc::clone(vfs), root, how),
        names: names.collect(),
        at: 0,
        only_space: options.only_space,
    };
    let written =
        if options.single_thread { filling.on_one_thread(sources) } else { filling.on_two_threads(sources) };
    match written {
        // What is put at the end is of any of them.
        Ok(()) => filling.writer.finish().map_err(|error| match &filling.names[..] {
            [only] => error.of_source(only),
            _ => error,
        }),
        Err(error) => {
            filling.writer.give_up();
            Err(error)
        }
    }
}

/// A filesystem that is being filled.
struct Filling {
    writer: Writer,
    /// The names of the sources.
    names: Vec<String>,
    /// Of which source the entries are that are written.
    at: usize,
    /// The content of files is not read; see [`FillOptions`].
    only_space: bool,
}

impl Filling {
    fn on_one_thread(&mut self, sources: &mut [Box<dyn Source>]) -> Result<(), Error> {
        let mut reader = Reader { only_space: self.only_space, ..Reader::default() };
        while let Some(batch) = reader.next_batch(sources)? {
            reader.spare = Some(self.write(batch)?);
        }
        Ok(())
    }

    fn on_two_threads(&mut self, sources: &mut [Box<dyn Source>]) -> Result<(), Error> {
        thread::scope(|scope| {
            let (full, to_write) = sync_channel(BATCHES_AHEAD);
            let (written, empty) = channel();
            let only_space = self.only_space;
            scope.spawn(move || read_all(sources, only_space, &full, &empty));
            loop {
                match to_write.recv() {
                    Ok(Ok(Some(batch))) => {
                        let batch = self.write(batch)?;
                        // The reader may have ended.
                        let _ = written.send(batch);
                    }
                    Ok(Ok(None)) => return Ok(()),
                    Ok(Err(error)) => return Err(error.into()),
                    Err(_) => return Err(Error::Reader),
                }
            }
        })
    }

    /// Writes a batch, and gives it back.
    fn write(&mut self, batch: Batch) -> Result<Batch, Error> {
        self.write_items(batch).map_err(|error| match self.names.get(self.at) {
            Some(name) => error.of_source(name),
            None => error,
        })
    }

    fn write_items(&mut self, mut batch: Batch) -> Result<Batch, Error> {
        let mut used = 0;
        for item in batch.items.drain(..) {
            match item {
                Item::Entry(entry) => self.writer.put(entry)?,
                Item::NextSource => {
                    self.writer.next_source()?;
                    self.at += 1;
                }
                Item::Data { offset, len } => {
                    let data = batch.bytes.get(used..used + len).ok_or(Error::Reader)?;
                    self.writer.write(offset, data)?;
                    used += len;
                }
            }
        }
        Ok(batch)
    }
}

type Read = Result<Option<Batch>, SourceError>;

/// Reads until the end, an error, or until nothing is written any more.
fn read_all(
    sources: &mut [Box<dyn Source>],
    only_space: bool,
    full: &SyncSender<Read>,
    empty: &Receiver<Batch>,
) {
    let mut reader = Reader { only_space, ..Reader::default() };
    loop {
        if reader.spare.is_none() {
            match empty.try_recv() {
                Ok(batch) => reader.spare = Some(batch),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            }
        }
        let read = reader.next_batch(sources);
        let is_last = !matches!(read, Ok(Some(_)));
        if full.send(read).is_err() || is_last {
            return;
        }
    }
}

/// Where reading is.
#[derive(Default)]
struct Reader {
    /// Which source.
    at: usize,
    /// Whether the content of the last entry is being read.
    in_content: bool,
    /// Content is not read.
    only_space: bool,
    /// A batch that was written, to be filled again.
    spare: Option<Batch>,
}

impl Reader {
    /// The next batch; `None` behind the last.
    fn next_batch(&mut self, sources: &mut [Box<dyn Source>]) -> Read {
        let mut batch = self.spare.take().unwrap_or_default();
        batch.items.clear();
        batch.bytes.resize(BATCH_BYTES, 0);
        let mut used = 0;
        let mut held = 0;
        while let Some(source) = sources.get_mut(self.at) {
            // A piece that is cut ends on the grid if there is room up to there.
            let is_full = BATCH_BYTES - used < GRID_BYTES || held >= BATCH_BYTES;
            if batch.items.len() >= BATCH_ITEMS || is_full {
                break;
            }
            if self.in_content {
                match source.read_content(&mut batch.bytes[used..])? {
                    Some(piece) => {
                        batch.items.push(Item::Data { offset: piece.offset, len: piece.len });
                        used += piece.len;
                    }
                    None => self.in_content = false,
                }
                continue;
            }
            match source.next_entry()? {
                Some(entry) => {
                    self.in_content = !self.only_space
                        && matches!(&entry.kind, EntryKind::Regular(content) if content.size_bytes > 0);
                    // What a batch without content stands for is bounded too: a filesystem that is full is noticed soon.
                    if let (true, EntryKind::Regular(content)) = (self.only_space, &entry.kind) {
                        let bytes = usize::try_from(content.size_bytes).unwrap_or(usize::MAX);
                        held = usize::saturating_add(held, bytes);
                    }
                    held = held.saturating_add(entry.held_bytes());
                    batch.items.push(Item::Entry(entry));
                }
                None => {
                    self.at += 1;
                    batch.items.push(Item::NextSource);
                }
            }
        }
        Ok((!batch.items.is_empty()).then_some(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Given, entry, file, xattr};

    #[test]
    fn batches_are_bounded_by_what_entries_hold() {
        let given = (0..40).fold(Given::default(), |given, number| {
            let mut entry = file(&number.to_string(), 0);
            entry.metadata.xattrs = vec![xattr("user.large", &vec![0; 300_000])];
            given.with(entry, &[])
        });
        let given = given.with(entry("l", EntryKind::Symlink(vec![b'x'; 2 << 20].into())), &[]);
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(given)];
        let mut reader = Reader::default();
        let mut entries = 0;
        while let Some(batch) = reader.next_batch(&mut sources).unwrap() {
            let held = batch.items.iter().map(|item| match item {
                Item::Entry(entry) => entry.held_bytes(),
                _ => 0,
            });
            let held: Vec<_> = held.collect();
            let before_last: usize = held.iter().rev().skip(1).sum();
            assert!(before_last < BATCH_BYTES, "{held:?}");
            entries += held.iter().filter(|&&held| held > 0).count();
        }
        assert_eq!(entries, 41);
    }
}
