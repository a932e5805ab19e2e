//! Paths of entries, followed through the links of the tree as it is at that moment.
//!
//! Layers are made on systems where `/bin` may be a link to `/usr/bin`, and have members in `bin/`. Programs that unpack
//! layers follow such links within the root, and so does this: in memory, and never out of the tree.

use super::tree::{Full, Id, Kind, ROOT, Tree};

/// Most links on the way, as Linux has it.
const LINKS_MAX: usize = 40;
/// Most names on the way, with those of links' targets.
const NAMES_MAX: usize = 8192;

/// Why there is no directory at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Too many links, or names, on the way.
    Loop,
    /// Something is missing or no directory, and none is to be made.
    Missing,
    /// Making one takes too much memory.
    Full,
}

impl From<Full> for Lost {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl Tree {
    /// The directory at a path. With a layer, what is missing is made for it, in place of what is no directory.
    pub(super) fn directory_at(&mut self, path: &[u8], make: Option<u16>) -> Result<Id, Lost> {
        let mut rest = path.to_vec();
        let (mut at, mut id) = (0, ROOT);
        let (mut links, mut names) = (0, 0);
        while at < rest.len() {
            let end = rest[at..].iter().position(|&byte| byte == b'/').map_or(rest.len(), |len| at + len);
            let (from, to) = (at, end);
            at = end + 1;
            names += 1;
            if names > NAMES_MAX {
                return Err(Lost::Loop);
            }
            let name = &rest[from..to];
            match name {
                b"" | b"." => continue,
                b".." => {
                    id = self.parent(id);
                    continue;
                }
                _ => {}
            }
            let found = self.find(id, name);
            id = match found.map(|found| (found, self.kind(found))) {
                Some((found, Kind::Directory(_))) => found,
                Some((_, Kind::Symlink(place))) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Lost::Loop);
                    }
                    let target = self.target(place);
                    let begin = if target.first() == Some(&b'/') { ROOT } else { id };
                    let behind = rest.get(at..).unwrap_or_default();
                    rest = [target, behind].join(&b'/');
                    at = 0;
                    begin
                }
                Some((found, Kind::Other)) => {
                    let layer = make.ok_or(Lost::Missing)?;
                    self.remove(found);
                    self.add_directory(id, name, layer, None)?
                }
                None => {
                    let layer = make.ok_or(Lost::Missing)?;
                    self.add_directory(id, name, layer, None)?
                }
            };
        }
        Ok(id)
    }
}
