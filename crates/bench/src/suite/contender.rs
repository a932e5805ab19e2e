//! What takes part in a chart.

use serde::{Serialize, Serializer};

use crate::{BenchError, Target, Workload};

/// One way to a filesystem or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// What people call it: `mem:ext4:plain`, `ext4, mounted`.
    pub name: String,
    /// What it is in comparisons.
    pub role: Role,
    /// Which filesystem it shows.
    pub filesystem: Filesystem,
    /// Where it is measured.
    pub target: Target,
}

/// What a contender is in comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Ours in this process, in its best form.
    Best,
    /// Ours in this process, without what a workload is about.
    Plain,
    /// Ours through a mount.
    Mount,
    /// The kernel's.
    Kernel,
    /// fuse2fs.
    Fuse2fs,
    /// What the device can do without a filesystem.
    Limit,
}

/// What a contender shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filesystem {
    /// tmpfs.
    Tmpfs,
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// A RAID5 array, with an ext4 on it where files are needed.
    Raid5,
    /// A device in memory. It is the limit of all that lie on one.
    Device,
}

/// A filesystem in its best form and in plain ones, as targets are typed.
struct Forms {
    filesystem: Filesystem,
    best: &'static str,
    plain: &'static [&'static str],
}

impl Role {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 6] =
        [Self::Best, Self::Plain, Self::Mount, Self::Kernel, Self::Fuse2fs, Self::Limit];

    /// In results, and as a class on the page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Plain => "plain",
            Self::Mount => "mount",
            Self::Kernel => "kernel",
            Self::Fuse2fs => "fuse2fs",
            Self::Limit => "limit",
        }
    }

    /// As people read it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Best => "in process",
            Self::Plain => "in process, plain form",
            Self::Mount => "through our mount",
            Self::Kernel => "Linux's own",
            Self::Fuse2fs => "fuse2fs",
            Self::Limit => "device limit",
        }
    }

    /// Whether it is measured by threads of this process.
    #[must_use]
    pub const fn is_in_process(self) -> bool {
        matches!(self, Self::Best | Self::Plain | Self::Limit)
    }
}

impl Filesystem {
    /// All that have contenders of their own.
    pub const ALL: [Self; 4] = [Self::Tmpfs, Self::Ext4, Self::Xfs, Self::Raid5];

    /// As people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4",
            Self::Xfs => "XFS",
            Self::Raid5 => "RAID5",
            Self::Device => "device",
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Serialize for Filesystem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Contender {
    /// What is mounted at a directory.
    #[must_use]
    pub fn mounted(role: Role, filesystem: Filesystem, target: Target) -> Self {
        let how = match role {
            Role::Kernel => "kernel",
            Role::Fuse2fs => "fuse2fs",
            _ => "mounted",
        };
        Self { name: format!("{}, {how}", filesystem.name()), role, filesystem, target }
    }

    /// What a workload can be measured on in this process, by the names of targets. Some may not fit it.
    pub(super) fn in_process(workload: Workload) -> Result<Vec<Self>, BenchError> {
        let mut contenders = Vec::new();
        let mut add = |role, filesystem, typed: &str| -> Result<(), BenchError> {
            let target = Target::parse(typed.as_ref())?;
            contenders.push(Self { name: typed.to_owned(), role, filesystem, target });
            Ok(())
        };
        for forms in forms(workload) {
            add(Role::Best, forms.filesystem, forms.best)?;
            forms.plain.iter().try_for_each(|plain| add(Role::Plain, forms.filesystem, plain))?;
        }
        add(Role::Limit, Filesystem::Device, "mem:raw")?;
        add(Role::Limit, Filesystem::Raid5, "mem:xor")?;
        Ok(contenders)
    }
}

/// Which plain forms differ from the best one in what a workload is about.
fn forms(workload: Workload) -> [Forms; 4] {
    let tmpfs: &[&str] = if workload.is_about_names() { &["tmpfs:plain"] } else { &[] };
    let ext4: &[&str] = match workload {
        Workload::Orphan => &["mem:ext4:orphan=locked"],
        Workload::Overwrite => &["mem:ext4:overwrite=journaled"],
        _ if workload.is_about_names() => &["mem:ext4:plain"],
        _ => &[],
    };
    let xfs: &[&str] = match workload {
        Workload::InodeAlloc => &["mem:xfs:finobt=0"],
        Workload::Overwrite => &["mem:xfs:overwrite=journaled"],
        _ if workload.is_about_names() => &["mem:xfs:plain"],
        _ => &[],
    };
    // The cache of the array is as small as in the workload that its wake-ups were written for; both forms alike.
    let (raid5, raid5_plain): (_, &[&str]) = match workload {
        Workload::RaidWrite | Workload::RaidWriteRows => {
            ("mem:md5:stripes=16", &["mem:md5:stripe_wake=all,stripes=16"])
        }
        _ => ("mem:md5", &[]),
    };
    [
        Forms { filesystem: Filesystem::Tmpfs, best: "tmpfs:", plain: tmpfs },
        Forms { filesystem: Filesystem::Ext4, best: "mem:ext4", plain: ext4 },
        Forms { filesystem: Filesystem::Xfs, best: "mem:xfs", plain: xfs },
        Forms { filesystem: Filesystem::Raid5, best: raid5, plain: raid5_plain },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_a_target_and_named_as_it_is_typed() {
        for workload in Workload::ALL {
            for contender in Contender::in_process(workload).unwrap() {
                assert_eq!(contender.name, contender.target.to_string());
            }
        }
    }

    #[test]
    fn what_is_mounted_is_named_by_how() {
        let name = |role| Contender::mounted(role, Filesystem::Xfs, Target::Mounted("/x".into())).name;
        assert_eq!([Role::Mount, Role::Kernel].map(name), ["XFS, mounted", "XFS, kernel"]);
    }
}
