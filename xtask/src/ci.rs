//! What continuous integration runs: every check, every test, then what operations cost.

use crate::step::{Outcome, Steps, command};
use crate::{counts, dependencies, limit, test, tidy};

pub(crate) fn run() -> Outcome {
    limit::end_after();
    let mut steps = Steps::default();
    steps.run("format", || command("cargo", &["fmt", "--all", "--check"], &[]));
    steps.run("tidiness", tidy::run);
    steps.run("dependencies", dependencies::run);
    steps.run("lints", || {
        let args =
            ["clippy", "--locked", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
        command("cargo", &args, &[])
    });
    steps.run("documentation", || {
        let args = ["doc", "--locked", "--workspace", "--no-deps", "--all-features"];
        command("cargo", &args, &[("RUSTDOCFLAGS", "-D warnings")])
    });
    test::add_steps(&mut steps);
    steps.run("counts of operations", || counts::run(false));
    steps.finish()
}
