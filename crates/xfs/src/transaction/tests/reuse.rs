//! Blocks that stop being metadata and are metadata again before that is durable, as the trees of free space have it with
//! the blocks of the free list.

use std::time::Duration;

use undercroft_block::testing::{Latency, Slow};

use super::*;

#[test]
fn a_block_is_metadata_again_while_the_transaction_that_cancelled_it_is_committed() {
    let memory = in_memory(&image(16, ""));
    let slow = Latency { read: Duration::ZERO, ..Latency::of_all(Duration::from_millis(40)) };
    let open = Open::new(Arc::new(Slow::new(Arc::clone(&memory), slow))).unwrap();
    let transaction = |change: &dyn Fn(&Handle<'_>)| {
        let handle = open.volume.start(4).unwrap();
        change(&handle);
        handle.tid()
    };
    open.commit(transaction(&|handle| open.make(handle, 0, 1)));
    let cancelling = transaction(&|handle| {
        handle.forget(open.block(0));
        open.make(handle, 1, 1);
    });
    let reusing = std::thread::scope(|scope| {
        scope.spawn(|| open.commit(cancelling));
        while open.transactions().running() == cancelling {
            std::thread::yield_now();
        }
        let reusing = transaction(&|handle| open.make(handle, 0, 2));
        assert_eq!(reusing, cancelling.next());
        assert!(!open.transactions().is_durable(cancelling), "the test is too slow");
        reusing
    });
    assert!(open.transactions().is_durable(cancelling));
    let shown = open.volume.read_block(open.block(0)).unwrap();
    assert!(shown[CONTENT..] == content(&open.volume, 0, 2), "the block left the cache");
    open.commit(reusing);

    let crashed: Device = Arc::new(MemoryDevice::from_bytes(bytes_of(&memory), Access::ReadWrite));
    Open::new(Arc::clone(&crashed)).unwrap();
    assert!(open.has(&crashed, 0, 2));
    open.service.close().unwrap();
    assert!(open.has(&memory, 0, 2) && open.has(&memory, 1, 1));
}

#[test]
fn a_block_is_metadata_again_in_the_transaction_that_cancelled_it() {
    let memory = in_memory(&image(16, ""));
    let open = Open::new(Arc::clone(&memory)).unwrap();
    for version in [1, 2] {
        let handle = open.volume.start(4).unwrap();
        if version == 2 {
            handle.forget(open.block(0));
        }
        open.make(&handle, 0, version);
        let tid = handle.tid();
        drop(handle);
        open.commit(tid);
    }
    let crashed: Device = Arc::new(MemoryDevice::from_bytes(bytes_of(&memory), Access::ReadWrite));
    let again = Open::new(Arc::clone(&crashed)).unwrap();
    assert_eq!(again.recovery.as_ref().unwrap().freed, 0);
    assert!(open.has(&crashed, 0, 2));
    open.service.close().unwrap();
    assert!(open.has(&memory, 0, 2));
}
