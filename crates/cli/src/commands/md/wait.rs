//! Waiting for the background work of an array, with a bar on a terminal once it takes longer than a second.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use undercroft_md::{Action, Array, Finished, Progress};

use crate::exit::Kind;
use crate::failure::Failure;

/// Work that is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Waits until nothing is under way or due. Tells what ended last.
pub(super) fn wait(array: &Array) -> Result<Option<Finished>, Failure> {
    let bar = Bar::new();
    while !array.wait_for_sync(TICK) {
        if let Some(progress) = array.status().progress {
            bar.show(&progress);
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

/// A bar that is not drawn at first, and never where nobody looks.
struct Bar {
    bar: ProgressBar,
    begun: Instant,
}

impl Bar {
    fn new() -> Self {
        let template =
            "{msg:11} {bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        let style = ProgressStyle::with_template(template)
            .expect("the template is well-formed")
            .progress_chars("█▉▊▋▌▍▎▏·");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style);
        Self { bar, begun: Instant::now() }
    }

    fn show(&self, progress: &Progress) {
        if self.bar.is_hidden() && self.begun.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(word(progress.action));
        self.bar.set_length(progress.total_bytes);
        self.bar.set_position(progress.position_bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
