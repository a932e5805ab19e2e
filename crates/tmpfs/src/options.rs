//! How a tmpfs is made: the options that Linux's has, with the same names and defaults.

use std::fs;

/// Bytes in a page, the unit of space.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// How a tmpfs is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TmpfsOptions {
    /// Bytes of file content it takes, rounded up to whole pages; `None` for no limit. Half of the machine's memory
    /// by default.
    pub size_bytes: Option<u64>,
    /// Inodes it takes; `None` for no limit. One for every two pages of the machine's memory by default.
    pub inodes: Option<u64>,
    /// Permission bits of the root directory, with the sticky bit.
    pub mode: u16,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
}

/// Why an option was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mount option \"{option}\" takes {expected}")]
pub struct OptionError {
    /// The option as it was given.
    pub option: String,
    /// What it takes.
    pub expected: &'static str,
}

impl Default for TmpfsOptions {
    fn default() -> Self {
        let memory = memory_bytes();
        Self {
            size_bytes: Some(memory / 2),
            inodes: Some((memory / PAGE_BYTES / 2).max(1)),
            mode: 0o1777,
            uid: 0,
            gid: 0,
        }
    }
}

impl TmpfsOptions {
    /// Applies one option as it stands after `-o`: `size=1G`, `size=50%`, `nr_blocks=`, `nr_inodes=`, `mode=`,
    /// `uid=`, `gid=`. Tells whether it is an option of tmpfs at all.
    ///
    /// # Errors
    /// [`OptionError`] for a value that it cannot take.
    pub fn apply(&mut self, option: &str) -> Result<bool, OptionError> {
        let Some((name, value)) = option.split_once('=') else { return Ok(false) };
        let refuse = |expected| OptionError { option: option.to_owned(), expected };
        match name {
            "size" => {
                let bytes = size(value)
                    .ok_or_else(|| refuse("bytes (4096, 64k, 1G) or a percentage of memory (50%)"))?;
                self.size_bytes = (bytes > 0).then_some(bytes);
            }
            "nr_blocks" => {
                let bytes = number(value).and_then(|pages| pages.checked_mul(PAGE_BYTES));
                let bytes = bytes.ok_or_else(|| refuse("a number of pages of 4096 bytes"))?;
                self.size_bytes = (bytes > 0).then_some(bytes);
            }
            "nr_inodes" => {
                let inodes = number(value).ok_or_else(|| refuse("a number of inodes"))?;
                self.inodes = (inodes > 0).then_some(inodes);
            }
            "mode" => {
                self.mode = u16::from_str_radix(value, 8)
                    .ok()
                    .filter(|&mode| mode <= 0o7777)
                    .ok_or_else(|| refuse("permission bits in octal"))?;
            }
            "uid" => self.uid = value.parse().map_err(|_| refuse("the number of a user"))?,
            "gid" => self.gid = value.parse().map_err(|_| refuse("the number of a group"))?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A size in bytes, or in percent of the machine's memory.
fn size(value: &str) -> Option<u64> {
    match value.strip_suffix('%') {
        Some(percent) => {
            let percent: u32 = percent.parse().ok()?;
            u64::try_from(u128::from(memory_bytes()) * u128::from(percent) / 100).ok()
        }
        None => number(value),
    }
}

/// A number with one of the suffixes k, m, g, t and so on, which stand for powers of 1024.
fn number(value: &str) -> Option<u64> {
    let split = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
    let (digits, suffix) = value.split_at(split);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The machine's memory, or 1 GiB where it does not say.
fn memory_bytes() -> u64 {
    let told = fs::read_to_string("/proc/meminfo").ok();
    let kib = told.as_deref().and_then(|told| {
        let line = told.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.map_or(1 << 30, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(list: &[&str]) -> TmpfsOptions {
        let mut options = TmpfsOptions::default();
        for option in list {
            assert_eq!(options.apply(option), Ok(true), "{option}");
        }
        options
    }

    #[test]
    fn options_mean_what_they_mean_to_linux() {
        assert_eq!(with(&["size=4096"]).size_bytes, Some(4096));
        assert_eq!(with(&["size=3k"]).size_bytes, Some(3072));
        assert_eq!(with(&["size=2G"]).size_bytes, Some(2 << 30));
        assert_eq!(with(&["size=50%"]).size_bytes, TmpfsOptions::default().size_bytes);
        assert_eq!(with(&["size=0", "nr_inodes=0"]).size_bytes, None);
        assert_eq!(with(&["nr_blocks=3"]).size_bytes, Some(3 * 4096));
        let all = with(&["nr_inodes=10k", "mode=0755", "uid=7", "gid=8"]);
        assert_eq!((all.inodes, all.mode, all.uid, all.gid), (Some(10240), 0o755, 7, 8));
    }

    #[test]
    fn others_are_left_to_others_and_wrong_values_are_refused() {
        let mut options = TmpfsOptions::default();
        assert_eq!(options.apply("noatime"), Ok(false));
        assert_eq!(options.apply("threads=4"), Ok(false));
        for wrong in [
            "size=",
            "size=1x",
            "size=-1",
            "size=99999999999G",
            "mode=9",
            "mode=77777",
            "uid=x",
            "nr_inodes=",
        ] {
            let error = options.apply(wrong).unwrap_err();
            assert!(error.to_string().contains(wrong), "{error}");
        }
    }
}
