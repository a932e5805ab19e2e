//! Making, linking, moving and removing names.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread;

use rustix::fs::{CWD, FileType, Mode, RenameFlags};

use crate::both::{Answers, same_answers};

/// What a listing shows, in order.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn kind_and_links(path: &Path) -> std::io::Result<(String, u64, u64)> {
    fs::symlink_metadata(path).map(|found| (format!("{:o}", found.mode()), found.nlink(), found.rdev()))
}

#[test]
fn every_kind_of_object_is_made() {
    same_answers(|dir, answers| {
        answers.note("file", File::create(dir.join("file")).map(drop));
        answers.note("directory", fs::DirBuilder::new().mode(0o2750).create(dir.join("directory")));
        answers.note("link", symlink("file", dir.join("link")));
        answers.note("long link", symlink("x".repeat(4095), dir.join("long")));
        let mode = Mode::from(0o640);
        for (name, kind, device) in [
            ("pipe", FileType::Fifo, 0),
            ("socket", FileType::Socket, 0),
            ("regular", FileType::RegularFile, 0),
            ("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            ("block", FileType::BlockDevice, rustix::fs::makedev(0xfff, 0xf_ffff)),
        ] {
            answers.call(name, rustix::fs::mknodat(CWD, dir.join(name), kind, mode, device));
        }
        for name in names(dir) {
            answers.note(&name, kind_and_links(&dir.join(&name)));
        }
        answers.tell("listing", names(dir));
        answers.note("target", fs::read_link(dir.join("long")));
        assert!(fs::symlink_metadata(dir.join("char")).unwrap().file_type().is_char_device());
        answers.note("device", fs::write(dir.join("char"), b"into nothing"));
    });
}

#[test]
fn a_name_is_made_once() {
    same_answers(|dir, answers| {
        let file = dir.join("name");
        let exclusively = || OpenOptions::new().write(true).create_new(true).open(&file).map(drop);
        answers.note("first", exclusively());
        answers.note("second", exclusively());
        answers.note(
            "shared",
            OpenOptions::new().write(true).create(true).truncate(false).open(&file).map(drop),
        );
        answers.note("directory", fs::create_dir(&file));
        answers.note("link", symlink("x", &file));
        answers.note("under a file", File::create(file.join("x")).map(drop));
        answers.note("nowhere", File::create(dir.join("nowhere/x")).map(drop));
        answers.note("longest", File::create(dir.join("x".repeat(255))).map(drop));
        answers.note("longer", File::create(dir.join("x".repeat(256))).map(drop));
        answers.note("looked up", fs::metadata(dir.join("x".repeat(256))).map(drop));
    });
}

#[test]
fn names_are_linked_and_removed() {
    same_answers(|dir, answers| {
        let (one, two) = (dir.join("one"), dir.join("two"));
        fs::write(&one, b"content").unwrap();
        answers.note("link", fs::hard_link(&one, &two));
        answers.note("links", kind_and_links(&one));
        answers.note("again", fs::hard_link(&one, &two));
        answers.note("content", fs::read(&two));
        answers
            .note("same inode", fs::metadata(&one).map(|one| one.ino() == fs::metadata(&two).unwrap().ino()));
        answers.note("unlink", fs::remove_file(&one));
        answers.note("gone", kind_and_links(&one));
        answers.note("left", kind_and_links(&two));
        let inside = dir.join("dir/inside");
        fs::create_dir_all(&inside).unwrap();
        answers.note("unlink a directory", fs::remove_file(&inside));
        answers.note("link a directory", fs::hard_link(&inside, dir.join("x")));
        answers.note("not empty", fs::remove_dir(dir.join("dir")));
        answers.note("links of a directory", kind_and_links(&dir.join("dir")));
        answers.note("rmdir", fs::remove_dir(&inside));
        answers.note("links of a directory", kind_and_links(&dir.join("dir")));
        answers.note("rmdir a file", fs::remove_dir(&two));
        answers.note("rmdir nothing", fs::remove_dir(&inside));
        answers.note("rmdir", fs::remove_dir(dir.join("dir")));
        answers.tell("listing", names(dir));
    });
}

#[test]
fn names_are_moved_in_every_way() {
    same_answers(|dir, answers| {
        let at = |name: &str| dir.join(name);
        let rename = |answers: &mut Answers, what: &str, from: &str, to: &str, flags: RenameFlags| {
            answers.call(what, rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags));
        };
        let plain = RenameFlags::empty();
        fs::write(at("a"), b"a").unwrap();
        fs::write(at("b"), b"b").unwrap();
        fs::create_dir_all(at("d/e")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        rename(answers, "over", "a", "b", plain);
        answers.note("content", fs::read(at("b")));
        rename(answers, "nothing", "a", "b", plain);
        rename(answers, "into itself", "d", "d/e/f", plain);
        rename(answers, "over a full directory", "empty", "d", plain);
        rename(answers, "over an empty directory", "d", "empty", plain);
        rename(answers, "file over directory", "b", "empty", plain);
        rename(answers, "directory over file", "empty", "b", plain);
        rename(answers, "to another directory", "b", "empty/b", plain);
        answers.note("links", kind_and_links(&at("empty")));
        fs::write(at("c"), b"c").unwrap();
        rename(answers, "no replace", "c", "empty/b", RenameFlags::NOREPLACE);
        rename(answers, "no need to", "c", "empty/c", RenameFlags::NOREPLACE);
        rename(answers, "exchange", "empty/c", "empty/e", RenameFlags::EXCHANGE);
        answers.note("kind", kind_and_links(&at("empty/c")));
        answers.note("content", fs::read(at("empty/e")));
        rename(answers, "exchange with nothing", "empty/c", "nothing", RenameFlags::EXCHANGE);
        rename(answers, "exchange and keep", "a", "b", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE);
        rename(answers, "whiteout", "empty/b", "b", RenameFlags::WHITEOUT);
        answers.note("whiteout", kind_and_links(&at("empty/b")));
        rename(answers, "directory up", "empty/c", "c", plain);
        answers.tell("listing", (names(dir), names(&at("empty")), names(&at("c"))));
        answers
            .note("parent", fs::metadata(at("c/..")).map(|up| up.ino() == fs::metadata(dir).unwrap().ino()));
    });
}

#[test]
fn a_listing_follows_changes() {
    same_answers(|dir, answers| {
        for number in 0..300 {
            File::create(dir.join(format!("{number:03}"))).unwrap();
        }
        answers.tell("all", names(dir));
        for number in (0..300).step_by(3) {
            fs::remove_file(dir.join(format!("{number:03}"))).unwrap();
        }
        answers.tell("two in three", names(dir));
        File::create(dir.join("new")).unwrap();
        answers.tell("one more", names(dir).len());
        fs::rename(dir.join("new"), dir.join("newer")).unwrap();
        assert!(names(dir).contains(&"newer".to_owned()));
        // While the listing goes on, names go away.
        let mut removed = 0;
        for entry in fs::read_dir(dir).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
            removed += 1;
        }
        answers.tell("removed", removed);
        answers.tell("none", names(dir));
    });
}

#[test]
fn the_mask_and_the_directory_decide_about_permissions() {
    same_answers(|dir, answers| {
        let shared = dir.join("shared");
        fs::create_dir(&shared).unwrap();
        std::os::unix::fs::chown(&shared, Some(1), Some(1234)).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o2777)).unwrap();
        let open = OpenOptions::new().write(true).create_new(true).mode(0o666).open(shared.join("file"));
        answers.note("file", open.map(drop));
        fs::create_dir(shared.join("dir")).unwrap();
        for name in ["file", "dir"] {
            let found = fs::metadata(shared.join(name)).unwrap();
            answers.tell(name, (format!("{:o}", found.mode()), found.uid(), found.gid()));
        }
    });
}

#[test]
fn threads_make_and_remove_names_in_one_directory() {
    same_answers(|dir, answers| {
        thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for number in 0..200 {
                        let path = dir.join(format!("{thread}-{number}"));
                        fs::write(&path, [thread, number]).unwrap();
                        let moved = dir.join(format!("{thread}-{number}-moved"));
                        fs::rename(&path, &moved).unwrap();
                        assert_eq!(fs::read(&moved).unwrap(), [thread, number]);
                        if number % 2 == 0 {
                            fs::remove_file(&moved).unwrap();
                        }
                    }
                });
            }
        });
        answers.tell("left", names(dir));
    });
}
