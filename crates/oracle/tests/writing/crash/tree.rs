//! What a tree looks like: of names everything, of bytes a number for each sector.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{DirOffset, FileType, Node, Vfs};

/// Bytes of which each survives a crash, or not, together.
pub(super) const SECTOR_BYTES: usize = 512;

/// A tree as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) names: BTreeMap<String, Seen>,
    /// By inode: a number for the bytes of each sector, to the end of the last block.
    pub(super) sectors: HashMap<u64, Vec<u64>>,
}

/// What must be as it was, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) ino: u64,
    mode: u32,
    links: u32,
    owner: (u32, u32),
    pub(super) size: u64,
    target: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Seen {
    /// Whether nothing but the size differs.
    pub(super) fn is_but_for_size(&self, other: &Self) -> bool {
        Self { size: other.size, ..self.clone() } == *other
    }
}

/// Whether a name is one of `worker`'s, or above one.
fn concerns(path: &str, worker: u64) -> bool {
    let (own, shared) = (format!("/worker-{worker}"), format!("/shared/of-{worker}-"));
    path == "/shared" || path == own || path.starts_with(&format!("{own}/")) || path.starts_with(&shared)
}

/// The tree as it is, or the part of it that only one worker changes.
pub(super) fn look(vfs: &Arc<Vfs>, whose: Option<u64>) -> Tree {
    let mut tree = Tree::default();
    let mut ahead = vec![(String::new(), vfs.root().unwrap())];
    while let Some((path, node)) = ahead.pop() {
        if node.kind() == FileType::Directory {
            let mut names = Vec::new();
            node.read_dir(DirOffset::default(), &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(entry.name.to_vec());
                }
                ControlFlow::Continue(())
            })
            .unwrap();
            for name in names {
                let below = format!("{path}/{}", String::from_utf8(name.clone()).unwrap());
                if whose.is_none_or(|worker| concerns(&below, worker)) {
                    ahead.push((below, vfs.lookup(&node, &name).unwrap()));
                }
            }
        }
        if whose.is_some() && matches!(path.as_str(), "" | "/shared") {
            continue;
        }
        if node.kind() == FileType::Regular {
            tree.sectors.entry(node.ino().0).or_insert_with(|| sectors(vfs, &node));
        }
        tree.names.insert(path, seen(&node));
    }
    tree
}

fn seen(node: &Arc<Node>) -> Seen {
    let attr = node.attr();
    let directory = node.kind() == FileType::Directory;
    let mut names = node.list_xattrs().unwrap();
    names.sort_unstable();
    let xattrs = names.into_iter().map(|name| {
        let value = node.xattr(&name).unwrap().unwrap();
        (name, value)
    });
    Seen {
        ino: attr.ino.0,
        mode: attr.kind.mode_bits() | u32::from(attr.permissions),
        links: attr.links,
        owner: (attr.uid, attr.gid),
        size: if directory { 0 } else { attr.size_bytes },
        target: if node.kind() == FileType::Symlink { node.read_link().unwrap() } else { Vec::new() },
        xattrs: xattrs.collect(),
    }
}

fn sectors(vfs: &Arc<Vfs>, node: &Arc<Node>) -> Vec<u64> {
    let file = vfs.open_node(node).unwrap();
    let attr = node.attr();
    let mut bytes = vec![0; attr.size_bytes as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(done as u64, &mut bytes[done..]).unwrap() {
            0 => break,
            len => done += len,
        }
    }
    // The rest of the last block is zeroes on the disk, which a crash may find there before it is certain that the file
    // is shorter: as with Linux, what is cut off of a block is cleared first.
    bytes.resize(bytes.len().next_multiple_of(attr.block_bytes as usize), 0);
    // FNV: sectors are noise or zeroes, and none is made to collide.
    bytes
        .chunks(SECTOR_BYTES)
        .map(|sector| {
            let fold = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
            sector.iter().fold(0xCBF2_9CE4_8422_2325, fold)
        })
        .collect()
}

/// The names that are not as expected, in words.
pub(super) fn differences(expected: &BTreeMap<String, Seen>, found: &BTreeMap<String, Seen>) -> Vec<String> {
    let names: HashSet<_> = expected.keys().chain(found.keys()).collect();
    names
        .into_iter()
        .filter(|name| expected.get(*name) != found.get(*name))
        .map(|name| format!("{name}: expected {:?}, found {:?}", expected.get(name), found.get(name)))
        .collect()
}
