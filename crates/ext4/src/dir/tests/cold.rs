//! How much is read of the device for a directory that is not in the cache.

use std::sync::atomic::{AtomicUsize, Ordering};

use undercroft_block::Request;

use super::*;

/// Counts requests; neighbouring blocks asked for at once count as one.
#[derive(Debug)]
struct Counting {
    base: Device,
    reads: Arc<AtomicUsize>,
}

impl BlockDevice for Counting {
    fn name(&self) -> String {
        self.base.name()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        self.base.flush()
    }

    fn run_batch(&self, requests: &mut [Request<'_>]) -> undercroft_block::Result<()> {
        self.reads.fetch_add(requests.len(), Ordering::Relaxed);
        self.base.run_batch(requests)
    }
}

#[test]
fn listing_takes_few_reads_and_an_indexed_lookup_reads_one_leaf() {
    let mke2fs = Mke2fs::new("ext4", 32).block_bytes(1024).inodes(4096);
    let image = image(mke2fs, |root| touch(&root.join("d"), long_names(3000)));
    index_directories(&image);
    let loaded = Loaded::new(&image);
    let reads = Arc::new(AtomicUsize::new(0));
    let open = || {
        let device = Arc::new(Counting { base: Arc::clone(&loaded.base), reads: Arc::clone(&reads) });
        let superblock = Superblock::read(&*device).unwrap();
        let volume = Volume::new(device, superblock, 8 << 20);
        let directory = inode(&volume, "d");
        reads.store(0, Ordering::Relaxed);
        (volume, directory)
    };

    let (volume, directory) = open();
    let blocks = directory.size_bytes / 1024;
    assert!(blocks > 300, "{blocks} blocks");
    let mut position = 0;
    let mut count = 0;
    loop {
        let (listed, end) = list_some(&volume, &directory, position, 50);
        end.unwrap();
        let Some(last) = listed.last() else { break };
        (position, count) = (last.next.0, count + listed.len());
    }
    assert_eq!(count, 3002);
    let taken = reads.load(Ordering::Relaxed);
    // Windows of 256 KiB, and the extent tree's node.
    assert!(taken <= 8, "{taken} reads for {blocks} blocks");

    let (volume, directory) = open();
    let name = long_names(3000).nth(1234).unwrap();
    assert!(lookup(&volume, &directory, name.as_bytes()).unwrap().is_some());
    let taken = reads.load(Ordering::Relaxed);
    // Root, inner node, leaf; one more where a hash goes on in the next leaf.
    assert!(taken <= 4, "{taken} reads for one lookup");
}
