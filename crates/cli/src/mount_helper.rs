//! The program as a helper of mount(8) and umount(8), for `mount -t undercroft`, `/etc/fstab` and systemd.
//!
//! mount(8) and umount(8) run a program that is named for the type: `mount.TYPE SOURCE DIR [-sfnv] [-N NS] [-o OPTS] [-t TYPE]`
//! and `umount.TYPE DIR [-flnrv] [-N NS] [-t TYPE]`. [`install()`] makes links to this program with those names.
//! `mount.fuse3` runs `undercroft SOURCE DIR -o OPTS` without a link. Exit codes are those of mount(8).
//!
//! A mount through the helper is one as of any other type: writable unless the image is not, and as root open to all users.

mod install;
mod options;

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, io};

use clap::Parser;
use rustix::fs::Access;
use rustix::io::Errno;

pub(crate) use install::install;

use self::options::HelperOptions;
use crate::commands::mount;
use crate::exit::Kind;
use crate::failure::{Failure, print_failure};
use crate::plan::{ImageSpec, Serving};
use crate::text::note::line;

/// Exit codes of mount(8): incorrect invocation, and a mount that failed.
const USAGE: u8 = 1;
const FAILED: u8 = 32;

/// `mount.undercroft` as mount(8) calls it.
#[derive(Debug, Parser)]
#[command(name = "mount.undercroft", version)]
#[command(
    about = "Mount a disk image; called by mount(8) for `mount -t undercroft IMAGE DIR` and for /etc/fstab"
)]
struct MountCall {
    /// Disk image or block device, `IMAGE?part=N`, `md:MEMBER,...` or `tmpfs:`
    source: OsString,
    /// Directory to mount on
    dir: PathBuf,
    /// Ignore options that are not known or cannot be kept
    #[arg(short)]
    sloppy: bool,
    /// Check the options, and do not mount
    #[arg(short)]
    fake: bool,
    /// Accepted and ignored: there is no /etc/mtab
    #[arg(short)]
    no_mtab: bool,
    /// Accepted and ignored
    #[arg(short)]
    verbose: bool,
    /// Mount read-only
    #[arg(short)]
    read_only: bool,
    /// Mount for writing, which is the default
    #[arg(short)]
    write: bool,
    /// Refused: enter the namespace first, with nsenter
    #[arg(short = 'N')]
    namespace: Option<OsString>,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTS")]
    options: Vec<String>,
    /// Accepted and ignored: the type by which this program was found
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<OsString>,
}

/// `umount.fuse.undercroft` as umount(8) calls it.
#[derive(Debug, Parser)]
#[command(name = "umount.fuse.undercroft", version)]
#[command(about = "Unmount, and return when the image is closed; called by umount(8)")]
struct UnmountCall {
    /// Directory it is mounted on
    dir: PathBuf,
    /// Cut the server off
    #[arg(short)]
    force: bool,
    /// Detach the mount now, and end it when its last user is gone
    #[arg(short)]
    lazy: bool,
    /// Accepted and ignored: there is no /etc/mtab
    #[arg(short)]
    no_mtab: bool,
    /// Refused: mount it again as read-only instead
    #[arg(short)]
    remount_read_only: bool,
    /// Accepted and ignored
    #[arg(short)]
    verbose: bool,
    /// Refused: enter the namespace first, with nsenter
    #[arg(short = 'N')]
    namespace: Option<OsString>,
    /// Accepted and ignored: the type of the mount
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<OsString>,
}

/// Does what mount(8), umount(8) or mount.fuse3(8) asks, if the program was started by one of them.
pub(crate) fn run_if_called() -> Option<ExitCode> {
    let args: Vec<OsString> = env::args_os().collect();
    let name = Path::new(args.first()?).file_name()?.as_encoded_bytes();
    if name.starts_with(b"umount.") {
        return Some(parse(&args).map_or_else(|code| code, |call| answer(unmount(&call))));
    }
    // No command has such a character in its name, and mount.fuse3 hands on a path or `md:`.
    let is_source = |arg: &OsString| arg.as_encoded_bytes().iter().any(|byte| b"/:".contains(byte));
    let by_fuse = args.len() > 2 && args.get(1).is_some_and(|arg| !is_flag(arg) && is_source(arg));
    (name.starts_with(b"mount.") || by_fuse)
        .then(|| parse(&args).map_or_else(|code| code, |call| answer(mount(&call))))
}

fn is_flag(arg: &OsStr) -> bool {
    arg.as_encoded_bytes().starts_with(b"-")
}

fn parse<T: Parser>(args: &[OsString]) -> Result<T, ExitCode> {
    T::try_parse_from(args).map_err(|error| {
        // When neither output takes it there is no way to tell.
        let _ = error.print();
        if error.exit_code() == 0 { ExitCode::SUCCESS } else { USAGE.into() }
    })
}

/// The exit code that mount(8) has for it.
fn answer(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_failure(&failure);
            if failure.kind() == Kind::Usage { USAGE.into() } else { FAILED.into() }
        }
    }
}

fn mount(call: &MountCall) -> Result<(), Failure> {
    refuse_namespace(call.namespace.as_deref())?;
    let mut image = ImageSpec::parse(&call.source)?;
    let mut options = HelperOptions::parse(&call.options, call.sloppy)?;
    image.allow_backing = options.allow_backing;
    options.add_defaults(rustix::process::geteuid().is_root());
    // mount(8) finds in the mount table what it has mounted, and a list of options has no commas in it.
    if let Some(source) =
        call.source.to_str().filter(|source| source.starts_with('/') && !source.contains(','))
    {
        options.list.insert(0, format!("fsname={source}"));
    }
    if options.nofail && is_absent(&image) {
        return Ok(());
    }
    if call.read_only {
        options.list.push("ro".to_owned());
    }
    if call.sloppy {
        let snapshot = options.snapshot;
        options
            .list
            .retain(|option| mount::check_options(&image, std::slice::from_ref(option), snapshot).is_ok());
    }
    if !options.is_read_only() && !options.snapshot && is_write_protected(&image) {
        let shown = image.shown();
        line(format_args!("undercroft: {shown} is write-protected, mounted read-only"));
        options.list.push("ro".to_owned());
    }
    mount::check_options(&image, &options.list, options.snapshot)?;
    if call.fake {
        return Ok(());
    }
    mount::run(
        &image,
        &call.dir,
        &options.list,
        options.snapshot,
        options.log.as_deref(),
        options.monitor,
        Serving::Background,
    )
}

fn unmount(call: &UnmountCall) -> Result<(), Failure> {
    refuse_namespace(call.namespace.as_deref())?;
    if call.remount_read_only {
        let what = "cannot remount it read-only (`umount -r`): the kernel has no such change for this mount";
        return Err(Failure::new(Kind::Usage, what).advise("unmount it, and mount it with \"ro\""));
    }
    if !call.lazy && !call.force {
        return mount::unmount(&call.dir);
    }
    let mut umount = Command::new("umount");
    umount.arg("-i");
    for (flag, wanted) in [("-l", call.lazy), ("-f", call.force)] {
        if wanted {
            umount.arg(flag);
        }
    }
    let error = umount.arg("--").arg(&call.dir).exec();
    Err(Failure::host("cannot run umount", &error))
}

fn refuse_namespace(namespace: Option<&OsStr>) -> Result<(), Failure> {
    match namespace {
        None => Ok(()),
        Some(_) => Err(Failure::new(Kind::Usage, "cannot mount in another namespace (`-N`)")
            .advise("run it there: nsenter --mount=NAMESPACE mount ...")),
    }
}

/// Whether there is no such image. What else may be wrong with it is told, as mount(8) does of other types.
fn is_absent(image: &ImageSpec) -> bool {
    let is_file = image.array.is_none() && image.path.as_os_str() != mount::TMPFS;
    is_file && fs::metadata(&image.path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether the image is there and cannot be written to. Of an array the members decide, when it is assembled.
pub(crate) fn is_write_protected(image: &ImageSpec) -> bool {
    if image.array.is_some() {
        return false;
    }
    match rustix::fs::access(&image.path, Access::WRITE_OK) {
        Err(Errno::ROFS | Errno::ACCESS) => true,
        Err(_) => false,
        Ok(()) => is_read_only_device(&image.path),
    }
}

fn is_read_only_device(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    if !found.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|word| word.trim() == "1")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_agree_with_each_other() {
        MountCall::command().debug_assert();
        UnmountCall::command().debug_assert();
    }
}
