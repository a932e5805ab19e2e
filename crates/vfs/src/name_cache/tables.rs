//! The cached names of one directory: one table, or several once threads contend for it.
//!
//! Most directories have one table. Where several threads look names up in one directory, the cache line of its lock
//! would move between processors with each look-up, whichever names they are; every absolute path begins in the root's
//! table. So the table's lock counts its readers in stripes once they have met often enough, and then look-ups write to no
//! cache line that they share. Where several threads change names in one directory, the lines of the lock and of the
//! entries would move. So once writers have contended often enough, the names are distributed by their hashes to parts
//! with a lock each. A directory that has parts keeps them. Their locks have no stripes: each change would close them, which
//! made changes of names by two threads slower by a tenth to a third.
//!
//! Locks: one of class `name_cache` at a time. The parts appear while the first table is locked for writing, so a writer that
//! holds that lock and finds none may rely on it. A reader that finds none may come to the first table when the names have
//! left it, and misses its name: that is allowed, as a name may be evicted at any time.
//!
//! The bytes of a table are added to the cache's one counter and subtracted in batches, so that names that come and go
//! do not write to it each time.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{OnceLock, Weak};

use hashbrown::{HashTable, hash_table};
use undercroft_sync::{
    RwLock, RwLockReadGuard, RwLockWriteGuard, StripedReadGuard, StripedRwLock, StripedWriteGuard, order,
};

use crate::cached_inode::CachedInode;
use crate::owned_name::OwnedName;
use crate::{HashedName, Ino, Node};

/// More than threads that often work in one directory.
const PARTS: usize = 16;
/// How often writers contend before a directory's names are distributed. Small in the model checker.
const CONTENTIONS_MAX: u32 = if cfg!(shuttle) { 3 } else { 64 };
/// Bytes that a table keeps counted for names to come.
const SPARE_BYTES: usize = 4096;

pub(super) struct Tables {
    first: StripedRwLock<Table>,
    /// How often a writer found the first table locked. An update may be lost; the count need not be exact.
    contentions: AtomicU32,
    parts: OnceLock<Box<[Part; PARTS]>>,
}

/// Padded to its own cache lines.
#[repr(align(128))]
struct Part(RwLock<Table>);

/// A table to be read.
pub(super) enum Reading<'a> {
    First(StripedReadGuard<'a, Table>),
    Part(RwLockReadGuard<'a, Table>),
}

/// A table to be changed.
pub(super) enum Changing<'a> {
    First(StripedWriteGuard<'a, Table>),
    Part(RwLockWriteGuard<'a, Table>),
}

#[derive(Default)]
pub(super) struct Table {
    names: HashTable<Entry>,
    /// What the names take.
    bytes: usize,
    /// What the cache's counter has of it: at least that, and at most [`SPARE_BYTES`] more.
    counted: usize,
}

/// A name and what it stands for.
pub(super) struct Entry {
    hash: u64,
    name: OwnedName,
    child: Child,
}

/// What a name stands for.
pub(super) enum Child {
    Present { ino: Ino, node: Weak<Node> },
    Absent,
}

/// What an entry costs beside its name: the table's slot and, in the worst case, the memory of a dead node
/// that its weak handle holds.
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>() + 32 + size_of::<Node<CachedInode>>();

fn entry_bytes(name: &[u8]) -> usize {
    name.len() + ENTRY_BYTES
}

impl Tables {
    pub(super) fn new() -> Self {
        Self {
            first: StripedRwLock::new(&order::NAME_CACHE, Table::default()),
            contentions: AtomicU32::new(0),
            parts: OnceLock::new(),
        }
    }

    /// The table that has `name`, to be read.
    pub(super) fn read(&self, name: &HashedName<'_>) -> Reading<'_> {
        match self.part(name) {
            Some(part) => Reading::Part(part.read()),
            None => Reading::First(self.first.read()),
        }
    }

    /// The table that has `name`, to be changed.
    pub(super) fn write(&self, name: &HashedName<'_>) -> Changing<'_> {
        loop {
            if let Some(part) = self.part(name) {
                return Changing::Part(part.write());
            }
            let meets = self.first.is_locked();
            let mut first = self.first.write();
            if self.parts.get().is_none() {
                if !(meets && self.count_contention()) {
                    return Changing::First(first);
                }
                self.distribute(&mut first);
            }
        }
    }

    /// Calls `each` with all tables, one after the other.
    pub(super) fn for_each(&self, mut each: impl FnMut(&mut Table)) {
        each(&mut self.first.write());
        // Checked afterwards: names that have left the first table are in the parts.
        for part in self.parts.get().into_iter().flat_map(|parts| parts.iter()) {
            each(&mut part.0.write());
        }
    }

    /// Bytes of the parts and of the first lock's stripes, which stay when the names go.
    pub(super) fn lasting_bytes(&self) -> usize {
        self.first.stripes_bytes() + self.parts.get().map_or(0, |parts| size_of_val(&**parts))
    }

    /// Counts a contended lock, and returns whether the limit is reached.
    fn count_contention(&self) -> bool {
        let contentions = self.contentions.load(Ordering::Relaxed) + 1;
        self.contentions.store(contentions, Ordering::Relaxed);
        contentions >= CONTENTIONS_MAX
    }

    #[cold]
    fn distribute(&self, first: &mut Table) {
        let mut tables: [Table; PARTS] = std::array::from_fn(|_| Table::default());
        for entry in mem::take(&mut first.names) {
            let bytes = entry_bytes(&entry.name);
            let table = &mut tables[part_of(entry.hash)];
            table.bytes += bytes;
            table.counted += bytes;
            table.names.insert_unique(entry.hash, entry, |entry| entry.hash);
        }
        // Bytes that are counted in advance stay with one of the parts.
        tables[0].counted += mem::take(&mut first.counted) - mem::take(&mut first.bytes);
        let parts = tables.map(|table| Part(RwLock::new(&order::NAME_CACHE, table)));
        // Set under the lock of the first table only.
        let _ = self.parts.set(Box::new(parts));
    }

    /// The part that `name` belongs to, if there are parts.
    fn part(&self, name: &HashedName<'_>) -> Option<&RwLock<Table>> {
        self.parts.get().map(|parts| &parts[part_of(name.hash())].0)
    }
}

impl Deref for Reading<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        match self {
            Self::First(table) => table,
            Self::Part(table) => table,
        }
    }
}

impl Deref for Changing<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        match self {
            Self::First(table) => table,
            Self::Part(table) => table,
        }
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        match self {
            Self::First(table) => table,
            Self::Part(table) => table,
        }
    }
}

impl Table {
    /// What is known of `name`.
    pub(super) fn find(&self, name: &HashedName<'_>) -> Option<&Child> {
        self.names.find(name.hash(), |entry| entry.is(name)).map(|entry| &entry.child)
    }

    /// Caches what `name` stands for. Returns the old entry, and the new value of the cache's counter; `None` if that
    /// has not changed.
    pub(super) fn put(
        &mut self,
        name: &HashedName<'_>,
        child: Child,
        counter: &AtomicUsize,
    ) -> (Option<Child>, Option<usize>) {
        match self.names.entry(name.hash(), |entry| entry.is(name), |entry| entry.hash) {
            hash_table::Entry::Occupied(mut there) => {
                (Some(mem::replace(&mut there.get_mut().child, child)), None)
            }
            hash_table::Entry::Vacant(room) => {
                room.insert(Entry { hash: name.hash(), name: name.bytes().into(), child });
                (None, self.add(entry_bytes(name), counter))
            }
        }
    }

    /// Takes `name` out.
    pub(super) fn remove(&mut self, name: &HashedName<'_>, counter: &AtomicUsize) -> Option<Entry> {
        let there = self.names.find_entry(name.hash(), |entry| entry.is(name)).ok()?;
        let (removed, _) = there.remove();
        self.subtract(entry_bytes(name), counter);
        Some(removed)
    }

    /// Counts a new name. Returns the new value of the cache's counter; `None` if it has not changed.
    fn add(&mut self, bytes: usize, counter: &AtomicUsize) -> Option<usize> {
        self.bytes += bytes;
        if self.bytes <= self.counted {
            return None;
        }
        let more = self.bytes - self.counted;
        self.counted = self.bytes;
        Some(counter.fetch_add(more, Ordering::Relaxed) + more)
    }

    /// Counts a removed name.
    fn subtract(&mut self, bytes: usize, counter: &AtomicUsize) {
        self.bytes -= bytes;
        if self.counted - self.bytes > SPARE_BYTES {
            counter.fetch_sub(self.counted - self.bytes, Ordering::Relaxed);
            self.counted = self.bytes;
        }
    }

    /// Takes all names out.
    pub(super) fn take_all(&mut self, counter: &AtomicUsize) -> HashTable<Entry> {
        counter.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = 0;
        self.bytes = 0;
        mem::take(&mut self.names)
    }
}

impl Entry {
    fn is(&self, name: &HashedName<'_>) -> bool {
        self.hash == name.hash() && *self.name == **name
    }
}

fn part_of(hash: u64) -> usize {
    // A table takes its bucket from the low bits and a tag from the top seven.
    (hash >> 40) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tables {
        /// Makes the parts without waiting for writers to meet.
        pub(in super::super) fn distribute_now(&self) {
            self.distribute(&mut self.first.write());
        }
    }

    fn names(tables: &Tables) -> usize {
        let mut count = 0;
        tables.for_each(|table| count += table.names.len());
        count
    }

    fn put(tables: &Tables, counter: &AtomicUsize, name: &[u8]) {
        let name = HashedName::new(name);
        tables.write(&name).put(&name, Child::Absent, counter);
    }

    fn has(tables: &Tables, name: &[u8]) -> bool {
        let name = HashedName::new(name);
        tables.read(&name).find(&name).is_some()
    }

    #[test]
    fn names_stay_findable_and_counted_while_they_are_dealt_out() {
        let (tables, counter) = (Tables::new(), AtomicUsize::new(0));
        let name = |number: usize| number.to_string().into_bytes();
        (0..500).for_each(|number| put(&tables, &counter, &name(number)));
        let before = counter.load(Ordering::Relaxed);
        tables.contentions.store(CONTENTIONS_MAX - 1, Ordering::Relaxed);
        assert!(tables.count_contention());
        tables.distribute_now();
        assert_eq!(counter.load(Ordering::Relaxed), before);
        assert!((0..500).all(|number| has(&tables, &name(number))));
        assert_eq!(names(&tables), 500);
        (500..600).for_each(|number| put(&tables, &counter, &name(number)));
        assert_eq!(names(&tables), 600);
        tables.for_each(|table| drop(table.take_all(&counter)));
        assert_eq!((names(&tables), counter.into_inner()), (0, 0));
    }

    #[test]
    fn names_come_and_go_while_readers_are_in_stripes() {
        let (tables, counter) = (Tables::new(), AtomicUsize::new(0));
        let name = |number: usize| number.to_string().into_bytes();
        put(&tables, &counter, b"stays");
        for round in 0..3 {
            let reader = tables.read(&HashedName::new(b"stays"));
            std::thread::scope(|scope| {
                scope.spawn(|| assert!((0..1000).all(|_| has(&tables, b"stays"))));
            });
            drop(reader);
            assert!(tables.first.stripes_bytes() > 0);
            std::thread::scope(|scope| {
                scope.spawn(|| assert!((0..5000).all(|_| has(&tables, b"stays"))));
                (0..100).for_each(|number| put(&tables, &counter, &name(100 * round + number)));
            });
        }
        assert_eq!(names(&tables), 301);
    }

    #[test]
    fn what_is_known_of_a_name_is_replaced_and_counted_once() {
        let (tables, counter) = (Tables::new(), AtomicUsize::new(0));
        put(&tables, &counter, b"name");
        let counted = counter.load(Ordering::Relaxed);
        let name = HashedName::new(b"name");
        let (before, total) = tables.write(&name).put(&name, Child::Absent, &counter);
        assert!(matches!(before, Some(Child::Absent)) && total.is_none());
        assert_eq!((names(&tables), counter.load(Ordering::Relaxed)), (1, counted));
    }

    #[test]
    fn names_that_come_and_go_do_not_change_the_counter() {
        let (tables, counter) = (Tables::new(), AtomicUsize::new(0));
        put(&tables, &counter, b"stays");
        put(&tables, &counter, b"goes");
        let most = counter.load(Ordering::Relaxed);
        let goes = HashedName::new(b"goes");
        for _ in 0..10 {
            let mut table = tables.write(&goes);
            assert!(table.remove(&goes, &counter).is_some());
            assert_eq!(counter.load(Ordering::Relaxed), most);
            assert_eq!(table.put(&goes, Child::Absent, &counter).1, None);
        }
        assert!(!has(&tables, b"gone"));
    }
}
