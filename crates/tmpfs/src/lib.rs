//! A POSIX filesystem in memory.

mod budget;

pub use budget::Budget;
