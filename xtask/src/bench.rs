//! The benchmarks: the program is built as its users build it, then measured beside the kernel and fuse2fs.

use crate::step::{Outcome, command};
use crate::system;
use crate::test::target_dir;

/// Reading.
pub(crate) fn run() -> Outcome {
    measure(&["read_side"], Vec::new())
}

/// Changing ext4: all groups of measurements, or those that are named.
pub(crate) fn run_ext4_write(groups: &[&str]) -> Outcome {
    let results = format!("{}/ext4-write.json", target_dir()?);
    let mut env = vec![("UNDERCROFT_RESULTS".to_owned(), results)];
    env.extend(system::scratch_in_memory());
    measure(&[&["ext4_write", "--"], groups].concat(), env)
}

/// Reading and checking XFS: all groups of measurements, or those that are named.
pub(crate) fn run_xfs_read(groups: &[&str]) -> Outcome {
    measure(&[&["xfs_read", "--"], groups].concat(), Vec::new())
}

/// Arrays: all groups of measurements, or those that are named.
pub(crate) fn run_md(groups: &[&str]) -> Outcome {
    let results = format!("{}/md.json", target_dir()?);
    measure(&[&["md", "--"], groups].concat(), vec![("UNDERCROFT_RESULTS".to_owned(), results)])
}

/// Builds the program and runs a benchmark with it, as root.
fn measure(bench: &[&str], mut env: Vec<(String, String)>) -> Outcome {
    system::install_missing()?;
    command("cargo", &["build", "--locked", "--release", "--package", "undercroft-cli"], &[])?;
    env.push(("UNDERCROFT_PROGRAM".to_owned(), format!("{}/release/undercroft", target_dir()?)));
    env.extend(system::runner_for_root()?);
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let args = [&["bench", "--locked", "--package", "undercroft-oracle", "--bench"], bench].concat();
    command("cargo", &args, &env)
}
