//! Fast commits that the kernel wrote: the list of operations is what debugfs reads in the log, and the tree
//! that a reader sees through the view is the tree that was there at the crash.
//!
//! The kernel's own replay is compared too. It miscounts the links of directories (see `docs/TESTING.md`), so there
//! only names, files and their content have to agree.
//!
//! The reader here is as small as the images allow: extents within the inode, linear directories. Needs root
//! and the e2fsprogs.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use undercroft_oracle::{Image, Mke2fs, MountMode, Tool};

use super::image::{Loaded, recover};
use crate::fast_commit::FastCommitOp;
use crate::fast_commit::{DirectoryChange, FastCommitView, Incarnation, Overridden};
use crate::numbers::{FileBlock, FsBlock};

const ROOT: u32 = 2;

/// What is compared of an inode: number, mode, links, and content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    ino: u32,
    mode: u16,
    links: u16,
    content: Option<Vec<u8>>,
}

type Tree = BTreeMap<Vec<u8>, Entry>;

/// The tree below a mount point.
fn tree_of(dir: &Path, prefix: &[u8], tree: &mut Tree) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == "lost+found" {
            continue;
        }
        let meta = entry.metadata().unwrap();
        let path = [prefix, b"/", entry.file_name().as_bytes()].concat();
        let content = meta.is_file().then(|| fs::read(entry.path()).unwrap());
        tree.insert(
            path.clone(),
            Entry { ino: meta.ino() as u32, mode: meta.mode() as u16, links: meta.nlink() as u16, content },
        );
        if meta.is_dir() {
            tree_of(&entry.path(), &path, tree);
        }
    }
}

/// Reads a recovered image through the view.
struct Reader<'a> {
    image: &'a Loaded,
    view: FastCommitView,
}

impl Reader<'_> {
    fn inode(&self, ino: u32) -> Vec<u8> {
        let mut inode = self.image.inode(ino).to_vec();
        if let Some(change) = self.view.inode(ino) {
            change.apply(&mut inode);
        }
        inode
    }

    /// A block of a file; `None` where it reads as zeroes.
    fn map(&self, ino: u32, inode: &[u8], at: u32) -> Option<u64> {
        if let Some(change) = self.view.inode(ino) {
            match change.lookup(FileBlock(at)).0 {
                Overridden::OnDisk => {}
                Overridden::Hole => return None,
                Overridden::Mapped { unwritten: true, .. } => return None,
                Overridden::Mapped { pblk: FsBlock(pblk), unwritten: false } => return Some(pblk),
            }
        }
        let half = |at: usize| u16::from_le_bytes([inode[at], inode[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        assert_eq!((half(0x28), half(0x2E)), (0xF30A, 0), "inode {ino} has its extents in itself");
        (0..usize::from(half(0x2A))).map(|index| 0x34 + 12 * index).find_map(|extent| {
            let (first, len) = (word(extent), half(extent + 4));
            let written = len <= 0x8000 && (first..first + u32::from(len)).contains(&at);
            written.then(|| u64::from(word(extent + 8)) + u64::from(at - first))
        })
    }

    fn names_on_disk(&self, dir: u32) -> BTreeMap<Vec<u8>, u32> {
        let inode = self.inode(dir);
        let mut names = BTreeMap::new();
        let blocks = u32::from_le_bytes(inode[4..8].try_into().unwrap()) / self.image.volume.block_bytes;
        for at in 0..blocks {
            let mut block = self.image.block(self.map(dir, &inode, at).unwrap());
            while block.len() >= 12 {
                let ino = u32::from_le_bytes(block[..4].try_into().unwrap());
                let record = usize::from(u16::from_le_bytes([block[4], block[5]]));
                if ino != 0 {
                    names.insert(block[8..8 + usize::from(block[6])].to_vec(), ino);
                }
                block = &block[record..];
            }
        }
        names
    }

    fn names(&self, dir: u32) -> BTreeMap<Vec<u8>, u32> {
        let change = self.view.directory(dir);
        let mut names = BTreeMap::new();
        if change.is_none_or(|change| change.created_in().is_none()) {
            names = self.names_on_disk(dir);
            names.retain(|name, ino| {
                let kept = change.is_none_or(|change| change.keeps(name, *ino));
                let looked_up = change.map_or(Some(*ino), |change| change.lookup(name, Some(*ino)));
                assert!(!kept || looked_up == Some(*ino), "listing and lookup agree");
                kept
            });
        }
        for (name, ino) in change.into_iter().flat_map(DirectoryChange::added) {
            assert!(names.insert(name.to_vec(), ino).is_none(), "listed once");
        }
        names.retain(|name, _| !matches!(&**name, b"." | b".." | b"lost+found"));
        names
    }

    fn tree(&self, dir: u32, prefix: &[u8], tree: &mut Tree) {
        for (name, ino) in self.names(dir) {
            let path = [prefix, b"/", &name].concat();
            let inode = self.inode(ino);
            let half = |at: usize| u16::from_le_bytes([inode[at], inode[at + 1]]);
            let (mode, mut links) = (half(0), half(0x1A));
            let directory = |inode: &[u8]| inode[1] & 0xF0 == 0x40;
            let mut content = None;
            if directory(&inode) {
                let on_disk = |ino| Ok(directory(self.image.inode(ino)));
                let entry = |name: &[u8]| Ok(self.names_on_disk(ino).get(name).copied());
                links = self.view.directory_links(ino, links, entry, on_disk).unwrap();
                self.tree(ino, &path, tree);
            } else {
                content = Some(self.content(ino, &inode));
            }
            tree.insert(path, Entry { ino, mode, links, content });
        }
    }

    fn content(&self, ino: u32, inode: &[u8]) -> Vec<u8> {
        let size = u32::from_le_bytes(inode[4..8].try_into().unwrap());
        let zeroes = vec![0; self.image.volume.block_bytes as usize];
        let blocks = size.div_ceil(self.image.volume.block_bytes);
        let mut content: Vec<u8> = (0..blocks)
            .flat_map(|at| self.map(ino, inode, at).map_or(&*zeroes, |block| self.image.block(block)))
            .copied()
            .collect();
        content.truncate(size as usize);
        content
    }
}

/// An operation in the words of `debugfs logdump`.
fn words(operation: &FastCommitOp) -> String {
    let named = |tag, parent: &u32, ino: &u32, name: &[u8]| {
        format!("tag {tag}, parent {parent}, ino {ino}, name \"{}\"", String::from_utf8_lossy(name))
    };
    match operation {
        FastCommitOp::AddRange { ino, lblk, len, pblk, .. } => {
            format!("tag ADD_RANGE, inode {ino}, lblk {lblk}, pblk {pblk}, len {len}")
        }
        FastCommitOp::DelRange { ino, lblk, len } => {
            // debugfs prints these as signed numbers.
            let lblk = lblk.0.cast_signed();
            format!("tag DEL_RANGE, inode {ino}, lblk {lblk}, len {}", len.cast_signed())
        }
        FastCommitOp::Create { parent, ino, name } => named("CREAT_DENTRY", parent, ino, name),
        FastCommitOp::Link { parent, ino, name } => named("ADD_ENTRY", parent, ino, name),
        FastCommitOp::Unlink { parent, ino, name } => named("DEL_ENTRY", parent, ino, name),
        FastCommitOp::Inode { ino, .. } => format!("tag INODE, inode {ino}"),
    }
}

/// Every kind of operation that fast commits can log, made durable with each step.
fn work(root: &Path) {
    let path = |name: &str| root.join(name);
    let create = |name: &str, content: &[u8]| {
        let mut file = File::create(path(name)).unwrap();
        file.write_all(content).unwrap();
        file.sync_all().unwrap();
        file
    };
    let first = create("new 1", &[b'1'; 5000]);
    fs::hard_link(path("new 1"), path("old dir/link")).unwrap();
    first.sync_all().unwrap();

    // A new directory, with a file and a directory in it.
    fs::create_dir(path("dir")).unwrap();
    create("dir/in", &[b'i'; 100]);
    fs::create_dir(path("dir/sub")).unwrap();
    first.sync_all().unwrap();
    create("dir/sub/deep", &[b'd'; 3000]);

    // Removed, moved, moved over another; and their inode numbers used again.
    fs::remove_file(path("base 1")).unwrap();
    fs::rename(path("base 2"), path("moved")).unwrap();
    fs::rename(path("base 3"), path("base 4")).unwrap();
    fs::rename(path("base 5"), path("old dir/base 5")).unwrap();
    first.sync_all().unwrap();
    for index in 0..4 {
        create(&format!("again {index}"), format!("again {index}").repeat(400).as_bytes());
    }
    fs::remove_dir(path("empty dir")).unwrap();
    first.sync_all().unwrap();
    create("base 1", b"a new file under an old name");
    fs::remove_file(path("again 2")).unwrap();
    first.sync_all().unwrap();

    // Mappings: longer, shorter, holes, blocks that are not written.
    let mut grown = OpenOptions::new().append(true).open(path("grown")).unwrap();
    grown.write_all(&[b'g'; 9000]).unwrap();
    grown.sync_all().unwrap();
    let cut = OpenOptions::new().write(true).open(path("cut")).unwrap();
    cut.set_len(3500).unwrap();
    cut.sync_all().unwrap();
    Tool::new("fallocate").args(["-o", "20480", "-l", "8192"]).arg(path("cut")).run().unwrap();
    cut.sync_all().unwrap();
    first.set_len(1500).unwrap();
    first.sync_all().unwrap();
    drop(cut);
    create("many", b"");
    for index in 0..20u64 {
        let file = OpenOptions::new().write(true).open(path("many")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[index as u8 + 1; 700], index * 1024 * 3).unwrap();
        file.sync_all().unwrap();
    }
}

/// The image at the crash, and the tree that was there.
fn crashed(mke2fs: &Mke2fs) -> (Image, Tree) {
    let image = mke2fs.make().unwrap();
    // A full commit on the clock would empty the area.
    let mount = image.mount(MountMode::ReadWrite, "commit=300").unwrap();
    for index in 1..=6 {
        fs::write(mount.path().join(format!("base {index}")), format!("base {index}").repeat(300)).unwrap();
    }
    for name in ["grown", "cut"] {
        fs::write(mount.path().join(name), name.repeat(3000)).unwrap();
    }
    for name in ["old dir", "empty dir"] {
        fs::create_dir(mount.path().join(name)).unwrap();
    }
    Tool::new("sync").arg("-f").arg(mount.path()).run().unwrap();
    work(mount.path());
    let copy = image.copy_between_writes(&mount).unwrap();
    let mut tree = Tree::new();
    tree_of(mount.path(), b"", &mut tree);
    mount.unmount().unwrap();
    (copy, tree)
}

#[test]
fn the_kernels_fast_commits_show_the_tree_of_the_crash() {
    for block_bytes in [1024, 4096] {
        let mke2fs = Mke2fs::new("ext4", if block_bytes == 1024 { 16 } else { 64 })
            .block_bytes(block_bytes)
            .features("fast_commit")
            // By default there is room for 16 blocks, and each fast commit takes one.
            .args(["-J", "size=6,fast_commit_size=256"])
            .extended("lazy_itable_init=0");
        // Linux 6.18 refuses some of its own fast commits. We are compared with the tree that was there in any case,
        // and with Linux's recovery of the first image that it takes.
        assert!((0..10).any(|_| shows_the_tree_of_the_crash(&mke2fs)), "Linux took none of ten images");
    }
}

/// Compares what we make of one image with the tree that was there, and with what Linux recovers. Whether Linux
/// could.
fn shows_the_tree_of_the_crash(mke2fs: &Mke2fs) -> bool {
    let (dirty, expected) = crashed(mke2fs);
    let mut loaded = Loaded::new(&dirty);
    let recovered = recover(&loaded);
    let report = recovered.report;
    assert!(report.fast_commits >= 30 && report.fast_commits_cut_short.is_none(), "{report:?}");

    let dump = dirty.debugfs("logdump -S").unwrap();
    let (_, area) = dump.split_once("*** Fast Commit Area ***").unwrap();
    let structural = ["tag HEAD", "tag TAIL", "tag PAD"];
    let theirs: Vec<String> = area
        .lines()
        .filter(|line| line.starts_with("tag ") && !structural.iter().any(|tag| line.starts_with(tag)))
        // debugfs 1.47 prints a name's next byte as well, which is that of the next tag.
        .map(|line| line.replace(|printed: char| printed.is_control(), ""))
        .collect();
    let ours: Vec<String> = recovered.operations.iter().map(words).collect();
    assert_eq!(ours, theirs);

    loaded.bytes = recovered.bytes;
    let on_disk = |ino| Ok(Incarnation::of(loaded.inode(ino)));
    let view = FastCommitView::fold(&recovered.operations, on_disk).unwrap();
    let reader = Reader { image: &loaded, view };
    let mut seen = Tree::new();
    reader.tree(ROOT, b"", &mut seen);
    same_trees(&seen, &expected);

    // The kernel does not replay fast commits for a read-only mount.
    let Ok(mount) = dirty.mount(MountMode::ReadWrite, "") else { return false };
    let mut kernel = Tree::new();
    tree_of(mount.path(), b"", &mut kernel);
    mount.unmount().unwrap();
    for tree in [&mut seen, &mut kernel] {
        for entry in tree.values_mut().filter(|entry| entry.content.is_none()) {
            entry.links = 0;
        }
    }
    same_trees(&seen, &kernel);
    true
}

/// Like `assert_eq`, but says which path differs and not the content of all files.
fn same_trees(ours: &Tree, theirs: &Tree) {
    let names = |tree: &Tree| -> Vec<String> {
        tree.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    };
    assert_eq!(names(ours), names(theirs));
    for (path, entry) in ours {
        let path = String::from_utf8_lossy(path);
        let (content, expected) = (&entry.content, &theirs[path.as_bytes()].content);
        assert_eq!(content.as_ref().map(Vec::len), expected.as_ref().map(Vec::len), "size of {path}");
        assert!(content == expected, "content of {path}");
        let without_content = |entry: &Entry| Entry { content: None, ..entry.clone() };
        assert_eq!(without_content(entry), without_content(&theirs[path.as_bytes()]), "{path}");
    }
}
