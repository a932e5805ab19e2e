//! Feature bits, and which of them can be read.
//!
//! Version 4 has its features in `sb_versionnum` and `sb_features2`; version 5 implies most of them and has four words
//! of its own. Features that both may have are queried through methods, so that a caller need not check the version.

use std::fmt;

use bitflags::bitflags;
use undercroft_vfs::{Error, Result};

bitflags! {
    /// `sb_versionnum` above the version itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct VersionBits: u16 {
        const ATTR = 0x0010;
        const NLINK = 0x0020;
        const QUOTA = 0x0040;
        const ALIGN = 0x0080;
        const DALIGN = 0x0100;
        const SHARED = 0x0200;
        const LOGV2 = 0x0400;
        const SECTOR = 0x0800;
        const EXTFLG = 0x1000;
        const DIRV2 = 0x2000;
        /// Names are compared without regard to the case of ASCII letters.
        const BORG = 0x4000;
        const MOREBITS = 0x8000;
    }
}

bitflags! {
    /// `sb_features2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Features2: u32 {
        const LAZY_COUNTERS = 0x002;
        const ATTR2 = 0x008;
        const PARENT = 0x010;
        const PROJID32 = 0x080;
        const CRC = 0x100;
        const FTYPE = 0x200;
        const _ = !0;
    }
}

bitflags! {
    /// Features that a program may ignore while it only reads (`sb_features_ro_compat`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RoCompat: u32 {
        /// A B+tree of the inode chunks that have free inodes.
        const FINOBT = 0x1;
        /// A B+tree of what each block belongs to.
        const RMAPBT = 0x2;
        /// Files may share blocks; a B+tree counts the users of those.
        const REFLINK = 0x4;
        /// The sizes of the inode B+trees are counted.
        const INOBTCOUNT = 0x8;
        /// Features newer than this program.
        const _ = !0;
    }
}

bitflags! {
    /// Features without which nothing can be read (`sb_features_incompat`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Directory entries have the kind of file.
        const FTYPE = 0x001;
        /// Inode chunks may have holes.
        const SPARSE_INODES = 0x002;
        /// Metadata has a UUID of its own.
        const META_UUID = 0x004;
        /// Times count nanoseconds in 64 bits.
        const BIGTIME = 0x008;
        /// xfs_repair must run before anything else.
        const NEEDS_REPAIR = 0x010;
        /// Extents are counted in 64 bits.
        const NREXT64 = 0x020;
        /// Files may exchange ranges.
        const EXCHANGE_RANGE = 0x040;
        /// Inodes know the directories that name them.
        const PARENT = 0x080;
        /// The filesystem's own inodes lie in a directory tree of their own.
        const METADIR = 0x100;
        /// The real-time section consists of zones.
        const ZONED = 0x200;
        /// Zones may have gaps.
        const ZONE_GAPS = 0x400;
        /// Features newer than this program.
        const _ = !0;
    }
}

bitflags! {
    /// What the log may hold that older programs cannot recover (`sb_features_log_incompat`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogIncompat: u32 {
        /// Changes of extended attributes, as intents.
        const XATTRS = 0x1;
        /// Features newer than this program.
        const _ = !0;
    }
}

bitflags! {
    /// Quota state in the superblock (`sb_qflags`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QuotaFlags: u16 {
        /// User quota is accounted.
        const USER_ACCOUNTED = 0x001;
        /// User limits are enforced.
        const USER_ENFORCED = 0x002;
        /// User quota was checked.
        const USER_CHECKED = 0x004;
        /// Project quota is accounted.
        const PROJECT_ACCOUNTED = 0x008;
        /// Group or project limits are enforced, in version 4.
        const OTHER_ENFORCED = 0x010;
        /// Group or project quota was checked, in version 4.
        const OTHER_CHECKED = 0x020;
        /// Group quota is accounted.
        const GROUP_ACCOUNTED = 0x040;
        /// Group limits are enforced.
        const GROUP_ENFORCED = 0x080;
        /// Group quota was checked.
        const GROUP_CHECKED = 0x100;
        /// Project limits are enforced.
        const PROJECT_ENFORCED = 0x200;
        /// Project quota was checked.
        const PROJECT_CHECKED = 0x400;
        /// Flags newer than this program.
        const _ = !0;
    }
}

/// All feature words of a superblock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// 4 or 5.
    version: u8,
    version_bits: VersionBits,
    features2: Features2,
    /// Features that any program may ignore. None exists.
    compat: u32,
    /// Features that a reader may ignore.
    ro_compat: RoCompat,
    /// Features that a reader must know.
    incompat: Incompat,
    /// Features that recovery of the log must know.
    log_incompat: LogIncompat,
}

const READABLE: Incompat = Incompat::FTYPE
    .union(Incompat::SPARSE_INODES)
    .union(Incompat::META_UUID)
    .union(Incompat::BIGTIME)
    .union(Incompat::NREXT64)
    .union(Incompat::EXCHANGE_RANGE)
    .union(Incompat::PARENT);

/// What version 5 always has.
const BITS_OF_V5: VersionBits = VersionBits::NLINK
    .union(VersionBits::ALIGN)
    .union(VersionBits::LOGV2)
    .union(VersionBits::EXTFLG)
    .union(VersionBits::DIRV2)
    .union(VersionBits::MOREBITS);
const FEATURES2_OF_V5: Features2 =
    Features2::LAZY_COUNTERS.union(Features2::ATTR2).union(Features2::PROJID32).union(Features2::CRC);

/// Features of which all structures are checked, among those that a reader may ignore.
const RO_COMPAT_KNOWN: RoCompat =
    RoCompat::FINOBT.union(RoCompat::RMAPBT).union(RoCompat::REFLINK).union(RoCompat::INOBTCOUNT);

/// What Linux mounts of version 4.
const READABLE_OF_V4: Features2 =
    Features2::LAZY_COUNTERS.union(Features2::ATTR2).union(Features2::PROJID32).union(Features2::FTYPE);

impl Features {
    pub(crate) fn new(
        versionnum: u16,
        features2: u32,
        compat: u32,
        ro_compat: u32,
        incompat: u32,
        log_incompat: u32,
    ) -> Self {
        let version = (versionnum & 0xf) as u8;
        let of_v5 = |word| if version >= 5 { word } else { 0 };
        let version_bits = VersionBits::from_bits_truncate(versionnum);
        let more = version_bits.contains(VersionBits::MOREBITS);
        Self {
            version,
            version_bits,
            features2: Features2::from_bits_retain(if more { features2 } else { 0 }),
            compat: of_v5(compat),
            ro_compat: RoCompat::from_bits_retain(of_v5(ro_compat)),
            incompat: Incompat::from_bits_retain(of_v5(incompat)),
            log_incompat: LogIncompat::from_bits_retain(of_v5(log_incompat)),
        }
    }

    /// Version of the superblock: 4 or 5.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    pub(crate) const fn version_bits(&self) -> VersionBits {
        self.version_bits
    }

    /// Features that a reader may ignore.
    #[must_use]
    pub const fn ro_compat(&self) -> RoCompat {
        self.ro_compat
    }

    /// Features that a reader must know.
    #[must_use]
    pub const fn incompat(&self) -> Incompat {
        self.incompat
    }

    /// Features that recovery of the log must know.
    #[must_use]
    pub const fn log_incompat(&self) -> LogIncompat {
        self.log_incompat
    }

    /// Whether metadata describes itself: version 5.
    #[must_use]
    pub const fn has_crc(&self) -> bool {
        self.version >= 5
    }

    /// Whether directory entries have the kind of file.
    #[must_use]
    pub const fn has_ftype(&self) -> bool {
        self.incompat.contains(Incompat::FTYPE)
            || self.version < 5 && self.features2.contains(Features2::FTYPE)
    }

    /// Whether the attribute fork's place within an inode varies (version 2 of attributes).
    #[must_use]
    pub const fn has_attr2(&self) -> bool {
        self.version >= 5 || self.features2.contains(Features2::ATTR2)
    }

    /// Whether any inode has ever had an attribute fork.
    #[must_use]
    pub const fn has_attr(&self) -> bool {
        self.version_bits.contains(VersionBits::ATTR)
    }

    /// Whether project numbers have 32 bits.
    #[must_use]
    pub const fn has_projid32(&self) -> bool {
        self.version >= 5 || self.features2.contains(Features2::PROJID32)
    }

    /// Whether the superblock's counters are written at unmount only.
    #[must_use]
    pub const fn has_lazy_counters(&self) -> bool {
        self.version >= 5 || self.features2.contains(Features2::LAZY_COUNTERS)
    }

    /// Whether log records may be larger than 32 KiB and aligned to a stripe.
    #[must_use]
    pub const fn has_log_v2(&self) -> bool {
        self.version >= 5 || self.version_bits.contains(VersionBits::LOGV2)
    }

    /// Whether inode chunks are aligned to `sb_inoalignmt`.
    #[must_use]
    pub const fn has_inode_alignment(&self) -> bool {
        self.version >= 5 || self.version_bits.contains(VersionBits::ALIGN)
    }

    /// Whether names are compared without regard to the case of ASCII letters.
    #[must_use]
    pub const fn has_ascii_ci(&self) -> bool {
        self.version_bits.contains(VersionBits::BORG)
    }

    /// Whether there is a free inode B+tree.
    #[must_use]
    pub const fn has_finobt(&self) -> bool {
        self.ro_compat.contains(RoCompat::FINOBT)
    }

    /// Whether there is a reverse mapping B+tree.
    #[must_use]
    pub const fn has_rmapbt(&self) -> bool {
        self.ro_compat.contains(RoCompat::RMAPBT)
    }

    /// Whether files may share blocks.
    #[must_use]
    pub const fn has_reflink(&self) -> bool {
        self.ro_compat.contains(RoCompat::REFLINK)
    }

    /// Whether the headers of inodes count the blocks of their trees.
    #[must_use]
    pub const fn has_inode_tree_counts(&self) -> bool {
        self.ro_compat.contains(RoCompat::INOBTCOUNT)
    }

    /// Whether inode chunks may have holes.
    #[must_use]
    pub const fn has_sparse_inodes(&self) -> bool {
        self.incompat.contains(Incompat::SPARSE_INODES)
    }

    /// Refuses what cannot be read, by name.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(crate) fn check_readable(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Unsupported(what.into()));
        if self.incompat.contains(Incompat::NEEDS_REPAIR) {
            return refuse(
                "an XFS filesystem that needs repair (needsrepair): run xfs_repair on it first".into(),
            );
        }
        let unknown = self.incompat.difference(READABLE);
        if !unknown.is_empty() {
            return refuse(format!("XFS features {}", NamesOf(unknown)));
        }
        if self.version < 5 {
            if !self.version_bits.contains(VersionBits::DIRV2) {
                return refuse("XFS directories of version 1 (before 2001)".into());
            }
            if self.version_bits.contains(VersionBits::SHARED) {
                return refuse("a shared read-only XFS filesystem (sb_shared_vn)".into());
            }
            if self.features2.contains(Features2::PARENT) {
                return refuse("XFS parent pointers of version 4".into());
            }
            if !self.version_bits.contains(VersionBits::EXTFLG) {
                return refuse("XFS whose extents do not tell what was never written (before 1999)".into());
            }
            let unknown = self.features2.difference(READABLE_OF_V4);
            if !unknown.is_empty() {
                return refuse(format!("XFS features of version 4 (features2 {:#x})", unknown.bits()));
            }
        } else if !self.version_bits.contains(BITS_OF_V5) || !self.features2.contains(FEATURES2_OF_V5) {
            let (bits, features2) = (self.version_bits.bits(), self.features2.bits());
            return refuse(format!(
                "XFS of version 5 without what it always has (versionnum {bits:#x}, features2 {features2:#x})"
            ));
        }
        Ok(())
    }

    /// What keeps a filesystem from being written to, in words.
    pub(crate) fn not_writable(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        if !self.has_crc() {
            names.push(format!("version {}", self.version));
        }
        if self.has_ascii_ci() {
            names.push("names without regard to case (ascii-ci)".into());
        }
        if self.incompat.contains(Incompat::PARENT) {
            names.push("parent pointers".into());
        }
        if self.incompat.contains(Incompat::EXCHANGE_RANGE) {
            names.push("exchanges of ranges (exchange)".into());
        }
        let unknown = self.ro_compat.difference(RO_COMPAT_KNOWN);
        if !unknown.is_empty() {
            names.push(format!("the unknown features {:#x} (ro_compat)", unknown.bits()));
        }
        if !self.log_incompat.is_empty() {
            names.push(format!("the features {:#x} of the log", self.log_incompat.bits()));
        }
        names
    }

    /// Refuses features whose structures a check does not know.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(crate) fn check_checkable(&self) -> Result<()> {
        let unknown = self.ro_compat.difference(RO_COMPAT_KNOWN);
        if unknown.is_empty() {
            return Ok(());
        }
        let what = format!("checking XFS with the unknown features {:#x} (ro_compat)", unknown.bits());
        Err(Error::Unsupported(what.into()))
    }
}

/// Names of features in mkfs.xfs' words, and numbers of those that have no name here.
struct NamesOf(Incompat);

impl fmt::Display for NamesOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [(Incompat, &str); 3] =
            [(Incompat::METADIR, "metadir"), (Incompat::ZONED, "zoned"), (Incompat::ZONE_GAPS, "zone gaps")];
        let mut rest = self.0;
        let mut separator = "";
        for (flag, name) in NAMES {
            if rest.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = ", ";
                rest.remove(flag);
            }
        }
        if !rest.is_empty() {
            write!(f, "{separator}incompat {:#x}", rest.bits())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "v{} {:#06x} {:#x} compat {:#x} ro {:#x} incompat {:#x} log {:#x}",
            self.version,
            self.version_bits.bits(),
            self.features2.bits(),
            self.compat,
            self.ro_compat.bits(),
            self.incompat.bits(),
            self.log_incompat.bits()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v5(incompat: Incompat) -> Features {
        Features::new(0xb4a5, 0x18a, 0, 0xf, incompat.bits(), 0)
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(v5(Incompat::FTYPE | Incompat::PARENT | Incompat::EXCHANGE_RANGE).check_readable().is_ok());
        let refusal = |features: Features| features.check_readable().unwrap_err().to_string();
        assert!(
            refusal(v5(Incompat::METADIR | Incompat::from_bits_retain(0x8000)))
                .contains("metadir, incompat 0x8000")
        );
        assert!(refusal(v5(Incompat::NEEDS_REPAIR)).contains("needsrepair"));
        assert!(refusal(v5(Incompat::ZONED)).contains("zoned"));
        assert!(refusal(Features::new(0x9084, 0, 0, 0, 0, 0)).contains("version 1"));
        assert!(Features::new(0xb4a4, 0x28a, 0, 0, 0, 0).check_readable().is_ok());
        assert!(refusal(Features::new(0xa4a4, 0x8a, 0, 0, 0, 0)).contains("never written"));
        assert!(refusal(Features::new(0xb4a4, 0x88a, 0, 0, 0, 0)).contains("features2 0x800"));
        assert!(refusal(Features::new(0xb4a4, 0x18a, 0, 0, 0, 0)).contains("features2 0x100"));
    }

    #[test]
    fn version_4_has_its_features_in_the_old_words() {
        let v4 = Features::new(0xb4a4, 0x8a, 1, 2, 3, 4);
        assert!(
            v4.has_attr2() && v4.has_lazy_counters() && v4.has_projid32() && !v4.has_crc() && !v4.has_ftype()
        );
        assert!(v4.incompat().is_empty() && v4.ro_compat().is_empty());
        assert!(!Features::new(0x34a4, 0x8a, 0, 0, 0, 0).has_attr2(), "features2 counts with MOREBITS only");
    }
}
