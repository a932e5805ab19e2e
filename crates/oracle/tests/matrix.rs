//! The matrix: real images of many makes, and on each of them what we show must be what the kernel shows.
//!
//! Every image is made on the spot by mke2fs and filled by the kernel with one of everything (see
//! `undercroft_oracle::populate`): names, types, numbers, times, extended attributes, link targets, data
//! segments and SHA-256 of every file are compared. Needs root for the loop mounts.

use undercroft_oracle::{
    Differences, Image, Mke2fs, MountMode, Recipe, Result, kernel_manifest, open_ext4, our_manifest,
};

const INODES: u32 = 115_000;

/// The superblock's flags for how names' bytes above 127 are hashed.
const SIGNED: &str = "1";
const UNSIGNED: &str = "2";

/// An ext4 of 512 MiB with room for the large directory.
fn ext4(block_bytes: u32) -> Mke2fs {
    Mke2fs::new("ext4", 512).inodes(INODES).block_bytes(block_bytes)
}

fn kind(kind: &'static str, block_bytes: u32) -> Recipe {
    Recipe::new(Mke2fs::new(kind, 512).inodes(INODES).block_bytes(block_bytes))
}

fn features(list: &str) -> Recipe {
    Recipe::new(ext4(4096).features(list))
}

/// Clusters make block groups large, and a group holds only so many inodes: the size makes enough groups.
fn bigalloc(size_mib: u64, block_bytes: u32, cluster_bytes: &str) -> Recipe {
    let mke2fs = Mke2fs::new("ext4", size_mib).inodes(INODES).block_bytes(block_bytes);
    Recipe::new(mke2fs.features("bigalloc").args(["-C", cluster_bytes]))
}

/// Extents of 1 KiB blocks reach the fourth level with little data.
fn deep(recipe: Recipe) -> Recipe {
    recipe.plan(|plan| plan.extent_depth = 3)
}

/// Makes the image and compares.
fn check(recipe: &Recipe) {
    let image = recipe.make().unwrap();
    compare(&image);
}

fn compare(image: &Image) {
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let expected = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    assert!(expected.entries.len() > 1000, "the kernel shows only {} entries", expected.entries.len());
    let (_, vfs) = open_ext4(image.path()).unwrap();
    let found = our_manifest(&vfs).unwrap();
    Differences::between(&expected, &found).assert_none("ours against the kernel's");
}

/// One test per image.
macro_rules! images {
    ($($(#[doc = $doc:literal])* $name:ident = $recipe:expr;)*) => {
        $($(#[doc = $doc])* #[test] fn $name() { check(&$recipe); })*
    };
}

images! {
    ext2_1k = kind("ext2", 1024);
    ext2_2k = kind("ext2", 2048);
    ext2_4k = kind("ext2", 4096);
    ext2_inode_128 = Recipe::new(Mke2fs::new("ext2", 512).inodes(INODES).block_bytes(4096).inode_bytes(128));
    ext3_1k = kind("ext3", 1024);
    ext3_2k = kind("ext3", 2048);
    ext3_4k = kind("ext3", 4096);
    ext3_inode_128 = Recipe::new(Mke2fs::new("ext3", 512).inodes(INODES).block_bytes(1024).inode_bytes(128));
    ext4_1k = deep(Recipe::new(ext4(1024)));
    ext4_2k = Recipe::new(ext4(2048));
    /// Also with a file whose data goes through the journal.
    ext4_4k = Recipe::new(ext4(4096)).finish(journal_data_flag);
    revision_0 = Recipe::new(Mke2fs::new("ext2", 512).inodes(INODES).block_bytes(1024).args(["-r", "0"]))
        .plan(|plan| plan.many = 10_000);
    no_journal = features("^has_journal");
    no_extents = features("^extent,^64bit");
    /// Linear search makes creation quadratic, so the large directory is smaller.
    no_dir_index = features("^dir_index").plan(|plan| plan.many = 10_000);
    /// Index blocks that are out of use must read as the deleted entries they pretend to be.
    dir_index_given_up = Recipe::new(ext4(1024)).plan(|plan| plan.many = 10_000).finish(|image| {
        image.tune2fs(&["-O", "^dir_index"])
    });
    no_filetype = features("^filetype");
    inline_data = features("inline_data");
    inline_data_1k_inode_1024 = deep(Recipe::new(ext4(1024).inode_bytes(1024).features("inline_data")));
    inline_data_2k_inode_512 = Recipe::new(ext4(2048).inode_bytes(512).features("inline_data,ea_inode"));
    ea_inode = features("ea_inode");
    ea_inode_1k_inode_128 = deep(Recipe::new(ext4(1024).inode_bytes(128).features("ea_inode,^64bit")));
    bigalloc_16k = bigalloc(2100, 4096, "16384");
    bigalloc_64k = bigalloc(8300, 4096, "65536");
    bigalloc_1k_8k = deep(bigalloc(1100, 1024, "8192"));
    meta_bg = features("meta_bg,^resize_inode");
    meta_bg_1k_no_64bit = deep(Recipe::new(ext4(1024).features("meta_bg,^resize_inode,^64bit,^flex_bg")));
    no_flex_bg = features("^flex_bg");
    no_64bit = features("^64bit");
    no_checksums = features("^metadata_csum,^uninit_bg");
    group_checksums = features("^metadata_csum,uninit_bg");
    group_checksums_64bit_1k = deep(Recipe::new(ext4(1024).features("^metadata_csum,uninit_bg,64bit")));
    checksum_seed_with_another_uuid = features("metadata_csum,metadata_csum_seed").finish(another_uuid);
    checksums_with_another_uuid = features("metadata_csum,^metadata_csum_seed").finish(another_uuid);
    sparse_super2 = features("sparse_super2,^resize_inode");
    no_sparse_super = Recipe::new(ext4(1024).features("^sparse_super,^resize_inode"));
    /// Names of 200 bytes in 1 KiB blocks: more leaves than two index levels can hold.
    large_dir = deep(Recipe::new(ext4(1024).features("large_dir"))).plan(|plan| plan.many_name_bytes = 200);
    quota_and_project = Recipe::new(ext4(4096)).finish(projects);
    read_only_feature = Recipe::new(ext4(1024)).plan(|plan| plan.many = 1000).finish(|image| {
        image.tune2fs(&["-O", "read-only"])
    });
    orphan_file = features("orphan_file");
    multiple_mount_protection = features("mmp");
    no_huge_file = features("^huge_file,^64bit");
    hash_legacy = Recipe::new(ext4(4096)).prepare(|image| hash(image, "legacy", SIGNED));
    hash_legacy_unsigned = Recipe::new(ext4(4096)).prepare(|image| hash(image, "legacy", UNSIGNED));
    hash_half_md4 = Recipe::new(ext4(4096)).prepare(|image| hash(image, "half_md4", SIGNED));
    hash_half_md4_unsigned = Recipe::new(ext4(4096)).prepare(|image| hash(image, "half_md4", UNSIGNED));
    hash_tea = Recipe::new(ext4(1024)).prepare(|image| hash(image, "tea", SIGNED));
    hash_tea_unsigned = Recipe::new(ext4(1024)).prepare(|image| hash(image, "tea", UNSIGNED));
    inode_128 = Recipe::new(ext4(4096).inode_bytes(128));
    inode_512 = Recipe::new(ext4(4096).inode_bytes(512));
    inode_1024 = Recipe::new(ext4(4096).inode_bytes(1024));
    inode_4096 = Recipe::new(Mke2fs::new("ext4", 1024).inodes(INODES).block_bytes(4096).inode_bytes(4096));
    fast_commit = features("fast_commit");
    verity = features("verity");
    stable_inodes = features("encrypt,stable_inodes");
    /// More subdirectories than a directory can count.
    many_subdirectories = deep(Recipe::new(ext4(1024).inodes(180_000))).plan(|plan| {
        plan.many = 1000;
        plan.subdirectories = 65_100;
    });
    /// Everything at once.
    all_together = Recipe::new(
        Mke2fs::new("ext4", 4200)
            .inodes(INODES)
            .block_bytes(4096)
            .inode_bytes(512)
            .features(
                "bigalloc,inline_data,ea_inode,large_dir,orphan_file,fast_commit,\
                 metadata_csum_seed,encrypt,verity,stable_inodes,sparse_super2,^resize_inode,meta_bg",
            )
            .args(["-C", "32768"]),
    )
    .finish(projects);
}

/// Sets how the indices of directories hash names.
fn hash(image: &Image, algorithm: &str, signedness: &str) -> Result<()> {
    image.tune2fs(&["-E", &format!("hash_alg={algorithm}")])?;
    image.debugfs_write(&[&format!("set_super_value flags {signedness}")])
}

/// tune2fs does this only to a filesystem that was checked since it was last mounted.
fn another_uuid(image: &Image) -> Result<()> {
    image.debugfs_write(&["set_super_value lastcheck now"])?;
    image.tune2fs(&["-U", "e1d4c1b3-7c7f-4d0e-8e9e-0f5b2d3c4a59"])
}

/// Gives files and a directory to projects. A kernel without the quota format refuses to write to a filesystem
/// that has them, and reads it.
fn projects(image: &Image) -> Result<()> {
    image.tune2fs(&["-O", "project"])?;
    image.debugfs_write(&[
        "set_inode_field /attributes/modes/file-4755 projid 4242",
        "set_inode_field /attributes/modes/directory-444 projid 4000000000",
    ])?;
    image.tune2fs(&["-O", "quota"])
}

/// The kernel lets only a caller with a rare capability set this flag; debugfs does not ask.
fn journal_data_flag(image: &Image) -> Result<()> {
    image.debugfs_write(&["set_inode_field /attributes/flags/sync flags 0x84008"])
}
