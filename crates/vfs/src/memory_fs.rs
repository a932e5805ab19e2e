//! A filesystem in memory, for this crate's tests.
//!
//! Made from a [`Tree`]. To try the layers above, it maps files in every way there is: small ones inline, the
//! rest in extents of odd lengths, some of which follow each other on the device and some not, and holes partly
//! as unwritten extents. It counts the calls that caches exist to avoid.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_sync::{Mutex, order};

use crate::conformance::{Content, Entry, Object, Tree, mix};
use crate::{
    Attr, DeviceNumber, DirEntry, DirOffset, Error, Extent, FileSystem, FileType, Found, HashedName, Ino,
    Inode, InodeFlags, Limits, Mapping, Result, StatFs, Vfs, VfsOptions,
};

/// The filesystem. Its fields may be tampered with before it is mounted.
pub(crate) struct MemoryFs {
    pub(crate) inodes: HashMap<Ino, Arc<MemoryInode>>,
    pub(crate) device: Option<Device>,
    pub(crate) calls: Arc<Calls>,
    /// What an inode says it occupies.
    pub(crate) inode_bytes: usize,
    /// Set while reads of inodes fail.
    pub(crate) failing: AtomicBool,
    /// The inodes handed out, to see that there is one handle for each.
    handles: Mutex<HashMap<Ino, Weak<Handle>>>,
    /// Whether directories say what kind of file each name is.
    pub(crate) kinds_in_names: bool,
    /// A number and what directories say of it.
    pub(crate) lying_kind: Option<(Ino, FileType)>,
}

/// How often what was called.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) read_inode: AtomicU64,
    pub(crate) lookup: AtomicU64,
    pub(crate) prefetched: AtomicU64,
    pub(crate) xattr: AtomicU64,
}

pub(crate) struct MemoryInode {
    pub(crate) attr: Attr,
    /// `.` and `..` first.
    pub(crate) names: Vec<(Vec<u8>, Ino)>,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) extents: Vec<Extent>,
    /// If set, `map` returns this for every offset.
    pub(crate) lie: Option<Extent>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An inode as it is handed out.
struct Handle {
    inode: Arc<MemoryInode>,
    kinds: Option<Arc<HashMap<Ino, FileType>>>,
    calls: Arc<Calls>,
    bytes: usize,
}

pub(crate) const ROOT: Ino = Ino(2);

/// Files up to this size are kept inline.
const INLINE_MAX: u64 = 60;

impl MemoryFs {
    /// A filesystem whose root is the top of `tree`.
    pub(crate) fn new(tree: &Tree) -> Self {
        let mut builder = Builder { bytes: Vec::new(), inodes: HashMap::new(), numbers: HashMap::new() };
        for entry in &tree.entries {
            builder.add(tree, entry);
        }
        Self {
            inodes: builder.inodes.into_iter().map(|(ino, inode)| (ino, Arc::new(inode))).collect(),
            device: Some(Arc::new(MemoryDevice::from_bytes(builder.bytes, Access::ReadOnly))),
            calls: Arc::default(),
            inode_bytes: 100,
            failing: AtomicBool::new(false),
            handles: Mutex::new(&order::COLLECTED, HashMap::new()),
            kinds_in_names: true,
            lying_kind: None,
        }
    }

    /// Mounts it with caches of these sizes in bytes.
    pub(crate) fn mount(self, inode_cache_bytes: usize, name_cache_bytes: usize) -> (Arc<Vfs>, Arc<Self>) {
        let fs = Arc::new(self);
        (
            Vfs::new(fs.clone(), VfsOptions { inode_cache_bytes, name_cache_bytes, ..VfsOptions::default() }),
            fs,
        )
    }

    /// How many inodes are in use or cached.
    pub(crate) fn live_handles(&self) -> usize {
        self.handles.lock().values().filter(|handle| handle.strong_count() > 0).count()
    }

    /// The inode at a path, to tamper with.
    pub(crate) fn inode_mut(&mut self, path: &str) -> &mut MemoryInode {
        let ino = self.ino(path);
        Arc::get_mut(self.inodes.get_mut(&ino).expect("an inode for each number")).expect("not mounted yet")
    }

    /// The number at a path.
    pub(crate) fn ino(&self, path: &str) -> Ino {
        path.split('/').filter(|name| !name.is_empty()).fold(ROOT, |dir, name| {
            let found = self.inodes[&dir].names.iter().find(|(other, _)| other == name.as_bytes());
            found.expect("a path in the tree").1
        })
    }
}

struct Builder {
    bytes: Vec<u8>,
    inodes: HashMap<Ino, MemoryInode>,
    numbers: HashMap<Vec<u8>, Ino>,
}

impl Builder {
    fn add(&mut self, tree: &Tree, entry: &Entry) {
        let object = tree.object(entry);
        // Numbers with gaps and a wide range, as an image has them.
        let new = if entry.path.is_empty() { ROOT } else { Ino(10 + 37 * self.inodes.len() as u64) };
        let ino = *self.numbers.get(&object.path).unwrap_or(&new);
        self.numbers.insert(entry.path.clone(), ino);
        let parent = match entry.path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => self.numbers[&entry.path[..slash]],
            None => ROOT,
        };
        if let Some(kind) = entry.object.kind() {
            let inode = self.inode(tree, entry, ino, parent, kind);
            self.inodes.insert(ino, inode);
        }
        if !entry.path.is_empty() {
            let names = &mut self.inodes.get_mut(&parent).expect("parents come first").names;
            names.push((entry.name().to_vec(), ino));
        }
    }

    fn inode(&mut self, tree: &Tree, entry: &Entry, ino: Ino, parent: Ino, kind: FileType) -> MemoryInode {
        let (mut size_bytes, mut rdev, mut target) = (0, DeviceNumber::default(), None);
        let mut extents = Vec::new();
        match &entry.object {
            Object::File(content) => {
                size_bytes = content.size_bytes;
                extents = self.lay_out(content);
            }
            Object::Symlink(to) => {
                size_bytes = to.len() as u64;
                target = Some(to.clone());
            }
            Object::CharDevice(number) | Object::BlockDevice(number) => rdev = *number,
            Object::Directory | Object::HardLink(_) | Object::Fifo | Object::Socket => {}
        }
        let allocated = extents.iter().map(|extent| match extent.mapping {
            Mapping::Device { .. } | Mapping::Unwritten { .. } | Mapping::Shared { .. } => extent.len,
            Mapping::Hole | Mapping::Inline(_) | Mapping::Kept => 0,
        });
        let attr = Attr {
            ino,
            generation: 0,
            kind,
            permissions: entry.permissions,
            links: tree.links(entry),
            uid: entry.uid,
            gid: entry.gid,
            rdev,
            size_bytes,
            sectors: allocated.sum::<u64>().div_ceil(512),
            block_bytes: 4096,
            accessed: entry.accessed,
            modified: entry.modified,
            changed: entry.modified,
            created: None,
            flags: InodeFlags::empty(),
            project: 0,
        };
        let names = match kind {
            FileType::Directory => vec![(b".".to_vec(), ino), (b"..".to_vec(), parent)],
            _ => Vec::new(),
        };
        MemoryInode { attr, names, target, extents, lie: None, xattrs: entry.xattrs.clone() }
    }

    fn lay_out(&mut self, content: &Content) -> Vec<Extent> {
        let size = content.size_bytes;
        if size <= INLINE_MAX {
            let mut bytes = vec![0; size as usize];
            content.fill(0, &mut bytes);
            // What is missing at the end reads as zeroes.
            while bytes.last() == Some(&0) {
                bytes.pop();
            }
            return vec![Extent { start: 0, len: size.max(1), mapping: Mapping::Inline(bytes.into()) }];
        }
        let mut extents = Vec::new();
        let mut at = 0;
        for piece in &content.pieces {
            push_hole(&mut extents, at, piece.offset);
            let mut skip = 0;
            while skip < piece.len {
                let random = mix(piece.seed ^ skip ^ 0xabcd);
                let len = (1 + random % 30_000).min(piece.len - skip);
                if random >> 40 & 1 == 0 {
                    // A gap before the extent: it does not follow the one before on the device.
                    self.bytes.resize(self.bytes.len() + 3, 0xee);
                }
                let offset = self.bytes.len() as u64;
                self.bytes.resize(self.bytes.len() + len as usize, 0);
                piece.fill(skip, &mut self.bytes[offset as usize..]);
                extents.push(Extent { start: piece.offset + skip, len, mapping: Mapping::Device { offset } });
                skip += len;
            }
            at = piece.offset + piece.len;
        }
        push_hole(&mut extents, at, size);
        extents
    }
}

/// The first 4 KiB of a hole are unwritten, the rest is not allocated.
fn push_hole(extents: &mut Vec<Extent>, from: u64, to: u64) {
    let unwritten = (to - from).min(4096);
    for (start, len, mapping) in [
        (from, unwritten, Mapping::Unwritten { offset: 0 }),
        (from + unwritten, to - from - unwritten, Mapping::Hole),
    ] {
        if len > 0 {
            extents.push(Extent { start, len, mapping });
        }
    }
}

impl FileSystem for MemoryFs {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn Inode>> {
        self.calls.read_inode.fetch_add(1, Ordering::Relaxed);
        if self.failing.load(Ordering::Relaxed) {
            return Err(Error::Stale);
        }
        let inode = self.inodes.get(&ino).ok_or(Error::Stale)?;
        let kinds = self.kinds_in_names.then(|| {
            let named =
                inode.names.iter().filter_map(|(_, ino)| Some((*ino, self.inodes.get(ino)?.attr.kind)));
            Arc::new(named.chain(self.lying_kind).collect())
        });
        let handle = Arc::new(Handle {
            inode: Arc::clone(inode),
            kinds,
            calls: Arc::clone(&self.calls),
            bytes: self.inode_bytes,
        });
        let old = self.handles.lock().insert(ino, Arc::downgrade(&handle));
        assert!(old.is_none_or(|old| old.strong_count() == 0), "a second handle for inode {ino}");
        Ok(handle)
    }

    fn data_device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    fn statfs(&self) -> Result<StatFs> {
        Err(Error::Unsupported("statfs of the memory filesystem".into()))
    }

    fn limits(&self) -> Limits {
        Limits { name_max_bytes: 255, file_max_bytes: u64::MAX }
    }

    fn prefetch_inodes(&self, entries: &[Ino]) {
        self.calls.prefetched.fetch_add(entries.len() as u64, Ordering::Relaxed);
    }
}

impl Inode for Handle {
    fn attr(&self) -> Attr {
        self.inode.attr
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }

    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>> {
        self.calls.lookup.fetch_add(1, Ordering::Relaxed);
        let found = self.inode.names.iter().find(|(other, _)| **other == **name);
        Ok(found.map(|&(_, ino)| Found::Ino(ino)))
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        // Cursors are positions, spread out so that arithmetic on them leads nowhere.
        const SPREAD: u64 = 1000;
        let skip = usize::try_from(from.0.div_ceil(SPREAD)).unwrap_or(usize::MAX);
        for (position, (name, ino)) in self.inode.names.iter().enumerate().skip(skip) {
            let kind = self.kinds.as_ref().and_then(|kinds| kinds.get(ino).copied());
            let next = DirOffset((position as u64 + 1) * SPREAD);
            if sink(DirEntry { name, ino: *ino, kind, next }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.inode.target.clone().ok_or(Error::InvalidArgument("not a symbolic link"))
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        if let Some(lie) = &self.inode.lie {
            return Ok(lie.clone());
        }
        let covers = |extent: &&Extent| extent.start <= offset && offset - extent.start < extent.len;
        let past = Extent { start: offset, len: u64::MAX - offset, mapping: Mapping::Hole };
        Ok(self.inode.extents.iter().find(covers).cloned().unwrap_or(past))
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.calls.xattr.fetch_add(1, Ordering::Relaxed);
        Ok(self.inode.xattrs.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()))
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.inode.xattrs.iter().map(|(name, _)| name.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Profile, check, standard_tree};

    #[test]
    fn passes_the_suite() {
        let tree = standard_tree(&Profile::default());
        let (vfs, _) = MemoryFs::new(&tree).mount(24 << 20, 8 << 20);
        check(&vfs, b"", &tree).assert_passed();
    }

    #[test]
    fn passes_the_suite_without_kinds_and_with_caches_that_hold_next_to_nothing() {
        let tree = standard_tree(&Profile { block_bytes: 1024, many: 500, ..Profile::default() });
        let mut fs = MemoryFs::new(&tree);
        fs.kinds_in_names = false;
        let (vfs, _) = fs.mount(64 * 1000, 2000);
        check(&vfs, b"", &tree).assert_passed();
    }

    #[test]
    fn the_suite_notices_what_is_wrong() {
        let tree = standard_tree(&Profile { many: 50, ..Profile::default() });
        type Tampering = (&'static str, fn(&mut MemoryFs));
        let tampered: [Tampering; 7] = [
            ("permissions", |fs| fs.inode_mut("modes/0640").attr.permissions = 0o644),
            ("many", |fs| drop(fs.inode_mut("many").names.pop())),
            ("twice", |fs| fs.inode_mut("names").names.push((b"a".to_vec(), Ino(10)))),
            ("content/3000", |fs| fs.inode_mut("content/3000").extents[0].mapping = Mapping::Hole),
            ("size", |fs| fs.inode_mut("content/512").attr.size_bytes = 511),
            ("target", |fs| fs.inode_mut("links/up").target = Some(b".".to_vec())),
            ("xattr", |fs| fs.inode_mut("xattrs/bytes").xattrs[0].1.push(0)),
        ];
        for (what, tamper) in tampered {
            let mut fs = MemoryFs::new(&tree);
            tamper(&mut fs);
            let (vfs, _) = fs.mount(24 << 20, 8 << 20);
            let outcome = check(&vfs, b"", &tree);
            assert!(outcome.failures.iter().any(|failure| failure.contains(what)), "{what}: {outcome:?}");
        }
    }
}
