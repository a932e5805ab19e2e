//! Images that this machine's kernel may be unable to mount: blocks larger than a memory page, and names without
//! regard to case. mke2fs fills them from a tree that the kernel shows, so that tree says what must be in them;
//! debugfs says where and how.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use undercroft_oracle::{
    Differences, Entry, Image, LoopMount, Manifest, Mke2fs, MountMode, Reading, Recipe, Result, Scratch,
    kernel_manifest, open_ext4, our_manifest,
};
use undercroft_vfs::Error;

/// A tree with one of everything, on a filesystem that the kernel mounts.
fn source() -> (Image, LoopMount) {
    let mke2fs = Mke2fs::new("ext4", 128).inodes(16_384).block_bytes(4096);
    let image = Recipe::new(mke2fs).plan(|plan| plan.many = 3000).make().unwrap();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    (image, mount)
}

/// Of the flags on disk, which debugfs prints, those that `FS_IOC_GETFLAGS` shows.
const SHOWN_FLAGS: u32 = 0x725b_dfff;

/// What mke2fs does not copy, or what depends on the filesystem that the tree lies on. It makes the root anew,
/// keeps the low 32 bits of times, and makes a link of its own for each name of a symbolic link.
fn only_what_is_copied(path: &[u8], entry: &mut Entry) {
    for time in [&mut entry.accessed, &mut entry.modified, &mut entry.changed] {
        let kept = if path.is_empty() { 0 } else { time.0 as i32 };
        *time = (i64::from(kept), 0);
    }
    if entry.target.is_some() {
        entry.links = 1;
    }
    entry.ino = 0;
    entry.listed_ino = None;
    entry.sectors = 0;
    entry.io_bytes = 0;
    entry.created = None;
    entry.flags = None;
    entry.identity = None;
    entry.dots = None;
    if entry.is_directory() {
        entry.size = 0;
    }
    if let Some(Reading::Bytes(content)) = &mut entry.content {
        content.segments.clear();
    }
}

/// Fills an image from the tree and compares.
fn check(mke2fs: Mke2fs) {
    check_without(mke2fs, &[]);
}

/// The same; what these files hold is left to debugfs.
fn check_without(mke2fs: Mke2fs, left_out: &[&str]) {
    let (_image, mount) = source();
    let root = mount.path().to_str().expect("scratch paths are text");
    let image = mke2fs.args(["-d", root]).make().unwrap();
    // mke2fs writes plain directories; e2fsck gives the large ones an index.
    image.rebuild_directories().unwrap();

    let mut expected = kernel_manifest(mount.path()).unwrap().map(only_what_is_copied);
    expected.space = None;
    let (_, vfs) = open_ext4(image.path()).unwrap();
    let ours = our_manifest(&vfs).unwrap();
    let mut found = ours.clone().map(only_what_is_copied);
    for path in left_out {
        expected.entries.remove(path.as_bytes());
        found.entries.remove(path.as_bytes());
    }
    Differences::between(&expected, &found).assert_none("ours against the tree that mke2fs was given");

    let told = stat_by_debugfs(&image, &ours).unwrap();
    assert!(told.len() > 3000, "debugfs told of {} files only", told.len());
    for (path, told) in told {
        assert_eq!(Told::of(ours.at(&path)), told, "/{path}: ours against what debugfs tells");
    }
}

/// What debugfs prints of an inode, as far as the tree that mke2fs was given cannot say it.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    ino: u64,
    size: u64,
    sectors: u64,
    flags: Option<u32>,
    generation: Option<u32>,
    changed: i64,
    created: Option<i64>,
}

impl Told {
    fn of(entry: &Entry) -> Self {
        Self {
            ino: entry.ino,
            size: entry.size,
            sectors: entry.sectors,
            flags: entry.flags,
            generation: entry.identity.map(|identity| identity.generation),
            changed: entry.changed.0,
            created: entry.created.map(|(seconds, _)| seconds),
        }
    }

    fn parse(text: &str, entry: &Entry) -> Option<Self> {
        let number = |label: &str| text.split(label).nth(1)?.split_whitespace().next();
        let decimal = |label: &str| number(label)?.parse::<u64>().ok();
        let seconds = |label: &str| {
            let (low, extra) = number(label)?.strip_prefix("0x")?.split_once(':')?;
            let low = u32::from_str_radix(low, 16).ok()?.cast_signed();
            let epoch = i64::from(u32::from_str_radix(extra, 16).ok()? & 3);
            Some(i64::from(low) + (epoch << 32))
        };
        let flags = u32::from_str_radix(number("Flags:")?.strip_prefix("0x")?, 16).ok()?;
        // The kernel counts the bytes of a file inside the inode as sectors, debugfs does not.
        let inline =
            if flags & 0x1000_0000 != 0 && entry.is_regular() { entry.size.div_ceil(512) } else { 0 };
        let has_flags = entry.is_regular() || entry.is_directory();
        Some(Self {
            ino: decimal("Inode:")?,
            size: decimal("Size:")?,
            sectors: decimal("Blockcount:")? + inline,
            flags: has_flags.then_some(flags & SHOWN_FLAGS),
            generation: if has_flags { Some(decimal("Generation:")?.try_into().ok()?) } else { None },
            changed: seconds("ctime:")?,
            created: seconds("crtime:"),
        })
    }
}

/// Asks debugfs about every file whose path it can be given.
fn stat_by_debugfs(image: &Image, ours: &Manifest) -> Result<BTreeMap<String, Told>> {
    let plain = |path: &&str| {
        path.len() < 200 && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_/.".contains(&b))
    };
    let paths = ours.entries.keys().filter_map(|path| std::str::from_utf8(path).ok()).filter(plain);
    let paths: Vec<&str> = paths.filter(|path| !path.is_empty()).collect();
    let commands: Vec<String> = paths.iter().map(|path| format!("stat /{path}")).collect();
    let answers = image.debugfs_all(&commands)?;
    let answers = answers.into_iter().zip(paths).map(|(answer, path)| {
        let told =
            Told::parse(&answer, ours.at(path)).unwrap_or_else(|| panic!("/{path}: debugfs said {answer}"));
        (path.to_owned(), told)
    });
    Ok(answers.collect())
}

fn large_blocks(block_bytes: u32) -> Mke2fs {
    Mke2fs::new("ext4", 512).inodes(16_384).block_bytes(block_bytes)
}

#[test]
fn blocks_of_8_kib() {
    check(large_blocks(8192));
}

#[test]
fn blocks_of_16_kib_without_extents() {
    check(large_blocks(16_384).features("^extent,^64bit,^metadata_csum,^has_journal"));
}

#[test]
fn blocks_of_32_kib_with_inline_data() {
    // Where files may be inline, mke2fs 1.47 loses a hole at a file's end.
    let mke2fs = large_blocks(32_768).inode_bytes(512).features("inline_data");
    check_without(mke2fs, &["content/sparse", "content/punched"]);
}

#[test]
fn blocks_of_64_kib() {
    check(large_blocks(65_536));
}

#[test]
fn blocks_of_64_kib_in_clusters() {
    check(large_blocks(65_536).features("bigalloc").args(["-C", "262144"]));
}

/// Names, and other ways to write each of them where case does not count.
const FOLDED: &[(&str, &[&str])] = &[
    ("plain", &["PLAIN", "Plain", "pLaIn"]),
    ("Stra\u{df}e", &["STRASSE", "strasse", "stra\u{df}e"]),
    ("caf\u{e9}", &["CAFE\u{301}", "cafe\u{301}", "CAF\u{c9}"]),
    ("\u{39c}\u{386}\u{399}\u{39f}\u{3a3}", &["\u{3bc}\u{3ac}\u{3b9}\u{3bf}\u{3c2}"]),
    ("\u{fb01}nal", &["FINAL", "final"]),
    ("\u{42f}\u{431}\u{43b}\u{43e}\u{43a}\u{43e}", &["\u{44f}\u{431}\u{43b}\u{43e}\u{43a}\u{43e}"]),
];

#[test]
fn names_without_regard_to_case() {
    let tree = Scratch::new("folded").unwrap();
    make_folded_tree(tree.path());
    let root = tree.path().to_str().expect("scratch paths are text");
    let mke2fs = Mke2fs::new("ext4", 64).block_bytes(1024).features("casefold").extended("encoding=utf8");
    let image = mke2fs.args(["-d", root]).make().unwrap();
    const CASEFOLD_AND_EXTENTS: &str = "0x40080000";
    let set = ["small", "large"].map(|dir| format!("set_inode_field /{dir} flags {CASEFOLD_AND_EXTENTS}"));
    image.debugfs_write(&[&set[0], &set[1]]).unwrap();
    image.rebuild_directories().unwrap();

    let (_, vfs) = open_ext4(image.path()).unwrap();
    // Looks every name up as it is written, in both directories.
    let ours = our_manifest(&vfs).unwrap();
    assert_eq!(ours.at("large").flags, Some(0x4008_1000), "e2fsck gave the large directory no index");
    let root = vfs.root().unwrap();
    let small = vfs.lookup(&root, b"small").unwrap();
    for (name, others) in FOLDED {
        let ino = ours.at(&format!("small/{name}")).ino;
        for other in *others {
            let node = vfs.lookup(&small, other.as_bytes());
            assert_eq!(node.unwrap_or_else(|e| panic!("{other}: {e}")).ino().0, ino, "{other} is {name}");
        }
    }
    let large = vfs.lookup(&root, b"large").unwrap();
    for number in 0..LARGE {
        let node = vfs.lookup(&large, large_name(number).to_uppercase().as_bytes());
        let node = node.unwrap_or_else(|e| panic!("{}: {e}", large_name(number)));
        assert_eq!(node.ino().0, ours.at(&format!("large/{}", large_name(number))).ino);
    }
    let strict = vfs.lookup(&root, b"strict").unwrap();
    let refused = vfs.lookup(&strict, b"PLAIN").map(|node| node.ino());
    assert!(matches!(refused, Err(Error::NotFound)), "case counts in an ordinary directory: {refused:?}");
}

const LARGE: usize = 2000;

fn large_name(number: usize) -> String {
    format!("entry-{number:x}-\u{e9}t\u{e9}-\u{436}")
}

fn make_folded_tree(root: &Path) {
    for dir in ["small", "large", "strict"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    for (name, _) in FOLDED {
        fs::write(root.join("small").join(name), name).unwrap();
    }
    for number in 0..LARGE {
        fs::write(root.join("large").join(large_name(number)), "").unwrap();
    }
    fs::write(root.join("strict/plain"), "").unwrap();
}
