//! The two files of a report. They appear, and take the place of older ones, when everything is measured.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use undercroft_bench::page::page;
use undercroft_bench::suite::Results;

use crate::failure::Failure;
use crate::text::names::safe;

const PAGE: &str = "index.html";
const FIGURES: &str = "results.json";

/// A directory that can be written to, and files in it that have no content and no lasting name yet.
pub(super) struct Report {
    dir: PathBuf,
    page: NamedTempFile,
    figures: NamedTempFile,
}

impl Report {
    /// Makes the directory if it is not there.
    pub(super) fn prepare(dir: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(dir).map_err(|error| refused(dir, &error))?;
        let file = || {
            // As open(2) makes it: less what the user's mask takes away.
            let permissions = Permissions::from_mode(0o666);
            tempfile::Builder::new()
                .prefix(".undercroft-bench-")
                .permissions(permissions)
                .tempfile_in(dir)
                .map_err(|error| refused(dir, &error))
        };
        Ok(Self { dir: dir.to_owned(), page: file()?, figures: file()? })
    }

    /// Writes both files; returns the page's path.
    pub(super) fn write(self, results: &Results) -> Result<PathBuf, Failure> {
        let Self { dir, page: page_file, figures } = self;
        let mut json =
            serde_json::to_vec(results).map_err(|error| Failure::of(crate::exit::Kind::Host, &error))?;
        json.push(b'\n');
        put(figures, &json, &dir.join(FIGURES))?;
        let path = dir.join(PAGE);
        put(page_file, page(results).as_bytes(), &path)?;
        Ok(path)
    }
}

fn put(mut file: NamedTempFile, bytes: &[u8], path: &Path) -> Result<(), Failure> {
    file.write_all(bytes).map_err(|error| refused(path, &error))?;
    file.persist(path).map_err(|error| refused(path, &error.error))?;
    Ok(())
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    Failure::host(format!("cannot write {}", safe(path.as_os_str().as_bytes())), error)
}
