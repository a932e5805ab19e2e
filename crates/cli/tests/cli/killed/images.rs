//! What the tests of killed commands start from, and what they look at afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use undercroft_oracle::{LoopMount, MountMode, Tool};

use super::wait_until_free;
use crate::edit::assert_sound;
use crate::edit_killed::next;
use crate::support::{tool, undercroft};

/// What a name leads to, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    /// Mode, owner, size, and a sum of the content.
    File(u32, u32, u64, u64),
    Link(PathBuf),
}

pub(super) type Tree = BTreeMap<PathBuf, Node>;

/// Everything below a directory but lost+found.
pub(super) fn tree_of(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if name == Path::new("lost+found") {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).unwrap();
            let node = if metadata.is_dir() {
                left.push(path);
                Node::Directory
            } else if metadata.is_symlink() {
                Node::Link(fs::read_link(path).unwrap())
            } else {
                let mut sum = DefaultHasher::new();
                fs::read(path).unwrap().hash(&mut sum);
                Node::File(metadata.mode(), metadata.uid(), metadata.len(), sum.finish())
            };
            tree.insert(name, node);
        }
    }
    tree
}

/// What the kernel shows of an image in which its tools, and ours, find nothing wrong.
pub(super) fn shown(raw: &Path, family: &str) -> Tree {
    assert_sound(raw, family);
    mounted(raw, family)
}

/// What the kernel shows of an image in which its own tools find nothing wrong.
fn mounted(raw: &Path, family: &str) -> Tree {
    // A copy: the mount may live on for an instant in another mount namespace, and what it has is in use.
    let copied = raw.with_extension("shown");
    copy(raw, &copied);
    // Other images of the same seed have the same UUID.
    let options = if family == "xfs" { "nouuid" } else { "" };
    let mount = LoopMount::new(&copied, family, MountMode::ReadOnly, options).unwrap();
    let tree = tree_of(mount.path());
    mount.unmount().unwrap();
    fs::remove_file(copied).unwrap();
    tree
}

/// Opens the filesystem for writing, which recovers it, and changes nothing.
pub(super) fn recover(image: &Path, told: &str) {
    let opened = undercroft(["touch", "-c", image.to_str().unwrap(), "/nothing"]);
    assert_eq!((opened.code, &*opened.stderr), (0, ""), "{told}");
}

/// The first difference between two trees.
pub(super) fn assert_same(expected: &Tree, found: &Tree, told: &str) {
    let names = expected.keys().chain(found.keys());
    for name in names {
        assert_eq!(expected.get(name), found.get(name), "{told}: {}", name.display());
    }
}

/// A directory with files of many sizes, some of them changed by `version`; `count` of them.
pub(super) fn fill(root: &Path, count: u64, most_bytes: u64, version: u64) {
    let mut state = 7;
    for directory in 0..8 {
        fs::create_dir_all(root.join(format!("d{directory}/below"))).unwrap();
    }
    for number in 0..count {
        let size = next(&mut state) % most_bytes;
        let mut content = vec![0; size as usize];
        let mut bytes = number | (version * u64::from(number % 3 == 0)) << 32;
        for word in content.chunks_mut(4) {
            word.copy_from_slice(&(next(&mut bytes) as u32).to_le_bytes()[..word.len()]);
        }
        let below = if number % 5 == 0 { "below/" } else { "" };
        let name = format!("d{}/{below}file with a name {number}", number % 8);
        fs::write(root.join(&name), content).unwrap();
        if number % 11 == 0 {
            fs::hard_link(root.join(&name), root.join(format!("d{}/link {number}", number % 7))).unwrap();
        }
        if number % 13 == 0 {
            symlink(&name, root.join(format!("symbolic {number}"))).unwrap();
        }
    }
}

/// The image as a plain file, beside it: itself, if it is one.
pub(super) fn as_raw(image: &Path) -> PathBuf {
    if image.extension().is_none_or(|extension| extension != "qcow2") {
        return image.to_owned();
    }
    let raw = image.with_extension("raw");
    let checked = Tool::new("qemu-img").args(["check", "-q"]).arg(image);
    // 3 says that there are clusters that nothing uses.
    checked.accept(&[0, 3]).run().unwrap();
    Tool::new("qemu-img").args(["convert", "-O", "raw"]).arg(image).arg(&raw).run().unwrap();
    raw
}

pub(super) fn copy(from: &Path, to: &Path) {
    tool(&format!("cp --remove-destination {} {}", from.display(), to.display()), Path::new("/"));
}

fn scratch(image: &Path, name: &str) -> PathBuf {
    let extension = image.extension().map_or("img", |extension| extension.to_str().unwrap());
    image.parent().unwrap().join(format!("{name}.{extension}"))
}

/// What there is after a recovery, which ours and Linux's agree on; each is of a copy. The kernel is given only what its
/// tools find nothing wrong with. `facts` is asked about both.
pub(super) fn recovered(
    image: &Path,
    family: &str,
    has_journal: bool,
    facts: &dyn Fn(&Path) -> String,
    told: &str,
) -> (Tree, String) {
    wait_until_free(image);
    let ours = scratch(image, "ours");
    let mut found = Vec::new();
    if family == "ext4" {
        let theirs = scratch(image, "theirs");
        copy(image, &theirs);
        let raw = as_raw(&theirs);
        // 1 says that something was recovered, or repaired without a question.
        let repaired = Tool::new("e2fsck").arg("-p").arg(&raw).accept(&[0, 1]).run();
        repaired.unwrap_or_else(|error| panic!("{told}: {error}"));
        // It leaves all but the first of the superblock's copies as they are, and our check would tell of them.
        let checked = Tool::new("e2fsck").arg("-fn").arg(&raw).run();
        checked.unwrap_or_else(|error| panic!("{told}: {error}"));
        found.push((mounted(&raw, family), facts(&raw)));
        if !has_journal {
            // There is nothing to recover from.
            copy(&raw, image);
        }
    }
    copy(image, &ours);
    recover(&ours, told);
    let raw = as_raw(&ours);
    found.push((shown(&raw, family), facts(&raw)));
    if let [theirs, ours] = &found[..] {
        assert_same(&theirs.0, &ours.0, &format!("{told}: Linux recovers another tree"));
        assert_eq!(theirs.1, ours.1, "{told}");
    }
    found.pop().unwrap()
}

/// The names in a directory that begin like those of unfinished files, which are removed.
pub(super) fn take_unfinished(dir: &Path, image: &str, told: &str) -> usize {
    let prefix = format!(".{image}.");
    let mut count = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with('.') {
            assert!(name.starts_with(&prefix) && name.len() == prefix.len() + 6, "{told}: {name}");
            fs::remove_file(entry.path()).unwrap();
            count += 1;
        }
    }
    assert!(count <= 1, "{told}: {count} unfinished files");
    count
}

/// A loop device over a file.
pub(super) struct LoopDevice(pub(super) PathBuf);

impl LoopDevice {
    pub(super) fn new(file: &Path) -> Self {
        let device = Tool::new("losetup").args(["--find", "--show"]).arg(file).run_text().unwrap();
        Self(device.trim().into())
    }

    /// Lets all that was written reach the file, and detaches it.
    pub(super) fn end(self) {
        Tool::new("blockdev").arg("--flushbufs").arg(&self.0).run().unwrap();
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}
