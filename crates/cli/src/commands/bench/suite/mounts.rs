//! What a suite measures through mounts: ours, the kernel's, and fuse2fs's, on new images in a directory of their own.
//!
//! All images are made by this program, so that contenders differ in nothing but the program that serves them. What cannot be mounted is
//! a gap, with what the refusing program said. When this is dropped, everything is unmounted, and the images go.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use undercroft_bench::Target;
use undercroft_bench::suite::{Contender, Filesystem, Gap, Role, Size};

use crate::plan::Against;

/// Where images lie in memory.
const MEMORY: &str = "/dev/shm";
const MIB: u64 = 1 << 20;
/// Members of an array.
const MEMBERS: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];

/// Mounts, and where they are.
pub(super) struct Mounts {
    /// Unmounted before the directory goes.
    mounted: Vec<Mounted>,
    contenders: Vec<Contender>,
    gaps: Vec<Gap>,
    /// `None` if there is no place for images.
    _dir: Option<TempDir>,
}

/// One of them.
struct Mounted {
    role: Role,
    point: PathBuf,
}

/// How large things are.
#[derive(Clone, Copy)]
struct Sizes {
    image_mib: u64,
    inodes: u64,
}

impl Mounts {
    /// Makes and mounts all that can be had.
    pub(super) fn make(against: Against, size: Size) -> Self {
        let sizes = match size {
            Size::Quick => Sizes { image_mib: 1024, inodes: 200_000 },
            Size::Full => Sizes { image_mib: 3072, inodes: 500_000 },
        };
        let mut mounts = Self { mounted: Vec::new(), contenders: Vec::new(), gaps: Vec::new(), _dir: None };
        mounts.all(against, sizes);
        mounts
    }

    pub(super) fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    pub(super) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn all(&mut self, against: Against, sizes: Sizes) {
        let dir = match self.directory(sizes) {
            Ok(dir) => dir,
            Err(error) => {
                self.gaps.push(Gap::new("all mounts", format!("there is no place for images: {error}")));
                return;
            }
        };
        let path = dir.path().to_owned();
        self._dir = Some(dir);
        for filesystem in Filesystem::ALL {
            self.add(Role::Mount, filesystem, &path, sizes);
        }
        if against.kernel {
            for filesystem in [Filesystem::Tmpfs, Filesystem::Ext4, Filesystem::Xfs] {
                self.add(Role::Kernel, filesystem, &path, sizes);
            }
            let why = "not part of the suite; `cargo xtask bench md` of the sources measures it";
            self.gaps.push(Gap::new("RAID5, kernel", why));
        } else {
            self.gaps
                .push(Gap::new("Linux's own filesystems", "not asked for; --against kernel measures them"));
        }
        if against.fuse2fs {
            self.add(Role::Fuse2fs, Filesystem::Ext4, &path, sizes);
        } else {
            self.gaps.push(Gap::new("fuse2fs", "not asked for; --against fuse2fs measures it"));
        }
    }

    /// In memory where there is room for all images in full.
    fn directory(&mut self, sizes: Sizes) -> io::Result<TempDir> {
        const IMAGES: u64 = 7;
        // What an end by force leaves behind is known by its process.
        let prefix = format!("undercroft-suite-{}-", std::process::id());
        let make = |below: &Path| tempfile::Builder::new().prefix(&prefix).tempdir_in(below);
        let needed = IMAGES * sizes.image_mib * MIB;
        let free =
            rustix::fs::statvfs(MEMORY).map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize));
        if free >= needed
            && let Ok(dir) = make(Path::new(MEMORY))
        {
            return Ok(dir);
        }
        let below = env::temp_dir();
        let why = format!(
            "{MEMORY} has no room for {} GiB, so images lie in {}, and the disk under it is measured too",
            needed >> 30,
            below.display()
        );
        self.gaps.push(Gap::new("mounts of images in memory", why));
        make(&below)
    }

    /// Mounts one, or says why not.
    fn add(&mut self, role: Role, filesystem: Filesystem, below: &Path, sizes: Sizes) {
        let point = below.join(format!("{}-{}", role.name(), filesystem.name()));
        let contender = Contender::mounted(role, filesystem, Target::Mounted(point.clone()));
        let made = fs::create_dir(&point).map_err(|error| error.to_string());
        let mounted = made.and_then(|()| match role {
            Role::Kernel => by_kernel(filesystem, &point, sizes),
            Role::Fuse2fs => by_fuse2fs(&point, sizes),
            _ => by_us(filesystem, &point, sizes),
        });
        match mounted {
            Ok(()) => {
                self.mounted.push(Mounted { role, point });
                self.contenders.push(contender);
            }
            Err(why) => self.gaps.push(Gap::new(contender.name, why)),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let point = self.point.as_os_str();
        let unmounted = match self.role {
            Role::Mount => us(&[OsStr::new("unmount"), point]),
            _ => run(Command::new("umount").arg(point))
                .or_else(|_| run(Command::new("fusermount3").arg("-u").arg(point))),
        };
        // A mount that is in use goes when it is no longer; the images are as good as gone.
        if unmounted.is_err() {
            let _ = run(Command::new("umount").arg("-l").arg(point))
                .or_else(|_| run(Command::new("fusermount3").args(["-u", "-z"]).arg(point)));
        }
    }
}

fn by_us(filesystem: Filesystem, point: &Path, sizes: Sizes) -> Result<(), String> {
    let image = match filesystem {
        Filesystem::Tmpfs => "tmpfs:".into(),
        Filesystem::Raid5 => array(point, sizes)?,
        _ => image(filesystem, point, sizes)?.into_os_string(),
    };
    us(&["mount".as_ref(), "-o".as_ref(), "rw".as_ref(), &*image, point.as_os_str()])
}

fn by_kernel(filesystem: Filesystem, point: &Path, sizes: Sizes) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("mounting needs root".to_owned());
    }
    let mut command = Command::new("mount");
    if filesystem == Filesystem::Tmpfs {
        let size = format!("size={}m", sizes.image_mib);
        return run(command.args(["-t", "tmpfs", "-o", &size, "undercroft-suite"]).arg(point));
    }
    run(command.args(["-o", "loop"]).arg(image(filesystem, point, sizes)?).arg(point))
}

fn by_fuse2fs(point: &Path, sizes: Sizes) -> Result<(), String> {
    // With the rights of the image's owner, as our mount has for root.
    run(Command::new("fuse2fs")
        .args(["-o", "rw,fakeroot"])
        .arg(image(Filesystem::Ext4, point, sizes)?)
        .arg(point))
}

/// A new image, beside the directory that it is mounted on.
fn image(filesystem: Filesystem, point: &Path, sizes: Sizes) -> Result<PathBuf, String> {
    let path = point.with_extension("img");
    let (size, inodes) = (format!("{}M", sizes.image_mib), sizes.inodes.to_string());
    let words: &[&str] = match filesystem {
        Filesystem::Xfs => &["mkfs", "xfs", "--size", &size],
        _ => &["mkfs", "ext4", "--no-conf", "-N", &inodes, "--size", &size],
    };
    let words = words.iter().map(OsStr::new).chain([path.as_os_str()]).collect::<Vec<_>>();
    us(&words)?;
    Ok(path)
}

/// A new array with an ext4 on it, as an image is named.
fn array(point: &Path, sizes: Sizes) -> Result<std::ffi::OsString, String> {
    let dir = point.with_extension("members");
    fs::create_dir(&dir).map_err(|error| error.to_string())?;
    let members = MEMBERS.map(|name| dir.join(name));
    // Three members hold what an image holds.
    let size = format!("{}M", sizes.image_mib / 3);
    let words = ["md", "create", "--level", "5", "--chunk", "64K", "--member-size", &size].map(OsStr::new);
    us(&words.into_iter().chain(members.iter().map(|path| path.as_os_str())).collect::<Vec<_>>())?;
    let mut image = std::ffi::OsString::from("md:");
    image.push(&dir);
    let inodes = sizes.inodes.to_string();
    us(&[
        "mkfs".as_ref(),
        "ext4".as_ref(),
        "--no-conf".as_ref(),
        "-N".as_ref(),
        OsStr::new(&inodes),
        &*image,
    ])?;
    Ok(image)
}

/// Runs this program.
fn us(words: &[&OsStr]) -> Result<(), String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    run(Command::new(program).args(words))
}

/// Runs a command to its end; its last words if it fails. In a process group of its own Ctrl-C does not reach it, so that what
/// it mounts is known here, and is unmounted.
fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).process_group(0).output().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => format!("{name} is not installed"),
            _ => format!("{name} cannot be started: {error}"),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let last = last.strip_prefix("undercroft: ").unwrap_or(last);
    Err(if last.is_empty() { format!("{name} failed: {}", output.status) } else { last.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_last_is_the_reason() {
        assert_eq!(run(&mut Command::new("true")), Ok(()));
        let said = run(
            Command::new("sh").args(["-c", "echo first >&2; echo undercroft: no room >&2; echo; exit 1"])
        );
        assert_eq!(said, Err("no room".to_owned()));
        assert_eq!(
            run(Command::new("sh").args(["-c", "exit 3"])),
            Err("sh failed: exit status: 3".to_owned())
        );
        let missing = run(&mut Command::new("/nowhere/to-be-found"));
        assert_eq!(missing, Err("/nowhere/to-be-found is not installed".to_owned()));
    }
}
