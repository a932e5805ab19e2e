//! The benchmarks: the program is built as its users build it, then measured beside the kernel and fuse2fs.

use crate::step::{Outcome, command};
use crate::system;
use crate::test::target_dir;

pub(crate) fn run() -> Outcome {
    system::install_missing()?;
    command("cargo", &["build", "--locked", "--release", "--package", "undercroft-cli"], &[])?;
    let program = format!("{}/release/undercroft", target_dir()?);
    let bench = ["bench", "--locked", "--package", "undercroft-oracle", "--bench", "read_side"];
    let mut env = vec![("UNDERCROFT_PROGRAM".to_owned(), program)];
    env.extend(system::runner_for_root()?);
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    command("cargo", &bench, &env)
}
