//! What the process of a mount answers over its control socket.
//!
//! It holds the filesystem and the array weakly, so that it keeps neither open: a request that comes while they are being
//! closed is refused. Work on an array goes on when its client leaves, and ends with the mount, as all work on it does.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use undercroft_block::FreezableDevice;
use undercroft_block::mountinfo::{MountDevice, MountTable};
use undercroft_fuse::WeakConnection;
use undercroft_md::{Array, Finished, Status};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::FileSystem;

use crate::commands::grow::{Below, grow};
use crate::commands::info::{LiveReport, recorded_errors};
use crate::commands::label;
use crate::commands::md::{ArrayReport, Managed, Report, WorkProgress, erase_removed, verdict, wait_with};
use crate::commands::uuid::uuid_of;
use crate::control::protocol::{Answer, Bytes, MdChange, Mode, Request, Served};
use crate::control::server::{Control, Serve};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::image::filesystem::WeakFilesystem;
use crate::image::{Filesystem, OpenArray};
use crate::plan::{Change, ImageSpec};

/// What a mount is of, gathered before it is mounted.
pub(super) struct Source {
    pub(super) shown: String,
    pub(super) mode: Mode,
    /// The image, with a path that does not depend on the working directory.
    pub(super) spec: Option<ImageSpec>,
    pub(super) partition: Option<u32>,
    /// The image that is no array.
    pub(super) file: Option<FileId>,
    pub(super) filesystem: Weak<dyn FileSystem>,
    /// The filesystem of an image by its own type.
    pub(super) kind: Option<WeakFilesystem>,
    pub(super) array: Option<ServedArray>,
    /// What holds back writes to the image, if there are any.
    pub(super) freezer: Option<Weak<FreezableDevice>>,
    pub(super) log: Option<PathBuf>,
}

/// The array that a filesystem lies on.
pub(super) struct ServedArray {
    array: Weak<Array>,
    uuid: String,
    /// With the names of their devices, and paths that do not depend on the working directory.
    members: Mutex<Vec<(ImageSpec, String)>>,
}

impl ServedArray {
    pub(super) fn new(open: &OpenArray) -> Self {
        let mut members = open.members.clone();
        members.iter_mut().for_each(|(member, _)| member.make_absolute());
        Self {
            array: Arc::downgrade(&open.array),
            uuid: open.array.status().uuid.to_string(),
            members: Mutex::new(&order::MOUNT, members),
        }
    }

    fn files(&self, status: &Status) -> Vec<FileId> {
        let members = self.members.lock();
        let is_there = |device: &String| status.members.iter().any(|member| member.device == *device);
        members
            .iter()
            .filter(|(_, device)| is_there(device))
            .filter_map(|(member, _)| Some(member.file_id()?.0))
            .collect()
    }
}

/// A mount that is served.
pub(super) struct ServedMount {
    pub(super) source: Source,
    pub(super) point: PathBuf,
    pub(super) device: u64,
    /// The number is this mount's until it has ended.
    pub(super) connection: WeakConnection,
    pub(super) control: Weak<Control>,
    /// Held by a request that makes the filesystem larger, from lengthening the image file until it may be cut again.
    pub(super) growing: Mutex<()>,
}

impl Serve for ServedMount {
    fn answer(&self, request: Request, during: &mut dyn FnMut(Answer) -> bool) -> Result<Answer, Failure> {
        // Another mount may have its number and its directory from now on, while this process closes its image.
        if self.connection.has_ended() {
            return Err(self.ending());
        }
        match request {
            Request::Describe => self.describe().map(|served| Answer::Served(Box::new(served))),
            Request::Info => self.info(),
            Request::MdStatus => {
                let (array, _) = self.array()?;
                Ok(report(array.status(), None))
            }
            Request::MdChange(change) => self.change(change, during),
            Request::Grow { size_bytes } => self.grow(size_bytes, during),
            Request::Label { change_to } => self.label(change_to),
            Request::Uuid => Ok(Answer::Uuid { uuid: uuid_of(&self.kind()?).to_string() }),
            Request::Freeze => self.freeze(),
            Request::Thaw => self.thaw(),
        }
    }

    fn may_wait(&self, request: &Request) -> bool {
        // A label changes when no other request changes the superblock, and not while the image is frozen.
        matches!(request, Request::MdChange(_) | Request::Grow { .. } | Request::Label { change_to: Some(_) })
    }
}

impl ServedMount {
    fn ending(&self) -> Failure {
        Failure::new(Kind::Host, format!("{} is being unmounted", self.source.shown))
    }

    fn filesystem(&self) -> Result<Arc<dyn FileSystem>, Failure> {
        self.source.filesystem.upgrade().ok_or_else(|| self.ending())
    }

    fn array(&self) -> Result<(Arc<Array>, &ServedArray), Failure> {
        let Some(served) = &self.source.array else {
            return Err(Failure::new(Kind::Usage, format!("{} is no array", self.source.shown)));
        };
        Ok((served.array.upgrade().ok_or_else(|| self.ending())?, served))
    }

    fn describe(&self) -> Result<Served, Failure> {
        let source = &self.source;
        let filesystem = self.filesystem()?;
        let space = filesystem.statfs().map_err(|error| Failure::of(Kind::of(&error), &error))?;
        let array = source.array.as_ref().map(|_| self.array()).transpose()?;
        let status = array.as_ref().map(|(array, _)| array.status());
        let files = match (&status, &array) {
            (Some(status), Some((_, array))) => array.files(status),
            _ => source.file.into_iter().collect(),
        };
        let stopped = status.as_ref().and_then(|status| status.stopped.clone());
        Ok(Served {
            image: source.shown.clone(),
            filesystem: filesystem.kind().to_owned(),
            point: Bytes::of_path(&self.point),
            device: self.device,
            process: std::process::id(),
            mode: source.mode,
            files,
            is_array: array.is_some(),
            array_uuid: source.array.as_ref().map(|array| array.uuid.clone()),
            partition: source.partition,
            array_state: status.as_ref().map(Status::state),
            degraded: status.as_ref().map_or(0, |status| status.degraded),
            progress: status.as_ref().and_then(|status| status.progress.as_ref()).map(WorkProgress::from),
            failure: filesystem.failure().map(|error| error.to_string()).or(stopped),
            has_errors: match source.kind.as_ref().and_then(WeakFilesystem::upgrade) {
                Some(Filesystem::Ext4(ext4)) => recorded_errors(ext4.superblock()).is_some(),
                Some(Filesystem::Xfs(_)) | None => false,
            },
            is_frozen: self.freezer().is_ok_and(|freezer| freezer.is_frozen()),
            log: source.log.as_deref().map(Bytes::of_path),
            space: space.into(),
        })
    }

    fn info(&self) -> Result<Answer, Failure> {
        let kind = self.source.kind.as_ref().map(|kind| kind.upgrade().ok_or_else(|| self.ending()));
        let told = LiveReport::of(self.describe()?, kind.transpose()?.as_ref())
            .map_err(|error| Failure::of(Kind::of(&error), &error))?;
        Ok(Answer::Info(Box::new(told)))
    }

    fn change(&self, asked: MdChange, during: &mut dyn FnMut(Answer) -> bool) -> Result<Answer, Failure> {
        let (array, served) = self.array()?;
        let MdChange { change, wait } = asked;
        if let Change::Stop = change {
            let point = self.point.display();
            return Err(Failure::new(
                Kind::CannotOpen,
                format!("{} is mounted on {point}", self.source.shown),
            )
            .advise(format!("`undercroft unmount {point}` stops it")));
        }
        array.limit_sync(wait.bytes_per_second);
        let mut wait_for_work = || self.wait(&array, during);
        let mut managed =
            Managed { array: &array, members: served.members.lock().clone(), shown: &self.source.shown };
        let before = managed.members.clone();
        let found = managed.apply(&change, &mut wait_for_work);
        // Also what was done before a failure.
        let after = std::mem::take(&mut managed.members);
        {
            let mut members = served.members.lock();
            members.retain(|member| after.contains(member) || !before.contains(member));
            members.extend(after.into_iter().filter(|member| !before.contains(member)));
        }
        let found = found?;
        erase_removed(&change, &before)?;
        if wait.wait {
            wait_for_work()?;
        }
        if wait.bytes_per_second.is_some() {
            array.limit_sync(None);
        }
        Ok(report(array.status(), found.as_ref()))
    }

    /// Grows the filesystem, which is used meanwhile.
    fn grow(
        &self,
        size_bytes: Option<u64>,
        during: &mut dyn FnMut(Answer) -> bool,
    ) -> Result<Answer, Failure> {
        let source = &self.source;
        let refused = |why: &str, advice: &str| {
            Err(Failure::new(Kind::Unsupported, format!("{} {why}", source.shown)).advise(advice))
        };
        let point = self.point.display();
        let Some(kind) = &source.kind else {
            return refused(
                "is in memory, and its size is given when it is mounted",
                "mount it with `-o size=`",
            );
        };
        match source.mode {
            Mode::ReadWrite => {}
            Mode::ReadOnly => {
                return refused(&format!("is mounted read-only on {point}"), "mount it with `-o rw`");
            }
            Mode::Snapshot => {
                let why = format!("is mounted on {point} with its changes kept beside it");
                return refused(&why, "unmount it first");
            }
        }
        let filesystem = kind.upgrade().ok_or_else(|| self.ending())?;
        let _growing = self.growing.lock();
        let whole = source.spec.as_ref().filter(|_| source.partition.is_none());
        let below = Below { whole, open: source.file, shown: &source.shown };
        let mut progress = |done, all| {
            // It goes on when its client leaves.
            let _ = during(Answer::Growing { done, all });
        };
        Ok(Answer::Grown(grow(&filesystem, &below, size_bytes, &mut progress)?))
    }

    /// The filesystem of an image.
    fn kind(&self) -> Result<Filesystem, Failure> {
        let Some(kind) = &self.source.kind else {
            let what = format!("{} is in memory, and has neither label nor UUID", self.source.shown);
            return Err(Failure::new(Kind::Unsupported, what));
        };
        kind.upgrade().ok_or_else(|| self.ending())
    }

    /// The label, which may change while the filesystem is used.
    fn label(&self, change_to: Option<Bytes>) -> Result<Answer, Failure> {
        let filesystem = self.kind()?;
        let label = match change_to {
            None => label::label_of(&filesystem),
            Some(_) if self.source.mode == Mode::Snapshot => {
                let point = self.point.display();
                let what =
                    format!("{} is mounted on {point} with its changes kept beside it", self.source.shown);
                return Err(Failure::new(Kind::Unsupported, what).advise("unmount it first"));
            }
            Some(label) => label::change(&filesystem, &label.0, &self.source.shown)?,
        };
        Ok(Answer::Labelled { label: Bytes(label) })
    }

    /// Holds back what is written to the image.
    fn freeze(&self) -> Result<Answer, Failure> {
        let freezer = self.freezer()?;
        let failed = |error: &dyn std::error::Error| {
            Failure::new(Kind::Io, format!("cannot freeze {}", self.source.shown)).because(error)
        };
        let (device, connection) = (self.device, self.connection.clone());
        let is_over = move || connection.has_ended() || !is_mounted(device);
        if is_over() {
            return Err(self.ending());
        }
        if !freezer.is_frozen() {
            self.filesystem()?.sync().map_err(|error| failed(&error))?;
        }
        if freezer.freeze(Arc::new(is_over)).map_err(|error| failed(&error))? {
            return self.describe().map(|served| Answer::Served(Box::new(served)));
        }
        let what = format!("{} is frozen already", self.source.shown);
        Err(Failure::new(Kind::Host, what).advise("`undercroft thaw` lets it go on"))
    }

    /// Lets it go on.
    fn thaw(&self) -> Result<Answer, Failure> {
        if self.freezer()?.thaw() {
            return self.describe().map(|served| Answer::Served(Box::new(served)));
        }
        Err(Failure::new(Kind::Host, format!("{} is not frozen", self.source.shown)))
    }

    fn freezer(&self) -> Result<Arc<FreezableDevice>, Failure> {
        let shown = &self.source.shown;
        let Some(freezer) = &self.source.freezer else {
            return Err(Failure::new(
                Kind::Usage,
                format!("nothing is written to {shown}: it cannot be frozen"),
            ));
        };
        freezer.upgrade().ok_or_else(|| self.ending())
    }

    /// Waits for background work, for as long as there are a client and a mount.
    fn wait(
        &self,
        array: &Array,
        during: &mut dyn FnMut(Answer) -> bool,
    ) -> Result<Option<Finished>, Failure> {
        wait_with(array, &mut |progress| {
            if self.control.upgrade().is_none_or(|control| control.is_over()) {
                return Err(self.ending().advise("the next mount goes on with what is due"));
            }
            if progress.is_none_or(|progress| during(Answer::Progress(progress.into()))) {
                Ok(())
            } else {
                Err(Failure::new(Kind::Host, "the client has gone"))
            }
        })
    }
}

/// Whether a filesystem of this number is mounted, as far as this process sees. Where that cannot be read, it is.
fn is_mounted(device: u64) -> bool {
    let device = MountDevice { major: rustix::fs::major(device), minor: rustix::fs::minor(device) };
    MountTable::own().map_or(true, |table| table.mounts().any(|mount| mount.device == device))
}

fn report(status: Status, found: Option<&Finished>) -> Answer {
    Answer::Array(Box::new(ArrayReport { mismatched: verdict(found).is_some(), report: Report::of(status) }))
}
