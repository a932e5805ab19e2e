//! Changing damaged directories.

use super::dir::entry::{Entries, EntryFormat};
use super::*;

fn is_whole(bytes: &[u8], format: EntryFormat) -> bool {
    Entries::new(bytes, format).all(|entry| entry.is_ok())
}

/// Without checksums, so that what stands behind them is tried: no panic, and what was whole stays whole.
#[test]
fn no_block_is_broken_by_a_change() {
    let mut good = Changed::new(ext4(1024, "^metadata_csum"));
    let mut random = Rng::new(3);
    churn(&mut good, &mut random, 3000, 2000, 200);
    let (number, file, model) = (good.dir.number, good.file.number, good.model.clone());
    let image = good.finish();
    let loaded = Loaded::new(&image);
    let blocks = loaded.blocks("/d");
    let all: Vec<_> = model.keys().filter(|name| !name.starts_with(b".")).collect();
    let (mut refused, mut done) = (0, 0);
    for round in 0..400 {
        let device: Device = Arc::new(Overlay::new(Arc::clone(&loaded.base)));
        for _ in 0..=random.index(3) {
            let block = blocks[if round % 2 == 0 { random.index(3) } else { random.index(blocks.len()) }];
            let at = if round % 3 == 0 { random.index(48) } else { random.index(1024) };
            let value = [0, 1, 0xff, random.index(256) as u8][random.index(4)];
            device.write_at(loaded.byte(block, at as u64), &[value]).unwrap();
        }
        let read_all = || -> Vec<Vec<u8>> {
            let mut bytes = vec![0; 1024];
            let mut read = |block| {
                device.read_at(loaded.byte(block, 0), &mut bytes).unwrap();
                bytes.clone()
            };
            blocks.iter().map(|&block| read(block)).collect()
        };
        let before = read_all();
        let writable = Writable::open_on(Arc::clone(&device), image.copy().unwrap(), WriteOptions::default());
        let dir = writable.live(number);
        let format = EntryFormat::of(writable.volume.superblock());
        for _ in 0..60 {
            let handle = writable.volume.start(ADD_CREDITS).unwrap();
            let result = if random.index(2) == 0 {
                dir::remove(&handle, &dir, all[random.index(all.len())], file)
            } else {
                let name = random_name(&mut random, 5000, 255);
                dir::add(&handle, &dir, &name, file, FileType::Regular)
            };
            match result {
                Ok(()) => done += 1,
                Err(Error::Corrupt(_) | Error::Unsupported(_)) => refused += 1,
                Err(Error::NotFound | Error::Exists) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        drop(dir);
        drop(writable.close());
        for ((before, after), block) in before.iter().zip(read_all()).zip(&blocks) {
            assert!(is_whole(&after, format) || !is_whole(before, format), "round {round}, block {block}");
        }
    }
    assert!(refused > 100 && done > 10_000, "{refused} {done}");
}
