//! `tour`: a guided look at a small ext4 image that travels inside this program.
//!
//! Linux made the image (see `assets/make-tour-image`) and was interrupted: one directory exists only in the
//! journal, another was deleted only there. The tour opens it in memory, as any image is opened, gathers what it
//! finds into one [`Report`], checks every file against SHA-256 sums that travel beside the image, and shows the
//! report. Nothing shown is written down in this program except the sentences around it. A small XFS follows (`groups`).
//! Then the tree moves onto an array, which loses members (`array`).

mod array;
mod copy;
mod groups;
mod show;
mod sums;

use std::io::Read;
use std::sync::Arc;

use serde::Serialize;
use undercroft_block::{Access, MemoryDevice};
use undercroft_vfs::{Credentials, Error, FileType, Node, Vfs};

use super::info;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::recovery::Ext4Recovery;
use crate::image::{self, Filesystem, Opened, Use};
use crate::plan::Format;
use crate::text::acl;
use crate::text::human;
use crate::text::names::{Path, Target, Value};
use crate::text::out::Out;
use crate::walk::{Event, Order, Walk};

use sums::Verified;

/// The image, as `assets/make-tour-image` left it.
const IMAGE: &[u8] = include_bytes!("../../../assets/tour.img.zst");
/// The sums of all its files.
const SUMS: &[u8] = include_bytes!("../../../assets/tour.sha256");
/// The same, inside the image.
const SUMS_INSIDE: &[u8] = b"/SHA256SUMS";

/// More than the image has, and little enough to unpack in memory.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// What the tour found.
#[derive(Debug, Serialize)]
struct Report {
    compressed_bytes: u64,
    image: info::Report,
    tree: Vec<Branch>,
    verified: Verified,
    sparse: Sparse,
    labelled: Labelled,
    hard_links: Vec<Path>,
    hard_link_inode: u64,
    symlink: Link,
    odd_names: Vec<Path>,
    latest_time: Stamp,
    recovery: Ext4Recovery,
    /// A file that only the journal knew.
    last_entry: Value,
    /// Whether a directory that the journal deletes is still there.
    condemned_exists: bool,
    xfs: groups::Report,
    array: array::Report,
}

/// A name of the tree, with as much as is drawn.
#[derive(Debug, Serialize)]
struct Branch {
    #[serde(flatten)]
    path: Path,
    depth: u32,
    last: bool,
    kind: &'static str,
    size_bytes: u64,
    #[serde(skip)]
    name: Vec<u8>,
    #[serde(skip)]
    attr: undercroft_vfs::Attr,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
}

#[derive(Debug, Serialize)]
struct Sparse {
    #[serde(flatten)]
    path: Path,
    size_bytes: u64,
    allocated_bytes: u64,
    /// First byte and length of what is not a hole.
    data: Vec<(u64, u64)>,
}

#[derive(Debug, Serialize)]
struct Labelled {
    #[serde(flatten)]
    path: Path,
    xattrs: Vec<(String, Value)>,
    /// The access control list in words.
    acl: Option<String>,
}

#[derive(Debug, Serialize)]
struct Link {
    #[serde(flatten)]
    path: Path,
    #[serde(flatten)]
    target: Target,
    /// The inode that the link leads to.
    leads_to_inode: u64,
}

#[derive(Debug, Serialize)]
struct Stamp {
    #[serde(flatten)]
    path: Path,
    modified: String,
}

/// Takes the tour.
pub(crate) fn run(format: Format) -> Result<(), Failure> {
    let opened = open(IMAGE)?;
    let array = array::show(&opened.vfs)?;
    let xfs = groups::look()?;
    let report = look(&opened, xfs, array).map_err(|error| not_as_it_should_be(&error))?;
    if let Some(wrong) = report.verified.wrong.first() {
        return Err(Failure::new(
            Kind::Corrupt,
            format!(
                "the tour's own file {} does not have the SHA-256 sum it should have",
                crate::text::names::safe(&wrong.raw)
            ),
        ));
    }
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => show::text(&mut out, &report)?,
    }
    out.finish()
}

fn not_as_it_should_be(error: &Error) -> Failure {
    Failure::new(Kind::of(error), "the tour's own image does not read as it should").because(error)
}

/// Opens an image that travels packed.
fn open(packed: &'static [u8]) -> Result<Opened, Failure> {
    let unpack = |error: &dyn std::error::Error| {
        Failure::new(Kind::Corrupt, "cannot unpack the tour's own image").because(error)
    };
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(packed)
        .map_err(|error| unpack(&error))?
        .take(IMAGE_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| unpack(&error))?;
    let device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly));
    image::open_filesystem(device, None, None, "the tour's own image", Use::Read)
}

fn look(opened: &Opened, xfs: groups::Report, array: array::Report) -> Result<Report, Error> {
    let vfs = &*opened.vfs;
    let Filesystem::Ext4(ext4) = &opened.filesystem else {
        return Err(Error::InvalidArgument("the image is no ext4"));
    };
    let recovery = ext4.recovery().ok_or(Error::InvalidArgument("the image has no dirty journal"))?;
    let ledger = at(vfs, b"/archive/ledger.csv")?;
    let mut hard_links: Vec<Path> = Vec::new();
    for path in [&b"/archive/ledger.csv"[..], b"/archive/ledger-by-another-name.csv"] {
        if at(vfs, path)?.ino() == ledger.ino() {
            hard_links.push(path.to_vec().into());
        }
    }
    let plan = at(vfs, b"/vault/plan.txt")?;
    Ok(Report {
        compressed_bytes: IMAGE.len() as u64,
        image: info::report(ext4)?,
        tree: tree(vfs)?,
        verified: sums::verify(vfs, SUMS, SUMS_INSIDE)?,
        sparse: sparse(vfs, b"/well/depth.bin")?,
        labelled: labelled(vfs, b"/odd/labelled.txt")?,
        hard_links,
        hard_link_inode: ledger.ino().0,
        symlink: link(vfs, b"/odd/way-out")?,
        odd_names: odd_names(vfs, b"/odd")?,
        latest_time: Stamp {
            path: b"/vault/plan.txt".to_vec().into(),
            modified: human::exact_time(plan.attr().modified),
        },
        recovery: recovery.into(),
        last_entry: content(vfs, b"/guestbook/last-entry.txt")?.into(),
        condemned_exists: match at(vfs, b"/condemned") {
            Ok(_) => true,
            Err(Error::NotFound) => false,
            Err(error) => return Err(error),
        },
        xfs,
        array,
    })
}

fn at(vfs: &Vfs, path: &[u8]) -> Result<Arc<Node>, Error> {
    vfs.resolve(&Credentials::root(), path, undercroft_vfs::Follow::NoFollow)
}

/// A small file's bytes.
fn content(vfs: &Vfs, path: &[u8]) -> Result<Vec<u8>, Error> {
    const SMALL_BYTES: usize = 64 * 1024;
    let mut bytes = vec![0; SMALL_BYTES];
    let read = vfs.open(&Credentials::root(), path)?.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn tree(vfs: &Vfs) -> Result<Vec<Branch>, Error> {
    let mut tree = Vec::new();
    for event in Walk::new(vfs, &vfs.root()?, b"/".to_vec(), Order::Name) {
        match event {
            Event::File(entry) | Event::Enter(entry) => {
                let attr = entry.node.attr();
                let target = match attr.kind {
                    FileType::Symlink => Some(entry.node.read_link()?.into()),
                    _ => None,
                };
                tree.push(Branch {
                    path: entry.path.into(),
                    depth: entry.depth,
                    last: entry.last,
                    kind: human::kind_word(attr.kind),
                    size_bytes: attr.size_bytes,
                    name: entry.name,
                    attr,
                    target,
                });
            }
            Event::Leave => {}
            Event::Trouble { error, .. } => return Err(error),
        }
    }
    Ok(tree)
}

fn sparse(vfs: &Vfs, path: &[u8]) -> Result<Sparse, Error> {
    let file = vfs.open(&Credentials::root(), path)?;
    let attr = file.node().attr();
    let data =
        file.data_ranges(0..u64::MAX).map(|range| range.map(|range| (range.start, range.end - range.start)));
    let data = data.collect::<Result<_, Error>>()?;
    Ok(Sparse {
        path: path.to_vec().into(),
        size_bytes: attr.size_bytes,
        allocated_bytes: attr.sectors.saturating_mul(512),
        data,
    })
}

fn labelled(vfs: &Vfs, path: &[u8]) -> Result<Labelled, Error> {
    let node = at(vfs, path)?;
    let mut xattrs = Vec::new();
    let mut acl = None;
    for name in node.list_xattrs()? {
        let Some(value) = node.xattr(&name)? else { continue };
        match &name[..] {
            b"system.posix_acl_access" => acl = acl::text(&value),
            _ => xattrs.push((String::from_utf8_lossy(&name).into_owned(), value.into())),
        }
    }
    xattrs.sort_by(|(name, _), (other, _)| name.cmp(other));
    Ok(Labelled { path: path.to_vec().into(), xattrs, acl })
}

fn link(vfs: &Vfs, path: &[u8]) -> Result<Link, Error> {
    let end = vfs.resolve(&Credentials::root(), path, undercroft_vfs::Follow::Last)?;
    Ok(Link {
        path: path.to_vec().into(),
        target: at(vfs, path)?.read_link()?.into(),
        leads_to_inode: end.ino().0,
    })
}

/// Names that would do something to a terminal, or that are not text.
fn odd_names(vfs: &Vfs, dir: &[u8]) -> Result<Vec<Path>, Error> {
    let (names, troubles) = crate::walk::entries(vfs, &*at(vfs, dir)?, Order::Name, true);
    troubles.into_iter().next().map_or(Ok(()), Err)?;
    let odd = |name: &[u8]| name.iter().any(u8::is_ascii_control) || std::str::from_utf8(name).is_err();
    Ok(names.map(|(name, _)| name).filter(|name| odd(name)).map(Path::from).collect())
}
