//! Edits of an image without a mount: what they come to is what Linux's own programs make of the same image on the kernel's
//! mount.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use undercroft_oracle::{Differences, LoopMount, Manifest, MountMode, kernel_manifest};

use crate::support::{PROGRAM, Run, run, tool, undercroft};

/// An image of a family, made by the program.
pub(crate) fn image(dir: &Path, family: &str) -> PathBuf {
    let path = dir.join(family);
    let size = if family == "xfs" { "300M" } else { "64M" };
    undercroft(["mkfs", family, path.to_str().unwrap(), "--size", size]).succeeded();
    path
}

/// Linux's own check finds nothing, and neither does ours.
pub(crate) fn assert_sound(image: &Path, family: &str) {
    let dir = image.parent().unwrap();
    match family {
        "xfs" => tool(&format!("xfs_repair -n {}", image.display()), dir),
        _ => tool(&format!("e2fsck -fn {}", image.display()), dir),
    };
    undercroft(["check", image.to_str().unwrap()]).succeeded();
}

/// What the kernel shows of an image that is sound.
pub(crate) fn shown(image: &Path, family: &str) -> Manifest {
    assert_sound(image, family);
    let mount = LoopMount::new(image, family, MountMode::ReadOnly, "").unwrap();
    kernel_manifest(mount.path()).unwrap()
}

/// Runs the program with something on standard input.
pub(crate) fn with_stdin<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>, stdin: &[u8]) -> Run {
    let mut child = Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that has refused reads nothing.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().expect("not killed"),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// An edit in our words, where `@` is the root, and where Linux's are others, in those.
const STEPS: &[(&str, &str)] = &[
    ("mkdir @/srv", ""),
    ("mkdir -p -m 2750 @/srv/data/in @/srv/data/out @/srv/data", ""),
    ("mkdir -m u=rwx,g=rx,o= @/srv/private", ""),
    ("touch @/srv/a @/srv/b @/srv/data/c", ""),
    ("truncate -s 100k @/srv/a", ""),
    ("truncate -s +5000 @/srv/b @/srv/made", ""),
    ("truncate -s %4k @/srv/b", ""),
    ("truncate -s -100 @/srv/made", ""),
    ("truncate -c -s 5 @/srv/missing", ""),
    ("chmod 4755 @/srv/a", ""),
    ("chmod g+w,o=u-w @/srv/b", ""),
    ("chown 7:8 @/srv/a", ""),
    ("chown :9 @/srv/b", ""),
    ("chown 12 @/srv/data/c", ""),
    ("chmod -R u=rwX,go=rX @/srv/data", ""),
    ("ln -s a @/srv/link", ""),
    ("ln -s ../data/c @/srv/private/deep", ""),
    ("ln @/srv/a @/srv/hard", ""),
    ("ln @/srv/b @/srv/made @/srv/private", ""),
    ("ln -sf nowhere @/srv/link", ""),
    ("ln -f @/srv/b @/srv/link", ""),
    ("ln -s data @/srv/todata", ""),
    ("ln -sfn private @/srv/todata", ""),
    ("chown -h 3:4 @/srv/private/deep", ""),
    ("cp @/srv/a @/srv/copy", ""),
    ("cp @/srv/b @/srv/copy", ""),
    ("cp -p @/srv/a @/srv/data/c @/srv/data/in", ""),
    ("cp -a @/srv/data @/srv/tree", ""),
    ("cp -a @/srv/data/. @/srv/private", ""),
    ("cp -r @/srv/private @/plain", ""),
    ("cp -n @/srv/a @/srv/copy", ""),
    ("mknod -m 666 @/srv/null c 1 3", ""),
    ("mknod @/srv/pipe p", ""),
    ("mknod @/srv/disk b 8 300", ""),
    ("cp -a @/srv/null @/srv/pipe @/plain", ""),
    ("mv @/srv/copy @/srv/moved", ""),
    ("mkdir @/dest", ""),
    ("mv @/srv/moved @/srv/data/in @/dest", ""),
    ("mv -T @/srv/tree @/tree", ""),
    ("mv -n @/srv/b @/srv/a", ""),
    ("mkdir @/t @/t/old @/empty @/empty/below", ""),
    ("touch -d 2001-02-03T04:05:06Z @/t/iso", ""),
    ("touch -d @981173106.25 @/t/seconds", ""),
    ("touch -r @/t/iso @/t/same", ""),
    ("touch -m -d @-1.5 @/t/old", ""),
    ("touch -c @/t/missing", ""),
    ("cp -p @/t/iso @/t/kept", ""),
    ("acl -m u:7:rwx,g:8:r-- @/srv/b", "setfacl -m u:7:rwx,g:8:r-- @/srv/b"),
    ("acl -m u:7:rX,m::rx @/srv/data", "setfacl -m u:7:rX,m::rx @/srv/data"),
    ("acl -d -m u:9:rwX,o::- @/srv/data", "setfacl -d -m u:9:rwX,o::- @/srv/data"),
    ("touch @/srv/data/inherits", ""),
    ("mkdir @/srv/data/below", ""),
    ("mkdir -m 777 @/srv/data/wide", ""),
    ("acl -x u:7 @/srv/b", "setfacl -x u:7 @/srv/b"),
    ("acl -R -m g:5:rwX @/srv/data/out @/tree", "setfacl -R -m g:5:rwX @/srv/data/out @/tree"),
    ("acl -m d:g:6:7 @/srv/private", "setfacl -m d:g:6:7 @/srv/private"),
    ("acl -b @/tree", "setfacl -b @/tree"),
    ("acl -k @/srv/private", "setfacl -k @/srv/private"),
    ("chmod 640 @/srv/b", ""),
    ("cp -a @/srv/b @/srv/withacl", ""),
    ("xattr set @/srv/a user.text value", "setfattr -n user.text -v value @/srv/a"),
    ("xattr set @/srv/a user.bytes 0x00ff10", "setfattr -n user.bytes -v 0x00ff10 @/srv/a"),
    ("xattr set @/srv/a user.more 0sAAEC", "setfattr -n user.more -v 0sAAEC @/srv/a"),
    ("xattr remove @/srv/a user.text", "setfattr -x user.text @/srv/a"),
    ("xattr set @/srv trusted.t x", "setfattr -n trusted.t -v x @/srv"),
    (
        "xattr set @/srv/hard security.capability 0x0100000200200000000000000000000000000000",
        "setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 @/srv/hard",
    ),
    ("cp -a @/srv/a @/srv/hard @/t", ""),
    ("chown 44 @/t/a", ""),
    ("rm @/srv/data/c @/srv/todata", ""),
    ("rm -f @/srv/missing @/srv/pipe", ""),
    ("rm -d @/empty/below", ""),
    ("rm -r @/tree @/empty", ""),
    ("mkdir -p -m 700 @/slash/", ""),
    ("mkdir @/one @/two @/both", ""),
    ("touch @/one/f", ""),
    ("ln @/one/f @/two/f", ""),
    ("cp -a @/one/. @/two/. @/both", ""),
    ("mkdir -m 7777 @/bits", ""),
    ("mknod @/bits/pipe p", ""),
    ("touch @/bits/file", ""),
    ("chmod 7777 @/bits/pipe @/bits/file", ""),
    ("cp -r @/bits @/few", ""),
    ("cp -a @/bits @/all", ""),
    ("chown root:root @/srv/a", ""),
    ("chown root: @/srv/b", ""),
    ("chown :root @/one", ""),
];

fn words(step: &str, root: &str) -> Vec<String> {
    step.split(' ')
        .map(|word| match word.strip_prefix("@/") {
            Some(rest) => format!("{root}/{rest}"),
            None => word.to_owned(),
        })
        .collect()
}

/// What an edit decides: not inode numbers, and times only where a step sets them.
fn decided(manifest: Manifest) -> Manifest {
    let mut manifest = manifest.map(|path, entry| {
        entry.ino = 0;
        entry.listed_ino = None;
        entry.dots = None;
        entry.sectors = 0;
        entry.identity = None;
        entry.created = None;
        entry.changed = (0, 0);
        entry.accessed = (0, 0);
        entry.flags = None;
        let keeps = [&b"t/iso"[..], b"t/seconds", b"t/same", b"t/old", b"t/kept"].contains(&path);
        if !keeps {
            entry.modified = (0, 0);
        }
        if entry.is_directory() {
            entry.size = 0;
        }
    });
    manifest.space = None;
    manifest
}

#[test]
fn an_edit_comes_to_what_linux_makes_of_it() {
    let dir = tempfile::tempdir().unwrap();
    for family in ["ext4", "xfs"] {
        let ours = image(dir.path(), family);
        let linux = dir.path().join("linux");
        tool(&format!("cp --sparse=always {} {}", ours.display(), linux.display()), dir.path());
        let path = ours.to_str().unwrap();
        for (step, _) in STEPS {
            let mut args = words(step, "");
            let at = if args[0] == "xattr" { 2 } else { 1 };
            args.insert(at, path.to_owned());
            undercroft(&args).succeeded();
        }
        let mount = LoopMount::new(&linux, family, MountMode::ReadWrite, "").unwrap();
        let root = mount.path().to_str().unwrap();
        for (step, linux) in STEPS {
            let args = words(if linux.is_empty() { step } else { linux }, root);
            let script = format!("umask 022; exec {}", args.join(" "));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() || step.starts_with("mv -n"), "{script}: {said}");
        }
        mount.unmount().unwrap();
        let (expected, found) = (shown(&linux, family), shown(&ours, family));
        Differences::between(&decided(expected), &decided(found)).assert_none(family);
        for (name, list) in [("srv/data", "access"), ("srv/b", "access")] {
            let said = undercroft(["acl", path, name]).text();
            assert!(said.contains("user:") && said.contains("mask::"), "{name} {list}: {said}");
        }
        fs::remove_file(&linux).unwrap();
    }
}

#[test]
fn root_is_known_without_a_list_of_users() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    image(dir.path(), "ext4");
    fs::write(dir.path().join("f"), "text").unwrap();
    tool("tar --owner :7 --group :8 -c -f t.tar f", dir.path());
    let owner_of = |path: &str| {
        let stat = at(&["stat", "--json", "ext4", path]).json();
        (stat["uid"].as_u64().unwrap(), stat["gid"].as_u64().unwrap())
    };
    at(&["tar-in", "ext4", "t.tar", "/"]).succeeded();
    assert_eq!(owner_of("/f"), (7, 8));
    at(&["tar-in", "--owner", "root", "ext4", "t.tar", "/"]).succeeded();
    assert_eq!(owner_of("/f"), (0, 8));
    at(&["chown", "ext4", "5:6", "/f"]).succeeded();
    at(&["put", "--owner", "root:root", "ext4", "f", "/g"]).succeeded();
    assert_eq!(owner_of("/g"), (0, 0));
    assert_eq!(at(&["find", "ext4", "/", "-type", "f", "-user", "root", "-group", "root"]).text(), "/g\n");
    at(&["acl", "-m", "u:root:r", "ext4", "/g"]).succeeded();
    assert!(at(&["acl", "ext4", "/g"]).text().contains("user:0:r--"));
    assert!(at(&["chown", "ext4", "lisa", "/f"]).failed(7).contains("/etc/passwd"));
}

#[test]
fn a_list_is_shown_as_getfacl_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    undercroft(["mkdir", "-m", "1777", path, "/d"]).succeeded();
    undercroft(["acl", "-m", "u:7:rwx,g:9:rw,m::r,d:u:5:rwx,d:m::rx", path, "/d"]).succeeded();
    let said = undercroft(["acl", path, "/d"]).text();
    let mount = LoopMount::new(&image, "ext4", MountMode::ReadOnly, "").unwrap();
    let getfacl = tool("getfacl -n d", mount.path());
    let lines = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    // getfacl aligns its comments with tabs.
    let plain = |text: &str| lines(text).iter().map(|line| line.replace('\t', "")).collect::<Vec<_>>();
    assert_eq!(plain(&said), plain(&getfacl));
}

#[test]
fn standard_input_becomes_a_file() {
    let dir = tempfile::tempdir().unwrap();
    for family in ["ext4", "xfs"] {
        let image = image(dir.path(), family);
        let path = image.to_str().unwrap();
        let cat = |file: &str| undercroft(["cat", path, file]).succeeded();
        let stat = |file: &str| undercroft(["stat", "--json", path, file]).json();
        with_stdin(["write", path, "/f"], b"one\n").succeeded();
        assert_eq!((cat("/f"), stat("/f")["mode"].as_str()), (b"one\n".to_vec(), Some("0644")));
        undercroft(["chown", path, "5:6", "/f"]).succeeded();
        undercroft(["chmod", path, "600", "/f"]).succeeded();
        undercroft(["xattr", "set", path, "/f", "user.kept", "x"]).succeeded();
        undercroft(["acl", "-m", "u:7:r", path, "/f"]).succeeded();
        undercroft(["ln", "-s", path, "f", "/link"]).succeeded();
        undercroft(["ln", path, "/f", "/other"]).succeeded();
        let big: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8 ^ (n >> 8) as u8).collect();
        with_stdin(["write", path, "link"], &big).succeeded();
        assert!(cat("/f") == big && cat("/other") == b"one\n");
        let found = stat("/f");
        assert_eq!((&found["uid"], &found["gid"], &found["mode"]), (&5.into(), &6.into(), &"0640".into()));
        let xattrs = found["xattrs"].as_array().unwrap();
        let has = |name: &str| xattrs.iter().any(|xattr| xattr["name"] == name);
        assert!(has("system.posix_acl_access") && has("user.kept"), "{found}");
        with_stdin(["write", "--append", path, "/f"], b"tail").succeeded();
        with_stdin(["write", "--append", path, "/new"], b"first").succeeded();
        assert!(cat("/f") == [&big[..], b"tail"].concat() && cat("/new") == b"first");
        with_stdin(["write", "-m", "u=rw,go=", path, "/f"], b"").succeeded();
        assert_eq!((cat("/f"), stat("/f")["mode"].as_str()), (Vec::new(), Some("0600")));
        assert!(with_stdin(["write", path, "/"], b"x").failed(7).contains("root directory"));
        undercroft(["mkdir", path, "/d"]).succeeded();
        assert!(with_stdin(["write", path, "/d"], b"x").failed(7).contains("is a directory"));
        assert!(with_stdin(["write", path, "/no/f"], b"x").failed(7).contains("no such file"));
        assert_sound(&image, family);
        let names = undercroft(["ls", "-a", path]).text();
        assert!(!names.contains(".undercroft"), "{names}");
    }
}

#[test]
fn sources_with_one_name_do_not_overwrite_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    let cat = |file: &str| undercroft(["cat", path, file]).succeeded();
    undercroft(["mkdir", "-p", path, "/a/d", "/b/d", "/cp", "/ln", "/mv", "/put"]).succeeded();
    for (file, content) in [("/a/x", b"1"), ("/b/x", b"2"), ("/a/d/f", b"1"), ("/b/d/f", b"2")] {
        with_stdin(["write", path, file], content).succeeded();
        let host = dir.path().join(&file[1..]);
        fs::create_dir_all(host.parent().unwrap()).unwrap();
        fs::write(host, content).unwrap();
    }
    for (command, option, to) in [("cp", "-p", "/cp"), ("ln", "-f", "/ln"), ("mv", "-T", "/mv")] {
        let mut args = vec![command, option, path, "/a/x", "/b/x", to];
        args.retain(|arg| *arg != "-T");
        let refusal = undercroft(args).failed(1);
        let words = format!("will not overwrite just-created {to}/x with /b/x");
        assert!(refusal.contains(&words), "{refusal}");
        assert_eq!((cat(&format!("{to}/x")), cat("/b/x")), (b"1".to_vec(), b"2".to_vec()), "{command}");
    }
    let (one, other) = (dir.path().join("a"), dir.path().join("b"));
    let host = |of: &Path, name: &str| of.join(name).to_str().unwrap().to_owned();
    let refusal = undercroft(["put", path, &host(&one, "x"), &host(&other, "x"), "/put"]).failed(1);
    assert!(refusal.contains("will not overwrite just-created /put/x with"), "{refusal}");
    assert_eq!(cat("/put/x"), b"1");
    // Directories are merged, as cp merges them.
    undercroft(["cp", "-r", path, "/a/d", "/b/d", "/cp"]).succeeded();
    undercroft(["put", path, &host(&one, "d"), &host(&other, "d"), "/put"]).succeeded();
    assert_eq!((cat("/cp/d/f"), cat("/put/d/f")), (b"2".to_vec(), b"2".to_vec()));
    assert_sound(&image, "ext4");
}

#[test]
fn a_slash_behind_a_link_asks_for_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    undercroft(["ln", "-s", path, "missing", "/link"]).succeeded();
    assert!(with_stdin(["write", path, "/link/"], b"x").failed(7).contains("is a directory"));
    undercroft(["touch", path, "/link/"]).failed(7);
    assert_eq!(undercroft(["ls", path]).text(), "link\nlost+found\n");
    with_stdin(["write", path, "/link"], b"x").succeeded();
    assert_eq!(undercroft(["cat", path, "/missing"]).succeeded(), b"x");
}

#[test]
fn users_and_groups_are_the_images_own() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    undercroft(["touch", path, "/f"]).succeeded();
    let refusal = undercroft(["chown", path, "anna", "/f"]).failed(7);
    assert!(refusal.contains("/etc/passwd") && refusal.contains("a number needs no look-up"), "{refusal}");
    undercroft(["mkdir", path, "/etc"]).succeeded();
    with_stdin(["write", path, "/etc/passwd"], b"root:x:0:0::/:\nanna:x:1234:77:A:/:/bin/sh\n").succeeded();
    with_stdin(["write", path, "/etc/group"], b"root:x:0:\nstaff:x:4321:anna\n").succeeded();
    let owner = || {
        let found = undercroft(["stat", "--json", path, "/f"]).json();
        (found["uid"].as_u64().unwrap(), found["gid"].as_u64().unwrap())
    };
    for (typed, expected) in [
        ("anna", (1234, 0)),
        ("5:staff", (5, 4321)),
        ("anna:", (1234, 77)),
        (":root", (1234, 0)),
        ("1234:", (1234, 77)),
    ] {
        undercroft(["chown", path, typed, "/f"]).succeeded();
        assert_eq!(owner(), expected, "{typed}");
    }
    undercroft(["acl", "-m", "u:anna:rw,g:staff:r", path, "/f"]).succeeded();
    let said = undercroft(["acl", path, "/f"]).text();
    assert!(said.contains("user:1234:rw-") && said.contains("group:4321:r--"), "{said}");
    let refusal = undercroft(["chown", path, "bert", "/f"]).failed(7);
    assert!(refusal.contains("bert is not in /etc/passwd of the image"), "{refusal}");
}

#[test]
fn what_cannot_be_done_is_told_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    undercroft(["mkdir", "-p", path, "/a/b"]).succeeded();
    undercroft(["touch", path, "/a/f"]).succeeded();
    let before = undercroft(["tree", "-a", path]).text();
    for (args, code, words) in [
        (&["rm", path, "/a"][..], 7, "`-r` removes it"),
        (&["rm", path, "/missing"], 7, "no such file"),
        (&["rm", "-rf", path, "/"], 7, "root directory"),
        (&["rm", "-r", path, "/a/."], 7, "ends in no name"),
        (&["rm", "-d", path, "/a"], 7, "not empty"),
        (&["mkdir", path, "/a"], 7, "exists"),
        (&["mkdir", path, "/x/y"], 7, "no such file"),
        (&["mkdir", "-p", path, "/a/f/x/y"], 7, "/a/f: not a directory"),
        (&["mkdir", "-p", path, "/a/f"], 7, "/a/f: it exists already"),
        (&["mkdir", "-m", "9", path, "/x"], 2, "9 is no mode"),
        (&["mv", path, "/a", "/a/b"], 7, "within itself"),
        (&["mv", path, "/a/f", "/a/f"], 7, "the same file"),
        (&["mv", path, "/a/f", "/a/b", "/missing"], 7, "put into a directory"),
        (&["cp", path, "/a", "/x"], 7, "`-r` copies it"),
        (&["cp", "-r", path, "/a", "/a/b"], 7, "into itself"),
        (&["cp", path, "/a/f", "/a/f"], 7, "the same file"),
        (&["cp", path, "/a/f", "out"], 2, "`undercroft get` copies out of the image"),
        (&["cp", path, "/a/f", "."], 2, "`undercroft get` copies out of the image"),
        (&["ln", path, "/a", "/x"], 7, "is a directory"),
        (&["ln", path, "/a/f", "/a/b"], 0, ""),
        (&["rm", path, "/a/b/f"], 0, ""),
        (&["ln", "-s", path, "x", "/a/f"], 7, "`-f` replaces it"),
        (&["chmod", path, "u+q", "/a"], 2, "is no mode"),
        (&["touch", "-d", "someday", path, "/a"], 2, "is no time"),
        (&["truncate", "-s", "x", path, "/a/f"], 2, "is no size"),
        (&["truncate", "-s", "1", path, "/a"], 7, "directory"),
        (&["xattr", "set", path, "/a/f", "odd.name", "x"], 4, "namespace"),
        (&["xattr", "get", path, "/a/f", "user.none"], 7, "no attribute user.none"),
        (&["acl", "-m", "u:1", path, "/a"], 2, "is no entry"),
        (&["acl", "-d", "-m", "u:1:r", path, "/a/f"], 7, "only a directory"),
        (&["mknod", path, "/x", "c"], 2, "a major and a minor number"),
        (&["mknod", path, "/x/", "p"], 7, "not a directory"),
        (&["chown", path, "4294967295", "/a"], 2, "no number of a user"),
    ] {
        let run = undercroft(args);
        if code == 0 {
            run.succeeded();
            continue;
        }
        let refusal = run.failed(code);
        assert!(refusal.contains(words), "{args:?}: {refusal}");
    }
    assert_eq!(undercroft(["tree", "-a", path]).text(), before);
    // Of several, those that can be done are.
    let partly = undercroft(["mkdir", path, "/a", "/new", "/no/way"]);
    assert_eq!((partly.code, partly.stderr.lines().count()), (1, 2), "{}", partly.stderr);
    assert!(undercroft(["ls", path]).text().contains("new\n"));
    assert_sound(&image, "ext4");
}

#[test]
fn names_are_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for family in ["ext4", "xfs"] {
        let image = image(dir.path(), family);
        let names: [&[u8]; 4] = [b"caf\xe9", b"a\nb", b"-rf", b" "];
        for name in names {
            let path = OsStr::from_bytes(&[b"/", name].concat()).to_owned();
            let copy = OsStr::from_bytes(&[b"/copy of ", name].concat()).to_owned();
            for args in [
                vec![OsStr::new("touch"), image.as_os_str(), &path],
                vec![OsStr::new("mkdir"), image.as_os_str(), &copy],
                vec![OsStr::new("cp"), image.as_os_str(), &path, &copy],
                vec![OsStr::new("mv"), image.as_os_str(), &path, OsStr::new("/moved")],
                vec![OsStr::new("mv"), image.as_os_str(), OsStr::new("/moved"), &path],
                vec![OsStr::new("rm"), image.as_os_str(), &path],
            ] {
                undercroft(args).succeeded();
            }
        }
        let long = format!("/{}", "x".repeat(256));
        let refusal = undercroft(["touch", image.to_str().unwrap(), &long]).failed(7);
        assert!(refusal.contains("too long"), "{refusal}");
        assert_sound(&image, family);
    }
}

#[test]
fn an_image_that_is_mounted_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let path = image.to_str().unwrap();
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    undercroft(["mount", path, point.to_str().unwrap(), "-o", "rw"]).succeeded();
    let refusal = undercroft(["mkdir", path, "/d"]).failed(3);
    assert!(refusal.contains(&format!("{path} is mounted on {}", point.display())), "{refusal}");
    assert!(refusal.contains("undercroft unmount"), "{refusal}");
    undercroft(["unmount", point.to_str().unwrap()]).succeeded();
    undercroft(["mkdir", path, "/d"]).succeeded();
    let refusal = undercroft(["mkdir", dir.path().to_str().unwrap(), "/d"]).failed(3);
    assert!(refusal.contains("is a directory"), "{refusal}");
    // By the kernel.
    let mount = LoopMount::new(&image, "ext4", MountMode::ReadWrite, "").unwrap();
    let refusal = undercroft(["mkdir", path, "/e"]).failed(3);
    assert!(
        refusal.contains("in use") || refusal.contains("is using") || refusal.contains("used"),
        "{refusal}"
    );
    mount.unmount().unwrap();
}

#[test]
fn without_space_the_old_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    for family in ["ext4", "xfs"] {
        let image = image(dir.path(), family);
        let path = image.to_str().unwrap();
        with_stdin(["write", path, "/f"], b"old").succeeded();
        let much = vec![b'x'; 20 << 20];
        let mut full = false;
        for number in 0..30 {
            let run = with_stdin(["write", path, &format!("/fill{number}")], &much);
            if run.code != 0 {
                full = true;
                break;
            }
        }
        assert!(full, "{family}");
        let refusal = with_stdin(["write", path, "/f"], &much).failed(7);
        assert!(refusal.contains("no space"), "{refusal}");
        let refusal = with_stdin(["write", "--append", path, "/f"], &much).failed(7);
        assert!(refusal.contains("no space"), "{refusal}");
        let refusal = undercroft(["cp", path, "/fill0", "/f"]);
        // XFS shares the blocks.
        assert_eq!(refusal.code, if family == "xfs" { 0 } else { 7 }, "{}", refusal.stderr);
        if family != "xfs" {
            assert_eq!(undercroft(["cat", path, "/f"]).succeeded(), b"old");
        }
        assert_sound(&image, family);
        fs::remove_file(image).unwrap();
    }
}
