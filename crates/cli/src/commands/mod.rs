//! The commands. Each takes what is meant, opens what it needs, builds values and prints them as text or JSON.

mod bench;
pub(crate) mod cat;
mod check;
mod df;
mod disk;
mod facts;
pub(crate) mod grow;
mod help_files;
pub(crate) mod info;
mod list;
pub(crate) mod md;
mod mkfs;
pub(crate) mod mount;
mod mount_log;
mod mounts;
mod stat;
mod tour;
mod tree;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::get;
use crate::image;
use crate::mount_helper;
use crate::plan::Plan;

/// Does one thing. `Ok(Some(kind))` says that failures were already printed and what they amount to.
pub(crate) fn run(plan: Plan) -> Result<Option<Kind>, Failure> {
    match plan {
        Plan::Info { image, format } => info::run(&image, format).map(|()| None),
        Plan::List { image, paths, style, format } => list::run(&image, &paths, style, format),
        Plan::Tree { image, path, levels, all, format } => tree::run(&image, &path, levels, all, format),
        Plan::Stat { image, paths, follow, format } => stat::run(&image, &paths, follow, format),
        Plan::Cat { image, paths } => cat::run(&image::open(&image)?.vfs, &paths),
        Plan::Get { what, format } => get::run(&what, format),
        Plan::Mount { image, dir, options, snapshot, log, monitor, how } => {
            mount::run(&image, &dir, &options, snapshot, log.as_deref(), monitor, how).map(|()| None)
        }
        Plan::Unmount { dir } => mount::unmount(&dir).map(|()| None),
        Plan::InstallHelper { prefix } => mount_helper::install(&prefix).map(|()| None),
        Plan::Sync { image } => mount::sync(&image).map(|()| None),
        Plan::Mounts { format } => mounts::run(format).map(|()| None),
        Plan::Df { images, style, format } => df::run(&images, style, format),
        Plan::Mkfs { what, format } => mkfs::run(&what, format).map(|()| None),
        Plan::Grow { image, size_bytes, format } => grow::run(&image, size_bytes, format).map(|()| None),
        Plan::Check { image, format } => check::run(&image, format),
        Plan::Md { what, format } => md::run(*what, format),
        Plan::Bench { what, format } => bench::run(&what, format).map(|()| None),
        Plan::Tour { format } => tour::run(format).map(|()| None),
        Plan::Completions { shell } => help_files::completions(shell).map(|()| None),
        Plan::Man { dir } => help_files::man(dir.as_deref()).map(|()| None),
    }
}
