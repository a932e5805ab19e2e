//! What a partition is said to hold: the type byte of an MBR, the type GUID of a GPT, and names for the common ones.

use std::fmt;

use uuid::{Uuid, uuid};

/// A partition's type, as its table has it. Says what was intended, not what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// The type byte of an MBR entry.
    Mbr(u8),
    /// The type GUID of a GPT entry.
    Gpt(Uuid),
}

impl PartitionKind {
    /// The common name of the type, if it is one of those that are met on disks with Linux.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        match self {
            Self::Mbr(kind) => MBR_NAMES.iter().find(|(known, _)| known == kind).map(|&(_, name)| name),
            Self::Gpt(kind) => GPT_NAMES.iter().find(|(known, _)| known == kind).map(|&(_, name)| name),
        }
    }

    /// Whether it is a container of logical partitions, which holds nothing itself.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// The raw type: two hexadecimal digits, or a GUID.
impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr(kind) => write!(f, "{kind:02x}"),
            Self::Gpt(kind) => kind.fmt(f),
        }
    }
}

const MBR_NAMES: [(u8, &str); 20] = [
    (0x01, "FAT12"),
    (0x04, "FAT16 (small)"),
    (0x05, "extended"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32 (LBA)"),
    (0x0e, "FAT16 (LBA)"),
    (0x0f, "extended (LBA)"),
    (0x27, "Windows recovery"),
    (0x82, "Linux swap"),
    (0x83, "Linux filesystem"),
    (0x85, "extended (Linux)"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xa6, "OpenBSD"),
    (0xa9, "NetBSD"),
    (0xee, "protective (GPT)"),
    (0xef, "EFI system"),
    (0xfd, "Linux RAID"),
];

const GPT_NAMES: [(Uuid, &str); 19] = [
    (uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"), "EFI system"),
    (uuid!("21686148-6449-6e6f-744e-656564454649"), "BIOS boot"),
    (uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"), "Linux filesystem"),
    (uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "Linux swap"),
    (uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e"), "Linux RAID"),
    (uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928"), "Linux LVM"),
    (uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915"), "Linux home"),
    (uuid!("3b8f8425-20e0-4f3b-907f-1a25a76f98e8"), "Linux server data"),
    (uuid!("4d21b016-b534-45c2-a9fb-5c16e091fd2d"), "Linux variable data"),
    (uuid!("bc13c2ff-59e6-4262-a352-b275fd6f7172"), "Linux extended boot"),
    (uuid!("44479540-f297-41b2-9af7-d131d5f0458a"), "Linux root (x86)"),
    (uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "Linux root (x86-64)"),
    (uuid!("69dad710-2ce4-4e3c-b16c-21a1d49abed3"), "Linux root (ARM)"),
    (uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae"), "Linux root (ARM64)"),
    (uuid!("ca7d7ccb-63ed-4c53-861c-1742536059cc"), "Linux LUKS"),
    (uuid!("8da63339-0007-60c0-c436-083ac8230908"), "Linux reserved"),
    (uuid!("e3c9e316-0b5c-4db8-817d-f92df00215ae"), "Microsoft reserved"),
    (uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"), "Microsoft basic data"),
    (uuid!("de94bba4-06d1-4d40-a16a-bfd50179d6ac"), "Windows recovery"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_and_print_raw() {
        assert_eq!(PartitionKind::Mbr(0x83).name(), Some("Linux filesystem"));
        assert_eq!(PartitionKind::Mbr(0x42).name(), None);
        assert_eq!(PartitionKind::Mbr(0x0c).to_string(), "0c");
        let root = PartitionKind::Gpt(uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"));
        assert_eq!(root.name(), Some("Linux root (x86-64)"));
        assert_eq!(root.to_string(), "4f68bce3-e8cd-4db1-96e7-fbcaf984b709");
    }

    #[test]
    fn names_are_listed_once() {
        assert!(MBR_NAMES.is_sorted_by(|a, b| a.0 < b.0));
        let mut known: Vec<_> = GPT_NAMES.iter().map(|&(kind, _)| kind).collect();
        known.sort_unstable();
        assert!(known.is_sorted_by(|a, b| a < b));
    }
}
