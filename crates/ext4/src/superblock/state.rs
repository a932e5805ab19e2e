//! The state word of the superblock.

bitflags::bitflags! {
    /// How the filesystem was left.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct State: u16 {
        /// Unmounted cleanly.
        const CLEAN = 0x0001;
        /// The kernel found errors.
        const ERRORS = 0x0002;
        /// Orphans are being recovered.
        const ORPHANS = 0x0004;
        /// Fast commits are being replayed.
        const FAST_COMMIT_REPLAY = 0x0020;
        /// Bits without a name here.
        const _ = !0;
    }
}
