//! What is mounted: the filesystem of an image, or an empty one in memory.

use std::path::Path;
use std::sync::Arc;

use undercroft_ext4::OrphanForm;
use undercroft_fuse::MountOptions;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Vfs, VfsOptions};

use super::super::info::recorded_errors;
use super::served::{ServedArray, Source};
use crate::control::protocol::Mode;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::image::writing::Writing;
use crate::image::{self, Filesystem, OpenArray, Opened, Use};
use crate::mount_helper::is_write_protected;
use crate::mount_options;
use crate::plan::ImageSpec;
use crate::text::note::note;

/// Stands in an image's place for a filesystem in memory. A file of this name is `./tmpfs:`.
pub(crate) const TMPFS: &str = "tmpfs:";

/// What is mounted, and how it is made.
#[derive(Debug)]
pub(super) enum MountSource<'a> {
    Image { image: &'a ImageSpec, what_for: Use, vfs: VfsOptions },
    Tmpfs { how: TmpfsOptions, vfs: VfsOptions },
}

/// What the options of an image say, in whatever order.
#[derive(Debug, Default)]
struct ImageOptions {
    write: Writing,
    no_recovery: bool,
}

impl<'a> MountSource<'a> {
    /// The source that the user named, with the list of options that stands after `-o`; and how it is mounted,
    /// which the rest of the list says. Changes to a `snapshot` are kept beside the image.
    pub(super) fn parse(
        image: &'a ImageSpec,
        options: &[String],
        snapshot: bool,
    ) -> Result<(Self, MountOptions), Failure> {
        let mut source = Self::named(image, snapshot)?;
        let mut settings = MountOptions {
            fs_name: source.shown(),
            read_only: matches!(source, Self::Image { .. }) && !snapshot,
            ..MountOptions::default()
        };
        if snapshot {
            // Nothing of it outlives the mount.
            settings.commit_pause = None;
        }
        let mut of_image = ImageOptions::default();
        for option in options.iter().flat_map(|list| list.split(',')) {
            let known = match &mut source {
                Self::Tmpfs { how, vfs } => {
                    apply_vfs(vfs, option)
                        || how.apply(option).map_err(|error| Failure::of(Kind::Usage, &error))?
                }
                Self::Image { vfs, .. } => apply_vfs(vfs, option) || of_image.apply(option)?,
            };
            if !known {
                if let Some(failure) = mount_options::elsewhere(option, matches!(source, Self::Tmpfs { .. }))
                {
                    return Err(failure);
                }
                settings.apply(option).map_err(|error| Failure::of(Kind::Usage, &error))?;
            }
        }
        if let Self::Image { what_for, .. } = &mut source {
            *what_for = of_image.what_for(settings.read_only, snapshot)?;
        }
        Ok((source, settings))
    }

    fn named(image: &'a ImageSpec, snapshot: bool) -> Result<Self, Failure> {
        if image.path.as_os_str() != TMPFS {
            return Ok(Self::Image { image, what_for: Use::Read, vfs: VfsOptions::default() });
        }
        let how = image.direct || !image.lock || image.write_while_in_use || image.allow_backing;
        if image.partition.is_some() || how || snapshot {
            return Err(Failure::new(
                Kind::Usage,
                format!("{TMPFS} is no image: it has no partitions, and nothing to read, lock, keep or back"),
            ));
        }
        // As Linux's tmpfs: the root directory is the mounting user's.
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let how = TmpfsOptions { uid, gid, ..TmpfsOptions::default() };
        Ok(Self::Tmpfs { how, vfs: VfsOptions::default() })
    }

    /// What `mount` and `findmnt` show as the source.
    pub(super) fn shown(&self) -> String {
        let Self::Image { image, .. } = self else { return TMPFS.to_owned() };
        if let Some(array) = &image.array {
            return array.shown_absolute(image.partition.map(u32::from));
        }
        let path = image.path.canonicalize().unwrap_or_else(|_| image.path.clone());
        let typed = ImageSpec { path, log: None, ..(*image).clone() }.typed();
        Path::new(&typed).display().to_string()
    }

    /// Opens or makes the filesystem, and the array that it lies on, which is closed after it. The caller becomes their only
    /// owner, so that the image is free after unmounting.
    pub(super) fn open(&self) -> Result<(Arc<Vfs>, Option<OpenArray>, Source), Failure> {
        match self {
            Self::Image { image, what_for, vfs } => {
                let Opened { vfs, filesystem, partition, array, freezer } =
                    image::open_for(image, *what_for, *vfs).map_err(|failure| {
                        if matches!(what_for, Use::Write(_)) && is_write_protected(image) {
                            failure.noting("to read it, leave out \"rw\"".to_owned())
                        } else {
                            failure
                        }
                    })?;
                if let Filesystem::Ext4(ext4) = &filesystem
                    && let Some(errors) = recorded_errors(ext4.superblock())
                {
                    note(format_args!("{}: {errors}", image.shown()));
                }
                if let Filesystem::Xfs(xfs) = &filesystem
                    && xfs.write_stats().inodes_left > 0
                {
                    note(format_args!(
                        "{}: space of deleted files could not be freed, for they are damaged or it is \
                         full; run xfs_repair on it while it is not mounted",
                        image.shown()
                    ));
                }
                let mut spec = (*image).clone();
                spec.make_absolute();
                let source = Source {
                    shown: self.shown(),
                    spec: Some(spec),
                    mode: match what_for {
                        Use::Read | Use::ReadAsIs => Mode::ReadOnly,
                        Use::Write(_) => Mode::ReadWrite,
                        Use::Try(_) => Mode::Snapshot,
                    },
                    partition,
                    file: FileId::of_path(&image.path),
                    filesystem: Arc::downgrade(vfs.filesystem()),
                    kind: Some(filesystem.downgrade()),
                    array: array.as_ref().map(ServedArray::new),
                    freezer: freezer.as_ref().map(Arc::downgrade),
                    log: None,
                };
                Ok((vfs, array, source))
            }
            Self::Tmpfs { how, vfs } => {
                let tmpfs = Tmpfs::new(how)
                    .map_err(|error| Failure::new(Kind::of(&error), "cannot make a tmpfs").because(&error))?;
                let vfs = Vfs::new(tmpfs, *vfs);
                let source = Source {
                    shown: self.shown(),
                    spec: None,
                    mode: Mode::ReadWrite,
                    partition: None,
                    file: None,
                    filesystem: Arc::downgrade(vfs.filesystem()),
                    kind: None,
                    array: None,
                    freezer: None,
                    log: None,
                };
                Ok((vfs, None, source))
            }
        }
    }
}

impl ImageOptions {
    /// Applies one option, if it is about the filesystem itself and not about its mount.
    fn apply(&mut self, option: &str) -> Result<bool, Failure> {
        let write = &mut self.write;
        match option {
            "norecovery" | "noload" => self.no_recovery = true,
            "sync" => write.synchronous = true,
            "async" => write.synchronous = false,
            "discard" => write.discard = true,
            "nodiscard" => write.discard = false,
            "orphan=file" => write.orphans = Some(OrphanForm::Best),
            "orphan=list" => write.orphans = Some(OrphanForm::List),
            "orphan=locked" => write.orphans = Some(OrphanForm::Locked),
            "overwrite=direct" => write.journaled_overwrites = false,
            "overwrite=journaled" => write.journaled_overwrites = true,
            "finobt=on" => write.search_free_inode_tree = Some(true),
            "finobt=off" => write.search_free_inode_tree = Some(false),
            _ => {
                let (name, value) = option.split_once('=').unwrap_or((option, ""));
                let takes = match name {
                    "commit" => match value.parse() {
                        Ok(seconds @ 1..) => {
                            write.commit_seconds = Some(seconds);
                            return Ok(true);
                        }
                        _ => "a number of seconds from 1",
                    },
                    "orphan" => "\"file\", \"list\" or \"locked\"",
                    "overwrite" => "\"direct\" or \"journaled\"",
                    "finobt" => "\"on\" or \"off\"",
                    _ => return Ok(false),
                };
                return Err(Failure::new(Kind::Usage, format!("mount option \"{option}\" takes {takes}")));
            }
        }
        Ok(true)
    }

    fn what_for(&self, read_only: bool, snapshot: bool) -> Result<Use, Failure> {
        match (self.no_recovery, read_only, snapshot) {
            (true, true, false) => Ok(Use::ReadAsIs),
            (true, ..) => Err(Failure::new(
                Kind::Usage,
                "mount option \"norecovery\": without its journal a filesystem can only be read; mount it with \"ro\"",
            )),
            (false, true, _) => Ok(Use::Read),
            (false, false, true) => Ok(Use::Try(self.write)),
            (false, false, false) => Ok(Use::Write(self.write)),
        }
    }
}

/// Applies an option that every filesystem has.
fn apply_vfs(vfs: &mut VfsOptions, option: &str) -> bool {
    match option {
        "pdirops=on" => vfs.parallel_directory_operations = true,
        "pdirops=off" => vfs.parallel_directory_operations = false,
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn spec(path: &str) -> ImageSpec {
        ImageSpec::plain(PathBuf::from(path))
    }

    fn list(options: &str) -> Vec<String> {
        options.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn options_go_to_the_filesystem_or_to_the_mount() {
        let tmpfs = spec("tmpfs:");
        let (source, settings) =
            MountSource::parse(&tmpfs, &list("size=1M,pdirops=off,mode=700,suid,nr_inodes=9"), false)
                .unwrap();
        let MountSource::Tmpfs { how, vfs } = source else { panic!("not a tmpfs") };
        assert_eq!((how.size_bytes, how.mode, how.inodes), (Some(1 << 20), 0o700, Some(9)));
        assert!(!vfs.parallel_directory_operations);
        assert!(settings.suid && !settings.read_only);
        assert_eq!(settings.fs_name, "tmpfs:");
        for wrong in ["size=x", "pdirops=perhaps", "sise=1M"] {
            assert_eq!(
                MountSource::parse(&tmpfs, &list(wrong), false).unwrap_err().kind(),
                Kind::Usage,
                "{wrong}"
            );
        }
    }

    #[test]
    fn an_image_knows_no_options_of_tmpfs() {
        let image = spec("disk.img");
        assert!(MountSource::parse(&image, &list("size=1M"), false).is_err());
        let (_, settings) = MountSource::parse(&image, &list("suid"), false).unwrap();
        assert!(settings.read_only && settings.suid);
    }

    #[test]
    fn an_image_is_written_to_only_when_that_is_said() {
        let image = spec("disk.img");
        let what_for = |options: &str, snapshot| {
            let (source, settings) = MountSource::parse(&image, &list(options), snapshot)?;
            let MountSource::Image { what_for, .. } = source else { panic!("not an image") };
            Ok::<_, Failure>((what_for, settings.read_only))
        };
        let plain = Writing::default();
        assert_eq!(what_for("suid", false).unwrap(), (Use::Read, true));
        assert_eq!(what_for("norecovery", false).unwrap(), (Use::ReadAsIs, true));
        assert_eq!(what_for("rw", false).unwrap(), (Use::Write(plain), false));
        assert_eq!(what_for("", true).unwrap(), (Use::Try(plain), false));
        assert_eq!(what_for("ro", true).unwrap(), (Use::Read, true));
        let (how, _) = what_for("commit=9,rw,sync,discard,orphan=locked,overwrite=journaled", false).unwrap();
        let expected = Writing {
            commit_seconds: Some(9),
            orphans: Some(OrphanForm::Locked),
            journaled_overwrites: true,
            synchronous: true,
            discard: true,
            search_free_inode_tree: None,
            is_by_tool: false,
        };
        assert_eq!(how, Use::Write(expected));
        for wrong in ["rw,norecovery", "commit=0", "commit=x", "orphan=perhaps", "finobt=of", "finobt"] {
            assert_eq!(what_for(wrong, false).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
        let refusal = what_for("finobt=of", false).unwrap_err().to_string();
        assert_eq!(refusal, "mount option \"finobt=of\" takes \"on\" or \"off\"");
        assert!(what_for("norecovery", true).is_err());
    }

    #[test]
    fn nothing_of_an_image_goes_with_a_tmpfs() {
        assert!(MountSource::parse(&ImageSpec { direct: true, ..spec("tmpfs:") }, &[], false).is_err());
        assert!(MountSource::parse(&ImageSpec { lock: false, ..spec("tmpfs:") }, &[], false).is_err());
        assert!(MountSource::parse(&spec("tmpfs:"), &[], true).is_err());
    }
}
