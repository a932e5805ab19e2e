//! Devices that fail: what is durable stays, nothing later reaches the disk, and every caller gets the error.

use std::ops::Range;
use std::sync::OnceLock;

use undercroft_block::testing::{FailNth, Left, Repeat};
use undercroft_block::{BlockDevice, Operation};
use undercroft_vfs::{Error, Result};

use super::*;
use crate::superblock::{State, Superblock};

/// Works until something fails; returns the last version that was durable.
fn work_until_failure(open: &Open) -> (u32, Result<()>) {
    for version in 1..=300_u32 {
        let changed = open.volume.start(40).map(|handle| {
            (0..40).for_each(|block| put(&handle, FREE + block, version));
            handle.tid()
        });
        if let Err(error) = changed.and_then(|tid| open.transactions().commit(tid)) {
            return (version - 1, Err(error));
        }
    }
    (300, Ok(()))
}

#[test]
fn after_a_failed_write_or_flush_nothing_is_written_and_every_caller_gets_the_error() {
    let image = image("has_journal");
    for (operation, left) in [
        (Operation::Write, Left::Old),
        (Operation::Write, Left::Torn),
        (Operation::Write, Left::New),
        (Operation::Flush, Left::Old),
    ] {
        for nth in (3..40).step_by(6).chain([200, 900, 1300]) {
            for repeat in [Repeat::Once, Repeat::FromThenOn] {
                let what = format!("{operation} {nth}, {left:?}, {repeat:?}");
                let memory = in_memory(&image);
                let failing =
                    Arc::new(FailNth::new(Arc::clone(&memory), operation, nth, repeat).leaving(left));
                let open = Open::new(failing.clone()).unwrap();
                let (durable, result) = work_until_failure(&open);
                let closed = open.service.close();
                if !failing.has_failed() {
                    assert!(result.is_ok() && closed.is_ok(), "{what}");
                    continue;
                }
                if let Err(error) = &result {
                    assert!(matches!(error, Error::TurnedReadOnly(_)), "{what}: {error}");
                    assert!(open.volume.start(1).is_err(), "{what}");
                }
                assert!(closed.is_err(), "{what}: the failure was forgotten");
                // What was durable is there, and of the rest everything or nothing.
                if Probed::probe(Arc::clone(&memory), OpenOptions::default()).is_err() && left == Left::Torn {
                    // The superblock itself was torn.
                    continue;
                }
                let again = Open::new(Arc::clone(&memory)).unwrap();
                let found = on_device(&memory, FREE);
                let version = (durable..=durable + 1).find(|&version| found == content(FREE, version));
                let version = version.unwrap_or_else(|| {
                    assert!(durable == 0 && found == [0; 1024], "{what}: {durable} were durable");
                    0
                });
                for block in (0..40).filter(|_| version > 0) {
                    assert!(on_device(&memory, FREE + block) == content(FREE + block, version), "{what}");
                }
                again.service.close().unwrap();
                if repeat == Repeat::Once {
                    let superblock = crate::superblock::Superblock::read(&*memory).unwrap();
                    assert!(superblock.state().contains(crate::superblock::State::ERRORS), "{what}");
                    assert_eq!(superblock.error_count(), 1, "{what}");
                }
            }
        }
    }
}

#[test]
fn an_abort_by_an_operation_ends_the_changes() {
    let device = in_memory(&image("has_journal"));
    let open = Open::new(Arc::clone(&device)).unwrap();
    let handle = open.volume.start(1).unwrap();
    put(&handle, FREE, 1);
    let tid = handle.tid();
    open.transactions().abort("half a change");
    open.transactions().abort("a later one");
    drop(handle);
    for refused in [open.transactions().commit(tid), open.volume.start(1).map(drop), open.service.close()] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("half a change"), "{refused}");
    }
    assert!(on_device(&device, FREE) == [0; 1024]);
    assert!(
        open.volume.read_block(FsBlock(FREE)).unwrap()[..] == content(FREE, 1),
        "memory shows what it did"
    );
    let again = Open::new(Arc::clone(&device)).unwrap();
    assert!(on_device(&device, FREE) == [0; 1024]);
    again.service.close().unwrap();
}

/// Shuts its filesystem down at the first write to some of its bytes, or panics.
#[derive(Debug)]
struct ShutsDown {
    base: Device,
    at: Range<u64>,
    panics: bool,
    volume: OnceLock<Arc<Mounted>>,
}

impl BlockDevice for ShutsDown {
    fn name(&self) -> String {
        self.base.name()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        assert!(!self.panics || !self.at.contains(&offset), "the device panics");
        if self.at.contains(&offset)
            && let Some(volume) = self.volume.get()
        {
            volume.writer().unwrap().transactions.shut_down();
        }
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        self.base.flush()
    }
}

#[test]
fn a_panic_in_a_commit_is_recorded_and_memory_shows_what_was_changed() {
    const CORRUPTED: u8 = 5;
    let memory = in_memory(&image("^has_journal"));
    let at = FREE * 1024..(FREE + 1) * 1024;
    let device = ShutsDown { base: Arc::clone(&memory), at, panics: true, volume: OnceLock::new() };
    let open = Open::new(Arc::new(device)).unwrap();
    let handle = open.volume.start(1).unwrap();
    put(&handle, FREE, 1);
    let tid = handle.tid();
    drop(handle);
    let refused = open.transactions().commit(tid).unwrap_err().to_string();
    assert!(refused.contains("panicked"), "{refused}");
    // What nothing holds leaves the cache, which is small, for what is read.
    (0..FREE).for_each(|block| drop(open.volume.read_block(FsBlock(block)).unwrap()));
    assert!(open.volume.read_block(FsBlock(FREE)).unwrap()[..] == content(FREE, 1));
    open.service.close().unwrap_err();
    let superblock = Superblock::read(&*memory).unwrap();
    assert_eq!(superblock.raw().s_last_error_errcode, CORRUPTED);
    assert!(superblock.state().contains(State::ERRORS));
}

/// What a checkpoint had begun to write back was durable in the log only, and the log still has it.
#[test]
fn a_shutdown_in_the_middle_of_a_checkpoint_loses_nothing() {
    // Blocks that the image does not use; so many of them in each transaction that a checkpoint takes several batches.
    const FIRST: u64 = 49_200;
    const EACH: u64 = 1000;
    const SETS: u64 = 8;
    let mke2fs = Mke2fs::new("ext4", 64).block_bytes(1024).args(["-J", "size=8"]);
    let memory = in_memory(&mke2fs.make().unwrap());
    let at = FIRST * 1024..(FIRST + SETS * EACH) * 1024;
    let device =
        Arc::new(ShutsDown { base: Arc::clone(&memory), at, panics: false, volume: OnceLock::new() });
    let open = Open::new(Arc::clone(&device) as Device).unwrap();
    assert!(device.volume.set(Arc::clone(&open.volume)).is_ok());
    let first_of = |version: u32| FIRST + u64::from(version) % SETS * EACH;
    let mut durable = 0;
    for version in 1.. {
        let Ok(handle) = open.volume.start(EACH as u32) else { break };
        (0..EACH).for_each(|block| put(&handle, first_of(version) + block, version));
        let tid = handle.tid();
        drop(handle);
        if open.transactions().commit(tid).is_err() {
            break;
        }
        durable = version;
    }
    assert!(durable >= 4, "the log was not full after {durable} transactions");
    open.service.close().unwrap();
    Open::new(Arc::clone(&memory)).unwrap().service.close().unwrap();
    for version in durable.saturating_sub(SETS as u32 - 1).max(1)..=durable {
        for block in (0..EACH).map(|block| first_of(version) + block) {
            let found = on_device(&memory, block);
            // The transaction that was being committed may be there or not.
            let newer = version + SETS as u32;
            assert!(
                found == content(block, version) || found == content(block, newer),
                "{version}: block {block}"
            );
        }
    }
}
