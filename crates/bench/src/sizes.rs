//! Sizes that workloads agree on: how much is written at once, and how an array is laid.

/// What an overwrite writes at once.
pub(crate) const OVERWRITE_BYTES: u64 = 4096;
/// What a write writes at once in large pieces, and what files are filled with.
pub(crate) const WRITE_BYTES: u64 = 1 << 20;
/// What a write writes at once in small pieces.
pub(crate) const SMALL_WRITE_BYTES: u64 = 4096;
/// Bytes of a file.
pub(crate) const FILE_BYTES: u64 = 4 << 20;
/// Members of the array.
pub(crate) const MEMBERS: u32 = 4;
/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: u64 = 64 << 10;
/// Bytes of data in a row of chunks.
pub(crate) const ROW_BYTES: u64 = (MEMBERS as u64 - 1) * CHUNK_BYTES;
/// What a sequential write writes at once: some rows of chunks of the array.
pub(crate) const SEQUENTIAL_BYTES: u64 = 8 * ROW_BYTES;
