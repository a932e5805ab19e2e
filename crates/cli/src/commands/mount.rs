//! `mount`, `unmount`, `sync`, `freeze` and `thaw`; `served` is what other commands ask of a mount.
//!
//! In the background form this program starts itself again with `--foreground --announce`; that process opens the
//! image, mounts, says `ready` on its standard output, leaves the terminal and serves. Its parent waits for the word,
//! so that the files are there when the command returns; a failure before it is reported in the terminal by the
//! process that met it, with its exit code. Later failures go to a log.

mod monitor;
mod served;
mod source;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use undercroft_fuse::{CloseBelow, Fault, FaultSink, MountError, MountOptions, SyncError, UnmountError};
use undercroft_sync::{Mutex, order};

use served::{ServedMount, Source};
use source::MountSource;
pub(crate) use source::TMPFS;

use super::mount_log::MountLog;
use crate::control::client;
use crate::control::protocol::Request;
use crate::control::server::Control;
use crate::exit::Kind;
use crate::failure::{Failure, print_failure};
use crate::file_id::device_of_directory;
use crate::image::array_events::{self, Listener, Tell};
use crate::plan::{ImageSpec, Serving};
use crate::text::names::safe;
use crate::text::note::line;

/// What the process in the background says when the files can be read.
const READY: &str = "ready";

/// Mounts and, unless another process does it, serves until unmounted.
pub(crate) fn run(
    image: &ImageSpec,
    dir: &Path,
    options: &[String],
    snapshot: bool,
    log: Option<&Path>,
    monitor: Option<PathBuf>,
    how: Serving,
) -> Result<(), Failure> {
    let (source, mut settings) = MountSource::parse(image, options, snapshot)?;
    let monitor = monitor.map(|program| monitor::find(&program, image)).transpose()?;
    check_point(dir, image)?;
    require_dev(dir)?;
    if how == Serving::Background {
        return in_background(image, dir, options, snapshot, log, monitor.as_deref());
    }
    let log = if how == Serving::Foreground && log.is_none() {
        None
    } else {
        Some(Arc::new(MountLog::open(log, &source.shown(), dir)?))
    };
    let tell: Tell = match log.clone() {
        Some(log) => Arc::new(move |failure| log.add(failure)),
        None => Arc::new(print_failure),
    };
    array_events::listen(Listener { tell: Arc::clone(&tell), in_terminal: log.is_none(), program: monitor });
    let is_logged = log.is_some();
    let tell_fault = Arc::clone(&tell);
    settings.faults = FaultSink::new(move |what| match what {
        // In the terminal this program says it when it ends.
        Fault::End(_) if !is_logged => {}
        what => tell_fault(&fault(what)),
    });
    if how == Serving::Announcing {
        // A background process only needs to be outside of the terminal's session. This fails only for a process that
        // leads a group, which needs no change then.
        let _ = rustix::process::setsid();
    }
    if !settings.read_only {
        undercroft_fuse::become_io_flusher();
    }
    let control = Control::new();
    let mounted = mount(&source, dir, settings, &control, log.as_ref().and_then(|log| log.path()), &tell)?;
    if how == Serving::Announcing {
        let mut stdout = io::stdout();
        writeln!(stdout, "{READY}")?;
        stdout.flush()?;
        let_go().map_err(|error| Failure::host("cannot leave the terminal", &error))?;
    } else if io::stderr().is_terminal() {
        let dir = safe(dir.as_os_str().as_bytes());
        line(format_args!(
            "{} is mounted on {dir}; interrupt or `undercroft unmount` ends it",
            image.shown()
        ));
    }
    let ended = mounted.wait();
    // Not all ends close what the filesystem lies on.
    control.end();
    ended.map_err(|error| mount_failure(&error))
}

/// Refuses what [`run`] would refuse for its options.
pub(crate) fn check_options(image: &ImageSpec, options: &[String], snapshot: bool) -> Result<(), Failure> {
    MountSource::parse(image, options, snapshot).map(drop)
}

/// Takes a mount away and waits until its server has closed the image, which may be named in the directory's place.
pub(crate) fn unmount(dir: &Path) -> Result<(), Failure> {
    let unmounted = match undercroft_fuse::unmount(dir) {
        // The name of an array may lead nowhere as a path.
        Err(error @ (UnmountError::NotMounted(_) | UnmountError::Refused { .. })) => {
            match point_of_image(dir)? {
                Some((point, device)) => undercroft_fuse::unmount_device(&point, device),
                None => Err(error),
            }
        }
        unmounted => unmounted,
    };
    unmounted.map_err(|error| {
        let advice = match &error {
            UnmountError::NotMounted(_) => Some("`findmnt` lists what is mounted".to_owned()),
            UnmountError::Foreign { .. } => Some("use `umount` for it".to_owned()),
            UnmountError::MountedElsewhere { dir, process } => {
                let dir = safe(dir.as_os_str().as_bytes());
                Some(format!("unmount it there, as root: nsenter -t {process} -m umount {dir}"))
            }
            _ => None,
        };
        let kind = if matches!(error, UnmountError::ServerFailed(_)) { Kind::Io } else { Kind::Host };
        let failure = Failure::of(kind, &error);
        advice.into_iter().fold(failure, Failure::advise)
    })
}

/// Where what was named is mounted, if it is an image or an array, and the number of its device.
fn point_of_image(image: &Path) -> Result<Option<(PathBuf, u64)>, Failure> {
    // What is no image's name has been refused as a directory.
    let Ok(spec) = ImageSpec::parse(image.as_os_str()) else { return Ok(None) };
    let points = client::points(&spec);
    match &points[..] {
        [] => Ok(None),
        [point] => Ok(Some(point.clone())),
        _ => {
            let shown: Vec<String> =
                points.iter().map(|(point, _)| safe(point.as_os_str().as_bytes())).collect();
            let what = format!("{} is mounted more than once: on {}", spec.shown(), shown.join(", "));
            Err(Failure::new(Kind::Usage, what).advise("name the directory"))
        }
    }
}

/// Holds back what is written to an image that is mounted.
pub(crate) fn freeze(image: &ImageSpec) -> Result<(), Failure> {
    let live = client::require(image)?;
    // What the kernel caches, first.
    let point = live.served.point.to_path();
    if device_of_directory(&point) == Some(live.served.device) && !live.served.is_frozen {
        sync_directory(&point)?;
    }
    live.ask(&Request::Freeze, &mut |_| ()).map(drop)
}

/// Lets it go on.
pub(crate) fn thaw(image: &ImageSpec) -> Result<(), Failure> {
    client::require(image)?.ask(&Request::Thaw, &mut |_| ()).map(drop)
}

/// Makes everything durable that was written through a mount.
pub(crate) fn sync(image: &ImageSpec) -> Result<(), Failure> {
    if device_of_directory(&image.path).is_some() && image.array.is_none() {
        return sync_directory(&image.path);
    }
    let live = client::require(image)?;
    let point = live.served.point.to_path();
    // What is there may be another mount by now, or hidden from here.
    if device_of_directory(&point) != Some(live.served.device) {
        let what = format!("{} is mounted on {}, which is not seen from here", image.shown(), live.point());
        return Err(Failure::new(Kind::Host, what));
    }
    sync_directory(&point)
}

fn sync_directory(dir: &Path) -> Result<(), Failure> {
    undercroft_fuse::sync(dir).map_err(|error| {
        let advice = match &error {
            SyncError::NotOurs(_) => Some("use `sync -f` for it"),
            SyncError::Unseen { .. } => Some("run it as root"),
            _ => None,
        };
        let failure = Failure::of(Kind::Host, &error);
        advice.into_iter().fold(failure, Failure::advise)
    })
}

fn mount(
    source: &MountSource<'_>,
    dir: &Path,
    settings: MountOptions,
    control: &Arc<Control>,
    log: Option<PathBuf>,
    tell: &Tell,
) -> Result<undercroft_fuse::Mounted, Failure> {
    let (vfs, array, source) = source.open()?;
    let ended = Arc::clone(control);
    let below: CloseBelow = Box::new(move || {
        // Requests under way may hold the array.
        ended.end();
        array.map_or(Ok(()), |open| open.array.close().map_err(Into::into))
    });
    let mut mounted =
        undercroft_fuse::mount_above(vfs, below, dir, settings).map_err(|error| mount_failure(&error))?;
    let served = ServedMount {
        source: Source { log, ..source },
        point: mounted.dir().to_owned(),
        device: mounted.device_number(),
        connection: mounted.connection(),
        control: Arc::downgrade(control),
        growing: Mutex::new(&order::MOUNT, ()),
    };
    if let Err(error) = control.begin(Arc::new(served)) {
        let what =
            "there is no control socket, so that `md`, `df`, `info` and the like do not reach this mount";
        tell(&Failure::host(what, &error));
    }
    mounted.unmount_on_signals().map_err(|error| mount_failure(&error))?;
    Ok(mounted)
}

fn fault(what: &Fault<'_>) -> Failure {
    match what {
        Fault::Filesystem(error) => Failure::of(Kind::of(error), error),
        Fault::End(error) => mount_failure(error),
        _ => Failure::new(Kind::Host, what.to_string()),
    }
}

fn mount_failure(error: &MountError) -> Failure {
    let kind = match error {
        MountError::Options(_) => Kind::Usage,
        MountError::Root(cause) | MountError::Sync { cause, .. } => Kind::of(cause),
        MountError::Below { .. } => Kind::Io,
        _ => Kind::Host,
    };
    Failure::of(kind, error)
}

/// The processes of a mount are started with /dev/null for what they do not read.
fn require_dev(dir: &Path) -> Result<(), Failure> {
    if Path::new("/dev/null").exists() {
        return Ok(());
    }
    let dir = safe(dir.as_os_str().as_bytes());
    Err(Failure::new(Kind::Host, format!("cannot mount on {dir}: there is no /dev/null")).advise(
        "programs need a /dev, and a mount /dev/fuse in it, as `docker run --device /dev/fuse` and `podman run \
         --device /dev/fuse` make them",
    ))
}

/// The usual mistakes with a mount point, in words.
fn check_point(dir: &Path, image: &ImageSpec) -> Result<(), Failure> {
    let shown = safe(dir.as_os_str().as_bytes());
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => {
            let failure = Failure::new(Kind::Host, format!("cannot mount on {shown}: it is not a directory"));
            Err(if image.array.is_none() && image.path.is_dir() {
                failure.advise(format!("the image comes first: undercroft mount {shown} {}", image.shown()))
            } else {
                failure
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::host(format!("cannot mount on {shown}"), &error)
                .advise(format!("make the directory first: mkdir {shown}")))
        }
        Err(error) => Err(Failure::host(format!("cannot mount on {shown}"), &error)),
    }
}

fn in_background(
    image: &ImageSpec,
    dir: &Path,
    options: &[String],
    snapshot: bool,
    log: Option<&Path>,
    monitor: Option<&Path>,
) -> Result<(), Failure> {
    let host = |error: io::Error| Failure::host("cannot start the process that serves the mount", &error);
    let mut command = Command::new(env::current_exe().map_err(host)?);
    command.args(["mount", "--foreground", "--announce"]);
    if image.direct {
        command.arg("--direct");
    }
    if !image.lock {
        command.arg("--no-lock");
    }
    if image.write_while_in_use {
        command.arg("--write-while-in-use");
    }
    if image.allow_backing {
        command.arg("--allow-backing");
    }
    if snapshot {
        command.arg("--snapshot");
    }
    if !options.is_empty() {
        command.arg("-o").arg(options.join(","));
    }
    for (option, value) in [("--log=", log), ("--monitor=", monitor)] {
        if let Some(value) = value {
            // In one word, since a name may begin with a dash.
            let mut word = OsString::from(option);
            word.push(value);
            command.arg(word);
        }
    }
    command.arg("--").arg(image.typed()).arg(dir);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(host)?;
    let mut word = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut word).map_err(host)?;
    }
    if word.trim_end() == READY {
        return Ok(());
    }
    // It has said on standard error what was wrong; what is left to hand on is the number.
    let status = child.wait().map_err(host)?;
    Err(match status.code() {
        Some(code) => Failure::told(Kind::of_code(code)),
        None => Failure::new(Kind::Host, format!("the process that serves the mount was killed: {status}")),
    })
}

/// Gives the terminal and the working directory back, so that nothing but the mount keeps them.
fn let_go() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    env::set_current_dir("/")
}
