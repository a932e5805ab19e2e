//! Single requests: any alignment, the end of the device, refusals, zeroing and discarding.

use super::{Factory, SIZE, assert_content, assert_same, bytes_at, pattern, readable, writable};
use crate::{Access, Error, NextData, Operation};

/// Offsets and lengths around the boundaries where devices cut: sectors, pages, chunks, and in between.
const RANGES: [(usize, usize); 14] = [
    (0, 1),
    (0, 512),
    (1, 510),
    (511, 2),
    (512, 512),
    (4095, 2),
    (4096, 4096),
    (4097, 8190),
    (3, 65536),
    (65535, 65538),
    (131_072, 65536),
    (100_001, 700_003),
    (SIZE - 513, 513),
    (0, SIZE),
];

/// Sizes, access and content are what the device was made with.
pub fn content_and_size(factory: Factory<'_>) {
    let (device, content) = readable(factory);
    assert_eq!(device.size_bytes(), SIZE as u64);
    assert!(!device.name().is_empty());
    assert_content(&*device, &content);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        if let Some(device) = factory(&content, access) {
            assert_eq!(device.access(), access);
        }
    }
}

/// A read may start and end anywhere, and fills its buffer and nothing else.
pub fn reads_of_any_alignment(factory: Factory<'_>) {
    let (device, content) = readable(factory);
    for (offset, len) in RANGES {
        assert_same(&bytes_at(&*device, offset as u64, len), &content[offset..offset + len]);
        let mut shifted = vec![0x77; len + 3];
        device.read_at(offset as u64, &mut shifted[2..len + 2]).unwrap();
        assert_same(&shifted[2..len + 2], &content[offset..offset + len]);
        assert_eq!((shifted[0], shifted[1], shifted[len + 2]), (0x77, 0x77, 0x77), "bytes around the buffer");
    }
}

/// A write may start and end anywhere, from any buffer, and changes its range only.
pub fn writes_of_any_alignment(factory: Factory<'_>) {
    let Some((device, mut content)) = writable(factory) else { return };
    for (index, (offset, len)) in RANGES.into_iter().enumerate() {
        let data = pattern(100 + index as u64, len + 1);
        device.write_at(offset as u64, &data[1..]).unwrap();
        content[offset..offset + len].copy_from_slice(&data[1..]);
        assert_content(&*device, &content);
    }
}

/// Of two overlapping writes, one after the other, the second stays.
pub fn later_write_wins(factory: Factory<'_>) {
    let Some((device, mut content)) = writable(factory) else { return };
    for (offset, len, byte) in
        [(1000, 9000, 1), (5000, 9000, 2), (900, 200, 3), (4096, 4096, 4), (6000, 10, 5)]
    {
        device.write_at(offset as u64, &vec![byte; len]).unwrap();
        content[offset..offset + len].fill(byte);
    }
    assert_content(&*device, &content);
}

/// The last byte is usable, the one after it is not.
pub fn end_of_device(factory: Factory<'_>) {
    let end = SIZE as u64;
    let (device, content) = readable(factory);
    assert_eq!(bytes_at(&*device, end - 1, 1)[0], content[SIZE - 1]);
    assert!(matches!(device.read_at(end, &mut [0]), Err(Error::OutOfRange { .. })));
    let Some((device, mut content)) = writable(factory) else { return };
    device.write_at(end - 1, &[0xab]).unwrap();
    content[SIZE - 1] = 0xab;
    assert!(matches!(device.write_at(end - 1, &[1, 2]), Err(Error::OutOfRange { .. })));
    assert_content(&*device, &content);
}

/// A range outside the device is refused before anything is transferred, also where `offset + len` overflows.
pub fn out_of_range_is_refused(factory: Factory<'_>) {
    let end = SIZE as u64;
    let bad: [(u64, u64); 8] = [
        (end, 1),
        (end - 1, 2),
        (0, end + 1),
        (end + 4096, 512),
        (u64::MAX, 1),
        (u64::MAX - 100, 512),
        (u64::MAX - 511, 512),
        (1 << 63, 4096),
    ];
    let (device, _) = readable(factory);
    for (offset, len) in bad {
        let mut buf = vec![0x55; len as usize];
        expect_out_of_range(device.read_at(offset, &mut buf), Operation::Read, offset, len);
        assert!(buf.iter().all(|&byte| byte == 0x55), "a refused read leaves its buffer alone");
    }
    let Some((device, content)) = writable(factory) else { return };
    for (offset, len) in bad {
        expect_out_of_range(device.write_at(offset, &vec![1; len as usize]), Operation::Write, offset, len);
        expect_out_of_range(device.discard(offset, len), Operation::Discard, offset, len);
        expect_out_of_range(device.write_zeroes(offset, len), Operation::WriteZeroes, offset, len);
    }
    for (offset, len) in [(1, u64::MAX), (u64::MAX, u64::MAX), (end / 2, u64::MAX - end)] {
        expect_out_of_range(device.discard(offset, len), Operation::Discard, offset, len);
        expect_out_of_range(device.write_zeroes(offset, len), Operation::WriteZeroes, offset, len);
        device.prefetch(offset, len);
    }
    assert_content(&*device, &content);
}

#[track_caller]
fn expect_out_of_range(result: crate::Result<()>, operation: Operation, offset: u64, len: u64) {
    match result {
        Err(Error::OutOfRange { operation: o, offset: at, len: l, size, .. }) => {
            assert_eq!((o, at, l, size), (operation, offset, len, SIZE as u64));
        }
        other => panic!("{operation} of {len} bytes at {offset} must be out of range, not {other:?}"),
    }
}

/// Empty requests are allowed up to and including the end, and change nothing.
pub fn empty_requests(factory: Factory<'_>) {
    let (device, _) = readable(factory);
    for offset in [0, 1, 4096, SIZE as u64] {
        device.read_at(offset, &mut []).unwrap();
        device.prefetch(offset, 0);
    }
    assert!(matches!(device.read_at(SIZE as u64 + 1, &mut []), Err(Error::OutOfRange { .. })));
    let Some((device, content)) = writable(factory) else { return };
    for offset in [0, 1, 4096, SIZE as u64] {
        device.write_at(offset, &[]).unwrap();
        device.discard(offset, 0).unwrap();
        device.write_zeroes(offset, 0).unwrap();
    }
    assert!(matches!(device.write_at(u64::MAX, &[]), Err(Error::OutOfRange { .. })));
    assert_content(&*device, &content);
}

/// Zeroed ranges read as zeroes, their neighbours stay, and they can be written again.
pub fn zeroing(factory: Factory<'_>) {
    for (offset, len) in RANGES {
        let Some((device, mut content)) = writable(factory) else { return };
        device.write_zeroes(offset as u64, len as u64).unwrap();
        content[offset..offset + len].fill(0);
        assert_content(&*device, &content);
        device.write_at(offset as u64 + len as u64 / 2, &[7]).unwrap();
        content[offset + len / 2] = 7;
        assert_content(&*device, &content);
    }
}

/// A discard leaves the neighbours alone, and what is written to its range afterwards stays.
pub fn discarding(factory: Factory<'_>) {
    for (offset, len) in RANGES {
        let Some((device, mut content)) = writable(factory) else { return };
        device.discard(offset as u64, len as u64).unwrap();
        assert_same(&bytes_at(&*device, 0, offset), &content[..offset]);
        let after = offset + len;
        assert_same(&bytes_at(&*device, after as u64, SIZE - after), &content[after..]);
        let data = pattern(3, len);
        device.write_at(offset as u64, &data).unwrap();
        content[offset..after].copy_from_slice(&data);
        assert_content(&*device, &content);
    }
}

/// What a device says to be no data reads as zeroes, and its account of it comes to an end.
pub fn data_is_where_it_is_said_to_be(factory: Factory<'_>) {
    let Some((device, _)) = writable(factory) else { return };
    let zeroed = SIZE / 4;
    device.write_zeroes(zeroed as u64, SIZE as u64 / 2).unwrap();
    device.write_at(SIZE as u64 / 2, &[7]).unwrap();
    let content = bytes_at(&*device, 0, SIZE);
    let mut at = 0;
    while at < SIZE {
        let data = match device.next_data(at as u64).unwrap() {
            NextData::Unknown => return,
            NextData::Nowhere => SIZE..SIZE,
            NextData::At(range) => range.start as usize..range.end as usize,
        };
        assert!(at <= data.start && data.end <= SIZE && (data.end > at), "{data:?} from {at} on");
        assert!(content[at..data.start].iter().all(|&byte| byte == 0), "data before {data:?} from {at} on");
        at = data.end;
    }
    assert_eq!(device.next_data(SIZE as u64).unwrap(), NextData::Nowhere);
}

/// A read-only device refuses every change, whatever its range, and still flushes.
pub fn read_only_refuses(factory: Factory<'_>) {
    let content = pattern(4, SIZE);
    let Some(device) = factory(&content, Access::ReadOnly) else { return };
    for (offset, len) in [(0, 1), (0, 0), (512, 4096), (SIZE as u64, 1), (u64::MAX, 1)] {
        let refusals = [
            (Operation::Write, device.write_at(offset, &vec![1; len as usize])),
            (Operation::Discard, device.discard(offset, len)),
            (Operation::WriteZeroes, device.write_zeroes(offset, len)),
        ];
        for (operation, result) in refusals {
            assert!(
                matches!(result, Err(Error::ReadOnly { operation: o, .. }) if o == operation),
                "{result:?}"
            );
        }
    }
    device.flush().unwrap();
    assert_content(&*device, &content);
}

/// A flush succeeds with and without anything to do and changes nothing; the topology makes sense.
pub fn flush_and_topology(factory: Factory<'_>) {
    let (device, content) = readable(factory);
    device.flush().unwrap();
    assert_content(&*device, &content);
    let topology = device.topology();
    assert!(topology.logical_block_bytes.is_power_of_two() && topology.logical_block_bytes >= 512);
    assert!(topology.physical_block_bytes.is_power_of_two());
    assert!(topology.physical_block_bytes >= topology.logical_block_bytes);
    let Some((device, mut content)) = writable(factory) else { return };
    for round in 0..3 {
        device.write_at(round * 5000, &[9; 100]).unwrap();
        content[round as usize * 5000..][..100].fill(9);
        device.flush().unwrap();
        device.flush().unwrap();
        assert_content(&*device, &content);
    }
}
