//! The files of sources as a tree, with what FAT can have of them.
//!
//! A node's number is its place in the list; the root is the first, and directories come before what is in them. Of
//! several files of one path the last counts.

use std::collections::HashMap;

use undercroft_populate::{Entry, EntryKind, Source};

use crate::Error;

/// The format has 32 bits for a file's size.
const FILE_MAX_BYTES: u64 = u32::MAX as u64;
/// Units of UTF-16 in a name.
const NAME_UNITS: usize = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Directory,
    /// So many bytes.
    File(u64),
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) parent: usize,
    pub(super) content: Content,
    /// Seconds since 1970.
    pub(super) modified: i64,
    /// Of a directory, in the order of the sources.
    pub(super) children: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// The files by the number of their entry, counted through all sources.
    by_ordinal: HashMap<u64, usize>,
}

impl Tree {
    /// Reads all entries, and goes back to the first. No time is later than `latest`.
    pub(super) fn collect(sources: &mut [Box<dyn Source>], latest: i64) -> Result<Self, Error> {
        let root = Node {
            name: String::new(),
            parent: 0,
            content: Content::Directory,
            modified: latest,
            children: Vec::new(),
        };
        let mut collector =
            Collector { nodes: vec![root], by_name: HashMap::new(), ordinals: HashMap::new(), latest };
        let mut ordinal = 0;
        for source in sources {
            while let Some(entry) = source.next_entry()? {
                ordinal += 1;
                collector
                    .add(&entry, ordinal)
                    .map_err(|what| Error::Refused(format!("{}: {:?}: {what}", source.name(), entry.path)))?;
            }
            source.rewind()?;
        }
        let by_ordinal = collector.ordinals.into_iter().map(|(index, ordinal)| (ordinal, index)).collect();
        Ok(Self { nodes: collector.nodes, by_ordinal })
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn content(&self, index: usize) -> Content {
        self.nodes[index].content
    }

    pub(super) fn is_directory(&self, index: usize) -> bool {
        self.content(index) == Content::Directory
    }

    /// The file whose content comes with the entry of this number.
    pub(super) fn by_ordinal(&self, ordinal: u64) -> Option<usize> {
        self.by_ordinal.get(&ordinal).copied()
    }
}

struct Collector {
    nodes: Vec<Node>,
    /// Nodes by directory and name, as FAT compares names.
    by_name: HashMap<(usize, String), usize>,
    /// The entry that each file's content comes with.
    ordinals: HashMap<usize, u64>,
    latest: i64,
}

impl Collector {
    fn add(&mut self, entry: &Entry, ordinal: u64) -> Result<(), String> {
        let content = match &entry.kind {
            EntryKind::Directory => Content::Directory,
            EntryKind::Regular(content) if content.size_bytes > FILE_MAX_BYTES => {
                return Err("files in FAT are smaller than 4 GiB".to_owned());
            }
            EntryKind::Regular(content) => Content::File(content.size_bytes),
            EntryKind::HardLink(_) => return Err("FAT has no hard links".to_owned()),
            EntryKind::Symlink(_) => return Err("FAT has no symbolic links".to_owned()),
            EntryKind::CharDevice(_) | EntryKind::BlockDevice(_) => {
                return Err("FAT has no device nodes".to_owned());
            }
            EntryKind::Fifo => return Err("FAT has no named pipes".to_owned()),
            EntryKind::Socket => return Err("FAT has no sockets".to_owned()),
            EntryKind::Whiteout | EntryKind::Opaque => {
                return Err("layers are not put onto each other in FAT".to_owned());
            }
        };
        let modified = entry.metadata.modified.seconds.min(self.latest);
        let Ok(path) = std::str::from_utf8(entry.path.as_bytes()) else {
            return Err("the name is not UTF-8, and FAT has no others".to_owned());
        };
        let mut at = 0;
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        for (depth, name) in names.iter().enumerate() {
            let is_last = depth + 1 == names.len();
            let (content, time) =
                if is_last { (content, modified) } else { (Content::Directory, self.latest) };
            at = self.child(at, name, content, time, is_last)?;
        }
        if content != Content::Directory {
            self.ordinals.insert(at, ordinal);
        }
        Ok(())
    }

    /// The node of a name in a directory, made where it is not there yet.
    fn child(
        &mut self,
        parent: usize,
        name: &str,
        content: Content,
        modified: i64,
        is_last: bool,
    ) -> Result<usize, String> {
        check_name(name)?;
        let key = (parent, name.to_uppercase());
        if let Some(&found) = self.by_name.get(&key) {
            let node = &mut self.nodes[found];
            if node.name != name {
                return Err(format!("in FAT it is the same name as \"{}\"", node.name));
            }
            if (node.content == Content::Directory) != (content == Content::Directory) {
                return Err("it is there as something else".to_owned());
            }
            if is_last {
                (node.content, node.modified) = (content, modified);
            }
            return Ok(found);
        }
        let index = self.nodes.len();
        let name = name.to_owned();
        self.nodes.push(Node { name, parent, content, modified, children: Vec::new() });
        self.nodes[parent].children.push(index);
        self.by_name.insert(key, index);
        Ok(index)
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.encode_utf16().count() > NAME_UNITS {
        return Err(format!("names in FAT have at most {NAME_UNITS} characters"));
    }
    if let Some(wrong) = name.chars().find(|&char| char < ' ' || "\"*:<>?\\|".contains(char)) {
        return Err(format!("names in FAT have no {wrong:?}"));
    }
    if name.ends_with(['.', ' ']) {
        return Err("names in FAT do not end with a dot or a space".to_owned());
    }
    Ok(())
}
