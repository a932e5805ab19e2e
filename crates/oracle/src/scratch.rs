//! Scratch directories that vanish with their owner.
//!
//! They lie under `$UNDERCROFT_SCRATCH`, or the system's temporary directory. Images are sparse, but the whole
//! matrix still writes some gigabytes: on a machine whose temporary directory is small memory, the variable
//! points elsewhere. With `$UNDERCROFT_KEEP` set, the directories of a test that panics stay, for a look at its
//! images.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Result;
use crate::error::Context;

/// A directory that is removed, with everything in it, when this value is dropped.
#[derive(Debug)]
pub struct Scratch(Option<TempDir>);

impl Scratch {
    /// Makes one. `purpose` is part of its name, for people that look at what a killed test left behind.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(purpose: &str) -> Result<Self> {
        let home = std::env::var_os("UNDERCROFT_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from);
        Self::within(&home, purpose)
    }

    /// Makes one in another directory than usual, for example of a filesystem that was mounted for it.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn within(home: &Path, purpose: &str) -> Result<Self> {
        tempfile::Builder::new()
            .prefix(&format!("undercroft-{purpose}-"))
            .tempdir_in(home)
            .map(|dir| Self(Some(dir)))
            .context("make a scratch directory in", home)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.as_ref().expect("only drop takes it").path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking()
            && std::env::var_os("UNDERCROFT_KEEP").is_some()
            && let Some(dir) = self.0.take()
        {
            eprintln!("kept: {}", dir.keep().display());
        }
    }
}
