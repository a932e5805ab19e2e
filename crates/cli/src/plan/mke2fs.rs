//! What `mkfs` has of mke2fs: its configuration file, its options behind `-E`, and those that are not taken.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs};

use undercroft_ext4::{Mke2fsConf, MkfsOptions, OnError};

use super::mkfs::{number, size, unknown, uuid};
use crate::args::OfMke2fs;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Where mke2fs has its configuration, unless the environment says otherwise.
const CONF_PATH: &str = "/etc/mke2fs.conf";
/// A larger file is none.
const CONF_MAX_BYTES: u64 = 1 << 20;

/// The configuration of this machine: what `MKE2FS_CONFIG` names, or `/etc/mke2fs.conf`; what is built in where there is no
/// such file.
pub(super) fn conf() -> Result<Arc<Mke2fsConf>, Failure> {
    let path = env::var_os("MKE2FS_CONFIG").map_or_else(|| PathBuf::from(CONF_PATH), PathBuf::from);
    let shown = safe(path.as_os_str().as_bytes());
    let text = match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Arc::new(Mke2fsConf::built_in())),
        Ok(found) if found.len() > CONF_MAX_BYTES => {
            let what = format!("{shown} has {} bytes, too many for a mke2fs.conf", found.len());
            return Err(Failure::new(Kind::Usage, what).advise("`--no-conf` leaves it out"));
        }
        _ => fs::read_to_string(&path),
    };
    let text = text.map_err(|error| {
        Failure::host(format!("cannot read {shown}"), &error).advise("`--no-conf` leaves it out")
    })?;
    let conf = Mke2fsConf::parse(shown.clone(), &text).map_err(|error| {
        Failure::new(Kind::Usage, format!("{shown}, {error}"))
            .advise("correct it, or leave it out with `--no-conf`")
    })?;
    Ok(Arc::new(conf))
}

/// Refuses what mke2fs would do and `mkfs` does not.
pub(super) fn refuse(typed: &OfMke2fs) -> Result<(), Failure> {
    let OfMke2fs {
        direct: _,
        verbose: _,
        keep: _,
        bad_blocks,
        bad_blocks_list,
        creator,
        revision,
        superblock_only,
        undo,
    } = typed;
    let not_taken = [
        (*bad_blocks > 0, "-c", "disks map bad blocks away themselves", "`badblocks` searches for them"),
        (bad_blocks_list.is_some(), "-l", "disks map bad blocks away themselves", "leave it out"),
        (creator.is_some(), "-o", "filesystems are made for Linux", "leave it out"),
        (revision.is_some(), "-r", "filesystems of revision 0 are not made", "leave it out"),
        (
            *superblock_only,
            "-S",
            "a superblock is not written over a filesystem whose tables may lie elsewhere",
            "`undercroft info` tells which copy is good, and `IMAGE?sb=BLOCK` reads by it",
        ),
        (undo.is_some(), "-z", "nothing is kept to undo it with", "copy the image before"),
    ];
    match not_taken.into_iter().find(|(is_typed, ..)| *is_typed) {
        Some((_, option, why, advice)) => {
            Err(Failure::new(Kind::Usage, format!("{option} is not taken: {why}")).advise(advice))
        }
        None => Ok(()),
    }
}

/// What stands behind `-e`.
pub(super) fn on_error(word: &str) -> Result<OnError, Failure> {
    OnError::by_name(word).ok_or_else(|| {
        Failure::new(Kind::Usage, format!("-e {word}: there is no such behaviour"))
            .advise("take continue, remount-ro or panic")
    })
}

/// One of the options behind `-E`.
pub(super) fn extended(options: &mut MkfsOptions, option: &str) -> Result<(), Failure> {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    match (name, value) {
        ("stride", Some(value)) => options.stride_blocks = Some(number(option, value)?),
        ("stripe_width" | "stripe-width", Some(value)) => {
            options.stripe_width_blocks = Some(number(option, value)?);
        }
        ("resize", Some(value)) => options.grows_to_blocks = Some(number(option, value)?),
        ("root_owner", Some(value)) => {
            let Some((user, group)) = value.split_once(':') else { return Err(unknown("-E", option)) };
            options.root_owner = (number(option, user)?, number(option, group)?);
        }
        ("lazy_itable_init", value) => options.lazy_inode_tables = Some(switch(option, value)?),
        // The journal's blocks are never looked at before they are written, but for the first.
        ("lazy_journal_init", value) => drop(switch(option, value)?),
        ("assume_storage_prezeroed", value) => options.device_is_zeroed = switch(option, value)?,
        ("orphan_file_size", Some(value)) => {
            options.orphan_file_blocks = Some(blocks(options, option, value)?);
        }
        ("mmp_update_interval", Some(value)) => options.mmp_interval_s = Some(number(option, value)?),
        ("encoding", Some("utf8" | "utf8-12.1")) => add_feature(options, "casefold"),
        ("encoding", Some(_)) => return Err(unfitting(option, "take utf8")),
        ("encoding_flags", Some("strict")) => options.strict_encoding = true,
        ("encoding_flags", Some("no-strict" | "nostrict")) => options.strict_encoding = false,
        ("test_fs", None) => options.for_tests = true,
        ("hash_seed", Some(value)) => options.hash_seed = Some(uuid(value)?),
        ("discard", None) => options.discard = Some(true),
        ("nodiscard", None) => options.discard = Some(false),
        ("num_backup_sb", Some("2")) => {}
        _ => return Err(not_taken(name, option)),
    }
    Ok(())
}

/// A switch as mke2fs has it: on where no number follows.
fn switch(option: &str, value: Option<&str>) -> Result<bool, Failure> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(_) => Err(unfitting(option, "take 0 or 1")),
    }
}

/// A count of blocks, or a size with a unit.
fn blocks(options: &MkfsOptions, option: &str, value: &str) -> Result<u32, Failure> {
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(option, value);
    }
    let Some(block_bytes) = options.block_bytes else {
        return Err(unfitting(
            option,
            "a size with a unit takes -b as well; without a unit it counts blocks",
        ));
    };
    u32::try_from(size(value)? / u64::from(block_bytes)).map_err(|_| unfitting(option, "that is too large"))
}

fn add_feature(options: &mut MkfsOptions, name: &str) {
    if !options.features.is_empty() {
        options.features.push(',');
    }
    options.features.push_str(name);
}

fn unfitting(option: &str, advice: &str) -> Failure {
    Failure::new(Kind::Usage, format!("-E {option} does not fit")).advise(advice)
}

fn not_taken(name: &str, option: &str) -> Failure {
    let (why, advice) = match name {
        "offset" => ("a filesystem begins where its partition does", "`IMAGE?part=N` is a partition"),
        "num_backup_sb" => ("with sparse_super2 there are two copies", "leave it out"),
        "packed_meta_blocks" => {
            ("bitmaps and tables lie with their flex group", "-G puts more groups together")
        }
        "quotatype" => ("quota files are not made", "`tune2fs -O quota` makes them"),
        "no_copy_xattrs" => ("sources are taken whole", "leave it out"),
        "desc_size" | "desc-size" => ("the feature 64bit decides it", "-O 64bit or -O ^64bit"),
        "root_perms" | "root_selinux" => (
            "the root directory is as its source says",
            "`undercroft chmod` and `undercroft xattr` change it",
        ),
        "revision" => ("filesystems of revision 0 are not made", "leave it out"),
        _ => return unknown("-E", option),
    };
    Failure::new(Kind::Usage, format!("-E {option} is not taken: {why}")).advise(advice)
}
