//! The tree as Undercroft shows it through its vfs.
//!
//! Goes about it as a user of the library would: lists each directory in pieces, looks every name up, reads
//! every byte. Two threads share the names of a large directory, as they do for the kernel's tree.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_vfs::{DirOffset, Error as VfsError, FileSystem, FileType, Node, Timestamp, Vfs, VfsOptions};
use undercroft_xfs::Xfs;

use crate::content::collect_segments;
use crate::error::shown;
use crate::manifest::{Entry, Identity, Manifest, Reading, Space, Time, join};
use crate::{Content, Error, Result};

/// A directory is listed in pieces of this many names, each from where the last one ended.
const PIECE: usize = 97;

/// Opens the ext2, ext3 or ext4 in a file, read-only.
///
/// # Errors
/// [`Error::Undercroft`] with what our side said.
pub fn open_ext4(image: &Path) -> Result<(Arc<Ext4>, Arc<Vfs>)> {
    let shown = || image.display().to_string();
    let device = FileDevice::open(image, FileOptions::read_only())
        .map_err(|error| Error::Unfit(format!("our side cannot open the image: {error}")))?;
    let fs = Ext4::open_read_only(Arc::new(device), OpenOptions::default())
        .map_err(|source| Error::Undercroft { action: "open", path: shown(), source })?;
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    Ok((fs, vfs))
}

/// Opens the XFS in a file, read-only.
///
/// # Errors
/// [`Error::Undercroft`] with what our side said.
pub fn open_xfs(image: &Path) -> Result<(Arc<Xfs>, Arc<Vfs>)> {
    let shown = || image.display().to_string();
    let device = FileDevice::open(image, FileOptions::read_only())
        .map_err(|error| Error::Unfit(format!("our side cannot open the image: {error}")))?;
    let fs = Xfs::open_read_only(Arc::new(device), undercroft_xfs::OpenOptions::default())
        .map_err(|source| Error::Undercroft { action: "open", path: shown(), source })?;
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    Ok((fs, vfs))
}

/// Looks at everything.
///
/// # Errors
/// [`Error::Undercroft`] for anything that cannot be read, except encrypted content without a key, which is a
/// finding; [`Error::Unfit`] when a name that does not exist is found.
pub fn manifest(vfs: &Arc<Vfs>) -> Result<Manifest> {
    let root = vfs.root().map_err(|source| failed("read the root of", b"", source))?;
    let mut entries = BTreeMap::new();
    entries.insert(Vec::new(), look(vfs, &root, None, b"")?);
    let mut ahead = vec![(root, Vec::new())];
    while let Some((dir, path)) = ahead.pop() {
        let (names, dots) = list(&dir, &path)?;
        entries.get_mut(&path).expect("entered before its children").dots = Some(dots);
        absent(vfs, &dir, &path)?;
        for (listed, (node, entry)) in names.iter().zip(look_at_all(vfs, &dir, &path, &names)?) {
            let path = join(&path, &listed.name);
            if entry.is_directory() {
                ahead.push((node, path.clone()));
            }
            entries.insert(path, entry);
        }
    }
    let space = vfs.filesystem().statfs().map_err(|source| failed("statfs", b"", source))?;
    Ok(Manifest {
        entries,
        space: Some(Space {
            block_bytes: space.block_bytes.into(),
            blocks: space.blocks,
            free: space.blocks_free,
            available: space.blocks_available,
            inodes: space.inodes,
            inodes_free: space.inodes_free,
            fsid: space.fsid,
            name_max: space.name_max_bytes.into(),
        }),
    })
}

/// A name as its directory lists it.
struct Listed {
    name: Vec<u8>,
    ino: u64,
    kind: Option<FileType>,
}

fn list(dir: &Node, path: &[u8]) -> Result<(Vec<Listed>, (u64, u64))> {
    let mut names = Vec::new();
    let mut dots = (0, 0);
    let mut from = DirOffset::default();
    loop {
        let mut given = 0;
        dir.read_dir(from, &mut |entry| {
            match entry.name {
                b"." => dots.0 = entry.ino.0,
                b".." => dots.1 = entry.ino.0,
                name => names.push(Listed { name: name.to_vec(), ino: entry.ino.0, kind: entry.kind }),
            }
            from = entry.next;
            given += 1;
            if given == PIECE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .map_err(|source| failed("list", path, source))?;
        if given < PIECE {
            return Ok((names, dots));
        }
    }
}

/// A name that nothing has must not be found; in an indexed directory this goes down the tree for nothing.
fn absent(vfs: &Vfs, dir: &Node, path: &[u8]) -> Result<()> {
    match vfs.lookup(dir, b"a name that nothing has") {
        Err(VfsError::NotFound) => Ok(()),
        Err(source) => Err(failed("look for an absent name in", path, source)),
        Ok(node) => Err(Error::Unfit(format!("/{} has a name that nothing has: {node:?}", shown(path)))),
    }
}

/// Looks at every name, in the given order, with two threads when there are many.
fn look_at_all(vfs: &Vfs, dir: &Node, path: &[u8], names: &[Listed]) -> Result<Vec<(Arc<Node>, Entry)>> {
    const FEW: usize = 64;
    let look_at = |names: &[Listed]| {
        let one = |listed: &Listed| {
            let path = join(path, &listed.name);
            let node = vfs.lookup(dir, &listed.name).map_err(|source| failed("look up", &path, source))?;
            look(vfs, &node, Some(listed), &path).map(|entry| (node, entry))
        };
        names.iter().map(one).collect::<Result<Vec<_>>>()
    };
    if names.len() <= FEW {
        return look_at(names);
    }
    let (left, right) = names.split_at(names.len() / 2);
    std::thread::scope(|scope| {
        let right = scope.spawn(|| look_at(right));
        let mut entries = look_at(left)?;
        match right.join() {
            Ok(right) => entries.extend(right?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(entries)
    })
}

fn look(vfs: &Vfs, node: &Arc<Node>, listed: Option<&Listed>, path: &[u8]) -> Result<Entry> {
    let attr = node.attr();
    let has_flags = matches!(attr.kind, FileType::Regular | FileType::Directory);
    let target = match attr.kind {
        FileType::Symlink => Some(node.read_link().map_err(|source| failed("read the link", path, source))?),
        _ => None,
    };
    Ok(Entry {
        ino: attr.ino.0,
        listed_type: listed.and_then(|l| l.kind).map(FileType::mode_bits),
        listed_ino: listed.map(|l| l.ino),
        mode: attr.mode(),
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: (attr.rdev.major, attr.rdev.minor),
        size: attr.size_bytes,
        sectors: attr.sectors,
        io_bytes: attr.block_bytes,
        accessed: time(attr.accessed),
        modified: time(attr.modified),
        changed: time(attr.changed),
        created: attr.created.map(time),
        flags: has_flags.then_some(attr.flags.bits()),
        identity: has_flags.then_some(Identity { generation: attr.generation, project: attr.project }),
        xattrs: xattrs(node, path)?,
        target,
        dots: None,
        content: match attr.kind {
            FileType::Regular => Some(read(vfs, node, attr.size_bytes, path)?),
            _ => None,
        },
    })
}

fn xattrs(node: &Node, path: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let names =
        node.list_xattrs().map_err(|source| failed("list the extended attributes of", path, source))?;
    let value = |name: Vec<u8>| {
        let value =
            node.xattr(&name).map_err(|source| failed("read an extended attribute of", path, source))?;
        let value = value.ok_or_else(|| {
            Error::Unfit(format!("/{}: xattr {} is listed and has no value", shown(path), shown(&name)))
        })?;
        Ok((name, value))
    };
    names.into_iter().map(value).collect()
}

fn read(vfs: &Vfs, node: &Arc<Node>, size: u64, path: &[u8]) -> Result<Reading> {
    let outcome = || -> undercroft_vfs::Result<Content> {
        let file = vfs.open_node(node)?;
        let segments = collect_segments(size, |offset| match file.seek_data(offset) {
            Ok(start) => file.seek_hole(start).map(|end| Some((start, end))),
            Err(VfsError::NoSuchOffset) => Ok(None),
            Err(error) => Err(error),
        })?;
        Content::of(size, segments, |at, buf| match file.read_at(at, buf)? {
            len if len == buf.len() => Ok(()),
            _ => Err(VfsError::InvalidArgument("a read within the file came back short")),
        })
    };
    match outcome() {
        Ok(content) => Ok(Reading::Bytes(content)),
        Err(VfsError::NoKey) => Ok(Reading::NoKey),
        Err(source) => Err(failed("read", path, source)),
    }
}

fn time(at: Timestamp) -> Time {
    (at.seconds, at.nanoseconds)
}

fn failed(action: &'static str, path: &[u8], source: VfsError) -> Error {
    Error::Undercroft { action, path: format!("/{}", shown(path)), source }
}
