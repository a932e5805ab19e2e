//! From the options of `tune` to what is meant.

use std::os::unix::ffi::OsStringExt;

use undercroft_ext4::{FeatureChange, HashAlgorithm, MountDefault, OnError, Reserved, Tuning};

use super::UuidChange;
use crate::args::TuneArgs;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// What is done to a filesystem.
#[derive(Debug)]
pub(crate) struct TunePlan {
    /// Nothing: it is shown.
    pub(crate) list: bool,
    pub(crate) label: Option<Vec<u8>>,
    pub(crate) uuid: Option<UuidChange>,
    /// All else, of ext2, ext3 and ext4.
    pub(crate) tuning: Option<Tuning>,
}

const DAY_S: u64 = 86_400;

impl TunePlan {
    pub(super) fn of(args: TuneArgs) -> Result<Self, Failure> {
        let reserved = match (args.reserved_percent, args.reserved_blocks) {
            (Some(percent), _) => Some(Reserved::Percent(percent)),
            (None, Some(blocks)) => Some(Reserved::Blocks(blocks)),
            (None, None) => None,
        };
        let features = args.features.join(",");
        FeatureChange::list(&features)
            .map_err(|what| usage(format!("-O {}: {what}", safe(features.as_bytes()))))?;
        let mut tuning = Tuning {
            features,
            journal_bytes: args.journal.as_deref().map(journal_bytes).transpose()?,
            reserved,
            reserved_user: args.reserved_user,
            reserved_group: args.reserved_group,
            on_error: args.errors.as_deref().map(on_error).transpose()?,
            mounts_most: args.max_mount_count.map(mounts_most).transpose()?,
            mounts: args.mount_count,
            check_interval_s: args.interval.as_deref().map(interval_s).transpose()?,
            mount_defaults: args
                .mount_defaults
                .iter()
                .map(|word| mount_default(word))
                .collect::<Result<_, _>>()?,
            ..Tuning::default()
        };
        for word in &args.extended {
            extended(&mut tuning, word)?;
        }
        let label = args.label.map(OsStringExt::into_vec);
        let uuid = args.uuid.as_deref().map(UuidChange::parse).transpose()?;
        let is_tuned = tuning != Tuning::default();
        if !args.list && !is_tuned && label.is_none() && uuid.is_none() {
            return Err(usage("there is nothing to change".into())
                .advise("`undercroft tune --help` says what can be"));
        }
        Ok(Self { list: args.list, label, uuid, tuning: is_tuned.then_some(tuning) })
    }
}

fn usage(what: String) -> Failure {
    Failure::new(Kind::Usage, what)
}

fn journal_bytes(word: &str) -> Result<u64, Failure> {
    let megabytes = word.strip_prefix("size=").and_then(|size| size.parse::<u32>().ok());
    megabytes
        .map(|megabytes| u64::from(megabytes) << 20)
        .ok_or_else(|| usage(format!("-J {word}: take size=MEGABYTES; other journals are made by tune2fs")))
}

fn on_error(word: &str) -> Result<OnError, Failure> {
    OnError::by_name(word).ok_or_else(|| usage(format!("-e {word}: take continue, remount-ro or panic")))
}

fn mounts_most(count: i32) -> Result<u16, Failure> {
    match u16::try_from(count.max(0)) {
        Ok(count) if count <= 16_000 => Ok(count),
        _ => Err(usage(format!("-c {count}: take 16000 at most, 0 or -1 for never"))),
    }
}

/// A number without a unit counts days.
fn interval_s(word: &str) -> Result<u32, Failure> {
    let digits = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &word[digits.len()..] {
        "" | "d" | "D" => Some(DAY_S),
        "s" | "S" => Some(1),
        "w" | "W" => Some(7 * DAY_S),
        "m" | "M" => Some(30 * DAY_S),
        _ => None,
    };
    let number = digits.parse::<u32>().ok();
    unit_s
        .zip(number)
        .and_then(|(unit_s, number)| u32::try_from(u64::from(number) * unit_s).ok())
        .ok_or_else(|| usage(format!("-i {word}: take a number with d, w, m or s")))
}

fn mount_default(word: &str) -> Result<(MountDefault, bool), Failure> {
    MountDefault::switched_by(word).ok_or_else(|| {
        let names: Vec<_> = MountDefault::names().collect();
        usage(format!("-o {word}: take {}", names.join(", ")))
    })
}

fn extended(tuning: &mut Tuning, word: &str) -> Result<(), Failure> {
    let wrong = || {
        usage(format!(
            "-E {word}: take stride=BLOCKS, stripe_width=BLOCKS, hash_alg=legacy|half_md4|tea or mount_opts=TEXT; \
             tune2fs has the others"
        ))
    };
    let (name, value) = word.split_once('=').ok_or_else(wrong)?;
    match name {
        "stride" => tuning.stride = Some(value.parse().map_err(|_| wrong())?),
        "stripe_width" | "stripe-width" => tuning.stripe_width = Some(value.parse().map_err(|_| wrong())?),
        "mount_opts" => tuning.mount_options = Some(value.as_bytes().to_vec()),
        "hash_alg" | "hash-alg" => {
            tuning.hash_algorithm = Some(HashAlgorithm::by_name(value).ok_or_else(wrong)?);
        }
        _ => return Err(wrong()),
    }
    Ok(())
}
