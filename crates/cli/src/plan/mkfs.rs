//! What `mkfs` means: options as mke2fs and mkfs.xfs take them, in the libraries' terms.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;

use super::ImageSpec;
use super::mke2fs;
use super::mkfs_from::{self, FillPlan};
use super::uuid;
use crate::args::{MkfsArgs, MkfsFamily, MkfsOther, MkfsXfsArgs, NewImageFormat};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;
use undercroft_block::ImageFormat;
use undercroft_disk::definition::{parse_device_size, parse_size};
use undercroft_ext4::{Family, MkfsOptions};
use undercroft_xfs as xfs;

/// A filesystem to be made.
#[derive(Clone, Debug)]
pub(crate) struct MkfsPlan {
    pub(crate) image: ImageSpec,
    pub(crate) size_bytes: Option<u64>,
    /// What it is filled with, if that is.
    pub(crate) fill: Option<FillPlan>,
    /// Of a file that is made; otherwise its name decides.
    pub(crate) format: Option<ImageFormat>,
    pub(crate) options: NewFormat,
    /// Whether what is on the image may be overwritten.
    pub(crate) overwrite: bool,
    /// Nothing is made, and what would be made is printed.
    pub(crate) dry_run: bool,
    /// Only failures are reported.
    pub(crate) quiet: bool,
}

/// The filesystem's format, and how it is to be.
#[derive(Clone, Debug)]
pub(crate) enum NewFormat {
    /// ext2, ext3 or ext4.
    Ext(MkfsOptions),
    /// XFS.
    Xfs(xfs::MkfsOptions),
}

impl MkfsPlan {
    /// What is made, and whether it is told as JSON.
    pub(super) fn from_typed(mut typed: MkfsArgs) -> Result<(Self, bool), Failure> {
        let json = typed.json.json;
        match typed.other.take() {
            Some(MkfsOther::Xfs(own)) => {
                let json = json || own.json.json;
                Self::xfs(own, &typed).map(|plan| (plan, json))
            }
            None => Self::ext(typed).map(|plan| (plan, json)),
        }
    }

    fn ext(typed: MkfsArgs) -> Result<Self, Failure> {
        // The parser has asked for both.
        let (Some(family), Some(image)) = (typed.family, &typed.image) else {
            return Err(Failure::new(Kind::Usage, "a type and an image are missing"));
        };
        mke2fs::refuse(&typed.of_mke2fs)?;
        let image = image_of(image, typed.danger.write_while_in_use)?;
        let size_bytes = match (&typed.size, &typed.fs_size) {
            (Some(_), Some(_)) => {
                return Err(Failure::new(Kind::Usage, "the size is given twice")
                    .advise("leave one out: `--size` or what stands behind the image"));
            }
            (Some(typed), None) => wanted_size(typed)?,
            (None, Some(counted)) => Some(fs_size(counted, typed.block_bytes)?),
            (None, None) => None,
        };
        let format = format_of(typed.format, &image)?;
        let family = match family {
            MkfsFamily::Ext2 => Family::Ext2,
            MkfsFamily::Ext3 => Family::Ext3,
            MkfsFamily::Ext4 => Family::Ext4,
        };
        let usual = MkfsOptions::new(family);
        let mut fill = FillPlan::of(&typed.from, typed.directory.as_deref(), typed.size.as_deref())?;
        check_auto(typed.size.as_deref(), fill.as_ref())?;
        let on_error = typed.on_error.as_deref().map(mke2fs::on_error).transpose()?;
        let mut options = MkfsOptions {
            conf: if typed.no_conf { usual.conf.clone() } else { mke2fs::conf()? },
            usage: typed.usage,
            on_error,
            last_mounted: typed.last_mounted.map(OsString::into_vec).unwrap_or_default(),
            discard: typed.of_mke2fs.keep.then_some(false),
            features: features_of(&typed.features),
            size_bytes,
            block_bytes: typed.block_bytes,
            cluster_bytes: typed.cluster_bytes,
            inode_bytes: typed.inode_bytes,
            bytes_per_inode: typed.bytes_per_inode,
            inodes: typed.inodes,
            per_group: typed.per_group,
            groups_per_flex: typed.groups_per_flex,
            reserved_percent: typed.reserved_percent,
            label: typed.label.map(OsString::into_vec).unwrap_or_default(),
            uuid: typed.uuid.as_deref().map(uuid::of_new).transpose()?.flatten(),
            time: super::sources::source_date_epoch()?,
            ..usual
        };
        check_block_bytes(options.block_bytes)?;
        if typed.with_journal {
            mke2fs::add_feature(&mut options, "has_journal");
        }
        for option in &typed.journal {
            mke2fs::journal(&mut options, option)?;
        }
        for option in &typed.extended {
            mke2fs::extended(&mut options, option)?;
        }
        if let Some(fill) = &mut fill
            && typed.extended.iter().any(|option| option.split('=').next() == Some("root_owner"))
        {
            fill.set_root_owner(options.root_owner);
        }
        if let Some(seed) = mkfs_from::seed(&typed.from) {
            options.uuid.get_or_insert_with(|| seed.uuid("uuid"));
            options.hash_seed.get_or_insert_with(|| seed.uuid("hash seed"));
        }
        Ok(Self {
            image,
            size_bytes,
            fill,
            format,
            options: NewFormat::Ext(options),
            overwrite: typed.force,
            dry_run: typed.dry_run,
            quiet: typed.quiet,
        })
    }

    /// `before` is what stood before the type.
    fn xfs(typed: MkfsXfsArgs, before: &MkfsArgs) -> Result<Self, Failure> {
        if before.family.is_some() || before.image.is_some() {
            return Err(Failure::new(Kind::Usage, "there are two types")
                .advise("an image of the name `xfs` is ./xfs"));
        }
        let in_use = typed.danger.write_while_in_use || before.danger.write_while_in_use;
        let image = image_of(&typed.image, in_use)?;
        let format = format_of(typed.format, &image)?;
        let letters = [
            ('b', &typed.block),
            ('d', &typed.data),
            ('i', &typed.inodes),
            ('l', &typed.log),
            ('m', &typed.metadata),
            ('n', &typed.names),
            ('s', &typed.sector),
            ('r', &typed.realtime),
        ];
        let pairs = letters.into_iter().flat_map(|(letter, all)| all.iter().map(move |one| (letter, &**one)));
        let single = [('p', &typed.prototype), ('c', &typed.configuration)];
        let single = single.into_iter().filter_map(|(letter, one)| Some((letter, one.as_deref()?)));
        let mut options = xfs::MkfsOptions::from_arguments(pairs.chain(single))
            .map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?;
        let fill = FillPlan::of(&typed.from, None, typed.size.as_deref())?;
        check_auto(typed.size.as_deref(), fill.as_ref())?;
        if let Some(typed) = &typed.size {
            if options.size_bytes.is_some() {
                return Err(Failure::new(Kind::Usage, "the size is given twice")
                    .advise("leave one out: `--size` or `-d size=`"));
            }
            options.size_bytes = wanted_size(typed)?;
        }
        options.label = typed.label.map(OsString::into_vec).unwrap_or_default();
        options.small = typed.small;
        options.discard = !typed.keep;
        options.time = super::sources::source_date_epoch()?;
        if let Some(seed) = mkfs_from::seed(&typed.from) {
            options.uuid.get_or_insert_with(|| seed.uuid("uuid"));
        }
        Ok(Self {
            image,
            size_bytes: options.size_bytes,
            fill,
            format,
            options: NewFormat::Xfs(options),
            overwrite: typed.force || before.force,
            dry_run: typed.dry_run,
            quiet: typed.quiet || before.quiet,
        })
    }
}

/// Features as they were typed. A list without a name leaves default features out, as mke2fs has it.
fn features_of(typed: &[String]) -> String {
    let list = typed.join(",");
    if list.is_empty() && !typed.is_empty() { " ".to_owned() } else { list }
}

/// Refuses what is no block size before anything is counted with it.
fn check_block_bytes(typed: Option<u32>) -> Result<(), Failure> {
    match typed {
        Some(bytes) if !bytes.is_power_of_two() || !(1 << 10..=1 << 16).contains(&bytes) => {
            Err(Failure::new(Kind::Usage, format!("blocks of {bytes} bytes are not made"))
                .advise("take a power of two from 1024 to 65536"))
        }
        _ => Ok(()),
    }
}

fn image_of(typed: &OsStr, write_while_in_use: bool) -> Result<ImageSpec, Failure> {
    let image = ImageSpec { write_while_in_use, ..ImageSpec::parse(typed)? };
    if typed == "tmpfs:" && !image.path.exists() {
        return Err(Failure::new(Kind::Usage, "tmpfs: is no image, but a filesystem in memory")
            .advise("`undercroft mount tmpfs: DIR` makes it; a file of this name is ./tmpfs:"));
    }
    Ok(image)
}

/// A size, or `None` for `auto`.
fn wanted_size(typed: &str) -> Result<Option<u64>, Failure> {
    if typed == "auto" { Ok(None) } else { device_size(typed).map(Some) }
}

/// Refuses `--size auto` where nothing decides the size, and space to be left where the size is given.
fn check_auto(size: Option<&str>, fill: Option<&FillPlan>) -> Result<(), Failure> {
    match (size, fill) {
        (Some("auto"), None) => Err(Failure::new(Kind::Usage, "there is nothing that needs a size")
            .advise("`--from` names what it is filled with")),
        (Some(size), Some(fill)) if size != "auto" && fill.free != mkfs_from::Free::Nothing => {
            Err(Failure::new(Kind::Usage, "both the size and the space that is left are given")
                .advise("leave out `--free` or `--size`"))
        }
        _ => Ok(()),
    }
}

fn format_of(typed: Option<NewImageFormat>, image: &ImageSpec) -> Result<Option<ImageFormat>, Failure> {
    let format = typed.map(format_of_new);
    if format.is_some() && (image.array.is_some() || image.partition.is_some()) {
        return Err(
            Failure::new(Kind::Usage, "`--format` is for an image file that is made").advise("leave it off")
        );
    }
    Ok(format)
}

pub(super) fn format_of_new(typed: NewImageFormat) -> ImageFormat {
    match typed {
        NewImageFormat::Raw => ImageFormat::Raw,
        NewImageFormat::Qcow2 => ImageFormat::Qcow2,
    }
}

pub(super) fn unknown(flag: &str, option: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{flag} {}: there is no such option", safe(option.as_bytes())))
        .advise("`undercroft mkfs --help` lists them")
}

/// A size as mke2fs takes it behind the device: without a unit in blocks, or in KiB unless their size is given.
fn fs_size(typed: &str, block_bytes: Option<u32>) -> Result<u64, Failure> {
    if typed.is_empty() || typed.bytes().any(|byte| !byte.is_ascii_digit()) {
        return device_size(typed);
    }
    let blocks = typed.parse::<u64>().ok();
    blocks.and_then(|blocks| blocks.checked_mul(block_bytes.unwrap_or(1024).into())).ok_or_else(|| {
        Failure::new(Kind::Usage, format!("{typed:?} blocks are too many")).advise("write it as 10G or 512M")
    })
}

/// A size in bytes, or with a unit: `10G`, `1.5T`, `500MB`, `4096`.
pub(super) fn size(typed: &str) -> Result<u64, Failure> {
    parse_size(typed).map_err(|_| no_size(typed))
}

/// The size of a device, a partition or a filesystem: 4 KiB fit into what a decimal unit or a fraction makes.
pub(super) fn device_size(typed: &str) -> Result<u64, Failure> {
    parse_device_size(typed).map_err(|_| no_size(typed))
}

fn no_size(typed: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{typed:?} is no size"))
        .advise("write it as 10G, 1.5T, 512M or in bytes")
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_take_units() {
        let sizes = ["4096", "1k", "3M", "1.5G", "2TiB", "10KB"].map(|typed| size(typed).unwrap());
        assert_eq!(sizes, [4096, 1024, 3 << 20, 3 << 29, 2 << 40, 10_000]);
        for wrong in ["", "G", "10X", "-1", "+1G", "10b", "1.5", "99999999P"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
