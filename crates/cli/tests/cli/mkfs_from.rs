//! `mkfs --from`: the kernel sees in the image what it shows of the directory, and what GNU tar unpacks of the archive.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{
    Differences, Entry, LoopMount, Manifest, Mke2fs, MountMode, Reading, kernel_manifest,
};

use crate::get::portable;
use crate::support::{PROGRAM, rich, run, tool, undercroft};
use crate::tar::through_tar;

/// Both kinds, and a size that holds what the tests put in.
const KINDS: [(&str, &str); 2] = [("ext4", "400M"), ("xfs", "600M")];

/// Linux's own check finds nothing.
fn check(kind: &str, image: &Path) {
    let dir = image.parent().unwrap();
    match kind {
        "xfs" => tool(&format!("xfs_repair -n {}", image.display()), dir),
        _ => tool(&format!("e2fsck -fn {}", image.display()), dir),
    };
}

/// What the kernel shows of an image that is sound.
pub(crate) fn shown(kind: &str, image: &Path) -> Manifest {
    check(kind, image);
    let mount = LoopMount::new(image, kind, MountMode::ReadOnly, "").unwrap();
    let manifest = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    manifest
}

/// What an image has of its source: what is portable, less times of access, lost+found, and what an entry in a directory
/// tells on its own.
pub(crate) fn comparable(manifest: Manifest) -> Manifest {
    let mut manifest = portable(manifest).map(|path, entry: &mut Entry| {
        if let Some(Reading::Bytes(content)) = &mut entry.content {
            in_blocks(&mut content.segments, entry.size);
            if path.starts_with(b"content/unwritten") {
                // What was never written counts as data while its pages are in the kernel's cache.
                content.segments.clear();
            }
        }
        entry.accessed = (0, 0);
        entry.io_bytes = 0;
        if entry.is_directory() {
            // XFS has other counts of names, and lost+found is one.
            entry.links = 0;
        }
        // XFS shows its lists to the superuser a second time.
        entry.xattrs.retain(|name, _| !name.starts_with(b"trusted.SGI_ACL_"));
    });
    let left_out = |path: &[u8]| path == b"lost+found" || path.windows(6).any(|part| part == b"-4095-");
    manifest.entries.retain(|path, _| !left_out(path));
    manifest
}

/// Data segments as a filesystem with blocks of 4 KiB has them.
fn in_blocks(segments: &mut Vec<(u64, u64)>, size: u64) {
    const BLOCK_BYTES: u64 = 4096;
    let mut whole: Vec<(u64, u64)> = Vec::new();
    for &(start, len) in segments.iter() {
        let end = (start + len).next_multiple_of(BLOCK_BYTES).min(size);
        let start = start - start % BLOCK_BYTES;
        match whole.last_mut() {
            Some((first, len)) if *first + *len >= start => *len = end - *first,
            _ => whole.push((start, end - start)),
        }
    }
    *segments = whole;
}

#[test]
fn the_kernel_sees_what_the_directory_has() {
    let original = rich().mount();
    let dir = tempfile::tempdir().unwrap();
    for (kind, size) in KINDS {
        let image = dir.path().join(kind);
        let from = original.path().to_str().unwrap();
        let report = undercroft([
            "mkfs",
            kind,
            image.to_str().unwrap(),
            "--size",
            size,
            "--json",
            "--from",
            from,
            "--exclude",
            "lost+found",
            // XFS has fewer bits for them.
            "--exclude",
            "*-4095-*",
        ])
        .json();
        assert!(report["filled"]["entries"].as_u64().unwrap() > 3000, "{report}");
    }
    // Later, because what was never written counts as data once it was read.
    let expected = comparable(kernel_manifest(original.path()).unwrap());
    for (kind, _) in KINDS {
        let found = comparable(shown(kind, &dir.path().join(kind)));
        Differences::between(&expected, &found).assert_none(kind);
    }
}

/// A tree as GNU tar can keep it in every format.
fn plain_tree(dir: &Path) {
    fs::create_dir_all(dir.join("a/deep/er")).unwrap();
    fs::write(dir.join("a/deep/file"), vec![7; 100_000]).unwrap();
    fs::write(dir.join("a/deep/er/empty"), b"").unwrap();
    fs::hard_link(dir.join("a/deep/file"), dir.join("z-again")).unwrap();
    fs::set_permissions(dir.join("a/deep/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o3775)).unwrap();
    std::os::unix::fs::symlink("../a/none", dir.join("link")).unwrap();
    tool("mkfifo fifo", dir);
    tool("mknod block b 7 300", dir);
    tool("mknod char c 1 3", dir);
    tool("chown 1234:4321 a/deep/er/empty", dir);
    tool("touch -h -d @1000000000 a/deep/er a/deep link", dir);
}

/// What the kernel shows when GNU tar has unpacked an archive with these options.
pub(crate) fn unpacked(archive: &Path, mebibytes: u64, options: &str) -> Manifest {
    let scratch = Mke2fs::new("ext4", mebibytes).make().unwrap();
    let mount = scratch.mount(MountMode::ReadWrite, "noatime").unwrap();
    tool(
        &format!(
            "tar --xattrs --xattrs-include=* {options} --numeric-owner -xpf {} -C {}",
            archive.display(),
            mount.path().display()
        ),
        Path::new("/"),
    );
    mount.unmount().unwrap();
    let mount = scratch.mount(MountMode::ReadOnly, "").unwrap();
    kernel_manifest(mount.path()).unwrap()
}

#[test]
fn the_same_sources_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    sparse_tree(&tree);
    for n in 0..3000 {
        fs::write(tree.join(format!("a/number-{n}")), vec![n as u8; n % 5000]).unwrap();
    }
    let archive = dir.path().join("tree.tar");
    tool(&format!("tar -cf {} .", archive.display()), &tree);
    for (kind, _) in KINDS {
        for source in [&tree, &archive] {
            let make = |threads: &str| {
                let image = dir.path().join("image");
                let _ = fs::remove_file(&image);
                let run = run(Command::new(PROGRAM)
                    .args(["mkfs", kind, image.to_str().unwrap(), "--seed", "one", "--threads", threads])
                    .arg("--from")
                    .arg(source)
                    .env("SOURCE_DATE_EPOCH", "1700000000"));
                run.succeeded();
                fs::read(&image).unwrap()
            };
            let first = make("1");
            for threads in ["8", "8", "1"] {
                let second = make(threads);
                let first_difference = first.iter().zip(&second).position(|(one, other)| one != other);
                assert_eq!(
                    (first_difference, first.len()),
                    (None, second.len()),
                    "{kind} from {}",
                    source.display()
                );
                // The clock moves on between the runs.
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
        }
    }
    check("xfs", &dir.path().join("image"));
}

/// With holes beside that.
fn sparse_tree(dir: &Path) {
    plain_tree(dir);
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(b"first", 0).unwrap();
    sparse.write_all_at(b"middle", 5 << 20).unwrap();
    sparse.set_len(10 << 20).unwrap();
}

#[test]
fn the_size_is_what_the_sources_need() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..2000 {
        fs::write(tree.join(format!("file-{n}")), vec![1; n * 7]).unwrap();
    }
    let from = tree.to_str().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let report = undercroft(["mkfs", "ext4", path, "--json", "--from", from]).json();
    assert_eq!(fs::metadata(&image).unwrap().len(), report["size_bytes"].as_u64().unwrap());
    let free = report["filled"]["free_bytes"].as_u64().unwrap();
    assert!(free <= 64 << 10, "{free} bytes are free");
    check("ext4", &image);
    let roomy =
        undercroft(["mkfs", "ext4", path, "--force", "--json", "--free", "25%", "--from", from]).json();
    let (size, free) =
        (roomy["size_bytes"].as_f64().unwrap(), roomy["filled"]["free_bytes"].as_f64().unwrap());
    assert!(free / size > 0.25 && free / size < 0.33, "{free} of {size} bytes are free");
    let xfs = dir.path().join("xfs");
    let report = undercroft(["mkfs", "xfs", xfs.to_str().unwrap(), "--json", "--from", from]).json();
    assert_eq!(report["size_bytes"], 300 << 20);
    check("xfs", &xfs);
    let refused = undercroft(["mkfs", "ext4", path, "--force", "--size", "8M", "--from", from]).failed(7);
    assert!(refused.contains("need more space"), "{refused}");
    check("ext4", &image);
}

/// The kernel, too, counts as much free as was asked for, and not much more.
#[test]
fn as_much_is_free_as_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    for n in 0..3000 {
        let below = tree.join(format!("directory-{}", n % 31));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("file-{n}")), vec![1; n * 5]).unwrap();
    }
    let from = tree.to_str().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    for (kind, free) in [("ext4", "7%"), ("ext4", "64M"), ("ext4", "70%"), ("xfs", "400M"), ("xfs", "93%")] {
        undercroft(["mkfs", kind, path, "-q", "--force", "--free", free, "--from", from]).succeeded();
        let size = fs::metadata(&image).unwrap().len();
        let wanted = match free.strip_suffix('%') {
            Some(percent) => size * percent.parse::<u64>().unwrap() / 100,
            None => free.trim_end_matches('M').parse::<u64>().unwrap() << 20,
        };
        check(kind, &image);
        let mount = LoopMount::new(&image, kind, MountMode::ReadOnly, "").unwrap();
        let space = rustix::fs::statvfs(mount.path()).unwrap();
        mount.unmount().unwrap();
        let found = space.f_bavail * space.f_frsize;
        assert!(found >= wanted, "{kind}, {free}: {found} of {wanted} bytes, in {size}");
        assert!(found - wanted < size / 10, "{kind}, {free}: {found} for {wanted} bytes, in {size}");
    }
}

#[test]
fn rules_are_those_of_tar() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("keep")).unwrap();
    fs::write(tree.join("keep/file.o"), b"x").unwrap();
    fs::write(tree.join("keep/file.c"), b"x").unwrap();
    tool("touch -d @5 keep/file.c", &tree);
    fs::set_permissions(tree.join("keep/file.c"), fs::Permissions::from_mode(0o600)).unwrap();
    let map = dir.path().join("map");
    let own = fs::metadata(&tree).unwrap();
    fs::write(&map, format!("# the builder\n{} 70:71\n", own.uid())).unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let rules = ["--exclude", "*.o", "--mode", "go+rX", "--mtime", "@100", "--clamp-mtime", "--owner-map"];
    let mut args = vec!["mkfs", "ext4", path, "-q", "-d", tree.to_str().unwrap()];
    args.extend(rules);
    args.push(map.to_str().unwrap());
    undercroft(args).succeeded();
    let shown = shown("ext4", &image);
    assert!(!shown.entries.contains_key(&b"keep/file.o"[..]));
    let file = shown.at("keep/file.c");
    assert_eq!((file.mode, file.uid, file.gid, file.modified), (0o100_644, 70, 71, (5, 0)));
    assert_eq!(shown.at("keep").modified, (100, 0));
    fs::write(&map, "7 70\n# twice\n8 80\n7 71\n").unwrap();
    let args = ["mkfs", "ext4", path, "--force", "-d", tree.to_str().unwrap(), "--owner-map"];
    let refused = undercroft(args.into_iter().chain([map.to_str().unwrap()])).failed(2);
    assert!(refused.contains("line 4: 7 stands there a second time"), "{refused}");
    let refused = undercroft(["mkfs", "ext4", path, "--force", "-d", "/nowhere"]).failed(8);
    assert!(refused.contains("/nowhere: No such file"), "{refused}");
    let refused = undercroft(["mkfs", "ext4", path, "--owner", "7"]);
    assert!(refused.code == 2 && refused.stderr.contains("--from"), "{}", refused.stderr);
}

#[test]
fn a_broken_source_leaves_no_image() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    plain_tree(&tree);
    let archive = dir.path().join("whole.tar");
    tool(&format!("tar -cf {} .", archive.display()), &tree);
    let whole = fs::read(&archive).unwrap();
    let image = dir.path().join("image");
    let broken = dir.path().join("broken.tar");
    let make = |bytes: &[u8]| {
        fs::write(&broken, bytes).unwrap();
        undercroft(["mkfs", "ext4", image.to_str().unwrap(), "--from", broken.to_str().unwrap()])
    };
    let refused = make(&whole[..60_000]).failed(5);
    assert!(refused.contains("broken.tar: ") && refused.contains("is cut off"), "{refused}");
    tool(&format!("tar -cf {} -C / --transform s,^,../, etc/hostname -P", broken.display()), dir.path());
    let refused = make(&fs::read(&broken).unwrap()).failed(7);
    assert!(refused.contains("has a \"..\" in it"), "{refused}");
    make(b"no archive, but long enough for one to be told from it").failed(5);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!image.exists() && left.len() == 3, "{left:?}");

    // What was there stays.
    undercroft(["mkfs", "ext4", image.to_str().unwrap(), "--size", "8M"]).succeeded();
    let before = fs::read(&image).unwrap();
    let refused =
        undercroft(["mkfs", "ext4", image.to_str().unwrap(), "--from", archive.to_str().unwrap()]).failed(8);
    assert!(refused.contains("--force"), "{refused}");
    let forced = ["mkfs", "ext4", image.to_str().unwrap(), "--force", "--from", broken.to_str().unwrap()];
    undercroft(forced).failed(5);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn what_begins_with_zeroes_is_no_archive() {
    let dir = tempfile::tempdir().unwrap();
    let at = |command: &str| run(Command::new(PROGRAM).args(command.split(' ')).current_dir(dir.path()));
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
    tool("tar -cf empty.tar -T /dev/null", dir.path());
    at("mkfs ext4 empty.img -q --no-conf --from empty.tar").succeeded();
    at("tar-in empty.img empty.tar").succeeded();
    assert_eq!(at("ls empty.img").text(), "lost+found\n");
    at("disk create disk.img root=ext4:20M").succeeded();
    at("mkfs ext4 raw.img -q --no-conf --size 8M").succeeded();
    // What `tar -b 64` writes of no files.
    tool("tar -b 64 -cf blocks.tar -T /dev/null", dir.path());
    assert_eq!(fs::metadata(dir.path().join("blocks.tar")).unwrap().len(), 64 * 512);
    at("mkfs ext4 blocks.img -q --no-conf --from blocks.tar").succeeded();
    at("tar-in empty.img blocks.tar").succeeded();
    write("zeroes", &[0; 1 << 20]);
    write("later", &[&[0; 1024][..], b"x"].concat());
    tool("gzip -k zeroes", dir.path());
    for source in ["raw.img", "zeroes", "later", "zeroes.gz"] {
        let refused = at(&format!("mkfs ext4 new.img --from {source}")).failed(5);
        assert!(refused.starts_with(source) && refused.contains("it begins with zeroes"), "{refused}");
        let refused = at(&format!("tar-in empty.img {source}")).failed(5);
        assert!(refused.starts_with(source) && refused.contains("it begins with zeroes"), "{refused}");
        let refused = at(&format!("disk create new.img root=ext4:20M:{source}")).failed(5);
        assert!(refused.contains(source) && refused.contains("it begins with zeroes"), "{refused}");
        assert!(!dir.path().join("new.img").exists());
    }
    // Of a stream no more is kept than tells it.
    let endless = format!("{PROGRAM} tar-in empty.img - < /dev/zero");
    let refused =
        run(Command::new("timeout").args(["60", "sh", "-c", &endless]).current_dir(dir.path())).failed(5);
    assert!(refused.starts_with("standard input") && refused.contains("it begins with zeroes"), "{refused}");
}

/// Files that have the names of layers are no image: a stream of them is not kept, however long it is.
#[test]
fn a_stream_of_archives_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("saved")).unwrap();
    for number in 0..3 {
        fs::write(dir.path().join(format!("saved/{number}.tar.gz")), vec![number; 300_000]).unwrap();
    }
    tool("tar -cf all.tar saved", dir.path());
    let stream =
        format!("{PROGRAM} mkfs ext4 a.img -q --no-conf --size 8M && {PROGRAM} tar-in a.img - < all.tar");
    let mut command = Command::new("sh");
    command.args(["-c", &stream]).current_dir(dir.path()).env("TMPDIR", "/nowhere");
    run(&mut command).succeeded();
    let image = dir.path().join("a.img");
    assert_eq!(
        undercroft(["ls", image.to_str().unwrap(), "/saved"]).text(),
        "0.tar.gz\n1.tar.gz\n2.tar.gz\n"
    );
}

#[test]
fn too_few_inodes_for_the_sources_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..50 {
        fs::write(tree.join(number.to_string()), b"x").unwrap();
    }
    let at = |command: &str| run(Command::new(PROGRAM).args(command.split(' ')).current_dir(dir.path()));
    let refused = at("mkfs ext4 few.img --no-conf -N 10 --from tree").failed(2);
    // Eleven are the filesystem's own.
    assert!(refused.contains("10 inodes are too few: the sources need 61"), "{refused}");
    assert!(!dir.path().join("few.img").exists());
    at("mkfs ext4 few.img -q --no-conf -N 61 --from tree").succeeded();
    assert!(shown("ext4", &dir.path().join("few.img")).entries.contains_key(&b"49"[..]));
    assert!(fs::metadata(dir.path().join("few.img")).unwrap().len() < 8 << 20);
}

#[test]
fn an_archive_is_refused_alike_by_mkfs_and_tar_in() {
    let dir = tempfile::tempdir().unwrap();
    let at = |command: &str| run(Command::new(PROGRAM).args(command.split(' ')).current_dir(dir.path()));
    at("mkfs ext4 image -q --no-conf --size 8M").succeeded();
    let long = "n".repeat(300);
    fs::write(dir.path().join("file"), b"x").unwrap();
    tool("tar -cf good.tar file", dir.path());
    tool(&format!("tar -cf long.tar --transform s,file,{long}, file"), dir.path());
    tool("tar -cf up.tar -P --transform s,^,../, file", dir.path());
    tool("gzip -k good.tar", dir.path());
    let whole = fs::read(dir.path().join("good.tar.gz")).unwrap();
    fs::write(dir.path().join("cut.tar.gz"), &whole[..whole.len() / 2]).unwrap();
    fs::write(dir.path().join("text"), "no archive, but long enough for one to be told from it\n").unwrap();
    fs::write(dir.path().join("a.zip"), [&b"PK\x03\x04"[..], &[1; 600]].concat()).unwrap();
    for (source, code) in
        [("long.tar", 7), ("up.tar", 7), ("cut.tar.gz", 5), ("text", 5), ("a.zip", 4), ("missing.tar", 8)]
    {
        for command in [format!("mkfs ext4 new --from {source}"), format!("tar-in image {source}")] {
            let refused = at(&command).failed(code);
            assert!(refused.starts_with(source), "{command}: {refused}");
        }
    }
    // Of several the one is named.
    let refused = at("mkfs ext4 new --from good.tar --from long.tar").failed(7);
    assert!(refused.starts_with("long.tar: nnn"), "{refused}");
}

#[test]
fn values_that_xfs_repair_calls_illegal_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = |command: &str| run(Command::new(PROGRAM).args(command.split(' ')).current_dir(dir.path()));
    fs::write(dir.path().join("file"), b"x").unwrap();
    for name in ["SGI_ACL_FILE", "SGI_ACL_DEFAULT", "SGI_CAP_FILE"] {
        let archive = format!("{name}.tar");
        let option = format!("--pax-option=SCHILY.xattr.trusted.{name}:=text");
        tool(&format!("tar --format=posix {option} -cf {archive} file"), dir.path());
        let refused = at(&format!("mkfs xfs new --from {archive}")).failed(7);
        assert!(refused.contains("file: its extended attribute trusted."), "{refused}");
        assert!(refused.contains(name) && !dir.path().join("new").exists(), "{refused}");
        // To ext4 it is an attribute as any other.
        at(&format!("mkfs ext4 {name}.img -q --no-conf --from {archive}")).succeeded();
        check("ext4", &dir.path().join(format!("{name}.img")));
    }
}

#[test]
fn an_image_of_docker_save_is_known_by_its_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let sh = |script: &str| run(Command::new("sh").args(["-ec", script]).current_dir(dir.path())).succeeded();
    sh("mkdir base && echo hi > base/hello && tar -cf base.tar -C base . && mkdir app && mv base.tar app/layer.tar
        sum=$(sha256sum < app/layer.tar | cut -d' ' -f1)
        printf '{\"architecture\":\"amd64\",\"os\":\"linux\",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:%s\"]}}' $sum > config.json
        printf '[{\"Config\":\"config.json\",\"RepoTags\":[\"app:1\"],\"Layers\":[\"app/layer.tar\"]}]' > manifest.json
        tar -cf first.tar manifest.json config.json app
        tar -cf last.tar app config.json manifest.json && gzip -k last.tar
        mkdir tree && echo '{\"name\":\"none\"}' > tree/manifest.json && cp config.json tree && tar -cf files.tar -C tree .");
    let at = |command: &str| run(Command::new(PROGRAM).args(command.split(' ')).current_dir(dir.path()));
    for source in ["first.tar", "last.tar", "last.tar.gz", "last.tar:app:1"] {
        at(&format!("mkfs ext4 image -q --force --no-conf --from {source}")).succeeded();
        assert_eq!(at("ls image").text(), "hello\nlost+found\n", "{source}");
    }
    // A file of that name alone is none.
    at("mkfs ext4 image -q --force --no-conf --from files.tar").succeeded();
    assert_eq!(at("ls image").text(), "config.json\nlost+found\nmanifest.json\n");
}

#[test]
fn an_image_in_its_own_source_and_behind_a_link_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), b"x").unwrap();
    let (image, link) = (tree.join("image"), dir.path().join("link"));
    let from = tree.to_str().unwrap();
    undercroft(["mkfs", "ext4", image.to_str().unwrap(), "-q", "--from", from]).succeeded();
    let names: Vec<_> = shown("ext4", &image).entries.into_keys().filter(|name| !name.is_empty()).collect();
    assert_eq!(names, [&b"file"[..], b"lost+found"]);
    std::os::unix::fs::symlink("tree/image", &link).unwrap();
    fs::write(tree.join("more"), b"y").unwrap();
    undercroft(["mkfs", "ext4", link.to_str().unwrap(), "-q", "--force", "--from", from]).succeeded();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(shown("ext4", &image).entries.contains_key(&b"more"[..]));
    fs::remove_file(&image).unwrap();
    let refused = undercroft(["mkfs", "ext4", link.to_str().unwrap(), "-q", "--from", from]);
    assert!(refused.code != 0 && refused.stderr.contains("a symbolic link to nothing"), "{}", refused.stderr);
}

/// In a user namespace, without privileges, FUSE and loop devices, with standard input: the owners are the archive's.
#[test]
fn an_ordinary_user_makes_an_image_of_devices_and_owners() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    plain_tree(&tree);
    let archive = dir.path().join("tree.tar");
    tool(&format!("tar -cf {} .", archive.display()), &tree);
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    for path in [dir.path(), &home] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    crate::support::copy_program(&home.join("undercroft"));
    let script = r"
        touch ../nothing
        chmod 0 ../nothing
        for node in /dev/fuse /dev/loop*; do mount --bind ../nothing $node; done
        exec setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user $MAPPED sh -ec '
            ! head -c 0 /dev/fuse
            ./undercroft mkfs -q ext4 $NAME.ext4 --from - < ../tree.tar
            ./undercroft mkfs -q xfs $NAME.xfs --from ../tree.tar
            ./undercroft mkfs -q ext4 $NAME.into --size 8M
            ./undercroft tar-in $NAME.into - < ../tree.tar
        ' 2> messages";
    let expected = through_tar(comparable(unpacked(&archive, 64, "--acls")));
    // As root of the namespace, and as a user without a name.
    for (name, mapped) in [("root", "--map-root-user"), ("nobody", "--map-current-user")] {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-ec", script]).env("NAME", name).env("MAPPED", mapped);
        let told = run(unshare.current_dir(&home));
        let messages = fs::read_to_string(home.join("messages")).unwrap();
        assert_eq!(told.code, 0, "{name}: {}{messages}", told.stderr);
        // That FUSE cannot be opened.
        assert_eq!(messages.lines().filter(|line| !line.contains("/dev/fuse")).count(), 0, "{messages}");
        for kind in ["ext4", "xfs", "into"] {
            let image = home.join(name).with_extension(kind);
            let found = through_tar(comparable(shown(if kind == "into" { "ext4" } else { kind }, &image)));
            Differences::between(&expected, &found).assert_none(&format!("{kind}, made by {name}"));
        }
    }
}
