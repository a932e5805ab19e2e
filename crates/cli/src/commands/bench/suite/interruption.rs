//! Signals that end a suite in order: what is mounted must not stay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::signals::is_ignored;

/// Catches signals until it is dropped. After that they are ignored: the program has but to end.
pub(super) struct Interruption {
    came: Arc<AtomicBool>,
    caught: Vec<SigId>,
}

impl Interruption {
    /// Those that the program's caller does not have it ignore. Where the system has no room for a handler, they end the
    /// program as ever.
    pub(super) fn catch() -> Self {
        let came = Arc::new(AtomicBool::new(false));
        let caught = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter(|&signal| !is_ignored(signal))
            .filter_map(|signal| flag::register(signal, Arc::clone(&came)).ok())
            .collect();
        Self { came, caught }
    }

    /// Whether there was one.
    pub(super) fn has_come(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        for &id in &self.caught {
            low_level::unregister(id);
        }
    }
}
