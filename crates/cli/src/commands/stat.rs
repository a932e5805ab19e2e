//! `stat`: everything about files, with their extended attributes and where their data is.

use std::io::Write;
use std::ops;

use serde::Serialize;
use undercroft_vfs::{Error, File, FileType, Node, Vfs};

use super::facts::Facts;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image::details::Details;
use crate::image::{self, Filesystem, Opened};
use crate::plan::Format;
use crate::text::acl;
use crate::text::human;
use crate::text::names::{Name, Path, Value, safe};
use crate::text::out::{JsonArray, Out};
use crate::text::style;
use crate::xattrs::listed_xattr;

/// As many data ranges as are shown; a badly fragmented file has too many to read.
const RANGES_MAX: usize = 1000;
/// As many of them as the text shows.
const RANGES_SHOWN: usize = 8;

/// One file.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    path: Path,
    #[serde(flatten)]
    facts: Facts,
    xattrs: Vec<Xattr>,
    /// For a regular file: the ranges that are not holes, at most [`RANGES_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Vec<Range>>,
    /// What only its kind of filesystem has.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Debug, Serialize)]
struct Xattr {
    #[serde(flatten)]
    name: Name,
    #[serde(flatten)]
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Range {
    offset_bytes: u64,
    length_bytes: u64,
}

/// Shows `paths`.
pub(crate) fn run(
    opened: &Opened,
    paths: &[Vec<u8>],
    follow: bool,
    format: Format,
) -> Result<Option<Kind>, Failure> {
    let Opened { vfs, filesystem, .. } = opened;
    let mut out = Out::stdout();
    let mut complaints = Complaints::default();
    let mut array = (paths.len() > 1 && format == Format::Json).then(JsonArray::default);
    for path in paths {
        let mut damage = Vec::new();
        let report = image::resolve(vfs, path, follow).and_then(|node| {
            report(vfs, filesystem, path, &node, &mut damage).map_err(|error| Failure::inside(path, &error))
        });
        let report = match report {
            Ok(report) => report,
            Err(failure) => {
                complaints.add(failure)?;
                continue;
            }
        };
        complaints.done_some();
        match (format, &mut array) {
            (Format::Json, Some(array)) => array.element(&mut out, &report)?,
            (Format::Json, None) => out.json(&report)?,
            (Format::Text, _) => text(&mut out, &report)?,
        }
        for error in damage {
            complaints.add(Failure::inside(path, &error))?;
        }
    }
    if let Some(array) = array {
        array.end(&mut out)?;
    }
    out.finish()?;
    Ok(complaints.outcome())
}

/// All about a file but the attributes that cannot be read, which are `damage`.
fn report(
    vfs: &Vfs,
    filesystem: &Filesystem,
    path: &[u8],
    node: &std::sync::Arc<Node>,
    damage: &mut Vec<Error>,
) -> Result<Report, Error> {
    let facts = Facts::read(node)?;
    let mut xattrs = Vec::new();
    for name in node.list_xattrs()? {
        match listed_xattr(node, &name) {
            Ok(value) => xattrs.push(Xattr { name: name.into(), value: value.into() }),
            Err(error) => damage.push(error),
        }
    }
    let data = match facts.attr.kind {
        FileType::Regular => match vfs.open_node(node).and_then(|file| ranges(&file)) {
            Ok(ranges) => Some(ranges),
            // What has no key still has attributes.
            Err(Error::NoKey | Error::Unsupported(_)) => None,
            Err(error) => return Err(error),
        },
        _ => None,
    };
    let details = filesystem.details(node.ino())?;
    Ok(Report { path: path.to_vec().into(), facts, xattrs, data, details })
}

/// The first ranges of a file that are not holes.
fn ranges(file: &File) -> Result<Vec<Range>, Error> {
    let told =
        |range: ops::Range<u64>| Range { offset_bytes: range.start, length_bytes: range.end - range.start };
    file.data_ranges(0..u64::MAX).take(RANGES_MAX).map(|range| range.map(told)).collect()
}

fn text(out: &mut Out, report: &Report) -> Result<(), Failure> {
    let facts = &report.facts;
    let attr = &facts.attr;
    let palette = out.palette;
    let path = out.name(&report.path.raw).into_owned();
    out.write_all(&path)?;
    if let Some(target) = &facts.target {
        let target = out.name(&target.raw).into_owned();
        out.write_all(b" -> ")?;
        out.write_all(&target)?;
    }
    out.write_all(b"\n")?;
    let mut line = |label: &str, value: &str| {
        writeln!(out, "  {} {value}", palette.paint(style::DIM, &format!("{label:<10}")))
    };
    line("kind", facts.kind)?;
    if let Some(device) = facts.device {
        line("device", &format!("{}, {}", device.major, device.minor))?;
    }
    let allocated = match facts.allocated_bytes {
        0 => "nothing allocated".to_owned(),
        bytes => format!("{} allocated", human::size(bytes)),
    };
    line(
        "size",
        &format!("{} bytes ({}), {allocated}", human::count(attr.size_bytes), human::size(attr.size_bytes)),
    )?;
    line(
        "inode",
        &format!(
            "{}, generation {}, {}",
            facts.inode,
            facts.generation,
            human::counted(attr.links.into(), "link")
        ),
    )?;
    line("mode", &format!("{} {}", facts.mode, human::mode_letters(attr)))?;
    line("owner", &format!("{}, group {}, project {}", facts.uid, facts.gid, facts.project))?;
    line("flags", &facts.flags)?;
    line("modified", &facts.modified)?;
    line("accessed", &facts.accessed)?;
    line("changed", &facts.changed)?;
    if let Some(created) = &facts.created {
        line("created", created)?;
    }
    for Xattr { name, value } in &report.xattrs {
        line("xattr", &format!("{} = {}", safe(&name.raw), shown_value(&name.raw, &value.raw)))?;
    }
    if let Some(ranges) = &report.data {
        for range in ranges.iter().take(RANGES_SHOWN) {
            let length = human::size(range.length_bytes);
            line("data", &format!("{length} at byte {}", human::count(range.offset_bytes)))?;
        }
        if ranges.len() > RANGES_SHOWN {
            let more = ranges.len() - RANGES_SHOWN;
            let more = if ranges.len() == RANGES_MAX { format!("{more} or more") } else { more.to_string() };
            line("data", &format!("... and {more} further ranges"))?;
        }
        if ranges.is_empty() && attr.size_bytes > 0 {
            line("data", "none: the whole file is a hole")?;
        }
    }
    for (label, text) in report.details.iter().flat_map(Details::lines) {
        line(label, &text)?;
    }
    Ok(())
}

/// ACLs in words, text in quotes, anything else in hexadecimal; long values cut.
pub(crate) fn shown_value(name: &[u8], value: &[u8]) -> String {
    const SHOWN_MAX: usize = 120;
    if name.starts_with(b"system.posix_acl_")
        && let Some(words) = acl::text(value)
    {
        return words;
    }
    let cut = &value[..value.len().min(SHOWN_MAX)];
    let more = if cut.len() < value.len() { format!(" ... ({} bytes)", value.len()) } else { String::new() };
    let printable = !cut.iter().any(u8::is_ascii_control) && std::str::from_utf8(value).is_ok();
    if printable {
        format!("\"{}\"{more}", safe(cut))
    } else {
        format!("0x{}{more}", crate::text::names::hex(cut))
    }
}

#[cfg(test)]
mod tests {
    use super::shown_value;

    #[test]
    fn values_are_text_when_they_can_be() {
        assert_eq!(shown_value(b"user.x", b"stone"), "\"stone\"");
        assert_eq!(shown_value(b"user.x", &[2, 0, 255]), "0x0200ff");
        assert_eq!(shown_value(b"user.x", &[b'a'; 200]), format!("\"{}\" ... (200 bytes)", "a".repeat(120)));
    }
}
