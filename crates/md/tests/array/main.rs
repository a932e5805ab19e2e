//! Arrays at work, through their public face.

#[path = "../../src/fixtures.rs"]
mod fixtures;

mod assembly;
mod conformance;
mod crash;
mod faults;
mod manage;
mod power;
mod support;
