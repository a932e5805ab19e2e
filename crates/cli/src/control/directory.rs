//! Where sockets lie: `undercroft` in the user's runtime directory.
//!
//! Root has `/run/undercroft`; other users `$XDG_RUNTIME_DIR/undercroft`, `/run/user/UID/undercroft`, and where there
//! is no runtime directory `/tmp/undercroft-UID`. A root that may not write to `/run`, as in a user namespace, goes on
//! as other users do. The directory belongs to the user and has mode 0700; any other is not used. Another user that
//! takes the name in `/tmp` first can only keep a mount from having a socket.
//!
//! A directory is opened once and then used by its descriptor, so that its name may lead elsewhere afterwards.

use std::env;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// No more names of a directory are looked at.
const NAMES_MAX: usize = 1024;

/// A directory of sockets that belongs to one user.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    fd: OwnedFd,
    pub(super) owner: u32,
}

impl SocketDirectory {
    /// This user's, for a new socket. Made if there is none.
    pub(super) fn make() -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let mut first = None;
        for path in candidates(user) {
            match Self::make_at(&path, user) {
                Ok(made) => return Ok(made),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(first.unwrap_or_else(|| Errno::NOENT.into()))
    }

    fn make_at(path: &Path, user: u32) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            let parent = rustix::fs::stat(parent)?;
            let shared = parent.st_mode & 0o022 != 0 && parent.st_mode & 0o1000 == 0;
            if parent.st_uid != user && parent.st_uid != 0 || shared {
                return Err(refused(path, "the directory that it lies in is not safe"));
            }
        }
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path, user),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The directory of `user` at this path, if it is one.
    fn open(path: &Path, user: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&fd)?;
        if found.st_uid != user {
            return Err(refused(path, "it belongs to another user"));
        }
        if found.st_mode & 0o077 != 0 {
            return Err(refused(path, "other users have access to it; its mode must be 0700"));
        }
        Ok(Self { fd, owner: user })
    }

    /// Those that a client looks into: its user's, and for root those of all users that are `wanted`.
    pub(super) fn all(wanted: &dyn Fn(u32) -> bool) -> Vec<Self> {
        let user = rustix::process::geteuid().as_raw();
        let own = candidates(user).into_iter().map(|path| (path, user));
        let others = (user == 0).then(of_other_users).unwrap_or_default();
        let mut found = Vec::new();
        let mut seen = Vec::new();
        for (path, user) in own.chain(others.into_iter().filter(|&(_, user)| wanted(user))) {
            let Ok(directory) = Self::open(&path, user) else { continue };
            let Ok(stat) = rustix::fs::fstat(&directory.fd) else { continue };
            if !seen.contains(&(stat.st_dev, stat.st_ino)) {
                seen.push((stat.st_dev, stat.st_ino));
                found.push(directory);
            }
        }
        found
    }

    /// The path of a name in it, whatever the directory is called by now.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    /// The names of sockets in it.
    pub(super) fn sockets(&self) -> Vec<String> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        let names = fs::read_dir(path).into_iter().flatten().take(NAMES_MAX).flatten();
        let mut names: Vec<String> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| self.has(name))
            .collect();
        names.sort_unstable();
        names
    }

    fn has(&self, name: &str) -> bool {
        let found = rustix::fs::statat(&self.fd, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        name.ends_with(".sock")
            && found.is_ok_and(|found| {
                FileType::from_raw_mode(found.st_mode) == FileType::Socket && found.st_uid == self.owner
            })
    }

    pub(super) fn remove(&self, name: &str) {
        // It goes with the next server that starts, otherwise.
        let _ = rustix::fs::unlinkat(&self.fd, name, rustix::fs::AtFlags::empty());
    }

    /// Only the server that makes a socket, or removes those of killed servers, until this is called with `false`.
    pub(super) fn lock(&self, locked: bool) -> io::Result<()> {
        let how = if locked { FlockOperation::LockExclusive } else { FlockOperation::Unlock };
        Ok(rustix::fs::flock(&self.fd, how)?)
    }
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{} cannot hold it: {why}", path.display()))
}

/// Where the directory of a user may be, the best place first.
fn candidates(user: u32) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if user == 0 {
        paths.push(PathBuf::from("/run/undercroft"));
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    // One of another user's, as sudo may leave it, is not ours to use.
    let runtime = runtime.filter(|path| rustix::fs::stat(path).is_ok_and(|found| found.st_uid == user));
    paths.extend(runtime.map(|path| path.join("undercroft")));
    if user != 0 {
        paths.push(PathBuf::from(format!("/run/user/{user}/undercroft")));
    }
    paths.push(PathBuf::from(format!("/tmp/undercroft-{user}")));
    paths
}

/// Where those of other users may be, as far as root can know.
fn of_other_users() -> Vec<(PathBuf, u32)> {
    let names = |dir: &'static str| {
        let names = fs::read_dir(dir).into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().into_string().ok())
    };
    let of_session = names("/run/user").filter_map(|name| {
        let user = name.parse().ok()?;
        Some((PathBuf::from(format!("/run/user/{name}/undercroft")), user))
    });
    let fallback = names("/tmp").filter_map(|name| {
        let user = name.strip_prefix("undercroft-")?.parse().ok()?;
        Some((PathBuf::from("/tmp").join(&name), user))
    });
    of_session.chain(fallback).filter(|&(_, user)| user != 0).take(NAMES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_of_another_user_or_open_to_others_is_not_used() {
        let user = rustix::process::geteuid().as_raw();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undercroft");
        SocketDirectory::make_at(&path, user).unwrap();
        assert!(SocketDirectory::open(&path, user + 1).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
        assert!(SocketDirectory::make_at(&path, user).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(SocketDirectory::make_at(&link, user).is_err());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(SocketDirectory::make_at(&dir.path().join("new"), user).is_err());
    }
}
