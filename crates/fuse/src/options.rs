//! Mount options: what `-o a,b=c` may say, and what each setting means.
//!
//! Unknown options are refused by name, so that a misspelt one is never silently without effect.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use crate::FaultSink;

/// Every change goes through the kernel, so what it has learned stays true for as long as it likes.
const UNCHANGING: Duration = Duration::from_secs(24 * 60 * 60);

/// Short enough for a program that asks for everything to be durable and cannot be told when that is; long enough for a
/// program that makes changes one after the other not to meet it.
const COMMIT_PAUSE: Duration = Duration::from_millis(30);

/// Event loops by default: twice as many as there are processors, because some wait for the disk, and within
/// these bounds. One that has nothing to do costs next to nothing.
const DEFAULT_THREADS: std::ops::RangeInclusive<usize> = 4..=16;

/// The most event loops that can be asked for.
const THREADS_MAX: usize = 64;

/// How a filesystem is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Event loops, each with its own thread and its own connection to the kernel.
    pub threads: NonZeroUsize,
    /// Whether requests come over io_uring, where the kernel offers that.
    pub io_uring: bool,
    /// What `mount` shows as the source: usually the path of the image.
    pub fs_name: String,
    /// Takes no writes. A filesystem that takes none must be mounted with it.
    pub read_only: bool,
    /// Lets in other users than the one that mounts. For anyone but root, `/etc/fuse.conf` must agree.
    pub allow_other: bool,
    /// The kernel checks permission bits and ACLs. Without it (`fakeroot`, as fuse2fs calls it) a user that gets in may
    /// do what root may, and what they make belongs to them until they give it away: for one's own image, whose bytes
    /// one could change anyhow. So it cannot be combined with [`allow_other`](Self::allow_other). The kernel then also
    /// asks less: to check, it needs a directory's mode, which it forgets with every change in there.
    pub default_permissions: bool,
    /// Device nodes work.
    pub dev: bool,
    /// Set-user-ID, set-group-ID and file capabilities are honoured.
    pub suid: bool,
    /// Programs may be run.
    pub exec: bool,
    /// Reading brings times of access forward, where they are not later than the last change or a day old, as Linux's
    /// `relatime` does. What the kernel's cache answers does not come here and brings nothing forward. Without meaning
    /// on a read-only mount, but shown in the mount table.
    pub atime: bool,
    /// When changes pause for about this long, everything that came is made durable; `None` leaves that to the
    /// filesystem and on request. The kernel does not tell a mount of `sync(2)`.
    pub commit_pause: Option<Duration>,
    /// The kernel keeps what programs write and writes it later, many small writes as one. It then finds no holes
    /// (`SEEK_HOLE`). Without it, each write is a request of its own.
    pub writeback_cache: bool,
    /// Files are read and written past the kernel's cache, several writers of one file at a time.
    pub direct_io: bool,
    /// Whether listing a directory brings the attributes of its files along.
    pub list_attributes: ListAttributes,
    /// Asks the kernel, as root, to let all idle processors of this machine poll instead of halting while requests come
    /// quickly. In a virtual machine waking a processor that halts takes 30 µs and more, one that polls 2 µs. Not the
    /// default: it costs the whole machine power and processor time. Without root it changes nothing.
    pub poll_idle: bool,
    /// For how long the kernel may keep attributes without asking again.
    pub attr_timeout: Duration,
    /// For how long the kernel may keep names, and that names do not exist.
    pub entry_timeout: Duration,
    /// The receiver of messages on what is wrong with the disk, since programs get only an error number.
    pub faults: FaultSink,
}

/// Whether listing a directory brings the attributes of its files along (the protocol's `READDIRPLUS`).
///
/// Most programs that list a directory ask for the attributes next. One question for all of them is less than half
/// the work of one question for each; without questions, a plain listing has been twice the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListAttributes {
    /// Always.
    Always,
    /// While the program that lists asks for the attributes of what it was just told. Many programs read the
    /// whole directory first, and gain nothing.
    Auto,
    /// Never.
    Never,
}

impl Default for MountOptions {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = processors.saturating_mul(2).clamp(*DEFAULT_THREADS.start(), *DEFAULT_THREADS.end());
        Self {
            threads: NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN),
            io_uring: true,
            fs_name: "undercroft".to_owned(),
            read_only: true,
            allow_other: false,
            default_permissions: true,
            dev: false,
            suid: false,
            exec: true,
            atime: false,
            commit_pause: Some(COMMIT_PAUSE),
            writeback_cache: true,
            direct_io: false,
            list_attributes: ListAttributes::Always,
            poll_idle: false,
            attr_timeout: UNCHANGING,
            entry_timeout: UNCHANGING,
            faults: FaultSink::default(),
        }
    }
}

/// Why a list of mount options was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such option.
    #[error("unknown mount option \"{0}\"")]
    Unknown(String),
    /// The option needs a value, or has one that it cannot take.
    #[error("mount option \"{option}\" takes {expected}")]
    Value {
        /// The option as it was given.
        option: String,
        /// What it takes.
        expected: &'static str,
    },
    /// Two options that exclude each other.
    #[error("mount options \"{0}\" and \"{1}\" exclude each other")]
    Conflict(&'static str, &'static str),
    /// The filesystem cannot be written to.
    #[error("mount option \"rw\": this filesystem takes no writes; mount it with \"ro\"")]
    ReadWrite,
}

impl MountOptions {
    /// The defaults, changed by a comma-separated list as it stands after `-o`.
    ///
    /// # Errors
    /// [`OptionError`], naming the option.
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        options.apply(list)?;
        Ok(options)
    }

    /// Changes the settings that a comma-separated list names; of contradicting ones the last counts.
    ///
    /// # Errors
    /// [`OptionError`], naming the option; those before it have been applied.
    pub fn apply(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.apply_one(option))
    }

    fn apply_one(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if let Some(value) = value {
            return self.apply_value(option, name, value);
        }
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = true,
            "no_default_permissions" | "fakeroot" => self.default_permissions = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "relatime" => self.atime = true,
            "noatime" => self.atime = false,
            "writeback_cache" => self.writeback_cache = true,
            "no_writeback_cache" => self.writeback_cache = false,
            "direct_io" => self.direct_io = true,
            "io_uring" => self.io_uring = true,
            "no_io_uring" => self.io_uring = false,
            "poll_idle" => self.poll_idle = true,
            "no_poll_idle" => self.poll_idle = false,
            "commit_pause" | "threads" | "fsname" | "readdirplus" | "attr_timeout" | "entry_timeout" => {
                return Err(OptionError::Value {
                    option: option.to_owned(),
                    expected: "a value after \"=\"",
                });
            }
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }

    fn apply_value(&mut self, option: &str, name: &str, value: &str) -> Result<(), OptionError> {
        let refuse = |expected| OptionError::Value { option: option.to_owned(), expected };
        match name {
            "threads" => {
                self.threads = value
                    .parse()
                    .ok()
                    .filter(|threads: &NonZeroUsize| threads.get() <= THREADS_MAX)
                    .ok_or_else(|| refuse("a number of event loops from 1 to 64"))?;
            }
            "fsname" => value.clone_into(&mut self.fs_name),
            "readdirplus" => {
                use ListAttributes::{Always, Auto, Never};
                self.list_attributes =
                    in_three_ways(value, [Always, Auto, Never]).ok_or_else(|| refuse(THREE_WAYS))?;
            }
            "commit_pause" => {
                let milliseconds: u32 = value.parse().map_err(|_| refuse("milliseconds, 0 for never"))?;
                self.commit_pause =
                    (milliseconds > 0).then(|| Duration::from_millis(u64::from(milliseconds)));
            }
            "attr_timeout" => self.attr_timeout = seconds(value).ok_or_else(|| refuse("seconds"))?,
            "entry_timeout" => self.entry_timeout = seconds(value).ok_or_else(|| refuse("seconds"))?,
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }

    /// Refuses what cannot be had together, and what cannot be had from a filesystem that may take no writes.
    pub(crate) fn check(&self, takes_writes: bool) -> Result<(), OptionError> {
        if !self.read_only && !takes_writes {
            return Err(OptionError::ReadWrite);
        }
        if self.allow_other && !self.default_permissions {
            return Err(OptionError::Conflict("allow_other", "fakeroot, no_default_permissions"));
        }
        Ok(())
    }
}

/// What [`in_three_ways`] takes.
const THREE_WAYS: &str = "always, auto or never";

fn in_three_ways<T>(value: &str, [always, auto, never]: [T; 3]) -> Option<T> {
    match value {
        "always" => Some(always),
        "auto" => Some(auto),
        "never" => Some(never),
        _ => None,
    }
}

fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_changes_the_defaults_and_the_last_word_counts() {
        let options = MountOptions::parse(
            "ro,dev,suid,relatime,noatime,noexec,exec,direct_io,no_writeback_cache,no_io_uring,threads=3,commit_pause=7,fsname=a=b,readdirplus=auto,poll_idle,attr_timeout=0.5,",
        )
        .unwrap();
        let expected = MountOptions {
            dev: true,
            suid: true,
            atime: false,
            commit_pause: Some(Duration::from_millis(7)),
            writeback_cache: false,
            direct_io: true,
            io_uring: false,
            threads: NonZeroUsize::new(3).unwrap(),
            fs_name: "a=b".to_owned(),
            list_attributes: ListAttributes::Auto,
            poll_idle: true,
            attr_timeout: Duration::from_millis(500),
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        assert_eq!(MountOptions::parse("").unwrap(), MountOptions::default());
        assert_eq!(MountOptions::parse("commit_pause=0").unwrap().commit_pause, None);
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        for option in ["allow_otter", "uid=0", "RO", "ro=1", " ro", "poll_idle=always"] {
            let error = MountOptions::parse(&format!("dev,{option},suid")).unwrap_err();
            assert_eq!(error, OptionError::Unknown(option.to_owned()));
            assert!(error.to_string().contains(option));
        }
    }

    #[test]
    fn values_are_checked() {
        for option in [
            "threads",
            "threads=",
            "threads=0",
            "threads=65",
            "threads=-1",
            "readdirplus=2",
            "commit_pause",
            "commit_pause=-1",
            "commit_pause=x",
            "readdirplus=yes",
            "attr_timeout=-1",
        ] {
            let error = MountOptions::parse(option).unwrap_err();
            assert!(matches!(&error, OptionError::Value { option: named, .. } if named == option), "{error}");
        }
        assert!(MountOptions::parse("entry_timeout=nan").is_err());
        assert!(MountOptions::parse("entry_timeout=1e300").is_err());
    }

    #[test]
    fn combinations_are_checked() {
        let check = |list| MountOptions::parse(list).unwrap().check(false);
        assert_eq!(check("allow_other"), Ok(()));
        assert_eq!(check("no_default_permissions"), Ok(()));
        assert_eq!(check("fakeroot"), Ok(()));
        assert_eq!(check("rw"), Err(OptionError::ReadWrite));
        assert_eq!(MountOptions::parse("rw").unwrap().check(true), Ok(()));
        for both in ["allow_other,no_default_permissions", "fakeroot,allow_other"] {
            let both = check(both);
            assert!(matches!(both, Err(OptionError::Conflict(..))), "{both:?}");
        }
    }
}
