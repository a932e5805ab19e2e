//! A tar archive: whatever its bytes, it gives entries below the root and content within their sizes, or one error.
#![no_main]

use std::io::{self, Cursor, Read};

use undercroft_populate::{Archive, EntryKind, Source, TarSource};

struct Bytes(Cursor<Vec<u8>>);

impl Read for Bytes {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Archive for Bytes {}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // Few inputs have right checksums: each header gets its own.
    let mut bytes = input.to_vec();
    for header in bytes.chunks_exact_mut(512).filter(|header| header[0] != 0 && header[148] == b'?') {
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    let mut source = TarSource::new("fuzz", Box::new(move || Ok(Box::new(Bytes(Cursor::new(bytes.clone()))))));
    let mut buf = vec![0; 4096];
    while let Ok(Some(entry)) = source.next_entry() {
        assert!(entry.path.names().all(|name| !matches!(name, b"" | b"." | b"..")));
        let size = match &entry.kind {
            EntryKind::Regular(content) => content.size_bytes,
            _ => 0,
        };
        let mut behind = 0;
        while let Ok(Some(piece)) = source.read_content(&mut buf) {
            assert!(piece.offset >= behind && piece.len > 0);
            behind = piece.offset + piece.len as u64;
            assert!(behind <= size);
        }
    }
});
