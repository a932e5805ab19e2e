//! Every test: the workspace's own, and the models of the lock primitives under loom and shuttle.
//!
//! Tests that mount, by the kernel or by FUSE, need root. All are built as whoever calls, and their binaries run
//! under sudo, so that no build output belongs to root.

use crate::step::{self, Outcome, Steps, command};
use crate::{again, system};

/// What becomes of a test that fails.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OnFailure {
    Fail,
    /// It may try a second time, alone: see [`again`].
    TryAgain,
}

pub(crate) fn run() -> Outcome {
    let mut steps = Steps::default();
    add_steps(&mut steps, OnFailure::Fail);
    steps.finish()
}

pub(crate) fn add_steps(steps: &mut Steps, on_failure: OnFailure) {
    steps.run("system packages", system::install_missing);
    steps.run("tests", || {
        let mut env = system::runner_for_root()?;
        env.extend(system::scratch_in_memory());
        let env: Vec<(&str, &str)> =
            env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let args = ["test", "--locked", "--workspace", "--all-features", "--no-fail-fast"];
        match on_failure {
            OnFailure::Fail => command("cargo", &args, &env),
            OnFailure::TryAgain => again::test(&args, &env),
        }
    });
    // The models change what the crate is made of, so each has build outputs of its own.
    let locks = ["-p", "undercroft-sync", "--test"];
    steps.run("models of the locks, every interleaving (loom)", || {
        model("loom", &[&locks[..], &["loom", "--release"]].concat())
    });
    steps.run("models of the locks, random schedules (shuttle)", || {
        model("shuttle", &[&locks[..], &["shuttle"]].concat())
    });
    let caches = ["-p", "undercroft-vfs", "--lib", "model_tests"];
    steps.run("models of the vfs caches, random schedules (shuttle)", || model("shuttle", &caches));
    let inodes = ["-p", "undercroft-ext4", "--lib", "model_tests"];
    steps.run("models of ext4's inodes in use, random schedules (shuttle)", || model("shuttle", &inodes));
    let stripes = ["-p", "undercroft-md", "--lib", "model_tests"];
    steps.run("models of the stripe cache, random schedules (shuttle)", || model("shuttle", &stripes));
    let names = ["-p", "undercroft-tmpfs", "--test", "shuttle"];
    steps.run("changes of names, random schedules (shuttle)", || model("shuttle", &names));
}

fn model(name: &str, what: &[&str]) -> Outcome {
    let dir = format!("{}/{name}", target_dir()?);
    let flags = format!("--cfg {name}");
    let args = [&["test", "--locked", "--target-dir", &dir], what].concat();
    command("cargo", &args, &[("RUSTFLAGS", &flags)])
}

pub(crate) fn target_dir() -> Result<String, String> {
    let metadata = step::output("cargo", &["metadata", "--locked", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
    let dir = metadata["target_directory"].as_str();
    dir.map(str::to_owned).ok_or_else(|| "cargo metadata names no target directory".to_owned())
}
