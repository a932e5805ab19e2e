//! The commands. Each takes what is meant, opens what it needs, builds values and prints them as text or JSON.

mod bench;
pub(crate) mod cat;
mod check;
mod df;
mod diff;
mod disk;
pub(crate) mod edit;
mod facts;
mod find;
pub(crate) mod grow;
mod help_files;
pub(crate) mod info;
pub(crate) mod label;
mod list;
mod look;
pub(crate) mod md;
mod mkfs;
pub(crate) mod mount;
mod mount_log;
mod mounts;
mod resize;
mod shell;
mod stat;
mod tour;
mod tree;
mod tune;
pub(crate) mod uuid;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::get;
use crate::image;
use crate::mount_helper;
use crate::plan::Plan;
use crate::text::names::safe;

/// Does one thing. `Ok(Some(kind))` says that failures were already printed and what they amount to.
pub(crate) fn run(plan: Plan) -> Result<Option<Kind>, Failure> {
    let swapped = swapped(&plan);
    carry_out(plan).map_err(|failure| match swapped {
        Some(swapped) if failure.kind() == Kind::CannotOpen => swapped,
        _ => failure,
    })
}

/// What is said when the image cannot be opened and stands behind the path: it comes first.
fn swapped(plan: &Plan) -> Option<Failure> {
    let ((command, path), image) = match plan {
        Plan::Look { image, what } => (what.first_path(), image),
        Plan::Get { image, what, .. } => (("get", what.paths.first()), image),
        _ => return None,
    };
    let is_image = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
    };
    if image.array.is_some() || is_image(&image.path) {
        return None;
    }
    // A path inside an image has a slash in front, typed or not.
    let path = path.map(|path| Path::new(OsStr::from_bytes(path)))?;
    let relative = path.strip_prefix("/").unwrap_or(path);
    let meant = [path, relative].into_iter().find(|path| is_image(path))?;
    let (meant, inside) = (safe(meant.as_os_str().as_bytes()), image.shown());
    let what = format!("{inside} is no image, and {meant} may be one");
    let rest = if command == "get" { " DEST" } else { "" };
    Some(
        Failure::new(Kind::CannotOpen, what)
            .advise(format!("the image comes first: undercroft {command} {meant} {inside}{rest}")),
    )
}

fn carry_out(plan: Plan) -> Result<Option<Kind>, Failure> {
    match plan {
        Plan::Info { image, format } => info::run(&image, format).map(|()| None),
        Plan::Look { image, what } => look::run(&image, &what),
        Plan::Get { image, what, format } => get::run(&image::open(&image)?.vfs, &what, format),
        Plan::Diff { what, format } => diff::run(&what, format),
        Plan::Edit { image, what } => edit::run(&image, &what),
        Plan::Shell { what } => shell::run(&what),
        Plan::Mount { image, dir, options, snapshot, log, monitor, how } => {
            mount::run(&image, &dir, &options, snapshot, log.as_deref(), monitor, how).map(|()| None)
        }
        Plan::Unmount { dir } => mount::unmount(&dir).map(|()| None),
        Plan::InstallHelper { prefix } => mount_helper::install(&prefix).map(|()| None),
        Plan::Freeze { image } => mount::freeze(&image).map(|()| None),
        Plan::Thaw { image } => mount::thaw(&image).map(|()| None),
        Plan::Sync { image } => mount::sync(&image).map(|()| None),
        Plan::Mounts { format } => mounts::run(format).map(|()| None),
        Plan::Df { images, style, format } => df::run(&images, style, format),
        Plan::Mkfs { what, format } => mkfs::run(&what, format).map(|()| None),
        Plan::Disk { what, format } => disk::run(&what, format).map(|()| None),
        Plan::Grow { image, size_bytes, format } => grow::run(&image, size_bytes, format).map(|()| None),
        Plan::Resize { image, size, format } => resize::run(&image, size, format).map(|()| None),
        Plan::Tune { image, what, format } => tune::run(&image, &what, format).map(|()| None),
        Plan::Label { image, label, format } => label::run(&image, label, format).map(|()| None),
        Plan::Uuid { image, change, format } => uuid::run(&image, change, format).map(|()| None),
        Plan::Check { image, format } => check::run(&image, format),
        Plan::Md { what, format } => md::run(*what, format),
        Plan::Bench { what, format } => bench::run(&what, format).map(|()| None),
        Plan::Tour { format } => tour::run(format).map(|()| None),
        Plan::Completions { shell } => help_files::completions(shell).map(|()| None),
        Plan::Man { dir } => help_files::man(dir.as_deref()).map(|()| None),
    }
}
