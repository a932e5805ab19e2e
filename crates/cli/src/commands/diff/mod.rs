//! `diff`: what differs between an image and another image, a directory or an archive.
//!
//! Both trees are read into manifests (`manifest`), files' contents as digests, and compared path by path.

mod digest;
mod manifest;
mod told;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::json;
use undercroft_populate::{Compression, DirectorySource, is_image_layout, split_kind};
use undercroft_vfs::{DeviceNumber, FileType, Timestamp};

use self::manifest::{Item, ItemMetadata, Manifest};
use self::told::{Sides, Told};
use crate::args::diff::Aspect;
use crate::commands::edit::put::{archive_source, source_failure};
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::plan::{DiffPlan, Format, ImageSpec};
use crate::text::human;
use crate::text::names::{self, safe};
use crate::text::out::{JsonArray, Out};

/// Where the magic of a tar archive lies.
const TAR_MAGIC_AT: usize = 257;

/// One path at which the trees differ.
#[derive(Debug, Serialize)]
struct Difference {
    #[serde(flatten)]
    path: names::Path,
    /// What differs, in words that stay the same.
    differs: Vec<&'static str>,
    /// What either side has, by these words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<&'static str, Sides>,
    /// The same for people.
    #[serde(skip)]
    text: Vec<String>,
}

/// Compares an image with something else.
pub(crate) fn run(plan: &DiffPlan, format: Format) -> Result<Option<Kind>, Failure> {
    let compared = compare(plan, format).map_err(|failure| match failure.kind() {
        Kind::ClosedPipe => failure,
        _ => failure.counted_as(Kind::Trouble),
    });
    match compared? {
        (Some(_), _) => Ok(Some(Kind::Trouble)),
        (None, 0) => Ok(None),
        (None, _) => Ok(Some(Kind::Different)),
    }
}

fn compare(plan: &DiffPlan, format: Format) -> Result<(Option<Kind>, u64), Failure> {
    let mut complaints = Complaints::default();
    let opened = image::open(&plan.image)?;
    let ours = manifest::of_image(&opened.vfs, &plan.exclude, &mut complaints)?;
    drop(opened);
    let theirs = other(plan, &mut complaints)?;
    let mut out = Out::stdout();
    let mut array = JsonArray::default();
    let mut count = 0;
    let mut paths: Vec<&Vec<u8>> = ours.items.keys().chain(theirs.items.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let Some(difference) = difference(plan, path, &ours, &theirs) else { continue };
        count += 1;
        match format {
            Format::Json => array.element(&mut out, &difference)?,
            Format::Text => difference.print(&mut out)?,
        }
    }
    if format == Format::Json {
        array.end(&mut out)?;
    }
    out.finish()?;
    Ok((complaints.outcome(), count))
}

fn other(plan: &DiffPlan, complaints: &mut Complaints) -> Result<Manifest, Failure> {
    let path = Path::new(&plan.other);
    if path.is_dir() && !is_image_layout(path) {
        let source = DirectorySource::open(path, None).map_err(|error| source_failure(&error))?;
        let source = source.leaving_out(plan.exclude.of_rooted());
        let mut source = source.within_one_file_system(plan.one_file_system);
        return manifest::of_source(&mut source, false, &plan.exclude, complaints);
    }
    if is_archive(path).map_err(|error| Failure::host(safe(path.as_os_str().as_encoded_bytes()), &error))? {
        return manifest::of_source(&mut *archive_source(path)?, true, &plan.exclude, complaints);
    }
    let spec = ImageSpec { write_while_in_use: false, ..plan.image_like(&plan.other)? };
    let opened = image::open(&spec)?;
    manifest::of_image(&opened.vfs, &plan.exclude, complaints)
}

/// Whether it is a tar archive, or compressed and so can only be one, or an image of containers.
fn is_archive(path: &Path) -> io::Result<bool> {
    if path == Path::new("-") || path.is_dir() {
        return Ok(true);
    }
    // A partition of an image is named by what is no file.
    let Ok(found) = path.metadata() else { return Ok(split_kind(path).is_some()) };
    if !found.is_file() {
        return Ok(false);
    }
    let mut first = Vec::new();
    File::open(path)?.take(512).read_to_end(&mut first)?;
    let is_tar = first.get(TAR_MAGIC_AT..).is_some_and(|magic| magic.starts_with(b"ustar"));
    Ok(is_tar || Compression::recognised(&first).is_some())
}

/// What differs at a path.
fn difference(plan: &DiffPlan, path: &[u8], ours: &Manifest, theirs: &Manifest) -> Option<Difference> {
    let mut told = Told::default();
    match (ours.items.get(path), theirs.items.get(path)) {
        (Some(one), Some(other)) => {
            items(plan, one, other, ours.coarse_times || theirs.coarse_times, &mut told);
        }
        (Some(item), None) if !is_empty_lost_found(path, item, ours) => {
            told.add("only_in_image", format!("only in {}", plan.image.shown()));
        }
        (None, Some(item)) if !is_empty_lost_found(path, item, theirs) => {
            told.add("only_in_other", format!("only in {}", safe(plan.other.as_encoded_bytes())));
        }
        _ => {}
    }
    let Told { words, text, values } = told;
    let path = [b"/", path].concat().into();
    (!words.is_empty()).then_some(Difference { path, differs: words, values, text })
}

fn items(plan: &DiffPlan, one: &Item, other: &Item, coarse_times: bool, told: &mut Told) {
    let compares = |aspect| !plan.ignore.contains(&aspect);
    if one.kind != other.kind {
        let kind = |kind: &FileType| format!("{kind:?}").to_lowercase();
        told.add_values("kind", [one.kind, other.kind], kind, |kind| human::kind_word(*kind).into());
        return;
    }
    if compares(Aspect::Content) {
        if one.size_bytes != other.size_bytes {
            told.add_values("size", [one.size_bytes, other.size_bytes], u64::to_string, |&size| size.into());
        }
        if one.digest != other.digest {
            told.add("content", "content".to_owned());
        }
    }
    if one.target != other.target {
        let value = |target: &&Vec<u8>| json!(names::Target::from(target.to_vec()));
        told.add_values("target", [&one.target, &other.target], |target| safe(target), value);
    }
    if one.device != other.device {
        let shown = |device: &DeviceNumber| format!("{}:{}", device.major, device.minor);
        let value = |device: &DeviceNumber| json!({ "major": device.major, "minor": device.minor });
        told.add_values("device", [one.device, other.device], shown, value);
    }
    if compares(Aspect::Links) && one.first != other.first {
        let firsts = [one, other].map(|item| [b"/", &item.first[..]].concat());
        let value = |first: &Vec<u8>| json!(names::Path::from(first.clone()));
        told.add_values("links", firsts, |first| safe(first), value);
    }
    let (Some(mine), Some(yours)) = (&one.metadata, &other.metadata) else { return };
    if compares(Aspect::Mode) && one.kind != FileType::Symlink && mine.mode != yours.mode {
        let octal = |mode: &u16| format!("{mode:04o}");
        told.add_values("mode", [mine.mode, yours.mode], octal, |mode| octal(mode).into());
    }
    if compares(Aspect::Owner) && mine.uid != yours.uid {
        told.add_values("owner", [mine.uid, yours.uid], u32::to_string, |&uid| uid.into());
    }
    if compares(Aspect::Group) && mine.gid != yours.gid {
        told.add_values("group", [mine.gid, yours.gid], u32::to_string, |&gid| gid.into());
    }
    let (mine_at, yours_at) = (mine.modified, yours.modified);
    let coarse = coarse_times && (mine_at.nanoseconds == 0 || yours_at.nanoseconds == 0);
    let same_time = if coarse { mine_at.seconds == yours_at.seconds } else { mine_at == yours_at };
    if compares(Aspect::Mtime) && !same_time {
        let shown = |time: &Timestamp| human::exact_time(*time);
        told.add_values("mtime", [mine_at, yours_at], shown, |time| shown(time).into());
    }
    if compares(Aspect::Xattrs) && mine.xattrs != yours.xattrs {
        let mut named: Vec<_> = mine.xattrs.keys().chain(yours.xattrs.keys()).collect();
        named.sort_unstable();
        named.dedup();
        named.retain(|name| {
            let is_shown_twice = [mine, yours].iter().all(|side| is_shown_twice(name, &side.xattrs));
            mine.xattrs.get(*name) != yours.xattrs.get(*name) && !is_shown_twice
        });
        if named.is_empty() {
            return;
        }
        let of = |side: &ItemMetadata| named.iter().filter(|&&name| side.xattrs.contains_key(name)).collect();
        let sides: [Vec<_>; 2] = [of(mine), of(yours)];
        let value = |names: &Vec<&&Vec<u8>>| {
            names.iter().map(|&&name| json!(names::Name::from(name.clone()))).collect()
        };
        let [image, other] = sides.each_ref().map(value);
        told.values.insert("xattrs", Sides { image, other });
        let named: Vec<_> = named.into_iter().map(|name| safe(name)).collect();
        told.add("xattrs", format!("xattrs {}", named.join(" ")));
    }
}

/// XFS shows its access control lists by these names too, and they are compared by the others: what is true where a side has
/// no such attribute, or has the other one beside it.
fn is_shown_twice(name: &[u8], xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> bool {
    let other = match name {
        b"trusted.SGI_ACL_FILE" => &b"system.posix_acl_access"[..],
        b"trusted.SGI_ACL_DEFAULT" => b"system.posix_acl_default",
        _ => return false,
    };
    !xattrs.contains_key(name) || xattrs.contains_key(other)
}

/// What mkfs makes and a tree that was not copied from one has not.
fn is_empty_lost_found(path: &[u8], item: &Item, tree: &Manifest) -> bool {
    let below = || tree.items.range(b"lost+found/".to_vec()..b"lost+found0".to_vec()).next();
    path == b"lost+found" && item.kind == FileType::Directory && below().is_none()
}

impl Difference {
    fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let path = out.name(&self.path.raw).into_owned();
        out.write_all(&path)?;
        Ok(writeln!(out, ": {}", self.text.join("; "))?)
    }
}

#[cfg(test)]
mod tests {
    use super::is_shown_twice;

    #[test]
    fn lists_of_xfs_are_passed_over_only_beside_those_of_the_kernel() {
        let with = |names: &[&[u8]]| names.iter().map(|name| (name.to_vec(), Vec::new())).collect();
        let (list, default) = (&b"trusted.SGI_ACL_FILE"[..], &b"trusted.SGI_ACL_DEFAULT"[..]);
        let shown: &[u8] = b"system.posix_acl_access";
        assert!(is_shown_twice(list, &with(&[list, shown])));
        assert!(is_shown_twice(list, &with(&[])));
        assert!(!is_shown_twice(list, &with(&[list])));
        assert!(!is_shown_twice(default, &with(&[default, shown])));
        assert!(!is_shown_twice(b"trusted.SGI_ACL_X", &with(&[b"trusted.SGI_ACL_X", shown])));
    }
}
