//! Images made to do harm: names that lead out of the destination, links in the way, directories in a circle.
//!
//! Checksums are off in these images, since their makers would have set them right.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{Image, Mke2fs};

use crate::support::{PROGRAM, fill, run};

fn plain(files: &[(&str, &str)]) -> Image {
    let image = Mke2fs::new("ext4", 8)
        .block_bytes(1024)
        .features("^metadata_csum,^has_journal,^uninit_bg,^dir_index")
        .make()
        .unwrap();
    fill(&image, files);
    image
}

/// Replaces a name in a directory block by another of the same length.
fn rename_raw(image: &Image, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let bytes = fs::read(image.path()).unwrap();
    let places: Vec<usize> = bytes
        .windows(from.len())
        .enumerate()
        .filter(|(_, window)| *window == from)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(places.len(), 1, "the name is in one place");
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    file.write_all_at(to, places[0] as u64).unwrap();
}

fn get(image: &Image, dest: &Path) -> crate::support::Run {
    run(Command::new(PROGRAM).arg("get").arg(image.path()).arg("/").arg(dest))
}

#[test]
fn names_with_slashes_and_dots_lead_nowhere() {
    for to in [&b"../evil"[..], b"/tmp/ev", b"sub/evi", b"a\0b/../"] {
        let image = plain(&[("/EVILNAM", "harm")]);
        rename_raw(&image, b"EVILNAM", to);
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("dest");
        let outcome = get(&image, &dest);
        assert_eq!(outcome.code, 1, "{to:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("corrupt"), "{}", outcome.stderr);
        let mut outside: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        outside.sort();
        assert_eq!(outside, ["dest"], "{to:?}");
        assert!(!Path::new("/tmp/ev").exists());
    }
}

/// A link to a directory outside, and a directory of the same name with a file in it: whichever comes first, the
/// file must not go through the link.
#[test]
fn a_link_with_a_directorys_name_is_not_walked_through() {
    for (link, directory) in [("AAAAAAAA", "BBBBBBBB"), ("BBBBBBBB", "AAAAAAAA")] {
        let outside = tempfile::tempdir().unwrap();
        let image = plain(&[]);
        let first = format!("symlink {link} {}", outside.path().display());
        let commands = [format!("mkdir {directory}"), format!("write /etc/hostname {directory}/file")];
        let all = if link < directory {
            [vec![first], commands.to_vec()].concat()
        } else {
            [commands.to_vec(), vec![first]].concat()
        };
        image.debugfs_write(&all.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        rename_raw(&image, b"AAAAAAAA", b"samename");
        rename_raw(&image, b"BBBBBBBB", b"samename");
        let dir = tempfile::tempdir().unwrap();
        let outcome = get(&image, &dir.path().join("dest"));
        assert_eq!(outcome.code, 1, "{}", outcome.stderr);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "nothing went through the link");
    }
}

#[test]
fn directories_in_a_circle_end() {
    let image = plain(&[("/up/down/file", "x")]);
    // A second name for a directory, below itself: debugfs asks no questions.
    image.debugfs_write(&["ln up up/down/again"]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let outcome = get(&image, &dir.path().join("dest"));
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("leads to directory"), "{}", outcome.stderr);
    assert_eq!(fs::read(dir.path().join("dest/up/down/file")).unwrap(), b"x");
    for command in [&["tree"][..], &["ls", "-R"]] {
        let outcome = run(Command::new(PROGRAM).args(command).arg(image.path()));
        assert_eq!(outcome.code, 1, "{command:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("leads to directory"), "{}", outcome.stderr);
    }
    let outcome = run(Command::new(PROGRAM).args(["get", "--tar"]).arg(image.path()).arg("/"));
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
}

/// One file whose extent points outside of the disk: the others are copied, and the archive stays readable.
#[test]
fn a_damaged_file_does_not_keep_the_others_back() {
    let image = plain(&[("/bad", &"b".repeat(3000)), ("/good", "fine"), ("/later", "also fine")]);
    image.debugfs_write(&["set_inode_field bad block[5] 0x7fffffff"]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let outcome = get(&image, &dir.path().join("dest"));
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    assert!(outcome.stderr.starts_with("undercroft: /bad: corrupt"), "{}", outcome.stderr);
    assert_eq!(fs::read(dir.path().join("dest/later")).unwrap(), b"also fine");

    // What is there of a file that cannot be read is not replaced by less.
    fs::write(dir.path().join("bad"), "whole").unwrap();
    let replacing = run(Command::new(PROGRAM)
        .args(["get", "--overwrite"])
        .arg(image.path())
        .args(["/bad", "/good"])
        .arg(dir.path()));
    assert_eq!(replacing.code, 1);
    assert!(replacing.stderr.ends_with("; what has its name stays\n"), "{}", replacing.stderr);
    assert_eq!(fs::read(dir.path().join("bad")).unwrap(), b"whole");
    assert_eq!(fs::read(dir.path().join("good")).unwrap(), b"fine");

    let alone = run(Command::new(PROGRAM).arg("cat").arg(image.path()).arg("/bad"));
    assert_eq!(alone.code, 5, "{}", alone.stderr);

    let archive = run(Command::new(PROGRAM).args(["get", "--tar"]).arg(image.path()).arg("/"));
    assert_eq!(archive.code, 1, "{}", archive.stderr);
    fs::write(dir.path().join("tar"), archive.stdout).unwrap();
    let listed = crate::support::tool("tar -tf tar", dir.path());
    assert!(["bad", "good", "later"].iter().all(|name| listed.lines().any(|line| line == *name)), "{listed}");
}

/// A name that leads to an inode that is not in use is damage, however the inode came to be free; nothing calls it a file
/// handle that went stale.
#[test]
fn names_of_inodes_that_are_not_in_use_are_corruption_to_every_command() {
    for change in ["clri f", "set_inode_field f links_count 0", "clri d"] {
        let image = Mke2fs::new("ext4", 8).make().unwrap();
        fill(&image, &[("/f", "x"), ("/d/below", "x"), ("/good", "x")]);
        image.debugfs_write(&[change]).unwrap();
        let name = if change == "clri d" { "d" } else { "f" };
        let why = format!("corrupt directory entry of inode 2: \"{name}\" leads to inode ");
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        let path = format!("/{name}");
        for (words, code) in [
            (&["ls", "/"][..], 1),
            (&["tree", "/"], 1),
            (&["get", "/", copy.to_str().unwrap()], 1),
            (&["stat", &path], 5),
            (&["cat", &path], 5),
            (&["ls", &path], 5),
        ] {
            let run = run(Command::new(PROGRAM).arg(words[0]).arg(image.path()).args(&words[1..]));
            assert_eq!(run.code, code, "{change}, {words:?}: {}", run.stderr);
            assert!(run.stderr.contains(&why), "{change}, {words:?}: {}", run.stderr);
        }
        assert!(copy.join("good").exists());
    }
}
