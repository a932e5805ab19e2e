//! Looking at everything that a damaged image has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_block::Device;
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_vfs::{FileSystem, FileType, Vfs, VfsOptions, WalkEvent, WalkFlow, WalkOptions};

use super::check_sentence;

/// A damaged directory or map can make a small image look vast: this much of each file is read.
const READ_BYTES: usize = 16 * 1024;
/// And so many entries of a walk are looked at.
const MOST_ENTRIES: u64 = 20_000;

/// What a look at a damaged image came to.
pub(crate) enum Outcome {
    Refused,
    Walked { errors: u64 },
}

/// Opens an image for reading and looks at everything in it.
pub(crate) fn walk(device: Device) -> Outcome {
    let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
    let fs = match Ext4::open_read_only(device, options) {
        Ok(fs) => fs,
        Err(error) => {
            check_sentence(&error.to_string());
            return Outcome::Refused;
        }
    };
    let orphans = fs.orphans().map(drop);
    walk_all(fs, orphans)
}

/// Looks at everything in a filesystem; `before` is what became of looking at something first.
pub(crate) fn walk_all(fs: Arc<dyn FileSystem>, before: undercroft_vfs::Result<()>) -> Outcome {
    let errors = AtomicU64::new(0);
    let entries = AtomicU64::new(0);
    let note = |error: undercroft_vfs::Error| {
        check_sentence(&error.to_string());
        errors.fetch_add(1, Ordering::Relaxed);
    };
    if let Err(error) = before {
        note(error);
    }
    let vfs = Vfs::new(fs, VfsOptions::default());
    if let Err(error) = vfs.filesystem().statfs() {
        note(error);
    }
    let mut buf = vec![0; READ_BYTES];
    match vfs.root() {
        Ok(root) => vfs.walk_sorted(&root, WalkOptions::default(), &mut |event| {
            match event {
                WalkEvent::Failure { error, .. } => note(error),
                WalkEvent::Entry(entry) => {
                    if entries.fetch_add(1, Ordering::Relaxed) == MOST_ENTRIES {
                        return WalkFlow::Stop;
                    }
                    match entry.node() {
                        Ok(node) => look_at(&vfs, &node, &mut buf, &note),
                        Err(error) => note(error),
                    }
                }
            }
            WalkFlow::Continue
        }),
        Err(error) => note(error),
    }
    Outcome::Walked { errors: errors.into_inner() }
}

/// Asks an inode everything.
fn look_at(
    vfs: &Vfs,
    node: &Arc<undercroft_vfs::Node>,
    buf: &mut [u8],
    note: &dyn Fn(undercroft_vfs::Error),
) {
    match node.list_xattrs() {
        Ok(names) => {
            for name in names {
                if let Err(error) = node.xattr(&name) {
                    note(error);
                }
            }
        }
        Err(error) => note(error),
    }
    match node.kind() {
        FileType::Symlink => {
            if let Err(error) = node.read_link() {
                note(error);
            }
        }
        FileType::Directory => {
            if let Err(error) = vfs.lookup(node, b"no such name, but long enough to be hashed")
                && !matches!(error, undercroft_vfs::Error::NotFound)
            {
                note(error);
            }
        }
        FileType::Regular => {
            let read = vfs.open_node(node).and_then(|file| {
                file.read_at(0, buf)?;
                let size = node.attr().size_bytes;
                file.read_at(size.saturating_sub(buf.len() as u64), buf)
            });
            if let Err(error) = read {
                note(error);
            }
        }
        _ => {}
    }
}
