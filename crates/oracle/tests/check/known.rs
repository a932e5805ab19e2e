//! Damage that has a name: one image, changed by debugfs or byte by byte in one way. e2fsck finds fault with each, and
//! our check has a finding of the right kind.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_oracle::{Image, MountMode, Scratch, open_ext4};
use undercroft_vfs::{Error, FileSystem, Ino};

use crate::{e2fsck, new, our_check, small, told};

/// One image, changed by debugfs in a way that has a name.
#[test]
fn known_damage_is_found_by_its_name() {
    let image = small(new("ext4", 1024).features("orphan_file")).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    std::fs::create_dir_all(mount.path().join("d/sub")).unwrap();
    std::fs::write(mount.path().join("d/file"), vec![7; 20_000]).unwrap();
    std::fs::write(mount.path().join("d/other"), vec![8; 20_000]).unwrap();
    std::os::unix::fs::symlink("target", mount.path().join("d/link")).unwrap();
    mount.unmount().unwrap();
    let cases: [(&[&str], &str); 22] = [
        (&["clri /d/file"], "directory-entry"),
        (&["unlink /d/file"], "inode-unconnected"),
        (&["unlink /d/sub"], "directory-unconnected"),
        (&["set_inode_field /d/file links_count 2"], "link-count"),
        (&["set_inode_field /d links_count 7"], "link-count"),
        (&["set_inode_field /d/file blocks 4"], "inode-blocks"),
        (&["set_inode_field /d/file size 100"], "inode-size"),
        (&["set_inode_field /d/file mode 0170644"], "inode-mode"),
        (&["set_inode_field /d/file dtime 77"], "inode-deletion-time"),
        (&["set_inode_field /d/file faddr 3"], "inode-field"),
        (&["set_inode_field /d/file extra_isize 4094"], "inode-extra-size"),
        (&["set_inode_field /d/link size 3"], "symlink"),
        (&["set_inode_field /d/file flags 0x10080000"], "inode-flags"),
        (&["set_inode_field /d/sub size 3000"], "inode-size"),
        (&["freeb 700 4"], "block-bitmap-differs"),
        (&["setb 60000 4"], "block-bitmap-differs"),
        (&["freei <20>"], "inode-bitmap-differs"),
        (&["seti <4050>"], "inode-bitmap-differs"),
        (&["set_bg 1 free_blocks_count 5"], "group-free-blocks"),
        (&["set_bg 1 used_dirs_count 900", "set_bg 1 checksum calc"], "group-directories"),
        (&["set_super_value free_blocks_count 5"], "superblock-free-blocks"),
        (&["link /d/sub /d/again"], "directory-linked-twice"),
    ];
    for (commands, code) in cases {
        let copy = image.copy().unwrap();
        copy.debugfs_write(commands).unwrap();
        is_found(&copy, code, &format!("{commands:?}"));
    }
}

/// Both find fault with the image, and ours is of this kind.
fn is_found(image: &Image, code: &str, what: &str) {
    let (clean, said) = e2fsck(image.path());
    // It may end well though it has offered to mend something.
    let clean = clean && !said.contains("? no");
    assert!(!clean, "{what} left nothing for e2fsck to find: {said}");
    let report = our_check(image.path()).unwrap();
    let found = report.findings.iter().any(|finding| finding.code == code);
    assert!(found, "{what}: {code} is not among\n{}\ne2fsck: {said}", told(&report));
}

/// A small image of a kind, changed by debugfs, with both of a mind before.
fn changed(features: &str, commands: &[&str]) -> Image {
    let image = new("ext4", 1024).features(features).make().unwrap();
    image.debugfs_write(commands).unwrap();
    image
}

fn patch(image: &Image, at: u64, bytes: &[u8]) {
    File::options().write(true).open(image.path()).unwrap().write_all_at(bytes, at).unwrap();
}

/// The first block of a file, in bytes.
fn first_block(image: &Image, path: &str) -> u64 {
    let blocks = image.debugfs(&format!("blocks {path}")).unwrap();
    blocks.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn dots_end_with_a_nul_byte() {
    for (at, what) in [(9, "."), (12 + 10, "..")] {
        let image = changed("^metadata_csum", &["mkdir d"]);
        patch(&image, first_block(&image, "d") + at, b"Z");
        is_found(&image, "directory-dots", what);
    }
}

#[test]
fn the_superblock_of_a_clean_journal_is_checked() {
    let image = small(new("ext4", 1024)).make().unwrap();
    let journal = first_block(&image, "<8>");
    // The most blocks of a transaction, of which nothing depends on a clean journal.
    patch(&image, journal + 0x49, b"\x01");
    is_found(&image, "journal", "a journal superblock with a wrong checksum");
}

/// Such a filesystem is corrupt, and the check goes on with the rest of it, as e2fsck does.
#[test]
fn inodes_that_the_superblock_names_are_in_use() {
    let make = || new("ext4", 1024).features("orphan_file,quota").args(["-E", "quotatype=usrquota"]);
    let image = make().make().unwrap();
    let orphan_file = "<12>";
    for (inode, codes) in [
        ("<2>", ["root-directory", "group-directories"]),
        ("<3>", ["quota-inode", "block-bitmap-differs"]),
        ("<7>", ["resize-inode", "block-bitmap-differs"]),
        ("<8>", ["journal", "block-bitmap-differs"]),
        (orphan_file, ["orphans", "inode-bitmap-differs"]),
    ] {
        let copy = image.copy().unwrap();
        copy.debugfs_write(&[&format!("clri {inode}")]).unwrap();
        codes.iter().for_each(|code| is_found(&copy, code, &format!("{inode} cleared")));
    }
    for (inode, codes) in [
        ("<2>", ["link-count", "directory-unconnected"]),
        ("<7>", ["resize-inode", "block-bitmap-differs"]),
        ("<8>", ["journal", "journal"]),
        (orphan_file, ["orphans", "inode-bitmap-differs"]),
    ] {
        let copy = image.copy().unwrap();
        copy.debugfs_write(&[&format!("set_inode_field {inode} links_count 0")]).unwrap();
        codes.iter().for_each(|code| is_found(&copy, code, &format!("{inode} without links")));
    }
}

#[test]
fn opening_tells_which_of_the_filesystems_own_inodes_is_not_in_use() {
    let image = new("ext4", 1024).features("orphan_file").make().unwrap();
    for (inode, named) in [("<2>", "root directory"), ("<8>", "journal"), ("<12>", "orphan file")] {
        for command in [format!("clri {inode}"), format!("set_inode_field {inode} links_count 0")] {
            let copy = image.copy().unwrap();
            copy.debugfs_write(&[&command]).unwrap();
            let device = Arc::new(FileDevice::open(copy.path(), FileOptions::read_write()).unwrap());
            let error = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap_err();
            let is_named = matches!(&error, Error::Corrupt(corruption) if corruption.structure == named);
            assert!(is_named, "{command}: {error}");
        }
    }
}

/// Linux reads what a descriptor says was never used: the count serves those that give inodes out.
#[test]
fn inodes_in_use_are_read_and_checked_although_the_group_counts_them_as_unused() {
    let source = Scratch::new("tree").unwrap();
    std::fs::write(source.path().join("f"), "content").unwrap();
    let source = source.path().to_str().unwrap().to_owned();
    for features in ["metadata_csum", "^metadata_csum,uninit_bg"] {
        let image = new("ext4", 1024).features(features).args(["-d", &source]).make().unwrap();
        let per_group = open_ext4(image.path()).unwrap().0.superblock().geometry().inodes_per_group();
        for used in [0, 2, 11] {
            let copy = image.copy().unwrap();
            let unused = format!("set_bg 0 itable_unused {}", per_group - used);
            copy.debugfs_write(&[&unused, "set_bg 0 checksum calc"]).unwrap();
            let mount = copy.mount(MountMode::ReadOnly, "").unwrap();
            assert_eq!(std::fs::read(mount.path().join("f")).unwrap(), b"content");
            mount.unmount().unwrap();
            let (fs, _) = open_ext4(copy.path()).unwrap();
            let file = fs.read_inode(Ino(12)).unwrap();
            assert_eq!(file.size_bytes(), 7);
            let report = our_check(copy.path()).unwrap();
            let codes: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
            assert_eq!(codes, ["group-unused-inodes"], "{features}, {used} used: {}", told(&report));
            is_found(&copy, "group-unused-inodes", &unused);
        }
    }
}

#[test]
fn the_resize_inode_maps_what_is_reserved_and_nothing_else() {
    let lead = |image: &Image| {
        let told = image.debugfs("stat <7>").unwrap();
        let after = told.split("(DIND):").nth(1).unwrap();
        after.split(',').next().unwrap().parse::<u64>().unwrap() * 1024
    };
    let image = changed("resize_inode", &["mkdir d"]);
    patch(&image, lead(&image) + 1020, &5000_u32.to_le_bytes());
    is_found(&image, "resize-inode", "one more lead");
    let image = changed("resize_inode", &["mkdir d"]);
    let list = u32::from_le_bytes(read(&image, lead(&image) + 4));
    patch(&image, u64::from(list) * 1024 + 1020, &5000_u32.to_le_bytes());
    is_found(&image, "resize-inode", "one more block");
    for (commands, code) in [
        (&["set_inode_field <7> size 77"][..], "inode-size"),
        (&["set_inode_field <7> flags 0x80000"], "resize-inode"),
        (&["feature -resize_inode"], "superblock-field"),
    ] {
        is_found(&changed("resize_inode", commands), code, &format!("{commands:?}"));
    }
}

fn read<const N: usize>(image: &Image, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    File::open(image.path()).unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

#[test]
fn encrypted_inodes_have_policies_and_long_names() {
    let encrypted = |commands: &[&str]| {
        let mut all = vec!["mkdir d", "mkdir d/long-enough-for-it", "symlink s target"];
        all.extend(commands);
        changed("encrypt", &all)
    };
    let flag = "set_inode_field d flags 0x80800";
    is_found(&encrypted(&[flag]), "encryption", "no policy");
    // As what Linux has encrypted looks like is tested with such images: here the context is of the wrong length.
    let context = ["ea_set d c -f /dev/null", flag];
    is_found(&encrypted(&context), "encryption", "an empty policy");
    is_found(&encrypted(&["mkdir d/short", flag]), "encryption", "a short name");
    is_found(&encrypted(&["set_inode_field s flags 0x800"]), "symlink", "a target without a length");
}

#[test]
fn what_takes_a_feature_is_found_without_it() {
    let image = changed("^ext_attr", &["mkdir d", "set_inode_field d file_acl 9000"]);
    is_found(&image, "xattr-block", "an attribute block");
    for number in ["1", "2", "5", "7", "8", "9", "99999"] {
        let command = format!("set_super_value usr_quota_inum {number}");
        is_found(&changed("^quota", &[&command]), "superblock-field", &command);
    }
    let image = changed("quota", &["set_super_value usr_quota_inum 99999"]);
    is_found(&image, "superblock-field", "a quota file out of range");
    let image = changed("^resize_inode", &["set_super_value reserved_gdt_blocks 1"]);
    is_found(&image, "superblock-field", "reserved blocks");
}

/// An attribute without a value still says where that begins.
#[test]
fn an_empty_value_lies_within_its_inode() {
    let image = changed("inline_data,^metadata_csum", &["write /etc/hostname f"]);
    let told = image.debugfs("imap f").unwrap();
    let number = |after: &str, digits: &str| {
        let text = told.split(after).nth(1).unwrap_or_else(|| panic!("{after} in {told}"));
        let end = text.find([' ', ',', '\n']).unwrap_or(text.len());
        u64::from_str_radix(text[..end].trim_start_matches(digits), if digits.is_empty() { 10 } else { 16 })
            .unwrap()
    };
    let inode = number("located at block ", "") * 1024 + number("offset ", "0x");
    // The list of attributes begins behind the fields, its magic number first; the value of `system.data` is empty.
    assert_eq!(read::<2>(&image, inode + 160 + 4), [4, 7]);
    patch(&image, inode + 160 + 4 + 2, &[0xff, 0xff]);
    is_found(&image, "xattr", "an empty value outside");
}
