//! Recovery against logs made by hand, damaged logs, and logs that Linux left behind.

mod builder;
mod crash;
mod damage;
mod fast_commit;
mod image;
mod real;
mod real_fast_commit;
mod rules;
mod writing;
