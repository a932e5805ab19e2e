//! What is mounted: the filesystem of an image, or an empty one in memory.

use std::sync::Arc;

use undercroft_fuse::MountOptions;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Vfs, VfsOptions};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::ImageSpec;

/// Stands in an image's place for a filesystem in memory. A file of this name is `./tmpfs:`.
const TMPFS: &str = "tmpfs:";

/// What is mounted, and how it is made.
#[derive(Debug)]
pub(super) enum MountSource<'a> {
    Image(&'a ImageSpec),
    Tmpfs { how: TmpfsOptions, vfs: VfsOptions },
}

impl<'a> MountSource<'a> {
    /// The source that the user named, with the list of options that stands after `-o`; and how it is mounted,
    /// which the rest of the list says.
    pub(super) fn parse(image: &'a ImageSpec, options: &[String]) -> Result<(Self, MountOptions), Failure> {
        let mut source = Self::named(image)?;
        let mut settings = MountOptions {
            fs_name: source.shown(),
            read_only: matches!(source, Self::Image(_)),
            ..MountOptions::default()
        };
        for option in options.iter().flat_map(|list| list.split(',')) {
            if !source.apply(option)? {
                settings.apply(option).map_err(|error| Failure::of(Kind::Usage, &error))?;
            }
        }
        Ok((source, settings))
    }

    fn named(image: &'a ImageSpec) -> Result<Self, Failure> {
        if image.path.as_os_str() != TMPFS {
            return Ok(Self::Image(image));
        }
        if image.partition.is_some() || image.direct || !image.lock || image.allow_backing {
            return Err(Failure::new(
                Kind::Usage,
                format!("{TMPFS} is no image: it has no partitions, and nothing to read, lock or back"),
            ));
        }
        Ok(Self::Tmpfs { how: TmpfsOptions::default(), vfs: VfsOptions::default() })
    }

    /// Applies one option, if it is about the filesystem itself and not about its mount.
    fn apply(&mut self, option: &str) -> Result<bool, Failure> {
        let Self::Tmpfs { how, vfs } = self else { return Ok(false) };
        match option {
            "pdirops=on" => vfs.parallel_directory_operations = true,
            "pdirops=off" => vfs.parallel_directory_operations = false,
            _ => return how.apply(option).map_err(|error| Failure::of(Kind::Usage, &error)),
        }
        Ok(true)
    }

    /// What `mount` and `findmnt` show as the source.
    pub(super) fn shown(&self) -> String {
        let Self::Image(image) = self else { return TMPFS.to_owned() };
        let path = image.path.canonicalize().unwrap_or_else(|_| image.path.clone());
        match image.partition {
            Some(number) => format!("{}?part={number}", path.display()),
            None => path.display().to_string(),
        }
    }

    /// Opens or makes the filesystem. The caller becomes its only owner, so that unmounting closes it.
    pub(super) fn open(&self) -> Result<Arc<Vfs>, Failure> {
        match self {
            Self::Image(image) => Ok(image::open(image)?.vfs),
            Self::Tmpfs { how, vfs } => {
                let tmpfs = Tmpfs::new(how)
                    .map_err(|error| Failure::new(Kind::of(&error), "cannot make a tmpfs").because(&error))?;
                Ok(Vfs::new(tmpfs, *vfs))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn spec(path: &str) -> ImageSpec {
        ImageSpec {
            path: PathBuf::from(path),
            partition: None,
            direct: false,
            lock: true,
            allow_backing: false,
        }
    }

    fn list(options: &str) -> Vec<String> {
        options.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn options_go_to_the_filesystem_or_to_the_mount() {
        let tmpfs = spec("tmpfs:");
        let (source, settings) =
            MountSource::parse(&tmpfs, &list("size=1M,pdirops=off,mode=700,suid,nr_inodes=9")).unwrap();
        let MountSource::Tmpfs { how, vfs } = source else { panic!("not a tmpfs") };
        assert_eq!((how.size_bytes, how.mode, how.inodes), (Some(1 << 20), 0o700, Some(9)));
        assert!(!vfs.parallel_directory_operations);
        assert!(settings.suid && !settings.read_only);
        assert_eq!(settings.fs_name, "tmpfs:");
        for wrong in ["size=x", "pdirops=perhaps", "sise=1M"] {
            assert_eq!(MountSource::parse(&tmpfs, &list(wrong)).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
    }

    #[test]
    fn an_image_knows_no_options_of_tmpfs() {
        let image = spec("disk.img");
        assert!(MountSource::parse(&image, &list("size=1M")).is_err());
        let (_, settings) = MountSource::parse(&image, &list("suid")).unwrap();
        assert!(settings.read_only && settings.suid);
    }

    #[test]
    fn nothing_of_an_image_goes_with_a_tmpfs() {
        assert!(MountSource::parse(&ImageSpec { direct: true, ..spec("tmpfs:") }, &[]).is_err());
        assert!(MountSource::parse(&ImageSpec { lock: false, ..spec("tmpfs:") }, &[]).is_err());
    }
}
