//! Linux's programs on a mount of an XFS: copies share blocks, extent size hints are kept, free space is trimmed; the
//! kernel finds all of it in the image. An access control list takes effect at once, also if it is set
//! by its other name. Needs root.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{Image, MkfsXfs, MountMode, unmount_when_idle};
use undercroft_vfs::{Vfs, VfsOptions};
use undercroft_xfs::{OpenOptions, WriteOptions, Xfs};

/// What a shell command prints in a directory; it must succeed.
fn shell(dir: &Path, command: &str) -> String {
    let script = format!("set -euo pipefail; {command}");
    let output = Command::new("bash").args(["-c", &script]).current_dir(dir).env("LC_ALL", "C").output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {} {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Gives a path a size of extents, as `xfs_io -c extsize` does, which takes no mount but the kernel's, and prints what the
/// path has then.
const SET_EXTENT_SIZE: &str = r#"python3 -c '
import fcntl, os, struct, sys
flag, size, path = int(sys.argv[1], 0), int(sys.argv[2]), sys.argv[3]
file = os.open(path, os.O_RDONLY)
fcntl.ioctl(file, 0x401c5820, struct.pack("IIIII8x", flag, size, 0, 0, 0))
found = struct.unpack("IIIII8x", fcntl.ioctl(file, 0x801c581f, bytes(28)))
print(found[0], found[1])
'"#;

/// An image mounted for all users.
fn mounted(image: &Image, dir: &Path) -> Mounted {
    let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
    let options = WriteOptions { discard: true, ..WriteOptions::default() };
    let fs = Xfs::open(Arc::new(device), OpenOptions::default(), options).unwrap();
    let options = MountOptions::parse("rw,allow_other").unwrap();
    mount(Vfs::new(fs, VfsOptions::default()), dir, options).unwrap()
}

#[test]
fn programs_share_blocks_through_the_mount() {
    const MIB: u64 = 1 << 20;
    let image = MkfsXfs::new(300, "-m rmapbt=1").make().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mounted = mounted(&image, dir.path());
    let free = || -> u64 { shell(dir.path(), "stat -f -c %a .").trim().parse::<u64>().unwrap() * 4096 };
    shell(dir.path(), "head -c 20M /dev/urandom > a; sync a");
    let before = free();
    shell(dir.path(), "cp a b; cp --reflink=auto a c; sync b c; cmp a b; cmp a c");
    assert!(before.saturating_sub(free()) < MIB, "two copies took {} bytes", before.saturating_sub(free()));
    shell(
        dir.path(),
        "cp a sum; printf changed | dd of=b conv=notrunc bs=1 seek=5000 status=none; sync b; cmp a c; cmp a sum",
    );
    assert_eq!(shell(dir.path(), "dd if=b bs=1 skip=5000 count=7 status=none").trim(), "changed");
    // Less than a block, and over the end of another file.
    shell(dir.path(), "head -c 5000 a > d; cp d e; cmp d e; cat a d > f; head -c 20976520 f | cmp - f");
    assert_eq!(shell(dir.path(), &format!("touch h; {SET_EXTENT_SIZE} 0x800 65536 h")).trim(), "2048 65536");
    assert_eq!(shell(dir.path(), &format!("mkdir i; {SET_EXTENT_SIZE} 0x1000 32768 i")).trim(), "4096 32768");
    shell(dir.path(), "echo x > i/j; echo x > h; sync h i/j");
    assert!(shell(dir.path(), "fstrim -v .").contains("bytes) trimmed"));
    shell(dir.path(), "cmp a c; rm f; sync .; rm sum");
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
    image.xfs_repair_check().unwrap();
    let kernel = image.mount(MountMode::ReadOnly, "").unwrap();
    shell(kernel.path(), "cmp a c; filefrag -v a | grep -q shared; filefrag -v b | grep -q shared");
    assert!(shell(kernel.path(), "xfs_io -r -c extsize h").starts_with("[65536]"));
    assert!(shell(kernel.path(), "xfs_io -r -c extsize i").starts_with("[32768]"));
    assert!(shell(kernel.path(), "xfs_io -r -c extsize i/j").starts_with("[32768]"));
    kernel.unmount().unwrap();
}

/// The kernel above the mount caches access control lists, and does not know that `trusted.SGI_ACL_FILE` is another name of one.
#[test]
fn an_access_control_list_that_is_set_by_its_other_name_takes_effect_at_once() {
    // In the form of XFS: three entries of tag, id and permissions: reading and writing for the owner, nothing for
    // others.
    let script = "chmod 755 .; echo text > file; chmod 600 file
        may() { setpriv --reuid 12345 --regid 12345 --clear-groups cat file > reader 2>&1 && echo yes || echo no; }
        entry() { printf '%08x%08x%04x0000' $1 $2 $3; }
        touch reader; chmod 666 reader; may
        setfacl -m u:12345:r file; may
        setfattr -n trusted.SGI_ACL_FILE -v 0x00000003$(entry 1 0 6)$(entry 4 0 0)$(entry 32 0 0) file; may
        setfacl -m u:12345:r file; may
        setfattr -x trusted.SGI_ACL_FILE file; may; chmod 604 file; may";
    let image = MkfsXfs::new(300, "").make().unwrap();
    let kernel = image.mount(MountMode::ReadWrite, "").unwrap();
    let expected = shell(kernel.path(), script);
    kernel.unmount().unwrap();
    assert_eq!(expected, "no\nyes\nno\nyes\nno\nyes\n");
    let dir = tempfile::tempdir().unwrap();
    let mounted = mounted(&image, dir.path());
    for _ in 0..5 {
        assert_eq!(shell(dir.path(), &format!("rm file; {script}")), expected);
    }
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
    image.xfs_repair_check().unwrap();
}
