//! Waiting for the background work of an array, with a bar on a terminal once it takes longer than a second.

use std::time::Duration;

use undercroft_md::{Action, Array, Finished, Progress};

use super::report::word;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::bar::Bar;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Waits until nothing is under way or due. Tells what ended last.
pub(super) fn wait(array: &Array) -> Result<Option<Finished>, Failure> {
    let bar = Bar::new();
    wait_with(array, &mut |progress| {
        if let Some(progress) = progress {
            bar.show(word(progress.action), progress.position_bytes, progress.total_bytes);
        }
        Ok(())
    })
}

/// The same; asks `during` from time to time whether to go on, with how far the work is once it is under way.
///
/// # Errors
/// From `during`, and when the work did not come to its end.
pub(crate) fn wait_with(
    array: &Array,
    during: &mut dyn FnMut(Option<&Progress>) -> Result<(), Failure>,
) -> Result<Option<Finished>, Failure> {
    while !array.wait_for_sync(TICK) {
        during(array.status().progress.as_ref())?;
    }
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
