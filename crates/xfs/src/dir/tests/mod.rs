//! Directories that mkfs.xfs made, in every form, read and compared with what xfs_db reads.

mod damage;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;

use undercroft_vfs::{DirOffset, FileType};

use super::directory::Form;
use super::entry::kind_of;
use super::*;
use crate::da::Content;
use crate::da::testing::{Image, Opened, Opening};

/// How many names the directories have.
const SIZES: [usize; 6] = [0, 3, 40, 300, 1500, 12_000];

/// Arguments of mkfs.xfs, and the form of each directory: short, single, leaf or tree.
const VOLUMES: [(&str, &str); 9] = [
    ("", "s s 1 l t t"),
    ("-b size=1024", "s s 1 l t t"),
    ("-n size=16384", "s s 1 1 l t"),
    ("-b size=1024 -n size=65536", "s s 1 1 l t"),
    ("-b size=65536", "s s 1 1 l t"),
    ("-n version=ci", "s s 1 l t t"),
    ("-m crc=0 -b size=512", "s s 1 l t t"),
    ("-m crc=0 -n ftype=0", "s s 1 l t t"),
    ("-m crc=0 -n version=ci", "s s 1 l t t"),
];

fn name(number: usize) -> String {
    format!("Name-{number}{}", "x".repeat(number % 40))
}

pub(super) fn prototype(sizes: &[usize]) -> String {
    let mut list = "/dev/null\n0 0\nd--755 0 0\n".to_owned();
    for &size in sizes {
        writeln!(list, "dir{size} d--750 0 0").unwrap();
        for number in 0..size {
            let kind = if number % 7 == 6 { "l--777 0 0 target" } else { "---644 0 0 /dev/null" };
            writeln!(list, "{} {kind}", name(number)).unwrap();
        }
        list.push_str("$\n");
    }
    list + "$\n"
}

pub(super) fn with_directory<T>(inode: &Opening<'_>, look: impl FnOnce(Directory<'_>) -> T) -> T {
    inode.with_data(|content| {
        let (layout, superblock) = (&inode.layout, inode.volume.superblock());
        look(Directory { ino: inode.ino, layout, superblock, content })
    })
}

/// Name, number, kind, and where the stream goes on.
type Listed = (String, u64, Option<FileType>, u64);

pub(super) fn list(directory: Directory<'_>, from: u64, most: usize) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    read_dir(directory, DirOffset(from), &mut |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        listed.push((name, entry.ino.0, entry.kind, entry.next.0));
        if listed.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(listed)
}

/// Position, number and kind of each name as xfs_db reads them.
fn list_by_xfs_db(image: &Opened, path: &str) -> BTreeMap<String, (u64, u64, Option<FileType>)> {
    let mut names = BTreeMap::new();
    // "12   131   regular   0x00000061   1 a (good)"
    for line in image.ask(&[&format!("ls {path}")]).lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [position, ino, kind, _, _, name, "(good)"] = words[..] else { panic!("{line}") };
        let kind = match kind {
            "regular" => Some(FileType::Regular),
            "directory" => Some(FileType::Directory),
            "symlink" => Some(FileType::Symlink),
            _ => None,
        };
        names.insert(name.to_owned(), (position.parse().unwrap(), ino.parse().unwrap(), kind));
    }
    names
}

fn form_of(directory: &Directory<'_>) -> &'static str {
    match directory.content {
        Content::Inline(_) => "s",
        Content::Blocks(blocks) => match directory.form(&directory.fork(blocks)).unwrap() {
            Form::Single(_) => "1",
            Form::Leaf(_) => "l",
            Form::Tree => "t",
        },
    }
}

#[test]
fn every_form_is_read_as_xfs_db_reads_it() {
    for (args, forms) in VOLUMES {
        let image = Image::make(args, &prototype(&SIZES));
        let image = image.open();
        for (size, form) in SIZES.into_iter().zip(forms.split(' ')) {
            let path = format!("/dir{size}");
            let what = format!("{path} of mkfs.xfs {args}");
            let inode = image.inode(&path);
            let expected = list_by_xfs_db(&image, &path);
            with_directory(&inode, |directory| {
                assert_eq!(form_of(&directory), form, "{what}");
                let all = list(directory, 0, usize::MAX).unwrap();
                assert_eq!(all.len(), size + 2, "{what}");
                for (name, ino, kind, next) in &all {
                    let (position, expected_ino, expected_kind) = expected[name];
                    // As with Linux, a directory in its inode knows the kind of these two in any case.
                    let dot = form == "s" && matches!(&**name, "." | "..");
                    let expected_kind = if dot { Some(FileType::Directory) } else { expected_kind };
                    assert_eq!((*ino, *kind), (expected_ino, expected_kind), "{name} in {what}");
                    // Of larger directories xfs_db shows where the entry ends.
                    let ends = matches!(form, "l" | "t");
                    assert!(if ends { *next == position } else { *next > position }, "{name} in {what}");
                }
                for (name, (_, ino, _)) in &expected {
                    assert_eq!(
                        lookup(directory, name.as_bytes()).unwrap(),
                        Some(Ino(*ino)),
                        "{name} in {what}"
                    );
                    if inode.layout.folds_case {
                        let upper = name.to_ascii_uppercase();
                        assert_eq!(
                            lookup(directory, upper.as_bytes()).unwrap(),
                            Some(Ino(*ino)),
                            "{upper} in {what}"
                        );
                    }
                }
                for absent in ["Name", "Name-99999", "...", "", &"n".repeat(255), &"n".repeat(256)] {
                    assert_eq!(lookup(directory, absent.as_bytes()).unwrap(), None, "{absent} in {what}");
                }
                assert_eq!(
                    lookup(directory, b"NAME-1x").unwrap().is_some(),
                    inode.layout.folds_case && size > 1
                );
            });
        }
    }
}

#[test]
fn a_listing_goes_on_where_it_broke_off() {
    for args in ["", "-b size=1024 -n size=4096", "-m crc=0"] {
        let image = Image::make(args, &prototype(&[3, 40, 1500]));
        let image = image.open();
        for path in ["/dir3", "/dir40", "/dir1500"] {
            let inode = image.inode(path);
            with_directory(&inode, |directory| {
                let all = list(directory, 0, usize::MAX).unwrap();
                for most in [1, 7, 100] {
                    let (mut from, mut pieces) = (0, Vec::new());
                    loop {
                        let piece = list(directory, from, most).unwrap();
                        let Some((.., next)) = piece.last() else { break };
                        from = *next;
                        pieces.extend(piece);
                    }
                    assert_eq!(pieces, all, "{path} of mkfs.xfs {args}, {most} at a time");
                }
                for pair in all.windows(2) {
                    // A position within an entry leads to the one after it.
                    let within = list(directory, pair[0].3 - 1, 1).unwrap();
                    assert_eq!(within[0], pair[1], "{path} of mkfs.xfs {args}");
                }
                assert_eq!(list(directory, u64::MAX, 1).unwrap(), []);
            });
        }
    }
}

#[test]
fn codes_of_kinds() {
    assert_eq!(kind_of(0), None);
    assert_eq!(kind_of(6), Some(FileType::Socket));
    assert_eq!(kind_of(8), None);
}
