//! A random sequence of operations on the device and on plain bytes, compared after each.

use super::{Factory, SIZE, assert_content, assert_same, bytes_at, pattern, writable};
use crate::Request;
use crate::rng::Rng;

/// Every operation, at random ranges; the seed is fixed, so that a failure repeats.
pub fn random_operations(factory: Factory<'_>) {
    let Some((device, mut model)) = writable(factory) else { return };
    let mut rng = Rng::new(0x756e_6465_7263);
    for step in 0..400_u64 {
        let longest = [16, 600, 5000, 70_000][rng.below(4) as usize];
        let offset = rng.below(SIZE as u64) as usize;
        let len = (rng.below(longest) as usize).min(SIZE - offset);
        let range = offset..offset + len;
        let data = pattern(step, len);
        match rng.below(6) {
            0 => {
                device.write_zeroes(offset as u64, len as u64).unwrap();
                model[range.clone()].fill(0);
            }
            1 => {
                // What a discarded range reads as is not said, so it is given a content at once.
                device.discard(offset as u64, len as u64).unwrap();
                device.write_at(offset as u64, &data).unwrap();
                model[range.clone()].copy_from_slice(&data);
            }
            2 => {
                let (left, right) = data.split_at(len / 2);
                let middle = (offset + left.len()) as u64;
                device
                    .run_batch(&mut [
                        Request::Write { offset: middle, data: right },
                        Request::Write { offset: offset as u64, data: left },
                    ])
                    .unwrap();
                model[range.clone()].copy_from_slice(&data);
            }
            3 => device.flush().unwrap(),
            4 => device.prefetch(offset as u64, len as u64),
            _ => {
                device.write_at(offset as u64, &data).unwrap();
                model[range.clone()].copy_from_slice(&data);
            }
        }
        let around = offset.saturating_sub(100)..(range.end + 100).min(SIZE);
        assert_same(&bytes_at(&*device, around.start as u64, around.len()), &model[around]);
    }
    assert_content(&*device, &model);
}
