//! The project's own chores, run as `cargo xtask <chore>`. Continuous integration runs `cargo xtask ci` and
//! nothing else, so whatever it demands can be had at home with the same words.

mod bench;
mod ci;
mod counts;
mod dependencies;
mod fuzz;
mod limit;
mod spdx;
mod step;
mod system;
mod test;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask <chore>

  ci     everything that continuous integration runs: format, lints, documentation, dependencies, tidiness, tests
  test   install what the tests need, then run every test, root ones by sudo
  bench  measure reading beside the kernel and fuse2fs; needs root and some minutes
  bench ext4-write [GROUP ...]
         the same for changing ext4; the groups are orphan, overwrite, names and mount
  bench md [GROUP ...]
         the same for arrays; the groups are stripes, waiting, sequential, reads,
         rebuild and parity
  bench xfs-read [GROUP ...]
         the same for reading and checking XFS; the groups are walk, read and check
  counts [--write]
         count what one operation of each workload costs, by callgrind, and compare with the budgets in
         crates/bench/counts.json, or write new ones
  fuzz [TARGET [SECONDS]]
         fuzz everything that reads bytes from a disk, each target for a minute; needs a nightly toolchain
  tidy   the project's own rules about its source files
  modules
         write the tables of modules in docs/ARCHITECTURE.md from the first sentences of the files
  deps   licences, sources and duplicates among the dependencies
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = step::repository_root().and_then(|root| {
        // Cargo starts the test programs through this one, each in the directory of its package.
        if let [limit::CHORE, program, ref args @ ..] = args[..] {
            return limit::run(program, args);
        }
        std::env::set_current_dir(&root).map_err(|e| format!("cannot enter {}: {e}", root.display()))?;
        let outcome = match args[..] {
            ["ci"] => ci::run(),
            ["test"] => test::run(),
            ["bench"] => bench::run(),
            ["bench", "ext4-write", ref groups @ ..] => bench::run_ext4_write(groups),
            ["bench", "xfs-read", ref groups @ ..] => bench::run_xfs_read(groups),
            ["bench", "md", ref groups @ ..] => bench::run_md(groups),
            ["counts"] => counts::run(false),
            ["counts", "--write"] => counts::run(true),
            ["fuzz", ref args @ ..] => fuzz::run(args),
            ["tidy"] => tidy::run(),
            ["modules"] => tidy::write_modules(),
            ["deps"] => dependencies::run(),
            [] | ["help" | "-h" | "--help"] => {
                print!("{HELP}");
                Ok(())
            }
            _ => Err(format!("there is no such chore: {}\n\n{HELP}", args.join(" "))),
        };
        outcome.map(|()| ExitCode::SUCCESS)
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
