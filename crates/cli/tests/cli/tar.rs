//! `get --tar`: what GNU tar makes of the archive is what the kernel shows of the image.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use undercroft_oracle::{Differences, Entry, Manifest, Mke2fs, MountMode, Reading, kernel_manifest};

use crate::get::portable;
use crate::support::{PROGRAM, rich, run, small, tool};

/// The archive of a path.
pub(crate) fn archive(image: &Path, path: &str) -> Vec<u8> {
    let run = run(Command::new(PROGRAM).args(["get", "--tar"]).arg(image).arg(path));
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout
}

/// Unpacks an archive with GNU tar, with all that it knows.
pub(crate) fn unpack(archive: &[u8], dir: &Path) {
    let mut tar = Command::new("tar")
        .args(["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-xpf", "-", "-C"])
        .arg(dir)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("GNU tar is needed for this test");
    tar.stdin.take().unwrap().write_all(archive).unwrap();
    let output = tar.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What comes through an archive: access times are not restored, holes are filled, sockets have no place.
pub(crate) fn through_tar(manifest: Manifest) -> Manifest {
    let mut manifest = portable(manifest).map(|_, entry: &mut Entry| {
        entry.accessed = (0, 0);
        if let Some(Reading::Bytes(content)) = &mut entry.content {
            content.segments.clear();
            content.data_sha256 = [0; 32];
        }
    });
    manifest.entries.retain(|_, entry| entry.type_bits() != 0o140_000);
    manifest
}

#[test]
fn gnu_tar_unpacks_what_the_kernel_shows() {
    let scratch = Mke2fs::new("ext4", 256).inodes(20_000).block_bytes(1024).make().unwrap();
    let original = rich().mount();
    let mount = scratch.mount(MountMode::ReadWrite, "noatime").unwrap();
    // Not the paths that are longer than GNU tar takes, nor the sparse file of 8 GiB.
    let parts =
        ["attributes", "nodes", "xattrs", "names/odd", "names/many", "names/growing", "content/sizes"];
    for part in parts {
        let parent = mount.path().join(part).parent().unwrap().to_owned();
        fs::create_dir_all(&parent).unwrap();
        unpack(&archive(rich().path(), &format!("/{part}")), &parent);
    }
    mount.unmount().unwrap();
    let copy = scratch.mount(MountMode::ReadOnly, "").unwrap();
    for part in parts {
        let expected = through_tar(kernel_manifest(&original.path().join(part)).unwrap());
        let found = through_tar(kernel_manifest(&copy.path().join(part)).unwrap());
        assert!(expected.entries.len() > 3, "{part}");
        Differences::between(&expected, &found).assert_none(part);
    }
}

#[test]
fn the_root_unpacks_in_place() {
    let image = small(&[("/dir/file", "content")]);
    let dir = tempfile::tempdir().unwrap();
    unpack(&archive(image.path(), "/"), dir.path());
    assert_eq!(fs::read(dir.path().join("dir/file")).unwrap(), b"content");
}

/// Names beyond what the fixed header holds, and beyond UTF-8.
#[test]
fn long_names_and_targets_go_through() {
    let image = Mke2fs::new("ext4", 16).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let deep = mount.path().join("d".repeat(120)).join("e".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "deep").unwrap();
    std::os::unix::fs::symlink("t".repeat(300), deep.join("link")).unwrap();
    fs::hard_link(deep.join("file"), mount.path().join("other")).unwrap();
    mount.unmount().unwrap();
    let dir = tempfile::tempdir().unwrap();
    unpack(&archive(image.path(), "/"), dir.path());
    let deep = dir.path().join("d".repeat(120)).join("e".repeat(200));
    assert_eq!(fs::read(deep.join("file")).unwrap(), b"deep");
    assert_eq!(fs::read_link(deep.join("link")).unwrap(), Path::new(&"t".repeat(300)));
    assert_eq!(tool("stat --printf=%h other", dir.path()), "2");
}

/// An archive holds what its reader may take; on request it lends no rights.
#[test]
fn an_archive_without_what_lends_rights_can_be_had() {
    let image = Mke2fs::new("ext4", 16).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let inside = mount.path();
    fs::write(inside.join("tool"), "#!").unwrap();
    fs::set_permissions(inside.join("tool"), fs::Permissions::from_mode(0o6755)).unwrap();
    tool("setfattr -n trusted.word -v x tool", inside);
    tool("setfattr -n user.word -v x tool", inside);
    tool("mknod null c 1 3", inside);
    mount.unmount().unwrap();

    let run = run(Command::new(PROGRAM).args(["get", "--tar", "--no-special"]).arg(image.path()).arg("/"));
    assert_eq!(
        run.stderr,
        "undercroft: note: 1 set-user-ID or set-group-ID mode not kept; --special keeps these\n\
         undercroft: note: 1 device node not kept; --special keeps these\n\
         undercroft: note: 1 extended attribute not kept; --special keeps these\n"
    );
    assert_eq!(run.code, 0);
    let dir = tempfile::tempdir().unwrap();
    unpack(&run.stdout, dir.path());
    assert_eq!(fs::metadata(dir.path().join("tool")).unwrap().mode() & 0o7777, 0o755);
    assert!(fs::symlink_metadata(dir.path().join("null")).is_err());
    assert_eq!(tool("getfattr -d -m - tool", dir.path()), "# file: tool\nuser.word=\"x\"\n\n");

    let dir = tempfile::tempdir().unwrap();
    unpack(&archive(image.path(), "/"), dir.path());
    assert_eq!(fs::metadata(dir.path().join("tool")).unwrap().mode() & 0o7777, 0o6755);
    assert!(fs::symlink_metadata(dir.path().join("null")).is_ok());
}

/// Messages name paths inside the image, whatever the members are called.
#[test]
fn messages_about_an_archive_name_paths_inside_the_image() {
    let image = Mke2fs::new("ext4", 16).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    fs::create_dir_all(mount.path().join("usr/share/below")).unwrap();
    std::os::unix::net::UnixListener::bind(mount.path().join("usr/share/below/socket")).unwrap();
    mount.unmount().unwrap();
    for (path, top) in
        [("/usr/share", "share"), ("usr/share/", "share"), ("/usr", "usr/share"), ("/", "usr/share")]
    {
        let run = run(Command::new(PROGRAM).args(["get", "--tar"]).arg(image.path()).arg(path));
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (0, "undercroft: note: /usr/share/below/socket: a tar archive holds no sockets\n"),
            "{path}"
        );
        let dir = tempfile::tempdir().unwrap();
        unpack(&run.stdout, dir.path());
        assert!(dir.path().join(top).join("below").exists(), "{path}");
    }
    let single = "/usr/share/below/socket";
    let run = run(Command::new(PROGRAM).args(["get", "--tar"]).arg(image.path()).arg(single));
    assert_eq!(run.stderr, format!("undercroft: note: {single}: a tar archive holds no sockets\n"));
}
