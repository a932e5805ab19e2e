//! What Linux says: images made by its tools, filled and read by its kernel, and compared with ours.
//!
//! A library for tests. Everything here asks the real thing (mke2fs, debugfs, the kernel by loop mounts), so
//! most of it needs root and the tools that `cargo xtask test` installs; what is missing is an error, never a
//! reason to skip.

mod content;
mod diff;
mod dir;
mod either;
mod error;
mod idle;
mod image;
mod kernel;
mod load;
mod lsattr;
mod manifest;
mod mount;
pub mod operations;
mod ours;
pub mod populate;
mod recipe;
mod scratch;
mod served;
mod tool;
mod xfs;

pub use content::{Content, FULL_SUM_LIMIT, collect_segments, data_segments, sha256_of_file};
pub use diff::Differences;
pub use either::{How, Make};
pub use error::{Error, Result, shown};
pub use idle::unmount_when_idle;
pub use image::{Features, Image, Mke2fs, save_device};
pub use kernel::manifest as kernel_manifest;
pub use load::{Load, LoadOptions, Mix};
pub use manifest::{Entry, Identity, Manifest, Reading, Space, Time};
pub use mount::{LoopMount, MountMode, Writes};
pub use ours::{manifest as our_manifest, open_ext4, open_xfs};
pub use recipe::Recipe;
pub use scratch::Scratch;
pub use served::Served;
pub use tool::Tool;
pub use xfs::{MkfsXfs, XfsRecipe};
