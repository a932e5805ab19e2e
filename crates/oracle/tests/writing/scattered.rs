//! Directory blocks that Linux left in several extents, because no free space was long enough for one.
//!
//! They are read as they lie. One that changes gets a place in one piece; while there is none, the change is refused for want
//! of space, and nothing has changed.

use std::process::Command;

use undercroft_oracle::operations::{Done, Hand, Operation, OurHand};
use undercroft_oracle::{
    Differences, How, Image, Manifest, MkfsXfs, MountMode, Tool, kernel_manifest, our_manifest,
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

fn fragmented() -> Image {
    let image = MkfsXfs::new(40, "-b size=1024 -d agcount=1").make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    // Linux keeps so much for itself that it would lie together.
    Tool::new("xfs_io").args(["-x", "-c", "resblks 0"]).arg(mount.path()).run().unwrap();
    let status = Command::new("python3").args(["-c", FILL]).current_dir(mount.path()).status().unwrap();
    assert!(status.success());
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

#[test]
fn a_directory_block_in_several_extents_gets_another_place_when_it_changes() {
    let how = How::Xfs(WriteOptions::default());
    let image = fragmented();
    Differences::between(&by_kernel(&image), &by_us(&image, how)).assert_none("as the kernel has left it");

    let opened = Opened::new(image.path(), how, true);
    let hand = OurHand::new(&opened.vfs);
    for (dir, _) in DIRS {
        for operation in [
            Operation::Unlink { path: path(dir, 3) },
            Operation::Create { path: path(dir, 1000) },
            Operation::Rename { path: path(dir, 4), to: path(dir, 1000), exchange: false },
        ] {
            let said = hand.act(&operation).unwrap_err();
            assert!(said.ends_with(&Error::NoSpace.to_string()), "{said}");
        }
    }
    let act = |operation: Operation| assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}");
    // Its two blocks do not lie together either.
    act(Operation::Symlink { path: "link".into(), target: "target/".repeat(145) });
    act(Operation::Unlink { path: "spare".into() });
    // What was removed is free when that is durable.
    act(Operation::Create { path: "made".into() });
    act(Operation::Sync { path: "made".into() });
    for (dir, names) in DIRS {
        for number in (0..names).step_by(3) {
            act(Operation::Unlink { path: path(dir, number) });
        }
        for number in names..names + 9 {
            act(Operation::Create { path: path(dir, number) });
        }
    }
    for number in (0..29).filter(|number| number % 3 != 0 || *number >= 20) {
        act(Operation::Unlink { path: path("removed", number) });
    }
    act(Operation::Rmdir { path: "removed".into() });
    drop(hand);
    opened.close();
    how.check(image.path()).unwrap();
    let after = by_us(&image, how);
    Differences::between(&by_kernel(&image), &after).assert_none("changed by us");
    assert_eq!(extents(&image, "link"), 2);
    // Two or three blocks of names and a leaf, each in one piece.
    assert!(extents(&image, "several") <= 4, "{}", extents(&image, "several"));

    let opened = Opened::new(image.path(), how, true);
    let hand = OurHand::new(&opened.vfs);
    assert_eq!(hand.act(&Operation::Unlink { path: "link".into() }), Ok(Done::Yes));
    drop(hand);
    opened.close();
    how.check(image.path()).unwrap();
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
