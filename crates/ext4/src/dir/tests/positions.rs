//! Positions in a directory stream: those handed out lead on, others do no harm.

use super::super::directory::Directory;
#[cfg(feature = "oracle")]
use super::super::inline::InlineEntries;
use super::*;

/// Directories of every form: inline, one block, several blocks, with an index.
fn forms() -> Loaded {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).features("inline_data");
    let image = image_by_kernel(&mke2fs, |root| {
        touch(&root.join("inline"), ["a", "b", "somewhat-longer", "d", "e", "f"]);
        touch(&root.join("block"), (0..12).map(|n| format!("name-{n}")));
        touch(&root.join("indexed"), long_names(60));
    });
    Loaded::new(&image)
}

const PATHS: [&str; 4] = ["/", "inline", "block", "indexed"];

#[test]
fn each_position_handed_out_leads_to_the_rest() {
    let volume = forms().open();
    for path in PATHS {
        let inode = inode(&volume, path);
        let all = list(&volume, &inode, 0);
        assert!(all.len() > 3, "{path}");
        assert_eq!((&*all[0].name, &*all[1].name), (&b"."[..], &b".."[..]), "{path}");
        for (index, listed) in all.iter().enumerate() {
            assert_eq!(list(&volume, &inode, listed.next.0), all[index + 1..], "{path} after {index}");
        }
        // One at a time, as a caller with a small buffer would.
        let mut position = 0;
        for expected in &all {
            let (listed, end) = list_some(&volume, &inode, position, 1);
            end.unwrap();
            assert_eq!(listed, std::slice::from_ref(expected), "{path}");
            position = listed[0].next.0;
        }
    }
}

#[cfg(feature = "oracle")]
#[test]
fn the_forms_are_what_they_are_called() {
    let volume = forms().open();
    let inline = inode(&volume, "inline");
    assert!(inline.has_inline_data());
    let regions = InlineEntries::read(&Directory::open(&volume, &inline).unwrap()).unwrap();
    assert!(regions.regions().iter().all(|region| !region.bytes.is_empty()));
    assert!(!inode(&volume, "block").has_inline_data());
    let indexed = inode(&volume, "indexed");
    assert!(Directory::open(&volume, &indexed).unwrap().is_indexed());
}

#[test]
fn a_made_up_position_gives_whole_entries_after_it() {
    let volume = forms().open();
    for path in PATHS {
        let inode = inode(&volume, path);
        let all = list(&volume, &inode, 0);
        let last = all.last().unwrap().next.0;
        let mut left = all.len();
        for position in (0..last + 100).chain([1 << 40, (1 << 60) - 1, 1 << 60, 1 << 63, u64::MAX]) {
            let rest = list(&volume, &inode, position);
            assert!(rest.len() <= left && all.ends_with(&rest), "{path} at {position}");
            left = rest.len();
        }
        assert_eq!(left, 0, "{path}");
    }
}

#[test]
fn every_listed_name_is_found_and_others_are_not() {
    let volume = forms().open();
    for path in PATHS {
        let inode = inode(&volume, path);
        for (name, ino) in names(&volume, &inode) {
            assert_eq!(lookup(&volume, &inode, &name).unwrap(), Some(ino), "{path}/{}", name.escape_ascii());
        }
        for name in [&b""[..], b"no", b"...", b"name-1\0", b"name-/", &[b'x'; 256], &[0xff; 70_000]] {
            assert_eq!(lookup(&volume, &inode, name).unwrap(), None, "{path}/{}", name.escape_ascii());
        }
    }
}

/// The kernel mounts no such filesystem on a machine with small pages, e2fsprogs makes it.
#[test]
fn blocks_of_64_kib() {
    let image = image(Mke2fs::new("ext4", 64).block_bytes(65536).inodes(4096), |root| {
        touch(&root.join("few"), ["one"]);
        touch(&root.join("many"), long_names(2000));
    });
    // This crate makes the index at once.
    let rounds: &[&str] = if cfg!(feature = "oracle") { &["as made", "indexed"] } else { &["indexed"] };
    for &round in rounds {
        let volume = Loaded::new(&image).open();
        for (path, count) in [("few", 1), ("many", 2000)] {
            let directory = inode(&volume, path);
            let listed = names(&volume, &directory);
            assert_eq!(listed.len(), 2 + count, "{path}, {round}");
            for (name, ino) in &listed {
                assert_eq!(lookup(&volume, &directory, name).unwrap(), Some(*ino), "{path}, {round}");
            }
        }
        assert_eq!(
            Directory::open(&volume, &inode(&volume, "many")).unwrap().is_indexed(),
            round == "indexed"
        );
        index_directories(&image);
    }
}
