//! The array under test: RAID5 of four members, in the forms that are compared.

use std::num::NonZeroU32;

use undercroft_md::{Array, ArrayOptions, CreateOptions, Level, StripeWake, Timestamp};

use crate::BenchError;
use crate::members::Members;
use crate::sizes::{CHUNK_BYTES, MEMBERS, ROW_BYTES};

/// Where data begins on each member: behind the superblock.
const DATA_OFFSET: u64 = 1 << 20;
/// The cache cuts chunks into pages while it has fewer stripes than this.
const STRIPES_OF_CHUNKS: u32 = 64;
const PAGE_BYTES: u64 = 4096;

/// What is chosen when the array is made and opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayForm {
    /// Which threads are woken when stripes come free.
    pub stripe_wake: StripeWake,
    /// Stripes in the cache: of pages of 4 KiB if there are fewer than 64, otherwise of chunks. As many as the array
    /// likes by default.
    pub stripes: Option<NonZeroU32>,
    /// What it is made of.
    pub members: Members,
}

const WAKE: &str = "stripe_wake=";
/// The plain forms, as users type them.
const PLAIN_WAKES: [(&str, StripeWake); 2] =
    [("all", StripeWake::All), ("all-spinning", StripeWake::AllSpinning)];
const STRIPES: &str = "stripes=";
const FILES: &str = "files";
const MEMBER_US: &str = "member_us=";
const POLLED: &str = "polled";

impl ArrayForm {
    /// This form with what a word chooses; `None` if there is no such word.
    pub(crate) fn with(self, word: &str) -> Option<Self> {
        if let Some(wake) = word.strip_prefix(WAKE) {
            let (_, stripe_wake) = PLAIN_WAKES.into_iter().find(|(name, _)| *name == wake)?;
            return Some(Self { stripe_wake, ..self });
        }
        if let Some(stripes) = word.strip_prefix(STRIPES) {
            return Some(Self { stripes: Some(stripes.parse().ok()?), ..self });
        }
        let members = match word.strip_prefix(MEMBER_US) {
            Some(us) => Members { delay_us: us.parse::<NonZeroU32>().ok()?.get(), ..self.members },
            None if word == FILES => Members { files: true, ..self.members },
            None if word == POLLED => Members { polled: true, ..self.members },
            None => return None,
        };
        Some(Self { members, ..self })
    }

    /// The words that choose it.
    pub(crate) fn words(self) -> impl Iterator<Item = String> {
        let Members { files, delay_us, polled } = self.members;
        let wake = PLAIN_WAKES.into_iter().find(|(_, wake)| *wake == self.stripe_wake);
        let wake = wake.map(|(name, _)| format!("{WAKE}{name}"));
        let stripes = self.stripes.map(|stripes| format!("{STRIPES}{stripes}"));
        let files = files.then(|| FILES.to_owned());
        let delay = (delay_us > 0).then(|| format!("{MEMBER_US}{delay_us}"));
        let polled = polled.then(|| POLLED.to_owned());
        [wake, stripes, files, delay, polled].into_iter().flatten()
    }

    /// Bytes of a member that an array of so many bytes at least needs.
    pub(crate) const fn member_bytes(array_bytes: u64) -> u64 {
        array_bytes.div_ceil(ROW_BYTES) * CHUNK_BYTES + DATA_OFFSET
    }

    /// A new one, all zero, of members of so many bytes.
    pub(crate) fn open(self, member_bytes: u64) -> Result<Array, BenchError> {
        let members = (0..MEMBERS).map(|_| self.members.make(member_bytes)).collect::<Result<_, _>>()?;
        let new = CreateOptions {
            chunk_bytes: Some(CHUNK_BYTES as u32),
            data_offset: Some(DATA_OFFSET),
            name: "bench".to_owned(),
            assume_clean: true,
            created: Timestamp::now(),
            ..CreateOptions::new(Level::Raid5)
        };
        let mut options = ArrayOptions { stripe_wake: self.stripe_wake, ..ArrayOptions::default() };
        if let Some(stripes) = self.stripes {
            let piece_bytes = if stripes.get() < STRIPES_OF_CHUNKS { PAGE_BYTES } else { CHUNK_BYTES };
            options.stripe_cache_bytes = (u64::from(stripes.get() * MEMBERS) * piece_bytes) as usize;
        }
        Array::create(members, &new, options).map_err(|source| BenchError::Array { what: "make", source })
    }
}

#[cfg(test)]
mod tests {
    use undercroft_block::BlockDevice;

    use super::*;

    #[test]
    fn a_form_is_read_as_it_is_written() {
        let typed = [
            "",
            "stripe_wake=all",
            "stripe_wake=all-spinning",
            "stripes=16",
            "files",
            "stripe_wake=all,stripes=7,files,member_us=90,polled",
        ];
        for typed in typed {
            let words = typed.split(',').filter(|word| !word.is_empty());
            let form = words.into_iter().try_fold(ArrayForm::default(), ArrayForm::with).unwrap();
            assert_eq!(form.words().collect::<Vec<_>>().join(","), typed);
        }
        for word in ["stripes=0", "stripes=", "member_us=0", "stripe_wake=one", "file"] {
            assert_eq!(ArrayForm::default().with(word), None, "{word}");
        }
    }

    #[test]
    fn the_array_is_as_large_and_its_cache_as_small_as_asked_for() {
        for (stripes, bytes) in [("stripes=16", 16 * 4 * 4096), ("stripes=64", 64 * 4 * 65536)] {
            let form = ArrayForm::default().with(stripes).unwrap();
            let array = form.open(ArrayForm::member_bytes(10 << 20)).unwrap();
            assert!((10 << 20..11 << 20).contains(&array.size_bytes()), "{}", array.size_bytes());
            assert_eq!(array.status().memory_bytes, bytes);
            array.close().unwrap();
        }
    }
}
