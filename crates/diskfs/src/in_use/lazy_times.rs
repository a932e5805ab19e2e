//! Times that are newer in memory than on the disk.
//!
//! A write over what is there changes nothing but times, and starts no handle for them. They reach the disk with the
//! next change of the inode, with a sync, when its last user goes, and with the next timed commit: an inode with late
//! times is listed, so that it is found then.
//!
//! A thread that stores lazy times may hold an inode longer than the inode cache does, and the inode may be reloaded
//! meanwhile. So a thread stores times only while it holds the fields and the inode has not been released; the release
//! takes the fields exclusively, which waits for a store that is under way, and stores what is still late itself. Times
//! count as late until they are stored: an inode whose store fails stays in its list.
//!
//! An entry that is being stored is on no list, so one thread stores at a time: a sync waits until what another thread
//! took from a list is stored, and may then say that all is durable that was late when it began.
//!
//! Locks: `lazy_times_store`, held by that thread; one of class `lazy_times` for each list, without which entries are stored.
//! The inode's fields, shared, for a store, under a handle; exclusive for a release.

use std::sync::Weak;

use undercroft_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undercroft_sync::{Mutex, RwLock, order};
use undercroft_vfs::Result;

use super::InUse;

/// More than threads that a machine runs at once.
const LISTS: usize = 16;

/// Inodes whose times are late.
#[derive(Debug)]
pub struct LazyTimes {
    lists: [Mutex<Vec<Weak<dyn InUse>>>; LISTS],
    next: AtomicUsize,
    storing: Mutex<()>,
}

/// Whether an inode's times are late, and whether they may still be stored.
#[derive(Debug, Default)]
pub struct LazyTimeState {
    late: AtomicBool,
    released: AtomicBool,
}

impl LazyTimeState {
    /// Notes that the times are stored. Called with the fields that were stored still locked.
    #[inline]
    pub fn clear(&self) {
        // Read first: the line stays shared between threads.
        if self.late.load(Ordering::Relaxed) {
            self.late.store(false, Ordering::Relaxed);
        }
    }

    /// Whether they are late.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Notes that the times are late. `true` for the first caller since they were stored: it lists the inode.
    #[inline]
    #[must_use]
    pub fn set(&self) -> bool {
        !self.is_set() && !self.late.swap(true, Ordering::Relaxed)
    }

    /// Stores the fields under a handle of `start`, if their times are late. Under no handle. `false` if `start` finds no
    /// room.
    ///
    /// # Errors
    /// Those of `start` and `store`; the times are late still.
    pub fn store<F, H>(
        &self,
        fields: &RwLock<F>,
        start: impl FnOnce() -> Result<Option<H>>,
        store: impl FnOnce(&F, &H) -> Result<()>,
    ) -> Result<bool> {
        if !self.is_set() {
            return Ok(true);
        }
        let Some(handle) = start()? else { return Ok(false) };
        let fields = fields.read();
        // The release has stored the times, and the number may have been reused since.
        if self.is_set() && !self.is_released() {
            store(&fields, &handle)?;
            self.clear();
        }
        Ok(true)
    }

    /// The last user of an inode with names is gone: stores times that are late, under a handle of `start`. When this
    /// returns no store through this inode in memory is under way, and none follows.
    ///
    /// # Errors
    /// Those of `start` and `store`.
    pub fn store_and_release<F, H>(
        &self,
        fields: &RwLock<F>,
        start: impl FnOnce() -> Result<H>,
        store: impl FnOnce(&F, &H) -> Result<()>,
    ) -> Result<()> {
        // Nothing makes the times late any more; a store that is under way may still clear that.
        let handle = if self.is_set() { Some(start()?) } else { None };
        let fields = fields.write();
        if let Some(handle) = &handle
            && self.is_set()
        {
            store(&fields, handle)?;
            self.clear();
        }
        self.set_released();
        Ok(())
    }

    /// Whether the inode was released, or deleted with its last name: the state in memory is out of date then.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// The inode is being deleted: nothing stores its times any more.
    pub fn set_released(&self) {
        self.released.store(true, Ordering::Release);
    }

    /// The inode could not be deleted, and stays in use.
    pub fn set_in_use(&self) {
        self.released.store(false, Ordering::Release);
    }
}

impl Default for LazyTimes {
    fn default() -> Self {
        let lists = std::array::from_fn(|_| Mutex::new(&order::LAZY_TIMES, Vec::new()));
        Self { lists, next: AtomicUsize::new(0), storing: Mutex::new(&order::LAZY_TIMES_STORE, ()) }
    }
}

impl LazyTimes {
    /// Stores all of them. Under no handle. If one cannot be stored, the others are stored all the same.
    ///
    /// # Errors
    /// The first failure; what was not stored is late still.
    pub fn store_all(&self) -> Result<()> {
        let _storing = self.storing.lock();
        let mut outcome = Ok(());
        for list in &self.lists {
            let late = std::mem::take(&mut *list.lock());
            for next in late {
                let Some(inode) = next.upgrade() else { continue };
                if let Err(error) = inode.store_lazy_times() {
                    list.lock().push(next);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// Stores as many as the running transaction has room for, and waits for nothing: for the thread that commits.
    /// Returns whether that was all of them. Another thread that stores them already is left to it.
    ///
    /// # Errors
    /// The first failure; what was not stored is late still.
    pub fn store_what_fits(&self) -> Result<bool> {
        let Some(_storing) = self.storing.try_lock() else { return Ok(true) };
        let mut outcome = Ok(true);
        for list in &self.lists {
            let mut late = std::mem::take(&mut *list.lock());
            while let Some(next) = late.pop() {
                let Some(inode) = next.upgrade() else { continue };
                let stored = match inode.store_lazy_times_if_room() {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        late.push(next);
                        list.lock().append(&mut late);
                        return outcome.and(Ok(false));
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = stored {
                    list.lock().push(next);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// Lists an inode whose times have become late.
    pub fn add(&self, inode: Weak<dyn InUse>) {
        let list = self.next.fetch_add(1, Ordering::Relaxed) % LISTS;
        self.lists[list].lock().push(inode);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::thread;

    use undercroft_vfs::Error;

    use super::*;

    /// An inode whose store fails, finds no room or waits while the fields say so.
    struct Times {
        lazy_times: LazyTimeState,
        fails: AtomicBool,
        lacks_room: AtomicBool,
        /// The next store says that it has begun, and waits until it is told to go on.
        pause: Mutex<Option<(Sender<()>, Receiver<()>)>>,
        stores: AtomicUsize,
    }

    impl Default for Times {
        fn default() -> Self {
            Self {
                lazy_times: LazyTimeState::default(),
                fails: AtomicBool::new(false),
                lacks_room: AtomicBool::new(false),
                pause: Mutex::new(&order::INODE_FIELDS, None),
                stores: AtomicUsize::new(0),
            }
        }
    }

    impl Times {
        fn changed(self: &Arc<Self>, lazy_times: &LazyTimes) {
            if self.lazy_times.set() {
                let inode: Weak<Self> = Arc::downgrade(self);
                lazy_times.add(inode);
            }
        }

        fn stores(&self) -> usize {
            self.stores.load(Ordering::Relaxed)
        }
    }

    impl InUse for Times {
        fn store_lazy_times(&self) -> Result<()> {
            if self.fails.load(Ordering::Relaxed) {
                return Err(Error::ReadOnly);
            }
            if let Some((begun, go_on)) = self.pause.lock().take() {
                begun.send(()).unwrap();
                go_on.recv().unwrap();
            }
            self.lazy_times.clear();
            self.stores.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn store_lazy_times_if_room(&self) -> Result<bool> {
            if self.lacks_room.load(Ordering::Relaxed) {
                return Ok(false);
            }
            self.store_lazy_times().map(|()| true)
        }

        fn free_window(&self) -> bool {
            false
        }
    }

    fn late_inodes(lazy_times: &LazyTimes, count: usize) -> Vec<Arc<Times>> {
        let inodes: Vec<Arc<Times>> = (0..count).map(|_| Arc::default()).collect();
        inodes.iter().for_each(|inode| inode.changed(lazy_times));
        inodes
    }

    #[test]
    fn an_inode_is_listed_once_until_its_times_are_stored() {
        let lazy_times = LazyTimes::default();
        let inodes = late_inodes(&lazy_times, 3 * LISTS);
        inodes.iter().for_each(|inode| inode.changed(&lazy_times));
        lazy_times.store_all().unwrap();
        lazy_times.store_all().unwrap();
        assert!(inodes.iter().all(|inode| inode.stores() == 1 && !inode.lazy_times.is_set()));
        inodes[0].changed(&lazy_times);
        assert!(lazy_times.store_what_fits().unwrap());
        assert_eq!((inodes[0].stores(), inodes[1].stores()), (2, 1));
    }

    /// What another thread is storing is not durable when a sync finds the lists empty.
    #[test]
    fn a_sync_waits_for_times_that_another_thread_is_storing() {
        let lazy_times = LazyTimes::default();
        let inodes = late_inodes(&lazy_times, 1);
        let (begun, waits) = mpsc::channel();
        let (go_on, told) = mpsc::channel();
        *inodes[0].pause.lock() = Some((begun, told));
        thread::scope(|scope| {
            scope.spawn(|| lazy_times.store_all().unwrap());
            waits.recv().unwrap();
            assert!(lazy_times.store_what_fits().unwrap());
            assert_eq!(inodes[0].stores(), 0);
            assert!(lazy_times.storing.try_lock().is_none());
            let sync = scope.spawn(|| {
                lazy_times.store_all().unwrap();
                inodes[0].stores()
            });
            go_on.send(()).unwrap();
            assert_eq!(sync.join().unwrap(), 1);
        });
    }

    #[test]
    fn an_inode_whose_store_fails_stays_listed_and_the_others_are_stored() {
        for store in
            [|list: &LazyTimes| list.store_all(), |list: &LazyTimes| list.store_what_fits().map(drop)]
        {
            let lazy_times = LazyTimes::default();
            let inodes = late_inodes(&lazy_times, 2 * LISTS);
            inodes[LISTS].fails.store(true, Ordering::Relaxed);
            store(&lazy_times).unwrap_err();
            let stored = inodes.iter().filter(|inode| inode.stores() == 1).count();
            assert_eq!((stored, inodes[LISTS].lazy_times.is_set()), (2 * LISTS - 1, true));
            inodes[LISTS].fails.store(false, Ordering::Relaxed);
            store(&lazy_times).unwrap();
            assert_eq!(inodes[LISTS].stores(), 1);
        }
    }

    #[test]
    fn what_has_no_room_in_a_transaction_stays_listed() {
        let lazy_times = LazyTimes::default();
        let inodes = late_inodes(&lazy_times, 3 * LISTS);
        inodes[LISTS].lacks_room.store(true, Ordering::Relaxed);
        assert!(!lazy_times.store_what_fits().unwrap());
        assert!(inodes[LISTS].lazy_times.is_set());
        inodes[LISTS].lacks_room.store(false, Ordering::Relaxed);
        assert!(lazy_times.store_what_fits().unwrap());
        assert!(inodes.iter().all(|inode| inode.stores() == 1));
    }

    #[test]
    fn times_are_stored_while_they_are_late_and_not_after_the_release() {
        let (lazy_times, fields) = (LazyTimeState::default(), RwLock::new(&order::INODE_FIELDS, 5_u32));
        let stores = AtomicUsize::new(0);
        let store = |fields: &u32, handle: &u32| {
            assert_eq!((*fields, *handle), (5, 9));
            stores.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let count = || stores.load(Ordering::Relaxed);
        assert!(lazy_times.store(&fields, || -> Result<Option<u32>> { unreachable!() }, store).unwrap());
        assert!(lazy_times.set() && !lazy_times.set());
        assert!(!lazy_times.store(&fields, || Ok(None), store).unwrap());
        lazy_times.store(&fields, || Err::<Option<u32>, _>(Error::ReadOnly), store).unwrap_err();
        lazy_times.store(&fields, || Ok(Some(9)), |_, _| Err(Error::ReadOnly)).unwrap_err();
        assert_eq!((count(), lazy_times.is_set()), (0, true));
        assert!(lazy_times.store(&fields, || Ok(Some(9)), store).unwrap());
        assert_eq!((count(), lazy_times.is_set()), (1, false));

        assert!(lazy_times.set());
        lazy_times.store_and_release(&fields, || Ok(9), store).unwrap();
        assert_eq!((count(), lazy_times.is_set(), lazy_times.is_released()), (2, false, true));
        assert!(lazy_times.set());
        assert!(lazy_times.store(&fields, || Ok(Some(9)), store).unwrap());
        assert_eq!((count(), lazy_times.is_set()), (2, true));
    }

    #[test]
    fn an_inode_that_is_gone_is_passed_over() {
        let lazy_times = LazyTimes::default();
        let mut inodes = late_inodes(&lazy_times, 2);
        inodes.remove(0);
        lazy_times.store_all().unwrap();
        assert_eq!(inodes[0].stores(), 1);
    }
}
