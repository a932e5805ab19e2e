//! A directory's names as a concurrent table: what a filesystem in memory keeps its directories in.
//!
//! A trie over a hash of the name that keeps names numbered in a row together (`key.rs`). Branches have eight
//! children; leaves hold up to fourteen entries in slots, and say which are taken. Each leaf has a lock, which only
//! writers take: threads that add, replace or remove a name of that leaf. Readers take no lock at all. An entry stays
//! in its slot for as long as it exists, and a leaf that has been split stays as it was for its current readers, so a
//! reader finds every name that existed all along. What can no longer be found is freed when every possible reader is
//! done (epochs, from crossbeam), entries by the thread that took them out.
//!
//! **Order.** Each entry has a key: 56 bits of the name's hash and 7 bits that tell names of one hash apart. The trie
//! is in the order of the keys, and an entry's key never changes, so a key is a position in the directory that stays
//! valid whatever comes and goes: [`scan`](NameTable::scan) shows what stood all along exactly once.
//!
//! **Contention.** A leaf is split when it is full, and also when writers often wait for its lock, so that two threads
//! that work on a name each in an otherwise empty directory soon write to different cache lines. Rare contention does
//! not split a leaf: otherwise leaves would be made and freed with each name. The only leaf of a table is replaced by
//! up to 512 at once, each made when a name comes to it (`top.rs`). An operation on a leaf with few entries reads and
//! writes one cache line of it; the lines on the path to it hardly ever change, and a caller with other work to do
//! first can [prefetch](NameTable::prefetch) the line meanwhile.
//!
//! The caller excludes concurrent writers of the *same* name (by name locks); writers of different names may run at the
//! same time.
//!
//! **Why it is in the vfs**, though its only user is the tmpfs: it uses the hash of a
//! [`HashedName`](crate::HashedName), stores names as the name cache does (`owned_name`), and `namespace` pins its
//! epoch over an operation. The same hash serves the leaves and the name locks, so a change for one affects the other.
//! Another filesystem that keeps its names in memory would use it, too.
//!
//! Memory: a leaf is 256 bytes; an entry is four words and its value, and its name as well where that is long. A leaf
//! that has become empty is freed, but for the topmost ones, which a directory in use soon needs again: 16 KiB of them
//! at most, 128 KiB where writers met at the only leaf. Branches stay until the table goes.
//!
//! Lock: a leaf's, of the class that the table is given; nothing else is locked while it is held.

mod key;
mod leaf;
mod retired;
mod table;
mod top;

#[cfg(test)]
mod tests;

use crossbeam_epoch::Guard;

pub use table::{InsertError, NameTable};

/// Makes what this thread does with tables cheaper, until dropped: it is counted among the readers once, and not at
/// each call. Nothing that is removed meanwhile is freed, so it is not held over long waits.
pub(crate) fn stay() -> Guard {
    crossbeam_epoch::pin()
}
