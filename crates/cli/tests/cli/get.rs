//! `get` onto this machine: the copy is what the kernel shows of the image, less what lends rights unless that is
//! asked for.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use undercroft_oracle::{Differences, Entry, Manifest, Mke2fs, MountMode, kernel_manifest};

use crate::support::{PROGRAM, Run, copy_program, rich, run, small, tool};

fn get(image: &Path, path: &str, dest: &Path) -> Run {
    run(Command::new(PROGRAM).arg("get").arg(image).arg(path).arg(dest))
}

/// A copy from an image that is trusted.
fn get_special(image: &Path, path: &str, dest: &Path) -> Run {
    run(Command::new(PROGRAM).args(["get", "--special"]).arg(image).arg(path).arg(dest))
}

fn resume(image: &Path, path: &str, dest: &Path) -> Run {
    run(Command::new(PROGRAM).args(["get", "--resume"]).arg(image).arg(path).arg(dest))
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
    get_special(rich().path(), "/", &dest).succeeded();
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
    get_special(rich().path(), "/nodes", &dir.path().join("nodes")).succeeded();
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
    assert_eq!(
        message,
        format!(
            "{shown} exists already; name another place, replace it by --overwrite, or go on with a copy that was \
             interrupted by --resume"
        )
    );
    let message = get(image.path(), "/dir", &place).failed(8);
    assert!(message.starts_with(&format!("{shown} exists already")), "{message}");
    assert_eq!(fs::read(&place).unwrap(), b"old");

    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("dir"), "old").unwrap();
    let message = get(image.path(), "/", &full).failed(8);
    assert_eq!(
        message,
        format!(
            "{} is not empty; name a directory that is empty or does not exist, fill it up by --overwrite or \
             --update, or go on with a copy by --resume",
            full.display()
        )
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

/// An image with what lends rights, attributes on read-only files, and its own place where any user may read it.
struct Lending {
    dir: tempfile::TempDir,
    image: PathBuf,
}

impl Lending {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let image = Mke2fs::new("ext4", 16).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let inside = mount.path();
        fs::write(inside.join("tool"), "#!").unwrap();
        fs::create_dir(inside.join("closed")).unwrap();
        fs::write(inside.join("closed/file"), "x").unwrap();
        tool("mknod null c 1 3", inside);
        tool("mkfifo fifo", inside);
        tool("setfattr -n trusted.word -v x tool", inside);
        tool("setcap cap_net_raw+ep closed/file", inside);
        for name in ["tool", "closed", "closed/file"] {
            tool(&format!("setfattr -n user.word -v {name} {name}"), inside);
        }
        tool("setfacl -m u:1:r-x closed", inside);
        for (name, mode) in [("tool", 0o4555), ("closed/file", 0o444), ("closed", 0o2555)] {
            fs::set_permissions(inside.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        mount.unmount().unwrap();
        let reachable = dir.path().join("image");
        fs::copy(image.path(), &reachable).unwrap();
        Self { dir, image: reachable }
    }

    /// `get` by an ordinary user.
    fn get_as_user(&self, args: &[&str]) -> Run {
        let program = self.dir.path().join("undercroft");
        if !program.exists() {
            copy_program(&program);
        }
        run(Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .arg("get")
            .args(args)
            .arg(&self.image)
            .arg("/")
            .arg(self.dir.path().join("copy")))
    }
}

/// What a note of `get` begins with, for each note.
fn notes(run: &Run) -> Vec<&str> {
    run.stderr.lines().map(|line| line.strip_prefix("undercroft: note: ").unwrap_or(line)).collect()
}

/// Without root, owners cannot be kept, and set-user-ID without its owner would be a gift. That is reported.
#[test]
fn an_ordinary_user_gets_what_a_user_may_have() {
    let lending = Lending::new();
    let run = lending.get_as_user(&[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let special = "only root may keep these, with --special";
    assert_eq!(
        notes(&run),
        [
            "6 owners not kept; run as root to keep owners".to_owned(),
            format!("2 set-user-ID or set-group-ID modes not kept; {special}"),
            format!("1 device node not kept; {special}"),
            format!("2 extended attributes not kept; {special}"),
        ]
    );
    let copy = lending.dir.path().join("copy");
    let meta = fs::metadata(copy.join("tool")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o555, 65534));
    assert_eq!(fs::metadata(copy.join("closed")).unwrap().mode() & 0o7777, 0o555);
    assert_eq!(fs::read(copy.join("closed/file")).unwrap(), b"x");
    assert!(!copy.join("null").exists());
    assert!(copy.join("fifo").exists());
}

/// The mode of a file or directory that not even its owner may write does not keep its attributes away.
#[test]
fn a_user_gets_the_attributes_of_what_is_read_only() {
    let lending = Lending::new();
    assert_eq!(lending.get_as_user(&[]).code, 0);
    let copy = lending.dir.path().join("copy");
    for name in ["tool", "closed", "closed/file"] {
        assert_eq!(tool(&format!("getfattr --only-values -n user.word {name}"), &copy), name);
    }
    assert!(tool("getfacl -c closed", &copy).contains("user:daemon:r-x"));
}

#[test]
fn a_user_who_asks_for_device_nodes_is_told_who_may_make_them() {
    let run = Lending::new().get_as_user(&["--special"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let complaint = run.stderr.lines().next().unwrap();
    assert!(complaint.starts_with("undercroft: cannot copy /null to "), "{}", run.stderr);
    assert!(complaint.ends_with("; only root may make device nodes"), "{}", run.stderr);
}

/// As root too: an image need not be trusted to be looked at.
#[test]
fn what_lends_rights_comes_out_of_an_image_on_request_only() {
    let lending = Lending::new();
    let copy = lending.dir.path().join("copy");
    let plain = get(&lending.image, "/", &copy);
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    let special = "--special keeps these, from an image that you trust";
    assert_eq!(
        notes(&plain),
        [
            format!("2 set-user-ID or set-group-ID modes not kept; {special}"),
            format!("1 device node not kept; {special}"),
            format!("2 extended attributes not kept; {special}"),
        ]
    );
    assert_eq!(fs::metadata(copy.join("tool")).unwrap().mode() & 0o7777, 0o555);
    assert_eq!(fs::metadata(copy.join("closed")).unwrap().mode() & 0o7777, 0o555);
    assert!(fs::symlink_metadata(copy.join("null")).is_err());
    assert_eq!(tool("getfattr -d -m trusted tool", &copy), "");
    assert_eq!(tool("getcap closed/file", &copy), "");

    let trusted = lending.dir.path().join("trusted");
    get_special(&lending.image, "/", &trusted).succeeded();
    assert_eq!(fs::metadata(trusted.join("tool")).unwrap().mode() & 0o7777, 0o4555);
    assert_eq!(fs::metadata(trusted.join("closed")).unwrap().mode() & 0o7777, 0o2555);
    assert!(fs::symlink_metadata(trusted.join("null")).is_ok());
    assert_eq!(tool("getfattr --only-values -n trusted.word tool", &trusted), "x");
    assert!(tool("getcap closed/file", &trusted).contains("cap_net_raw"));
}

/// A copy that is killed leaves no file that looks complete and is not, and `--resume` makes it whole.
#[test]
fn an_interrupted_copy_has_no_half_files_and_is_gone_on_with() {
    const LARGE_BYTES: usize = 64 << 20;
    let image = Mke2fs::new("ext4", 400).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let inside = mount.path();
    fs::create_dir_all(inside.join("a/b")).unwrap();
    for number in 0..4 {
        fs::write(inside.join(format!("a/large{number}")), vec![b'0' + number; LARGE_BYTES]).unwrap();
    }
    fs::write(inside.join("a/b/small"), "small").unwrap();
    fs::hard_link(inside.join("a/large0"), inside.join("a/b/linked")).unwrap();
    symlink("../large0", inside.join("a/b/symlink")).unwrap();
    fs::set_permissions(inside.join("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
    tool("mkfifo a/fifo", inside);
    mount.unmount().unwrap();

    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let mut child = Command::new(PROGRAM).arg("get").arg(image.path()).arg("/a").arg(&copy).spawn().unwrap();
    // Until a file is being filled.
    let in_progress = |entry: fs::DirEntry| {
        entry
            .metadata()
            .is_ok_and(|meta| meta.is_file() && (1..LARGE_BYTES as u64 / 512).contains(&meta.blocks()))
    };
    while !fs::read_dir(&copy).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(in_progress))) {
        assert!(child.try_wait().unwrap().is_none(), "the copy ended before it was seen at work");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut names: Vec<_> = fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name.to_str().unwrap().starts_with("large"));
    assert!(names.len() < 4);
    for name in &names {
        let whole = vec![name.to_str().unwrap().as_bytes()[5]; LARGE_BYTES];
        assert!(fs::read(copy.join(name)).unwrap() == whole, "{name:?} is a half file");
    }

    resume(image.path(), "/a", &copy).succeeded();
    let original = image.mount(MountMode::ReadOnly, "").unwrap();
    let todo = tool(
        &format!("rsync -naHAXSi --checksum --delete {}/a/ {}/", original.path().display(), copy.display()),
        dir.path(),
    );
    assert_eq!(todo, "");
    // Once more there is nothing to do.
    let json =
        run(Command::new(PROGRAM).args(["get", "--json", "--resume"]).arg(image.path()).arg("/a").arg(&copy))
            .json();
    assert_eq!((json["files"].as_u64(), json["already_there"].as_u64()), (Some(0), Some(8)), "{json}");
}

#[test]
fn going_on_writes_nothing_over() {
    let image = small(&[("/dir/one", "from the image"), ("/dir/two", "from the image")]);
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("one"), "of the user").unwrap();
    let run = resume(image.path(), "/dir", &copy);
    assert_eq!(
        run.failed(1),
        "something else has the name of the copy of /dir/one; move it away and run this again"
    );
    assert_eq!(fs::read(copy.join("one")).unwrap(), b"of the user");
    assert_eq!(fs::read(copy.join("two")).unwrap(), b"from the image");
    // A single file, at its name or in a directory.
    fs::remove_file(copy.join("one")).unwrap();
    resume(image.path(), "/dir/one", &copy).succeeded();
    resume(image.path(), "/dir/one", &copy.join("one")).succeeded();
    assert_eq!(fs::read(copy.join("one")).unwrap(), b"from the image");
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
            "files": 2, "directories": 1, "symlinks": 0, "hard_links": 0, "special": 0, "content_bytes": 5,
            "already_there": 0, "up_to_date": 0,
            "not_kept": {
                "owners": 0, "set_id_modes": 0, "device_nodes": 0, "privileged_xattrs": 0, "unsupported_xattrs": 0
            }
        })
    );
}

/// Into a mount whose kernel caches what it may have no room for: what is missing is reported when the times are set,
/// for which the kernel writes back.
#[test]
fn a_copy_whose_bytes_find_no_room_late_is_none() {
    let image = small(&[("file", &"x".repeat(60_000))]);
    let point = tempfile::tempdir().unwrap();
    run(Command::new(PROGRAM).args(["mount", "tmpfs:", "-o", "size=1M"]).arg(point.path())).succeeded();
    let filled =
        Command::new("fallocate").args(["--length", "1000K", "rest"]).current_dir(point.path()).status();
    let copied = get(image.path(), "/file", &point.path().join("copy"));
    let left = point.path().join("copy").exists();
    run(Command::new(PROGRAM).arg("unmount").arg(point.path())).succeeded();
    assert!(filled.unwrap().success());
    let told = copied.failed(8);
    assert!(told.contains("No space left on device"), "{told}");
    assert!(!left, "half a file has the name of a whole one");
}
