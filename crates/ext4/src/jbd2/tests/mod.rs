//! Recovery against logs made by hand, damaged logs, and logs that Linux left behind.

mod builder;
mod crash;
mod damage;
mod fast_commit;
#[cfg(feature = "oracle")]
mod image;
#[cfg(feature = "oracle")]
mod real;
#[cfg(feature = "oracle")]
mod real_fast_commit;
mod rules;
mod writing;
