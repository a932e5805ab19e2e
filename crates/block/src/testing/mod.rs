//! Devices built to fail, crash and dawdle, for tests of what stands on top of a device.
//!
//! The fault model:
//! - **Crashes** ([`Recorder`], [`LoseUnflushed`]): everything a flush has promised survives. Of what was written
//!   after that, any subset survives, in order; a write survives as a whole, not at all, or torn between sectors
//!   of 512 bytes. Sectors themselves are not torn, and what was not written does not change.
//! - **Failures** ([`FailNth`]): a request of a chosen kind fails with an I/O error, once or from then on; a failed
//!   write leaves its range old, torn or new. A failed flush ([`LoseUnflushed::failing_flush`]) loses any subset of what
//!   was not flushed for good, and the next one succeeds.
//! - **Time** ([`Slow`]): requests take a given time.
//!
//! Out of scope: silent corruption, and flushes that lie.
//!
//! Whatever is random comes from a seed, which the outcome carries and prints: the same seed, the same requests in
//! the same order, the same outcome.

mod crash;
mod fail;
mod lose;
mod recorder;
mod slow;

pub use crate::rng::Rng;
pub use crash::Crash;
pub use fail::{FailNth, Left, Repeat};
pub use lose::LoseUnflushed;
pub use recorder::{Event, Recorder, Recording};
pub use slow::{Latency, Slow};
