//! Making arrays: what goes on each member, as `mdadm --create` lays it out.
//!
//! ```text
//!            0       4 KiB      8 KiB                                     data offset            end
//! 1.2        |       superblock bitmap, or partial parity log, bad blocks ... data
//! 1.1        superblock bitmap, or partial parity log, bad blocks ...         data
//! 1.0        data                                  bitmap or log, bad blocks, superblock
//! ```
//!
//! The data offset is a whole number of MiB, the same on all members, with some room for a later change of shape. All
//! members take part from the beginning. Where something is redundant and the members are not said to be consistent, a
//! resync is left to be done: not where so many members are missing that nothing is.
//!
//! Writing begins with the bitmap or the log, then goes on to the superblocks, with a flush between: a crash leaves
//! members without superblock, or some of an array that is not complete.
//!
//! Source: `mdadm(8)`; arrays made by mdadm; `super1.c` and `Create.c` of mdadm, read for facts.

mod member;
mod options;
mod sizes;
#[cfg(test)]
mod tests;

pub(crate) use member::new_member;
pub use options::CreateOptions;

use undercroft_block::{BlockDevice, Device};
use uuid::Uuid;
use zerocopy::IntoBytes as _;

use crate::bitmap::BitmapHeader;
use crate::superblock::{self, Area, DeviceRole, IN_SYNC, Superblock, Version};
use crate::{Error, Geometry, Level, Result, ppl};

/// Lays a new array out on devices, and does not open it. The first fill its roles in their order, but for those that
/// are missing; the last `options.spares` of them are spares.
///
/// # Errors
/// When what is asked for makes no sense, the devices are too small for it, or one fails.
pub fn create_array(devices: &[Device], options: &CreateOptions) -> Result<()> {
    plan(options, devices)?.write(devices)
}

/// An array to be.
#[derive(Clone, Debug)]
pub(crate) struct NewArray {
    #[cfg(test)]
    geometry: Geometry,
    /// In the order of the devices: by role, then spares.
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) bitmap: Option<BitmapHeader>,
}

/// Decides what goes where. The first devices fill the roles in their order, but for `missing` ones; `spares` of them,
/// the last, are spares.
///
/// # Errors
/// When what is asked for makes no sense, or the devices are too small for it.
pub(crate) fn plan(options: &CreateOptions, devices: &[Device]) -> Result<NewArray> {
    let spares = options.spares as usize;
    let present = devices.len().saturating_sub(spares);
    if present == 0 && !options.missing.is_empty() {
        let all = match options.missing.len() {
            1 => "the only member of the new array is missing".to_owned(),
            many => format!("all {many} members of the new array are missing"),
        };
        return Err(Error::Invalid(format!("{all}: name at least one that is there")));
    }
    if present == 0 {
        return Err(Error::Invalid(format!("{} devices are too few for {spares} spares", devices.len())));
    }
    let disks = present + options.missing.len();
    let device_bytes: Vec<u64> = devices.iter().map(|device| device.size_bytes()).collect();
    let names: Vec<String> = devices.iter().map(|device| device.name()).collect();
    let shape = options.shape(disks as u32, &names)?;
    let sizes = sizes::sizes(options, &shape, &device_bytes, &names, disks)?;
    let geometry = sizes.geometry(&shape, disks);
    geometry.check()?;
    let roles = roles(options, &geometry)?;
    let resynced = resynced(options, &geometry)?;
    let bitmap = options.bitmap.then(|| sizes.bitmap(options, &geometry)).transpose()?;
    let uuid = match options.uuid {
        Some(uuid) => uuid,
        None => random_uuid()?,
    };
    let bitmap = bitmap.map(|header| BitmapHeader { array_uuid: uuid, ..header });
    // A device has the number of its role; spares have those behind.
    let numbers = (0..).zip(&roles).filter(|(_, role)| **role != DeviceRole::Spare).map(|(number, _)| number);
    let numbers: Vec<u32> = numbers.chain(disks as u32..).take(devices.len()).collect();
    let mut superblocks = Vec::new();
    for ((device, &device_bytes), number) in names.iter().zip(&device_bytes).zip(numbers) {
        let new = member::NewMember {
            options,
            shape: &shape,
            sizes: &sizes,
            array_uuid: uuid,
            roles: &roles,
            bitmap: bitmap.as_ref(),
            resynced,
            number,
            device_bytes,
        };
        superblocks.push(new.superblock(device)?);
    }
    Ok(NewArray {
        #[cfg(test)]
        geometry,
        superblocks,
        bitmap,
    })
}

impl NewArray {
    /// Writes it to the devices that it was planned for.
    ///
    /// # Errors
    /// When a device fails.
    pub(crate) fn write(&mut self, devices: &[Device]) -> Result<()> {
        for (device, superblock) in devices.iter().zip(&self.superblocks) {
            clear_other_superblocks(&**device, superblock.version)?;
            if let (Some(header), Some(area)) = (&self.bitmap, superblock.bitmap) {
                write_bitmap(&**device, header, area, superblock.is_clean())?;
            }
            if let Some(log) = superblock.ppl {
                ppl::format(&**device, log.area, superblock.array_uuid)?;
            }
        }
        for device in devices {
            device.flush()?;
        }
        for (device, superblock) in devices.iter().zip(&mut self.superblocks) {
            let bytes = superblock.encode(&device.name())?.to_vec();
            device.write_at(superblock.offset, &bytes)?;
        }
        for device in devices {
            device.flush()?;
        }
        Ok(())
    }
}

/// A new bitmap: all set if the members may differ anywhere.
fn write_bitmap(device: &dyn BlockDevice, header: &BitmapHeader, area: Area, is_clean: bool) -> Result<()> {
    let mut bytes = vec![if is_clean { 0 } else { 0xff }; header.bytes().min(area.bytes) as usize];
    let fixed = header.encode();
    bytes[..fixed.as_bytes().len()].copy_from_slice(fixed.as_bytes());
    device.write_at(area.offset, &bytes)?;
    Ok(())
}

/// Superblocks of other versions, left by an earlier array, would be found by others.
fn clear_other_superblocks(device: &dyn BlockDevice, version: Version) -> Result<()> {
    for other in [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2] {
        if other != version
            && let Some(offset) = superblock::found_at(device, other)?
        {
            device.write_zeroes(offset, superblock::SUPERBLOCK_BYTES as u64)?;
        }
    }
    Ok(())
}

/// By getrandom(2), which needs no /dev/urandom.
fn random_uuid() -> Result<Uuid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Invalid(format!("no random UUID: {error}; give one")))?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

/// Which device fills which role; `Spare` for none.
fn roles(options: &CreateOptions, geometry: &Geometry) -> Result<Vec<DeviceRole>> {
    let is_missing = |role: u32| options.missing.contains(&role);
    let mut sorted = options.missing.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) || sorted.last() >= Some(&geometry.members) {
        return Err(Error::Invalid(format!(
            "of {} roles these cannot be missing: {sorted:?}",
            geometry.members
        )));
    }
    if !geometry.is_enough(|role| !is_missing(role)) {
        return Err(Error::Invalid(format!(
            "{:?} of {} members cannot do without {} of them: give more",
            geometry.level,
            geometry.members,
            sorted.len()
        )));
    }
    let role = |role| if is_missing(role) { DeviceRole::Spare } else { DeviceRole::Active(role) };
    Ok((0..geometry.members).map(role).collect())
}

/// Where a resync begins: at the front, unless there is nothing to make consistent.
fn resynced(options: &CreateOptions, geometry: &Geometry) -> Result<u64> {
    let missing = options.missing.len() as u32;
    let redundant = match geometry.level {
        Level::Linear | Level::Raid0 => 0,
        // One that was never to have a second member is begun like any other.
        Level::Raid1 if missing > 0 => geometry.members - 1 - missing,
        Level::Raid1 => 1,
        Level::Raid10 => 1,
        Level::Raid4 | Level::Raid5 | Level::Raid6 => geometry.level.parities() - missing,
    };
    if options.assume_clean || redundant == 0 {
        return Ok(IN_SYNC);
    }
    if geometry.level == Level::Raid6 && missing > 0 {
        // It would be started unclean and degraded, and then its parity is not valid.
        return Err(Error::Invalid(
            "one parity of a new RAID6 that lacks one member would have to be made right without it, which is not done: \
             give all members, or two as missing, or say that they are consistent if they are all zero"
                .to_owned(),
        ));
    }
    Ok(0)
}
