//! Devices that fail: what is durable stays, nothing later reaches the disk, and every caller gets the error.

use undercroft_block::Operation;
use undercroft_block::testing::{FailNth, Left, Repeat};
use undercroft_vfs::{Error, Result};

use super::*;

/// Works until something fails; returns the last version that was durable.
fn work_until_failure(open: &Open) -> (u32, Result<()>) {
    for version in 1..=80_u32 {
        let changed = open.volume.start(40).map(|handle| {
            (0..40).for_each(|number| open.make(&handle, number, version));
            handle.tid()
        });
        if let Err(error) = changed.and_then(|tid| open.transactions().commit(tid)) {
            return (version - 1, Err(error));
        }
    }
    (80, Ok(()))
}

#[test]
fn after_a_failed_write_or_flush_nothing_is_written_and_every_caller_gets_the_error() {
    let image = image(16, "");
    for (operation, left) in [
        (Operation::Write, Left::Old),
        (Operation::Write, Left::Torn),
        (Operation::Write, Left::New),
        (Operation::Flush, Left::Old),
    ] {
        for nth in (3..40).step_by(12).chain([120, 240]) {
            for repeat in [Repeat::Once, Repeat::FromThenOn] {
                let what = format!("{operation} {nth}, {left:?}, {repeat:?}");
                let memory = in_memory(&image);
                let failing =
                    Arc::new(FailNth::new(Arc::clone(&memory), operation, nth, repeat).leaving(left));
                let Ok(open) = Open::new(failing.clone()) else { continue };
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
                let again = Open::new(Arc::clone(&memory)).unwrap();
                let version = (durable..=durable + 1).find(|&version| again.has(&memory, 0, version));
                let Some(version) = version else {
                    assert!(durable == 0, "{what}: {durable} were durable");
                    continue;
                };
                for number in 0..40 {
                    assert!(again.has(&memory, number, version), "{what}");
                }
                again.service.close().unwrap();
            }
        }
    }
}
