//! Copies a tree from one filesystem of ours into another, in process: directories, files with their holes, symbolic
//! links, special files, hard links, permissions, owners, times and extended attributes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use undercroft_vfs::{
    Attr, AttrChange, Credentials, Error, FileType, Ino, NewKind, NewObject, NewTime, Node, Result, Vfs,
    XattrMode,
};

use crate::walk::{Event, Order, Walk};

/// Copies all of `from` into the root of `to`.
pub(super) fn copy(from: &Vfs, to: &Vfs) -> Result<()> {
    let who = Credentials::root();
    let mut dirs: Vec<(Arc<Node>, Attr)> = Vec::new();
    let mut linked: HashMap<Ino, Arc<Node>> = HashMap::new();
    let mut buffer = vec![0; 256 << 10];
    let root = to.root()?;
    for event in Walk::new(from, &from.root()?, b"/".to_vec(), Order::Inode) {
        let dir = dirs.last().map_or(&root, |(dir, _)| dir);
        match event {
            Event::Enter(entry) => {
                let attr = entry.node.attr();
                let made = match to.create(&who, dir, &entry.name, &NewObject::directory(0o700)) {
                    // A new filesystem has a directory of its own.
                    Err(Error::Exists) => to.lookup(dir, &entry.name)?,
                    made => made?,
                };
                copy_xattrs(&entry.node, to, &made)?;
                dirs.push((made, attr));
            }
            Event::File(entry) => {
                let attr = entry.node.attr();
                if let Some(node) = linked.get(&attr.ino) {
                    to.link(&who, node, dir, &entry.name)?;
                    continue;
                }
                let target;
                let kind = match attr.kind {
                    FileType::Regular => NewKind::Regular,
                    FileType::Symlink => {
                        target = entry.node.read_link()?;
                        NewKind::Symlink(&target)
                    }
                    FileType::Fifo => NewKind::Fifo,
                    FileType::Socket => NewKind::Socket,
                    FileType::CharDevice => NewKind::CharDevice(attr.rdev),
                    FileType::BlockDevice => NewKind::BlockDevice(attr.rdev),
                    FileType::Directory => continue,
                };
                let made =
                    to.create(&who, dir, &entry.name, &NewObject { kind, permissions: 0o600, umask: 0 })?;
                if attr.kind == FileType::Regular {
                    copy_content(from, &entry.node, to, &made, &mut buffer)?;
                }
                copy_xattrs(&entry.node, to, &made)?;
                copy_attr(&attr, to, &made)?;
                if attr.links > 1 {
                    linked.insert(attr.ino, made);
                }
            }
            Event::Leave => {
                if let Some((made, attr)) = dirs.pop() {
                    copy_attr(&attr, to, &made)?;
                }
            }
            Event::Trouble { error, .. } => return Err(error),
        }
    }
    Ok(())
}

/// The bytes that are there; holes stay holes.
fn copy_content(from: &Vfs, source: &Arc<Node>, to: &Vfs, made: &Arc<Node>, buffer: &mut [u8]) -> Result<()> {
    let (source, made) = (from.open_node(source)?, to.open_node_for_writing(made)?);
    for range in source.data_ranges(0..u64::MAX) {
        let Range { start: mut offset, end } = range?;
        while offset < end {
            let len = (end - offset).min(buffer.len() as u64) as usize;
            let read = source.read_at(offset, &mut buffer[..len])?;
            if read == 0 {
                return Err(Error::InvalidArgument("a file ends before its data does"));
            }
            let mut written = 0;
            while written < read {
                written += made.write_at(offset + written as u64, &buffer[written..read])?;
            }
            offset += read as u64;
        }
    }
    made.truncate(source.node().attr().size_bytes)
}

fn copy_xattrs(source: &Node, to: &Vfs, made: &Arc<Node>) -> Result<()> {
    for name in source.list_xattrs()? {
        if let Some(value) = source.xattr(&name)? {
            to.set_xattr(&Credentials::root(), made, &name, &value, XattrMode::Set)?;
        }
    }
    Ok(())
}

/// Last, since all else moves the times.
fn copy_attr(attr: &Attr, to: &Vfs, made: &Arc<Node>) -> Result<()> {
    let change = AttrChange {
        // A symbolic link has none of its own.
        permissions: (attr.kind != FileType::Symlink).then_some(attr.permissions),
        uid: Some(attr.uid),
        gid: Some(attr.gid),
        accessed: Some(NewTime::At(attr.accessed)),
        modified: Some(NewTime::At(attr.modified)),
        ..AttrChange::default()
    };
    to.set_attr(&Credentials::root(), made, &change)
}
