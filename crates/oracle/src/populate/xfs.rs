//! One of everything on XFS: what all filesystems have, and the forms that only XFS has.

use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FileType;

use super::{Plan, attributes, content, names, nodes, noise, xattrs};
use crate::dir::Dir;
use crate::error::Context;
use crate::{Error, Features, Result, Tool};

/// How much of everything, on XFS.
#[derive(Clone, Copy, Debug)]
pub struct XfsPlan {
    /// Number of files in the large directory.
    pub many: usize,
    /// Level that the root of the fragmented file's extent tree must reach: 1 with leaves below it, 2 with one more.
    pub bmbt_level: u32,
    /// Whether files may share blocks; set from the image.
    pub reflink: bool,
    /// Number of attributes of the file that has most of them.
    pub attributes: usize,
    /// Whether free space is broken into pieces too small for a whole chunk of inodes, and inodes made then.
    pub aged: bool,
}

impl Default for XfsPlan {
    fn default() -> Self {
        Self { many: 2000, bmbt_level: 1, reflink: true, attributes: 600, aged: false }
    }
}

/// Where [`populate_xfs`] puts the file with the deep extent tree.
pub const XFS_FRAGMENTED: &str = "content/fragmented";

/// Longest target of a symbolic link on XFS, in bytes; the other side of it is what nodes go by.
const LINK_TARGET_MAX: u32 = 1024;

/// Inode flags, with the values of FS_IOC_SETFLAGS, and the names of the files that get them.
const FLAGS: &[(&str, u32)] = &[
    ("sync", 0x0000_0008),
    ("immutable", 0x0000_0010),
    ("append", 0x0000_0020),
    ("nodump", 0x0000_0040),
    ("noatime", 0x0000_0080),
    ("immutable-append-nodump", 0x0000_0070),
];

/// Fills the XFS mounted at `root`.
///
/// # Errors
/// Whatever the kernel refuses.
pub fn populate_xfs(root: &Path, features: &Features, plan: &XfsPlan) -> Result<()> {
    let top = Dir::open(root)?;
    let in_content = top.dir("content")?;
    // The edges of ext4's inodes and blocks serve here too; with large blocks they would only cost space.
    let small = Features::of_other(features.block_bytes.min(4096), features.inode_bytes);
    content::sizes(&in_content.dir("sizes")?, &small)?;
    content::sparse(&in_content, &small)?;
    content::punched(&in_content, &small)?;
    content::unwritten(&in_content, features)?;
    fragmented(&in_content, features, plan.bmbt_level)?;
    if plan.reflink {
        let block = u64::from(features.block_bytes);
        shared(&in_content.dir("shared")?, block)?;
        deduplicated(&in_content.dir("deduplicated")?, &root.join("content/deduplicated"), block)?;
    }
    let common = Plan { many: plan.many, ..Plan::default() };
    let in_names = top.dir("names")?;
    names::populate(&in_names, &small, &common)?;
    holes_in_a_directory(&in_names.dir("emptied")?)?;
    directories_in_many_extents(&in_names)?;
    let in_nodes = top.dir("nodes")?;
    let of_links = Features::of_other(LINK_TARGET_MAX, features.inode_bytes);
    nodes::populate_up_to(&in_nodes, &of_links, nodes::LARGEST_OF_XFS)?;
    link_targets(&in_nodes.dir("targets")?)?;
    let in_xattrs = top.dir("xattrs")?;
    xattrs::homes(&in_xattrs.dir("homes")?, &small)?;
    xattrs::namespaces(&in_xattrs.dir("namespaces")?)?;
    xattrs::acls(&in_xattrs.dir("acls")?)?;
    many_attributes(&in_xattrs.dir("many")?, plan.attributes)?;
    let in_attributes = top.dir("attributes")?;
    attributes::owners(&in_attributes.dir("owners")?)?;
    attributes::modes(&in_attributes.dir("modes")?)?;
    attributes::times(&in_attributes.dir("times")?)?;
    flags(&in_attributes.dir("flags")?)?;
    hints_and_projects(&in_attributes.dir("hints")?, &root.join("attributes/hints"))?;
    if plan.aged {
        aged(&top.dir("aged")?, &root.join("aged"), features)?;
    }
    Ok(())
}

/// Every second block written. The file has its size first: writes past the end would be given the blocks between.
fn fragmented(top: &Dir, features: &Features, level: u32) -> Result<()> {
    let block = u64::from(features.block_bytes);
    let per_leaf = (block - 72) / 16;
    // Leaves are about half full, and the root in the inode points at some of them.
    let root_holds = (u64::from(features.inode_bytes) - 176) / 16;
    let extents = match level {
        0 | 1 => per_leaf.min(300) + 40,
        _ => per_leaf * (root_holds + 2),
    };
    let file = top.file("fragmented")?;
    file.set_len(extents * 2 * block).context("set the size of", "fragmented")?;
    let mut data = vec![0; block as usize];
    for extent in 0..extents {
        noise(extent, &mut data);
        file.write_all_at(&data, extent * 2 * block).context("write", "fragmented")?;
    }
    file.sync_all().context("sync", "fragmented")
}

/// Files that share all blocks, some, or the same ones several times; parts written again; a source that is gone.
fn shared(dir: &Dir, block: u64) -> Result<()> {
    let source = dir.file_with("source", 91, 40 * block as usize + 77)?;
    source.sync_all().context("sync", "source")?;
    for name in ["clone-1", "clone-2", "clone-3"] {
        let clone = dir.file(name)?;
        rustix::fs::ioctl_ficlone(&clone, &source).context("clone", name)?;
    }
    let mut data = vec![0; 2 * block as usize + 5];
    for (name, at) in [("clone-1", 3 * block), ("clone-2", 10 * block + 1), ("clone-2", 30 * block)] {
        noise(at, &mut data);
        dir.existing(name)?.write_all_at(&data, at).context("write", name)?;
    }
    dir.existing("clone-3")?.set_len(9 * block + 3).context("cut", "clone-3")?;
    let twice = dir.file("twice")?;
    for (from, to) in [(0, 0), (0, 8 * block), (4 * block, 20 * block)] {
        let (mut from, mut to) = (from, to);
        rustix::fs::copy_file_range(&source, Some(&mut from), &twice, Some(&mut to), 8 * block as usize)
            .context("copy within the filesystem to", "twice")?;
    }
    drop(dir.file_with("gone", 92, 12 * block as usize)?);
    let heir = dir.file("heir")?;
    rustix::fs::ioctl_ficlone(&heir, dir.existing("gone")?).context("clone", "heir")?;
    dir.unlink("gone")
}

/// Files written with the same bytes, whose blocks the kernel then makes one: all of them, some in the middle, a file's
/// own, and the end of the file.
fn deduplicated(dir: &Dir, path: &Path, block: u64) -> Result<()> {
    let whole = 24 * block;
    for name in ["one", "same", "partly"] {
        dir.file_with(name, 94, whole as usize + 99)?.sync_all().context("sync", name)?;
    }
    let itself = dir.file("itself")?;
    let mut data = vec![0; 4 * block as usize];
    noise(95, &mut data);
    for at in [0, 4 * block, 9 * block] {
        itself.write_all_at(&data, at).context("write", "itself")?;
    }
    itself.sync_all().context("sync", "itself")?;
    let one = path.join("one");
    for (name, source, from, to, len) in [
        ("same", &one, 0, 0, whole + 99),
        ("partly", &one, 5 * block, 5 * block, 3 * block),
        ("partly", &one, 20 * block, 20 * block, block),
        ("itself", &path.join("itself"), 0, 9 * block, 4 * block),
    ] {
        let command = format!("dedupe {} {from} {to} {len}", source.display());
        let told = Tool::new("xfs_io").args(["-c", &command]).arg(path.join(name)).run_text()?;
        if !told.starts_with(&format!("deduped {len}/{len} bytes")) {
            return Err(Error::Unfit(format!("{name}: {command}: {told}")));
        }
    }
    Ok(())
}

/// Names long enough that blocks come soon, most of them removed again in one piece: blocks without a name are given
/// back, and leave holes.
fn holes_in_a_directory(dir: &Dir) -> Result<()> {
    const NAMES: usize = 2500;
    let name = |number: usize| format!("{number:06}-{}", "e".repeat(60));
    for number in 0..NAMES {
        dir.symlink(name(number), b"t")?;
    }
    for number in (NAMES / 5)..(NAMES - NAMES / 5) {
        dir.unlink(name(number))?;
    }
    let shrunk = dir.dir("shrunk")?;
    for number in 0..NAMES / 4 {
        shrunk.symlink(name(number), b"t")?;
    }
    for number in 3..NAMES / 4 {
        shrunk.unlink(name(number))?;
    }
    Ok(())
}

/// Two directories that grow in turn, so that neither has its blocks in one piece.
fn directories_in_many_extents(top: &Dir) -> Result<()> {
    let (one, other) = (top.dir("by-turns-1")?, top.dir("by-turns-2")?);
    for number in 0..900 {
        let name = format!("{number:05}{}", "t".repeat(240));
        one.symlink(&name, b"1")?;
        other.symlink(&name, b"2")?;
    }
    Ok(())
}

/// Targets on both sides of where inodes of each size end, with and without attributes.
fn link_targets(dir: &Dir) -> Result<()> {
    for len in [156, 157, 200, 335, 336, 337, 400, 511, 512, 513, 968, 969, 1000, 1023] {
        dir.symlink(format!("{len}"), &vec![b'a' + (len % 26) as u8; len])?;
        let name = format!("{len}-with-attributes");
        dir.symlink(&name, &vec![b'b'; len])?;
        dir.xattr(&name, "trusted.of-a-link", &vec![1; len % 90])?;
    }
    Ok(())
}

/// Attributes in every form, in and out of growth: in the inode, in a leaf, in a tree of leaves, with values in blocks
/// of their own, and each after most of them were removed again.
fn many_attributes(dir: &Dir, most: usize) -> Result<()> {
    let mut value = vec![0; 65_536];
    noise(93, &mut value);
    for count in [1, 4, 12, 40, most] {
        for kept in [count, count / 3] {
            let name = format!("{count}-{kept}");
            let file = dir.file(&name)?;
            for number in 0..count {
                let attribute = format!("user.{number}-{}", "n".repeat(number % 40));
                rustix::fs::fsetxattr(
                    &file,
                    attribute.as_str(),
                    &value[..number % 70],
                    rustix::fs::XattrFlags::empty(),
                )
                .context("set an extended attribute of", &*name)?;
            }
            for number in kept..count {
                let attribute = format!("user.{number}-{}", "n".repeat(number % 40));
                rustix::fs::fremovexattr(&file, attribute.as_str())
                    .context("remove an extended attribute of", &*name)?;
            }
        }
    }
    for len in [100, 250, 1000, 3000, 4096, 10_000, 30_000, 65_535, 65_536] {
        let name = format!("value-{len}");
        dir.file(&name)?;
        dir.xattr(&name, "user.value", &value[..len])?;
        dir.xattr(&name, "trusted.beside", b"small")?;
        dir.xattr(&name, "security.same", &value[..len.min(40_000)])?;
    }
    for (name, kind) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        dir.node(name, kind, 0, 0)?;
        dir.xattr(name, "trusted.large", &value[..5000])?;
    }
    Ok(())
}

fn flags(dir: &Dir) -> Result<()> {
    for (name, flags) in FLAGS {
        dir.file_with(name, u64::from(*flags), 10)?;
        dir.flags(name, *flags)?;
    }
    for (name, flags) in [("immutable-directory", 0x10), ("nodump-directory", 0x40)] {
        dir.dir(name)?.file("inside")?;
        dir.flags(name, flags)?;
    }
    Ok(())
}

/// What only XFS keeps: projects, hints of extent sizes, inherited flags.
fn hints_and_projects(dir: &Dir, path: &Path) -> Result<()> {
    for (name, command) in [
        ("project", "chproj 4242"),
        ("project-large", "chproj 4000000000"),
        ("extent-size", "extsize 131072"),
        ("nodefrag", "chattr +f"),
    ] {
        dir.file(name)?;
        xfs_io(&path.join(name), command)?;
        dir.existing(name)?.write_all_at(&[7; 5000], 0).context("write", name)?;
    }
    for (name, command) in [
        ("directory-project", "chproj 77"),
        ("directory-inherit", "chattr +P"),
        ("directory-extent-size", "extsize 131072"),
        ("directory-no-symlinks", "chattr +n"),
    ] {
        drop(dir.dir(name)?);
        xfs_io(&path.join(name), command)?;
        let inside = dir.sub(name)?.file("inside")?;
        inside.write_all_at(&[8; 3000], 0).context("write", name)?;
    }
    Ok(())
}

/// All free space in one file, with a hole for one and a half chunks of inodes in every two; then inodes. For an aligned
/// chunk the kernel wants pieces of free space of almost two, for an aligned half of one of less than one.
fn aged(dir: &Dir, path: &Path, features: &Features) -> Result<()> {
    let space = rustix::fs::statvfs(path).context("statfs", path)?;
    let chunk = 64 * u64::from(features.inode_bytes);
    let take = space.f_bavail * space.f_bsize * 9 / 10 / (2 * chunk) * (2 * chunk);
    let filler = dir.file("filler")?;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, take)
        .context("allocate", "filler")?;
    let rest = dir.file("rest")?;
    let left = rustix::fs::statvfs(path).context("statfs", path)?;
    let left = left.f_bavail.saturating_sub(700) * left.f_bsize;
    rustix::fs::fallocate(&rest, rustix::fs::FallocateFlags::empty(), 0, left).context("allocate", "rest")?;
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    let mut at = 0;
    while at < take {
        rustix::fs::fallocate(&filler, punch, at, chunk + chunk / 2).context("punch", "filler")?;
        at += 2 * chunk;
    }
    // What the kernel holds back for its trees lies in one piece, and went to no file. Now that there are holes it can
    // be had; an allocation takes the largest pieces first.
    let space = rustix::fs::statvfs(path).context("statfs", path)?;
    let again = dir.file("again")?;
    rustix::fs::fallocate(&again, rustix::fs::FallocateFlags::empty(), 0, space.f_bavail / 4 * space.f_bsize)
        .context("allocate", "again")?;
    // Inodes that are there and free come first.
    let told = Tool::new("xfs_io").args(["-c", "statfs"]).arg(path).run_text()?;
    let free =
        told.lines().find_map(|line| line.strip_prefix("counts.freeino = ")?.trim().parse::<usize>().ok());
    let free = free.ok_or_else(|| Error::Unfit(format!("xfs_io tells no free inodes: {told}")))?;
    for number in 0..free + 3000 {
        dir.file(format!("inode-{number}"))?;
    }
    Ok(())
}

fn xfs_io(path: &Path, command: &str) -> Result<()> {
    Tool::new("xfs_io").args(["-c", command]).arg(path).run().map(drop)
}
