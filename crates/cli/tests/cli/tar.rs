//! `get --tar`: what GNU tar makes of the archive is what the kernel shows of the image.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use undercroft_oracle::{Differences, Entry, Manifest, Mke2fs, MountMode, Reading, Scratch, kernel_manifest};

use crate::get::portable;
use crate::mkfs_from::comparable;
use crate::support::{PROGRAM, rich, run, small, tool, undercroft};

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

/// Files with holes have them again, of any name, and where the data lies in any way.
#[test]
fn holes_go_through() {
    /// Where data begins, and how much.
    type Parts<'a> = &'a [(u64, usize)];
    let image = Mke2fs::new("ext4", 64).block_bytes(4096).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let write = |name: &str, size: u64, data: Parts<'_>| {
        let file = fs::File::create(mount.path().join(name)).unwrap();
        file.set_len(size).unwrap();
        for &(at, len) in data {
            file.write_all_at(&vec![b'x'; len], at).unwrap();
        }
    };
    let long = "n".repeat(200);
    let many: Vec<(u64, usize)> = (0..200).map(|part| (part << 16, 5000)).collect();
    let files: [(&str, u64, Parts<'_>); 8] = [
        ("only-a-hole", 10 << 30, &[]),
        ("data-first", 1 << 20, &[(0, 5000)]),
        ("data-last", (1 << 20) + 3, &[(1 << 20, 3)]),
        ("in-the-middle", 1 << 20, &[(400_000, 100_000)]),
        ("many", 20 << 20, &many),
        (&long, 1 << 20, &[(8192, 1)]),
        ("small", 700, &[]),
        ("dense", 9000, &[(0, 9000)]),
    ];
    for (name, size, data) in files {
        write(name, size, data);
    }
    fs::hard_link(mount.path().join("many"), mount.path().join("other")).unwrap();
    mount.unmount().unwrap();
    let archive = archive(image.path(), "/");
    assert!(archive.len() < 2 << 20, "{}", archive.len());
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let dir = Scratch::new("holes").unwrap();
    for program in ["tar -xf", "bsdtar -xf"] {
        let (program_dir, file) = (dir.path().join(&program[..3]), dir.path().join("archive"));
        fs::create_dir(&program_dir).unwrap();
        fs::write(&file, &archive).unwrap();
        tool(&format!("{program} {} -C {}", file.display(), program_dir.display()), Path::new("/"));
        for (name, size, _) in files {
            let (ours, theirs) = (program_dir.join(name), mount.path().join(name));
            let (found, expected) = (fs::metadata(&ours).unwrap(), fs::metadata(&theirs).unwrap());
            assert_eq!(found.len(), size, "{program}: {name}");
            assert!(found.blocks() <= expected.blocks() + 16, "{program}: {name}: {}", found.blocks());
            if size < 1 << 30 {
                tool(&format!("cmp {} {}", ours.display(), theirs.display()), Path::new("/"));
            }
        }
        assert_eq!(fs::metadata(program_dir.join("other")).unwrap().nlink(), 2);
    }
    // What is small, or has no hole, is as it always was; and what we write we read.
    let listed = tool(&format!("bsdtar -tf {}/archive", dir.path().display()), Path::new("/"));
    assert!(!listed.contains("GNUSparseFile"), "{listed}");
    assert!(archive.windows(6).any(|part| part == b"small\0"));
    let again = dir.path().join("again.img");
    let args = ["mkfs", "ext4", again.to_str().unwrap(), "-q", "--no-conf", "--from"];
    undercroft(args.into_iter().chain([dir.path().join("archive").to_str().unwrap()])).succeeded();
    let found = comparable(crate::edit::shown(&again, "ext4"));
    let sound = comparable(kernel_manifest(mount.path()).unwrap());
    // What is smaller than a block came as zeroes.
    for (name, ..) in files.iter().filter(|(name, ..)| *name != "small") {
        assert_eq!(found.at(name).content, sound.at(name).content, "{name}");
    }
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
