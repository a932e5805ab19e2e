//! Ioctls through the mount, made by a user that owns nothing and may only read, by an owner and by root, and the free space
//! that the mount shows: the kernel's own ext4 and XFS say what may come of them. Needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{How, Image, Make, Mke2fs, MkfsXfs, MountMode, unmount_when_idle};
use undercroft_vfs::{Vfs, VfsOptions};

const STRANGER: u32 = 65534;
const OWNER: u32 = 1234;

/// Makes each ioctl on each path by a descriptor for reading, and prints what came of it. The argument is a buffer that
/// begins with a word or two that would change something.
const PROGRAM: &str = r#"
import fcntl, os, struct, sys
# What a filesystem shows and lets no one change.
KEPT = int(os.environ["KEPT"])
IOCTLS = [
    ("FS_IOC_GETFLAGS", 0x80086601, b""), ("FS_IOC32_GETFLAGS", 0x80046601, b""),
    ("FS_IOC_GETVERSION", 0x80087601, b""), ("FS_IOC32_GETVERSION", 0x80047601, b""),
    ("FS_IOC_FSGETXATTR", 0x801c581f, b""),
    ("FS_IOC_SETFLAGS +i", 0x40086602, struct.pack("II", KEPT | 0x10, 0)),
    ("FS_IOC_SETFLAGS +a", 0x40086602, struct.pack("II", KEPT | 0x20, 0)),
    ("FS_IOC_SETFLAGS +d", 0x40086602, struct.pack("II", KEPT | 0x40, 0)),
    ("FS_IOC_SETFLAGS none", 0x40086602, struct.pack("II", 0, 0)),
    ("FS_IOC32_SETFLAGS +i", 0x40046602, struct.pack("I", KEPT | 0x10)),
    ("FS_IOC32_SETFLAGS +a", 0x40046602, struct.pack("I", KEPT | 0x20)),
    ("FS_IOC32_SETFLAGS +d", 0x40046602, struct.pack("I", KEPT | 0x40)),
    ("FS_IOC32_SETFLAGS none", 0x40046602, struct.pack("I", 0)),
    ("FS_IOC_FSSETXATTR +i", 0x401c5820, struct.pack("I", 8)),
    ("FS_IOC_FSSETXATTR +d", 0x401c5820, struct.pack("I", 0x80)),
    ("FS_IOC_FSSETXATTR project", 0x401c5820, struct.pack("IIII", 0, 0, 0, 5)),
    ("FS_IOC_SETVERSION", 0x40087602, struct.pack("I", 99)),
    ("FS_IOC32_SETVERSION", 0x40047602, struct.pack("I", 99)),
    ("EXT4_IOC_SETVERSION", 0x40086604, struct.pack("I", 99)),
    ("EXT4_IOC_SETVERSION 32", 0x40046604, struct.pack("I", 99)),
    ("FITRIM", 0xc0185879, struct.pack("QQQ", 0, 1 << 40, 0)),
    ("shutdown", 0x8004587d, struct.pack("I", 2)),
    ("FIFREEZE", 0xc0045877, struct.pack("I", 0)), ("FITHAW", 0xc0045878, struct.pack("I", 0)),
    ("FS_IOC_SETFSLABEL", 0x41009432, b"mine"), ("EXT4_IOC_SETFSUUID", 0x4008662c, struct.pack("II", 16, 0)),
    ("EXT4_IOC_SET_TUNE_SB_PARAM", 0x40e8662e, b""),
    ("EXT4_IOC_RESIZE_FS", 0x40086610, struct.pack("Q", 4096)),
    ("EXT4_IOC_GROUP_EXTEND", 0x40086607, struct.pack("Q", 4096)),
    ("EXT4_IOC_GROUP_ADD", 0x40286608, b""), ("EXT4_IOC_MOVE_EXT", 0xc028660f, b""),
    ("EXT4_IOC_MIGRATE", 0x6609, b""), ("EXT4_IOC_ALLOC_DA_BLKS", 0x660c, b""),
    ("EXT4_IOC_SWAP_BOOT", 0x6611, b""), ("EXT4_IOC_CHECKPOINT", 0x4004662b, struct.pack("I", 0)),
    ("EXT4_IOC_CLEAR_ES_CACHE", 0x6628, b""),
    ("FS_IOC_SET_ENCRYPTION_POLICY", 0x800c6613, b""), ("FS_IOC_ADD_ENCRYPTION_KEY", 0xc0506617, b""),
    ("FS_IOC_REMOVE_ENCRYPTION_KEY", 0xc0406618, b""),
    ("FS_IOC_ENABLE_VERITY", 0x40806685, struct.pack("IIII", 1, 1, 4096, 0)),
]
import errno
for path in sys.argv[1:]:
    descriptor = os.open(path, os.O_RDONLY)
    for name, number, argument in IOCTLS:
        try:
            fcntl.ioctl(descriptor, number, argument.ljust(1024, b"\0"))
            print(path, name, "ok")
        except OSError as error:
            print(path, name, errno.errorcode[error.errno])
"#;

/// Files and directories of root and of an owner, with and without flags.
fn fill(root: &Path) {
    fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
    for (name, owner) in [("root's", 0), ("owned", OWNER)] {
        fs::write(root.join(name), "content").unwrap();
        fs::create_dir(root.join(format!("{name}-dir"))).unwrap();
        for name in [name.to_owned(), format!("{name}-dir")] {
            chown(root.join(&name), Some(owner), Some(owner)).unwrap();
            fs::set_permissions(root.join(&name), Permissions::from_mode(0o755)).unwrap();
        }
    }
    fs::write(root.join("fixed"), "content").unwrap();
    fs::write(root.join("log"), "content").unwrap();
    chattr(root, &["+i", "fixed"]);
    chattr(root, &["+a", "log"]);
}

fn chattr(root: &Path, args: &[&str]) {
    assert!(Command::new("chattr").args(args).current_dir(root).status().unwrap().success(), "{args:?}");
}

/// Flags, projects and versions of everything, as root sees them.
fn state(root: &Path) -> String {
    let output = Command::new("lsattr").args(["-pv", "-a"]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Versions are random numbers, but they stay.
    String::from_utf8(output.stdout).unwrap()
}

/// What comes of all ioctls for a user, a line for each.
fn ioctls(user: u32, root: &Path, paths: &[&str], kept: u32) -> Vec<String> {
    let mut command = Command::new("python3");
    command.args(["-c", PROGRAM]).args(paths).current_dir(root).stdin(Stdio::null());
    command.env("KEPT", kept.to_string());
    let output = command.uid(user).gid(user).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn ext4() -> Make {
    Make::Ext4(Mke2fs::new("ext4", 32))
}

fn xfs() -> Make {
    Make::Xfs(MkfsXfs::new(32, ""))
}

/// Flags that must be given as they are: extents.
fn kept(make: &Make) -> u32 {
    match make {
        Make::Ext4(_) => 0x8_0000,
        Make::Xfs(_) => 0,
    }
}

fn serve(image: &Image, dir: &Path, options: &str) -> Mounted {
    let fs = How::of(image).open_file(image.path()).unwrap();
    let options = MountOptions::parse(&format!("rw,allow_other,{options}")).unwrap();
    mount(Vfs::new(fs, VfsOptions::default()), dir, options).unwrap()
}

/// What may come of an ioctl for which the kernel's filesystem has this answer: the same, or that there is no such ioctl.
fn agrees(theirs: &str, ours: &str) -> bool {
    theirs == ours || ours.ends_with(" ENOTTY") && !theirs.ends_with(" ok")
}

fn a_stranger_changes_nothing(make: &Make) {
    const PATHS: [&str; 7] = [".", "root's", "root's-dir", "owned", "owned-dir", "fixed", "log"];
    let theirs = make.make().unwrap();
    let kernel = theirs.mount(MountMode::ReadWrite, "").unwrap();
    fill(kernel.path());
    let before = state(kernel.path());
    let expected = ioctls(STRANGER, kernel.path(), &PATHS, kept(make));
    assert_eq!(state(kernel.path()), before);
    for transport in ["", "no_io_uring"] {
        let image = make.make().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mounted = serve(&image, dir.path(), transport);
        fill(dir.path());
        let before = state(dir.path());
        let answers = ioctls(STRANGER, dir.path(), &PATHS, kept(make));
        assert_eq!(state(dir.path()), before);
        for (theirs, ours) in expected.iter().zip(&answers) {
            assert!(agrees(theirs, ours), "the kernel: {theirs}, we: {ours}");
        }
        assert_eq!(expected.len(), answers.len());
        fs::write(dir.path().join("owned"), "is not shut down").unwrap();
        chattr(dir.path(), &["-i", "fixed"]);
        chattr(dir.path(), &["-a", "log"]);
        unmount_when_idle(|| mounted.unmount()).unwrap();
        mounted.wait().unwrap();
        How::of(&image).check(image.path()).unwrap();
    }
}

#[test]
fn a_stranger_changes_nothing_by_ioctl_on_ext4() {
    a_stranger_changes_nothing(&ext4());
}

#[test]
fn a_stranger_changes_nothing_by_ioctl_on_xfs() {
    a_stranger_changes_nothing(&xfs());
}

/// The owner may set what needs no capability, on files that are the owner's.
fn an_owner_changes_what_the_kernel_lets_an_owner_change(make: &Make) {
    const PATHS: [&str; 2] = ["owned", "owned-dir"];
    let theirs = make.make().unwrap();
    let kernel = theirs.mount(MountMode::ReadWrite, "").unwrap();
    fill(kernel.path());
    let expected = ioctls(OWNER, kernel.path(), &PATHS, kept(make));
    let image = make.make().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mounted = serve(&image, dir.path(), "");
    fill(dir.path());
    let answers = ioctls(OWNER, dir.path(), &PATHS, kept(make));
    for (theirs, ours) in expected.iter().zip(&answers) {
        let is_ours_to_lack = ["SETVERSION", "EXT4_IOC", "VERITY", "ENCRYPTION", "FS_IOC_SETFSLABEL"]
            .iter()
            .any(|name| theirs.contains(name));
        assert!(
            agrees(theirs, ours) || is_ours_to_lack && ours.ends_with(" ENOTTY"),
            "the kernel: {theirs}, we: {ours}"
        );
    }
    assert!(answers.iter().any(|line| line == "owned FS_IOC_SETFLAGS +d ok"), "{answers:?}");
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
}

#[test]
fn an_owner_changes_by_ioctl_what_ext4_lets_an_owner_change() {
    an_owner_changes_what_the_kernel_lets_an_owner_change(&ext4());
}

#[test]
fn an_owner_changes_by_ioctl_what_xfs_lets_an_owner_change() {
    an_owner_changes_what_the_kernel_lets_an_owner_change(&xfs());
}

/// Sets each flag by itself and prints what came of it and which flags there are then; and lets the owner of programs with
/// set-user-ID and set-group-ID change their flags and projects, and prints the permissions that are left.
const FLAGS: &str = r#"
import errno, fcntl, os, struct, sys
GET, SET, EXTENDED_SET = 0x80086601, 0x40086602, 0x401c5820
OWNER = int(sys.argv[1])
def outcome(work):
    try:
        work()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]
def flags(path, bits):
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.ioctl(descriptor, SET, struct.pack("II", bits, 0))
    os.close(descriptor)
def extended(path, bits, project):
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.ioctl(descriptor, EXTENDED_SET, struct.pack("IIIII8x", bits, 0, 0, project, 0))
    os.close(descriptor)
def shown(path):
    descriptor = os.open(path, os.O_RDONLY)
    answer = fcntl.ioctl(descriptor, GET, bytes(8))
    os.close(descriptor)
    return hex(struct.unpack("I", answer[:4])[0])
os.mkdir("dir")
for path in ["file", "dir"]:
    if path == "file":
        open(path, "w").write("content")
    for bit in range(32):
        print(path, "flag", bit, outcome(lambda: flags(path, 1 << bit)), shown(path), flush=True)
        flags(path, 0)
def as_owner(work):
    child = os.fork()
    if child == 0:
        os.setgid(OWNER)
        os.setuid(OWNER)
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
CHANGES = {
    "flags": lambda: flags("program", 0x40), "extended flags": lambda: extended("program", 0x80, 0),
    "project": lambda: extended("program", 0, 7), "both again": lambda: extended("program", 0, 0),
}
for permissions in [0o6755, 0o6745, 0o4711, 0o2755, 0o2745, 0o1755]:
    for what, change in CHANGES.items():
        for kind in ["file", "dir"]:
            if kind == "file":
                open("program", "w").write("content")
            else:
                os.mkdir("program")
            os.chown("program", OWNER, OWNER)
            os.chmod("program", permissions)
            change()
            by_root = oct(os.stat("program").st_mode)
            as_owner(change)
            print(kind, oct(permissions), what, by_root, oct(os.stat("program").st_mode), flush=True)
            os.unlink("program") if kind == "file" else os.rmdir("program")
"#;

#[test]
fn flags_are_kept_and_refused_as_by_the_kernels_xfs() {
    let told = |root: &Path| {
        fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", FLAGS, &OWNER.to_string()]).current_dir(root).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let theirs = xfs().make().unwrap();
    let kernel = theirs.mount(MountMode::ReadWrite, "").unwrap();
    let expected = told(kernel.path());
    let image = xfs().make().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mounted = serve(&image, dir.path(), "");
    let answers = told(dir.path());
    for (theirs, ours) in expected.iter().zip(&answers) {
        assert_eq!(theirs, ours, "the kernel's and ours");
    }
    assert_eq!(expected.len(), answers.len());
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
    How::of(&image).check(image.path()).unwrap();
}

/// What `df` shows of an image that the kernel has mounted, and of the same one served by us; then once more with content.
#[test]
fn free_space_is_what_the_kernels_xfs_shows() {
    let space = |root: &Path| {
        let space = rustix::fs::statvfs(root).unwrap();
        (space.f_blocks, space.f_bfree, space.f_bavail, space.f_files, space.f_ffree)
    };
    for (size_mib, args) in [
        (32, ""),
        (400, ""),
        (400, "-m rmapbt=1"),
        (400, "-m finobt=0,rmapbt=0,reflink=0 -i sparse=0"),
        (500, "-m rmapbt=1 -d agcount=7"),
        (6000, "-m rmapbt=1,inobtcount=0"),
    ] {
        let image = Make::Xfs(MkfsXfs::new(size_mib, args)).make().unwrap();
        for filled in [false, true] {
            let kernel = image.mount(MountMode::ReadWrite, "").unwrap();
            if filled {
                for number in 0..600 {
                    fs::create_dir(kernel.path().join(format!("dir{number}"))).unwrap();
                    fs::write(kernel.path().join(format!("dir{number}/file")), vec![7; 9000]).unwrap();
                }
                for number in (0..600).step_by(3) {
                    fs::remove_file(kernel.path().join(format!("dir{number}/file"))).unwrap();
                }
                kernel.unmount().unwrap();
                How::of(&image).check(image.path()).unwrap();
            } else {
                kernel.unmount().unwrap();
            }
            let kernel = image.mount(MountMode::ReadWrite, "").unwrap();
            let expected = space(kernel.path());
            kernel.unmount().unwrap();
            let dir = tempfile::tempdir().unwrap();
            let mounted = serve(&image, dir.path(), "");
            let ours = space(dir.path());
            unmount_when_idle(|| mounted.unmount()).unwrap();
            mounted.wait().unwrap();
            assert_eq!(ours, expected, "{size_mib} MiB {args} filled: {filled}");
        }
    }
}
