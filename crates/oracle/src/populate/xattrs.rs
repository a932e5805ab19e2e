//! Extended attributes in every home: the inode's own tail, a block, a block shared by several inodes, and
//! inodes that are nothing but a value; in every namespace; on every kind of file.

use super::noise;
use crate::dir::Dir;
use crate::{Features, Result};

/// `system.posix_acl_*` values are version 2: a header, then tag, permissions and id of each entry.
const ACL_VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

pub(super) fn populate(top: &Dir, features: &Features) -> Result<()> {
    homes(&top.dir("homes")?, features)?;
    namespaces(&top.dir("namespaces")?)?;
    acls(&top.dir("acls")?)?;
    if features.has("ea_inode") {
        value_inodes(&top.dir("value-inodes")?)?;
    }
    Ok(())
}

pub(super) fn homes(dir: &Dir, features: &Features) -> Result<()> {
    dir.file("in-inode")?;
    dir.xattr("in-inode", "user.note", b"a small value")?;
    dir.xattr("in-inode", "user.empty", b"")?;

    dir.file_with("with-data", 1, 40)?;
    dir.xattr("with-data", "user.note", &[7; 30])?;

    // One value that fills most of a block, and one that leaves the inode for the block.
    let most = (features.block_bytes as usize).min(65_536) - 200;
    let mut value = vec![0; most];
    noise(2, &mut value);
    dir.file("in-block")?;
    dir.xattr("in-block", "user.large", &value)?;
    dir.file("in-both")?;
    dir.xattr("in-both", "user.small", b"1")?;
    dir.xattr("in-both", "user.large", &value[..most / 2])?;
    dir.xattr("in-both", "user.small too", b"22")?;

    // Equal sets end up in one block with a reference count.
    for number in 0..6 {
        let name = format!("shared-{number}");
        dir.file(&name)?;
        dir.xattr(&name, "user.same", &value[..600.min(most)])?;
    }

    dir.file("several")?;
    for number in 0..20_u8 {
        dir.xattr("several", &format!("user.number-{number}"), &vec![number; usize::from(number)])?;
    }

    let longest = format!("user.{}", "x".repeat(250));
    dir.file("longest-name")?;
    dir.xattr("longest-name", &longest, b"v")?;
    Ok(())
}

pub(super) fn namespaces(dir: &Dir) -> Result<()> {
    dir.file("file")?;
    dir.dir("directory")?.file("inside")?;
    for name in ["file", "directory"] {
        dir.xattr(name, "user.a", b"user")?;
        dir.xattr(name, "trusted.b", b"trusted")?;
        dir.xattr(name, "security.c", b"security")?;
    }
    // cap_net_raw+ep, in the second version of the format.
    let capability = [[0x01, 0, 0, 0x02], [0, 0x20, 0, 0], [0; 4], [0; 4], [0; 4]].concat();
    dir.xattr("file", "security.capability", &capability)?;

    dir.symlink("symlink", b"fast")?;
    dir.symlink("symlink-slow", &[b's'; 300])?;
    dir.node("fifo", rustix::fs::FileType::Fifo, 0, 0)?;
    dir.node("device", rustix::fs::FileType::CharacterDevice, 1, 3)?;
    for name in ["symlink", "symlink-slow", "fifo", "device"] {
        dir.xattr(name, "trusted.kind", name.as_bytes())?;
    }
    Ok(())
}

pub(super) fn acls(dir: &Dir) -> Result<()> {
    let full = acl(&[
        (USER_OBJ, 6, NO_ID),
        (USER, 7, 0),
        (USER, 4, 1000),
        (USER, 5, 4_000_000_000),
        (GROUP_OBJ, 4, NO_ID),
        (GROUP, 6, 100),
        (MASK, 6, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    let minimal = acl(&[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 1, NO_ID)]);
    dir.file("full")?;
    dir.xattr("full", "system.posix_acl_access", &full)?;
    dir.file("minimal")?;
    dir.xattr("minimal", "system.posix_acl_access", &minimal)?;
    drop(dir.dir("directory")?);
    dir.xattr("directory", "system.posix_acl_access", &full)?;

    let heirs = dir.dir("heirs")?;
    dir.xattr("heirs", "system.posix_acl_default", &full)?;
    heirs.file("file")?;
    heirs.dir("directory")?.file("file")?;
    Ok(())
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = ACL_VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Values too large for any block. Two equal ones share an inode.
fn value_inodes(dir: &Dir) -> Result<()> {
    let mut value = vec![0; 60 << 10];
    noise(3, &mut value);
    for name in ["one", "same"] {
        dir.file(name)?;
        dir.xattr(name, "user.huge", &value)?;
    }
    dir.file("several")?;
    for number in 0..4_u64 {
        noise(10 + number, &mut value);
        dir.xattr("several", &format!("user.huge-{number}"), &value[..(20 << 10) + number as usize])?;
    }
    dir.xattr("several", "user.small", b"beside")?;
    dir.file("longest")?;
    let mut longest = vec![0; 65_536];
    noise(20, &mut longest);
    dir.xattr("longest", "user.longest", &longest)?;
    drop(dir.dir("directory")?);
    dir.xattr("directory", "trusted.huge", &value)
}
