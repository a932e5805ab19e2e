//! Devices that are to become members: files are made where there are none, and what is on others is looked at first.

use std::fs;

use undercroft_block::Device;
use undercroft_md::{Error, examine};
use uuid::Uuid;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, md_failure, new_file};
use crate::plan::{ImageSpec, NewMembers};

/// Devices to be written. Files that were made for them are removed again unless they are kept.
#[derive(Debug)]
pub(super) struct NewDevices {
    pub(super) devices: Vec<Device>,
    made: Vec<ImageSpec>,
}

impl NewDevices {
    /// Opens them, and makes those that are not there. Former members of `array` may come back.
    pub(super) fn open(new: &NewMembers, array: Option<Uuid>) -> Result<Self, Failure> {
        let mut all = Self { devices: Vec::new(), made: Vec::new() };
        for spec in &new.members {
            let is_made = !spec.path.exists();
            if is_made {
                make(spec, new.size_bytes)?;
                all.made.push(spec.clone());
            }
            let device = image::open_new_member(spec)?;
            if device.size_bytes() == 0 {
                return Err(without_size(spec));
            }
            if !is_made && !new.overwrite {
                check(&device, spec, array)?;
            }
            all.devices.push(device);
        }
        Ok(all)
    }

    /// Whether all were made just now, and so are zero.
    pub(super) fn are_all_new(&self) -> bool {
        self.made.len() == self.devices.len()
    }

    /// They are members now.
    pub(super) fn keep_all(&mut self) {
        self.made.clear();
    }

    /// One of them is a member now.
    pub(super) fn keep(&mut self, spec: &ImageSpec) {
        self.made.retain(|made| made.path != spec.path);
    }
}

impl Drop for NewDevices {
    fn drop(&mut self) {
        for spec in &self.made {
            // An empty file that could not become a member has no use.
            let _ = fs::remove_file(&spec.path);
        }
    }
}

/// What has no room for anything: an empty file, a loop device that no file is bound to, a drive without a medium.
fn without_size(spec: &ImageSpec) -> Failure {
    let failure = Failure::new(Kind::CannotOpen, format!("{} has a size of 0 bytes", spec.shown()));
    match fs::metadata(&spec.path) {
        Ok(found) if found.is_file() => failure.advise(
            "remove the file and give `--member-size 10G`, which makes it 10 GiB large, or use `truncate`",
        ),
        _ => failure.advise("`lsblk` lists the devices that have a medium"),
    }
}

fn make(spec: &ImageSpec, size_bytes: Option<u64>) -> Result<(), Failure> {
    let shown = spec.shown();
    if image::is_for_devices(&spec.path) {
        // A file of that name would be lost with the next start, and take the place of a device meanwhile.
        return Err(Failure::new(Kind::CannotOpen, format!("{shown} does not exist"))
            .advise(image::no_such_device(&spec.path)));
    }
    let Some(size_bytes) = size_bytes.filter(|_| spec.partition.is_none()) else {
        return Err(Failure::new(Kind::CannotOpen, format!("{shown} does not exist"))
            .advise("`--member-size 10G` makes it, 10 GiB large"));
    };
    new_file::make(spec, size_bytes, new_file::format_of(&spec.path, None)?)
}

/// Refuses a device with content that may be missed.
fn check(device: &Device, spec: &ImageSpec, array: Option<Uuid>) -> Result<(), Failure> {
    let present = |what: &str| {
        Err(Failure::new(Kind::Host, format!("{} holds {what}", spec.shown()))
            .advise("`--force` overwrites it"))
    };
    match examine(&**device) {
        Ok(found) if Some(found.array_uuid) == array => return Ok(()),
        Ok(found) => return present(&format!("a member of the array {}", found.array_uuid)),
        Err(Error::NoSuperblock { .. }) => {}
        Err(error @ Error::Device(_)) => return Err(md_failure(&error)),
        Err(_) => return present("a member of an array"),
    }
    match image::what_is_on(device)? {
        None => Ok(()),
        Some(what) => Err(image::present(device, what)),
    }
}
