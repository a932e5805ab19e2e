//! `df`: how much space filesystems have and use, in df's columns.

use std::io::Write;

use serde::Serialize;

use crate::control::client;
use crate::control::protocol::Space;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::plan::{DfStyle, Format, ImageSpec};
use crate::text::human;
use crate::text::names::{MountedOn, safe};
use crate::text::out::{Out, columns};

/// One filesystem.
#[derive(Debug, Serialize)]
struct Usage {
    image: String,
    filesystem: String,
    size_bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_free: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    mounted_on: Option<MountedOn>,
}

impl Usage {
    fn new(image: String, filesystem: &str, space: Space, point: Option<Vec<u8>>) -> Self {
        Self {
            image,
            filesystem: filesystem.to_owned(),
            size_bytes: space.bytes(space.blocks),
            used_bytes: space.bytes(space.used()),
            available_bytes: space.bytes(space.blocks_available),
            inodes: space.inodes,
            inodes_used: space.inodes.saturating_sub(space.inodes_free),
            inodes_free: space.inodes_free,
            mounted_on: point.map(MountedOn::from),
        }
    }

    fn of_live(live: &client::Live) -> Self {
        let served = &live.served;
        Self::new(served.image.clone(), &served.filesystem, served.space, Some(served.point.0.clone()))
    }

    /// The columns between the first and the last.
    fn cells(&self, style: DfStyle) -> [String; 4] {
        let [all, used, free] = if style.inodes {
            [self.inodes, self.inodes_used, self.inodes_free]
        } else {
            [self.size_bytes, self.used_bytes, self.available_bytes]
        };
        let cell = |number: u64| match (style.inodes, style.human_readable) {
            (true, _) => number.to_string(),
            (false, true) => human::size(number),
            (false, false) => number.div_ceil(1024).to_string(),
        };
        [cell(all), cell(used), cell(free), percent(used, free)]
    }
}

/// Of what there is for users, rounded up, as df has it.
fn percent(used: u64, free: u64) -> String {
    match u128::from(used) + u128::from(free) {
        0 => "-".to_owned(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(all)),
    }
}

/// Shows what was named, or all that is mounted.
pub(crate) fn run(images: &[ImageSpec], style: DfStyle, format: Format) -> Result<Option<Kind>, Failure> {
    let mut complaints = Complaints::default();
    let mut found = Vec::new();
    if images.is_empty() {
        found.extend(client::servers().iter().map(Usage::of_live));
    }
    for image in images {
        match usage(image) {
            Ok(usage) => {
                complaints.done_some();
                found.push(usage);
            }
            Err(failure) => complaints.add(failure)?,
        }
    }
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&found)?,
        // What was named and failed leaves no table.
        Format::Text if found.is_empty() && !images.is_empty() => {}
        Format::Text => table(&mut out, &found, style)?,
    }
    out.finish()?;
    Ok(complaints.outcome())
}

fn usage(spec: &ImageSpec) -> Result<Usage, Failure> {
    if let Some(live) = client::find(spec)? {
        return Ok(Usage::of_live(&live));
    }
    client::refuse_directory(spec)?;
    let opened = image::open(spec)?;
    let filesystem = opened.filesystem.for_vfs();
    let space = filesystem.statfs().map_err(|error| {
        Failure::new(Kind::of(&error), format!("cannot read {}", spec.shown())).because(&error)
    })?;
    Ok(Usage::new(spec.shown(), filesystem.kind(), space.into(), None))
}

fn table(out: &mut Out, found: &[Usage], style: DfStyle) -> Result<(), Failure> {
    let head = match (style.inodes, style.human_readable) {
        (true, _) => ["Filesystem", "Inodes", "IUsed", "IFree", "IUse%", "Mounted on"],
        (false, true) => ["Filesystem", "Size", "Used", "Avail", "Use%", "Mounted on"],
        (false, false) => ["Filesystem", "1K-blocks", "Used", "Available", "Use%", "Mounted on"],
    };
    let mut rows = vec![head.map(str::to_owned)];
    for usage in found {
        let [all, used, free, percent] = usage.cells(style);
        let point = usage.mounted_on.as_ref().map_or_else(|| "-".to_owned(), |point| safe(&point.raw));
        rows.push([safe(usage.image.as_bytes()), all, used, free, percent, point]);
    }
    let width = |column: usize| rows.iter().map(|row| columns(&row[column])).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    for row in &rows {
        let first = widths[0] - columns(&row[0]);
        write!(out, "{}{}", row[0], " ".repeat(first))?;
        for (cell, width) in row[1..5].iter().zip(&widths[1..]) {
            write!(out, " {}{cell}", " ".repeat(width - columns(cell)))?;
        }
        writeln!(out, " {}", row[5])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_share_is_rounded_up_as_df_does() {
        for (used, free, expected) in
            [(0, 10, "0%"), (1, 999, "1%"), (1, 1, "50%"), (10, 0, "100%"), (0, 0, "-")]
        {
            assert_eq!(percent(used, free), expected);
        }
    }
}
