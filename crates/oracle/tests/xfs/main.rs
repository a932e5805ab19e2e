//! XFS: real images of many makes, what we show and find in them against the kernel and xfs_repair, and damage.

mod compare;
mod fields;
mod folding;
mod matrix;
mod random;
mod values;
mod version4;
