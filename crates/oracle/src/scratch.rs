//! Scratch directories that vanish with their owner.
//!
//! They lie under `$UNDERCROFT_SCRATCH`, or the system's temporary directory. Images are sparse, but the whole
//! matrix still writes some gigabytes: on a machine whose temporary directory is small memory, the variable
//! points elsewhere.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Result;
use crate::error::Context;

/// A directory that is removed, with everything in it, when this value is dropped.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes one. `purpose` is part of its name, for people who look at what a killed test left behind.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(purpose: &str) -> Result<Self> {
        let home = std::env::var_os("UNDERCROFT_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from);
        tempfile::Builder::new()
            .prefix(&format!("undercroft-{purpose}-"))
            .tempdir_in(&home)
            .map(Self)
            .context("make a scratch directory in", &home)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
