//! The program that `--monitor` names: found when the mount is asked for, since a mistake in it would otherwise show when
//! a member fails. Called in the process that the user started, and again, with the path found, in the one that serves.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::ImageSpec;
use crate::text::names::safe;

/// The absolute path of the program: the process that serves leaves the working directory.
///
/// # Errors
/// It is missing or cannot be executed, or `image` is no array.
pub(super) fn find(program: &Path, image: &ImageSpec) -> Result<PathBuf, Failure> {
    if image.array.is_none() {
        let what = format!("`--monitor` is for arrays, and {} is none", image.shown());
        return Err(Failure::new(Kind::Usage, what).advise("leave it out, or mount an array: md:MEMBER,..."));
    }
    let refused = |error: io::Error| {
        let shown = safe(program.as_os_str().as_encoded_bytes());
        Failure::host(format!("cannot run the program {shown} of `--monitor`"), &error)
            .advise("name an executable file")
    };
    if !has_slash(program) {
        let dirs = env::var_os("PATH").unwrap_or_default();
        let found =
            env::split_paths(&dirs).map(|dir| dir.join(program)).find(|path| executable(path).is_ok());
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no directory of PATH has it");
        return found.ok_or_else(missing).and_then(std::path::absolute).map_err(refused);
    }
    executable(program).and_then(|()| std::path::absolute(program)).map_err(refused)
}

fn has_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/')
}

fn executable(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    Ok(rustix::fs::access(path, Access::EXEC_OK)?)
}
