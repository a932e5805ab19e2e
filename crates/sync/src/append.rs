//! A list that only grows, read without a lock.
//!
//! The initial items lie in one piece; finding one costs one comparison more than in a slice, and no atomic operation.
//! Appended items lie in segments, each twice as long as the one before. Segments never move, so a reader may hold
//! references into the list while it grows. Readers see an item once [`len`](AppendList::len) counts it.
//!
//! The caller must serialize appends.

use std::ops::Index;
use std::sync::OnceLock;

use crate::primitives::atomic::{AtomicU32, Ordering};

/// Items of the first segment.
const FIRST_SEGMENT: usize = 64;
/// Enough for 2^32 items.
const SEGMENTS: usize = 27;

/// The items of one segment, as far as there are any.
type Segment<T> = Box<[OnceLock<T>]>;

/// The list.
#[derive(Debug)]
pub struct AppendList<T> {
    first: Box<[T]>,
    segments: [OnceLock<Segment<T>>; SEGMENTS],
    len: AtomicU32,
}

impl<T> AppendList<T> {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An item, if there are so many.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            None if index < self.len() => Some(self.appended(index)),
            found => found,
        }
    }

    /// The last item. The list must not be empty.
    #[inline]
    pub fn last(&self) -> &T {
        &self[self.len() - 1]
    }

    /// All items that there are now, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).map(|index| &self[index])
    }

    /// Appends an item. The caller must serialize calls.
    pub fn push(&self, item: T) {
        let len = self.len();
        let (segment, slot) = place(len - self.first.len());
        let items = self.segments[segment]
            .get_or_init(|| (0..FIRST_SEGMENT << segment).map(|_| OnceLock::new()).collect());
        assert!(items[slot].set(item).is_ok(), "two threads append at once");
        self.len.store(len as u32 + 1, Ordering::Release);
    }

    #[cold]
    fn appended(&self, index: usize) -> &T {
        let (segment, slot) = place(index - self.first.len());
        match self.segments[segment].get().and_then(|items| items[slot].get()) {
            Some(item) => item,
            None => panic!("item {index} of {}", self.len()),
        }
    }
}

/// The segment of an appended item, and its place there.
fn place(appended: usize) -> (usize, usize) {
    let segment = (appended / FIRST_SEGMENT + 1).ilog2();
    (segment as usize, appended - FIRST_SEGMENT * ((1 << segment) - 1))
}

impl<T> Index<usize> for AppendList<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.first.get(index) {
            Some(item) => item,
            None => self.appended(index),
        }
    }
}

impl<T> Default for AppendList<T> {
    fn default() -> Self {
        [].into_iter().collect()
    }
}

impl<T> FromIterator<T> for AppendList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let first: Box<[T]> = items.into_iter().collect();
        let len = AtomicU32::new(first.len() as u32);
        Self { first, segments: [const { OnceLock::new() }; SEGMENTS], len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_where_they_were_put_in_all_segments() {
        let list: AppendList<usize> = (0..5).collect();
        let early = &list[3];
        for item in 5..1000 {
            list.push(item);
            assert_eq!((list.len(), *list.last()), (item + 1, item));
        }
        assert!(list.iter().copied().eq(0..1000));
        assert_eq!(*early, 3);
        assert_eq!([0, 63, 64, 191, 192].map(place), [(0, 0), (0, 63), (1, 0), (1, 127), (2, 0)]);
    }

    #[test]
    fn readers_see_every_item_that_the_length_counts() {
        let list: AppendList<usize> = (0..1).collect();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while list.len() < 5000 {
                        let len = list.len();
                        assert_eq!((list[len - 1], list[len / 2]), (len - 1, len / 2));
                    }
                });
            }
            (1..5000).for_each(|item| list.push(item));
        });
    }
}
