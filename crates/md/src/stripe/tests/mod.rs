//! Arrays of parity in memory, compared with a plain array of bytes and with parity computed byte by byte.

mod background;
mod crowd;
mod degraded;
mod faults;
mod harness;
mod logged;
mod sets;
mod shapes;
