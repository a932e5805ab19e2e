//! Every test: the workspace's own, and the models of the lock primitives under loom and shuttle.
//!
//! Tests that mount, by the kernel or by FUSE, need root. All are built by the caller, and their programs run under
//! sudo, so that no build output belongs to root. Each program has a time limit: see [`limit`].

use crate::step::{self, Outcome, Steps, command};
use crate::{limit, system};

pub(crate) fn run() -> Outcome {
    let mut steps = Steps::default();
    add_steps(&mut steps);
    steps.finish()
}

pub(crate) fn add_steps(steps: &mut Steps) {
    steps.run("system packages", system::install_missing);
    steps.run("tests", || {
        let [config, runner] = limit::cargo_arguments()?;
        let scratch = system::scratch_in_memory();
        let env: Vec<(&str, &str)> =
            scratch.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let args = ["test", "--locked", "--workspace", "--all-features", "--no-fail-fast", &config, &runner];
        command("cargo", &args, &env)
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
    let inodes = ["-p", "undercroft-ext4", "--features", "oracle", "--lib", "model_tests"];
    steps.run("models of ext4's in-memory inodes, random schedules (shuttle)", || model("shuttle", &inodes));
    let stripes = ["-p", "undercroft-md", "--lib", "model_tests"];
    steps.run("models of the stripe cache, random schedules (shuttle)", || model("shuttle", &stripes));
    let names = ["-p", "undercroft-tmpfs", "--test", "shuttle"];
    steps.run("changes of names, random schedules (shuttle)", || model("shuttle", &names));
}

fn model(name: &str, what: &[&str]) -> Outcome {
    let dir = format!("{}/{name}", target_dir()?);
    let flags = format!("--cfg {name}");
    let [config, runner] = limit::cargo_arguments()?;
    let args = [&["test", "--locked", &config, &runner, "--target-dir", &dir], what].concat();
    command("cargo", &args, &[("RUSTFLAGS", &flags)])
}

pub(crate) fn target_dir() -> Result<String, String> {
    let metadata = step::output("cargo", &["metadata", "--locked", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
    let dir = metadata["target_directory"].as_str();
    dir.map(str::to_owned).ok_or_else(|| "cargo metadata names no target directory".to_owned())
}
