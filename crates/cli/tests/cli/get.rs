//! `get` onto this machine: the copy is what the kernel shows of the image.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{Differences, Entry, Manifest, Mke2fs, MountMode, kernel_manifest};

use crate::support::{PROGRAM, Run, rich, run, small, tool};

fn get(image: &Path, path: &str, dest: &Path) -> Run {
    run(Command::new(PROGRAM).arg("get").arg(image).arg(path).arg(dest))
}

/// What a copy cannot have in common with its original.
pub(crate) fn portable(manifest: Manifest) -> Manifest {
    let mut manifest = manifest.map(|_, entry: &mut Entry| {
        entry.ino = 0;
        if entry.is_directory() {
            entry.size = 0;
        }
        entry.listed_ino = None;
        entry.dots = None;
        entry.sectors = 0;
        entry.changed = (0, 0);
        entry.created = None;
        entry.flags = None;
        entry.identity = None;
    });
    manifest.space = None;
    manifest
}

/// Everything, into another ext4: names, kinds, owners, modes, times to the nanosecond, attributes, ACLs, links,
/// devices, contents, holes.
#[test]
fn a_whole_tree_is_copied_with_everything() {
    let scratch = Mke2fs::new("ext4", 512).inodes(20_000).block_bytes(1024).make().unwrap();
    let mount = scratch.mount(MountMode::ReadWrite, "noatime").unwrap();
    let dest = mount.path().join("copy");
    get(rich().path(), "/", &dest).succeeded();
    mount.unmount().unwrap();
    // Afresh and read-only, so that looking changes nothing and no page cache blurs the holes.
    let copy = scratch.mount(MountMode::ReadOnly, "").unwrap();
    let original = rich().mount();
    let found = portable(kernel_manifest(&copy.path().join("copy")).unwrap());
    let expected = portable(kernel_manifest(original.path()).unwrap());
    assert!(expected.entries.len() > 2000);
    Differences::between(&expected, &found).assert_none("the copy");
}

/// A second opinion, and one that knows which names are one file.
#[test]
fn rsync_finds_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let original = rich().mount();
    get(rich().path(), "/nodes", &dir.path().join("nodes")).succeeded();
    let todo = tool(
        &format!("rsync -naHAXSi --checksum --delete {}/nodes/ nodes/", original.path().display()),
        dir.path(),
    );
    assert_eq!(todo, "");
}

#[test]
fn where_the_copy_goes_follows_cp() {
    let image = small(&[("/dir/file", "content"), ("/top", "x")]);
    let dir = tempfile::tempdir().unwrap();
    // A new name is the copy's name.
    get(image.path(), "/dir/file", &dir.path().join("new")).succeeded();
    assert_eq!(fs::read(dir.path().join("new")).unwrap(), b"content");
    // A directory takes it under its own name.
    fs::create_dir(dir.path().join("into")).unwrap();
    get(image.path(), "/dir", &dir.path().join("into")).succeeded();
    assert_eq!(fs::read(dir.path().join("into/dir/file")).unwrap(), b"content");
    // The root has no name, and fills an empty directory.
    fs::create_dir(dir.path().join("empty")).unwrap();
    get(image.path(), "/", &dir.path().join("empty")).succeeded();
    assert_eq!(fs::read(dir.path().join("empty/dir/file")).unwrap(), b"content");
}

#[test]
fn nothing_that_exists_is_written_over() {
    let image = small(&[("/file", "new"), ("/dir/below", "new")]);
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("place");
    fs::write(&place, "old").unwrap();
    let shown = place.display();
    let message = get(image.path(), "/file", &place).failed(8);
    assert_eq!(message, format!("{shown} exists already; name another place; nothing is ever written over"));
    let message = get(image.path(), "/dir", &place).failed(8);
    assert!(message.starts_with(&format!("{shown} exists already")), "{message}");
    assert_eq!(fs::read(&place).unwrap(), b"old");

    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("dir"), "old").unwrap();
    let message = get(image.path(), "/", &full).failed(8);
    assert_eq!(
        message,
        format!("{} is not empty; name a directory that is empty or does not exist", full.display())
    );
    let message = get(image.path(), "/dir", &full).failed(8);
    assert!(message.contains("full/dir exists already"), "{message}");
    assert_eq!(fs::read(full.join("dir")).unwrap(), b"old");
}

#[test]
fn a_link_as_destination_is_refused() {
    let image = small(&[("/dir/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = dir.path().join("link");
    symlink(elsewhere.path(), &link).unwrap();
    let message = get(image.path(), "/dir", &link).failed(8);
    assert_eq!(message, format!("{} is a symbolic link; name what it points to", link.display()));
    // Under its own name inside a directory too.
    symlink(elsewhere.path(), dir.path().join("dir")).unwrap();
    let message = get(image.path(), "/dir", dir.path()).failed(8);
    assert!(message.contains("dir exists already"), "{message}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

/// Without root: owners and devices cannot be had, and set-user-ID without its owner would be a gift.
#[test]
fn an_ordinary_user_gets_what_a_user_may_have() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("undercroft");
    fs::copy(PROGRAM, &program).unwrap();
    let image = Mke2fs::new("ext4", 16).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let inside = mount.path();
    fs::write(inside.join("tool"), "#!").unwrap();
    fs::set_permissions(inside.join("tool"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::create_dir(inside.join("closed")).unwrap();
    fs::write(inside.join("closed/file"), "x").unwrap();
    fs::set_permissions(inside.join("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    tool("mknod null c 1 3", inside);
    tool("setfattr -n trusted.word -v x tool", inside);
    tool("setfattr -n user.word -v x tool", inside);
    mount.unmount().unwrap();
    let reachable = dir.path().join("image");
    fs::copy(image.path(), &reachable).unwrap();

    let run = run(Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .arg("get")
        .arg(&reachable)
        .arg("/")
        .arg(dir.path().join("copy")));
    assert_eq!(run.code, 1, "{}", run.stderr);
    let complaints: Vec<&str> = run.stderr.lines().collect();
    assert!(complaints[0].starts_with("undercroft: cannot copy /null to "), "{}", run.stderr);
    assert!(complaints[0].ends_with("; only root may make device nodes"), "{}", run.stderr);
    assert!(run.stderr.contains("note: 5 owners not kept; run as root to keep owners"), "{}", run.stderr);
    assert!(
        run.stderr.contains("note: 1 extended attribute not kept; only root may set these"),
        "{}",
        run.stderr
    );
    let copy = dir.path().join("copy");
    let meta = fs::metadata(copy.join("tool")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o755, 65534));
    assert_eq!(fs::metadata(copy.join("closed")).unwrap().mode() & 0o7777, 0o555);
    assert_eq!(fs::read(copy.join("closed/file")).unwrap(), b"x");
    assert_eq!(tool("getfattr --only-values -n user.word tool", &copy), "x");
}

#[test]
fn the_summary_counts_what_was_copied() {
    let image = small(&[("/a/one", "12345"), ("/a/two", "")]);
    let dir = tempfile::tempdir().unwrap();
    let json = run(Command::new(PROGRAM)
        .args(["get", "--json"])
        .arg(image.path())
        .arg("/a")
        .arg(dir.path().join("a")))
    .json();
    assert_eq!(
        json,
        serde_json::json!({
            "files": 2, "directories": 1, "symlinks": 0, "hard_links": 0, "special": 0, "content_bytes": 5
        })
    );
}
