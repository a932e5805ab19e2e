//! Streams of every compression, and damaged ones.

use std::io::{self, Read, Write};

use super::{Compression, Stream, decompressed, failure};
use crate::SourceErrorKind;

const NO_BOUND: u64 = u64::MAX;
/// What `printf 'hello' | xz -0` and `printf ' world' | xz -0 --check=crc32` write.
const XZ: [&str; 2] = [
    "fd377a585a000004e6d6b446020021010c0000008f98419c01000468656c6c6f00000000b137b9dbe5da1e9b00\
     011d05b82d80af1fb6f37d010000000004595a",
    "fd377a585a0000016922de36020021010c0000008f98419c01000520776f726c64000000cb423b4a00011a06c5\
     eac8799042990d010000000001595a",
];
/// What `printf 'hello' | xz --lzma2=dict=512MiB` writes.
const XZ_LARGE_DICTIONARY: &str = "fd377a585a000004e6d6b44602002101220000008240acdc01000468656c6c6f00000000b137b9dbe5da1e9b00\
    011d05b82d80af1fb6f37d010000000004595a";

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn compressed(compression: Compression, data: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Bzip2 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => unreachable!("there is no encoder of it here"),
    }
}

fn stream(data: &[u8]) -> Stream {
    Box::new(io::Cursor::new(data.to_vec()))
}

fn read(data: &[u8], most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    decompressed(stream(data), most_bytes)?.read_to_end(&mut out)?;
    Ok(out)
}

const WITH_ENCODER: [Compression; 3] = [Compression::Gzip, Compression::Zstd, Compression::Bzip2];

/// Text of a few pieces, which compresses badly enough to be several pieces compressed too.
fn text() -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..1_300_000).map(|_| next()).collect()
}

#[test]
fn what_comes_out_is_what_went_in() {
    let text = text();
    for compression in WITH_ENCODER {
        let compressed = compressed(compression, &text);
        assert_eq!(Compression::recognised(&compressed), Some(compression));
        assert!(read(&compressed, NO_BOUND).unwrap() == text, "{compression}");
    }
    for plain in [&b""[..], b"a", b"a few bytes and more than the mark"] {
        assert_eq!(read(plain, 0).unwrap(), plain);
    }
}

#[test]
fn members_follow_each_other() {
    for compression in WITH_ENCODER {
        let mut both = compressed(compression, b"hello");
        both.extend(compressed(compression, b""));
        both.extend(compressed(compression, b" world"));
        assert_eq!(read(&both, NO_BOUND).unwrap(), b"hello world", "{compression}");
    }
    assert_eq!(read(&XZ.map(bytes).concat(), NO_BOUND).unwrap(), b"hello world");
}

#[test]
fn frames_to_be_skipped_are_skipped() {
    let frame = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    let data = [&frame[..], &compressed(Compression::Zstd, b"hello"), frame].concat();
    assert_eq!(read(&data, NO_BOUND).unwrap(), b"hello");
}

#[test]
fn zeros_behind_gzip_are_no_error_and_anything_else_is() {
    let mut data = compressed(Compression::Gzip, b"hello");
    data.extend([0; 700]);
    assert_eq!(read(&data, NO_BOUND).unwrap(), b"hello");
    data.extend(b"more");
    let error = read(&data, NO_BOUND).unwrap_err().to_string();
    assert!(error.contains("after 5 bytes of output") && error.contains("behind the last member"), "{error}");
}

#[test]
fn what_is_cut_off_or_damaged_is_an_error() {
    let text = text();
    let mut streams: Vec<Vec<u8>> = WITH_ENCODER.map(|compression| compressed(compression, &text)).into();
    streams.push(bytes(XZ[0]));
    for whole in streams {
        let compression = Compression::recognised(&whole).unwrap();
        for cut in [whole.len() - 1, whole.len() - 9, whole.len() / 2] {
            let error = read(&whole[..cut], NO_BOUND).expect_err("cut off");
            assert!(matches!(failure(error), SourceErrorKind::Malformed(_)), "{compression} at {cut}");
        }
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 0x10;
        assert!(read(&damaged, NO_BOUND).is_err(), "{compression}");
    }
}

#[test]
fn output_is_bounded() {
    let zeros = vec![0; 4 << 20];
    for compression in WITH_ENCODER {
        let compressed = compressed(compression, &zeros);
        assert_eq!(read(&compressed, 4 << 20).unwrap().len(), 4 << 20);
        let error = read(&compressed, (4 << 20) - 1).unwrap_err();
        assert!(matches!(failure(error), SourceErrorKind::TooLarge(_)), "{compression}");
    }
}

#[test]
fn windows_are_bounded() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(28).unwrap();
    encoder.write_all(b"hello").unwrap();
    let zstd = encoder.finish().unwrap();
    for data in [zstd, bytes(XZ_LARGE_DICTIONARY)] {
        let error = read(&data, NO_BOUND).unwrap_err();
        assert!(matches!(failure(error), SourceErrorKind::Malformed(_)));
    }
}

#[test]
fn other_compressions_are_refused_by_name() {
    let error = read(b"\x04\x22\x4d\x18 and so on", NO_BOUND).unwrap_err();
    assert!(error.to_string().contains("lz4"));
    assert!(matches!(failure(error), SourceErrorKind::Unsupported(_)));
}

#[test]
fn a_failure_of_the_system_stays_one() {
    struct Failing(Vec<u8>);
    impl Read for Failing {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::from_raw_os_error(5));
            }
            let len = buf.len().min(self.0.len());
            buf[..len].copy_from_slice(&self.0[..len]);
            self.0.drain(..len);
            Ok(len)
        }
    }
    let mut data = compressed(Compression::Gzip, &text());
    data.truncate(1_000_000);
    let mut out = Vec::new();
    let error = decompressed(Box::new(Failing(data)), NO_BOUND).unwrap().read_to_end(&mut out).unwrap_err();
    assert!(matches!(failure(error), SourceErrorKind::Io(error) if error.raw_os_error() == Some(5)));
    assert!(!out.is_empty());
}

#[test]
fn a_reader_may_stop_early() {
    let compressed = compressed(Compression::Zstd, &vec![7; 100 << 20]);
    let mut stream = decompressed(stream(&compressed), NO_BOUND).unwrap();
    let mut first = [0; 10];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, [7; 10]);
}
