//! `put` and `tar-in`: files of this machine and of archives in an image, as cp and GNU tar put them on the kernel's mount.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{Differences, LoopMount, Manifest, MountMode, Reading, kernel_manifest};

use crate::edit::{assert_sound, image, shown, with_stdin};
use crate::support::{PROGRAM, run, tool, undercroft};

/// A tree with one of everything, made by Linux.
fn tree(dir: &Path) {
    let script = "umask 022; mkdir -p tree/sub/deeper tree/empty; cd tree
        echo text > file; chmod 4750 file; chown 7:8 file; touch -d '2001-02-03 04:05:06.123456789' file
        ln file hard; ln -s file link; ln -s /nowhere/at/all sub/broken; mkfifo fifo
        mknod null c 1 3; mknod disk b 8 300
        truncate -s 5M sparse; printf x | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
        head -c 3000000 /dev/urandom > sub/big; chmod 2775 sub; chown 0:44 sub
        printf n > \"$(printf 'caf\\351 \\n')\"; printf l > \"$(printf '%0250d' 1)\"
        setfacl -m u:50005:rw,g:60006:r file; setfacl -d -m g:9009:rwx sub/deeper
        setfattr -n user.note -v value file; setfattr -n trusted.t -v x sub
        setcap cap_net_raw+ep sub/big; touch -d @1000000000 empty sub/deeper sub";
    let output = Command::new("bash").args(["-ec", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What a copy keeps.
fn kept(manifest: Manifest) -> Manifest {
    let mut manifest = manifest.map(|path, entry| {
        entry.ino = 0;
        entry.listed_ino = None;
        entry.dots = None;
        entry.sectors = 0;
        entry.io_bytes = 0;
        entry.identity = None;
        entry.created = None;
        entry.changed = (0, 0);
        entry.accessed = (0, 0);
        entry.flags = None;
        // The kernel shows lists of XFS by these names too.
        entry.xattrs.retain(|name, _| !name.starts_with(b"trusted.SGI_ACL_"));
        // What is there keeps its own, and so does the directory that is filled.
        if path.is_empty() || path == b"in" {
            entry.modified = (0, 0);
        }
        // Where the data lies depends on the size of blocks, here and where it comes from.
        if let Some(Reading::Bytes(content)) = &mut entry.content {
            content.segments.clear();
        }
        if entry.is_directory() {
            entry.size = 0;
        }
    });
    manifest.space = None;
    manifest.entries.remove(&b"lost+found"[..]);
    if let Some(root) = manifest.entries.get_mut(&b""[..]) {
        root.links = 0;
    }
    manifest
}

fn linux_copy(dir: &Path, family: &str, script: &str) -> Manifest {
    let path = dir.join("linux");
    let size = if family == "xfs" { "300M" } else { "64M" };
    undercroft(["mkfs", family, path.to_str().unwrap(), "--size", size]).succeeded();
    let mount = LoopMount::new(&path, family, MountMode::ReadWrite, "").unwrap();
    let script = format!("umask 022; M={}; {script}", mount.path().display());
    let output = Command::new("bash").args(["-ec", &script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let manifest = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    fs::remove_file(path).unwrap();
    manifest
}

#[test]
fn a_tree_is_put_as_cp_puts_it() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let at = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    for family in ["ext4", "xfs"] {
        let ours = image(dir.path(), family);
        undercroft(["mkdir", ours.to_str().unwrap(), "/in"]).succeeded();
        at(&["put", "--preserve", family, "tree", "/new"]).succeeded();
        at(&["put", "--preserve", family, "tree/", "tree/file", "/in"]).succeeded();
        at(&["put", "--preserve", family, "tree/.", "/in"]).succeeded();
        // Once more, over what is there.
        at(&["put", "--preserve", family, "tree", "/in/"]).succeeded();
        let script = "mkdir $M/in; cp -a tree $M/new; cp -a tree tree/file $M/in; cp -a tree/. $M/in; cp -a tree $M/in";
        let expected = kept(linux_copy(dir.path(), family, script));
        let found = kept(shown(&ours, family));
        Differences::between(&expected, &found).assert_none(family);
        let sparse = undercroft(["stat", "--json", ours.to_str().unwrap(), "/new/sparse"]).json();
        assert!(sparse["allocated_bytes"].as_u64().unwrap() < 100_000, "{sparse}");
        undercroft(["diff", ours.to_str().unwrap(), ours.to_str().unwrap()]).succeeded();
        fs::remove_file(ours).unwrap();
    }
}

#[test]
fn what_is_put_belongs_to_root_or_as_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    let image = image(dir.path(), "ext4");
    fs::create_dir(dir.path().join("d")).unwrap();
    for name in ["d/f", "d/x.o", "g"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    tool("chown -R 77:78 d g", dir.path());
    let owner = |path: &str| {
        let found = undercroft(["stat", "--json", image.to_str().unwrap(), path]).json();
        (found["uid"].as_u64().unwrap(), found["gid"].as_u64().unwrap())
    };
    at(&["put", "--exclude", "*.o", "ext4", "d", "/"]).succeeded();
    assert_eq!((owner("/d"), owner("/d/f")), ((0, 0), (0, 0)));
    assert!(at(&["stat", "ext4", "/d/x.o"]).failed(7).contains("no such file"));
    at(&["put", "--owner", "5:6", "ext4", "g", "/named"]).succeeded();
    assert_eq!(owner("/named"), (5, 6));
    at(&["put", "-p", "ext4", "g", "/d"]).succeeded();
    assert_eq!(owner("/d/g"), (77, 78));
    // A link at the destination is followed, and one that is put stays one.
    at(&["ln", "-s", "ext4", "named", "/link"]).succeeded();
    fs::write(dir.path().join("g"), "new").unwrap();
    at(&["put", "ext4", "g", "/link"]).succeeded();
    assert_eq!(at(&["cat", "ext4", "/named"]).succeeded(), b"new");
    symlink("target", dir.path().join("s")).unwrap();
    at(&["put", "ext4", "s", "/d"]).succeeded();
    assert!(at(&["ls", "-l", "ext4", "/d/s"]).text().contains("-> target"));
    // The image itself is no part of what is put into it.
    at(&["put", "ext4", ".", "/all"]).succeeded();
    assert_eq!(at(&["ls", "ext4", "/all"]).text(), "d\ng\ns\n");
    for (args, code, words) in [
        (&["put", "ext4", "missing", "/"][..], 8, "missing: No such file"),
        (&["put", "ext4", "g", "/d/f/x"], 7, "not a directory"),
        (&["put", "ext4", "d", "/named"], 7, "not a directory"),
        (&["put", "-T", "ext4", "g", "/d"], 7, "is a directory"),
        (&["put", "ext4", "g", "d", "/nowhere"], 7, "put into a directory"),
        (&["put", "ext4", "g"], 2, ""),
    ] {
        let run = at(args);
        assert_eq!(run.code, code, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{args:?}: {}", run.stderr);
    }
    assert_sound(&image, "ext4");
    assert_eq!(fs::metadata(dir.path().join("g")).unwrap().uid(), 77);
}

#[test]
fn an_archive_is_unpacked_as_gnu_tar_does() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let at = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    let tar = "tar --xattrs --xattrs-include=* --acls --numeric-owner --format=pax -c -f";
    tool(&format!("{tar} tree.tar tree"), dir.path());
    tool("gzip -k tree.tar", dir.path());
    for family in ["ext4", "xfs"] {
        let ours = image(dir.path(), family);
        let path = ours.to_str().unwrap();
        undercroft(["mkdir", path, "/in"]).succeeded();
        at(&["tar-in", family, "tree.tar.gz"]).succeeded();
        let archive = fs::read(dir.path().join("tree.tar")).unwrap();
        with_stdin(["tar-in", path, "-", "/in"], &archive).succeeded();
        with_stdin(["tar-in", path, "-", "in"], &archive).succeeded();
        let untar = "tar --xattrs --xattrs-include='*' --acls --numeric-owner -x -f tree.tar -C";
        let script = format!("mkdir $M/in; {untar} $M; {untar} $M/in");
        let expected = kept(linux_copy(dir.path(), family, &script));
        Differences::between(&expected, &kept(shown(&ours, family))).assert_none(family);
        fs::remove_file(ours).unwrap();
    }
    // What is wrong ends in one error.
    let ours = image(dir.path(), "ext4");
    let path = ours.to_str().unwrap();
    let archive = fs::read(dir.path().join("tree.tar")).unwrap();
    let cut = with_stdin(["tar-in", path, "-"], &archive[..archive.len() / 2]).failed(5);
    assert!(cut.contains("standard input"), "{cut}");
    assert!(with_stdin(["tar-in", path, "-"], b"nonsense").failed(5).contains("standard input"));
    assert!(at(&["tar-in", "ext4", "tree.tar", "/missing"]).failed(7).contains("no such file"));
    assert_sound(&ours, "ext4");
}

#[test]
fn links_are_followed_within_the_image_and_not_those_of_the_archive() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    let image = image(dir.path(), "ext4");
    at(&["mkdir", "ext4", "/real", "/top"]).succeeded();
    at(&["ln", "-s", "ext4", "/real", "/top/link"]).succeeded();
    fs::create_dir_all(dir.path().join("top/link")).unwrap();
    fs::write(dir.path().join("top/link/f"), "").unwrap();
    tool("tar -c -f t.tar top/link/f", dir.path());
    at(&["tar-in", "ext4", "t.tar"]).succeeded();
    assert_eq!(at(&["ls", "ext4", "/real"]).text(), "f\n");
    symlink("/real", dir.path().join("evil")).unwrap();
    tool("tar -c -f evil.tar evil", dir.path());
    fs::remove_file(dir.path().join("evil")).unwrap();
    fs::create_dir(dir.path().join("evil")).unwrap();
    fs::write(dir.path().join("evil/x"), "").unwrap();
    tool("tar -r -f evil.tar evil/x", dir.path());
    let refusal = at(&["tar-in", "ext4", "evil.tar"]).failed(7);
    assert!(refusal.starts_with("evil.tar: ") && refusal.contains("the same source has made"), "{refusal}");
    assert_eq!(at(&["ls", "ext4", "/real"]).text(), "f\n");
    assert_sound(&image, "ext4");
}

#[test]
fn a_hard_link_to_what_is_left_out_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    undercroft(["mkdir", path, "/d"]).succeeded();
    with_stdin(["write", path, "/d/a"], b"old").succeeded();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/a"), "new").unwrap();
    fs::hard_link(dir.path().join("d/a"), dir.path().join("d/b")).unwrap();
    tool("tar -c -f t.tar d/a d/b", dir.path());
    let words = "d/b: it is a hard link to /d/a, which is left out";
    let refusal = at(&["tar-in", "--exclude", "a", "ext4", "t.tar"]).failed(7);
    assert!(refusal.contains(words), "{refusal}");
    assert!(at(&["stat", "ext4", "/d/b"]).failed(7).contains("no such file"));
    assert_eq!(undercroft(["cat", path, "/d/a"]).succeeded(), b"old");
    // What is compared is no more than what is known.
    let compared = at(&["diff", "--exclude", "a", "ext4", "t.tar"]);
    assert!(compared.code == 2 && compared.stderr.contains(words), "{}", compared.stderr);
    tool("tar --delete -f t.tar d/a", dir.path());
    let compared = at(&["diff", "ext4", "t.tar"]);
    assert!(compared.code == 2 && compared.stderr.contains("which is not there"), "{}", compared.stderr);
    // Of a directory the other name is the file, as for tar.
    at(&["put", "--exclude", "a", "ext4", "d", "/"]).succeeded();
    assert_eq!(undercroft(["cat", path, "/d/a"]).succeeded(), b"old");
    assert_eq!(undercroft(["cat", path, "/d/b"]).succeeded(), b"new");
    assert_sound(&image, "ext4");
}
