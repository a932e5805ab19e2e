//! The command line as meant: what commands get to see.
//!
//! Everything that can be judged without opening anything is judged here.

mod bench;

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap_complete::Shell;

pub(crate) use bench::BenchPlan;

use crate::args::{Command, ImageArgs, When};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// Which image, and how to open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageSpec {
    /// File or device.
    pub(crate) path: PathBuf,
    /// Number of a partition, as partitioning tools count.
    pub(crate) partition: Option<NonZeroU32>,
    /// Past the page cache.
    pub(crate) direct: bool,
    /// Respect and take locks.
    pub(crate) lock: bool,
    /// Open the other files that an image names.
    pub(crate) allow_backing: bool,
}

impl ImageSpec {
    /// The path, safe to show.
    pub(crate) fn shown(&self) -> String {
        safe(self.path.as_os_str().as_bytes())
    }
}

/// A path inside an image: absolute, bytes.
pub(crate) type InsidePath = Vec<u8>;

/// How to list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListStyle {
    pub(crate) long: bool,
    pub(crate) all: bool,
    pub(crate) inode: bool,
    pub(crate) recursive: bool,
}

/// Where `get` puts things.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A path on this machine.
    Path(PathBuf),
    /// A tar archive on standard output.
    Tar,
}

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Format {
    const fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Plan {
    Info { image: ImageSpec, format: Format },
    List { image: ImageSpec, path: InsidePath, style: ListStyle, format: Format },
    Tree { image: ImageSpec, path: InsidePath, levels: Option<u32>, all: bool, format: Format },
    Stat { image: ImageSpec, path: InsidePath, follow: bool, format: Format },
    Cat { image: ImageSpec, paths: Vec<InsidePath> },
    Get { image: ImageSpec, path: InsidePath, to: Destination, format: Format },
    Mount { image: ImageSpec, dir: PathBuf, options: Vec<String>, log: Option<PathBuf>, how: Serving },
    Unmount { dir: PathBuf },
    Bench { what: Box<BenchPlan>, format: Format },
    Tour { format: Format },
    Completions { shell: Shell },
    Man { dir: Option<PathBuf> },
}

/// Who serves a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// A process of its own, in the background.
    Background,
    /// This process, with the terminal attached.
    Foreground,
    /// This process is the one in the background; its parent waits for a word on standard output.
    Announcing,
}

impl Plan {
    /// What the typed command means.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn from_typed(command: Command) -> Result<Self, Failure> {
        Ok(match command {
            Command::Info { image, json } => {
                Self::Info { image: image_spec(&image)?, format: Format::of(json.json) }
            }
            Command::Ls { image, path, long, all, inode, recursive, json } => Self::List {
                image: image_spec(&image)?,
                path: inside_path(path)?,
                style: ListStyle { long, all, inode, recursive },
                format: Format::of(json.json),
            },
            Command::Tree { image, path, level, all, json } => Self::Tree {
                image: image_spec(&image)?,
                path: inside_path(path)?,
                levels: level,
                all,
                format: Format::of(json.json),
            },
            Command::Stat { image, path, dereference, json } => Self::Stat {
                image: image_spec(&image)?,
                path: inside_path(path)?,
                follow: dereference,
                format: Format::of(json.json),
            },
            Command::Cat { image, paths } => Self::Cat {
                image: image_spec(&image)?,
                paths: paths.into_iter().map(inside_path).collect::<Result<_, _>>()?,
            },
            Command::Get { image, path, dest, tar, json } => Self::Get {
                image: image_spec(&image)?,
                path: inside_path(path)?,
                to: match dest {
                    Some(dest) if !tar => Destination::Path(dest),
                    _ => Destination::Tar,
                },
                format: Format::of(json),
            },
            Command::Mount { image, dir, options, log, foreground, announce } => Self::Mount {
                image: image_spec(&image)?,
                dir,
                options,
                log,
                how: match (foreground, announce) {
                    (false, _) => Serving::Background,
                    (true, false) => Serving::Foreground,
                    (true, true) => Serving::Announcing,
                },
            },
            Command::Unmount { dir } => Self::Unmount { dir },
            Command::Bench(typed) => Self::Bench {
                format: Format::of(typed.json.json),
                what: Box::new(BenchPlan::from_typed(typed)?),
            },
            Command::Tour { json } => Self::Tour { format: Format::of(json.json) },
            Command::Completions { shell } => Self::Completions { shell },
            Command::Man { dir } => Self::Man { dir },
        })
    }
}

impl When {
    /// Makes it hold for everything that this process prints.
    pub(crate) fn apply(self) {
        match self {
            Self::Auto => {}
            Self::Always => anstream::ColorChoice::Always.write_global(),
            Self::Never => anstream::ColorChoice::Never.write_global(),
        }
    }
}

fn image_spec(typed: &ImageArgs) -> Result<ImageSpec, Failure> {
    let (path, partition) = split_partition(&typed.image)?;
    Ok(ImageSpec {
        path,
        partition,
        direct: typed.direct,
        lock: !typed.no_lock,
        allow_backing: typed.allow_backing,
    })
}

/// Splits `IMAGE?part=N`. A file whose name really ends like that is meant when it exists.
fn split_partition(typed: &OsStr) -> Result<(PathBuf, Option<NonZeroU32>), Failure> {
    const HINT: &[u8] = b"?part=";
    let bytes = typed.as_bytes();
    let Some(at) = bytes.windows(HINT.len()).rposition(|window| window == HINT) else {
        return Ok((PathBuf::from(typed), None));
    };
    if Path::new(typed).exists() {
        return Ok((PathBuf::from(typed), None));
    }
    let number = std::str::from_utf8(&bytes[at + HINT.len()..]).ok().and_then(|digits| digits.parse().ok());
    let Some(number) = number else {
        return Err(Failure::new(
            Kind::Usage,
            format!("{}: what follows `?part=` is not a partition number", safe(bytes)),
        )
        .advise("partitions are counted from 1"));
    };
    Ok((PathBuf::from(OsStr::from_bytes(&bytes[..at])), Some(number)))
}

/// Paths inside an image start at its root, with or without a slash.
fn inside_path(typed: OsString) -> Result<InsidePath, Failure> {
    let mut path = typed.into_vec();
    if path.is_empty() {
        return Err(Failure::new(Kind::Usage, "the path inside the image is empty").advise("the root is `/`"));
    }
    if path[0] != b'/' {
        path.insert(0, b'/');
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    use super::{inside_path, split_partition};
    use crate::exit::Kind;

    #[test]
    fn a_partition_hint_is_split_off() {
        let split =
            |typed: &str| split_partition(OsStr::new(typed)).map(|(path, part)| (path, part.map(u32::from)));
        assert_eq!(split("a.img").unwrap(), (PathBuf::from("a.img"), None));
        assert_eq!(split("a?b.img?part=3").unwrap(), (PathBuf::from("a?b.img"), Some(3)));
        for wrong in ["a.img?part=0", "a.img?part=", "a.img?part=x", "a.img?part=-1"] {
            assert_eq!(split(wrong).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
    }

    #[test]
    fn a_file_that_is_named_like_a_hint_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("odd?part=1");
        std::fs::write(&path, "").unwrap();
        assert_eq!(split_partition(path.as_os_str()).unwrap(), (path, None));
    }

    #[test]
    fn paths_start_at_the_root() {
        assert_eq!(inside_path("etc/passwd".into()).unwrap(), b"/etc/passwd");
        assert_eq!(inside_path("/".into()).unwrap(), b"/");
        assert_eq!(inside_path("".into()).unwrap_err().kind(), Kind::Usage);
    }
}
