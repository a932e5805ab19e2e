//! What the user of an array may choose when it is opened.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::StripeWake;

/// How an array is opened.
#[derive(Clone, Copy, Debug)]
pub struct ArrayOptions {
    /// Nothing is written: neither data, nor superblocks, nor what a resync would make right.
    pub read_only: bool,
    /// Start with members that lag behind, and although parity may not match, if the array cannot be had otherwise.
    pub force: bool,
    /// Start without members that the superblocks believe to be there. Otherwise a user that gives too few by mistake would
    /// find them out of the array afterwards.
    pub start_degraded: bool,
    /// Memory for the stripes of RAID4, 5 and 6.
    pub stripe_cache_bytes: usize,
    /// Which threads are woken when stripes come free.
    pub stripe_wake: StripeWake,
    /// Background work does no more than this; `None`: as fast as it can.
    pub sync_bytes_per_second: Option<NonZeroU64>,
    /// A member that may hang (see [`BlockDevice::may_hang`](undercroft_block::BlockDevice::may_hang)) and has not
    /// answered for so long is left out; `None`: it is waited for.
    pub member_timeout: Option<Duration>,
}

impl Default for ArrayOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            force: false,
            start_degraded: false,
            stripe_cache_bytes: 32 << 20,
            stripe_wake: StripeWake::default(),
            sync_bytes_per_second: None,
            member_timeout: Some(Duration::from_secs(30)),
        }
    }
}
