//! What a new filesystem is filled with, from what was typed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use undercroft_vfs::Timestamp;
use uuid::{Builder, Uuid};

use super::mkfs::size;
use super::sources::{self, SourcePlan, source_date_epoch};
use crate::args::FromArgs;
use crate::exit::Kind;
use crate::failure::Failure;

/// What a new filesystem is filled with.
#[derive(Clone, Debug)]
pub(crate) struct FillPlan {
    /// Directories and archives, in order; `-` is standard input.
    pub(crate) sources: Vec<PathBuf>,
    /// How they are read and changed.
    pub(crate) how: SourcePlan,
    /// Space beside what they need, where they decide the size.
    pub(crate) free: Free,
    /// They decide it also where there is an image.
    pub(crate) auto_size: bool,
    /// Reading and writing on one thread.
    pub(crate) single_thread: bool,
    /// The time at which the filesystem is made.
    pub(crate) time: Option<Timestamp>,
}

/// Space that is left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Free {
    /// None.
    #[default]
    Nothing,
    /// This part of the filesystem, in percent.
    Percent(f64),
    /// So many bytes.
    Bytes(u64),
}

impl Free {
    /// How much that is in a filesystem of this size.
    pub(crate) fn bytes_of(self, size: u64) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Percent(percent) => (size as f64 * percent / 100.0) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A text that stands for what is random otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) String);

impl Seed {
    /// A number for one purpose.
    pub(crate) fn bytes(&self, purpose: &str) -> [u8; 16] {
        digest(&[self.0.as_bytes(), purpose.as_bytes()])
    }

    /// A UUID for one purpose.
    pub(crate) fn uuid(&self, purpose: &str) -> Uuid {
        Builder::from_random_bytes(self.bytes(purpose)).into_uuid()
    }
}

/// A number that depends on all bytes of all parts, and on where parts end.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut sum = Sha256::new();
    for part in parts {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    let mut first = [0; 16];
    first.copy_from_slice(&sum.finalize()[..16]);
    first
}

impl FillPlan {
    /// `None` if nothing is to be filled in. `seed` counts all the same.
    pub(super) fn of(
        typed: &FromArgs,
        directory: Option<&OsStr>,
        size_typed: Option<&str>,
    ) -> Result<Option<Self>, Failure> {
        let sources: Vec<PathBuf> =
            directory.into_iter().map(PathBuf::from).chain(typed.from.iter().map(PathBuf::from)).collect();
        if sources.is_empty() {
            return match sources::given(&typed.sources) {
                None => Ok(None),
                Some(option) => Err(Failure::new(Kind::Usage, format!("{option} needs a source of files"))
                    .advise("name one with `--from`, or leave it off")),
            };
        }
        if sources.iter().filter(|source| **source == Path::new("-")).count() > 1 {
            return Err(Failure::new(Kind::Usage, "standard input is given twice as a source"));
        }
        sources::note_rooted(&typed.sources);
        let free = typed.free.as_deref().map(free).transpose()?.unwrap_or_default();
        Ok(Some(Self {
            sources,
            how: SourcePlan::of(&typed.sources)?,
            free,
            auto_size: size_typed == Some("auto") || free != Free::Nothing,
            single_thread: typed.threads == Some(1),
            time: source_date_epoch()?,
        }))
    }

    /// Gives the root an owner and a group, whatever the sources say.
    pub(super) fn set_root_owner(&mut self, owner: (u32, u32)) {
        Arc::make_mut(&mut self.how.rules).root_owner = Some(owner);
    }
}

pub(super) fn seed(typed: &FromArgs) -> Option<Seed> {
    typed.seed.clone().map(Seed)
}

fn free(typed: &str) -> Result<Free, Failure> {
    match typed.strip_suffix('%') {
        None if typed.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(Failure::new(Kind::Usage, format!("--free: {typed} of what?"))
                .advise("write it as 10% or 2G"))
        }
        None => size(typed).map(Free::Bytes),
        Some(percent) => {
            let percent = percent.parse().ok().filter(|percent| (0.0..=95.0).contains(percent));
            percent.map(Free::Percent).ok_or_else(|| {
                Failure::new(Kind::Usage, format!("--free: {typed:?} is no part of a filesystem"))
                    .advise("write it as 10% or 2G")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_read() {
        assert_eq!(free("10%").unwrap(), Free::Percent(10.0));
        assert_eq!(free("2G").unwrap(), Free::Bytes(2 << 30));
        assert!(free("100%").is_err() && free("x%").is_err());
    }
}
