//! A tree of files as data: what a filesystem under test must contain.

use crate::{DeviceNumber, FileType, Timestamp};
use undercroft_block::testing::Rng;

/// A tree: parents come before their children, and the first entry is the tree's own top with an empty path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Everything in it.
    pub entries: Vec<Entry>,
}

/// One name in the tree, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path below the top, without a slash in front.
    pub path: Vec<u8>,
    /// What it is.
    pub object: Object,
    /// Permission bits with set-user-ID, set-group-ID and sticky. With an access control list among the
    /// xattrs, the bits are those that the list implies.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Extended attributes by their full names, access control lists among them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A directory; its entries follow.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link to this path.
    Symlink(Vec<u8>),
    /// Another name of the object at this path, which comes earlier and is not a directory. The entry's
    /// attributes are that object's.
    HardLink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device's node.
    CharDevice(DeviceNumber),
    /// A block device's node.
    BlockDevice(DeviceNumber),
}

/// What a regular file holds: pieces of data, and holes between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The file's size.
    pub size_bytes: u64,
    /// The data, by rising offset, without overlap and within the size.
    pub pieces: Vec<Piece>,
}

/// A run of pseudo-random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte within the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// What the bytes are made from.
    pub seed: u64,
}

impl Tree {
    /// A tree with nothing below its top.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: vec![Entry::new("", Object::Directory)] }
    }

    /// Adds an entry, and returns it for details to be set.
    pub fn add(&mut self, path: impl AsRef<[u8]>, object: Object) -> &mut Entry {
        self.entries.push(Entry::new(path, object));
        let last = self.entries.len() - 1;
        &mut self.entries[last]
    }

    /// The entry at a path.
    #[must_use]
    pub fn get(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path)
    }

    /// The entry that holds the attributes: the entry itself, or for a hard link the object it names.
    #[must_use]
    pub fn object<'a>(&'a self, entry: &'a Entry) -> &'a Entry {
        match &entry.object {
            Object::HardLink(target) => self.get(target).unwrap_or(entry),
            _ => entry,
        }
    }

    /// The names directly below a directory, with their entries.
    pub fn children<'a>(&'a self, dir: &'a Entry) -> impl Iterator<Item = (&'a [u8], &'a Entry)> {
        self.entries.iter().filter_map(move |entry| {
            let name = match &dir.path[..] {
                [] => &entry.path[..],
                dir => entry.path.strip_prefix(dir)?.strip_prefix(b"/")?,
            };
            (!name.is_empty() && !name.contains(&b'/')).then_some((name, entry))
        })
    }

    /// How many names an object has, as `st_nlink` counts them.
    #[must_use]
    pub fn links(&self, object: &Entry) -> u32 {
        let count = if object.object == Object::Directory {
            2 + self.children(object).filter(|(_, child)| child.object == Object::Directory).count()
        } else {
            let also = |entry: &&Entry| matches!(&entry.object, Object::HardLink(to) if *to == object.path);
            1 + self.entries.iter().filter(also).count()
        };
        count as u32
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Entry {
    fn new(path: impl AsRef<[u8]>, object: Object) -> Self {
        let permissions = match object {
            Object::Directory => 0o755,
            Object::Symlink(_) => 0o777,
            _ => 0o644,
        };
        let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        Self {
            path: path.as_ref().to_vec(),
            object,
            permissions,
            uid: 0,
            gid: 0,
            accessed: time,
            modified: time,
            xattrs: Vec::new(),
        }
    }

    /// Sets permission bits, owner and group.
    pub fn owned(&mut self, permissions: u16, uid: u32, gid: u32) -> &mut Self {
        (self.permissions, self.uid, self.gid) = (permissions, uid, gid);
        self
    }

    /// Sets both times.
    pub fn at(&mut self, accessed: Timestamp, modified: Timestamp) -> &mut Self {
        (self.accessed, self.modified) = (accessed, modified);
        self
    }

    /// Adds an extended attribute.
    pub fn xattr(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.xattrs.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// The last part of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }
}

impl Object {
    /// The kind of file; for a hard link, ask the object it names.
    #[must_use]
    pub fn kind(&self) -> Option<FileType> {
        Some(match self {
            Self::Directory => FileType::Directory,
            Self::File(_) => FileType::Regular,
            Self::Symlink(_) => FileType::Symlink,
            Self::HardLink(_) => return None,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::CharDevice(_) => FileType::CharDevice,
            Self::BlockDevice(_) => FileType::BlockDevice,
        })
    }
}

impl Content {
    /// A file full of data.
    #[must_use]
    pub fn full(size_bytes: u64, seed: u64) -> Self {
        let pieces = (size_bytes > 0).then_some(Piece { offset: 0, len: size_bytes, seed });
        Self { size_bytes, pieces: pieces.into_iter().collect() }
    }

    /// Fills `buf` with the file's bytes from `offset` on; past the end with zeroes.
    pub fn fill(&self, offset: u64, buf: &mut [u8]) {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for piece in &self.pieces {
            let (from, to) = (piece.offset.max(offset), (piece.offset + piece.len).min(end));
            if from < to {
                piece.fill(from - piece.offset, &mut buf[(from - offset) as usize..(to - offset) as usize]);
            }
        }
    }

    /// The first byte of data at or after `offset`.
    #[must_use]
    pub fn data_from(&self, offset: u64) -> Option<u64> {
        let piece = self.pieces.iter().find(|piece| piece.offset + piece.len > offset)?;
        Some(piece.offset.max(offset))
    }

    /// The first byte of a hole at or after `offset`, which lies within the size.
    #[must_use]
    pub fn hole_from(&self, offset: u64) -> u64 {
        self.pieces.iter().fold(offset, |at, piece| {
            if piece.offset <= at && at < piece.offset + piece.len { piece.offset + piece.len } else { at }
        })
    }
}

impl Piece {
    /// Fills `buf` with the piece's bytes from the piece's byte `skip` on.
    pub fn fill(&self, skip: u64, buf: &mut [u8]) {
        for (position, byte) in (skip..).zip(buf) {
            *byte = mix(self.seed ^ (position / 8)).to_le_bytes()[(position % 8) as usize];
        }
    }
}

/// Well mixed bits of a number.
pub(crate) fn mix(number: u64) -> u64 {
    Rng::new(number).bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_wherever_one_starts() {
        let mut content = Content::full(100, 7);
        content.pieces[0].offset = 20;
        content.size_bytes = 130;
        let mut whole = [0; 140];
        content.fill(0, &mut whole);
        assert_eq!(whole[..20], [0; 20]);
        assert_eq!(whole[120..], [0; 20]);
        for start in 0..140 {
            let mut part = vec![0xff; 140 - start];
            content.fill(start as u64, &mut part);
            assert_eq!(part, whole[start..], "from byte {start}");
        }
        assert_eq!(
            (content.data_from(3), content.data_from(30), content.data_from(120)),
            (Some(20), Some(30), None)
        );
        assert_eq!((content.hole_from(3), content.hole_from(20), content.hole_from(125)), (3, 120, 125));
    }
}
