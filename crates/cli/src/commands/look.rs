//! The commands that look into an image: each works on one that is open, in `shell` too.

use super::{cat, find, list, stat, tree};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, Opened};
use crate::plan::{ImageSpec, Look};

/// Opens the image and looks into it.
pub(crate) fn run(spec: &ImageSpec, look: &Look) -> Result<Option<Kind>, Failure> {
    perform(&image::open(spec)?, look)
}

/// Looks into an image that is open.
pub(crate) fn perform(opened: &Opened, look: &Look) -> Result<Option<Kind>, Failure> {
    match look {
        Look::List { paths, style, format } => list::run(&opened.vfs, paths, *style, *format),
        Look::Tree { path, levels, all, format } => tree::run(&opened.vfs, path, *levels, *all, *format),
        Look::Stat { paths, follow, format } => stat::run(opened, paths, *follow, *format),
        Look::Cat { paths } => cat::run(&opened.vfs, paths),
        Look::Find { what } => find::run(&opened.vfs, what),
    }
}
