//! Partitions by their names in the table: the one thing about an image that is looked up before a command begins, so that
//! everything behind it knows a partition by its number.

use std::num::NonZeroU32;

use undercroft_block::partition::{Partition, lost_gpt, partitions};
use undercroft_block::{FileOptions, ImageOptions, Locking, OpenError, open_image};

use super::ImageSpec;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::lost_gpt::advice_on_partition;
use crate::text::names::safe;
use crate::text::partitions::list;

/// The number of the partition that has this name in the table of a disk.
pub(super) fn number_of_partition(spec: &ImageSpec, name: &str) -> Result<NonZeroU32, Failure> {
    let shown = spec.shown();
    let numbered = spec.shown_with_part("N");
    if spec.array.is_some() {
        return Err(Failure::new(Kind::Usage, format!("{shown}: partitions of an array have numbers here"))
            .advise(format!("name one as {numbered}")));
    }
    // It is opened again for what is to be done with it, and other users of it are told of then.
    let file = FileOptions { locking: Locking::None, on_use: |_| {}, ..FileOptions::read_only() };
    let options = ImageOptions { file, allow_backing: spec.allow_backing, ..ImageOptions::read_only() };
    let device = open_image(&spec.path, options).map_err(|error| match error {
        OpenError::UnsupportedFormat { .. } => Failure::of(Kind::Unsupported, &error),
        OpenError::OtherFileDenied { .. } => {
            Failure::of(Kind::CannotOpen, &error).advise(spec.advice_on_backing())
        }
        _ => Failure::of(Kind::CannotOpen, &error),
    })?;
    let table = if spec.lost_gpt { lost_gpt(&*device) } else { partitions(&*device) };
    let table = table.map_err(|error| {
        Failure::new(Kind::Corrupt, format!("cannot use the partition table of {shown}")).because(&error)
    })?;
    let is_named = |partition: &&Partition| {
        partition.label.as_deref().is_some_and(|label| safe(label.as_bytes()) == name)
    };
    let mut named = table.partitions.iter().filter(is_named);
    let name = safe(name.as_bytes());
    match (named.next().and_then(|first| NonZeroU32::new(first.number)), named.next()) {
        (Some(number), None) => Ok(number),
        (Some(_), Some(_)) => {
            let what =
                format!("{shown} has several partitions of the name \"{name}\": it has {}", list(&table));
            Err(Failure::new(Kind::CannotOpen, what).advise(format!("name one as {numbered}")))
        }
        (None, _) => {
            let failure = Failure::new(Kind::CannotOpen, format!("{shown} has no partition \"{name}\""));
            Err(if table.partitions.is_empty() {
                failure.advise(advice_on_partition(&device))
            } else {
                failure.advise(format!("it has {}", list(&table)))
            })
        }
    }
}
