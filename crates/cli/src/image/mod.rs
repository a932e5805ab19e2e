//! Opens an IMAGE argument: file or device, partition, filesystem.
//!
//! A filesystem on the whole device comes first, whatever the first sector says: a partition can always be named,
//! the whole device cannot. Otherwise the partition that was named, or the only one that can be meant. An array stands
//! in a device's place (`array`).

mod array;
pub(crate) mod array_events;
pub(crate) mod checked;
pub(crate) mod details;
pub(crate) mod filesystem;
pub(crate) mod new_file;
mod partition;
pub(crate) mod recovery;
mod rescue;
mod temporary;
pub(crate) mod unfinished;
pub(crate) mod writing;

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use undercroft_block::probe::{self, Class};
use undercroft_block::{
    Access, Device, FileOptions, FreezableDevice, ImageOptions, InUse, Locking, OpenError, Overlay,
    OverlayStore, open_image,
};
use undercroft_ext4::{MkfsError, MmpWait, Present};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::{self as vfs, Credentials, Follow, Node, Vfs, VfsOptions};

pub(crate) use filesystem::{Filesystem, FilesystemKind};
pub(crate) use partition::Partitioned;
pub(crate) use rescue::refuse_copies;

pub(crate) use array::{
    OpenArray, failure as md_failure, identity, open_array, open_member, open_new_member,
};

use filesystem::KINDS;
use writing::Writing;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::lost_gpt;
use crate::plan::ImageSpec;
use crate::text::bar::Bar;
use crate::text::names::safe;
use crate::text::note::{line, note};

/// An open filesystem.
pub(crate) struct Opened {
    /// The filesystem with its caches.
    pub(crate) vfs: Arc<Vfs>,
    /// The filesystem by its own type, for what only some kinds have.
    pub(crate) filesystem: Filesystem,
    /// The partition it lies in.
    pub(crate) partition: Option<u32>,
    /// The array that it lies on, which a writer closes after the filesystem.
    pub(crate) array: Option<OpenArray>,
    /// What can hold back writes to it, if there are any.
    pub(crate) freezer: Option<Arc<FreezableDevice>>,
}

/// What may be done with an image, besides reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing; a journal that holds changes is replayed in memory.
    #[default]
    Read,
    /// Nothing, and its journal is not looked at.
    ReadAsIs,
    /// Changes are written to it.
    Write(Writing),
    /// Changes are kept beside it, and gone when it is closed.
    Try(Writing),
}

/// Opens what the user named, for reading.
pub(crate) fn open(spec: &ImageSpec) -> Result<Opened, Failure> {
    open_for(spec, Use::Read, VfsOptions::default())
}

/// Opens what the user named.
pub(crate) fn open_for(spec: &ImageSpec, what_for: Use, vfs: VfsOptions) -> Result<Opened, Failure> {
    let Located { mut device, log, array, partition, shown } = locate_for(spec, what_for)?;
    if matches!(what_for, Use::Read | Use::ReadAsIs) {
        device = rescue::as_large_as_declared(device, &shown);
    }
    let freezer =
        matches!(what_for, Use::Write(_)).then(|| Arc::new(FreezableDevice::new(Arc::clone(&device))));
    let device = freezer.clone().map_or(device, |freezer| freezer as Device);
    let opened = open_filesystem(device, log, partition, &shown, what_for)?;
    Ok(Opened { array, freezer, ..opened.with_vfs(vfs) })
}

/// A device that was found, and not looked into.
pub(crate) struct Located {
    /// The whole disk, or the partition.
    pub(crate) device: Device,
    /// The device that its log is on, if one was named.
    pub(crate) log: Option<Device>,
    /// The array that it is or lies on.
    array: Option<OpenArray>,
    /// The partition's number.
    pub(crate) partition: Option<u32>,
    /// What to call it.
    pub(crate) shown: String,
}

/// Finds the device that the user named, or the partition on it that can be meant, for reading.
pub(crate) fn locate(spec: &ImageSpec) -> Result<Located, Failure> {
    locate_for(spec, Use::Read)
}

/// The same to write to it.
pub(crate) fn locate_to_write(spec: &ImageSpec) -> Result<Located, Failure> {
    locate_for(spec, Use::Write(Writing::default()))
}

impl Located {
    /// Ends the use of the device.
    ///
    /// # Errors
    /// When an array could not be left clean.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.array.map_or(Ok(()), |open| open.array.close().map_err(|error| md_failure(&error)))
    }
}

/// The partitions of the disk that the user named, for reading; `None` if a filesystem fills it, one partition was named,
/// or only one is there and can be meant.
pub(crate) fn partitioned(spec: &ImageSpec) -> Result<Option<Partitioned>, Failure> {
    let (device, _array) = open_disk(spec, false)?;
    partition::partitioned(spec, device)
}

/// The disk that the user named and its partitions, for reading, whatever else is on it.
pub(crate) fn disk(spec: &ImageSpec) -> Result<Partitioned, Failure> {
    let (device, _array) = open_disk(spec, false)?;
    partition::disk(spec, device)
}

/// The whole device that the user named, or the partition if one was named, for reading, whatever is on it.
pub(crate) fn open_whole(spec: &ImageSpec) -> Result<(Device, Option<OpenArray>), Failure> {
    let (device, array) = open_disk(spec, false)?;
    match spec.partition {
        None => Ok((device, array)),
        Some(_) => Ok((partition::choose(spec, device, false)?.0, array)),
    }
}

fn locate_for(spec: &ImageSpec, what_for: Use) -> Result<Located, Failure> {
    let to_write = matches!(what_for, Use::Write(_) | Use::Try(_));
    if to_write {
        rescue::refuse_copies(spec)?;
    }
    let (mut device, array) = open_disk(spec, matches!(what_for, Use::Write(_)))?;
    if let Use::Try(_) = what_for {
        device = keep_beside(device)?;
    }
    if matches!(what_for, Use::Write(_)) && array.is_none() {
        refuse_member(&device, &spec.shown())?;
    }
    let (mut device, partition) = partition::choose(spec, device, to_write)?;
    let shown = match partition {
        Some(number) if spec.partition.is_none() => format!("{} (partition {number})", spec.shown()),
        Some(number) if spec.array.is_none() => spec.shown_with_part(&number.to_string()),
        Some(_) => spec.shown(),
        None => spec.shown(),
    };
    if matches!(what_for, Use::Write(_)) && array.is_none() && partition.is_some() {
        refuse_member(&device, &shown)?;
    }
    if let Some(block) = spec.superblock {
        device = rescue::through_copy(device, &shown, block.get())?;
    }
    let mut log =
        spec.log.as_deref().map(|log| open_log(spec, log, matches!(what_for, Use::Write(_)))).transpose()?;
    if let Use::Try(_) = what_for {
        log = log.map(keep_beside).transpose()?;
    }
    Ok(Located { device, log, array, partition, shown })
}

/// Refuses a member of an array, whose other members would not change with it. A mirror's first bytes are those of its
/// filesystem.
fn refuse_member(device: &Device, shown: &str) -> Result<(), Failure> {
    let found = probe::probe(&**device).map_err(|error| {
        let error = vfs::Error::from(error);
        Failure::new(Kind::of(&error), format!("cannot read {shown}")).because(&error)
    })?;
    match found.filter(|found| found.format.name == "linux_raid_member") {
        None => Ok(()),
        Some(found) => Err(Failure::new(
            Kind::Unsupported,
            format!("{shown} holds {}, and is not written to alone", found.format.what),
        )
        .advise(format!(
            "name the array: `md:{shown},MEMBER,...`; if it is in none any more, `mdadm --zero-superblock` says so"
        ))),
    }
}

/// A device that takes changes and leaves the one below as it is. What is changed lies in a file without a name.
fn keep_beside(device: Device) -> Result<Device, Failure> {
    let store = OverlayStore::TempFile(env::temp_dir());
    let overlay = Overlay::with_store(device, &store).map_err(|error| {
        Failure::of(Kind::Host, &error).advise("set TMPDIR to a directory that has room for what is changed")
    })?;
    Ok(Arc::new(overlay))
}

/// A device that is to be written.
#[derive(Debug)]
pub(crate) struct ToOverwrite {
    pub(crate) device: Device,
    /// The array that it is or lies on.
    array: Option<OpenArray>,
}

impl ToOverwrite {
    /// The members of its array, if it has one.
    pub(crate) fn members(&self) -> impl Iterator<Item = &ImageSpec> {
        self.array.iter().flat_map(|open| open.members.iter().map(|(member, _)| member))
    }

    /// Ends the writing.
    ///
    /// # Errors
    /// When an array could not be left clean.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self.array {
            None => Ok(()),
            Some(open) => open.array.close().map_err(|error| md_failure(&error)),
        }
    }
}

/// A raw image file that was made longer.
pub(crate) struct Lengthened {
    file: File,
    /// Its length before, in bytes.
    pub(crate) before: u64,
    now: u64,
}

impl Lengthened {
    /// Makes it as long as it was, unless another program has changed its length meanwhile. The filesystem must end at or
    /// before that length.
    pub(crate) fn undo(self) {
        if self.file.metadata().is_ok_and(|metadata| metadata.len() == self.now) {
            let _ = self.file.set_len(self.before);
        }
    }
}

/// Whether a file begins as a qcow2 image does.
pub(crate) fn is_qcow2(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"QFI\xfb"
}

/// The size of the disk that is in a qcow2 image.
fn qcow2_disk_bytes(file: &File) -> io::Result<u64> {
    const SIZE_AT: u64 = 24;
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, SIZE_AT)?;
    Ok(u64::from_be_bytes(bytes))
}

/// Makes a file that holds a raw image as long as `size_bytes`, if it is shorter. What else the user may have named stays
/// as it is. If `open` tells which file is in use, another one of that name is refused.
pub(crate) fn lengthen_raw_file(
    spec: &ImageSpec,
    open: Option<FileId>,
    size_bytes: u64,
) -> Result<Option<Lengthened>, Failure> {
    let failed = |error: io::Error| Failure::host(format!("cannot make {} larger", spec.shown()), &error);
    // The path of an array names no file.
    if spec.array.is_some() || spec.partition.is_some() {
        return Ok(None);
    }
    let file = File::options().read(true).write(true).open(&spec.path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if open.is_some_and(|open| FileId::of_file(&metadata) != Some(open)) {
        let what = format!("{} is another file than the one that is mounted", spec.shown());
        return Err(Failure::new(Kind::CannotOpen, what).advise("make the mounted one larger first"));
    }
    if !metadata.is_file() {
        return Ok(None);
    }
    let is_qcow2 = is_qcow2(&file);
    let now = if is_qcow2 { qcow2_disk_bytes(&file).map_err(failed)? } else { metadata.len() };
    if now >= size_bytes {
        return Ok(None);
    }
    if is_qcow2 {
        let what = format!("{} is smaller than {size_bytes} bytes", spec.shown());
        let advice = format!("`qemu-img resize {} {size_bytes}` makes it larger", spec.shown());
        return Err(Failure::new(Kind::Unsupported, what).advise(advice));
    }
    file.set_len(size_bytes).map_err(failed)?;
    Ok(Some(Lengthened { file, before: metadata.len(), now: size_bytes }))
}

/// Opens the device that is to be written, whatever is on it.
pub(crate) fn open_to_overwrite(spec: &ImageSpec) -> Result<ToOverwrite, Failure> {
    rescue::refuse_copies(spec)?;
    let (device, array) = open_disk(spec, true)?;
    Ok(ToOverwrite { device: partition::to_overwrite(spec, device)?, array })
}

/// Opens two partitions of one disk, of which `to` is to be written: the disk once, since it has one writer.
pub(crate) fn open_two_partitions(
    from: &ImageSpec,
    to: &ImageSpec,
) -> Result<(Device, ToOverwrite), Failure> {
    rescue::refuse_copies(to)?;
    rescue::refuse_copies_of_source(from)?;
    let spec = ImageSpec { direct: from.direct, allow_backing: from.allow_backing, ..to.clone() };
    let disk = open_device(&spec, true)?;
    let (from, device) = partition::two(from, to, &disk)?;
    Ok((from, ToOverwrite { device, array: None }))
}

/// What is on a device that is to be overwritten. Looking takes long where there is much that turns out to be zeroes.
pub(crate) fn what_is_on(device: &Device) -> Result<Option<Present>, Failure> {
    let bar = Bar::new();
    let size = device.size_bytes();
    let found = undercroft_ext4::what_is_on(&**device, &mut |at| bar.show("looking", at, size));
    found.map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))
}

/// Refuses to overwrite what is on a device.
pub(crate) fn refuse_present(device: &Device) -> Result<(), Failure> {
    what_is_on(device)?.map_or(Ok(()), |what| Err(present(device, what)))
}

/// Why a device is not overwritten.
pub(crate) fn present(device: &Device, what: Present) -> Failure {
    let lost = matches!(what, Present::Unknown { .. }).then(|| lost_gpt::advice(&**device)).flatten();
    let present = MkfsError::Present { device: device.name(), what };
    let failure = Failure::of(Kind::of_mkfs(&present), &present).advise("`--force` overwrites it");
    match lost {
        Some(lost) => failure.noting(lost),
        None => failure,
    }
}

/// The kind of filesystem on a device; refuses a device without one, naming what is on it instead.
pub(crate) fn require_filesystem(device: &Device, shown: &str) -> Result<FilesystemKind, Failure> {
    let device_failed =
        |error: vfs::Error| Failure::new(Kind::of(&error), format!("cannot read {shown}")).because(&error);
    if let Some(kind) = FilesystemKind::on(device).map_err(device_failed)? {
        return Ok(kind);
    }
    let found = probe::probe(&**device).map_err(|error| device_failed(error.into()))?;
    Err(match found.filter(|found| found.format.class != Class::Table) {
        Some(found) => {
            let name = found.format.what;
            if found.format.name == "linux_raid_member" {
                let advice = format!(
                    "name the array: `md:{shown},MEMBER,...`, or `md:DIR` for all members in a directory; `undercroft md \
                     examine {shown}` tells about it"
                );
                return Err(Failure::new(Kind::Unsupported, format!("{shown} holds {name}")).advise(advice));
            }
            // Its mark is there, and not all of what stands behind that.
            if found.format.name.starts_with("ext") {
                let bytes = device.size_bytes();
                let what = format!("{shown} holds {name}, and is cut off behind byte {bytes}");
                return Err(Failure::new(Kind::Corrupt, what)
                    .advise("nothing of it is left that could be read: take another copy of the image"));
            }
            Failure::new(Kind::Unsupported, format!("{shown} holds {name}, which this version cannot open"))
                .advise(format!("it opens {KINDS}"))
        }
        None => {
            let failure = Failure::new(
                Kind::Unsupported,
                format!("{shown} holds no filesystem that this program knows"),
            );
            failure.advise(
                rescue::advice(device)
                    .unwrap_or_else(|| format!("it opens {KINDS}, on a whole disk or in a partition")),
            )
        }
    })
}

/// Opens the filesystem on a device.
pub(crate) fn open_filesystem(
    device: Device,
    log: Option<Device>,
    partition: Option<u32>,
    shown: &str,
    what_for: Use,
) -> Result<Opened, Failure> {
    let kind = require_filesystem(&device, shown)?;
    let looked_at = Device::clone(&device);
    let filesystem = kind.open(device, log, what_for, shown).map_err(|error| {
        let failure =
            Failure::new(Kind::of(&error), format!("cannot open the filesystem on {shown}")).because(&error);
        match error {
            vfs::Error::Corrupt(_) => failure.advise(rescue::advice_on_damage(kind, &looked_at)),
            _ => failure,
        }
    })?;
    let vfs = Vfs::new(filesystem.for_vfs(), VfsOptions::default());
    Ok(Opened { vfs, filesystem, partition, array: None, freezer: None })
}

impl Opened {
    /// Ends the use of a filesystem that was opened for writing, and of the array below it.
    ///
    /// # Errors
    /// The filesystem's first failure since it was opened, as `failed` tells it; when an array could not be left clean.
    pub(crate) fn close(self, failed: impl FnOnce(&vfs::Error) -> Failure) -> Result<(), Failure> {
        let closed = self.filesystem.for_vfs().close().map_err(|error| failed(&error));
        let array_closed = self.array.map_or(Ok(()), |open| open.array.close());
        closed.and(array_closed.map_err(|error| md_failure(&error)))
    }

    /// The same with other caches and locks.
    fn with_vfs(self, options: VfsOptions) -> Self {
        Self { vfs: Vfs::new(self.filesystem.for_vfs(), options), ..self }
    }
}

/// A user at a terminal should know why nothing happens.
pub(crate) fn tell_of_wait(wait: &MmpWait) {
    if io::stderr().is_terminal() {
        let (seconds, host) = (wait.at_most.as_secs(), safe(wait.host.as_bytes()));
        line(format_args!("waiting {seconds} s to see whether host \"{host}\" is using the image"));
    }
}

/// What a path inside the image names. A user of the image may read all of it.
pub(crate) fn resolve(vfs: &Vfs, path: &[u8], follow: bool) -> Result<Arc<Node>, Failure> {
    let follow = if follow { Follow::Last } else { Follow::NoFollow };
    vfs.resolve(&Credentials::root(), path, follow).map_err(|error| Failure::inside(path, &error))
}

/// The disk that was named: an array, or what one file or block device holds.
fn open_disk(spec: &ImageSpec, to_write: bool) -> Result<(Device, Option<OpenArray>), Failure> {
    if spec.array.is_some() {
        let open = open_array(spec, to_write, &[])?;
        array_events::watch(&spec.shown(), &open.array)?;
        return Ok((Arc::clone(&open.array) as Device, Some(open)));
    }
    Ok((open_device(spec, to_write)?, None))
}

/// The device that a filesystem has its log on.
fn open_log(spec: &ImageSpec, log: &Path, to_write: bool) -> Result<Device, Failure> {
    let log = spec.member(&ImageSpec::plain(log.to_owned()));
    if spec.array.is_none() && spec.partition.is_none() && identity(&log) == identity(spec) {
        let what = format!("{} cannot be the device of its own log", spec.shown());
        return Err(Failure::new(Kind::Usage, what)
            .advise("name the other device; with the log inside of the filesystem leave `?log=` off"));
    }
    open_device(&log, to_write)
}

/// The disk that the file or block device holds.
fn open_device(spec: &ImageSpec, to_write: bool) -> Result<Device, Failure> {
    if to_write && !spec.lock && !spec.write_while_in_use {
        let what = format!("`--no-lock` is for reading, and {} is to be written", spec.shown());
        let advice =
            "`--write-while-in-use` writes to what something else uses, which may destroy everything on it";
        return Err(Failure::new(Kind::Usage, what).advise(advice));
    }
    let locking = match if to_write { !spec.write_while_in_use } else { spec.lock } {
        true => Locking::Advisory,
        false => Locking::None,
    };
    let on_use = if spec.quiet { |_: &InUse<'_>| {} } else { tell_of_use };
    let file = if to_write { FileOptions::read_write() } else { FileOptions::read_only() };
    let file = FileOptions { direct: spec.direct, locking, on_use, ..file };
    let options = ImageOptions { file, allow_backing: spec.allow_backing, ..ImageOptions::read_only() };
    open_image(&spec.path, options).map_err(|error| match &error {
        OpenError::InUse { wanted: Access::ReadOnly, .. }
        | OpenError::LockUnsupported { wanted: Access::ReadOnly, .. }
            if spec.may_skip_lock =>
        {
            open_failure(&error).advise("`--no-lock` does the latter")
        }
        // What is read here decides what is written next.
        OpenError::InUse { wanted: Access::ReadOnly, .. } => {
            open_failure(&error).advise("this command can only wait")
        }
        OpenError::OtherFileDenied { .. } => open_failure(&error).advise(spec.advice_on_backing()),
        _ => open_failure(&error),
    })
}

/// The user should know why what is read may make no sense, and why what is written may not last. Told once for each
/// file.
fn tell_of_use(found: &InUse<'_>) {
    static TOLD: LazyLock<Mutex<Vec<PathBuf>>> = LazyLock::new(|| Mutex::new(&order::DEVICE, Vec::new()));
    let mut told = TOLD.lock();
    if told.iter().any(|path| path == found.path) {
        return;
    }
    told.push(found.path.to_owned());
    drop(told);
    let consequence = match found.wanted {
        Access::ReadOnly => "what is read may be half changed",
        Access::ReadWrite => "two writers may destroy everything on it",
    };
    note(format_args!("{}; {consequence}", safe(found.to_string().as_bytes())));
}

/// `IMAGE:/PATH`, as other programs have it, in the way of this one.
fn path_behind_colon(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.windows(2).position(|pair| pair == b":/")?;
    let image = Path::new(OsStr::from_bytes(&bytes[..at]));
    image.is_file().then(|| format!("{} {}", safe(&bytes[..at]), safe(&bytes[at + 1..])))
}

/// Whether a name is one of a device, and not of a file in memory.
pub(crate) fn is_for_devices(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// What helps where a device is not there.
pub(crate) fn no_such_device(path: &Path) -> String {
    let shown = safe(path.as_os_str().as_bytes());
    format!(
        "`lsblk` lists the disks of this machine; a container has those that it is given, as with `--device {shown}`"
    )
}

pub(crate) fn open_failure(error: &OpenError) -> Failure {
    let kind = match error {
        OpenError::UnsupportedFormat { .. } => Kind::Unsupported,
        _ => Kind::CannotOpen,
    };
    let failure = Failure::of(kind, error);
    match error {
        OpenError::System { source, path, .. } => match source.kind() {
            io::ErrorKind::NotFound => match path_behind_colon(path) {
                Some(apart) => failure.advise(format!("a path inside the image stands apart: {apart}")),
                None if path.as_os_str() == "tmpfs:" => {
                    failure.advise("a filesystem in memory is there once it is mounted, at its directory")
                }
                None if path.as_os_str() == "tmpfs" => failure
                    .advise("a filesystem in memory is named with a colon: `undercroft mount tmpfs: DIR`"),
                None if is_for_devices(path) => failure.advise(no_such_device(path)),
                None => failure.advise("check the path"),
            },
            io::ErrorKind::ReadOnlyFilesystem => {
                failure.advise("it can only be read there; copy it to another filesystem to change it")
            }
            io::ErrorKind::PermissionDenied
                if rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok() =>
            {
                failure.advise("this user may read it and not write to it; `chmod u+w` allows it")
            }
            io::ErrorKind::PermissionDenied => {
                failure.advise("run as a user that may read it; disks usually belong to root")
            }
            _ => failure,
        },
        OpenError::NotADevice { .. } => failure.advise("name a disk image or a block device"),
        OpenError::DirectUnsupported { .. } => failure.advise("leave `--direct` off"),
        OpenError::NewImage { .. } => failure.counted_as(Kind::Host),
        _ => failure,
    }
}
