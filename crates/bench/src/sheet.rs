//! What one worker measured.

use serde::{Deserialize, Serialize};

use crate::Histogram;
use crate::usage::Usage;

/// One worker's result. Times are those of [`clock`](crate::clock), which all workers share.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sheet {
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
    /// How long the first and the last tenth of the operations took.
    pub(crate) first_tenth_ns: u64,
    pub(crate) last_tenth_ns: u64,
    pub(crate) usage: Usage,
    pub(crate) latency: Histogram,
}
