//! The client's side: which servers there are, which of them has an image, and what it answers.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use undercroft_block::mountinfo::{MountDevice, MountTable};

use super::directory::SocketDirectory;
use super::protocol::{self, Answer, Mode, Request, Served, no_answer};
use super::wire::{self, ANSWER_MAX, Lines, REQUEST_LIMIT};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::{DirectoryMount, FileId};
use crate::plan::{ArrayMembers, ArraySpec, ImageSpec};
use crate::text::names::safe;

/// How long a server may take to say what it has mounted.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(5);

/// How long a server of another user may be silent. This user's may work for as long as it lives.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// A server that has said what it has mounted.
#[derive(Debug)]
pub(crate) struct Live {
    stream: UnixStream,
    /// The user that it runs for.
    pub(crate) user: u32,
    pub(crate) served: Served,
}

impl Live {
    /// Asks for something; `during` hears of progress.
    ///
    /// # Errors
    /// What the server refused, or that it did not answer.
    pub(crate) fn ask(&self, request: &Request, during: &mut dyn FnMut(Answer)) -> Result<Answer, Failure> {
        let broken = |error: io::Error| {
            Failure::host(format!("the server of {} cannot be asked", self.point()), &error)
                .advise("its log may say why")
        };
        let line = protocol::line(request).map_err(|error| broken(error.into()))?;
        wire::send(&self.stream, line).map_err(broken)?;
        let mut lines = Lines::new(&self.stream);
        let limit = self.is_of_another().then_some(SILENCE_LIMIT);
        // Each line of progress begins the time anew.
        let may_take_long = matches!(request, Request::MdChange(_) | Request::Grow { .. });
        loop {
            let line = lines.next(ANSWER_MAX, limit).map_err(broken)?;
            let line = line.ok_or_else(|| broken(io::ErrorKind::UnexpectedEof.into()))?;
            match validated(&line, self.is_of_another())? {
                Answer::Refused(refusal) => return Err(refusal.into()),
                progress @ (Answer::Progress(_) | Answer::Growing { .. }) if may_take_long => {
                    during(progress);
                }
                Answer::Progress(_) | Answer::Growing { .. } => {
                    return Err(broken(io::ErrorKind::InvalidData.into()));
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Where it is mounted, safe to show.
    pub(crate) fn point(&self) -> String {
        safe(&self.served.point.0)
    }

    /// Refuses what is done only while it is not mounted; `but` says so.
    pub(crate) fn is_mounted(&self, but: &str) -> Failure {
        let (image, point) = (safe(self.served.image.as_bytes()), self.point());
        Failure::new(Kind::CannotOpen, format!("{image} is mounted on {point}{but}"))
            .advise(format!("`undercroft unmount {point}` first"))
    }

    fn is_of_another(&self) -> bool {
        self.user != rustix::process::geteuid().as_raw()
    }
}

/// The answer in a line. That of another user's server says nothing to the terminal.
fn validated(line: &[u8], is_of_another: bool) -> Result<Answer, Failure> {
    if !is_of_another {
        return protocol::answer(line);
    }
    let mut value: serde_json::Value =
        serde_json::from_slice(line).map_err(|error| no_answer().because(&error))?;
    escape(&mut value);
    protocol::answer(value.to_string().as_bytes())
}

/// Strings that hold what a terminal may act on are shown escaped.
fn escape(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => {
            let shown = safe(text.as_bytes());
            if shown != text.replace('\\', "\\\\") {
                *text = shown;
            }
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(escape),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(escape),
        _ => {}
    }
}

/// All servers that this user may ask, by mount point.
pub(crate) fn servers() -> Vec<Live> {
    servers_of(&|_| true)
}

/// The same of this user, and for root of other users that are `wanted`: others cannot delay the answer.
fn servers_of(wanted: &dyn Fn(u32) -> bool) -> Vec<Live> {
    let request = protocol::line(&Request::Describe).unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    let mut asked = Vec::new();
    for directory in SocketDirectory::all(wanted) {
        for name in directory.sockets() {
            let Ok(stream) = connect(&directory, &name) else { continue };
            // Asked all at once, so that a server that does not answer costs its time once.
            if wire::peer(&stream).is_ok_and(|user| user == directory.owner)
                && wire::send(&stream, request.clone()).is_ok()
            {
                asked.push((stream, directory.owner));
            }
        }
    }
    let end = std::time::Instant::now() + DESCRIBE_LIMIT;
    let mut found = Vec::new();
    for (stream, user) in asked {
        let left = end.saturating_duration_since(std::time::Instant::now());
        let left = left.max(Duration::from_millis(10));
        let line = Lines::new(&stream).next(ANSWER_MAX, Some(left));
        let Ok(Some(line)) = line else { continue };
        let Ok(Answer::Served(served)) = validated(&line, user != own) else { continue };
        let live = Live { stream, user, served: *served };
        if user == own || owner_of_mount(live.served.device) == Some(user) {
            found.push(live);
        }
    }
    found.sort_by(|one, other| one.served.point.0.cmp(&other.served.point.0));
    found
}

/// The server that has what the user named: a directory inside a mount, or an image that is mounted for writing. Others may
/// have it for reading beside; what they show is what the image shows.
///
/// # Errors
/// Several servers have it.
pub(crate) fn find(spec: &ImageSpec) -> Result<Option<Live>, Failure> {
    if !spec.lock {
        // The image itself is asked for, whatever uses it.
        return Ok(None);
    }
    if let Some(mount) = directory_mount(spec) {
        let owner = owner_of_mount(mount.device);
        let mut servers = servers_of(&|user| owner == Some(user)).into_iter();
        let found = servers.find(|live| live.served.device == mount.device);
        // The number would be another mount's if this one was taken away meanwhile.
        return Ok(found.filter(|_| directory_mount(spec) == Some(mount)));
    }
    let files = files_of(spec);
    if files.is_empty() {
        return Ok(None);
    }
    let servers = servers_of(&|user| files.iter().any(|&(_, owner)| owner == user));
    let mut found: Vec<Live> = servers.into_iter().filter(|live| has(live, spec, &files)).collect();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => {
            let points: Vec<String> = found.iter().map(Live::point).collect();
            let what = format!("{} is mounted more than once: on {}", spec.shown(), points.join(", "));
            Err(Failure::new(Kind::CannotOpen, what).advise("name the mount by its directory"))
        }
    }
}

/// Where the image is mounted that the user named, for reading or for writing, and the numbers of the mounts' devices.
pub(crate) fn points(spec: &ImageSpec) -> Vec<(PathBuf, u64)> {
    let files = files_of(spec);
    let servers = servers_of(&|user| files.iter().any(|&(_, owner)| owner == user));
    servers
        .iter()
        .filter(|live| has_in_any_way(live, spec, &files))
        .map(|live| (live.served.point.to_path(), live.served.device))
        .collect()
}

/// As [`find`], where there is nothing to do without a server.
///
/// # Errors
/// There is none.
pub(crate) fn require(spec: &ImageSpec) -> Result<Live, Failure> {
    find(spec)?.ok_or_else(|| {
        let what = match directory_mount(spec) {
            Some(_) => "is a directory, and in no mount of `undercroft mount` that can be asked",
            None => "is not mounted for writing by `undercroft mount`, as far as can be asked",
        };
        Failure::new(Kind::CannotOpen, format!("{} {what}", spec.shown()))
            .advise("`undercroft mounts` lists what is mounted")
    })
}

/// Refuses a directory as an image, where no server has it.
///
/// # Errors
/// It is one.
pub(crate) fn refuse_directory(spec: &ImageSpec) -> Result<(), Failure> {
    if directory_mount(spec).is_some() { require(spec).map(drop) } else { Ok(()) }
}

/// Whether this is a directory, and no image: the mount that it is in. A server whose event loops all wait is not asked.
fn directory_mount(spec: &ImageSpec) -> Option<DirectoryMount> {
    if spec.array.is_some() {
        return None;
    }
    let hidden = || Some(DirectoryMount { device: device_mounted_on(&spec.path)?, mount: None });
    DirectoryMount::of(&spec.path).or_else(hidden)
}

/// The number of a filesystem of ours that is mounted on this directory, by the table of mounts: the kernel keeps root out
/// of another user's mount.
fn device_mounted_on(path: &Path) -> Option<u64> {
    match rustix::fs::stat(path) {
        Err(Errno::ACCESS) => {}
        _ => return None,
    }
    let above = std::path::absolute(path).ok()?;
    let point = above.parent()?.canonicalize().ok()?.join(above.file_name()?);
    let table = MountTable::own().ok()?;
    let mount = table.mounts().rfind(|mount| mount.point == point)?;
    mount.is_ours().then(|| rustix::fs::makedev(mount.device.major, mount.device.minor))
}

/// The files that the user named, with their owners.
fn files_of(spec: &ImageSpec) -> Vec<(FileId, u32)> {
    match &spec.array {
        None => ImageSpec { partition: None, ..spec.clone() }.file_id().into_iter().collect(),
        Some(ArraySpec { members: ArrayMembers::Listed(members), .. }) => {
            members.iter().filter_map(ImageSpec::file_id).collect()
        }
        Some(ArraySpec { members: ArrayMembers::In(dir), .. }) => {
            let names = fs::read_dir(dir).into_iter().flatten().flatten();
            names.filter_map(|entry| ImageSpec::plain(entry.path()).file_id()).collect()
        }
    }
}

fn has(live: &Live, spec: &ImageSpec, files: &[(FileId, u32)]) -> bool {
    live.served.mode == Mode::ReadWrite && has_in_any_way(live, spec, files)
}

fn has_in_any_way(live: &Live, spec: &ImageSpec, files: &[(FileId, u32)]) -> bool {
    let served = &live.served;
    // Only root trusts that a file is open in a process of its owner, and nothing more.
    let is_named = |id: &FileId| {
        files.iter().any(|(named, owner)| named == id && (!live.is_of_another() || *owner == live.user))
    };
    let uuid = spec.array.as_ref().and_then(|array| array.uuid).map(|uuid| uuid.to_string());
    served.is_array == spec.array.is_some()
        && served.files.iter().any(is_named)
        && spec.partition.is_none_or(|number| served.partition == Some(number.get()))
        && uuid.is_none_or(|uuid| served.array_uuid.as_ref() == Some(&uuid))
}

/// Whether nothing listens on a socket any more.
pub(super) fn is_dead(directory: &SocketDirectory, name: &str) -> bool {
    connect(directory, name).is_err_and(|errno| errno == Errno::CONNREFUSED)
}

/// Without waiting: a server that does not accept could keep its clients otherwise.
fn connect(directory: &SocketDirectory, name: &str) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(directory.at(name))?)?;
    let stream = UnixStream::from(socket);
    stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(Some(REQUEST_LIMIT)))
        .map_err(|_| Errno::IO)?;
    Ok(stream)
}

/// The user that a mount of ours with this device number was mounted for, as the kernel has it.
fn owner_of_mount(device: u64) -> Option<u32> {
    let device = MountDevice { major: rustix::fs::major(device), minor: rustix::fs::minor(device) };
    let table = MountTable::own().ok()?;
    let mount = table.mounts().find(|mount| mount.device == device && mount.is_ours())?;
    mount.owner().map(|(user, _)| user)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::escape;

    #[test]
    fn what_another_users_server_says_does_not_reach_the_terminal_raw() {
        let mut value = json!({"a": ["plain \\ text", "\u{1b}[2J", {"b": "one\ntwo"}], "n": 1});
        escape(&mut value);
        assert_eq!(value, json!({"a": ["plain \\ text", "\\x1b[2J", {"b": "one\\ntwo"}], "n": 1}));
    }
}
