//! The values of a filesystem's types, in the terms of what is made.

use super::View;
use crate::superblock::{HashAlgorithm, MountDefault, OnError};

/// Blocks as large as a page of memory: what a block size of -1 stands for.
const PAGE_BYTES: u32 = 4096;

/// What is made where nothing else is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Usual {
    /// Changes of features, each as `mke2fs -O` takes them, from the first to the last.
    pub(crate) features: Vec<String>,
    /// The last of those changes, which a list that is asked for takes the place of.
    pub(crate) default_features: Option<String>,
    pub(crate) block_bytes: u32,
    /// With `bigalloc`.
    pub(crate) cluster_bytes: Option<u32>,
    pub(crate) inode_bytes: u16,
    pub(crate) bytes_per_inode: u64,
    pub(crate) reserved_percent: f64,
    pub(crate) groups_per_flex: u32,
    pub(crate) hash: HashAlgorithm,
    pub(crate) on_error: OnError,
    /// As the superblock has them.
    pub(crate) mount_options: u32,
    pub(crate) lazy_inode_tables: bool,
    pub(crate) discard: bool,
    /// Whether a check is due after so many mounts.
    pub(crate) periodic_check: bool,
    /// Whether a filesystem that needs it has block numbers of 64 bits.
    pub(crate) grows_to_64bit: bool,
}

/// Tags that ask for something that is not made, with the values that ask for nothing.
const NOT_MADE: [(&str, &[&str]); 6] = [
    ("options", &[""]),
    ("journal_location", &[]),
    ("packed_meta_blocks", &["0", "no", "n", "false", "f", "off", "nil"]),
    ("num_backup_sb", &["2"]),
    ("make_hugefiles", &["0", "no", "n", "false", "f", "off", "nil"]),
    ("creator_os", &["linux", "Linux", "0"]),
];

impl Usual {
    /// What a configuration says; what it asks for in vain, in one sentence.
    pub(crate) fn of(view: &View<'_>) -> Result<Self, String> {
        for (tag, for_nothing) in NOT_MADE {
            if let Some(value) = view.text(tag).filter(|value| !for_nothing.contains(value)) {
                let name = view.name();
                return Err(format!(
                    "{tag} = {value}, which {name} asks for, cannot be made; take it out, or leave the file out (--no-conf)"
                ));
            }
        }
        let base =
            view.text("base_features").unwrap_or("sparse_super,large_file,filetype,resize_inode,dir_index");
        let features = std::iter::once(base).chain(view.of_types("features")).map(str::to_owned).collect();
        let block_bytes = match view.number::<i64>("blocksize")? {
            None | Some(-1) => PAGE_BYTES,
            Some(bytes) => u32::try_from(bytes).map_err(|_| view.unfitting("blocksize", bytes))?,
        };
        let hash = view.text("hash_alg").unwrap_or("half_md4");
        let on_error = view.text("errors").unwrap_or("continue");
        Ok(Self {
            features,
            default_features: view.text("default_features").map(str::to_owned),
            block_bytes,
            cluster_bytes: view.number("cluster_size")?,
            inode_bytes: view.number("inode_size")?.filter(|&bytes| bytes != 0).unwrap_or(128),
            bytes_per_inode: view.number::<u64>("inode_ratio")?.unwrap_or(8192).max(block_bytes.into()),
            reserved_percent: view.number("reserved_ratio")?.unwrap_or(5.0),
            groups_per_flex: view.number("flex_bg_size")?.unwrap_or(16),
            hash: HashAlgorithm::by_name(hash).ok_or_else(|| view.unfitting("hash_alg", hash))?,
            on_error: OnError::by_name(on_error).ok_or_else(|| view.unfitting("errors", on_error))?,
            mount_options: mount_options(view)?,
            lazy_inode_tables: view.boolean("lazy_itable_init")?.unwrap_or(true),
            discard: view.boolean("discard")?.unwrap_or(true),
            periodic_check: view.boolean("enable_periodic_fsck")?.unwrap_or(false),
            grows_to_64bit: view.boolean("auto_64-bit_support")?.unwrap_or(false),
        })
    }
}

/// The superblock's bits of the mount options that are on by default.
fn mount_options(view: &View<'_>) -> Result<u32, String> {
    let words = view.text("default_mntopts").unwrap_or("acl,user_xattr");
    let mut bits = 0;
    for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, on) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
        let option = MountDefault::by_name(name).ok_or_else(|| view.unfitting("default_mntopts", words))?;
        bits = option.switch(bits, on);
    }
    Ok(bits)
}
