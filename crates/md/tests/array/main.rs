//! Arrays at work, through their public face.

#[path = "../../src/fixtures.rs"]
mod fixtures;

mod assembly;
mod conformance;
mod crash;
mod cuts;
mod events;
mod faults;
mod flushes;
mod hang;
mod linux;
mod manage;
mod outcomes;
mod power;
mod support;
