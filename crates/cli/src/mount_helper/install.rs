//! `install-helper`: links to this program, under the names by which mount(8) and umount(8) look for it.
//!
//! They look in `/sbin` only. A file of such a name that is no link to a program `undercroft` is left alone.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// For `-t undercroft`, for `-t fuse.undercroft`, and for `umount`: a mount's type is `fuse.undercroft.ext4`, of which umount(8)
/// leaves the last part out.
const LINKS: [&str; 3] = ["mount.undercroft", "mount.fuse.undercroft", "umount.fuse.undercroft"];

/// Makes the links in `prefix/sbin`, and prints them.
pub(crate) fn install(prefix: &Path) -> Result<(), Failure> {
    let program =
        env::current_exe().map_err(|error| Failure::host("cannot find this program's path", &error))?;
    let dir = prefix.join("sbin");
    fs::create_dir_all(&dir).map_err(|error| refused(&dir, &error))?;
    for name in LINKS {
        let link = dir.join(name);
        make(&program, &link)?;
        writeln!(io::stdout(), "{} -> {}", shown(&link), shown(&program))?;
    }
    Ok(())
}

fn make(program: &Path, link: &Path) -> Result<(), Failure> {
    match fs::read_link(link) {
        Ok(target) if target == program => return Ok(()),
        Ok(target) if target.file_name() == program.file_name() => {
            fs::remove_file(link).map_err(|error| refused(link, &error))?;
        }
        Ok(_) => return Err(foreign(link)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) if link.symlink_metadata().is_ok() => return Err(foreign(link)),
        Err(error) => return Err(refused(link, &error)),
    }
    symlink(program, link).map_err(|error| refused(link, &error))
}

fn foreign(link: &Path) -> Failure {
    Failure::new(Kind::Host, format!("{} is there, and no link to this program", shown(link)))
        .advise("remove it first")
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::host(format!("cannot make {}", shown(path)), error);
    match error.kind() {
        io::ErrorKind::PermissionDenied => failure.advise("run it as root"),
        _ => failure,
    }
}

fn shown(path: &Path) -> String {
    safe(path.as_os_str().as_bytes())
}
