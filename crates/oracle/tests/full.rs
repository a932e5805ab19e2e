//! Space that comes back when a file is removed is there for the next one, as with Linux's own ext4: through the mount
//! the kernel forgets a removed file's inode after the call that removed it, and its blocks are free when the
//! transaction that freed them is durable. And what an ordinary user stores, names included, stops where it does with
//! Linux.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_fuse::{MountOptions, mount};
use undercroft_oracle::{Image, Mke2fs, MountMode, Scratch, unmount_when_idle};
use undercroft_vfs::{
    Credentials, Error, FallocateMode, FileSystem, NewKind, NewObject, Node, Vfs, VfsOptions, XattrMode,
};

const IMAGE_MIB: u64 = 64;
const FILE_BYTES: usize = 40 << 20;

/// Makes files and removes them in turn; tells how many were refused.
fn refused(path: &Path, rounds: u32, fill: impl Fn(&File) -> std::io::Result<()>) -> u32 {
    let round = |_| {
        let file = File::create(path).unwrap();
        let outcome = fill(&file);
        drop(file);
        std::fs::remove_file(path).unwrap();
        u32::from(outcome.is_err())
    };
    (0..rounds).map(round).sum()
}

fn files_in_turn(options: &str) {
    let image = Mke2fs::new("ext4", IMAGE_MIB).make().unwrap();
    let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
    let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let point = Scratch::new("ours").unwrap();
    let mut settings = MountOptions::parse("rw").unwrap();
    settings.apply(options).unwrap();
    let mounted =
        mount(Vfs::new(Arc::clone(&fs) as _, VfsOptions::default()), point.path(), settings).unwrap();
    let path = mounted.dir().join("file");
    let allocated = refused(&path, 300, |file| {
        Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, FILE_BYTES as u64)?)
    });
    let bytes = vec![7; FILE_BYTES];
    let written = refused(&path, 20, |file| {
        file.write_all_at(&bytes, 0)?;
        file.sync_all()
    });
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
    fs.close().unwrap();
    assert_eq!((allocated, written), (0, 0), "of 300 allocations and 20 writes were refused");
    image.check().unwrap();
}

#[test]
fn files_made_and_removed_in_turn_find_space_over_io_uring() {
    files_in_turn("");
}

#[test]
fn files_made_and_removed_in_turn_find_space_over_the_device() {
    files_in_turn("no_io_uring");
}

/// What a user makes until there is no space; each takes blocks outside of inodes.
const KINDS: [(&str, &str); 4] = [
    ("directories", "mkdir d$i"),
    ("symbolic links", "ln -s $long s$i"),
    ("attributes", "touch a$i && setfattr -n user.a -v $long$i a$i"),
    ("names", "touch $name$i"),
];
const LONG: usize = 300;

fn reserving() -> Image {
    Mke2fs::new("ext4", 6).block_bytes(1024).inodes(8192).args(["-m", "20"]).make().unwrap()
}

/// Free blocks, and those that an ordinary user may have, when the kernel's ext4 gives such a user no more.
fn left_by_linux(command: &str) -> (u64, u64) {
    let mount = reserving().mount(MountMode::ReadWrite, "").unwrap();
    let script = format!(
        "long=$(printf %{LONG}s | tr ' ' x); name=$(printf %240s | tr ' ' n); i=0; while {command}; do i=$((i+1)); done"
    );
    rustix::fs::chmod(mount.path(), 0o777.into()).unwrap();
    let user = "exec setpriv --reuid=12345 --regid=12345 --clear-groups sh -c \"$1\"";
    let mut run = std::process::Command::new("sh");
    let output = run.args(["-c", user, "sh", &script]).current_dir(mount.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("No space left on device"), "{command}: {said}");
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    let left = rustix::fs::statvfs(mount.path()).unwrap();
    mount.unmount().unwrap();
    (left.f_bfree, left.f_bavail)
}

fn make_one(vfs: &Vfs, user: &Credentials, dir: &Arc<Node>, kind: &str, number: u32) -> Result<(), Error> {
    let long = [b'x'; LONG];
    let object = |kind, permissions| NewObject { kind, permissions, umask: 0 };
    let create = |name: String, object: &NewObject<'_>| vfs.create(user, dir, name.as_bytes(), object);
    match kind {
        "directories" => create(format!("d{number}"), &object(NewKind::Directory, 0o755)).map(drop),
        "symbolic links" => create(format!("s{number}"), &object(NewKind::Symlink(&long), 0o777)).map(drop),
        "attributes" => {
            let file = create(format!("a{number}"), &object(NewKind::Regular, 0o644))?;
            let value = format!("{}{number}", "x".repeat(LONG));
            vfs.set_xattr(user, &file, b"user.a", value.as_bytes(), XattrMode::Set)
        }
        _ => create(format!("{}{number}", "n".repeat(240)), &object(NewKind::Regular, 0o644)).map(drop),
    }
}

/// As with Linux. A write to space that is allocated already finds room for its map after that, and the user that the
/// reserved blocks are for goes on.
#[test]
fn names_links_and_attributes_of_ordinary_users_leave_the_reserved_blocks() {
    const ALLOCATED: u64 = 400 << 10;
    const PIECE: usize = 1024;
    for (kind, command) in KINDS {
        let (linux_free, linux_available) = left_by_linux(command);
        let image = reserving();
        let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
        let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(Arc::clone(&fs) as _, VfsOptions::default());
        let (user, root) = (Credentials::user(12_345, 12_345, Vec::new()), vfs.root().unwrap());
        let (open, mine) = (0o777, 0o755);
        let object = |permissions| NewObject { kind: NewKind::Directory, permissions, umask: 0 };
        let dir = vfs.create(&Credentials::root(), &root, b"anyone", &object(open)).unwrap();
        let roots = vfs.create(&Credentials::root(), &root, b"root's", &object(mine)).unwrap();
        let regular = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
        let node = vfs.create(&user, &dir, b"allocated", &regular).unwrap();
        let file = vfs.open_for_writing(&user, b"/anyone/allocated").unwrap();
        file.fallocate(FallocateMode::Allocate, 0, ALLOCATED, false).unwrap();
        let error = (0..).find_map(|n| make_one(&vfs, &user, &dir, kind, n).err()).unwrap();
        assert!(matches!(error, Error::NoSpace), "{kind}: {error}");
        let left = fs.statfs().unwrap();
        let ours = (left.blocks_free, left.blocks_available);
        assert!(
            ours.1 <= linux_available.max(1) && ours.0.abs_diff(linux_free) <= 2,
            "{kind}: of free and available blocks Linux leaves {linux_free} and {linux_available}, we {ours:?}"
        );
        for at in (0..ALLOCATED).step_by(2 * PIECE) {
            assert_eq!(file.write_at(at, &[7; PIECE]).unwrap(), PIECE);
        }
        vfs.filesystem().sync().unwrap();
        (0..100).for_each(|n| make_one(&vfs, &Credentials::root(), &roots, kind, n).unwrap());
        drop((file, node, dir, roots, root, vfs));
        fs.close().unwrap();
        image.check().unwrap();
    }
}
