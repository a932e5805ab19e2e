//! Filling a filesystem: a thread reads the sources, the calling thread writes.
//!
//! What is read travels in batches. Entries and pieces of content are in the order of the source, and where a batch ends
//! depends on nothing but what the sources say, so the same sources are written in the same way every time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};
use std::thread;

use undercroft_vfs::Vfs;

use crate::{Entry, EntryKind, Error, Filled, Source, SourceError, Writer, WriterOptions};

/// Bytes of content in a batch.
const BATCH_BYTES: usize = 1 << 20;
/// Entries and pieces in a batch.
const BATCH_ITEMS: usize = 512;
/// Batches that are read and not written yet.
const BATCHES_AHEAD: usize = 4;

/// How a filesystem is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillOptions {
    /// How entries are put.
    pub writer: WriterOptions,
    /// Reading and writing on one thread, one after the other.
    pub single_thread: bool,
}

/// What was read, in order.
enum Item {
    Entry(Entry),
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
/// The first failure of a source or of the filesystem; what came before it has been put.
pub fn fill(vfs: &Arc<Vfs>, sources: &mut [Box<dyn Source>], options: &FillOptions) -> Result<Filled, Error> {
    let root = vfs.root().map_err(|error| Error::Filesystem { path: crate::EntryPath::root(), error })?;
    let mut writer = Writer::new(Arc::clone(vfs), root, options.writer);
    if options.single_thread {
        let mut reader = Reader::default();
        while let Some(batch) = reader.next_batch(sources)? {
            reader.spare = Some(write(&mut writer, batch)?);
        }
        return writer.finish();
    }
    thread::scope(|scope| {
        let (full, to_write) = sync_channel(BATCHES_AHEAD);
        let (written, empty) = channel();
        scope.spawn(move || read_all(sources, &full, &empty));
        loop {
            match to_write.recv() {
                Ok(Ok(Some(batch))) => {
                    let batch = write(&mut writer, batch)?;
                    // The reader may have ended.
                    let _ = written.send(batch);
                }
                Ok(Ok(None)) => return writer.finish(),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Err(Error::Reader),
            }
        }
    })
}

type Read = Result<Option<Batch>, SourceError>;

/// Reads until the end, an error, or until nothing is written any more.
fn read_all(sources: &mut [Box<dyn Source>], full: &SyncSender<Read>, empty: &Receiver<Batch>) {
    let mut reader = Reader::default();
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
        while let Some(source) = sources.get_mut(self.at) {
            if batch.items.len() >= BATCH_ITEMS || used == BATCH_BYTES {
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
                    self.in_content =
                        matches!(&entry.kind, EntryKind::Regular(content) if content.size_bytes > 0);
                    batch.items.push(Item::Entry(entry));
                }
                None => self.at += 1,
            }
        }
        Ok((!batch.items.is_empty()).then_some(batch))
    }
}

/// Writes a batch, and gives it back.
fn write(writer: &mut Writer, mut batch: Batch) -> Result<Batch, Error> {
    let mut used = 0;
    for item in batch.items.drain(..) {
        match item {
            Item::Entry(entry) => writer.put(entry)?,
            Item::Data { offset, len } => {
                let data = batch.bytes.get(used..used + len).ok_or(Error::Reader)?;
                writer.write(offset, data)?;
                used += len;
            }
        }
    }
    Ok(batch)
}
