//! Mounting: from a directory to an open connection to the kernel.
//!
//! Root mounts by system call: the filesystem of a whole block device as one that the kernel counts among those that lie on
//! disks (`fuseblk`). It is asked for all that was written when a program calls `sync`, and answers before an unmount is
//! over. The kernel claims the device for such a mount, which is given our claim for that.
//!
//! All other users go through `fusermount3`, which is set-user-ID root, checks that
//! the directory is the caller's, mounts, and sends the open descriptor back over a socket. The socket is the
//! helper's standard input, so that it is passed on without being leaked to other children.

use std::env;
use std::ffi::CString;
use std::fs;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use undercroft_block::ClaimedDevice;
use undercroft_block::mountinfo::SUBTYPE;

use crate::mount_point::MountPoint;
use crate::mount_table;
use crate::transport::Device;
use crate::{MountError, MountOptions};

/// How long a claim that another process has for a moment is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// Mounts on `on`, which is `dir`, as the mount table must be able to name it, and returns the connection. `kind` is the
/// kind of filesystem: `ext4`; `claimed` the block device that it lies on, if it is all of one.
pub(crate) fn attach(
    on: &MountPoint,
    dir: &Path,
    kind: &str,
    options: &MountOptions,
    claimed: Option<&dyn ClaimedDevice>,
) -> Result<OwnedFd, MountError> {
    let point = |cause: io::Error| MountError::Point { dir: dir.to_owned(), cause };
    if !dir.metadata().map_err(point)?.is_dir() {
        return Err(point(Errno::NOTDIR.into()));
    }
    if let Some(device) = claimed.filter(|_| !options.read_only)
        && let Some(connection) = attach_device(on, kind, options, device).map_err(point)?
    {
        return Ok(connection);
    }
    match attach_directly(&on.path(), kind, options, None) {
        Ok(connection) => Ok(connection),
        Err(Errno::PERM | Errno::ACCESS) => attach_by_helper(dir, kind, options),
        Err(Errno::NOENT) => Err(point(io::Error::other(without_device()))),
        Err(errno) => Err(point(errno.into())),
    }
}

/// What to do where `/dev/fuse` is missing: in a container mostly, which has the kernel's FUSE and no way to it.
fn without_device() -> &'static str {
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if filesystems.lines().any(|line| line.ends_with("\tfuse")) {
        "there is no /dev/fuse, though the kernel has FUSE: start a container with \"--device /dev/fuse --cap-add SYS_ADMIN\" \
         (docker or podman); elsewhere make it with \"mknod -m 666 /dev/fuse c 10 229\""
    } else {
        "the kernel has no FUSE: load the module with \"modprobe fuse\"; a container also needs \"--device /dev/fuse \
         --cap-add SYS_ADMIN\" (docker or podman)"
    }
}

/// Takes a mount away, at once or when its last user is gone: what lies on `on`, which may be a link in `/proc` to the
/// directory below it; or, for an ordinary user, what lies on `dir`.
pub(crate) fn detach(on: &Path, dir: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(on, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper.arg("-u");
            if flags.contains(UnmountFlags::DETACH) {
                helper.arg("-z");
            }
            let output = helper.arg("--").arg(dir).stdin(Stdio::null()).output().map_err(helper_missing)?;
            if output.status.success() {
                return Ok(());
            }
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if message.contains("busy") {
                return Err(Errno::BUSY.into());
            }
            Err(io::Error::other(message))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// As [`detach`], by another process. A mount on a block device is gone only when its server has answered the last request;
/// a server that is killed while a thread of its own waits for that could not die.
pub(crate) fn detach_by_another(on: &MountPoint, dir: &Path, flags: UnmountFlags) -> io::Result<()> {
    let mut umount = Command::new("umount");
    // By the descriptor, not by the path that it has now; and not by a helper, which would ask this process.
    umount.args(["-c", "-i"]).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::piped());
    if flags.contains(UnmountFlags::DETACH) {
        umount.arg("-l");
    }
    let child = umount.arg("/proc/self/fd/1").stdout(Stdio::from(on.for_child()?)).spawn();
    let Ok(child) = child else { return detach(&on.path(), dir, flags) };
    let output = child.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    match (output.status.success(), message.contains("busy")) {
        (true, _) => Ok(()),
        (false, true) => Err(Errno::BUSY.into()),
        // Busybox has no such option.
        (false, false) => detach(&on.path(), dir, flags),
    }
}

/// Mounts what lies on a block device, if the kernel lets us. It does not in a container, nor where it was built to refuse
/// writes to what is mounted.
fn attach_device(
    on: &MountPoint,
    kind: &str,
    options: &MountOptions,
    device: &dyn ClaimedDevice,
) -> io::Result<Option<OwnedFd>> {
    device.share_claim();
    let give_up = Instant::now() + PATIENCE;
    let mut attached = attach_directly(&on.path(), kind, options, Some(device));
    // A process that was just started holds our claim for a moment.
    while matches!(attached, Err(Errno::BUSY)) && Instant::now() < give_up {
        thread::sleep(PAUSE);
        attached = attach_directly(&on.path(), kind, options, Some(device));
    }
    if attached.is_err() {
        device.claim_again().map_err(io::Error::other)?;
    }
    Ok(attached.ok())
}

/// Mounts by system call. A `device` is the mount's own from then on.
fn attach_directly(
    dir: &Path,
    kind: &str,
    options: &MountOptions,
    device: Option<&dyn ClaimedDevice>,
) -> Result<OwnedFd, Errno> {
    let connection = Device::open().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOATIME, !options.atime);
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        connection.as_fd().as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    for (word, wanted) in words(options) {
        if wanted {
            data.push(',');
            data.push_str(word);
        }
    }
    if let Some(device) = device {
        data.push_str(&format!(",blksize={}", device.soft_block_bytes()));
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    let (source, family) = match device {
        Some(device) => (fs::canonicalize(device.path()).map_err(|_| Errno::NOENT)?, "fuseblk"),
        None => (PathBuf::from(&options.fs_name), "fuse"),
    };
    let fs_type = format!("{family}.{SUBTYPE}{kind}");
    rustix::mount::mount(source, dir, fs_type, flags, data.as_c_str())?;
    Ok(connection.into())
}

/// What the kernel's FUSE takes as words, and whether it is wanted.
fn words(options: &MountOptions) -> [(&'static str, bool); 2] {
    [("allow_other", options.allow_other), ("default_permissions", options.default_permissions)]
}

fn attach_by_helper(dir: &Path, kind: &str, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let refused =
        |message: String| MountError::Helper { dir: dir.to_owned(), message: explained(dir, message) };
    let broken = |cause: io::Error| refused(cause.to_string());
    let (ours, theirs) = UnixStream::pair().map_err(broken)?;
    let mut helper = Command::new("fusermount3")
        .arg("-o")
        .arg(helper_options(kind, options))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| broken(helper_missing(error)))?;
    let connection = receive_descriptor(&ours).map_err(broken)?;
    let mut message = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        stderr.read_to_string(&mut message).map_err(broken)?;
    }
    let status = helper.wait().map_err(broken)?;
    connection.filter(|_| status.success()).ok_or_else(|| refused(message.trim().to_owned()))
}

/// The helper's words, after what it does not say.
fn explained(dir: &Path, message: String) -> String {
    if let Ok(Some(there)) = mount_table::mount_at(dir)
        && !rustix::process::geteuid().is_root()
    {
        let what = there.fs_type;
        return format!("a filesystem is mounted there already ({what}): unmount it first ({message})");
    }
    if rustix::process::geteuid().is_root() {
        // Root comes here only where it lacks a right.
        return format!(
            "this process may not mount: start a container with \"--device /dev/fuse --cap-add SYS_ADMIN\" (docker or podman) \
             ({message})"
        );
    }
    message
}

fn helper_missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::other(format!(
            "fusermount3 is not in {}: install the package fuse3",
            env::var("PATH").unwrap_or_else(|_| "the search path".to_owned())
        )),
        _ => error,
    }
}

fn helper_options(kind: &str, options: &MountOptions) -> String {
    let switch = |on, yes: &str, no: &str| (if on { yes } else { no }).to_owned();
    let mut list = vec![
        switch(options.read_only, "ro", "rw"),
        switch(options.dev, "dev", "nodev"),
        switch(options.suid, "suid", "nosuid"),
        switch(options.exec, "exec", "noexec"),
        switch(options.atime, "atime", "noatime"),
    ];
    list.extend(words(options).into_iter().filter(|(_, wanted)| *wanted).map(|(word, _)| word.to_owned()));
    list.push(format!("fsname={}", options.fs_name.replace('\\', "\\\\").replace(',', "\\,")));
    list.push(format!("subtype={SUBTYPE}{kind}"));
    list.join(",")
}

/// The descriptor that the helper sends; `None` when it closes the socket instead.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut messages = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut data = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(socket, &mut data, &mut messages, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => break,
        }
    }
    Ok(messages.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_commas_stays_one_option() {
        let options = MountOptions {
            fs_name: "/images/a,suid\\b".to_owned(),
            allow_other: true,
            ..MountOptions::default()
        };
        assert_eq!(
            helper_options("ext4", &options),
            "ro,nodev,nosuid,exec,noatime,allow_other,default_permissions,\
             fsname=/images/a\\,suid\\\\b,subtype=undercroft.ext4"
        );
    }
}
