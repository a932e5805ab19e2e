//! Space that comes back when a file is removed is there for the next one, as with Linux's own ext4 and XFS: through the
//! mount the kernel forgets a removed file's inode after the call that removed it, and its blocks are free when the
//! transaction that freed them is durable. Several programs fill a filesystem to its last block, in all ways that take
//! space, and empty it again, in rounds: deleting works always, nothing ends the changes, and as much is free afterwards
//! as before. And what an ordinary user stores, names included, stops where it does with Linux.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{How, Image, Make, Mke2fs, MkfsXfs, MountMode, Scratch, unmount_when_idle};
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

fn ext4() -> Make {
    Make::Ext4(Mke2fs::new("ext4", IMAGE_MIB))
}

fn xfs(args: &str) -> Make {
    Make::Xfs(MkfsXfs::new(IMAGE_MIB, args))
}

fn served(fs: &Arc<dyn FileSystem>, point: &Scratch, options: &str) -> Mounted {
    let mut settings = MountOptions::parse("rw").unwrap();
    settings.apply(options).unwrap();
    mount(Vfs::new(Arc::clone(fs), VfsOptions::default()), point.path(), settings).unwrap()
}

fn files_in_turn(make: &Make, options: &str) {
    let (image, how) = (make.make().unwrap(), How::usual(make));
    let fs = how.open_file(image.path()).unwrap();
    let point = Scratch::new("ours").unwrap();
    let mounted = served(&fs, &point, options);
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
    how.check(image.path()).unwrap();
}

#[test]
fn files_made_and_removed_in_turn_find_space_over_io_uring() {
    files_in_turn(&ext4(), "");
}

#[test]
fn files_made_and_removed_in_turn_find_space_over_the_device() {
    files_in_turn(&ext4(), "no_io_uring");
}

#[test]
fn files_made_and_removed_in_turn_find_space_on_xfs() {
    files_in_turn(&xfs("-m rmapbt=1"), "");
}

/// Takes space in all ways until there is none in any; each program in a directory of its own, which is there already.
/// Answers are not looked at: what a refusal leaves undone differs. `$1` is the program's number and `$2` the round.
const FILL: &str = r#"
import ctypes, errno, os, random, sys
number, seed = int(sys.argv[1]), int(sys.argv[2])
random.seed(number << 32 | seed)
os.chdir('p%d' % number)
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')
files, made = [], 0
def new(kind):
    global made
    made += 1
    return '%s%d-%s' % (kind, made, 'n' * random.choice([1, 30, 200]))
def opened(flags):
    return os.open(random.choice(files) if files else 'first', flags | os.O_CREAT, 0o644)
def write(length):
    name = new('f'); fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644); files.append(name)
    try: os.write(fd, os.urandom(length)); os.fsync(fd)
    finally: os.close(fd)
def at_random():
    fd = opened(os.O_WRONLY)
    try: os.pwrite(fd, os.urandom(random.randrange(1, 60000)), random.randrange(4 << 20)); os.fsync(fd)
    finally: os.close(fd)
def allocate():
    fd = opened(os.O_WRONLY)
    try: fallocate(fd, random.choice([0, 1, 16, 17]), random.randrange(4 << 20), random.randrange(1, 400000))
    finally: os.close(fd)
def punch():
    fd = opened(os.O_WRONLY)
    try: fallocate(fd, 3, random.randrange(4 << 20), random.randrange(1, 30000))
    finally: os.close(fd)
def attribute():
    name = random.choice(files) if files else '.'
    os.setxattr(name, 'user.a%d' % random.randrange(8), b'v' * random.choice([10, 900, 3000, 20000]))
def rename():
    if files:
        at = random.randrange(len(files)); to = new('r'); os.rename(files[at], to); files[at] = to
def remove():
    if files: os.unlink(files.pop(random.randrange(len(files))))
ways = [lambda: write(3000), lambda: write(200000), at_random, at_random, allocate, punch, attribute, rename,
        lambda: os.mkdir(new('d')), lambda: os.symlink('t' * 900, new('s')), lambda: os.mknod(new('m')),
        lambda: os.link(random.choice(files), new('l')) if files else None]
full = 0
while full < 400:
    way = random.choice(ways)
    try:
        way()
        if full > 100 and random.randrange(20) == 0: remove()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EEXIST, errno.ENAMETOOLONG): raise
        if error.errno == errno.ENOSPC: full += 1
print(made)
"#;

const FILLERS: u32 = 3;
/// Blocks by which the trees of the groups, and the root directory's, may have grown by the end of a round.
const GROWN_BLOCKS: u64 = 40;

fn rounds() -> u64 {
    let value = std::env::var("UNDERCROFT_FILL_ROUNDS").ok();
    value.map_or(2, |value| value.parse().expect("UNDERCROFT_FILL_ROUNDS is a number"))
}

/// Programs fill a mount in rounds, and remove everything after each.
fn is_filled_and_emptied(make: &Make) {
    let (image, how) = (make.make().unwrap(), How::usual(make));
    let free = || how.read(image.path()).filesystem().statfs().unwrap().blocks_free;
    let before = free();
    for round in 0..rounds() {
        let what = format!("{make:?}, round {round}");
        let fs = how.open_file(image.path()).unwrap();
        let point = Scratch::new("ours").unwrap();
        let mounted = served(&fs, &point, "");
        let root = mounted.dir();
        (0..FILLERS).for_each(|n| std::fs::create_dir(root.join(format!("p{n}"))).unwrap());
        let start = |number: u32| {
            let mut python = Command::new("python3");
            python.args(["-c", FILL, &number.to_string(), &round.to_string()]).current_dir(root);
            python.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let programs: Vec<_> = (0..FILLERS).map(start).collect();
        for program in programs {
            let output = program.wait_with_output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{what}: {told}");
        }
        let remove = |n| std::fs::remove_dir_all(root.join(format!("p{n}")));
        (0..FILLERS).for_each(|n| remove(n).unwrap_or_else(|error| panic!("{what}, removing: {error}")));
        unmount_when_idle(|| mounted.unmount()).unwrap();
        mounted.wait().unwrap();
        fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(fs);
        how.check(image.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let free = free();
        assert!(free + GROWN_BLOCKS >= before, "{what}: {before} blocks were free, and {free} are");
    }
}

#[test]
fn ext4_is_filled_by_several_programs_and_emptied() {
    is_filled_and_emptied(&ext4());
}

#[test]
fn xfs_is_filled_by_several_programs_and_emptied() {
    for args in ["-m rmapbt=1 -d agcount=4", "-m finobt=0,reflink=0 -i sparse=0", "-d agcount=1"] {
        is_filled_and_emptied(&xfs(args));
    }
}

/// Space that is there may not lie together.
#[test]
fn xfs_with_directory_blocks_of_several_blocks_is_filled_and_emptied() {
    for args in ["-b size=1024 -m rmapbt=1", "-n size=8192 -d agcount=4", "-b size=2048 -n size=65536"] {
        is_filled_and_emptied(&xfs(args));
    }
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
    let mut run = Command::new("sh");
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
