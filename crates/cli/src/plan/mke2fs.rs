//! What `mkfs` has of mke2fs: its configuration file, its options behind `-E`, and those that are not taken.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use undercroft_ext4::{Amount, Mke2fsConf, MkfsOptions, OnError, c_number};

use super::mkfs::{size, unknown};
use super::uuid;
use crate::args::OfMke2fs;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Where mke2fs has its configuration, unless the environment says otherwise.
const CONF_PATH: &str = "/etc/mke2fs.conf";
/// A larger file is none.
const CONF_MAX_BYTES: u64 = 1 << 20;
/// A FIFO is not waited for.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// The configuration of this machine: what `MKE2FS_CONFIG` names, or `/etc/mke2fs.conf`; what is built in where there is no
/// such file. Of a directory all files count that have a plain name.
pub(super) fn conf() -> Result<Arc<Mke2fsConf>, Failure> {
    let path = env::var_os("MKE2FS_CONFIG").map_or_else(|| PathBuf::from(CONF_PATH), PathBuf::from);
    let failed = |error: io::Error| {
        let shown = safe(path.as_os_str().as_bytes());
        Failure::host(format!("cannot read {shown}"), &error).advise("`--no-conf` leaves it out")
    };
    let file = match OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Arc::new(Mke2fsConf::built_in())),
        file => file.map_err(failed)?,
    };
    if !file.metadata().map_err(failed)?.is_dir() {
        return conf_of(&path, file).map(Arc::new);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name());
    }
    names.retain(|name| is_plain(name));
    names.sort();
    let mut all: Option<Mke2fsConf> = None;
    for name in names {
        let path = path.join(name);
        let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path);
        let conf = conf_of(&path, file.map_err(failed)?)?;
        all = Some(match all {
            Some(before) => before.and(conf),
            None => conf,
        });
    }
    Ok(Arc::new(all.unwrap_or_else(Mke2fsConf::built_in)))
}

/// Whether mke2fs reads a file of this name in a directory.
fn is_plain(name: &OsStr) -> bool {
    name.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// What one file says. It is opened once, and not waited for.
fn conf_of(path: &Path, file: File) -> Result<Mke2fsConf, Failure> {
    let shown = safe(path.as_os_str().as_bytes());
    let failed = |error: io::Error| {
        Failure::host(format!("cannot read {shown}"), &error).advise("`--no-conf` leaves it out")
    };
    let refused = |what: String| Failure::new(Kind::Usage, what).advise("`--no-conf` leaves it out");
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(refused(format!("{shown} is no regular file, as a mke2fs.conf is")));
    }
    let mut text = Vec::new();
    file.take(CONF_MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > CONF_MAX_BYTES {
        return Err(refused(format!(
            "{shown} has more than {CONF_MAX_BYTES} bytes, too many for a mke2fs.conf"
        )));
    }
    Mke2fsConf::parse(shown.clone(), &String::from_utf8_lossy(&text)).map_err(|error| {
        Failure::new(Kind::Usage, format!("{shown}, {}", safe(error.to_string().as_bytes())))
            .advise("correct it, or leave it out with `--no-conf`")
    })
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
    let is_linux = |name: &OsStr| {
        name.to_str().is_some_and(|name| name.eq_ignore_ascii_case("linux") || c_number(name) == Some(0))
    };
    let revision = revision.as_deref().map(|revision| revision.to_str().and_then(c_number));
    let not_taken = [
        (*bad_blocks > 0, "-c", "disks map bad blocks away themselves", "`badblocks` searches for them"),
        (bad_blocks_list.is_some(), "-l", "disks map bad blocks away themselves", "leave it out"),
        (
            creator.as_deref().is_some_and(|name| !is_linux(name)),
            "-o",
            "filesystems are made for Linux",
            "leave it out",
        ),
        (revision == Some(Some(0)), "-r 0", "filesystems of revision 0 are not made", "leave it out"),
        (
            revision.is_some_and(|revision| revision != Some(1)),
            "-r",
            "there is no such revision",
            "leave it out",
        ),
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
        ("", None) => {}
        ("stride", Some(value)) => options.stride_blocks = Some(number(option, value)?),
        ("stripe_width" | "stripe-width", Some(value)) => {
            options.stripe_width_blocks = Some(number(option, value)?);
        }
        ("resize", Some(value)) => {
            let size = amount(option, value)?;
            if matches!(size, Amount::Blocks(0) | Amount::Bytes(0)) {
                return Err(unfitting(option, "take a size that is more than the filesystem's"));
            }
            options.grows_to = Some(size);
        }
        ("root_owner", Some(value)) => {
            let Some((user, group)) = value.split_once(':') else {
                return Err(unfitting(option, "take UID:GID"));
            };
            let id = |id: &str| if id.is_empty() { Ok(0) } else { number(option, id) };
            options.root_owner = (id(user)?, id(group)?);
        }
        ("root_owner", None) => {
            options.root_owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        }
        ("lazy_itable_init", value) => options.lazy_inode_tables = Some(switch(option, value)?),
        // The journal's blocks are never looked at before they are written, but for the first.
        ("lazy_journal_init", value) => drop(switch(option, value)?),
        ("assume_storage_prezeroed", value) => options.device_is_zeroed = switch(option, value)?,
        ("orphan_file_size", Some(value)) => {
            options.orphan_file = Some(amount(option, value)?);
        }
        ("mmp_update_interval", Some(value)) => options.mmp_interval_s = Some(number(option, value)?),
        ("encoding", Some("utf8" | "utf8-12.1")) => add_feature(options, "casefold"),
        ("encoding", Some(_)) => return Err(unfitting(option, "take utf8")),
        ("encoding_flags", Some("strict")) => options.strict_encoding = true,
        ("encoding_flags", Some("no-strict" | "nostrict")) => options.strict_encoding = false,
        ("test_fs", _) => options.for_tests = true,
        ("hash_seed", Some(value)) => options.hash_seed = Some(uuid::given(value)?),
        ("discard", _) => options.discard = Some(true),
        ("nodiscard", _) => options.discard = Some(false),
        ("num_backup_sb", Some("2")) | ("packed_meta_blocks" | "offset", Some("0")) => {}
        _ => return Err(not_taken(name, option)),
    }
    Ok(())
}

/// A switch as mke2fs has it: on where no number follows.
fn switch(option: &str, value: Option<&str>) -> Result<bool, Failure> {
    match value {
        None => Ok(true),
        Some("") => Ok(false),
        Some(value) => match c_number(value) {
            Some(number) => Ok(number != 0),
            None => Err(unfitting(option, "take 0 or 1")),
        },
    }
}

/// A number with C's prefixes.
pub(super) fn number<T: TryFrom<i64>>(option: &str, value: &str) -> Result<T, Failure> {
    let number = c_number(value).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| {
        let (option, value) = (safe(option.as_bytes()), safe(value.as_bytes()));
        Failure::new(Kind::Usage, format!("{option}: {value:?} is no fitting number"))
    })
}

/// A count of blocks, or a size with a unit.
fn amount(option: &str, value: &str) -> Result<Amount, Failure> {
    if c_number(value).is_some() {
        return number(option, value).map(Amount::Blocks);
    }
    size(value).map(Amount::Bytes)
}

/// Adds a feature that an option implies.
pub(super) fn add_feature(options: &mut MkfsOptions, name: &str) {
    if !options.implied_features.is_empty() {
        options.implied_features.push(',');
    }
    options.implied_features.push_str(name);
}

/// One of the options behind `-J`.
pub(super) fn journal(options: &mut MkfsOptions, option: &str) -> Result<(), Failure> {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    let refused = |why: &str| Failure::new(Kind::Usage, format!("-J {}: {why}", safe(option.as_bytes())));
    match (name, value) {
        ("", None) | ("size", Some("")) => {}
        ("size", Some(value)) => {
            let megabytes: u32 = number(option, value)?;
            if megabytes > 0 {
                options.journal_bytes = Some(u64::from(megabytes) << 20);
                add_feature(options, "has_journal");
            }
        }
        ("fast_commit_size", Some(value)) => {
            let kibibytes: u32 = number(option, value)?;
            options.fast_commit_bytes = Some(u64::from(kibibytes) << 10);
        }
        ("size" | "fast_commit_size", None) => return Err(refused("it takes a value")),
        ("device", _) => return Err(refused("journals on other devices are not made").advise("leave it out")),
        ("location", _) => return Err(refused("the journal's place is not chosen").advise("leave it out")),
        _ => return Err(unknown("-J", option)),
    }
    Ok(())
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
        "stride"
        | "stripe_width"
        | "stripe-width"
        | "resize"
        | "orphan_file_size"
        | "mmp_update_interval"
        | "encoding"
        | "hash_seed" => ("it takes a value", "write it as NAME=VALUE"),
        "encoding_flags" => ("there are two", "take strict or no-strict"),
        "revision" => ("filesystems of revision 0 are not made", "leave it out"),
        _ => return unknown("-E", option),
    };
    Failure::new(Kind::Usage, format!("-E {} is not taken: {why}", safe(option.as_bytes()))).advise(advice)
}
