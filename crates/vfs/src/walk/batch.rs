//! Some entries of one directory, packed: the names share one buffer.

use std::ops::ControlFlow;

use crate::{DirOffset, Error, FileType, Ino, Node};

/// Entries of one directory without `.` and `..`; its memory serves many directories in turn.
#[derive(Default)]
pub(super) struct Batch {
    names: Vec<u8>,
    entries: Vec<Entry>,
}

/// One entry of a batch.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) ino: Ino,
    /// What the directory says.
    pub(super) kind: Option<FileType>,
    name_len: u16,
    name_start: u32,
}

/// Where reading a directory stopped.
pub(super) struct Stopped {
    /// Where to go on; `None` at the end of the directory and after a failure.
    pub(super) next: Option<DirOffset>,
    pub(super) error: Option<Error>,
}

impl Batch {
    /// Replaces the content by at most `limit` entries of `dir` from `from` on.
    pub(super) fn read(&mut self, dir: &Node, from: DirOffset, limit: usize) -> Stopped {
        self.clear();
        let mut next = from;
        let mut full = false;
        let result = dir.read_dir(from, &mut |entry| {
            next = entry.next;
            if entry.name != b"." && entry.name != b".." {
                self.push(entry.ino, entry.kind, entry.name);
                full = self.entries.len() >= limit;
            }
            if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        Stopped { next: (full && result.is_ok()).then_some(next), error: result.err() }
    }

    /// Adds an entry. A name that is longer than any format has is left out: [`DirEntry`](crate::DirEntry)
    /// excludes it, and a batch's size is limited so that its names fit.
    fn push(&mut self, ino: Ino, kind: Option<FileType>, name: &[u8]) {
        let (Ok(name_start), Ok(name_len)) = (u32::try_from(self.names.len()), u16::try_from(name.len()))
        else {
            return;
        };
        self.names.extend_from_slice(name);
        self.entries.push(Entry { ino, kind, name_len, name_start });
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn name(&self, entry: &Entry) -> &[u8] {
        name_of(&self.names, entry)
    }

    /// Orders the entries by the bytes of their names.
    pub(super) fn sort(&mut self) {
        let names = &self.names;
        self.entries.sort_unstable_by(|a, b| name_of(names, a).cmp(name_of(names, b)));
    }

    /// Keeps the entries at the positions that `keep` lists, in rising order.
    pub(super) fn keep_only(&mut self, keep: &[u32]) {
        for (to, &from) in keep.iter().enumerate() {
            self.entries[to] = self.entries[from as usize];
        }
        self.entries.truncate(keep.len());
    }

    /// Moves the entries from position `at` on into a batch of their own.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let mut tail = Self::default();
        for entry in &self.entries[at..] {
            tail.push(entry.ino, entry.kind, self.name(entry));
        }
        self.entries.truncate(at);
        tail
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
    }
}

fn name_of<'a>(names: &'a [u8], entry: &Entry) -> &'a [u8] {
    &names[entry.name_start as usize..][..usize::from(entry.name_len)]
}
