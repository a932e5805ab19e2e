//! The known names of one directory: a table, and several once threads keep meeting at it.
//!
//! Most directories have one table. Where threads change names in one directory side by side, its lock and its entries
//! would go from processor to processor; so once writers have met there often enough its names are dealt out to parts
//! by their hashes, each with a lock of its own. A directory that has parts keeps them.
//!
//! Locks: one of class `name_cache` at a time, and while names are dealt out the parts' with the first one's held. The
//! parts appear while the first table is locked for writing, so who has that lock and finds none may rely on it.
//!
//! The bytes of a table are taken from the cache's one counter, and given back in lumps, so that names that come and go do
//! not touch it each time.

use std::collections::hash_map::HashMap;
use std::hash::BuildHasher;
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use undercroft_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, order};

use super::{Child, entry_bytes};

/// More than threads that often work in one directory.
const PARTS: usize = 16;
/// After how many meetings of writers a directory's names are dealt out. In a model all are meetings, and few.
const MEETINGS: u32 = if cfg!(shuttle) { 3 } else { 64 };
/// Bytes that a table keeps counted for names to come.
const SPARE_BYTES: usize = 4096;

pub(super) struct Tables {
    first: RwLock<Table>,
    /// How often a writer found the first table locked. Lost updates do no harm.
    meetings: AtomicU32,
    parts: OnceLock<Box<[Part; PARTS]>>,
}

/// Alone on its cache lines.
#[repr(align(128))]
struct Part(RwLock<Table>);

#[derive(Default)]
pub(super) struct Table {
    pub(super) names: HashMap<Box<[u8]>, Child>,
    /// What the names take.
    bytes: usize,
    /// What the cache's counter has of it: at least that, and at most [`SPARE_BYTES`] more.
    counted: usize,
}

impl Tables {
    pub(super) fn new() -> Self {
        Self {
            first: RwLock::new(&order::NAME_CACHE, Table::default()),
            meetings: AtomicU32::new(0),
            parts: OnceLock::new(),
        }
    }

    /// The table that has `name`, to be read.
    pub(super) fn read(&self, name: &[u8]) -> RwLockReadGuard<'_, Table> {
        if self.parts.get().is_none() {
            let first = self.first.read();
            if self.parts.get().is_none() {
                return first;
            }
        }
        self.part(name).read()
    }

    /// The table that has `name`, to be changed.
    pub(super) fn write(&self, name: &[u8]) -> RwLockWriteGuard<'_, Table> {
        if self.parts.get().is_none() {
            let meets = self.first.is_locked();
            let mut first = self.first.write();
            if self.parts.get().is_none() {
                if !(meets && self.count_meeting()) {
                    return first;
                }
                self.deal_out(&mut first);
            }
        }
        self.part(name).write()
    }

    /// Calls `each` with all tables, one after the other.
    pub(super) fn for_each(&self, mut each: impl FnMut(&mut Table)) {
        each(&mut self.first.write());
        // Asked afterwards: names that were in the first table and are not, are in the parts.
        for part in self.parts.get().into_iter().flat_map(|parts| parts.iter()) {
            each(&mut part.0.write());
        }
    }

    /// Tells whether it was the last one that is needed.
    fn count_meeting(&self) -> bool {
        let meetings = self.meetings.load(Ordering::Relaxed) + 1;
        self.meetings.store(meetings, Ordering::Relaxed);
        meetings >= MEETINGS
    }

    #[cold]
    fn deal_out(&self, first: &mut Table) {
        let mut tables: [Table; PARTS] = std::array::from_fn(|_| Table::default());
        for (name, child) in mem::take(&mut first.names) {
            let bytes = entry_bytes(&name);
            let table = &mut tables[part_of(&name)];
            table.bytes += bytes;
            table.counted += bytes;
            table.names.insert(name, child);
        }
        // What is counted beside the names goes along with some of them.
        tables[0].counted += mem::take(&mut first.counted) - mem::take(&mut first.bytes);
        let parts = tables.map(|table| Part(RwLock::new(&order::NAME_CACHE, table)));
        // Nobody else sets them: the first table is locked.
        let _ = self.parts.set(Box::new(parts));
    }

    /// Once there are parts.
    fn part(&self, name: &[u8]) -> &RwLock<Table> {
        match self.parts.get() {
            Some(parts) => &parts[part_of(name)].0,
            None => &self.first,
        }
    }
}

impl Table {
    /// A name has come. Tells by how much the cache's counter grows, and to what; `None` if it stays.
    pub(super) fn add(&mut self, bytes: usize, counter: &AtomicUsize) -> Option<usize> {
        self.bytes += bytes;
        if self.bytes <= self.counted {
            return None;
        }
        let more = self.bytes - self.counted;
        self.counted = self.bytes;
        Some(counter.fetch_add(more, Ordering::Relaxed) + more)
    }

    /// A name has gone.
    pub(super) fn subtract(&mut self, bytes: usize, counter: &AtomicUsize) {
        self.bytes -= bytes;
        if self.counted - self.bytes > SPARE_BYTES {
            counter.fetch_sub(self.counted - self.bytes, Ordering::Relaxed);
            self.counted = self.bytes;
        }
    }

    /// Takes all names out.
    pub(super) fn take_all(&mut self, counter: &AtomicUsize) -> HashMap<Box<[u8]>, Child> {
        counter.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = 0;
        self.bytes = 0;
        mem::take(&mut self.names)
    }
}

fn part_of(name: &[u8]) -> usize {
    // Whoever makes all names fall into one part has what a directory without parts has.
    (FixedState::default().hash_one(name) >> 32) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tables: &Tables) -> usize {
        let mut count = 0;
        tables.for_each(|table| count += table.names.len());
        count
    }

    fn put(tables: &Tables, counter: &AtomicUsize, name: &[u8]) {
        let mut table = tables.write(name);
        table.names.insert(name.into(), Child::Absent);
        table.add(entry_bytes(name), counter);
    }

    #[test]
    fn names_stay_findable_and_counted_while_they_are_dealt_out() {
        let (tables, counter) = (Tables::new(), AtomicUsize::new(0));
        let name = |number: usize| number.to_string().into_bytes();
        (0..500).for_each(|number| put(&tables, &counter, &name(number)));
        let before = counter.load(Ordering::Relaxed);
        tables.meetings.store(MEETINGS - 1, Ordering::Relaxed);
        assert!(tables.count_meeting());
        tables.deal_out(&mut tables.first.write());
        assert_eq!(counter.load(Ordering::Relaxed), before);
        assert!((0..500).all(|number| tables.read(&name(number)).names.contains_key(&*name(number))));
        assert_eq!(names(&tables), 500);
        (500..600).for_each(|number| put(&tables, &counter, &name(number)));
        assert_eq!(names(&tables), 600);
        tables.for_each(|table| drop(table.take_all(&counter)));
        assert_eq!((names(&tables), counter.into_inner()), (0, 0));
    }

    #[test]
    fn names_that_come_and_go_leave_the_counter_alone() {
        let (tables, counter) = (Tables::new(), AtomicUsize::new(0));
        put(&tables, &counter, b"stays");
        put(&tables, &counter, b"goes");
        let most = counter.load(Ordering::Relaxed);
        for _ in 0..10 {
            let mut table = tables.write(b"goes");
            table.names.remove(&b"goes"[..]);
            table.subtract(entry_bytes(b"goes"), &counter);
            assert_eq!(counter.load(Ordering::Relaxed), most);
            table.names.insert(b"goes"[..].into(), Child::Absent);
            assert_eq!(table.add(entry_bytes(b"goes"), &counter), None);
        }
    }
}
