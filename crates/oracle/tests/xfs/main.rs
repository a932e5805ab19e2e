//! XFS: real images of many makes, and on each of them what we show must be what the kernel shows.

mod compare;
mod matrix;
