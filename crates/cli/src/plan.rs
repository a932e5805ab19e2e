//! The command line as meant: what commands get to see.
//!
//! Everything that can be decided without opening anything is decided here.

mod array;
mod base;
mod bench;
mod diff;
mod disk;
pub(crate) mod edit;
pub(crate) mod find;
mod format;
mod get;
mod hints;
mod image;
mod look;
mod md;
mod mke2fs;
mod mkfs;
mod mkfs_from;
mod named;
mod shell;
mod sources;
mod suite;
mod tune;
mod uuid;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap_complete::Shell;

pub(crate) use array::{ArrayMembers, ArraySpec};
pub(crate) use base::{Base, InsidePath};
pub(crate) use bench::BenchPlan;
pub(crate) use diff::DiffPlan;
pub(crate) use disk::{
    AddPlan, Compress, CopyPlan, CopyTarget, CreatePlan, DiskPlan, PartitionPlan, kind_of,
};
pub(crate) use format::Format;
pub(crate) use get::{Destination, Existing, GetPlan};
pub(crate) use image::ImageSpec;
pub(crate) use look::{ListStyle, Look};
pub(crate) use md::{Change, MdPlan, NewArrayPlan, NewMembers, Waiting};
pub(crate) use mkfs::{MkfsPlan, NewFormat};
pub(crate) use mkfs_from::{FillPlan, Free, digest};
pub(crate) use shell::{Commands, ShellPlan};
pub(crate) use sources::SourcePlan;
pub(crate) use suite::{Against, SuitePlan};
pub(crate) use tune::TunePlan;
pub(crate) use uuid::UuidChange;

use self::edit::{Edit, refuse_image_behind};
use crate::args::edit::EditImageArgs;
use crate::args::{Command, MountCommand, ProgramCommand, When, WholeCommand};
use crate::exit::{Kind, Verdict};
use crate::failure::Failure;
use crate::mount_options::normalise;
use crate::text::note::note;

/// How `df` shows space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DfStyle {
    pub(crate) human_readable: bool,
    pub(crate) inodes: bool,
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Plan {
    Info {
        image: ImageSpec,
        format: Format,
    },
    Look {
        image: ImageSpec,
        what: Look,
    },
    Diff {
        what: DiffPlan,
        format: Format,
    },
    Edit {
        image: ImageSpec,
        what: Box<Edit>,
    },
    Shell {
        what: ShellPlan,
    },
    Get {
        image: ImageSpec,
        what: Box<GetPlan>,
        format: Format,
    },
    Mount {
        image: ImageSpec,
        dir: PathBuf,
        options: Vec<String>,
        snapshot: bool,
        log: Option<PathBuf>,
        monitor: Option<PathBuf>,
        how: Serving,
    },
    InstallHelper {
        prefix: PathBuf,
    },
    Unmount {
        dir: PathBuf,
    },
    Freeze {
        image: ImageSpec,
    },
    Thaw {
        image: ImageSpec,
    },
    Sync {
        image: ImageSpec,
    },
    Mounts {
        format: Format,
    },
    Df {
        images: Vec<ImageSpec>,
        style: DfStyle,
        format: Format,
    },
    Mkfs {
        what: Box<MkfsPlan>,
        format: Format,
    },
    Disk {
        what: DiskPlan,
        format: Format,
    },
    Grow {
        image: ImageSpec,
        /// As large as the device by default.
        size_bytes: Option<u64>,
        format: Format,
    },
    Resize {
        image: ImageSpec,
        size: NewSize,
        format: Format,
    },
    Tune {
        image: ImageSpec,
        what: Box<TunePlan>,
        format: Format,
    },
    Label {
        image: ImageSpec,
        /// What it becomes; empty for none. It is shown by default.
        label: Option<Vec<u8>>,
        format: Format,
    },
    Uuid {
        image: ImageSpec,
        /// It is shown by default.
        change: Option<UuidChange>,
        format: Format,
    },
    Check {
        image: ImageSpec,
        format: Format,
    },
    Md {
        what: Box<MdPlan>,
        format: Format,
    },
    Bench {
        what: Box<BenchPlan>,
        format: Format,
    },
    Tour {
        format: Format,
    },
    Completions {
        shell: Shell,
    },
    Man {
        dir: Option<PathBuf>,
    },
}

/// The size that a filesystem is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewSize {
    Bytes(u64),
    WholeDevice,
    /// As small as it can be.
    Minimum,
    /// It keeps its size: how small it can be is shown.
    ShowMinimum,
}

impl NewSize {
    fn of(size: Option<&str>, minimum: bool, print_minimum: bool) -> Result<Self, Failure> {
        Ok(match (size, minimum, print_minimum) {
            (None, false, false) => Self::WholeDevice,
            (Some(size), false, false) => Self::Bytes(mkfs::device_size(size)?),
            (None, true, false) => Self::Minimum,
            (None, false, true) => Self::ShowMinimum,
            _ => {
                let what = "take one of SIZE, --minimum (-M) and --print-minimum (-P)";
                return Err(Failure::new(Kind::Usage, what));
            }
        })
    }
}

/// Which process serves a mount.
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
                Self::Info { image: ImageSpec::from_typed(&image)?, format: Format::of(json.json) }
            }
            Command::Read(command) => {
                let (image, what) = Look::from_typed(command, &Base::Root)?;
                Self::Look { image: ImageSpec::from_typed(&image)?, what }
            }
            Command::Get(typed) => {
                let format = Format::of(typed.json);
                let (image, what) = GetPlan::from_typed(*typed, &Base::Root)?;
                Self::Get { image: ImageSpec::from_typed(&image)?, what: Box::new(what), format }
            }
            Command::Diff(typed) => {
                let (what, format) = DiffPlan::from_typed(typed)?;
                Self::Diff { what, format }
            }
            Command::Edit(command) => {
                refuse_image_behind(&command)?;
                let (image, what) = Edit::from_typed(command, &Base::Root)?;
                let EditImageArgs { image, danger } = image;
                let image =
                    ImageSpec { write_while_in_use: danger.write_while_in_use, ..ImageSpec::parse(&image)? };
                Self::Edit { image, what: Box::new(what) }
            }
            Command::Shell(typed) => Self::Shell { what: ShellPlan::from_typed(typed)? },
            Command::Mount(command) => Self::of_mounts(command)?,
            Command::Mkfs(typed) => {
                let (what, json) = MkfsPlan::from_typed(*typed)?;
                Self::Mkfs { what: Box::new(what), format: Format::of(json) }
            }
            Command::Disk(typed) => {
                let (what, format) = DiskPlan::from_typed(typed)?;
                Self::Disk { what, format }
            }
            Command::Whole(command) => Self::of_the_whole(command)?,
            Command::Md { command, json } => {
                let (what, format) = MdPlan::from_typed(command)?;
                Self::Md { what: Box::new(what), format: if json { Format::Json } else { format } }
            }
            Command::Bench(typed) => Self::Bench {
                format: Format::of(typed.wants_json()),
                what: Box::new(BenchPlan::from_typed(typed)?),
            },
            Command::Program(command) => Self::of_the_program(command),
        })
    }

    fn of_mounts(command: MountCommand) -> Result<Self, Failure> {
        Ok(match command {
            MountCommand::Mount {
                kind: _,
                image,
                dir,
                options,
                snapshot,
                log,
                monitor,
                danger,
                foreground,
                announce,
            } => Self::Mount {
                options: mount_options(&options)?,
                image: ImageSpec {
                    write_while_in_use: danger.write_while_in_use,
                    ..ImageSpec::from_typed(&image)?
                },
                dir,
                snapshot,
                log,
                monitor,
                how: match (foreground, announce) {
                    (false, _) => Serving::Background,
                    (true, false) => Serving::Foreground,
                    (true, true) => Serving::Announcing,
                },
            },
            MountCommand::InstallHelper { prefix } => Self::InstallHelper { prefix },
            MountCommand::Unmount { dir } => Self::Unmount { dir },
            MountCommand::Freeze { image } => Self::Freeze { image: ImageSpec::parse(&image)? },
            MountCommand::Thaw { image } => Self::Thaw { image: ImageSpec::parse(&image)? },
            MountCommand::Sync { image } => Self::Sync { image: ImageSpec::parse(&image)? },
            MountCommand::Mounts { json } => Self::Mounts { format: Format::of(json.json) },
            MountCommand::Df { images, human_readable, inodes, json, .. } => Self::Df {
                images: images.iter().map(|image| ImageSpec::parse(image)).collect::<Result<_, _>>()?,
                style: DfStyle { human_readable, inodes },
                format: Format::of(json.json),
            },
        })
    }

    fn of_the_whole(command: WholeCommand) -> Result<Self, Failure> {
        Ok(match command {
            WholeCommand::Grow { image, size, danger, json } => Self::Grow {
                image: ImageSpec {
                    write_while_in_use: danger.write_while_in_use,
                    ..ImageSpec::parse(&image)?
                },
                size_bytes: size.as_deref().map(mkfs::device_size).transpose()?,
                format: Format::of(json.json),
            },
            WholeCommand::Resize { image, size, minimum, print_minimum, danger, json } => Self::Resize {
                image: ImageSpec {
                    write_while_in_use: danger.write_while_in_use,
                    ..ImageSpec::parse(&image)?
                },
                size: NewSize::of(size.as_deref(), minimum, print_minimum)?,
                format: Format::of(json.json),
            },
            WholeCommand::Tune(args) => Self::Tune {
                image: ImageSpec {
                    write_while_in_use: args.danger.write_while_in_use,
                    ..ImageSpec::parse(&args.image)?
                },
                format: Format::of(args.json.json),
                what: Box::new(TunePlan::of(*args)?),
            },
            WholeCommand::Label { image, name, danger, json } => Self::Label {
                image: ImageSpec {
                    write_while_in_use: danger.write_while_in_use,
                    ..ImageSpec::parse(&image)?
                },
                label: name.map(OsString::into_vec),
                format: Format::of(json.json),
            },
            WholeCommand::Uuid { image, uuid, danger, json } => Self::Uuid {
                image: ImageSpec {
                    write_while_in_use: danger.write_while_in_use,
                    ..ImageSpec::parse(&image)?
                },
                change: uuid.as_deref().map(UuidChange::parse).transpose()?,
                format: Format::of(json.json),
            },
            WholeCommand::Check { image, json, force: _, no: _ } => Self::Check {
                image: ImageSpec::from_typed(&image)
                    .map_err(|failure| failure.counted_as(Kind::Check(Verdict::Usage)))?,
                format: Format::of(json.json),
            },
        })
    }

    fn of_the_program(command: ProgramCommand) -> Self {
        match command {
            ProgramCommand::Tour { json } => Self::Tour { format: Format::of(json.json) },
            ProgramCommand::Completions { shell } => Self::Completions { shell },
            ProgramCommand::Man { dir } => Self::Man { dir },
        }
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

/// The options of a mount, and a word about those that do nothing.
fn mount_options(typed: &[String]) -> Result<Vec<String>, Failure> {
    let (options, hints) = normalise(typed)?;
    for hint in hints {
        note(format_args!("mount option \"{hint}\" has no effect here"));
    }
    Ok(options)
}
