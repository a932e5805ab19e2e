//! Fetching a cache line before it is needed.
#![cfg_attr(
    all(target_arch = "x86_64", not(any(miri, loom, shuttle))),
    expect(unsafe_code, reason = "an instruction that the language does not have")
)]

/// Has the processor begin to fetch the cache line where `place` begins, to be written by this thread. It goes on with
/// something else meanwhile, even past atomic operations, which wait for everything else. Nothing but time depends on
/// it, and there need not be anything at that place.
#[inline]
pub fn prefetch_for_write<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    // SAFETY: the instruction changes nothing that can be observed, does nothing where the processor lacks it, and
    // never faults.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = place;
}
