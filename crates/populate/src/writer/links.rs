//! Symbolic links that lead to the directory of an entry.
//!
//! A link that was there before the source began is followed, whether the filesystem or an earlier source had it: behind
//! such links a merged `/usr` has its directories. It is followed within the filesystem, whose root its absolute targets
//! begin at and `..` never leaves. A link that the source has made itself is not followed.

use std::sync::Arc;

use undercroft_vfs::{Error as VfsError, FileType, Node, Result};

use super::Writer;
use crate::Error;

/// Most links that are followed in a row, as Linux has it.
const LINKS_MAX: u32 = 40;

impl Writer {
    /// The entries that follow are another source's, which may put them behind links of the sources before.
    ///
    /// # Errors
    /// The filesystem refuses what ends the last entry.
    pub fn next_source(&mut self) -> std::result::Result<(), Error> {
        self.finish_file()?;
        self.own_links.clear();
        Ok(())
    }

    /// Notes what may be a link of this source.
    pub(super) fn note_link(&mut self, node: &Node) {
        if node.kind() == FileType::Symlink {
            self.own_links.insert(node.ino());
        }
    }

    /// The directory that a directory's entry means, where there is a link of its name.
    pub(super) fn linked_directory(&self, dir: &Arc<Node>, there: &Arc<Node>) -> Result<Option<Arc<Node>>> {
        match there.kind() {
            FileType::Symlink => self.follow(dir, there),
            _ => Ok(None),
        }
    }

    /// What a link is that [`follow`](Self::follow) does not follow.
    pub(super) fn why_not_followed(&self, link: &Node) -> &'static str {
        if self.own_links.contains(&link.ino()) {
            "a symbolic link that the same source has made"
        } else {
            "a symbolic link that leads to no directory, or through a link that the same source has made"
        }
    }

    /// The directory that a symbolic link in `dir` leads to; `None` where it leads to none, or is not to be followed.
    pub(super) fn follow(&self, dir: &Arc<Node>, link: &Arc<Node>) -> Result<Option<Arc<Node>>> {
        let mut at = Arc::clone(dir);
        let mut node = Arc::clone(link);
        // The last one comes next.
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let mut followed = 0;
        loop {
            match node.kind() {
                FileType::Directory => at = node,
                FileType::Symlink => {
                    if followed == LINKS_MAX || self.own_links.contains(&node.ino()) {
                        return Ok(None);
                    }
                    followed += 1;
                    let target = node.read_link()?;
                    if target.starts_with(b"/") {
                        at = self.vfs.root()?;
                    }
                    let parts = target.split(|&byte| byte == b'/').rev();
                    names.extend(parts.filter(|name| !matches!(name, [] | [b'.'])).map(Box::<[u8]>::from));
                }
                _ => return Ok(None),
            }
            let Some(name) = names.pop() else { return Ok(Some(at)) };
            node = match self.vfs.lookup(&at, &name) {
                Err(VfsError::NotFound | VfsError::NameTooLong) => return Ok(None),
                node => node?,
            };
        }
    }
}
