//! How far a copy is, on a terminal, once it takes longer than a second.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that is not drawn at first, and never where there is no terminal. Threads advance it at will.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    /// Not yet drawn, and to be drawn when patience ends.
    waiting: AtomicBool,
}

impl Progress {
    /// Of so many bytes, where that is known.
    pub(crate) fn new(expected_bytes: Option<u64>) -> Self {
        let (template, length) = match expected_bytes {
            Some(length) => (
                "{bar:40} {binary_bytes} of about {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
                length,
            ),
            None => ("{spinner} {binary_bytes}, {binary_bytes_per_sec}, {elapsed} gone by", 0),
        };
        let style = ProgressStyle::with_template(template)
            .expect("the template is well-formed")
            .progress_chars("█▉▊▋▌▍▎▏·");
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden()).with_style(style);
        let waiting = std::io::stderr().is_terminal();
        Self { bar, begun: Instant::now(), waiting: AtomicBool::new(waiting) }
    }

    /// So many more bytes are done.
    pub(crate) fn advance(&self, bytes: u64) {
        if self.waiting.load(Ordering::Relaxed)
            && self.begun.elapsed() > PATIENCE
            && self.waiting.swap(false, Ordering::Relaxed)
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(bytes);
    }

    /// Runs something that prints, with the bar out of its way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.waiting.store(false, Ordering::Relaxed);
        self.bar.finish_and_clear();
    }
}
