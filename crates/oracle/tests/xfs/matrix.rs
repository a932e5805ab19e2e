//! The matrix: images of many makes by mkfs.xfs, filled by the kernel with one of everything (see
//! `undercroft_oracle::populate_xfs`). Names, types, numbers, times, extended attributes, link targets, data segments
//! and SHA-256 of every file are what the kernel's mount shows. Needs root for the loop mounts.
//!
//! `UNDERCROFT_XFS_MANY` sets the number of names in every image's large directory; one image has 100,000 always.

use undercroft_oracle::{MkfsXfs, XfsRecipe};

use crate::compare::compare;

/// An XFS of 160 MiB in four groups.
fn xfs(args: &str) -> XfsRecipe {
    sized(160, args)
}

fn sized(size_mib: u64, args: &str) -> XfsRecipe {
    let many = std::env::var("UNDERCROFT_XFS_MANY").ok().map(|text| text.parse().unwrap());
    XfsRecipe::new(MkfsXfs::new(size_mib, args)).plan(|plan| plan.many = many.unwrap_or(plan.many))
}

fn aged(recipe: XfsRecipe) -> XfsRecipe {
    recipe.plan(|plan| plan.aged = true)
}

fn deep(recipe: XfsRecipe) -> XfsRecipe {
    recipe.plan(|plan| plan.bmbt_level = 2)
}

/// One test per image.
macro_rules! images {
    ($($(#[doc = $doc:literal])* $name:ident = $recipe:expr;)*) => {
        $($(#[doc = $doc])* #[test] fn $name() { compare(&$recipe.make().unwrap()); })*
    };
}

images! {
    plain = xfs("");
    many_names = sized(400, "").plan(|plan| plan.many = 100_000);
    block_1k = deep(xfs("-b size=1024"));
    block_2k_inode_1024 = deep(xfs("-b size=2048 -i size=1024"));
    block_2k = xfs("-b size=2048");
    block_8k = xfs("-b size=8192");
    block_16k = sized(256, "-b size=16384");
    block_32k = sized(400, "-b size=32768");
    block_64k = sized(900, "-b size=65536");
    block_64k_sector_32k = sized(900, "-b size=65536 -s size=32768");
    sector_1k = xfs("-s size=1024");
    sector_4k = xfs("-s size=4096");
    sector_16k = sized(256, "-b size=16384 -s size=16384");
    inode_1024 = xfs("-i size=1024");
    inode_2048 = xfs("-i size=2048");
    directory_8k = xfs("-n size=8192");
    directory_16k_block_1k = xfs("-b size=1024 -n size=16384");
    directory_64k = sized(256, "-n size=65536");
    directory_64k_block_1k = sized(256, "-b size=1024 -n size=65536");
    one_group = xfs("-d agcount=1");
    two_groups = xfs("-d agcount=2");
    sixty_four_groups = sized(1100, "-d agcount=64");
    many_groups_1k = sized(300, "-b size=1024 -d agcount=16");
    no_finobt = xfs("-m finobt=0,inobtcount=0");
    no_finobt_no_reflink_no_bigtime = xfs("-m finobt=0,inobtcount=0,reflink=0,bigtime=0");
    no_reflink = xfs("-m reflink=0");
    no_bigtime = xfs("-m bigtime=0");
    no_inobtcount = xfs("-m inobtcount=0");
    no_sparse = xfs("-i sparse=0");
    rmapbt = xfs("-m rmapbt=1");
    rmapbt_no_reflink = xfs("-m rmapbt=1,reflink=0 -l size=16m");
    rmapbt_1k = deep(xfs("-m rmapbt=1 -b size=1024"));
    rmapbt_64k = sized(1100, "-m rmapbt=1 -b size=65536");
    large_extent_counts = deep(xfs("-b size=1024 -i nrext64=1"));
    large_extent_counts_rmapbt = xfs("-i nrext64=1 -m rmapbt=1");
    sparse_chunks = aged(xfs(""));
    sparse_chunks_1k = aged(xfs("-b size=1024 -m rmapbt=1"));
    sparse_chunks_inode_2048 = aged(xfs("-i size=2048"));
    stripes = sized(256, "-d su=64k,sw=4");
    log_stripes = xfs("-l su=256k");
    another_uuid = xfs("").finish(crate::compare::another_uuid);
    no_inodes_limit = xfs("-i maxpct=0");
    /// Much at once.
    all_together = deep(sized(300, "-b size=2048 -n size=8192 -i size=1024,nrext64=1 -m rmapbt=1 -d agcount=7"));
}
