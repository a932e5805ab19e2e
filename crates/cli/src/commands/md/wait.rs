//! Waiting for the background work of an array, with a bar on a terminal once it takes longer than a second.

use std::time::Duration;

use undercroft_md::{Action, Array, Finished};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::bar::Bar;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Waits until nothing is under way or due. Tells what ended last.
pub(super) fn wait(array: &Array) -> Result<Option<Finished>, Failure> {
    let bar = Bar::new();
    while !array.wait_for_sync(TICK) {
        if let Some(progress) = array.status().progress {
            bar.show(word(progress.action), progress.position_bytes, progress.total_bytes);
        }
    }
    drop(bar);
    let status = array.status();
    if let Some(stopped) = status.stopped {
        return Err(Failure::new(Kind::Io, format!("writes to the array are refused since {stopped}")));
    }
    if let Some(Finished { action, interrupted: Some(reason), .. }) = &status.finished {
        return Err(Failure::new(Kind::Io, format!("{} did not come to its end: {reason}", noun(*action))));
    }
    Ok(status.finished)
}

/// The work as a thing.
pub(super) const fn noun(action: Action) -> &'static str {
    match action {
        Action::Resync => "the resync",
        Action::Recover => "the recovery of a member",
        Action::Replace => "the replacement of a member",
        Action::Check => "the check",
        Action::Repair => "the repair",
    }
}

const fn word(action: Action) -> &'static str {
    match action {
        Action::Resync => "resync",
        Action::Recover => "recovery",
        Action::Replace => "replacement",
        Action::Check => "check",
        Action::Repair => "repair",
    }
}
