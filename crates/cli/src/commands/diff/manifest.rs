//! What a tree holds, as far as it is compared: read from an image through the vfs, or from a source of files.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use undercroft_populate::{Entry, EntryKind, Source};
use undercroft_vfs::{Attr, DeviceNumber, FileType, Ino, Node, Timestamp, Vfs};

use super::digest::ContentDigest;
use crate::commands::edit::put::source_failure;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::pattern::Exclude;
use crate::text::names::safe;
use crate::walk::{Event, Order, Walk};
use crate::xattrs::listed_xattr;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A tree: what is at each path, without a slash in front; the root is the empty path.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) items: BTreeMap<Vec<u8>, Item>,
    /// Times may lack what is below a second.
    pub(super) coarse_times: bool,
}

/// What is at a path.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: FileType,
    /// `None` of a directory that a source implies and does not name.
    pub(super) metadata: Option<ItemMetadata>,
    pub(super) size_bytes: u64,
    pub(super) digest: [u8; 32],
    pub(super) target: Vec<u8>,
    pub(super) device: DeviceNumber,
    /// A number that all names of one file have.
    file: usize,
    /// The first of the names of the same file.
    pub(super) first: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ItemMetadata {
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified: Timestamp,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Item {
    fn new(kind: FileType, file: usize) -> Self {
        let (device, first) = (DeviceNumber::default(), Vec::new());
        Self { kind, metadata: None, size_bytes: 0, digest: [0; 32], target: Vec::new(), device, file, first }
    }
}

/// The tree in an image. What cannot be read is complained of and missing.
pub(super) fn of_image(
    vfs: &Vfs,
    exclude: &Exclude,
    complaints: &mut Complaints,
) -> Result<Manifest, Failure> {
    let mut manifest = Manifest::default();
    let mut firsts: HashMap<Ino, Vec<u8>> = HashMap::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let root = vfs.root().map_err(|error| Failure::inside(b"/", &error))?;
    let mut take = |path: &[u8], node: &std::sync::Arc<Node>| {
        let below = path.strip_prefix(b"/").unwrap_or(path);
        let attr = node.attr();
        if attr.kind != FileType::Directory && attr.links > 1 {
            if let Some(item) = firsts.get(&attr.ino).and_then(|first| manifest.items.get(first)) {
                manifest.items.insert(below.to_vec(), item.clone());
                return Ok(());
            }
            firsts.insert(attr.ino, below.to_vec());
        }
        let file = manifest.items.len();
        let item =
            of_node(vfs, node, &attr, file, &mut buffer).map_err(|error| Failure::inside(path, &error))?;
        manifest.items.insert(below.to_vec(), item);
        Ok(())
    };
    take(b"/", &root)?;
    let mut walk = Walk::new(vfs, &root, b"/".to_vec(), Order::Name);
    while let Some(event) = walk.next() {
        match event {
            Event::File(entry) | Event::Enter(entry) => {
                if exclude.has(&entry.path) {
                    if entry.node.kind() == FileType::Directory {
                        walk.pass_over();
                    }
                } else if let Err(failure) = take(&entry.path, &entry.node) {
                    complaints.add(failure)?;
                }
            }
            Event::Leave => {}
            Event::Trouble { path, error } => complaints.add(Failure::inside(&path, &error))?,
        }
    }
    manifest.name_firsts();
    Ok(manifest)
}

fn of_node(
    vfs: &Vfs,
    node: &std::sync::Arc<Node>,
    attr: &Attr,
    file: usize,
    buffer: &mut [u8],
) -> undercroft_vfs::Result<Item> {
    let mut item = Item::new(attr.kind, file);
    let mut xattrs = BTreeMap::new();
    for name in node.list_xattrs()? {
        let value = listed_xattr(node, &name)?;
        xattrs.insert(name, value);
    }
    let (mode, uid, gid, modified) = (attr.permissions, attr.uid, attr.gid, attr.modified);
    item.metadata = Some(ItemMetadata { mode, uid, gid, modified, xattrs });
    match attr.kind {
        FileType::Regular => {
            item.size_bytes = attr.size_bytes;
            item.digest = digest(vfs, node, attr.size_bytes, buffer)?;
        }
        FileType::Symlink => item.target = node.read_link()?,
        FileType::CharDevice | FileType::BlockDevice => item.device = attr.rdev,
        _ => {}
    }
    Ok(item)
}

fn digest(
    vfs: &Vfs,
    node: &std::sync::Arc<Node>,
    size: u64,
    buffer: &mut [u8],
) -> undercroft_vfs::Result<[u8; 32]> {
    let file = vfs.open_node(node)?;
    let mut digest = ContentDigest::default();
    for range in file.data_ranges(0..size) {
        let Range { start: mut at, end } = range?;
        while at < end {
            let want = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let read = file.read_at(at, &mut buffer[..want])?;
            if read == 0 {
                return Ok(digest.finish());
            }
            digest.add(at, &buffer[..read]);
            at += read as u64;
        }
    }
    Ok(digest.finish())
}

/// The tree that a source describes: later entries replace earlier ones. A hard link to what is not part of it is
/// complained of and missing.
pub(super) fn of_source(
    source: &mut dyn Source,
    coarse_times: bool,
    exclude: &Exclude,
    complaints: &mut Complaints,
) -> Result<Manifest, Failure> {
    let mut manifest = Manifest { coarse_times, ..Manifest::default() };
    manifest.items.insert(Vec::new(), Item::new(FileType::Directory, 0));
    let mut files = 0;
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Some(entry) = source.next_entry().map_err(|error| source_failure(&error))? {
        if exclude.has_or_is_below(&[b"/", entry.path.as_bytes()].concat()) {
            continue;
        }
        if let Some(failure) = lost_link(&entry, &manifest, exclude) {
            complaints.add(failure)?;
            continue;
        }
        let path = entry.path.as_bytes().to_vec();
        files += 1;
        let Some(mut item) = of_entry(entry, &manifest, files) else { continue };
        if item.kind == FileType::Regular && item.file == files {
            let mut digest = ContentDigest::default();
            while let Some(piece) =
                source.read_content(&mut buffer).map_err(|error| source_failure(&error))?
            {
                digest.add(piece.offset, buffer.get(..piece.len).unwrap_or_default());
            }
            item.digest = digest.finish();
        }
        manifest.imply_parents(&path, &mut files);
        manifest.items.insert(path, item);
    }
    manifest.name_firsts();
    Ok(manifest)
}

/// What is said of a hard link to what is not in the manifest.
fn lost_link(entry: &Entry, manifest: &Manifest, exclude: &Exclude) -> Option<Failure> {
    let EntryKind::HardLink(to) = &entry.kind else { return None };
    let (path, target) = ([b"/", entry.path.as_bytes()].concat(), [b"/", to.as_bytes()].concat());
    let why = match exclude.has_or_is_below(&target) {
        true => "left out",
        false if manifest.items.contains_key(to.as_bytes()) => return None,
        false => "not there",
    };
    let what = format!("{}: it is a hard link to {}, which is {why}", safe(&path), safe(&target));
    Some(Failure::new(Kind::Path, what))
}

fn of_entry(entry: Entry, manifest: &Manifest, file: usize) -> Option<Item> {
    let mut item = Item::new(FileType::Regular, file);
    match entry.kind {
        EntryKind::Directory => item.kind = FileType::Directory,
        EntryKind::Regular(content) => item.size_bytes = content.size_bytes,
        EntryKind::Symlink(target) => {
            item.kind = FileType::Symlink;
            item.target = target.into();
        }
        EntryKind::HardLink(to) => return manifest.items.get(to.as_bytes()).cloned(),
        EntryKind::CharDevice(device) => {
            item.kind = FileType::CharDevice;
            item.device = device;
        }
        EntryKind::BlockDevice(device) => {
            item.kind = FileType::BlockDevice;
            item.device = device;
        }
        EntryKind::Fifo => item.kind = FileType::Fifo,
        EntryKind::Socket => item.kind = FileType::Socket,
        EntryKind::Whiteout | EntryKind::Opaque => return None,
    }
    let metadata = entry.metadata;
    let xattrs = metadata.xattrs.into_iter().map(|xattr| (xattr.name.into(), xattr.value.into())).collect();
    let (mode, uid, gid) = (metadata.permissions, metadata.uid, metadata.gid);
    item.metadata = Some(ItemMetadata { mode, uid, gid, modified: metadata.modified, xattrs });
    Some(item)
}

impl Manifest {
    /// Lets each item know the first of its names.
    fn name_firsts(&mut self) {
        let mut firsts: HashMap<usize, Vec<u8>> = HashMap::new();
        for (path, item) in &mut self.items {
            item.first.clone_from(firsts.entry(item.file).or_insert_with(|| path.clone()));
        }
    }

    fn imply_parents(&mut self, path: &[u8], files: &mut usize) {
        for (at, _) in path.iter().enumerate().filter(|&(_, byte)| *byte == b'/') {
            let above = &path[..at];
            if !self.items.contains_key(above) {
                *files += 1;
                self.items.insert(above.to_vec(), Item::new(FileType::Directory, *files));
            }
        }
    }
}
