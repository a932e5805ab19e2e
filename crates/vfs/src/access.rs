//! What is wanted of a file, as permission checks have it.

bitflags::bitflags! {
    /// What is wanted of a file, with the values of `access(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Run a file; pass through a directory.
        const EXECUTE = 1;
        /// Change content; add and remove names.
        const WRITE = 2;
        /// Read content; list names.
        const READ = 4;
    }
}

/// Whether three permission bits contain all of `want`.
pub(crate) fn grants(bits: u16, want: Access) -> bool {
    Access::from_bits_truncate((bits & 0o7) as u8).contains(want)
}
