//! The program `undercroft`: Linux filesystems without the kernel.
//!
//! The library does the work; this binary parses and prints. Arguments pass through two shapes, as typed
//! ([`args`]) and as meant ([`plan`]); commands see only the second. One place prints a failure
//! ([`failure::print_failure`]), one picks the exit code ([`exit`]), and this file is the only one that ends the
//! process.

mod args;
mod commands;
mod exit;
mod failure;
mod get;
mod image;
mod plan;
mod text;
mod walk;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Typed;
use crate::plan::Plan;

fn main() -> ExitCode {
    let typed = Typed::parse();
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
