//! Casefolded directories, indexed by e2fsck, which has Linux's tables. The kernel at hand may lack them.

use undercroft_oracle::Mke2fs;

use super::super::casefold::Casefold;
use super::super::directory::Directory;
use super::*;
use crate::checksum::crc32c;

const CASEFOLD_FLAG: u32 = 0x4000_0000;

/// Names of many kinds, enough for an index, none of them equal to another when folded.
fn spellings() -> Vec<(String, Vec<String>)> {
    let mut names = vec![
        ("README".to_owned(), vec!["readme".to_owned(), "ReadMe".to_owned()]),
        ("Straße".to_owned(), vec!["STRASSE".to_owned(), "strasse".to_owned()]),
        ("caf\u{e9}".to_owned(), vec!["CAFE\u{301}".to_owned(), "Caf\u{c9}".to_owned()]),
        ("\u{39f}\u{394}\u{39f}\u{3a3}".to_owned(), vec!["\u{3bf}\u{3b4}\u{3bf}\u{3c2}".to_owned()]),
        ("heart\u{2764}\u{fe0f}".to_owned(), vec!["HEART\u{2764}".to_owned()]),
        ("\u{ac00}\u{11a8}".to_owned(), vec!["\u{ac01}".to_owned()]),
    ];
    for number in 0..400 {
        let name = format!("Number-{number:x}-\u{c4}\u{17d}-{}", "x".repeat(number % 40));
        names.push((name.clone(), vec![name.to_uppercase(), name.to_lowercase()]));
    }
    names
}

/// A directory of those names with the flag. It is indexed by folded names if `fold_first`, otherwise by the
/// names as they are. Without `fallback` names are only where the index leads to.
fn casefolded(fold_first: bool, fallback: bool) -> Volume {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).features("casefold").extended("encoding=utf8");
    let image = image(mke2fs, |root| touch(&root.join("d"), spellings().into_iter().map(|(name, _)| name)));
    if !fold_first {
        image.rebuild_directories().unwrap();
    }
    let flags = flags_of(&image) | CASEFOLD_FLAG;
    image.debugfs_write(&[&format!("set_inode_field /d flags {flags:#x}")]).unwrap();
    if fold_first {
        image.rebuild_directories().unwrap();
    }
    let volume = Loaded::new(&image).open_changed(|device| {
        if !fallback {
            forbid_fallback(device);
        }
    });
    assert_eq!(Casefold::of(volume.superblock()), Some(Casefold { may_be_misplaced: fallback }));
    volume
}

/// Sets the flag in `s_encoding_flags` by which names are nowhere but where the index leads to.
fn forbid_fallback(device: &dyn BlockDevice) {
    const SUPERBLOCK: u64 = 1024;
    const ENCODING_FLAGS: usize = 0x27e;
    const CHECKSUM: usize = 0x3fc;
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK, &mut bytes).unwrap();
    bytes[ENCODING_FLAGS] |= 2;
    let checksum = crc32c(!0, &bytes[..CHECKSUM]);
    bytes[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    device.write_at(SUPERBLOCK, &bytes).unwrap();
}

fn flags_of(image: &Image) -> u32 {
    let text = image.debugfs("stat /d").unwrap();
    let flags = text.split_once("Flags: 0x").unwrap().1.split_whitespace().next().unwrap();
    u32::from_str_radix(flags, 16).unwrap()
}

fn check_spellings(volume: &Volume) {
    let directory = inode(volume, "d");
    assert!(Directory::open(volume, &directory).unwrap().is_indexed());
    let listed = names(volume, &directory);
    for (name, others) in spellings() {
        let ino = listed[name.as_bytes()];
        for spelling in others.iter().chain([&name]) {
            assert_eq!(lookup(volume, &directory, spelling.as_bytes()).unwrap(), Some(ino), "{spelling}");
        }
    }
    assert_eq!(lookup(volume, &directory, b"no such name").unwrap(), None);
    assert_eq!(lookup(volume, &directory, b"README\xff").unwrap(), None);
}

#[test]
fn every_spelling_is_found_where_the_index_leads_to() {
    check_spellings(&casefolded(true, false));
}

#[test]
fn misplaced_names_are_found() {
    check_spellings(&casefolded(false, true));
    // They are misplaced indeed, all but those that chance put where their folded names belong.
    let volume = casefolded(false, false);
    let directory = inode(&volume, "d");
    let folded = spellings().into_iter().filter_map(|(_, others)| others.into_iter().next_back());
    let (mut lost, mut all) = (0, 0);
    for name in folded {
        all += 1;
        lost += usize::from(lookup(&volume, &directory, name.as_bytes()).unwrap().is_none());
    }
    assert!(lost > all / 2, "only {lost} of {all} names are misplaced");
}

/// Names that differ only in case, from before the directory had the flag.
#[test]
fn the_exact_spelling_is_preferred() {
    let mke2fs = Mke2fs::new("ext4", 4).block_bytes(1024).features("casefold").extended("encoding=utf8");
    let image = image(mke2fs, |root| touch(&root.join("d"), ["name", "Name", "NAME", "n\u{e4}me"]));
    let flags = flags_of(&image) | CASEFOLD_FLAG;
    image.debugfs_write(&[&format!("set_inode_field /d flags {flags:#x}")]).unwrap();
    let volume = Loaded::new(&image).open();
    let directory = inode(&volume, "d");
    let listed = names(&volume, &directory);
    for (name, ino) in &listed {
        assert_eq!(lookup(&volume, &directory, name).unwrap(), Some(*ino));
    }
    assert!(lookup(&volume, &directory, b"nAmE").unwrap().is_some());
    assert_eq!(
        lookup(&volume, &directory, "N\u{c4}ME".as_bytes()).unwrap(),
        Some(listed["n\u{e4}me".as_bytes()])
    );
}
