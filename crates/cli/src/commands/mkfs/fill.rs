//! A filesystem that is made on a device and filled.
//!
//! Nothing of it goes to a journal or log, which stays as it was made, and nothing is flushed before the end: until the
//! filesystem is whole it has no value. The clock of the filesystem stands still, and what is random otherwise is made of
//! its UUID and seed of hashes, so that the bytes depend on nothing but the sources and the options.

use std::path::PathBuf;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_ext4::{self as ext4, Ext4};
use undercroft_populate::{
    Error, FileId, FillOptions, Ruled, Source, SourceErrorKind, WriterOptions, fill, open_source,
};
use undercroft_vfs::{self as vfs, FileSystem, Timestamp, Vfs, VfsOptions, clock};
use undercroft_xfs::{self as xfs, Xfs};

use super::gathered::Gathered;
use super::{Contents, Made, make_on};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::{FillPlan, NewFormat, SourcePlan, digest};
use crate::text::note::note;

/// A commit that no clock asks for.
const NEVER_SECONDS: u32 = 1 << 30;

/// What is kept of inodes and names in memory: little, as most of them are made and not used again.
const CACHES: VfsOptions = VfsOptions {
    inode_cache_bytes: 1 << 20,
    name_cache_bytes: 512 << 10,
    parallel_directory_operations: true,
};

/// What a filesystem is filled with, opened; and how.
pub(crate) struct Filling {
    pub(crate) sources: Vec<Box<dyn Source>>,
    options: FillOptions,
    time: Timestamp,
}

/// Why filling failed.
pub(crate) enum FillFailure {
    /// There is too little space, or there are too few inodes.
    NoSpace,
    /// Anything else.
    Other(Failure),
}

impl From<Failure> for FillFailure {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<FillFailure> for Failure {
    fn from(failure: FillFailure) -> Self {
        match failure {
            FillFailure::NoSpace => {
                Self::new(Kind::Path, "the sources need more space, or more inodes, than the filesystem has")
                    .advise("give a larger size; `--size auto` makes an image file as large as needed")
            }
            FillFailure::Other(failure) => failure,
        }
    }
}

/// How much of a filesystem was used by filling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
}

impl Filling {
    /// Opens the sources. The files `not_these` are part of none; a stream that can be read only once is kept in
    /// `keep_in`. From here on the clock of this process's filesystems stands still.
    pub(crate) fn open(plan: &FillPlan, not_these: Vec<FileId>, keep_in: PathBuf) -> Result<Self, Failure> {
        let time = plan.time.unwrap_or_else(clock::now);
        let how = plan.how.opening(not_these, keep_in);
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for path in &plan.sources {
            let source = open_source(path, &how).map_err(|error| Failure::of(kind(&error.kind), &error))?;
            sources.push(Box::new(Ruled::new(source, Arc::clone(&plan.how.rules))));
        }
        Ok(Self::of(sources, &plan.how, time, plan.single_thread))
    }

    /// The same with sources that are open, and changed as a plan says. From here on the clock of this process's filesystems
    /// stands still.
    pub(crate) fn of(
        sources: Vec<Box<dyn Source>>,
        how: &SourcePlan,
        time: Timestamp,
        single_thread: bool,
    ) -> Self {
        clock::stand_still(time);
        let unnamed = Some(Arc::clone(&how.rules));
        let writer = WriterOptions { changed: Some(time), unnamed, ..WriterOptions::default() };
        Self { sources, options: FillOptions { writer, single_thread, only_space: false }, time }
    }

    /// The options of a filesystem, with the time at which it is made.
    pub(crate) fn at_its_time(&self, options: &NewFormat) -> NewFormat {
        let mut options = options.clone();
        match &mut options {
            NewFormat::Ext(options) => options.time = options.time.or(Some(self.time)),
            NewFormat::Xfs(options) => options.time = options.time.or(Some(self.time)),
        }
        options
    }

    /// Makes a filesystem on a device and fills it. The device is not flushed at the end.
    pub(crate) fn make(
        &mut self,
        device: &Device,
        options: &NewFormat,
        is_zeroed: bool,
    ) -> Result<(Made, Contents), FillFailure> {
        let made = make_on(&**device, self.at_its_time(options), is_zeroed)?;
        let (filled, ..) = self.fill(device, &made, false)?;
        Ok((made, filled))
    }

    /// Makes a filesystem without the content of files, to learn what it takes.
    pub(crate) fn rehearse(&mut self, device: &Device, options: &NewFormat) -> Result<Used, FillFailure> {
        let made = make_on(&**device, self.at_its_time(options), true)?;
        self.fill(device, &made, true).map(|(_, used)| used)
    }

    fn fill(
        &mut self,
        device: &Device,
        made: &Made,
        only_space: bool,
    ) -> Result<(Contents, Used), FillFailure> {
        let open_failed = |error: vfs::Error| Failure::of(Kind::of(&error), &error);
        let gathered = Arc::new(Gathered::new(Arc::clone(device)));
        let filesystem =
            open_unlogged(Arc::clone(&gathered) as Device, made).map_err(|error| match &error {
                // A feature that was asked for, as everything else that is made here is written too.
                vfs::Error::Unsupported(_) => open_failed(error)
                    .advise("leave that feature off, or make the filesystem without `--from`"),
                _ => open_failed(error),
            })?;
        let vfs = Vfs::new(filesystem, CACHES);
        for source in &mut self.sources {
            source.rewind().map_err(|error| Failure::of(kind(&error.kind), &error))?;
        }
        let before = vfs.filesystem().statfs().map_err(open_failed)?;
        let options = FillOptions { only_space, ..self.options.clone() };
        let filled = fill(&vfs, &mut self.sources, &options).map_err(|error| failure(&error));
        // What is left of a failure is of no use, and closing it has nothing to add.
        let closed = vfs.close();
        let filled = filled?;
        match closed {
            Err(vfs::Error::NoSpace) => return Err(FillFailure::NoSpace),
            closed => closed.map_err(open_failed)?,
        }
        gathered.write_out().map_err(|error| Failure::of(Kind::Io, &error))?;
        let after = vfs.filesystem().statfs().map_err(open_failed)?;
        let used = Used {
            blocks: before.blocks_free.saturating_sub(after.blocks_free),
            inodes: before.inodes_free.saturating_sub(after.inodes_free),
        };
        if !only_space && filled.unkept_xattrs.count > 0 {
            note(filled.unkept_xattrs);
        }
        let contents = Contents {
            entries: filled.entries,
            data_bytes: filled.data_bytes,
            free_bytes: after.blocks_free * u64::from(after.block_bytes),
            available_bytes: after.blocks_available * u64::from(after.block_bytes),
        };
        Ok((contents, used))
    }
}

/// Opens a new filesystem for changes that go to no log.
fn open_unlogged(device: Device, made: &Made) -> vfs::Result<Arc<dyn FileSystem>> {
    let seed = |parts: &[&[u8]]| {
        let bytes = digest(parts);
        Some(bytes.iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte)))
    };
    Ok(match made {
        Made::Ext(made) => {
            let superblock = &made.superblock;
            let how = ext4::WriteOptions {
                commit_seconds: NEVER_SECONDS,
                logged: false,
                counts_mount: false,
                generation_seed: seed(&[superblock.uuid().as_bytes(), superblock.hash_seed().as_bytes()]),
                ..ext4::WriteOptions::default()
            };
            Ext4::open(device, ext4::OpenOptions::default(), how)?
        }
        Made::Xfs(made) => {
            let how = xfs::WriteOptions {
                commit_seconds: NEVER_SECONDS,
                logged: false,
                generation_seed: seed(&[made.superblock.uuid().as_bytes()]),
                ..xfs::WriteOptions::default()
            };
            Xfs::open(device, xfs::OpenOptions::default(), how)?
        }
    })
}

/// A failure of filling, as the user reads it.
fn failure(error: &Error) -> FillFailure {
    FillFailure::Other(match error {
        Error::Filesystem { error: vfs::Error::NoSpace, .. } => return FillFailure::NoSpace,
        Error::Source(source) => Failure::of(kind(&source.kind), error),
        Error::Filesystem { error: cause, .. } => Failure::of(Kind::of(cause), error),
        Error::Entry { .. } => Failure::of(Kind::Path, error),
        Error::Reader => Failure::of(Kind::Host, error),
    })
}

pub(crate) const fn kind(kind: &SourceErrorKind) -> Kind {
    match kind {
        SourceErrorKind::Io(_) => Kind::Host,
        SourceErrorKind::Unsupported(_) => Kind::Unsupported,
        SourceErrorKind::Malformed(_) => Kind::Corrupt,
        SourceErrorKind::TooLarge(_) | SourceErrorKind::Refused(_) => Kind::Path,
    }
}
