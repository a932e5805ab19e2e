//! Archives of every writer at hand, in an image and as GNU tar unpacks them: the kernel shows the same of both.
//!
//! | module       | holds                                             |
//! | ------------ | ------------------------------------------------- |
//! | this one     | the tree, what GNU tar makes of it, the comparing |
//! | `gnu`        | GNU tar's formats and options                     |
//! | `writers`    | libarchive, Python, Go, busybox, git              |
//! | `containers` | images by umoci and skopeo, as umoci unpacks them |

mod containers;
mod gnu;
mod writers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use undercroft_oracle::{Differences, Image, LoopMount, Manifest, Mke2fs, MountMode, kernel_manifest};

use crate::mkfs_from::{comparable, shown};
use crate::support::{PROGRAM, run, tool, undercroft};

/// Makes the tree in the current directory.
const TREE: &str = include_str!("tree.py");

/// What GNU tar is to keep.
const ALL: &str = "--xattrs --xattrs-include=* --acls";

/// How GNU tar unpacks. Without the last option it forgets times of directories that it goes back to.
const UNPACK: &str = "--numeric-owner -p --delay-directory-restore";

/// A filesystem of Linux with the tree, and archives of it that GNU tar has unpacked there.
struct Archives {
    dir: tempfile::TempDir,
    scratch: Image,
    mount: LoopMount,
    made: Vec<Made>,
}

/// What `mkfs --from` is given, and where the same is unpacked, below the mount.
struct Made {
    name: String,
    sources: Vec<String>,
    place: PathBuf,
}

impl Archives {
    /// With the tree, and no archive.
    fn of_tree() -> Self {
        let this = Self::empty();
        let output = Command::new("python3").args(["-c", TREE]).current_dir(this.tree()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        this
    }

    fn empty() -> Self {
        let scratch = Mke2fs::new("ext4", 512).block_bytes(4096).make().unwrap();
        let mount = scratch.mount(MountMode::ReadWrite, "noatime").unwrap();
        let this = Self { dir: tempfile::tempdir().unwrap(), scratch, mount, made: Vec::new() };
        fs::create_dir(this.tree()).unwrap();
        this
    }

    fn tree(&self) -> PathBuf {
        self.mount.path().join("tree")
    }

    /// Where an archive is to be.
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An archive of the tree by a command, in which `{}` stands for the archive; GNU tar unpacks it.
    fn by(&mut self, name: &str, command: &str) {
        let path = self.path(name);
        tool(&command.replace("{}", path.to_str().unwrap()), &self.tree());
        self.unpack(name, &[path]);
    }

    /// GNU tar unpacks archives, one over the other.
    fn unpack(&mut self, name: &str, sources: &[PathBuf]) {
        let place = self.mount.path().join(name);
        fs::create_dir(&place).unwrap();
        for source in sources {
            let command = format!("tar {ALL} {UNPACK} -xf {} -C {}", source.display(), place.display());
            tool(&command, Path::new("/"));
        }
        let sources = sources.iter().map(|source| source.to_str().unwrap().to_owned()).collect();
        self.made.push(Made { name: name.into(), sources, place: name.into() });
    }

    /// What the kernel shows of what was unpacked, and the archives.
    fn unpacked(self) -> (tempfile::TempDir, Vec<(Made, Manifest)>) {
        self.mount.unmount().unwrap();
        self.scratch.check().unwrap();
        let mount = self.scratch.mount(MountMode::ReadOnly, "").unwrap();
        let of = |made: Made| {
            let manifest = kernel_manifest(&mount.path().join(&made.place)).unwrap();
            (made, manifest)
        };
        let unpacked = self.made.into_iter().map(of).collect();
        mount.unmount().unwrap();
        (self.dir, unpacked)
    }

    /// The kernel shows of images of the archives what it shows of what GNU tar unpacked. Every image is an ext4, and those
    /// of the archives named are an XFS too. At least so many entries are in each archive.
    fn are_the_same_in_images(self, in_xfs_too: &[&str], entries: usize) {
        let (dir, unpacked) = self.unpacked();
        for (Made { name, sources, .. }, expected) in unpacked {
            assert!(expected.entries.len() > entries, "{name}: {} entries", expected.entries.len());
            let in_xfs_too = in_xfs_too.contains(&name.as_str());
            for kind in ["ext4", "xfs"].iter().take(1 + usize::from(in_xfs_too)) {
                let image = dir.path().join("image");
                let mut args = vec!["mkfs", kind, image.to_str().unwrap(), "-q"];
                for source in &sources {
                    args.extend(["--from", source.as_str()]);
                }
                undercroft(args).succeeded();
                assert_same(&expected, &shown(kind, &image), &format!("{kind} from {name}"));
                fs::remove_file(&image).unwrap();
            }
        }
    }
}

/// Two runs, on one thread and on eight, write the same bytes.
fn are_the_same_bytes(dir: &Path, source: &str) {
    for kind in ["ext4", "xfs"] {
        for threads in ["1", "8"] {
            let mut mkfs = Command::new(PROGRAM);
            mkfs.args(["mkfs", kind, threads, "-q", "--seed", "one", "--threads", threads, "--from", source]);
            run(mkfs.env("SOURCE_DATE_EPOCH", "1700000000").current_dir(dir)).succeeded();
        }
        tool("cmp 1 8", dir);
        fs::remove_file(dir.join("1")).unwrap();
        fs::remove_file(dir.join("8")).unwrap();
    }
}

/// Everything that an archive can keep is the same, and the same names lead to one file.
fn assert_same(expected: &Manifest, found: &Manifest, what: &str) {
    assert_eq!(names_of_one_file(expected), names_of_one_file(found), "{what}");
    // What no member names was made by each on its own.
    let unnamed = |mut manifest: Manifest| {
        manifest.entries.remove(&b""[..]);
        manifest
    };
    Differences::between(&comparable(unnamed(expected.clone())), &comparable(unnamed(found.clone())))
        .assert_none(what);
}

/// The first name of each file that has several, by the others.
fn names_of_one_file(manifest: &Manifest) -> BTreeMap<&[u8], &[u8]> {
    let mut first = BTreeMap::new();
    let mut others = BTreeMap::new();
    for (path, entry) in manifest.entries.iter().filter(|(_, entry)| !entry.is_directory() && entry.links > 1)
    {
        let first: &[u8] = first.entry(entry.ino).or_insert(path.as_slice());
        others.insert(path.as_slice(), first);
    }
    others
}
