//! What `ls` and `stat` tell about one inode, in the form in which it is printed.

use serde::Serialize;
use undercroft_vfs::{Attr, FileType, Node, Result};

use crate::text::human;
use crate::text::names::Target;

/// An inode's attributes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) inode: u64,
    pub(crate) kind: &'static str,
    /// Permission bits in octal, `0644`.
    pub(crate) mode: String,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size_bytes: u64,
    pub(crate) allocated_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<Device>,
    pub(crate) modified: String,
    pub(crate) accessed: String,
    pub(crate) changed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    /// Letters of lsattr.
    pub(crate) flags: String,
    pub(crate) generation: u32,
    pub(crate) project: u32,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
    #[serde(skip)]
    pub(crate) attr: Attr,
}

/// What a device node stands for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Facts {
    /// Reads what there is to tell; only a symbolic link's target may take I/O.
    pub(crate) fn read(node: &Node) -> Result<Self> {
        let attr = node.attr();
        let target = match attr.kind {
            FileType::Symlink => Some(node.read_link()?.into()),
            _ => None,
        };
        let device = matches!(attr.kind, FileType::CharDevice | FileType::BlockDevice)
            .then_some(Device { major: attr.rdev.major, minor: attr.rdev.minor });
        Ok(Self {
            inode: attr.ino.0,
            kind: human::kind_word(attr.kind),
            mode: format!("{:04o}", attr.permissions),
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            size_bytes: attr.size_bytes,
            allocated_bytes: attr.sectors.saturating_mul(512),
            device,
            modified: human::exact_time(attr.modified),
            accessed: human::exact_time(attr.accessed),
            changed: human::exact_time(attr.changed),
            created: attr.created.map(human::exact_time),
            flags: human::flag_letters(attr.flags),
            generation: attr.generation,
            project: attr.project,
            target,
            attr,
        })
    }
}
