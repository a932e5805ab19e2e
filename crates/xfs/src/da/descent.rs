//! From the root to the leaves in which a hash may be.
//!
//! Names with the same hash may fill several leaves, so a search goes on along the leaves' siblings. A sibling must
//! lead back, and no leaf is visited twice.

use std::collections::HashSet;

use undercroft_vfs::Result;

use super::{Block, Fork, Links, Node};

/// A block that the tree begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root(pub(crate) u32);

/// The leaves from the first that may hold a hash on, each with its identity verified and itself not validated.
pub(crate) struct Leaves<'a> {
    fork: Fork<'a>,
    next: Next,
    seen: HashSet<u32>,
}

enum Next {
    First(Block),
    Sibling { of: u32, at: u32 },
    None,
}

impl<'a> Leaves<'a> {
    /// Descends from the root to the leaf where `hash` comes first.
    ///
    /// # Errors
    /// Corruption, I/O failure.
    pub(crate) fn find(fork: Fork<'a>, root: Root, hash: u32) -> Result<Self> {
        let (mut block, mut links) = fork.read_tree_block(root.0)?;
        let mut level_above = None;
        while links.is_node(fork.layout) {
            let node = fork.validated(block.home, Node::validate(&block.bytes, fork.layout))?;
            if level_above.is_some_and(|above| above != node.level + 1) {
                let detail = format!(
                    "inner block of level {} lies below one of level {}",
                    node.level,
                    level_above.unwrap_or(0)
                );
                return Err(fork.corrupt(Some(block.home), detail));
            }
            let (level, child) = (node.level, node.child_of(hash));
            if child == root.0 {
                return Err(fork.corrupt(Some(block.home), "leads to the root"));
            }
            (block, links) = fork.read_tree_block(child)?;
            level_above = Some(level);
        }
        if let Some(level) = level_above
            && level != 1
        {
            let detail = format!("no inner block, but the block above it has level {level}");
            return Err(fork.corrupt(Some(block.home), detail));
        }
        Ok(Self { fork, next: Next::First(block), seen: HashSet::new() })
    }

    /// The next leaf.
    ///
    /// # Errors
    /// Corruption, I/O failure.
    pub(crate) fn next(&mut self) -> Result<Option<Block>> {
        let (block, links) = match std::mem::replace(&mut self.next, Next::None) {
            Next::None => return Ok(None),
            Next::First(block) => {
                let links = self.fork.validated(block.home, Links::of(&block.bytes))?;
                (block, links)
            }
            Next::Sibling { of, at } => {
                let (block, links) = self.fork.read_tree_block(at)?;
                if links.back != of {
                    let detail =
                        format!("is the next block after {of} and says that {} comes before it", links.back);
                    return Err(self.fork.corrupt(Some(block.home), detail));
                }
                (block, links)
            }
        };
        if !self.seen.insert(block.at) {
            return Err(self.fork.corrupt(Some(block.home), "its leaves form a ring"));
        }
        if links.forward != 0 {
            self.next = Next::Sibling { of: block.at, at: links.forward };
        }
        Ok(Some(block))
    }
}
