//! A bar for work that takes long, on a terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that is not drawn at first, and never where there is no terminal.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
    begun: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        let template =
            "{msg:11} {bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        let style = ProgressStyle::with_template(template)
            .expect("the template is well-formed")
            .progress_chars("█▉▊▋▌▍▎▏·");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style);
        Self { bar, begun: Instant::now() }
    }

    /// Shows how far the work is, once it takes long.
    pub(crate) fn show(&self, word: &str, position_bytes: u64, total_bytes: u64) {
        if self.bar.is_hidden() && self.begun.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(word.to_owned());
        self.bar.set_length(total_bytes);
        self.bar.set_position(position_bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
