//! Filesystems that we make smaller: e2fsck finds nothing wrong with them, the kernel mounts them, every file is as it was,
//! and they need no more room than resize2fs leaves them.
//!
//! `UNDERCROFT_RESIZES` says how many random resizes are made, `UNDERCROFT_SEED` replays a seed.

mod crash;
mod random;
mod shapes;
mod support;
