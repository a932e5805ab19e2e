//! Directories that do not distinguish capital letters. The kernel that runs the tests need not mount them, so mkfs.xfs
//! fills them, from a list.

use undercroft_oracle::{Image, MkfsXfs, Scratch};

use crate::compare::{is_clean, our_check, told};

/// An image with a directory in its inode, one in a block, one of a leaf and one of a tree, which is large.
fn image(args: &str) -> Image {
    let fifos = |count: usize| -> String {
        (0..count).map(|n| format!("A-Rather-Long-NAME-{n} p--644 0 0\n")).collect()
    };
    let small: String = (0..20).map(|n| format!("Small-{n} d--755 0 0\n{}$\n", fifos(n * n + 1))).collect();
    let scratch = Scratch::new("xfs-folding").unwrap();
    let list = scratch.path().join("list");
    std::fs::write(
        &list,
        format!("/dev/null\n0 0\nd--755 0 0\n{small}Many d--755 0 0\n{}$\n$\n", fifos(4000)),
    )
    .unwrap();
    MkfsXfs::new(160, args).make_from(&list).unwrap()
}

#[test]
fn directories_that_fold_case_are_clean() {
    for args in ["-n version=ci", "-n version=ci,size=8192 -b size=1024"] {
        let image = image(args);
        image.xfs_repair_check().unwrap();
        is_clean(&image);
    }
}

/// The same directories where the filesystem says that it distinguishes them.
#[test]
fn hashes_of_another_kind_are_found() {
    let image = image("-n version=ci");
    let version = image.xfs_number(&["sb 0", "print versionnum"], "versionnum");
    let version = version.unwrap_or_else(|_| {
        let told = image.xfs_db(&["sb 0", "print versionnum"]).unwrap();
        u64::from_str_radix(told.trim().trim_start_matches("versionnum = 0x"), 16).unwrap()
    });
    image.xfs_db_write(&["sb 0", &format!("write -d versionnum {:#x}", version & !0x4000)]).unwrap();
    assert!(image.xfs_repair_check().is_err());
    let report = our_check(image.path()).unwrap();
    assert!(report.findings.iter().any(|finding| finding.code == "directory-index"), "{}", told(&report));
}
