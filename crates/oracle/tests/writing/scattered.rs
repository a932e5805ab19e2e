//! Directory blocks in several extents, because no free space was long enough for one: those that Linux made, and ours.

use std::process::Command;

use undercroft_oracle::operations::{Done, Hand, Operation, OurHand};
use undercroft_oracle::{
    Differences, How, Image, LoopMount, Manifest, MkfsXfs, MountMode, Tool, kernel_manifest, our_manifest,
};
use undercroft_vfs::Error;
use undercroft_xfs::WriteOptions;

use crate::Opened;

/// Takes all space but every second block, so that no two free blocks lie together; then directories get blocks.
const FILL: &str = r"
import ctypes, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode, offset, length):
    return libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) == 0
BLOCK = 1024
DIRS = {'one': 12, 'several': 64, 'removed': 20, 'large': 300}
spare = os.open('spare', os.O_CREAT | os.O_RDWR)
assert fallocate(spare, 0, 0, 512 * BLOCK)
for name, names in DIRS.items():
    os.mkdir(name)
    for i in range(names):
        os.close(os.open('%s-%d' % (name, i), os.O_CREAT))
comb = os.open('comb', os.O_CREAT | os.O_RDWR)
end, length = 0, 8 << 20
while length >= BLOCK:
    if fallocate(comb, 0, end, length):
        end += length
    else:
        length //= 2
os.sync()
for offset in range(0, end, 2 * BLOCK):
    if not fallocate(comb, 3, offset, BLOCK): break
os.sync()
rest = os.open('rest', os.O_CREAT | os.O_RDWR)
def extents():
    return struct.unpack('7I', fcntl.ioctl(rest, 0x801c581f, bytes(28)))[2]
# Until the largest run of free blocks is one block.
end = 0
while True:
    before = extents()
    assert fallocate(rest, 0, end, 4 * BLOCK)
    end += 4 * BLOCK
    if extents() > before + 2:
        break
os.sync()
for name, names in DIRS.items():
    for i in range(names):
        os.rename('%s-%d' % (name, i), '%s/%s' % (name, ('%d-' % i).ljust(80, 'x')))
os.sync()
";

/// The directories, with how many names each has.
const DIRS: [(&str, u32); 4] = [("one", 12), ("several", 64), ("removed", 20), ("large", 300)];

fn path(dir: &str, number: u32) -> String {
    let start = format!("{number}-");
    format!("{dir}/{start}{}", "x".repeat(80 - start.len()))
}

fn extents(image: &Image, path: &str) -> u64 {
    image.xfs_number(&[&format!("path /{path}"), "print core.nextents"], "core.nextents").unwrap()
}

/// A volume whose free blocks lie one by one, and where the kernel has it mounted still.
fn fragmented_and_mounted() -> (Image, LoopMount) {
    let image = MkfsXfs::new(40, "-b size=1024 -d agcount=1").make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    // Linux keeps so much for itself that it would lie together.
    Tool::new("xfs_io").args(["-x", "-c", "resblks 0"]).arg(mount.path()).run().unwrap();
    let status = Command::new("python3").args(["-c", FILL]).current_dir(mount.path()).status().unwrap();
    assert!(status.success());
    (image, mount)
}

fn fragmented() -> Image {
    let (image, mount) = fragmented_and_mounted();
    mount.unmount().unwrap();
    for (dir, _) in DIRS {
        assert!(extents(&image, dir) >= 4, "the blocks of \"{dir}\" lie together");
    }
    image
}

fn by_kernel(image: &Image) -> Manifest {
    let mount = image.mount(MountMode::ReadOnly, "noatime").unwrap();
    let mut manifest = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    manifest.space.iter_mut().for_each(|space| space.fsid = 0);
    manifest
}

fn by_us(image: &Image, how: How) -> Manifest {
    let mut manifest = our_manifest(&how.read(image.path())).unwrap();
    manifest.space.iter_mut().for_each(|space| space.fsid = 0);
    manifest
}

/// What is the same of a filesystem before and after a recovery.
fn without_space(mut manifest: Manifest) -> Manifest {
    manifest.space = None;
    manifest
}

/// Another name of a file: space for inodes lies together.
fn another(path: &str, to: String) -> Operation {
    Operation::Link { path: path.into(), to }
}

/// Names added to every directory, and removed from it, so that blocks are added, changed and removed.
fn change_all(act: &dyn Fn(Operation)) {
    for (dir, names) in DIRS {
        for number in (0..names).step_by(3) {
            act(Operation::Unlink { path: path(dir, number) });
        }
        for number in names..names + 90 {
            act(another("comb", path(dir, number)));
        }
        act(Operation::Rename { path: path(dir, 4), to: path(dir, 5), exchange: true });
    }
    for number in (0..20 + 90).filter(|number| number % 3 != 0 || *number >= 20) {
        act(Operation::Unlink { path: path("removed", number) });
    }
    act(Operation::Rmdir { path: "removed".into() });
    act(Operation::Mkdir { path: "new".into() });
    (0..200).for_each(|number| act(another("comb", path("new", number))));
}

#[test]
fn directory_blocks_in_several_extents_are_added_changed_and_removed() {
    let how = How::Xfs(WriteOptions::default());
    let image = fragmented();
    Differences::between(&by_kernel(&image), &by_us(&image, how)).assert_none("as the kernel has left it");
    let before = extents(&image, "several");

    let opened = Opened::new(image.path(), how, true);
    let hand = OurHand::new(&opened.vfs);
    let act = |operation: Operation| assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}");
    change_all(&act);
    // Its two blocks do not lie together either.
    act(Operation::Symlink { path: "link".into(), target: "target/".repeat(145) });
    drop(hand);
    opened.close();
    how.check(image.path()).unwrap();
    Differences::between(&by_kernel(&image), &by_us(&image, how)).assert_none("changed by us");
    assert_eq!(extents(&image, "link"), 2);
    for (dir, least) in [("several", before + 1), ("new", 6)] {
        assert!(extents(&image, dir) >= least, "the blocks of \"{dir}\" lie together");
    }
}

#[test]
fn our_log_of_directory_blocks_in_several_extents_is_replayed_by_us_and_by_the_kernel() {
    let how = How::Xfs(WriteOptions::default());
    let image = fragmented();
    let opened = Opened::new(image.path(), how, true);
    let hand = OurHand::new(&opened.vfs);
    let act = |operation: Operation| assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}");
    // Few, for a kernel without real-time sections reports each part at length.
    act(Operation::Unlink { path: path("one", 3) });
    act(another("comb", path("one", 70)));
    act(Operation::Sync { path: "comb".into() });
    let [for_us, for_kernel] = [(); 2].map(|()| image.copy().unwrap());
    let there = without_space(our_manifest(&opened.vfs).unwrap());
    drop(hand);
    opened.close();

    Opened::new(for_us.path(), how, true).close();
    how.check(for_us.path()).unwrap();
    Differences::between(&there, &without_space(by_us(&for_us, how))).assert_none("replayed by us");
    for_kernel.mount(MountMode::ReadWrite, "noatime").unwrap().unmount().unwrap();
    how.check(for_kernel.path()).unwrap();
    let replayed = by_us(&for_kernel, how);
    Differences::between(&by_kernel(&for_kernel), &replayed).assert_none("read by the kernel");
    Differences::between(&there, &without_space(replayed)).assert_none("replayed by the kernel");
}

/// Linux 6.18 faults when it replays such a log itself.
#[test]
fn the_kernels_log_of_directory_blocks_in_several_extents_is_replayed() {
    let how = How::Xfs(WriteOptions::default());
    let (image, mount) = fragmented_and_mounted();
    for (from, to) in [(5, 1000), (6, 1001), (63, 1002)] {
        let [from, to] = [from, to].map(|number| mount.path().join(path("several", number)));
        std::fs::rename(from, to).unwrap();
    }
    Tool::new("xfs_io").args(["-c", "syncfs"]).arg(mount.path()).run().unwrap();
    let there = without_space(kernel_manifest(mount.path()).unwrap());
    let left = image.copy_between_writes(&mount).unwrap();
    mount.unmount().unwrap();

    Differences::between(&there, &without_space(by_us(&left, how))).assert_none("replayed for reading");
    Opened::new(left.path(), how, true).close();
    how.check(left.path()).unwrap();
    assert!(extents(&left, "several") >= 4, "its blocks lie together");
    Differences::between(&there, &without_space(by_kernel(&left))).assert_none("replayed for writing");
}

#[test]
fn a_volume_of_scattered_blocks_is_filled_with_names_and_emptied() {
    let how = How::Xfs(WriteOptions::default());
    let image = fragmented();
    let opened = Opened::new(image.path(), how, true);
    let hand = OurHand::new(&opened.vfs);
    let mut made = Vec::new();
    for (dir, names) in DIRS.into_iter().cycle() {
        let fresh = made.len() as u32 + names;
        let path = path(dir, fresh);
        match hand.act(&another("comb", path.clone())) {
            Ok(done) => assert_eq!(done, Done::Yes),
            Err(said) => {
                assert!(said.ends_with(&Error::NoSpace.to_string()), "{said}");
                break;
            }
        }
        made.push(path);
    }
    assert!(made.len() > 1000, "{} names", made.len());
    let act = |operation: Operation| assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}");
    let there = DIRS.into_iter().flat_map(|(dir, names)| (0..names).map(move |number| path(dir, number)));
    there.chain(made).for_each(|path| act(Operation::Unlink { path }));
    DIRS.into_iter().for_each(|(dir, _)| act(Operation::Rmdir { path: dir.into() }));
    drop(hand);
    opened.close();
    how.check(image.path()).unwrap();
    Differences::between(&by_kernel(&image), &by_us(&image, how)).assert_none("emptied");
}

#[test]
fn the_target_of_a_link_takes_two_small_blocks_with_one_header() {
    let how = How::Xfs(WriteOptions::default());
    let image = MkfsXfs::new(64, "-b size=1024 -m rmapbt=1").make().unwrap();
    let links = [967, 968, 969, 1015, 1023]
        .map(|len| (format!("link-{len}"), "target/".repeat(150)[..len].to_owned()));
    let change = |operations: &mut dyn Iterator<Item = Operation>| {
        let opened = Opened::new(image.path(), how, true);
        let hand = OurHand::new(&opened.vfs);
        operations.for_each(|operation| assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}"));
        drop(hand);
        opened.close();
        how.check(image.path()).unwrap();
        Differences::between(&by_kernel(&image), &by_us(&image, how)).assert_none("links");
    };
    let free = by_us(&image, how).space;
    change(&mut links.iter().cloned().map(|(path, target)| Operation::Symlink { path, target }));
    for (link, target) in &links {
        let blocks =
            image.xfs_number(&[&format!("path /{link}"), "print core.nblocks"], "core.nblocks").unwrap();
        assert_eq!((extents(&image, link), blocks), (1, target.len().div_ceil(968) as u64), "{link}");
    }
    change(&mut links.iter().cloned().map(|(path, _)| Operation::Unlink { path }));
    assert_eq!(by_us(&image, how).space, free);
}
