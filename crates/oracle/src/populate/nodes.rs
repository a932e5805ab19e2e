//! Everything that is neither a plain file nor a directory, and files with several names.

use rustix::fs::FileType;

use crate::dir::Dir;
use crate::{Features, Result};

/// The largest major and minor number that most filesystems keep, and those that XFS does.
const LARGEST: (u32, u32) = (4095, 1_048_575);
pub(super) const LARGEST_OF_XFS: (u32, u32) = (511, 262_143);

pub(super) fn populate(top: &Dir, features: &Features) -> Result<()> {
    populate_up_to(top, features, LARGEST)
}

pub(super) fn populate_up_to(top: &Dir, features: &Features, largest: (u32, u32)) -> Result<()> {
    symlinks(&top.dir("symlinks")?, features)?;
    devices(top, largest)?;
    hard_links(top)
}

/// Targets on both sides of the 60 bytes that fit into the inode, up to the longest that a block takes.
fn symlinks(dir: &Dir, features: &Features) -> Result<()> {
    let longest = (features.block_bytes as usize).min(4096) - 1;
    for len in [1, 2, 58, 59, 60, 61, 100, 159, 160, 500, longest] {
        dir.symlink(format!("{len}"), &vec![b'a' + (len % 26) as u8; len])?;
    }
    dir.symlink("not-text", b"\xff\xfe/\x80")?;
    dir.symlink("absolute", b"/nodes/symlinks/1")?;
    dir.symlink("loop", b"loop")?;
    dir.symlink("resolves", b"../../content/sizes/61")
}

/// Numbers for the old 16-bit encoding and for the new one, up to the largest.
fn devices(top: &Dir, largest: (u32, u32)) -> Result<()> {
    for (kind, name) in [(FileType::CharacterDevice, "char"), (FileType::BlockDevice, "block")] {
        for (major, minor) in [(1, 3), (255, 255), (8, 256), (256, 0), largest] {
            top.node(&format!("{name}-{major}-{minor}"), kind, major, minor)?;
        }
    }
    top.node("fifo", FileType::Fifo, 0, 0)?;
    top.node("socket", FileType::Socket, 0, 0)
}

fn hard_links(top: &Dir) -> Result<()> {
    let (one, other) = (top.dir("links-1")?, top.dir("links-2")?);
    drop(one.file_with("first", 5, 5000)?);
    one.link("first", &other, "second")?;
    one.link("first", &one, "third")?;
    top.link("fifo", &other, "fifo too")?;
    one.symlink("symlink", b"nowhere")?;
    one.link("symlink", &other, "symlink too")?;
    for number in 0..500 {
        one.link("first", &other, format!("name-{number}"))?;
    }
    Ok(())
}
