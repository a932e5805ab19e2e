//! Version 4, which this kernel may not mount: mkfs.xfs fills the images from a list of files, xfs_db gives some of them
//! attributes, and xfs_repair judges. What we show must be what went in.
//!
//! No kernel has written these images, so files lie in one piece, and directories have only grown.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use sha2::{Digest, Sha256};
use undercroft_oracle::{Entry, Image, Manifest, MkfsXfs, Reading, Scratch, Tool, populate};

use crate::compare::{is_clean, our_tree};

/// Names in the directories: in the inode, in a block, with leaves, with a tree of leaves.
const SIZES: [usize; 9] = [0, 1, 3, 9, 30, 120, 500, 2000, 9000];

/// Lengths of targets on both sides of where inodes of each size end.
const TARGETS: [usize; 12] = [1, 100, 155, 156, 157, 255, 256, 412, 511, 512, 513, 1023];

const FILES: [usize; 10] = [0, 1, 99, 511, 512, 1024, 4096, 4097, 70_000, 3_000_001];

/// Attributes by their numbers: how long their values are.
const VALUES: [usize; 9] = [1, 40, 90, 200, 700, 3000, 4096, 20_000, 65_000];

/// What went in under a path.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: (u32, u32),
    target: Option<Vec<u8>>,
    sha256: Option<[u8; 32]>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Wanted {
    /// What an entry has of it.
    fn of(entry: &Entry) -> Self {
        let sha256 = match &entry.content {
            Some(Reading::Bytes(content)) => content.sha256,
            _ => None,
        };
        Self {
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            rdev: entry.rdev,
            target: entry.target.clone(),
            sha256,
            xattrs: entry.xattrs.clone(),
        }
    }
}

/// The list of files as mkfs.xfs(8) wants it, and what it says.
struct Prototype {
    sources: Scratch,
    text: Vec<u8>,
    dir: Vec<u8>,
    wanted: BTreeMap<Vec<u8>, Wanted>,
}

impl Prototype {
    fn new() -> Self {
        let mut new = Self {
            sources: Scratch::new("prototype").unwrap(),
            text: b"/boot\n0 0\n".to_vec(),
            dir: Vec::new(),
            wanted: BTreeMap::new(),
        };
        new.text.extend(b"d--755 3 4\n");
        new.wanted.insert(Vec::new(), Wanted { mode: 0o040_755, uid: 3, gid: 4, ..Wanted::default() });
        new
    }

    /// One line: a name, how its kind and bits are written, and what follows the owner.
    fn add(&mut self, name: &[u8], written: &str, rest: &[u8], wanted: Wanted) {
        let owner = format!(" {written} {} {} ", wanted.uid, wanted.gid);
        for part in [name, owner.as_bytes(), rest, b"\n"] {
            self.text.extend(part);
        }
        let path = [&self.dir, name].concat();
        assert!(self.wanted.insert(path, wanted).is_none(), "two of one name");
    }

    fn file(&mut self, name: &[u8], len: usize) {
        let source = self.sources.path().join(format!("{len}"));
        let mut data = vec![0; len];
        populate::noise(len as u64, &mut data);
        std::fs::write(&source, &data).unwrap();
        let sha256 = Some(Sha256::digest(&data).into());
        let wanted = Wanted { mode: 0o104_640, uid: 1000, gid: 65_535, sha256, ..Wanted::default() };
        self.add(name, "-u-640", source.as_os_str().as_bytes(), wanted);
    }

    fn link(&mut self, name: &[u8], len: usize) {
        let target = vec![b'a' + (len % 26) as u8; len];
        let wanted = Wanted { mode: 0o120_777, target: Some(target.clone()), ..Wanted::default() };
        self.add(name, "l--777", &target, wanted);
    }

    fn node(&mut self, name: &[u8], written: &str, mode: u32, rdev: (u32, u32)) {
        let rest = if rdev == (0, 0) { String::new() } else { format!("{} {}", rdev.0, rdev.1) };
        self.add(name, written, rest.as_bytes(), Wanted { mode, rdev, ..Wanted::default() });
    }

    fn dir(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.add(name.as_bytes(), "d--711", b"", Wanted { mode: 0o040_711, ..Wanted::default() });
        let above = self.dir.len();
        self.dir.extend(name.as_bytes());
        self.dir.push(b'/');
        fill(self);
        self.text.extend(b"$\n");
        self.dir.truncate(above);
    }

    /// One of everything that a list can say.
    fn everything() -> Self {
        let mut new = Self::new();
        new.dir("files", |new| FILES.iter().for_each(|&len| new.file(len.to_string().as_bytes(), len)));
        new.dir("links", |new| TARGETS.iter().for_each(|&len| new.link(len.to_string().as_bytes(), len)));
        new.dir("nodes", |new| {
            new.node(b"pipe", "p--600", 0o010_600, (0, 0));
            new.node(b"char", "c--644", 0o020_644, (5, 1));
            new.node(b"block", "b--600", 0o060_600, (259, 70_000));
        });
        new.dir("odd", |new| {
            let names = [&[0xff; 255][..], b"latin1-\xe4\xf6", b"cut-\xe2\x82", &[b'N'; 255], b"..."];
            names.iter().for_each(|name| new.file(name, 1));
        });
        new.dir("attributes", |new| {
            VALUES.iter().for_each(|&len| new.file(len.to_string().as_bytes(), 10));
            new.file(b"many", 10);
        });
        for size in SIZES {
            new.dir(&format!("directory-{size}"), |new| {
                for number in 0..size {
                    let name = format!("{number:x}-{}", "n".repeat(number * 7 % 60));
                    match number % 9 {
                        4 => new.link(name.as_bytes(), 5),
                        _ => new.file(name.as_bytes(), 0),
                    }
                }
            });
        }
        new.text.extend(b"$\n");
        new
    }

    /// Gives files attributes: values that get longer, and many on one.
    fn give_attributes(&mut self, image: &Image) {
        let mut commands = Vec::new();
        let mut set = |new: &mut Self, file: &str, name: String, len: usize| {
            let path = format!("attributes/{file}");
            let (option, prefix) = [("-u", "user."), ("-r", "trusted."), ("-s", "security.")][len % 3];
            commands.push(format!("path /{path}"));
            // xfs_db takes a length, and fills the value with one letter.
            commands.push(format!("attr_set {option} -v {len} {name}"));
            let wanted = new.wanted.get_mut(path.as_bytes()).expect("it is in the list");
            wanted.xattrs.insert(format!("{prefix}{name}").into_bytes(), vec![b'v'; len]);
        };
        for len in VALUES {
            set(self, &len.to_string(), "value".to_owned(), len);
        }
        for number in 0..150 {
            set(self, "many", format!("{number}-{}", "n".repeat(number % 50)), 1 + number % 80);
        }
        image.xfs_db_write(&commands.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    }

    fn compare(&self, tree: &Manifest) {
        let differing: Vec<String> = tree
            .entries
            .iter()
            .filter_map(|(path, entry)| {
                let (found, wanted) = (Wanted::of(entry), self.wanted.get(path));
                let told =
                    |wanted| format!("{:?}: {found:?}, and {wanted:?} went in", OsStr::from_bytes(path));
                (wanted != Some(&found)).then(|| told(wanted))
            })
            .collect();
        let lost = self.wanted.keys().filter(|path| !tree.entries.contains_key(*path)).count();
        let told = differing.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(differing.is_empty() && lost == 0, "{lost} lost, {} differ:\n{told}", differing.len());
    }
}

/// Makes the image and compares.
fn check(args: &str, attributes: bool) {
    let mut prototype = Prototype::everything();
    let list = prototype.sources.path().join("list");
    std::fs::write(&list, &prototype.text).unwrap();
    let image = MkfsXfs::new(128, &format!("-m crc=0 {args}")).make_from(&list).unwrap();
    if attributes {
        prototype.give_attributes(&image);
    }
    let told = Tool::new("xfs_db").args(["-r", "-c", "version"]).arg(image.path()).run_text().unwrap();
    assert!(!told.contains("V5"), "{told}");
    image.xfs_repair_check().unwrap();
    prototype.compare(&our_tree(&image));
    is_clean(&image);
}

/// One test per image: what mkfs.xfs is told, and whether xfs_db gives attributes, which it can where an inode has more
/// than 256 bytes and the second form of attributes; elsewhere it crashes.
macro_rules! images {
    ($($name:ident = $args:literal, $attributes:literal;)*) => {
        $(#[test] fn $name() { check($args, $attributes); })*
    };
}

images! {
    plain = "", false;
    inode_512 = "-i size=512", true;
    inode_2048 = "-i size=2048", true;
    block_512 = "-b size=512", false;
    block_1k = "-b size=1024 -i size=512", true;
    block_64k = "-b size=65536 -i size=1024 -d agcount=1", true;
    directory_16k = "-n size=16384 -i size=512", true;
    directory_64k_block_512 = "-b size=512 -n size=65536", false;
    kinds_in_directories = "-n ftype=1", false;
    no_kinds_in_directories = "-n ftype=0", false;
    names_without_case = "-n version=ci -i size=512", true;
    short_projects = "-i projid32bit=0", false;
    old_attributes = "-i attr=1,size=512", false;
    eager_counts = "-l lazy-count=0", false;
    old_log = "-l version=1", false;
    unaligned_inodes = "-i align=0", false;
    sector_4k = "-s size=4096", false;
    many_groups = "-d agcount=8", false;
}
