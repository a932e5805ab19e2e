//! The tree as the kernel shows it under a mount.
//!
//! Every directory is reached by `openat` from its parent, so that trees deeper than a path can be are walked
//! like any other. Within one directory two threads share the names. Mount read-only, or with `noatime`, or
//! this changes access times; and mount afresh, see [`content`](mod@crate::content) for why.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::error::Context;
use crate::manifest::{Entry, Manifest, Reading, Space, Time, join};
use crate::{Content, Result, content, lsattr};

/// Looks at everything below `root`.
///
/// # Errors
/// Anything that cannot be read, except encrypted content without a key, which is a finding.
pub fn manifest(root: &Path) -> Result<Manifest> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(root, flags, Mode::empty()).context("open", root)?;
    let mut walk = Walk { entries: BTreeMap::new(), linked: Vec::new() };
    let listing = walk.list(&top, b"")?;
    let mut entry = look(&top, b".", None, b"")?;
    entry.dots = Some(listing.dots);
    walk.entries.insert(Vec::new(), entry);
    walk.take(top, &listing.names)?;
    walk.read_linked()?;
    let space = rustix::fs::statvfs(root).context("statfs", root)?;
    let mut manifest = Manifest {
        entries: walk.entries,
        space: Some(Space {
            block_bytes: space.f_bsize,
            blocks: space.f_blocks,
            free: space.f_bfree,
            available: space.f_bavail,
            inodes: space.f_files,
            inodes_free: space.f_ffree,
            fsid: space.f_fsid,
            name_max: space.f_namemax,
        }),
    };
    lsattr::add_identities(root, &mut manifest)?;
    Ok(manifest)
}

struct Walk {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Regular files with several names. They are read at the end and once per inode, since what has been
    /// read once shows other data segments the second time.
    linked: Vec<(Vec<u8>, Arc<OwnedFd>, Vec<u8>)>,
}

/// A name as its directory lists it.
struct Listed {
    name: Vec<u8>,
    ino: u64,
    type_bits: Option<u32>,
}

struct Listing {
    names: Vec<Listed>,
    dots: (u64, u64),
}

/// A directory still to be opened: its parent, its name there, its path.
struct Ahead {
    parent: Arc<OwnedFd>,
    name: Vec<u8>,
    path: Vec<u8>,
}

impl Walk {
    fn take(&mut self, top: OwnedFd, names: &[Listed]) -> Result<()> {
        let mut ahead = self.directory(&Arc::new(top), b"", names)?;
        while let Some(Ahead { parent, name, path }) = ahead.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let dir =
                rustix::fs::openat(&parent, name.as_slice(), flags, Mode::empty()).context("open", &path)?;
            let Listing { names, dots } = self.list(&dir, &path)?;
            self.entries.get_mut(&path).expect("entered before its children").dots = Some(dots);
            ahead.extend(self.directory(&Arc::new(dir), &path, &names)?);
        }
        Ok(())
    }

    fn list(&self, dir: &OwnedFd, path: &[u8]) -> Result<Listing> {
        let mut listing = Listing { names: Vec::new(), dots: (0, 0) };
        for item in Dir::read_from(dir).context("open for listing", path)? {
            let item = item.context("list", path)?;
            match item.file_name().to_bytes() {
                b"." => listing.dots.0 = item.ino(),
                b".." => listing.dots.1 = item.ino(),
                name => {
                    let type_bits = type_bits(item.file_type());
                    listing.names.push(Listed { name: name.to_vec(), ino: item.ino(), type_bits });
                }
            }
        }
        Ok(listing)
    }

    /// Enters all names of one directory; gives back the directories among them.
    fn directory(&mut self, dir: &Arc<OwnedFd>, path: &[u8], names: &[Listed]) -> Result<Vec<Ahead>> {
        let mut ahead = Vec::new();
        for (entry, listed) in look_at_all(dir, path, names)?.into_iter().zip(names) {
            let path = join(path, &listed.name);
            if entry.is_directory() {
                ahead.push(Ahead { parent: Arc::clone(dir), name: listed.name.clone(), path: path.clone() });
            } else if entry.is_regular() && entry.content.is_none() {
                self.linked.push((path.clone(), Arc::clone(dir), listed.name.clone()));
            }
            self.entries.insert(path, entry);
        }
        Ok(ahead)
    }

    fn read_linked(&mut self) -> Result<()> {
        let mut known: HashMap<u64, (Reading, Option<u32>)> = HashMap::new();
        for (path, dir, name) in std::mem::take(&mut self.linked) {
            let entry = self.entries.get_mut(&path).expect("entered before it was put off");
            let (reading, flags) = match known.get(&entry.ino) {
                Some(known) => known.clone(),
                None => read(&dir, &name, entry.size, &path)?,
            };
            known.insert(entry.ino, (reading.clone(), flags));
            entry.content = Some(reading);
            entry.flags = flags;
        }
        Ok(())
    }
}

/// Looks at every name, in the given order, with two threads when there are many.
fn look_at_all(dir: &OwnedFd, path: &[u8], names: &[Listed]) -> Result<Vec<Entry>> {
    const FEW: usize = 64;
    let look_at = |names: &[Listed]| {
        names.iter().map(|l| look(dir, &l.name, Some(l), path)).collect::<Result<Vec<_>>>()
    };
    if names.len() <= FEW {
        return look_at(names);
    }
    let (left, right) = names.split_at(names.len() / 2);
    std::thread::scope(|scope| {
        let right = scope.spawn(|| look_at(right));
        let mut entries = look_at(left)?;
        entries.extend(right.join().expect("looking at files does not panic")?);
        Ok(entries)
    })
}

/// Looks at one name. The content of a regular file with several names is put off.
fn look(dir: &OwnedFd, name: &[u8], listed: Option<&Listed>, dir_path: &[u8]) -> Result<Entry> {
    let path = join(dir_path, name);
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, wanted)
        .context("read the inode of", &path)?;
    let mut entry = Entry {
        ino: stat.stx_ino,
        listed_type: listed.and_then(|l| l.type_bits),
        listed_ino: listed.map(|l| l.ino),
        mode: u32::from(stat.stx_mode),
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        sectors: stat.stx_blocks,
        io_bytes: stat.stx_blksize,
        accessed: time(stat.stx_atime),
        modified: time(stat.stx_mtime),
        changed: time(stat.stx_ctime),
        created: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(stat.stx_btime)),
        flags: None,
        identity: None,
        xattrs: xattrs(dir, name, &path)?,
        target: None,
        dots: None,
        content: None,
    };
    match FileType::from_raw_mode(entry.mode) {
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(dir, name, Vec::new()).context("read the link", &path)?;
            entry.target = Some(target.into_bytes());
        }
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(dir, name, flags, Mode::empty()).context("open", &path)?;
            entry.flags = Some(flags_of(&opened, &path)?);
        }
        FileType::RegularFile if entry.links == 1 => {
            let (reading, flags) = read(dir, name, entry.size, &path)?;
            entry.content = Some(reading);
            entry.flags = flags;
        }
        _ => {}
    }
    Ok(entry)
}

/// Reads a regular file; also its flags, which need it to be open.
fn read(dir: &OwnedFd, name: &[u8], size: u64, path: &[u8]) -> Result<(Reading, Option<u32>)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOKEY) => return Ok((Reading::NoKey, None)),
        Err(error) => return Err(error).context("open", path),
    };
    let flags = flags_of(&file, path)?;
    let segments = content::data_segments(&file, size).context("find the data of", path)?;
    let content = Content::of(size, segments, |at, buf| file.read_exact_at(buf, at)).context("read", path)?;
    Ok((Reading::Bytes(content), Some(flags)))
}

fn flags_of(file: impl AsFd, path: &[u8]) -> Result<u32> {
    rustix::fs::ioctl_getflags(file).map(|flags| flags.bits()).context("read the flags of", path)
}

/// All extended attributes. There is no call that takes a directory and a name, and a symbolic link cannot be
/// opened: the way leads over the directory's entry in /proc, which also keeps the path short.
fn xattrs(dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // The kernel's own limit on one value.
    const LIMIT_BYTES: usize = 64 << 10;
    let mut through = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    through.extend_from_slice(name);
    let needed = match rustix::fs::llistxattr_query(through.as_slice()) {
        Ok(0) => return Ok(BTreeMap::new()),
        Ok(needed) => needed,
        Err(error) => return Err(error).context("list the extended attributes of", path),
    };
    let mut names = vec![0_u8; needed];
    let len = rustix::fs::llistxattr(through.as_slice(), &mut names[..])
        .context("list the extended attributes of", path)?;
    let mut value = vec![0_u8; LIMIT_BYTES];
    let mut all = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let len = rustix::fs::lgetxattr(through.as_slice(), name, &mut value[..])
            .context("read an extended attribute of", path)?;
        all.insert(name.to_vec(), value[..len].to_vec());
    }
    Ok(all)
}

fn type_bits(file_type: FileType) -> Option<u32> {
    (file_type != FileType::Unknown).then(|| file_type.as_raw_mode())
}

fn time(at: StatxTimestamp) -> Time {
    (at.tv_sec, at.tv_nsec)
}
