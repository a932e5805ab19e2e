//! What `tune` sets, by the words of tune2fs.

use serde::{Deserialize, Serialize};
use undercroft_ext4::Superblock;

use crate::text::human;
use crate::text::names::safe;

/// Settings of a superblock.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    reserved_blocks: u64,
    reserved_uid: u16,
    reserved_gid: u16,
    /// Those that have names.
    default_mount_options: Vec<String>,
    /// Others, as text.
    mount_options: String,
    /// In blocks; 0 where it is not said.
    raid_stride: u16,
    raid_stripe_width: u32,
    /// `None` where the number is not known.
    directory_hash: Option<String>,
    directory_hash_seed: String,
}

impl Settings {
    pub(super) fn of(superblock: &Superblock) -> Self {
        let (reserved_uid, reserved_gid) = superblock.reserved_for();
        let (raid_stride, raid_stripe_width) = superblock.stripe();
        Self {
            reserved_blocks: superblock.geometry().reserved_blocks(),
            reserved_uid,
            reserved_gid,
            default_mount_options: superblock.mount_defaults().into_iter().map(str::to_owned).collect(),
            mount_options: String::from_utf8_lossy(superblock.mount_options()).into_owned(),
            raid_stride,
            raid_stripe_width,
            directory_hash: superblock.hash_algorithm().map(|algorithm| algorithm.name().to_owned()),
            directory_hash_seed: superblock.hash_seed().to_string(),
        }
    }

    /// Labels, and what stands beside them.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let blocks = human::counted(self.reserved_blocks, "block");
        let mut lines = vec![(
            "reserved",
            format!("{blocks}, for uid {} and gid {}", self.reserved_uid, self.reserved_gid),
        )];
        let mut options = self.default_mount_options.clone();
        options.extend((!self.mount_options.is_empty()).then(|| safe(self.mount_options.as_bytes())));
        lines.push(("options", if options.is_empty() { "(none)".to_owned() } else { options.join(" ") }));
        if (self.raid_stride, self.raid_stripe_width) != (0, 0) {
            let (stride, width) = (self.raid_stride, self.raid_stripe_width);
            lines.push(("raid", format!("stride {stride}, stripe width {width}")));
        }
        let hash = self.directory_hash.as_deref().unwrap_or("not known");
        lines.push(("hash", format!("{hash}, seed {}", self.directory_hash_seed)));
        lines
    }
}
