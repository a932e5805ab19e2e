//! What tests need from the system, installed by the system's own package manager: only what is missing, and
//! never silently.

use std::path::Path;

use crate::step::{self, Outcome, command};

/// How a package manager is called. `names` picks its column of [`NEEDS`].
struct Manager {
    program: &'static str,
    refresh: Option<&'static [&'static str]>,
    install: &'static [&'static str],
    names: fn(&Need) -> &'static str,
}

const MANAGERS: &[Manager] = &[
    Manager {
        program: "apt-get",
        refresh: Some(&["update", "-q"]),
        install: &["install", "-q", "-y", "--no-install-recommends"],
        names: |need| need.apt,
    },
    Manager { program: "dnf", refresh: None, install: &["install", "-y"], names: |need| need.dnf },
    Manager {
        program: "pacman",
        refresh: Some(&["-Sy", "--noconfirm"]),
        install: &["-S", "--noconfirm", "--needed"],
        names: |need| need.pacman,
    },
    Manager { program: "apk", refresh: None, install: &["add"], names: |need| need.apk },
    Manager {
        program: "zypper",
        refresh: None,
        install: &["--non-interactive", "install", "--no-recommends"],
        names: |need| need.zypper,
    },
];

/// A program, under any of the names before and behind a bar, and the packages that have it.
struct Need {
    program: &'static str,
    apt: &'static str,
    dnf: &'static str,
    pacman: &'static str,
    apk: &'static str,
    zypper: &'static str,
}

const fn need(program: &'static str, [apt, dnf, pacman, apk, zypper]: [&'static str; 5]) -> Need {
    Need { program, apt, dnf, pacman, apk, zypper }
}

const NEEDS: &[Need] = &[
    need("mke2fs", ["e2fsprogs"; 5]),
    need("e2fsck", ["e2fsprogs"; 5]),
    need("debugfs", ["e2fsprogs", "e2fsprogs", "e2fsprogs", "e2fsprogs-extra", "e2fsprogs"]),
    need("tune2fs", ["e2fsprogs", "e2fsprogs", "e2fsprogs", "e2fsprogs-extra", "e2fsprogs"]),
    need("dumpe2fs", ["e2fsprogs", "e2fsprogs", "e2fsprogs", "e2fsprogs-extra", "e2fsprogs"]),
    need("lsattr", ["e2fsprogs", "e2fsprogs", "e2fsprogs", "e2fsprogs-extra", "e2fsprogs"]),
    need("xfs_io", ["xfsprogs", "xfsprogs", "xfsprogs", "xfsprogs-extra", "xfsprogs"]),
    need("mkfs.xfs", ["xfsprogs"; 5]),
    need("xfs_db", ["xfsprogs", "xfsprogs", "xfsprogs", "xfsprogs-extra", "xfsprogs"]),
    need("xfs_repair", ["xfsprogs"; 5]),
    need("mount", ["mount", "util-linux", "util-linux", "mount", "util-linux"]),
    need("losetup", ["mount", "util-linux", "util-linux", "losetup", "util-linux"]),
    need("flock", ["util-linux", "util-linux", "util-linux", "flock", "util-linux"]),
    need("sfdisk", ["fdisk", "util-linux", "util-linux", "sfdisk", "util-linux"]),
    need("sgdisk", ["gdisk", "gdisk", "gptfdisk", "sgdisk", "gptfdisk"]),
    need("blkid", ["util-linux", "util-linux", "util-linux", "blkid", "util-linux"]),
    need("mkswap", ["util-linux", "util-linux", "util-linux", "util-linux-misc", "util-linux"]),
    need("mkfs.vfat", ["dosfstools"; 5]),
    need("fsck.vfat", ["dosfstools"; 5]),
    need("mdir", ["mtools"; 5]),
    need("swaplabel", ["util-linux", "util-linux", "util-linux", "util-linux-misc", "util-linux"]),
    need("systemd-repart", ["systemd", "systemd-udev", "systemd", "systemd", "systemd-experimental"]),
    need("mkfs.btrfs", ["btrfs-progs", "btrfs-progs", "btrfs-progs", "btrfs-progs", "btrfsprogs"]),
    need("pvcreate", ["lvm2"; 5]),
    need("cryptsetup", ["cryptsetup-bin", "cryptsetup", "cryptsetup", "cryptsetup", "cryptsetup"]),
    need("fusermount3", ["fuse3"; 5]),
    need("fuse2fs", ["fuse2fs"; 5]),
    need("setfacl", ["acl"; 5]),
    need("getfattr", ["attr"; 5]),
    need("setcap", ["libcap2-bin", "libcap", "libcap", "libcap-setcap", "libcap-progs"]),
    need("rsync", ["rsync"; 5]),
    need("mandoc", ["mandoc"; 5]),
    need("man", ["man-db"; 5]),
    need("systemd-analyze", ["systemd"; 5]),
    need("strace", ["strace"; 5]),
    need("mdadm", ["mdadm"; 5]),
    need("qemu-img", ["qemu-utils", "qemu-img", "qemu-img", "qemu-img", "qemu-tools"]),
    need("tar", ["tar"; 5]),
    need("bsdtar", ["libarchive-tools", "bsdtar", "libarchive", "libarchive-tools", "bsdtar"]),
    need("busybox", ["busybox"; 5]),
    need("cpio", ["cpio"; 5]),
    need("perl", ["perl"; 5]),
    need("umoci", ["umoci"; 5]),
    need("skopeo", ["skopeo"; 5]),
    need("git", ["git"; 5]),
    need("sqlite3", ["sqlite3", "sqlite", "sqlite", "sqlite", "sqlite3"]),
    need("fio", ["fio"; 5]),
    need("stress-ng", ["stress-ng"; 5]),
    need("zstd", ["zstd"; 5]),
    need("valgrind", ["valgrind"; 5]),
    need("chromium|chromium-browser", ["chromium"; 5]),
    need("python3", ["python3", "python3", "python", "python3", "python3"]),
];

/// Installs the packages of all programs that are not there.
pub(crate) fn install_missing() -> Outcome {
    let missing = missing();
    if missing.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|need| need.program).collect();
    let manager = MANAGERS.iter().find(|manager| is_installed(manager.program)).ok_or_else(|| {
        format!("{} are missing, and none of this system's package managers is known", programs.join(", "))
    })?;
    let mut packages: Vec<&str> = missing.iter().map(|need| (manager.names)(need)).collect();
    packages.sort_unstable();
    packages.dedup();
    println!("missing: {}; installing: {}", programs.join(", "), packages.join(", "));
    if let Some(refresh) = manager.refresh {
        as_root(manager.program, refresh)?;
    }
    as_root(manager.program, &[manager.install, &packages].concat())?;
    match self::missing().first() {
        None => Ok(()),
        Some(still) => Err(format!("{} is still missing after the installation", still.program)),
    }
}

/// Whether we are root.
pub(crate) fn is_root() -> Result<bool, String> {
    Ok(step::output("id", &["-u"])?.trim() == "0")
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !need.program.split('|').any(is_installed)).collect()
}

/// Whether a program is in the search path, or in the system directories that an ordinary user's path lacks.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(|dir| Path::new(dir).to_owned());
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(program).is_file())
}

fn as_root(program: &str, args: &[&str]) -> Outcome {
    let env = [("DEBIAN_FRONTEND", "noninteractive")];
    if is_root()? {
        return command(program, args, &env);
    }
    if !is_installed("sudo") {
        return Err(format!("this needs root, and there is no sudo: {program} {}", args.join(" ")));
    }
    command("sudo", &[&["-n", "--preserve-env=DEBIAN_FRONTEND", program], args].concat(), &env)
}

/// What makes cargo run test and benchmark binaries as root: nothing where we are it, else sudo as their runner.
pub(crate) fn runner_for_root() -> Result<Vec<(String, String)>, String> {
    if is_root()? {
        return Ok(Vec::new());
    }
    let host = host()?.to_uppercase().replace(['-', '.'], "_");
    Ok(vec![(format!("CARGO_TARGET_{host}_RUNNER"), "sudo -n -E".to_owned())])
}

/// The target that this machine's compiler builds for.
pub(crate) fn host() -> Result<String, String> {
    let version = step::output("rustc", &["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// Where tests make their images, unless the environment says: in memory where there is plenty, since a kernel that
/// fills an image waits for its disk at every commit.
pub(crate) fn scratch_in_memory() -> Option<(String, String)> {
    const VARIABLE: &str = "UNDERCROFT_SCRATCH";
    const MEMORY: &str = "/dev/shm";
    const PLENTY_BYTES: u64 = 8 << 30;
    if std::env::var_os(VARIABLE).is_some() {
        return None;
    }
    let listed = step::output("df", &["--output=avail", "--block-size=1", MEMORY]).ok()?;
    let available: u64 = listed.lines().nth(1)?.trim().parse().ok()?;
    (available >= PLENTY_BYTES).then(|| (VARIABLE.to_owned(), MEMORY.to_owned()))
}
