//! Batches: many mixed requests at once, and batches that must be refused.

use super::{Factory, SIZE, assert_content, assert_same, pattern, readable, writable};
use crate::rng::Rng;
use crate::{Access, BlockDevice, Error, Request};

/// Cuts the device into pieces of irregular length and says which of them are written.
fn pieces(seed: u64, longest: u64) -> Vec<(usize, usize, bool)> {
    let mut rng = Rng::new(seed);
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < SIZE {
        let len = (rng.below(longest) as usize + 1).min(SIZE - at);
        pieces.push((at, len, rng.below(2) == 0));
        at += len;
    }
    pieces
}

fn run_pieces(device: &dyn BlockDevice, content: &mut [u8], pieces: &[(usize, usize, bool)]) {
    let data = pattern(7, SIZE);
    let mut found = vec![0; SIZE];
    let mut rest = found.as_mut_slice();
    let mut batch = Vec::new();
    for &(offset, len, write) in pieces {
        let (buf, tail) = rest.split_at_mut(len);
        rest = tail;
        batch.push(if write {
            Request::Write { offset: offset as u64, data: &data[offset..offset + len] }
        } else {
            Request::Read { offset: offset as u64, buf }
        });
    }
    // Requests have no order: hand them over in another one than that of their offsets.
    let middle = batch.len() / 3;
    batch.rotate_left(middle);
    device.run_batch(&mut batch).unwrap();
    for &(offset, len, write) in pieces {
        if write {
            content[offset..offset + len].copy_from_slice(&data[offset..offset + len]);
        } else {
            assert_same(&found[offset..offset + len], &content[offset..offset + len]);
        }
    }
    assert_content(device, content);
}

/// Hundreds of small reads and writes side by side.
pub fn mixed_batch(factory: Factory<'_>) {
    for longest in [1000, 9000, 70_000] {
        let Some((device, mut content)) = writable(factory) else { return };
        run_pieces(&*device, &mut content, &pieces(longest, longest));
        device.flush().unwrap();
    }
}

/// A batch that writes all of the device in blocks.
pub fn batch_of_writes(factory: Factory<'_>) {
    let Some((device, mut content)) = writable(factory) else { return };
    let blocks: Vec<_> = (0..SIZE / 4096).map(|block| (block * 4096, 4096, true)).collect();
    run_pieces(&*device, &mut content, &blocks);
}

/// Nothing, one request, and empty requests.
pub fn empty_and_single_batches(factory: Factory<'_>) {
    let (device, content) = readable(factory);
    device.run_batch(&mut []).unwrap();
    let mut buf = vec![0; 5000];
    device.run_batch(&mut [Request::Read { offset: 123, buf: &mut buf }]).unwrap();
    assert_same(&buf, &content[123..5123]);
    let end = SIZE as u64;
    let mut batch = [
        Request::Read { offset: 0, buf: &mut [] },
        Request::Read { offset: end, buf: &mut [] },
        Request::Read { offset: end - 5000, buf: &mut buf },
    ];
    device.run_batch(&mut batch).unwrap();
    assert_same(&buf, &content[SIZE - 5000..]);
}

/// Two halves of the device at once.
pub fn large_requests_in_a_batch(factory: Factory<'_>) {
    let (device, content) = readable(factory);
    let mut found = vec![0; SIZE];
    let (left, right) = found.split_at_mut(SIZE / 2 + 1);
    let offset = left.len() as u64;
    device
        .run_batch(&mut [Request::Read { offset, buf: right }, Request::Read { offset: 0, buf: left }])
        .unwrap();
    assert_same(&found, &content);
}

/// A bad request anywhere in a batch is reported, and touches nothing itself.
pub fn batch_with_a_bad_range(factory: Factory<'_>) {
    let end = SIZE as u64;
    let (device, _) = readable(factory);
    for position in [0, 7, 19] {
        for offset in [end - 100, end, u64::MAX - 10, 1 << 63] {
            let mut bufs = vec![[0x33_u8; 700]; 20];
            let mut batch: Vec<_> = bufs
                .iter_mut()
                .enumerate()
                .map(|(index, buf)| Request::Read {
                    offset: if index == position { offset } else { index as u64 * 800 },
                    buf,
                })
                .collect();
            let result = device.run_batch(&mut batch);
            assert!(matches!(result, Err(Error::OutOfRange { .. })), "{result:?}");
            assert_eq!(bufs[position], [0x33; 700]);
        }
    }
    let Some((device, content)) = writable(factory) else { return };
    let result = device.run_batch(&mut [Request::Write { offset: end - 1, data: &[1, 2] }]);
    assert!(matches!(result, Err(Error::OutOfRange { .. })), "{result:?}");
    assert_content(&*device, &content);
}

/// A write in a batch on a read-only device is refused.
pub fn read_only_batch(factory: Factory<'_>) {
    let content = pattern(4, SIZE);
    let Some(device) = factory(&content, Access::ReadOnly) else { return };
    let mut buf = [0; 100];
    let mut batch =
        [Request::Read { offset: 5, buf: &mut buf }, Request::Write { offset: 600, data: &[1; 100] }];
    let result = device.run_batch(&mut batch);
    assert!(matches!(result, Err(Error::ReadOnly { .. })), "{result:?}");
    assert_content(&*device, &content);
}
