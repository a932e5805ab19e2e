//! How far a row of measurements is, on a terminal, once it takes longer than a second.
//!
//! Drawn by a thread that sleeps nearly always: it must not take a processor from what is measured.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is over sooner needs no bar; and how often the bar is drawn.
const SECOND: Duration = Duration::from_secs(1);

/// A bar that is not drawn during the first second, and never where there is no terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    /// Dropped with this, which tells the thread that waits for the second to be over.
    _finished: Option<Sender<()>>,
}

impl Progress {
    /// Of so many measurements.
    pub(super) fn new(measurements: u64) -> Self {
        let style =
            ProgressStyle::with_template("{bar:40} {pos} of {len} measured, {elapsed} gone by: {msg}")
                .expect("the template is well-formed")
                .progress_chars("█▉▊▋▌▍▎▏·");
        let hidden = ProgressDrawTarget::hidden();
        let bar = ProgressBar::with_draw_target(Some(measurements), hidden).with_style(style);
        let finished = std::io::stderr().is_terminal().then(|| {
            let (finished, wait) = mpsc::channel::<()>();
            let bar = bar.clone();
            thread::spawn(move || {
                if wait.recv_timeout(SECOND) == Err(RecvTimeoutError::Timeout) {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(SECOND);
                }
            });
            finished
        });
        Self { bar, _finished: finished }
    }

    /// What is measured now.
    pub(super) fn begin(&self, what: String) {
        self.bar.set_message(what);
    }

    /// It is done.
    pub(super) fn done(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
