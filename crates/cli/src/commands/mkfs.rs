//! `mkfs`: makes a filesystem on an image or a device, and the image if it is not there.

use std::fs::{self, File};
use std::io::Write;

use serde::Serialize;
use undercroft_ext4::{MkfsError, MkfsOptions, NewFilesystem, mkfs};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::{Format, ImageSpec, MkfsPlan};
use crate::text::human;
use crate::text::out::Out;

/// What was made.
#[derive(Debug, Serialize)]
struct Report {
    filesystem: &'static str,
    uuid: String,
    size_bytes: u64,
    block_bytes: u32,
    blocks: u64,
    reserved_blocks: u64,
    groups: u32,
    inodes: u32,
    inode_bytes: u16,
    journal_blocks: u32,
    /// Where copies of the superblock lie.
    superblock_backups: Vec<u64>,
    features: Vec<String>,
}

/// Makes it and tells what it became.
pub(crate) fn run(plan: &MkfsPlan, format: Format) -> Result<(), Failure> {
    let fresh = make_image(plan)?;
    let made = make(plan, fresh);
    if made.is_err() && fresh {
        // What could not become a filesystem is not left behind as an empty file.
        let _ = fs::remove_file(&plan.image.path);
    }
    let mut out = Out::stdout();
    let report = Report::of(&made?);
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => report.print(&mut out, &plan.image.shown())?,
    }
    out.finish()
}

/// Makes the image if it is not there; `true` if it was not.
fn make_image(plan: &MkfsPlan) -> Result<bool, Failure> {
    let path = &plan.image.path;
    if path.exists() || plan.image.array.is_some() {
        return Ok(false);
    }
    let shown = plan.image.shown();
    let Some(size) = plan.size_bytes.filter(|_| plan.image.partition.is_none()) else {
        return Err(Failure::new(Kind::CannotOpen, format!("{shown} does not exist"))
            .advise("`--size 10G` makes it, 10 GiB large"));
    };
    let made = File::create_new(path).and_then(|file| {
        file.set_len(size).inspect_err(|_| {
            let _ = fs::remove_file(path);
        })
    });
    made.map_err(|error| Failure::host(format!("cannot make {shown}"), &error))?;
    Ok(true)
}

fn make(plan: &MkfsPlan, fresh: bool) -> Result<NewFilesystem, Failure> {
    let target = image::open_to_overwrite(&plan.image)?;
    if !fresh
        && !plan.options.overwrite
        && let Some(what) = image::what_is_on(&target.device)?
    {
        let present = MkfsError::Present { device: target.device.name(), what };
        return Err(Failure::of(Kind::of_mkfs(&present), &present).advise("`--force` overwrites it"));
    }
    require_room(plan, target.device.size_bytes())?;
    let options = MkfsOptions { device_is_zeroed: fresh, overwrite: true, ..plan.options.clone() };
    let made = mkfs(&*target.device, &options).map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?;
    target.close()?;
    Ok(made)
}

/// A file that is empty, or smaller than what is asked for, can be made larger by its user.
fn require_room(plan: &MkfsPlan, room: u64) -> Result<(), Failure> {
    let ImageSpec { path, array: None, partition: None, .. } = &plan.image else { return Ok(()) };
    let is_raw_file = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == room);
    let wanted = plan.options.size_bytes;
    if !is_raw_file || (room > 0 && wanted.is_none_or(|wanted| wanted <= room)) {
        return Ok(());
    }
    let shown = plan.image.shown();
    let (what, size) = match wanted {
        Some(wanted) => (format!("{shown} has {room} bytes, too few for {wanted}"), wanted.to_string()),
        None => (format!("{shown} is empty"), "1G".to_owned()),
    };
    let advice = format!("`truncate -s {size} {shown}` makes it larger");
    Err(Failure::new(Kind::Usage, what).advise(advice))
}

impl Report {
    fn of(made: &NewFilesystem) -> Self {
        let superblock = &made.superblock;
        let geometry = superblock.geometry();
        Self {
            filesystem: superblock.family(),
            uuid: superblock.uuid().to_string(),
            size_bytes: geometry.blocks() * u64::from(geometry.block_bytes()),
            block_bytes: geometry.block_bytes(),
            blocks: geometry.blocks(),
            reserved_blocks: geometry.reserved_blocks(),
            groups: geometry.groups(),
            inodes: geometry.inodes(),
            inode_bytes: geometry.inode_bytes(),
            journal_blocks: made.journal_blocks,
            superblock_backups: made.backups.clone(),
            features: superblock.features().names(),
        }
    }

    fn print(&self, out: &mut Out, shown: &str) -> Result<(), Failure> {
        let size = human::size(self.size_bytes);
        writeln!(out, "{} of {size} on {shown}, UUID {}", self.filesystem, self.uuid)?;
        let journal = match self.journal_blocks {
            0 => "no journal".to_owned(),
            blocks => {
                let bytes = u64::from(blocks) * u64::from(self.block_bytes);
                format!("a journal of {}", human::size(bytes))
            }
        };
        writeln!(
            out,
            "{} of {}, {}, {}, {journal}",
            human::counted(self.blocks, "block"),
            human::size(self.block_bytes.into()),
            human::counted(self.inodes.into(), "inode"),
            human::counted(self.groups.into(), "group"),
        )?;
        if !self.superblock_backups.is_empty() {
            let blocks: Vec<String> = self.superblock_backups.iter().map(u64::to_string).collect();
            writeln!(out, "copies of the superblock at {}", blocks.join(", "))?;
        }
        Ok(())
    }
}
