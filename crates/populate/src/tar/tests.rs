//! Archives as the source gives them; those of GNU tar are in the tests of the program.

use std::io::{self, Cursor, Read, Write};

use undercroft_vfs::{DeviceNumber, Timestamp};

use super::{Archive, OpenArchive, TarSource};
use crate::{Entry, EntryKind, Source};

struct Bytes(Cursor<Vec<u8>>);

impl Read for Bytes {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // In small pieces, as a pipe may give them.
        let len = buf.len().min(700);
        self.0.read(&mut buf[..len])
    }
}

impl Archive for Bytes {}

fn source(bytes: &[u8]) -> TarSource {
    let bytes = bytes.to_vec();
    let open: OpenArchive = Box::new(move || Ok(Box::new(Bytes(Cursor::new(bytes.clone())))));
    TarSource::new("test.tar", open)
}

type Members = Vec<(Entry, Vec<u8>)>;

fn read(bytes: &[u8]) -> Result<Members, String> {
    let mut source = source(bytes);
    let all = read_source(&mut source)?;
    source.rewind().unwrap();
    assert_eq!(read_source(&mut source)?, all);
    Ok(all)
}

fn read_source(source: &mut TarSource) -> Result<Members, String> {
    let mut all = Vec::new();
    while let Some(entry) = source.next_entry().map_err(|error| error.to_string())? {
        let mut content = Vec::new();
        let mut buf = [0; 4000];
        while let Some(piece) = source.read_content(&mut buf).map_err(|error| error.to_string())? {
            content.resize(piece.offset as usize, 0);
            content.extend_from_slice(&buf[..piece.len]);
        }
        all.push((entry, content));
    }
    Ok(all)
}

/// Archives by hand.
#[derive(Default)]
struct Builder(Vec<u8>);

impl Builder {
    fn member(mut self, kind: u8, name: &str, content: &[u8], change: impl FnOnce(&mut [u8])) -> Self {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[108..115].copy_from_slice(b"0001750");
        header[116..123].copy_from_slice(b"0001751");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000001000");
        header[156] = kind;
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[265..269].copy_from_slice(b"lisa");
        change(&mut header);
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn plain(self, kind: u8, name: &str, content: &[u8]) -> Self {
        self.member(kind, name, content, |_| {})
    }

    fn linked(self, kind: u8, name: &str, target: &str) -> Self {
        self.member(kind, name, b"", |header| {
            header[157..157 + target.len()].copy_from_slice(target.as_bytes());
        })
    }

    fn records(self, kind: u8, records: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let len = (1..).find(|digits| (rest + digits).to_string().len() == *digits).unwrap() + rest;
            text.push_str(&format!("{len} {key}={value}\n"));
        }
        self.plain(kind, "records", text.as_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn path(entry: &Entry) -> &str {
    std::str::from_utf8(entry.path.as_bytes()).unwrap()
}

#[test]
fn every_kind_of_member_is_an_entry() {
    let number = |header: &mut [u8]| {
        header[329..336].copy_from_slice(b"0000010");
        header[337..344].copy_from_slice(b"0000021");
    };
    let bytes = Builder::default()
        .plain(b'5', "./", b"")
        .plain(b'0', "/etc/file", b"content")
        .plain(0, "old/", b"")
        .linked(b'1', "again", "./etc/file")
        .linked(b'2', "link", "../anywhere")
        .member(b'3', "char", b"", number)
        .member(b'4', "block", b"", number)
        .plain(b'6', "fifo", b"")
        .member(b'0', "name", b"", |header| header[345..350].copy_from_slice(b"first"))
        .plain(b'V', "label", b"")
        .end();
    let all = read(&bytes).unwrap();
    let paths: Vec<_> = all.iter().map(|(entry, _)| path(entry)).collect();
    assert_eq!(paths, ["", "etc/file", "old", "again", "link", "char", "block", "fifo", "first/name"]);
    let metadata = &all[1].0.metadata;
    assert_eq!((metadata.uid, metadata.gid, metadata.permissions), (1000, 1001, 0o644));
    assert_eq!(metadata.modified, Timestamp { seconds: 512, nanoseconds: 0 });
    assert_eq!(all[1].1, b"content");
    assert_eq!(all[2].0.kind, EntryKind::Directory);
    assert!(matches!(&all[3].0.kind, EntryKind::HardLink(to) if to.as_bytes() == b"etc/file"));
    assert!(matches!(&all[4].0.kind, EntryKind::Symlink(to) if **to == *b"../anywhere"));
    assert_eq!(all[5].0.kind, EntryKind::CharDevice(DeviceNumber { major: 8, minor: 17 }));
    assert_eq!(all[7].0.kind, EntryKind::Fifo);
}

#[test]
fn records_go_over_headers() {
    let long = "d/".repeat(300) + "name";
    let bytes = Builder::default()
        .records(b'g', &[("mtime", "7.25"), ("uid", "77")])
        .records(
            b'x',
            &[
                ("path", &long),
                ("gid", "4000000000"),
                ("atime", "-1.5"),
                ("uid", ""),
                ("SCHILY.xattr.user.note", "a\nb"),
                ("LIBARCHIVE.xattr.user.note", "eA"),
                ("LIBARCHIVE.xattr.user.other", "eA"),
                ("SCHILY.xattr.user.both%C3%A9", "x"),
                ("LIBARCHIVE.xattr.user.both%C3%A9", "eA"),
                ("SCHILY.xattr.user.of%3Dgnu%C3", "x"),
                ("SCHILY.acl.access", "user::rw-,user:lisa:r--,group::r--,mask::r--,other::---"),
            ],
        )
        .plain(b'0', "short", b"1")
        .plain(b'L', "././@LongLink", format!("{long}\0").as_bytes())
        .plain(b'K', "././@LongLink", format!("{long}s\0").as_bytes())
        .linked(b'2', "short", "short")
        .end();
    let all = read(&bytes).unwrap();
    assert_eq!((path(&all[0].0), path(&all[1].0)), (&*long, &*long));
    let metadata = &all[0].0.metadata;
    assert_eq!((metadata.uid, metadata.gid), (1000, 4_000_000_000));
    assert_eq!(metadata.modified, Timestamp { seconds: 7, nanoseconds: 250_000_000 });
    assert_eq!(metadata.accessed, Some(Timestamp { seconds: -2, nanoseconds: 500_000_000 }));
    let names: Vec<_> =
        metadata.xattrs.iter().map(|xattr| String::from_utf8_lossy(&xattr.name).into_owned()).collect();
    assert_eq!(
        names,
        ["user.both\u{e9}", "user.note", "user.of=gnu%C3", "user.other", "system.posix_acl_access"]
    );
    assert_eq!(*metadata.xattrs[1].value, *b"a\nb");
    assert_eq!(metadata.xattrs[4].value[16..20], 1000_u32.to_le_bytes());
    assert_eq!(all[1].0.metadata.uid, 77);
    assert!(matches!(&all[1].0.kind, EntryKind::Symlink(to) if to.len() == long.len() + 1));
}

#[test]
fn sparse_members_of_all_forms_are_the_same() {
    let size = 1 << 20;
    let stored = [vec![1; 512], vec![2; 100]].concat();
    let form_0 = [("GNU.sparse.size", "1048576"), ("GNU.sparse.numblocks", "2")];
    let pairs = [
        ("GNU.sparse.offset", "0"),
        ("GNU.sparse.numbytes", "512"),
        ("GNU.sparse.offset", "4096"),
        ("GNU.sparse.numbytes", "100"),
    ];
    let map = [("GNU.sparse.name", "name"), ("GNU.sparse.map", "0,512,4096,100")];
    let form_1 = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "name"),
        ("GNU.sparse.realsize", "1048576"),
    ];
    let mut with_map = b"3\n0\n512\n4096\n100\n1048576\n0\n".to_vec();
    with_map.resize(512, 0);
    with_map.extend_from_slice(&stored);
    let old = |header: &mut [u8]| {
        for (at, number) in [(386, 0), (398, 512), (410, 4096), (422, 100), (483, size)] {
            header[at..at + 11].copy_from_slice(format!("{number:011o}").as_bytes());
        }
        header[257..265].copy_from_slice(b"ustar  \0");
    };
    let bytes = Builder::default()
        .records(b'x', &[form_0.as_slice(), &pairs].concat())
        .plain(b'0', "name", &stored)
        .records(b'x', &[form_0.as_slice(), &map].concat())
        .plain(b'0', "GNUSparseFile.1/name", &stored)
        .records(b'x', &form_1)
        .plain(b'0', "GNUSparseFile.1/name", &with_map)
        .member(b'S', "name", &stored, old)
        .end();
    let all = read(&bytes).unwrap();
    assert_eq!(all.len(), 4);
    for (entry, content) in &all {
        let EntryKind::Regular(kind) = &entry.kind else { panic!("{entry:?}") };
        assert_eq!((path(entry), kind.size_bytes), ("name", size));
        assert_eq!(kind.data.as_deref(), Some(&[0..512, 4096..4196][..]));
        assert_eq!(content.len(), 4196);
        assert!(
            content[..512].iter().all(|&byte| byte == 1) && content[4096..].iter().all(|&byte| byte == 2)
        );
    }
}

#[test]
fn hostile_archives_are_refused_with_their_place() {
    let plain = |kind, name: &str| Builder::default().plain(b'0', "before", b"x").plain(kind, name, b"");
    let sparse = |map: &str| {
        Builder::default()
            .records(b'x', &[("GNU.sparse.size", "5"), ("GNU.sparse.map", map)])
            .plain(b'0', "name", b"12345")
            .end()
    };
    let mut broken = plain(b'0', "name").end();
    broken[1024] ^= 1;
    let huge =
        |header: &mut [u8]| header[124..136].copy_from_slice(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff");
    let whole = Builder::default().plain(b'0', "name", &[7; 5000]).end();
    for (bytes, words) in [
        (plain(b'0', "a/../b").end(), "test.tar: a/../b at byte 1024: its path has a \"..\" in it"),
        (Builder::default().linked(b'1', "a", "/x/..").end(), "a hard link to a path that has a \"..\""),
        (Builder::default().linked(b'2', "a", "").end(), "a symbolic link to nothing"),
        (broken, "at byte 1024: a header's checksum does not fit its bytes"),
        (vec![b'x'; 2000], "it is no tar archive"),
        (vec![b'x'; 20], "it is no tar archive"),
        (b"PK\x05\x06 and nothing in it".to_vec(), "it is a zip archive, which is not supported"),
        ([&b"070701"[..], &[b'0'; 1000]].concat(), "it is a cpio archive, which is not supported"),
        (whole[..100].to_vec(), "it is no tar archive"),
        (Builder::default().plain(b'0', "name", b"").end()[..700].to_vec(), "the archive is cut off"),
        (whole[..700].to_vec(), "test.tar: name at byte 0: the archive is cut off"),
        (whole[..5511].to_vec(), "the archive is cut off"),
        (Builder::default().member(b'0', "name", b"", huge).end(), "the archive is cut off"),
        (Builder::default().member(b'x', "name", b"", huge).end(), "extended headers have more than"),
        (plain(b'M', "name").end(), "another volume"),
        (plain(b'Z', "name").end(), "members of the kind 'Z' are not known"),
        (Builder::default().records(b'x', &[("path", "x")]).end(), "ends behind an extended header"),
        (Builder::default().plain(b'x', "a", b"9 broken\n").plain(b'0', "b", b"").end(), "is damaged"),
        (sparse("0,5,0,0"), "a part begins before the end of the one before"),
        (sparse("3,5"), "ends behind the file"),
        (sparse("0,4"), "its parts have 4 bytes, and 5 are stored"),
        (sparse("0"), "a part has no length"),
        (sparse("18446744073709551615,5"), "ends behind the file"),
    ] {
        let refused = read(&bytes).unwrap_err();
        assert!(refused.contains(words), "{refused}\n{words}");
    }
    assert_eq!(read(&Builder::default().plain(b'0', "name", b"x").0).unwrap().len(), 1);
    // Layers of images may be so.
    assert_eq!(read(&[]).unwrap(), []);
    // What fills the last record may be missing.
    assert_eq!(read(&whole[..5512]).unwrap()[0].1, [7; 5000]);
    assert_eq!(read(&whole[..5513]).unwrap().len(), 1);
}

#[test]
fn content_that_is_not_read_is_skipped() {
    let bytes = Builder::default().plain(b'0', "one", &[1; 3000]).plain(b'0', "two", &[2; 600]).end();
    let mut source = source(&bytes);
    source.next_entry().unwrap();
    source.read_content(&mut [0; 10]).unwrap();
    let two = source.next_entry().unwrap().unwrap();
    assert_eq!(path(&two), "two");
    let mut buf = [0; 2000];
    assert_eq!(source.read_content(&mut buf).unwrap().unwrap().len, 600);
    assert!(source.next_entry().unwrap().is_none());
}

#[test]
fn the_checksum_of_a_compressed_archive_is_checked() {
    struct Unpacked(crate::Stream);
    impl Read for Unpacked {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.0.read(buf)
        }
    }
    impl Archive for Unpacked {}

    let all_of = |packed: &[u8], most_bytes| {
        let packed = packed.to_vec();
        let open = move || {
            let stream = crate::decompressed(Box::new(Cursor::new(packed.clone())), most_bytes)?;
            Ok(Box::new(Unpacked(stream)) as Box<dyn Archive>)
        };
        read_source(&mut TarSource::new("test.tar", Box::new(open)))
    };
    let bytes = Builder::default().plain(b'0', "one", &[1; 3000]).end();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).unwrap();
    zstd.include_checksum(true).unwrap();
    zstd.write_all(&bytes).unwrap();
    for mut packed in [gzip.finish().unwrap(), zstd.finish().unwrap()] {
        assert_eq!(all_of(&packed, bytes.len() as u64).unwrap().len(), 1);
        let bounded = all_of(&packed, bytes.len() as u64 - 1).unwrap_err();
        assert!(bounded.contains("is larger than"), "{bounded}");
        let last = packed.len() - 1;
        let cut_off = all_of(&packed[..last], u64::MAX).unwrap_err();
        assert!(cut_off.contains("is damaged"), "{cut_off}");
        packed[last - 3] ^= 1;
        let damaged = all_of(&packed, u64::MAX).unwrap_err();
        assert!(damaged.contains("is damaged"), "{damaged}");
    }
}

#[test]
fn global_records_are_bounded_and_those_of_a_member_go_before() {
    let value = "x".repeat(200_000);
    let global = |key: &str| (key.to_owned(), value.clone());
    let with = |count: usize| {
        let records: Vec<_> = (0..count).map(|n| global(&format!("SCHILY.xattr.user.{n}"))).collect();
        records.iter().fold(Builder::default(), |bytes, (key, value)| {
            bytes.records(b'g', &[(key.as_str(), value.as_str())])
        })
    };
    let own = [("SCHILY.xattr.user.1", "own"), ("SCHILY.xattr.user.9", "9")];
    let bytes = with(4).records(b'x', &own).plain(b'0', "f", b"").end();
    let metadata = &read(&bytes).unwrap()[0].0.metadata;
    let xattrs: Vec<_> = metadata.xattrs.iter().map(|xattr| (&*xattr.name, xattr.value.len())).collect();
    let expected: [(&[u8], usize); 5] =
        [(b"user.1", 3), (b"user.9", 1), (b"user.0", 200_000), (b"user.2", 200_000), (b"user.3", 200_000)];
    assert_eq!(xattrs, expected);
    // The same again takes no more.
    let again = Builder([with(4).0, with(4).plain(b'0', "f", b"").end()].concat());
    assert_eq!(read(&again.0).unwrap().len(), 1);
    let refused = read(&with(6).plain(b'0', "f", b"").end()).unwrap_err();
    assert!(refused.contains("global extended headers have more than"), "{refused}");
}

#[test]
fn long_paths_are_refused_by_name() {
    for (name, words) in [
        ("d/".repeat(20_000), "its path has more than 32768 bytes"),
        ("n".repeat(256), "its path has a name in it that is longer"),
    ] {
        let bytes = Builder::default().records(b'x', &[("path", &name)]).plain(b'0', "f", b"").end();
        let refused = read(&bytes).unwrap_err();
        assert!(refused.contains(words) && refused.len() < 500, "{refused}");
    }
}

#[test]
fn lists_may_name_the_owners_of_later_members() {
    let list = [("SCHILY.acl.access", "user::rw-,user:bart:r--,group::r--,mask::r--,other::---")];
    let bart = |header: &mut [u8]| header[265..269].copy_from_slice(b"bart");
    let first = || Builder::default().records(b'x', &list).plain(b'0', "first", b"");
    let bytes =
        first().member(b'0', "second", b"", bart).records(b'x', &list).plain(b'0', "third", b"").end();
    // Where the archive can be read only once, later members are not known.
    let refused = read(&bytes).unwrap_err();
    assert!(refused.contains("names \"bart\"") && refused.contains("--xattrs-include"), "{refused}");
    let mut again = source(&bytes);
    again.rewind().unwrap();
    let all = read_source(&mut again).unwrap();
    assert_eq!(all[0].0.metadata.xattrs[0].value[16..20], 1000_u32.to_le_bytes());
    assert_eq!(all[0].0.metadata.xattrs, all[2].0.metadata.xattrs);
    let mut unknown = source(&first().end());
    unknown.rewind().unwrap();
    assert!(read_source(&mut unknown).unwrap_err().contains("--xattrs-include"));
}

#[test]
fn zeroes_are_an_archive_only_as_far_as_one_without_members_has_them() {
    for len in [512, 1024, 10_240] {
        assert_eq!(read(&vec![0; len]).unwrap().len(), 0, "{len}");
    }
    // Larger blocking factors: 21, 64 and 2047.
    for factor in [21, 64, 2047] {
        assert_eq!(read(&vec![0; factor * 512]).unwrap().len(), 0, "{factor}");
    }
    let mut at_the_end = vec![0; 64 * 512];
    at_the_end[64 * 512 - 1] = 1;
    let refused = read(&at_the_end).unwrap_err();
    assert!(refused.contains("it begins with zeroes"), "{refused}");
    let mut later = vec![0; 10_240];
    later[1024] = 1;
    for bytes in [vec![0; 10_241], vec![0; 1 << 20], later] {
        let refused = read(&bytes).unwrap_err();
        assert!(refused.contains("test.tar") && refused.contains("it begins with zeroes"), "{refused}");
    }
    // Behind the members there may be anything.
    let mut whole = Builder::default().plain(b'0', "file", b"x").0;
    whole.resize(1 << 20, 0);
    assert_eq!(read(&whole).unwrap().len(), 1);
}
