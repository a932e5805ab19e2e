//! The name cache: each directory's node keeps the names that were looked up in it.
//!
//! A lookup that hits takes the lock of one of the directory's own tables for reading and nothing else; no global lock
//! or table is touched, and the node comes straight from the entry. Threads that look up different names, in one
//! directory or in several, write to no common cache line once they have met a few times (see `tables`). An entry has a
//! weak reference to its node and the inode number: the inode cache decides how long a node lives, and the number stays
//! after the node is dropped. Names that do not exist are kept as well.
//!
//! The bytes of all entries are counted in one relaxed counter, and a little more than them (see `tables`). Above the
//! bound, a clock over the directories that hold names drops the names of those that were not used since it last
//! passed, a directory at a time.
//!
//! Locks: the clock (`name_clock`), then one of a directory's tables (`name_cache`). Neither is held over filesystem
//! I/O. A thread that changes a name holds the name's lock exclusively while it changes the entry; a thread that reads
//! a name from the disk to cache it holds the lock shared. So an entry is never older than the directory.

mod tables;

use std::collections::vec_deque::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use undercroft_sync::{Mutex, order};

use self::tables::{Child, Entry, Tables};
use crate::{HashedName, Ino, Node};

/// What is common to all directories of a mounted filesystem.
pub(crate) struct NameCache {
    bytes: AtomicUsize,
    bound_bytes: usize,
    clock: Mutex<VecDeque<Weak<Node>>>,
}

/// The cached names of one directory.
pub(crate) struct Children {
    tables: Tables,
    /// The directory is in the clock's list.
    in_clock: AtomicBool,
    /// Used since the clock last passed.
    referenced: AtomicBool,
    /// The directory itself.
    dir: Weak<Node>,
    cache: Arc<NameCache>,
}

/// A cached name.
pub(crate) enum Known {
    /// The node it stands for.
    Node(Arc<Node>),
    /// The number it stands for; the node has left memory.
    Ino(Ino),
    /// There is no such name.
    Absent,
}

impl NameCache {
    pub(crate) fn new(bound_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            bound_bytes,
            clock: Mutex::new(&order::NAME_CLOCK, VecDeque::new()),
        })
    }

    /// Runs the clock until the bytes are below the bound. Only one thread does so at a time; the others go on.
    fn shrink(&self) {
        let Some(mut clock) = self.clock.try_lock() else { return };
        let mut dropped = Vec::new();
        let mut steps = 2 * clock.len();
        while steps > 0 && self.bytes.load(Ordering::Relaxed) > self.bound_bytes {
            steps -= 1;
            let Some(entry) = clock.pop_front() else { break };
            // Should this be the node's last handle, its drop locks a shard of the inode cache, which may be
            // taken inside the clock.
            let Some(dir) = entry.upgrade() else { continue };
            let Some(children) = dir.children() else { continue };
            if children.referenced.swap(false, Ordering::Relaxed) {
                clock.push_back(entry);
            } else {
                dropped.push(children.take_all());
            }
        }
        drop(clock);
        drop(dropped);
    }
}

impl Children {
    pub(crate) fn new(dir: Weak<Node>, cache: Arc<NameCache>) -> Self {
        Self {
            tables: Tables::new(),
            in_clock: AtomicBool::new(false),
            referenced: AtomicBool::new(false),
            dir,
            cache,
        }
    }

    /// Whether `name` is known to stand for something.
    pub(crate) fn has(&self, name: &HashedName<'_>) -> bool {
        matches!(self.tables.read(name).find(name), Some(Child::Present { .. }))
    }

    /// The entry of `name`.
    pub(crate) fn get(&self, name: &HashedName<'_>) -> Option<Known> {
        let known = match self.tables.read(name).find(name)? {
            Child::Present { ino, node } => node.upgrade().map_or(Known::Ino(*ino), Known::Node),
            Child::Absent => Known::Absent,
        };
        // After the table's lock: this may be the last handle by now.
        let known = match known {
            Known::Node(node) if node.is_leaving() => Known::Ino(node.ino()),
            known => known,
        };
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
        Some(known)
    }

    /// The cached node of `name`.
    pub(crate) fn node(&self, name: &HashedName<'_>) -> Option<Arc<Node>> {
        match self.get(name)? {
            Known::Node(node) => Some(node),
            Known::Ino(_) | Known::Absent => None,
        }
    }

    /// Caches the node that `name` stands for.
    pub(crate) fn insert(&self, name: &HashedName<'_>, node: &Arc<Node>) {
        self.put(name, Child::Present { ino: node.ino(), node: Arc::downgrade(node) });
    }

    /// Caches that `name` does not exist.
    pub(crate) fn insert_absent(&self, name: &HashedName<'_>) {
        self.put(name, Child::Absent);
    }

    /// Drops the entry of `name`, which is about to change.
    pub(crate) fn remove(&self, name: &HashedName<'_>) {
        let mut table = self.tables.write(name);
        let removed = table.remove(name, &self.cache.bytes);
        drop(table);
        drop(removed);
    }

    fn put(&self, name: &HashedName<'_>, child: Child) {
        let mut table = self.tables.write(name);
        // Counted under the table's lock, as where all are taken out: what is taken out was counted before, so the sum
        // never falls below zero.
        let (replaced, total) = table.put(name, child, &self.cache.bytes);
        drop(table);
        drop(replaced);

        // After the name is there: a thread that takes the directory out of the clock then takes the name as well, or
        // finds the directory back in the clock. A load first, since threads that work in one directory share the
        // line.
        if !self.in_clock.load(Ordering::SeqCst) && !self.in_clock.swap(true, Ordering::SeqCst) {
            self.cache.clock.lock().push_back(Weak::clone(&self.dir));
        }
        if total.is_some_and(|total| total > self.cache.bound_bytes) {
            self.cache.shrink();
        }
    }

    /// Bytes that stay when the names go; the cache counts the names.
    pub(crate) fn lasting_bytes(&self) -> usize {
        self.tables.lasting_bytes()
    }

    /// Takes all names out, to be dropped without the clock's lock. The caller has taken the directory out of
    /// the clock.
    fn take_all(&self) -> Vec<HashTable<Entry>> {
        self.in_clock.store(false, Ordering::SeqCst);
        let mut taken = Vec::new();
        self.tables.for_each(|table| taken.push(table.take_all(&self.cache.bytes)));
        taken
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.tables.for_each(|table| drop(table.take_all(&self.cache.bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::tables::ENTRY_BYTES;
    use super::*;
    use crate::conformance::{Content, Object, Tree};
    use crate::memory_fs::MemoryFs;
    use crate::{Error, InodeFlags, Vfs};

    /// `dirs` directories with `files` files each.
    fn tree(dirs: usize, files: usize) -> Tree {
        let mut tree = Tree::new();
        for dir in 0..dirs {
            tree.add(format!("{dir}"), Object::Directory);
            for file in 0..files {
                tree.add(format!("{dir}/{file}"), Object::File(Content::default()));
            }
        }
        tree
    }

    fn lookups(fs: &MemoryFs) -> u64 {
        fs.calls.lookup.load(Ordering::Relaxed)
    }

    fn dir(vfs: &Vfs, number: usize) -> Arc<Node> {
        vfs.lookup(&vfs.root().unwrap(), number.to_string().as_bytes()).unwrap()
    }

    fn counted_bytes(node: &Node) -> usize {
        node.children().unwrap().cache.bytes.load(Ordering::Relaxed)
    }

    #[test]
    fn a_name_is_looked_up_on_the_disk_once_whether_it_exists_or_not() {
        let (vfs, fs) = MemoryFs::new(&tree(1, 3)).mount(1 << 20, 1 << 20);
        let dir = dir(&vfs, 0);
        let before = lookups(&fs);
        for _ in 0..5 {
            assert!(vfs.lookup(&dir, b"1").is_ok());
            assert!(matches!(vfs.lookup(&dir, b"none"), Err(Error::NotFound)));
            assert_eq!(vfs.lookup(&dir, b"..").unwrap().ino(), fs.ino(""));
        }
        assert_eq!(lookups(&fs) - before, 3);
    }

    #[test]
    fn names_that_cannot_be_are_not_kept() {
        let (vfs, fs) = MemoryFs::new(&tree(1, 0)).mount(1 << 20, 1 << 20);
        let dir = dir(&vfs, 0);
        let before = (counted_bytes(&dir), lookups(&fs));
        for name in [&b""[..], b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(vfs.lookup(&dir, name).is_err());
        }
        assert_eq!((counted_bytes(&dir), lookups(&fs)), before);
    }

    #[test]
    fn a_directory_that_folds_case_keeps_no_missing_names() {
        let mut fs = MemoryFs::new(&tree(1, 0));
        fs.inode_mut("0").attr.flags = InodeFlags::CASEFOLD;
        let (vfs, fs) = fs.mount(1 << 20, 1 << 20);
        let dir = dir(&vfs, 0);
        let before = lookups(&fs);
        for _ in 0..3 {
            assert!(matches!(vfs.lookup(&dir, b"none"), Err(Error::NotFound)));
        }
        assert_eq!(lookups(&fs) - before, 3);
    }

    #[test]
    fn a_name_outlives_its_node() {
        let (vfs, fs) = MemoryFs::new(&tree(1, 3)).mount(0, 1 << 20);
        let dir = dir(&vfs, 0);
        let ino = vfs.lookup(&dir, b"1").unwrap().ino();
        let before = lookups(&fs);
        assert_eq!(vfs.lookup(&dir, b"1").unwrap().ino(), ino);
        assert_eq!(lookups(&fs), before);
    }

    #[test]
    fn names_stay_within_the_bound_and_unused_directories_go_first() {
        let bound = 300 * (ENTRY_BYTES + 2);
        let (vfs, fs) = MemoryFs::new(&tree(100, 10)).mount(1 << 30, bound);
        let root = vfs.root().unwrap();
        for number in 0..100 {
            let one = dir(&vfs, number);
            for file in 0..10 {
                vfs.lookup(&one, file.to_string().as_bytes()).unwrap();
                vfs.lookup(&dir(&vfs, 0), b"0").unwrap();
                assert!(counted_bytes(&root) <= bound + ENTRY_BYTES + 2);
            }
        }
        assert!(counted_bytes(&root) > bound / 2);
        // The first directory was used all the time; the second was not.
        let before = lookups(&fs);
        vfs.lookup(&dir(&vfs, 0), b"0").unwrap();
        assert_eq!(lookups(&fs), before);
        let second = vfs.node(fs.ino("1")).unwrap();
        vfs.lookup(&second, b"0").unwrap();
        assert_eq!(lookups(&fs), before + 1);
    }

    #[test]
    fn a_directory_takes_its_bytes_along() {
        let (vfs, _) = MemoryFs::new(&tree(5, 10)).mount(0, 1 << 30);
        let root = vfs.root().unwrap();
        dir(&vfs, 0);
        let before = counted_bytes(&root);
        let one = dir(&vfs, 0);
        for file in 0..10 {
            vfs.lookup(&one, file.to_string().as_bytes()).unwrap();
        }
        assert_eq!(counted_bytes(&root), before + 10 * (ENTRY_BYTES + 1));
        drop(one);
        assert_eq!(counted_bytes(&root), before);
    }

    /// The inode cache sees it when it measures the node again.
    #[test]
    fn what_a_directory_keeps_for_threads_that_meet_is_counted_with_its_node() {
        let (vfs, _) = MemoryFs::new(&tree(1, 1)).mount(1 << 20, 1 << 20);
        let dir = dir(&vfs, 0);
        vfs.lookup(&dir, b"0").unwrap();
        let (before, children) = (dir.memory_bytes(), dir.children().unwrap());
        assert_eq!(children.lasting_bytes(), 0);
        let reader = children.tables.read(&HashedName::new(b"0"));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..1000).for_each(|_| drop(vfs.lookup(&dir, b"0").unwrap())));
        });
        drop(reader);
        let stripes = dir.memory_bytes() - before;
        assert!(stripes > 0);
        assert_eq!(children.lasting_bytes(), stripes);
        children.tables.distribute_now();
        assert!(dir.memory_bytes() - before > stripes);
        assert_eq!(dir.memory_bytes() - before, children.lasting_bytes());
    }

    /// Names come in on several threads while the clock takes them out; the count of bytes was once taken down
    /// before it was put up, and fell below zero.
    #[test]
    fn names_are_counted_before_they_can_be_dropped() {
        let (vfs, _) = MemoryFs::new(&tree(4, 300)).mount(1 << 20, 8 << 10);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let vfs = &vfs;
                scope.spawn(move || {
                    for round in 0..40 {
                        let dir = dir(vfs, (thread + round) % 4);
                        for file in 0..300 {
                            vfs.lookup(&dir, file.to_string().as_bytes()).unwrap();
                        }
                    }
                });
            }
        });
        let root = vfs.root().unwrap();
        assert!(counted_bytes(&root) < 1 << 20, "{} bytes", counted_bytes(&root));
    }
}
