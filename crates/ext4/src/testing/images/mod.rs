//! Images for unit tests, with two makers and checkers. With the feature `oracle` mke2fs makes them and e2fsck checks
//! them; without it this crate's own mkfs and check do, so that the tests run on a machine without those tools.

#[cfg(not(feature = "oracle"))]
mod own;

#[cfg(not(feature = "oracle"))]
pub(crate) use own::{Image, Mke2fs};
pub(crate) use undercroft_oracle::Scratch;
#[cfg(feature = "oracle")]
pub(crate) use undercroft_oracle::{Image, Mke2fs};
