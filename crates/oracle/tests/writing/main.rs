//! ext2, ext3, ext4 and XFS written by us, checked by Linux's kernel and tools.
//!
//! `UNDERCROFT_SEED` replays a seed; `UNDERCROFT_OPERATIONS` says how many changes each worker makes.

mod conformance;
mod crash;
mod flush;
mod qcow2;
mod random;
mod scattered;

use std::env;
use std::path::Path;
use std::sync::Arc;

use undercroft_oracle::{Entry, How, Manifest, Reading};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};

/// Flags that say how an inode keeps its content, which is its filesystem's own business: index, extents, inline data.
const HOW_IT_IS_KEPT: u32 = 0x1000 | 0x8_0000 | 0x1000_0000;

/// A filesystem of ours, open for writing.
struct Opened {
    fs: Arc<dyn FileSystem>,
    vfs: Arc<Vfs>,
}

impl Opened {
    fn new(image: &Path, how: How, parallel: bool) -> Self {
        let fs = how.open_file(image).unwrap();
        let options = VfsOptions { parallel_directory_operations: parallel, ..VfsOptions::default() };
        let vfs = Vfs::new(Arc::clone(&fs), options);
        Self { fs, vfs }
    }

    /// As an unmount does it.
    fn close(self) {
        drop(self.vfs);
        self.fs.close().unwrap();
    }
}

/// What two filesystems agree on that went through the same changes in their own ways: not on numbers, times and
/// places.
fn comparable(manifest: Manifest) -> Manifest {
    let mut manifest = manifest.map(|_, entry| *entry = without_own_ways(entry.clone()));
    manifest.space = None;
    manifest
}

fn without_own_ways(entry: Entry) -> Entry {
    let content = entry.content.clone().map(|reading| match reading {
        Reading::Bytes(mut content) => {
            content.segments.clear();
            content.data_sha256 = [0; 32];
            Reading::Bytes(content)
        }
        Reading::NoKey => Reading::NoKey,
    });
    Entry {
        ino: 0,
        listed_ino: None,
        size: if entry.is_directory() { 0 } else { entry.size },
        sectors: 0,
        io_bytes: 0,
        accessed: (0, 0),
        modified: (0, 0),
        changed: (0, 0),
        created: None,
        flags: entry.flags.map(|flags| flags & !HOW_IT_IS_KEPT),
        identity: None,
        dots: None,
        content,
        ..entry
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
