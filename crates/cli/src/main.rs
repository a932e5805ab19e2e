//! The program `undercroft`: Linux filesystems without the kernel.
//!
//! The library does the work; this binary parses and prints. Arguments pass through two shapes, as typed
//! ([`args`]) and as meant ([`plan`]); commands see only the second. One place prints a failure
//! ([`failure::print_failure`]), one picks the exit code ([`exit`]), and this file is the only one that ends the
//! process.

#![deny(clippy::print_stderr)]

mod args;
mod commands;
mod control;
mod exit;
mod failure;
mod file_id;
mod get;
mod image;
mod lost_gpt;
mod mount_helper;
mod mount_options;
mod pattern;
mod plan;
mod signals;
mod text;
mod walk;
mod xattrs;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use crate::args::Typed;
use crate::plan::Plan;

/// Names and inodes come and go by the million in many threads at once, and where they are freed by another thread
/// than the one that made them the system's allocator has those threads wait for each other.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = mount_helper::run_if_called() {
        return code;
    }
    let typed = match Typed::try_parse() {
        Ok(typed) => typed,
        Err(error) => return args::refuse(error),
    };
    typed.color.apply();
    match Plan::from_typed(typed.command).and_then(commands::run) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(kind)) => kind.into(),
        Err(failure) => {
            failure::print_failure(&failure);
            failure.kind().into()
        }
    }
}
