//! The values of a filesystem's types, in the terms of what is made.

use super::View;
use crate::mkfs::number::c_number;
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
    /// Not always a power of two: the largest one in it counts.
    pub(crate) groups_per_flex: u32,
    /// Copies of the superblock with `sparse_super2`.
    pub(crate) copies: i64,
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

impl Usual {
    /// What a configuration says; what it asks for in vain, in one sentence.
    pub(crate) fn of(view: &View<'_>) -> Result<Self, String> {
        refuse_not_made(view)?;
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
            bytes_per_inode: view
                .number::<i64>("inode_ratio")?
                .map_or(8192, |ratio| ratio.max(0).cast_unsigned()),
            reserved_percent: view.real("reserved_ratio")?.unwrap_or(5.0),
            groups_per_flex: view.number("flex_bg_size")?.unwrap_or(16),
            copies: view.number("num_backup_sb")?.unwrap_or(2),
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

/// Refuses tags that ask for something that is not made.
fn refuse_not_made(view: &View<'_>) -> Result<(), String> {
    let is_on = |tag| view.boolean(tag).map(|on| on == Some(true));
    let is_linux = |name: &str| name.eq_ignore_ascii_case("linux") || c_number(name) == Some(0);
    let asked = [
        ("options", view.text("options").is_some_and(|options| !options.trim().is_empty())),
        ("journal_location", view.text("journal_location").is_some()),
        ("packed_meta_blocks", is_on("packed_meta_blocks")?),
        ("make_hugefiles", is_on("make_hugefiles")?),
        ("creator_os", view.text("creator_os").is_some_and(|name| !is_linux(name))),
    ];
    let Some((tag, _)) = asked.into_iter().find(|(_, is_asked)| *is_asked) else { return Ok(()) };
    let (name, value) = (view.name(), view.text(tag).unwrap_or_default().escape_debug());
    Err(format!(
        "{tag} = {value}, which {name} asks for, cannot be made; take it out, or leave the file out (--no-conf)"
    ))
}

/// The superblock's bits of the mount options that are on by default.
fn mount_options(view: &View<'_>) -> Result<u32, String> {
    let words = view.text("default_mntopts").unwrap_or("acl,user_xattr");
    let mut bits = 0;
    let separators = |letter: char| letter == ',' || letter.is_whitespace();
    for word in words.split(separators).filter(|word| !word.is_empty()) {
        let switched = MountDefault::switched_by(word);
        let (option, on) = switched.ok_or_else(|| view.unfitting("default_mntopts", words))?;
        bits = option.switch(bits, on);
    }
    Ok(bits)
}
