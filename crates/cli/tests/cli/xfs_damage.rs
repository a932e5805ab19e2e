//! Damage in XFS that looks like less than there is: what is lost is named, and what is there is shown.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::XattrFlags;
use undercroft_oracle::{Image, MkfsXfs, MountMode};

use crate::support::{Run, undercroft};

const ATTRIBUTES: usize = 300;
const NAMES: usize = 150;
const LONG: &str = "a_name_that_takes_some_space_";

/// An image with a file whose map is a B+tree, a file with many attributes, and a directory of each form; made once and
/// changed by no test.
fn sound() -> &'static Image {
    static SOUND: OnceLock<Image> = OnceLock::new();
    SOUND.get_or_init(|| {
        let image = MkfsXfs::new(80, "-m rmapbt=1 -d agcount=4").make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
        let root = mount.path();
        fs::write(root.join("base"), "b").unwrap();
        for (dir, name, files) in [("leaf", LONG, NAMES), ("block", LONG, 40), ("short", "f", 5)] {
            fs::create_dir(root.join(dir)).unwrap();
            for number in 0..files {
                fs::hard_link(root.join("base"), root.join(format!("{dir}/{name}{number}"))).unwrap();
            }
        }
        fs::write(root.join("plain"), [b'p'; 300_000]).unwrap();
        let file = File::create(root.join("fragmented")).unwrap();
        for number in 0..800_u64 {
            file.write_all_at(&[b'F'; 4096], number * 8192).unwrap();
            if number % 50 == 0 {
                file.sync_all().unwrap();
            }
        }
        drop(file);
        File::create(root.join("attributes")).unwrap();
        for number in 0..ATTRIBUTES {
            let value = format!("{number}").repeat(40);
            let name = format!("user.n{number:04}");
            rustix::fs::setxattr(root.join("attributes"), name, value.as_bytes(), XattrFlags::empty())
                .unwrap();
        }
        mount.unmount().unwrap();
        image
    })
}

/// A copy with a change made by xfs_db, its checksum recomputed.
fn damaged(commands: &[&str]) -> Image {
    let image = sound().copy().unwrap();
    image.xfs_db_write(commands).unwrap();
    image
}

fn on(image: &Image, command: &str, rest: &[&str]) -> Run {
    undercroft([&[command, image.path().to_str().unwrap()], rest].concat())
}

fn lines(run: &Run) -> usize {
    run.stdout.iter().filter(|&&byte| byte == b'\n').count()
}

#[test]
fn extents_that_a_map_lost_are_no_holes() {
    let image = damaged(&["path /fragmented", "addr u3.bmbt.ptrs[1]", "write -d numrecs 3"]);
    let run = on(&image, "cat", &["/fragmented"]);
    assert!(run.code != 0 && run.stderr.contains("extents, and the inode counts"), "{}", run.stderr);
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("copy");
    let run = on(&image, "get", &["/", to.to_str().unwrap()]);
    assert!(run.code != 0 && run.stderr.contains("fragmented"), "{}", run.stderr);
    assert_eq!(fs::read(to.join("plain")).unwrap().len(), 300_000);
    assert_eq!(on(sound(), "cat", &["/fragmented"]).succeeded().len(), 799 * 8192 + 4096);
}

#[test]
fn attributes_that_are_listed_and_not_found_are_named() {
    let image = damaged(&["path /attributes", "ablock 0", "write -d hdr.count 5"]);
    // Other filesystems have no room for so many.
    let room = MkfsXfs::new(64, "").make().unwrap();
    let mount = room.mount(MountMode::ReadWrite, "noatime").unwrap();
    let to = mount.path().join("copy");
    let run = on(&image, "get", &["/attributes", to.to_str().unwrap()]);
    assert!(run.code != 0 && run.stderr.contains("a look-up does not find it"), "{}", run.stderr);
    let kept = names_of_attributes(&to);
    let archive = on(&image, "get", &["--tar", "/attributes"]);
    assert!(archive.code != 0 && archive.stderr.contains("a look-up does not find it"), "{}", archive.stderr);
    let shown = on(&image, "stat", &["/attributes"]);
    assert_ne!(shown.code, 0);
    let listed = String::from_utf8_lossy(&shown.stdout).matches("user.n").count();
    assert!(kept > 50 && kept < ATTRIBUTES && listed == kept, "{kept} copied, {listed} shown");
    assert_eq!(shown.stderr.lines().count(), ATTRIBUTES - kept, "{}", shown.stderr);
}

fn names_of_attributes(path: &Path) -> usize {
    let mut buf = vec![0; 64 << 10];
    let len = rustix::fs::listxattr(path, &mut buf).unwrap();
    buf[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()).count()
}

#[test]
fn a_damaged_hash_index_hides_no_directory() {
    let image = damaged(&["path /leaf", "dblock 8388608", "write -c lhdr.info.hdr.magic 0"]);
    let run = on(&image, "ls", &["/leaf"]);
    assert_eq!((run.code, lines(&run)), (0, NAMES), "{}", run.stderr);
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("copy");
    on(&image, "get", &["/leaf", to.to_str().unwrap()]).succeeded();
    assert_eq!(fs::read_dir(&to).unwrap().count(), NAMES);
    // A look-up needs the index.
    let run = on(&image, "cat", &[&format!("/leaf/{LONG}1")]);
    assert!(run.code != 0 && run.stderr.contains("directory"), "{}", run.stderr);
    assert_eq!(on(&image, "check", &[]).code, 4);
}

#[test]
fn blocks_of_a_groups_headers_are_no_files() {
    let image = damaged(&["path /plain", "write -d u3.bmx[0].startblock 0"]);
    let run = on(&image, "cat", &["/plain"]);
    assert!(run.code != 0 && run.stdout.is_empty() && run.stderr.contains("headers"), "{}", run.stderr);
}

#[test]
fn an_entry_that_can_be_no_files_is_named_and_the_others_are_shown() {
    for (commands, dir, rest, word) in [
        (
            ["path /short", "write -d u3.sfdir3.list[1].name \"..\""].as_slice(),
            "/short",
            4,
            "among those of files",
        ),
        (&["path /block", "dblock 0", "write -d bu[5].inumber 129"], "/block", 39, "the filesystem's own"),
    ] {
        let image = damaged(commands);
        let run = on(&image, "ls", &[dir]);
        assert!(run.code != 0 && run.stderr.contains(word), "{commands:?}: {}", run.stderr);
        assert_eq!(lines(&run), rest, "{commands:?}");
        let run = on(&image, "check", &[]);
        assert!(
            run.code == 4 && run.stdout.windows(15).any(|part| part == b"directory-entry"),
            "{commands:?}"
        );
    }
}

#[test]
fn features_that_a_check_does_not_know_are_not_called_clean() {
    let image = damaged(&["sb 0", "write -d features_ro_compat 0x800f"]);
    let message = on(&image, "check", &[]).failed(8);
    assert!(message.contains("0x8000"), "{message}");
    let image = damaged(&["sb 2", "write -d features_incompat 0x2b"]);
    let run = on(&image, "check", &[]);
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.code == 4 && text.contains("another set of features"), "{text}");
    let image = damaged(&["sb 0", "write -d features2 0x8a", "write -d bad_features2 0x8a"]);
    let message = on(&image, "ls", &["/"]).failed(4);
    assert!(message.contains("features2 0x8a"), "{message}");
}
