//! A debug build stops a thread that is about to take locks against the order, and says what, where and why.

#![cfg(all(debug_assertions, not(any(loom, shuttle))))]

use std::panic::{self, AssertUnwindSafe};

use undercroft_sync::{LockClass, Mutex, NameLocks, Rank, RwLock, order};

/// Hashes of names.
const A: u64 = 97;
const B: u64 = 98;

static OUTER: LockClass = LockClass::new("outer", Rank(10));
static INNER: LockClass = LockClass::new("inner", Rank(20));
static TWIN_OF_INNER: LockClass = LockClass::new("twin_of_inner", Rank(20));

/// The message of the panic that `violation` must end in.
fn refusal(violation: impl FnOnce()) -> String {
    let panic = panic::catch_unwind(AssertUnwindSafe(violation)).expect_err("should have been refused");
    *panic.downcast::<String>().expect("a formatted message")
}

#[test]
fn the_order_may_be_kept_and_locks_released_in_any_order() {
    let (outer, inner) = (Mutex::new(&OUTER, ()), RwLock::new(&INNER, ()));
    for _ in 0..2 {
        let first = outer.lock();
        let second = inner.read();
        drop(first);
        drop(second);
        drop(inner.write());
        drop(outer.lock());
    }
}

#[test]
fn a_lower_rank_is_refused_with_both_names_and_places() {
    let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
    let held_line = line!() + 2;
    let message = refusal(|| {
        let _inner = inner.lock();
        let _outer = outer.lock();
    });
    let file = file!();
    let taken = format!("taking `outer` (rank 10) at {file}:{}:", held_line + 1);
    let held = format!("while holding `inner` (rank 20) at {file}:{held_line}:");
    assert!(message.contains(&taken) && message.contains(&held), "{message}");
}

#[test]
fn a_violation_leaves_both_locks_free_and_the_stack_clean() {
    let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
    refusal(|| {
        let _inner = inner.lock();
        let _outer = outer.lock();
    });
    let _outer = outer.lock();
    let _inner = inner.lock();
}

#[test]
fn an_equal_rank_is_refused() {
    let (inner, twin) = (Mutex::new(&INNER, ()), RwLock::new(&TWIN_OF_INNER, ()));
    let message = refusal(|| {
        let _inner = inner.lock();
        let _twin = twin.write();
    });
    assert!(message.contains("`twin_of_inner`") && message.contains("`inner`"), "{message}");
}

#[test]
fn every_held_lock_counts_not_only_the_last_one() {
    let between = LockClass::new("between", Rank(15));
    let between: &'static LockClass = Box::leak(Box::new(between));
    let (outer, inner, between) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()), Mutex::new(between, ()));
    let message = refusal(|| {
        let _inner = inner.lock();
        // Out of order, but without waiting; now the last lock taken has the lowest rank.
        let _outer = outer.try_lock().expect("free");
        let _between = between.lock();
    });
    assert!(message.contains("while holding `inner`"), "{message}");
}

#[test]
fn two_locks_of_one_class_need_rising_subclasses() {
    let locks = [(); 3].map(|()| Mutex::new(&INNER, ()));
    {
        let _zero = locks[0].lock();
        let _one = locks[1].lock_nested(1);
        let _two = locks[2].lock_nested(2);
    }
    let message = refusal(|| {
        let _zero = locks[0].lock();
        let _again = locks[1].lock();
    });
    assert!(message.contains("taking `inner` (rank 20) at"), "{message}");
    let message = refusal(|| {
        let _two = locks[0].lock_nested(2);
        let _one = locks[1].lock_nested(1);
    });
    assert!(message.contains("taking `inner` (rank 20, subclass 1)"), "{message}");
    assert!(message.contains("while holding `inner` (rank 20, subclass 2)"), "{message}");
}

#[test]
fn a_subclass_does_not_excuse_a_lower_rank() {
    let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
    refusal(|| {
        let _inner = inner.lock();
        let _outer = outer.lock_nested(7);
    });
}

#[test]
fn reading_twice_is_refused_because_a_writer_may_come_between() {
    let lock = RwLock::new(&INNER, ());
    refusal(|| {
        let _first = lock.read();
        let _second = lock.read();
    });
    let other = RwLock::new(&INNER, ());
    let _first = lock.read();
    let _second = other.read_nested(1);
    let third = RwLock::new(&INNER, ());
    let _third = third.write_nested(2);
}

#[test]
fn try_lock_may_go_against_the_order_but_binds_what_follows() {
    let (outer, inner) = (Mutex::new(&OUTER, ()), RwLock::new(&INNER, ()));
    {
        let _inner = inner.try_write().expect("free");
        let _outer = outer.try_lock().expect("free");
    }
    {
        let _inner = inner.try_read().expect("free");
        assert!(inner.try_write().is_none());
    }
    // The failed attempt above left nothing on the stack.
    drop(outer.lock());
    let message = refusal(|| {
        let _inner = inner.try_read().expect("free");
        let _outer = outer.lock();
    });
    assert!(message.contains("while holding `inner`"), "{message}");
}

#[test]
fn each_thread_has_its_own_stack() {
    let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
    let _inner = inner.lock();
    std::thread::scope(|scope| scope.spawn(|| drop(outer.lock())).join().expect("allowed there"));
}

#[test]
fn names_have_their_place_and_two_are_taken_in_order_or_without_waiting() {
    let names = NameLocks::new();
    let (rename, inode) = (Mutex::new(&order::RENAME, ()), RwLock::new(&order::INODE, ()));
    {
        let _rename = rename.lock();
        let _names = names.lock_two((1, A), (2, B));
        let _inode = inode.write();
    }
    let message = refusal(|| {
        let _a = names.lock(1, A);
        let _b = names.lock(1, B);
    });
    assert!(message.contains("taking `name`") && message.contains("lock_order.rs"), "{message}");
    refusal(|| {
        let _inode = inode.read();
        let _name = names.lock_shared(1, A);
    });
    // What was refused has not stayed locked.
    drop(names.lock_two((1, A), (1, B)));
    drop(names.try_lock_too(names.lock(1, B), 2, A).expect("it is free"));
}

#[test]
fn a_violation_during_a_panic_does_not_hide_it() {
    struct LocksWhenDropped<'a>(&'a Mutex<()>);
    impl Drop for LocksWhenDropped<'_> {
        fn drop(&mut self) {
            drop(self.0.lock());
        }
    }
    let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
    let message = refusal(|| {
        let _inner = inner.lock();
        let _against_the_order = LocksWhenDropped(&outer);
        panic!("{}", String::from("the first panic"));
    });
    assert_eq!(message, "the first panic");
}
