//! Damaged filesystems that are mounted: what the kernel asks of them, and what it does with the answers.

mod client;
#[path = "../hostile/damage/mod.rs"]
#[expect(dead_code, reason = "shared with the tests that do not mount")]
mod damage;
mod fuzz;
mod graph;
