//! What a stripe cache is made with: its memory, and the rule by which it wakes threads.

/// Which threads are woken when a stripe of the cache comes free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripeWake {
    /// As many waiters of the stripe's set as there are free stripes, never one more.
    #[default]
    One,
    /// The plain form, as Linux had it: all waiters of the array, when a quarter of its stripes is free.
    All,
    /// The same, with waiters that spin a little before they sleep.
    AllSpinning,
}

/// What a stripe cache is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripeOptions {
    /// Memory for stripes; at least one for each set is had.
    pub(crate) cache_bytes: usize,
    pub(crate) wake: StripeWake,
}

impl Default for StripeOptions {
    fn default() -> Self {
        Self { cache_bytes: 32 << 20, wake: StripeWake::default() }
    }
}
