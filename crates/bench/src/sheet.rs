//! What one worker measured.

use serde::{Deserialize, Serialize};

use crate::Histogram;
use crate::usage::Usage;

/// One worker's result. Times are those of [`clock`](crate::clock), which all workers share.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sheet {
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
    /// How long each tenth of the operations took.
    pub(crate) tenths_ns: [u64; 10],
    pub(crate) usage: Usage,
    pub(crate) latency: Histogram,
}
