//! The largest file: everything up to its last byte, and nothing past it.

use super::super::outcome::Finds;
use super::ground::{Checked, Ground};
use crate::FallocateMode;

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    let limit = on.vfs.filesystem().limits().file_max_bytes;
    let (file, source) = (on.open_file("large")?, on.open_file("source")?);
    source.write_at(0, b"abcdef")?;

    let cut = file.write_at(limit - 3, b"abcdef");
    if let Some(len) = on.ok(|| "a write across the limit".to_owned(), cut) {
        on.equal(|| "bytes written before the limit".to_owned(), &len, &3);
    }
    on.equal(|| "size at the limit".to_owned(), &file.node().attr().size_bytes, &limit);
    let mut bytes = [0xa5; 8];
    let len = file.read_at(limit - 5, &mut bytes)?;
    on.equal(|| "the last bytes".to_owned(), &&bytes[..len], &&b"\0\0abc"[..]);
    on.equal(|| "the first data".to_owned(), &(file.seek_data(0)? > 0), &true);

    for (what, answer) in [
        ("a write at the limit", file.write_at(limit, b"a").map(drop)),
        ("a write at the last number", file.write_at(u64::MAX, b"a").map(drop)),
        ("an append", file.append(b"a").map(drop)),
        ("growing past it", file.truncate(limit + 1)),
        ("growing to the last number", file.truncate(u64::MAX)),
        ("a copy to the limit", source.copy_range(0, &file, limit, 6).map(drop)),
        ("an allocation", file.fallocate(FallocateMode::Allocate, limit - 1, 2, false)),
        ("an allocation that overflows", file.fallocate(FallocateMode::Allocate, 5, u64::MAX, true)),
    ] {
        on.refused(|| format!("{what} in the largest file"), answer, "FileTooLarge");
    }
    if on.profile.fallocate_modes.contains(&FallocateMode::Insert) {
        let inserted = file.fallocate(FallocateMode::Insert, 0, on.profile.holds.block_bytes, true);
        on.refused(|| "an insertion into the largest file".to_owned(), inserted, "FileTooLarge");
    }
    on.equal(|| "size after all refusals".to_owned(), &file.node().attr().size_bytes, &limit);

    let copied = source.copy_range(0, &file, limit - 2, 6);
    if let Some(len) = on.ok(|| "a copy across the limit".to_owned(), copied) {
        on.equal(|| "bytes copied before the limit".to_owned(), &len, &2);
    }
    file.truncate(0)?;
    file.truncate(limit)?;
    on.refused(|| "data in a file that is all hole".to_owned(), file.seek_data(0), "NoSuchOffset");
    Ok(())
}
