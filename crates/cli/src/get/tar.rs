//! Writes a tree as a tar archive to standard output: ustar members, with PAX records for what does not fit.
//!
//! A file that cannot be read to its end leaves zeroes in the archive, so that the members after it are right,
//! and is named among the failures. A file with holes is a sparse member in GNU tar's PAX form 1.0, where that makes the
//! archive smaller. Sockets have no place in a tar archive.
//!
//! Format of sparse members: the GNU tar manual, "PAX Format, Version 1.0".

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, BufReader, BufWriter, Read, StdoutLock};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::{iter, vec};

use tar::{Builder, EntryType, Header};
use undercroft_vfs::{self as vfs, Attr, FileType, Ino, Node, Vfs};

use super::metadata::{Keep, Lost, Privilege};
use super::pax::Records;
use super::place::own_name;
use super::progress::Progress;
use super::select::Source;
use super::told::Told;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::plan::GetPlan;
use crate::text::acl;
use crate::text::names::{join, safe};
use crate::text::note::note;
use crate::walk::{Event, Order, Walk};
use crate::xattrs::listed_xattr;

/// Bytes read or written at once.
const CHUNK_BYTES: usize = 1 << 20;
/// The first number that seven octal digits do not hold.
const OCTAL_7_END: u64 = 1 << 21;
/// The first number that eleven octal digits do not hold.
const OCTAL_11_END: u64 = 1 << 33;
/// The unit of an archive, in bytes.
const RECORD_BYTES: usize = 512;
/// Holes of fewer bytes are written as zeroes.
const HOLES_MIN_BYTES: u64 = 4096;
/// Most parts of a sparse member. A file with more is written as it is.
const PARTS_MAX: usize = 1 << 20;
/// What the name of a sparse member begins with in its fixed header, as GNU tar has it.
const SPARSE_DIRECTORY: &[u8] = b"GNUSparseFile.0/";
/// Bytes of a name in the fixed header.
const NAME_BYTES: usize = 100;

struct Archive<'a> {
    vfs: &'a Vfs,
    keep: Keep,
    told: Option<Told>,
    not_kept: Lost,
    builder: Builder<BufWriter<StdoutLock<'static>>>,
    /// The member that holds the content of a file with several names.
    members: HashMap<Ino, Vec<u8>>,
    progress: &'a Progress,
    complaints: &'a mut Complaints,
}

/// Writes the sources, each under its own name.
pub(crate) fn write(
    vfs: &Vfs,
    plan: &GetPlan,
    sources: &[Source],
    told: Option<Told>,
    progress: &Progress,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    let sink = BufWriter::with_capacity(CHUNK_BYTES, io::stdout().lock());
    let mut archive = Archive {
        vfs,
        // An archive holds what its reader may take, whatever this process may.
        keep: Keep { privilege: Privilege::Root, special: plan.special, strip: false },
        told,
        not_kept: Lost::default(),
        builder: Builder::new(sink),
        members: HashMap::new(),
        progress,
        complaints,
    };
    for source in sources {
        archive.source(plan, source)?;
    }
    let not_kept = archive.not_kept;
    let mut sink = archive.builder.into_inner()?;
    io::Write::flush(&mut sink)?;
    progress.finish();
    not_kept.note_special("--special keeps these");
    Ok(())
}

impl Archive<'_> {
    /// Writes a source and all below it.
    fn source(&mut self, plan: &GetPlan, source: &Source) -> Result<(), Failure> {
        let Source { path, node } = source;
        let name = own_name(path).map(OsStr::as_bytes).unwrap_or_default();
        // Members are named from the top on; messages name paths inside the image.
        let inside = |member: &[u8]| {
            let below = member.strip_prefix(name).unwrap_or(member);
            join(path, below.strip_prefix(b"/").unwrap_or(below))
        };
        let top = if name.is_empty() { b".".to_vec() } else { name.to_vec() };
        self.member(top, node, path)?;
        if node.kind() == FileType::Directory {
            let mut walk = Walk::new(self.vfs, node, name.to_vec(), Order::Inode);
            while let Some(event) = walk.next() {
                match event {
                    Event::File(entry) | Event::Enter(entry) => {
                        let shown = inside(&entry.path);
                        if !plan.exclude.has(&shown) {
                            self.member(entry.path, &entry.node, &shown)?;
                        } else if entry.node.kind() == FileType::Directory {
                            walk.pass_over();
                        }
                    }
                    Event::Leave => {}
                    Event::Trouble { path: below, error } => {
                        self.complain(Failure::inside(&inside(&below), &error))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes one member; what is wrong with the image is reported by its path there, and does not end the archive.
    fn member(&mut self, name: Vec<u8>, node: &Arc<Node>, inside: &[u8]) -> Result<(), Failure> {
        match self.try_member(name, node, inside) {
            Ok(()) => {
                self.complaints.done_some();
                Ok(())
            }
            Err(failure) if matches!(failure.kind(), Kind::ClosedPipe | Kind::Host) => Err(failure),
            Err(failure) => self.complain(failure),
        }
    }

    fn try_member(&mut self, mut name: Vec<u8>, node: &Arc<Node>, shown: &[u8]) -> Result<(), Failure> {
        let inside = |error: vfs::Error| Failure::inside(shown, &error);
        let mut attr = node.attr();
        if matches!(attr.kind, FileType::CharDevice | FileType::BlockDevice) && !self.keep.special {
            self.not_kept.device_nodes += 1;
            return Ok(());
        }
        if let Some(told) = self.told {
            self.progress.aside(|| told.name(shown))?;
        }
        let mode = attr.permissions & self.keep.mode_mask();
        self.not_kept.set_id_modes += u64::from(mode != attr.permissions & 0o7777);
        attr.permissions = mode;
        let mut records = Records::default();
        let mut header = Header::new_ustar();
        if attr.kind != FileType::Directory && attr.links > 1 {
            if let Some(first) = self.members.get(&attr.ino) {
                header.set_entry_type(EntryType::Link);
                set_link(&mut header, &mut records, first);
                set_attributes(&mut header, &mut records, &attr);
                return self.append(header, &records, &name, io::empty());
            }
            self.members.insert(attr.ino, name.clone());
        }
        set_attributes(&mut header, &mut records, &attr);
        let (left_out, damage) = set_xattrs(&mut records, node, self.keep).map_err(inside)?;
        self.not_kept.privileged_xattrs += left_out;
        let outcome = |damage: Option<vfs::Error>| damage.map_or(Ok(()), |error| Err(inside(error)));
        match attr.kind {
            FileType::Regular => {
                let file = self.vfs.open_node(node).map_err(inside)?;
                header.set_entry_type(EntryType::Regular);
                let sparse = Sparse::of(&file, attr.size_bytes);
                let (map, data) = match sparse {
                    Some(Sparse { map, data }) => {
                        let data_bytes: u64 = data.iter().map(|range| range.end - range.start).sum();
                        set_size(&mut header, &mut records, map.len() as u64 + data_bytes);
                        for (key, value) in [
                            ("major", &b"1"[..]),
                            ("minor", b"0"),
                            ("name", &name),
                            ("realsize", attr.size_bytes.to_string().as_bytes()),
                        ] {
                            records.add(format!("GNU.sparse.{key}").as_bytes(), value);
                        }
                        // What does not know the form unpacks the map and the data under this name.
                        name =
                            [SPARSE_DIRECTORY, own_name(&name).map_or(&name[..], OsStr::as_bytes)].concat();
                        name.truncate(NAME_BYTES);
                        (map, data)
                    }
                    None => {
                        set_size(&mut header, &mut records, attr.size_bytes);
                        (Vec::new(), iter::once(0..attr.size_bytes).collect())
                    }
                };
                let mut failed = None;
                let content = Content {
                    file: &file,
                    data: data.into_iter(),
                    range: 0..0,
                    failed: &mut failed,
                    progress: self.progress,
                };
                let content = map.chain(BufReader::with_capacity(CHUNK_BYTES, content));
                self.append(header, &records, &name, content)?;
                return outcome(failed.or(damage));
            }
            FileType::Directory => {
                header.set_entry_type(EntryType::Directory);
                name.push(b'/');
            }
            FileType::Symlink => {
                header.set_entry_type(EntryType::Symlink);
                set_link(&mut header, &mut records, &node.read_link().map_err(inside)?);
            }
            FileType::Fifo => header.set_entry_type(EntryType::Fifo),
            FileType::CharDevice => header.set_entry_type(EntryType::Char),
            FileType::BlockDevice => header.set_entry_type(EntryType::Block),
            FileType::Socket => {
                self.progress.aside(|| note(format_args!("{}: a tar archive holds no sockets", safe(shown))));
                return outcome(damage);
            }
        }
        if matches!(attr.kind, FileType::CharDevice | FileType::BlockDevice) {
            header.set_device_major(attr.rdev.major)?;
            header.set_device_minor(attr.rdev.minor)?;
        }
        self.append(header, &records, &name, io::empty())?;
        outcome(damage)
    }

    fn append(
        &mut self,
        mut header: Header,
        records: &Records,
        name: &[u8],
        content: impl Read,
    ) -> Result<(), Failure> {
        let mut long_name = Records::default();
        if name.len() > NAME_BYTES {
            long_name.add(b"path", name);
        }
        let extended = [long_name.as_bytes(), records.as_bytes()].concat();
        if !extended.is_empty() {
            let mut pax = Header::new_ustar();
            pax.set_entry_type(EntryType::XHeader);
            set_field(&mut pax, b"PaxHeaders/member");
            pax.set_mode(0o644);
            pax.set_size(extended.len() as u64);
            pax.set_cksum();
            self.builder.append(&pax, &extended[..])?;
        }
        set_field(&mut header, name);
        header.set_cksum();
        self.builder.append(&header, content)?;
        Ok(())
    }

    fn complain(&mut self, failure: Failure) -> Result<(), Failure> {
        let complaints = &mut *self.complaints;
        self.progress.aside(|| complaints.add(failure))
    }
}

/// The name field, cut where it is too short; a record then has the whole name.
fn set_field(header: &mut Header, name: &[u8]) {
    let field = &mut header.as_old_mut().name;
    let length = name.len().min(NAME_BYTES);
    field[..length].copy_from_slice(&name[..length]);
}

fn set_link(header: &mut Header, records: &mut Records, target: &[u8]) {
    if target.len() > NAME_BYTES {
        records.add(b"linkpath", target);
    }
    let field = &mut header.as_old_mut().linkname;
    let length = target.len().min(NAME_BYTES);
    field[..length].copy_from_slice(&target[..length]);
}

fn set_size(header: &mut Header, records: &mut Records, size: u64) {
    if size >= OCTAL_11_END {
        records.add(b"size", size.to_string().as_bytes());
    }
    // The framing takes the member's length from the reader, so the field may be of another form.
    header.set_size(size);
}

fn set_attributes(header: &mut Header, records: &mut Records, attr: &Attr) {
    header.set_mode(u32::from(attr.permissions));
    for (key, id) in [("uid", attr.uid), ("gid", attr.gid)] {
        if u64::from(id) >= OCTAL_7_END {
            records.add(key.as_bytes(), id.to_string().as_bytes());
        }
    }
    let fits = |id: u32| if u64::from(id) < OCTAL_7_END { u64::from(id) } else { 0 };
    header.set_uid(fits(attr.uid));
    header.set_gid(fits(attr.gid));
    let whole = u64::try_from(attr.modified.seconds).ok().filter(|seconds| *seconds < OCTAL_11_END);
    if whole.is_none() || attr.modified.nanoseconds > 0 {
        records.add_time("mtime", attr.modified);
    }
    header.set_mtime(whole.unwrap_or(0));
    records.add_time("atime", attr.accessed);
    records.add_time("ctime", attr.changed);
}

/// Returns how many attributes were left out, and why the first could not be read of those that cannot.
fn set_xattrs(records: &mut Records, node: &Node, keep: Keep) -> vfs::Result<(u64, Option<vfs::Error>)> {
    let (mut left_out, mut damage) = (0, None);
    for name in node.list_xattrs()? {
        if !keep.takes_xattr(&name) {
            left_out += 1;
            continue;
        }
        let value = match listed_xattr(node, &name) {
            Ok(value) => value,
            Err(error) => {
                damage.get_or_insert(error);
                continue;
            }
        };
        let acl_key = match &name[..] {
            b"system.posix_acl_access" => Some("SCHILY.acl.access"),
            b"system.posix_acl_default" => Some("SCHILY.acl.default"),
            _ => None,
        };
        match (acl_key, acl::text(&value)) {
            (Some(key), Some(text)) => records.add(key.as_bytes(), text.as_bytes()),
            _ => records.add_xattr(&name, &value),
        }
    }
    Ok((left_out, damage))
}

/// Where a file with holes has data.
struct Sparse {
    /// As it stands in front of the data: how many parts, and of each its place and length, in lines, filled up with zeroes.
    map: Vec<u8>,
    data: Vec<Range<u64>>,
}

impl Sparse {
    /// `None` for a file that is written as it is: without holes worth it, or whose map cannot be read.
    fn of(file: &vfs::File, size: u64) -> Option<Self> {
        let mut data = Vec::new();
        let mut data_bytes = 0;
        for range in file.data_ranges(0..size) {
            let range = range.ok().filter(|_| data.len() < PARTS_MAX)?;
            data_bytes += range.end - range.start;
            data.push(range);
        }
        if size - data_bytes < HOLES_MIN_BYTES {
            return None;
        }
        // An empty part at the end tells the size to readers that go by the map.
        let parts = data.iter().cloned().chain(iter::once(size..size));
        let mut map = format!("{}\n", data.len() + 1).into_bytes();
        for Range { start, end } in parts {
            map.extend_from_slice(format!("{start}\n{}\n", end - start).as_bytes());
        }
        map.resize(map.len().next_multiple_of(RECORD_BYTES), 0);
        (map.len() as u64 + data_bytes < size).then_some(Self { map, data })
    }
}

/// A file's bytes, exactly as many as its size or its map says: zeroes after a failure, which is kept.
struct Content<'a> {
    file: &'a vfs::File,
    /// What comes after `range`.
    data: vec::IntoIter<Range<u64>>,
    range: Range<u64>,
    failed: &'a mut Option<vfs::Error>,
    progress: &'a Progress,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.range.is_empty() {
            match self.data.next() {
                Some(range) => self.range = range,
                None => return Ok(0),
            }
        }
        let left = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX);
        let want = left.min(buffer.len());
        let buffer = &mut buffer[..want];
        let read = match &self.failed {
            Some(_) => None,
            None => match self.file.read_at(self.range.start, buffer) {
                Ok(read) => Some(read),
                Err(error) => {
                    *self.failed = Some(error);
                    None
                }
            },
        };
        // After a failure, and after an end that came too early.
        let read = read.unwrap_or(0);
        if read < want {
            buffer[read..].fill(0);
        }
        self.range.start += want as u64;
        self.progress.advance(want as u64);
        Ok(want)
    }
}
