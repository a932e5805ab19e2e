//! Makes the tree by system calls, in a directory where a kernel has mounted the filesystem under test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::tree::{Content, Entry, Object, Tree};
use crate::Timestamp;

/// Makes `tree` in the existing, empty directory `top`. Needs the rights to make device nodes, to give files
/// away and to set `trusted.` attributes: root's. The mount should not update access times.
///
/// # Errors
/// The first call that fails, with the path.
pub fn populate(top: &Path, tree: &Tree) -> io::Result<()> {
    let make = |entry: &Entry, step: &dyn Fn(&Path, &Entry) -> io::Result<()>| {
        let path = top.join(OsStr::from_bytes(&entry.path));
        step(&path, entry)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    };
    for entry in &tree.entries {
        make(entry, &|path, entry| create(top, path, entry))?;
    }
    // Children first, because making a name changes its directory's times.
    for entry in tree.entries.iter().rev().filter(|entry| entry.object.kind().is_some()) {
        make(entry, &set_metadata)?;
    }
    Ok(())
}

fn create(top: &Path, path: &Path, entry: &Entry) -> io::Result<()> {
    let node = |kind, device| rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device);
    match &entry.object {
        Object::Directory if entry.path.is_empty() => {}
        Object::Directory => fs::create_dir(path)?,
        Object::File(content) => write(path, content)?,
        Object::Symlink(target) => std::os::unix::fs::symlink(OsStr::from_bytes(target), path)?,
        Object::HardLink(target) => fs::hard_link(top.join(OsStr::from_bytes(target)), path)?,
        Object::Fifo => node(FileType::Fifo, 0)?,
        Object::Socket => node(FileType::Socket, 0)?,
        Object::CharDevice(number) => {
            node(FileType::CharacterDevice, rustix::fs::makedev(number.major, number.minor))?;
        }
        Object::BlockDevice(number) => {
            node(FileType::BlockDevice, rustix::fs::makedev(number.major, number.minor))?;
        }
    }
    Ok(())
}

fn write(path: &Path, content: &Content) -> io::Result<()> {
    let file = File::create_new(path)?;
    let mut buf = Vec::new();
    for piece in &content.pieces {
        for skip in (0..piece.len).step_by(1 << 20) {
            buf.resize((piece.len - skip).min(1 << 20) as usize, 0);
            piece.fill(skip, &mut buf);
            file.write_all_at(&buf, piece.offset + skip)?;
        }
    }
    file.set_len(content.size_bytes)
}

fn set_metadata(path: &Path, entry: &Entry) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    for (name, value) in &entry.xattrs {
        rustix::fs::lsetxattr(path, &name[..], value, XattrFlags::empty())?;
    }
    // After the owner and the access control list, both of which change the bits.
    if !matches!(entry.object, Object::Symlink(_)) {
        rustix::fs::chmod(path, Mode::from_raw_mode(entry.permissions.into()))?;
    }
    let spec = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let times = Timestamps { last_access: spec(entry.accessed), last_modification: spec(entry.modified) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::conformance::Piece;

    /// What any user may make; device nodes and other owners are seen where a kernel mounts an image.
    #[test]
    fn makes_what_the_tree_says() {
        let mut tree = Tree::new();
        let pieces = vec![Piece { offset: 70_000, len: 5000, seed: 3 }];
        let content = Content { size_bytes: 100_000, pieces };
        let (early, late) =
            (Timestamp { seconds: 1_000, nanoseconds: 5 }, Timestamp { seconds: 2_000_000, nanoseconds: 7 });
        tree.add("dir", Object::Directory).at(early, late).permissions = 0o510;
        tree.add(b"dir/\xff", Object::File(content.clone())).at(late, early).permissions = 0o4640;
        tree.add("link", Object::Symlink(b"dir/\xff".to_vec()));
        tree.add("again", Object::HardLink(b"dir/\xff".to_vec()));
        tree.add("fifo", Object::Fifo);
        for entry in &mut tree.entries {
            (entry.uid, entry.gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        }
        let top = tempfile::tempdir().unwrap();
        populate(top.path(), &tree).unwrap();

        let file = top.path().join("again");
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.mode(), metadata.nlink()), (0o104_640, 2));
        assert_eq!((metadata.mtime(), metadata.mtime_nsec(), metadata.atime()), (1_000, 5, 2_000_000));
        let mut expected = vec![0; 100_000];
        content.fill(0, &mut expected);
        assert!(fs::read(&file).unwrap() == expected);
        assert_eq!(fs::read_link(top.path().join("link")).unwrap().as_os_str().as_bytes(), b"dir/\xff");
        let dir = top.path().join("dir").metadata().unwrap();
        assert_eq!((dir.mode(), dir.mtime()), (0o040_510, 2_000_000));
        assert_eq!(top.path().join("fifo").metadata().unwrap().mode(), 0o010_644);
        // So that the user that runs this can remove the temporary directory.
        rustix::fs::chmod(top.path().join("dir"), Mode::RWXU).unwrap();
    }
}
