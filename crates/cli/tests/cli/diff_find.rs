//! `diff` tells what differs, and `find` finds what find finds on the kernel's mount.

use std::fs;
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{LoopMount, MountMode};

use crate::edit::{image, with_stdin};
use crate::support::{PROGRAM, rich, run, tool, undercroft};

/// The words of an expression, options about depth with their numbers.
fn pairs(expression: &str) -> Vec<Vec<&str>> {
    let mut pairs = Vec::new();
    let mut words = expression.split(' ').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let number = if word.ends_with("depth") { words.next() } else { None };
        pairs.push([Some(word), number].into_iter().flatten().collect());
    }
    pairs
}

/// Both find the same below the root of an image, which the kernel has mounted.
fn assert_finds_what_find_finds(image: &Path, mount: &Path, expression: &str) {
    let mut linux = Command::new("find");
    linux.current_dir(mount).arg(".").env("LC_ALL", "C");
    let mut ours = Command::new(PROGRAM);
    ours.arg("find").arg(image).arg("/");
    for find in [&mut linux, &mut ours] {
        let (depths, tests): (Vec<_>, Vec<_>) =
            pairs(expression).into_iter().partition(|pair| pair[0].ends_with("depth"));
        find.args(depths.concat());
        match tests.concat() {
            tests if tests.is_empty() => find.arg("-print0"),
            tests if tests.contains(&"-print0") => find.args(tests),
            tests => find.arg("(").args(tests).args([")", "-print0"]),
        };
    }
    let paths = |said: &[u8]| -> Vec<Vec<u8>> {
        let mut paths: Vec<_> = said.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        paths.sort();
        paths
    };
    let mut expected = paths(&run(&mut linux).succeeded());
    for path in expected.iter_mut().filter(|path| !path.is_empty()) {
        *path = if path == b"." { b"/".to_vec() } else { path[1..].to_vec() };
    }
    expected.sort();
    let found = paths(&run(&mut ours).succeeded());
    assert!(expected == found, "{expression}: {} and {}", expected.len(), found.len());
}

#[test]
fn files_of_the_future_are_younger_than_any_age() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), "ext4");
    let mount = LoopMount::new(&image, "ext4", MountMode::ReadWrite, "").unwrap();
    for (name, when) in
        [("soon", "+90 minutes"), ("later", "+3 days"), ("now", "-20 seconds"), ("old", "-40 hours")]
    {
        let touched =
            Command::new("touch").args(["-d", when, name]).current_dir(mount.path()).status().unwrap();
        assert!(touched.success(), "{name}");
    }
    mount.unmount().unwrap();
    let mount = LoopMount::new(&image, "ext4", MountMode::ReadOnly, "").unwrap();
    // Of the directory's own age find counts no parts of seconds.
    for age in [
        "-mtime -1",
        "-mtime 0",
        "-mtime +0",
        "-mtime -0",
        "-mtime 1",
        "-mmin -10",
        "-mmin +10",
        "-mmin -0",
        "! -mmin -1000",
    ] {
        let expression = &format!("-type f {age}");
        assert_finds_what_find_finds(&image, mount.path(), expression);
    }
    let found = undercroft(["find", image.to_str().unwrap(), "/", "-name", "later", "-mtime", "-1"]).text();
    assert_eq!(found, "/later\n");
}

#[test]
fn find_finds_what_find_finds() {
    let image = rich();
    let mount = image.mount();
    for expression in [
        "",
        "-type d",
        "-type l,p,s",
        "-name *1*",
        "-iname A* -o -path */dir*/*",
        "! -type d -size +8k",
        "-size -2 -type f",
        "-size 0 -o -size 1M",
        "-empty",
        "-perm -u+x -type f",
        "-perm /6000",
        "-perm 644",
        "-user 0 -not -group 0",
        "-links +1 -type f",
        "-newermt 2020-01-01",
        "-maxdepth 1",
        "-mindepth 2 -maxdepth 2 -type f",
        "( -name a* -o -name b* ) -type f",
        "-type d -name d* -prune -o -type f -print0",
        "-mtime +1",
        "-false -o -type f -true",
        "-uid +0 -o -gid +0",
        "-uid -1 -gid 0",
        "-uid -60000 -type f",
    ] {
        assert_finds_what_find_finds(image.path(), mount.path(), expression);
    }
    let path = image.path().to_str().unwrap();
    let zeroes = undercroft(["find", path, "-type", "f", "-print0"]).succeeded();
    assert!(zeroes.ends_with(b"\0") && zeroes.iter().filter(|byte| **byte == 0).count() > 2000);
    let json = undercroft(["find", "--json", path, "/", "-maxdepth", "0"]).json();
    assert_eq!((&json[0]["path"], &json[0]["kind"]), (&"/".into(), &"directory".into()));
    let refusal = undercroft(["find", path, "/", "-exec", "rm", "{}", ";"]).failed(2);
    assert!(refusal.contains("xargs -0"), "{refusal}");
}

#[test]
fn differences_are_told_by_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    let script =
        "mkdir -p tree/d; cd tree; echo one > f; ln f g; ln -s f l; truncate -s 1M sparse; mknod c c 1 3
        echo below > d/below; setfattr -n user.a -v 1 f; touch -d '2001-02-03 04:05:06.5' f d";
    let output = Command::new("bash").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    tool("tar --xattrs --format=pax -c -z -f tree.tgz -C tree .", dir.path());
    tool("tar --format=gnu -c -f plain.tar -C tree .", dir.path());
    for family in ["ext4", "xfs"] {
        image(dir.path(), family);
        at(&["put", "--preserve", family, "tree/.", "/"]).succeeded();
        // The root is no part of what was put.
        let root = ["--ignore", "mtime,mode"];
        assert_eq!(at(&["diff", root[0], root[1], family, "tree"]).text(), "");
        assert_eq!(at(&["diff", root[0], root[1], family, "tree.tgz"]).text(), "");
        assert_eq!(at(&["diff", "--ignore", "mtime,mode,xattrs", family, "plain.tar"]).text(), "");
    }
    assert_eq!(at(&["diff", "--ignore", "mtime,mode", "ext4", "xfs"]).text(), "");
    let image = dir.path().join("ext4");
    with_stdin(["write", image.to_str().unwrap(), "/d/below"], b"BELOW\n").succeeded();
    for edit in [
        &["touch", "ext4", "/new"][..],
        &["rm", "ext4", "/l"],
        &["ln", "-s", "ext4", "d", "/l"],
        &["chmod", "ext4", "600", "/f"],
        &["chown", "ext4", "5:6", "/c"],
        &["truncate", "-s", "2M", "ext4", "/sparse"],
        &["xattr", "set", "ext4", "/f", "user.a", "2"],
        &["touch", "-d", "2001-02-03T04:05:06Z", "ext4", "/f"],
    ] {
        at(edit).succeeded();
    }
    let run = at(&["diff", "--json", "ext4", "xfs"]);
    assert_eq!((run.code, &run.stderr[..]), (1, ""));
    let found: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let words = |path: &str| {
        let at = found.as_array().unwrap().iter().find(|difference| difference["path"] == path);
        at.map(|at| {
            at["differs"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
        })
        .unwrap_or_else(Vec::new)
    };
    assert_eq!(words("/new"), ["only_in_image"]);
    assert_eq!(words("/l")[0], "target");
    assert_eq!(words("/f"), ["mode", "mtime", "xattrs"]);
    assert_eq!(words("/c"), ["owner", "group"]);
    assert_eq!(words("/sparse")[0], "size");
    assert_eq!(words("/d/below")[0], "content");
    let value = |path: &str, word: &str| {
        let at = found.as_array().unwrap().iter().find(|difference| difference["path"] == path).unwrap();
        (at["values"][word]["image"].clone(), at["values"][word]["other"].clone())
    };
    assert_eq!(value("/f", "mode"), ("0600".into(), "0644".into()));
    assert_eq!(value("/c", "owner"), (5.into(), 0.into()));
    assert_eq!(value("/c", "group"), (6.into(), 0.into()));
    assert_eq!(value("/sparse", "size"), ((2 << 20).into(), (1 << 20).into()));
    assert_eq!((value("/l", "target").0["target"]).as_str(), Some("d"));
    assert_eq!(value("/f", "mtime").0, "2001-02-03T04:05:06.000000000Z");
    assert_eq!(value("/f", "xattrs").0[0]["name"], "user.a");
    let text = at(&["diff", "ext4", "xfs"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("/f: mode 0600, 0644; mtime 2001"), "{text}");
    let text = at(&["diff", "--ignore", "mtime,xattrs", "ext4", "xfs"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("/c: owner 5, 0; group 6, 0\n") && text.contains("/f: mode 0600, 0644\n"),
        "{text}"
    );
    // A time without a fraction is compared to the second.
    let plain = at(&["diff", "--exclude", "/d", "ext4", "plain.tar"]);
    assert!(
        !String::from_utf8_lossy(&plain.stdout).contains("/f: mode 0600, 0644; mtime"),
        "{:?}",
        plain.stdout
    );
    for wrong in [&["diff", "ext4", "missing"][..], &["diff", "missing", "ext4"], &["diff", "ext4", "tree/f"]]
    {
        assert_eq!(at(wrong).code, 2, "{wrong:?}");
    }
    fs::write(dir.path().join("cut.tar"), &fs::read(dir.path().join("plain.tar")).unwrap()[..1500]).unwrap();
    assert_eq!(at(&["diff", "ext4", "cut.tar"]).code, 2);
    // The same as the kernel shows it.
    let mount = LoopMount::new(&dir.path().join("xfs"), "xfs", MountMode::ReadOnly, "").unwrap();
    assert_eq!(at(&["diff", "xfs", mount.path().to_str().unwrap()]).text(), "");
    mount.unmount().unwrap();
}

#[test]
fn images_of_containers_are_compared_and_unpacked_as_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("set -e; {}", crate::documents::INPUTS);
    run(Command::new("bash").args(["-c", &script]).current_dir(dir.path())).succeeded();
    let script = |script: &str| {
        let mut command = Command::new("bash");
        let command = command.args(["-ec", script]).current_dir(dir.path()).env("UNDERCROFT", PROGRAM);
        run(command.env("TMPDIR", dir.path()))
    };
    script("$UNDERCROFT mkfs -q ext4 a.img --from root.tar --size 64M").succeeded();
    for other in [
        "root.tar",
        "save.tar",
        "layout",
        "oci:layout:1.2",
        "docker-archive:save.tar:debian:12",
        "- < save.tar",
    ] {
        script(&format!("$UNDERCROFT diff a.img {other}")).succeeded();
    }
    let told = script("$UNDERCROFT diff a.img dir:layout");
    assert!(String::from_utf8_lossy(&told.stdout).contains("/oci-layout: only in dir:layout"), "{told:?}");
    for source in ["root.tar", "save.tar", "- < save.tar", "- < rootfs.tar.zst", "layout"] {
        let unpack =
            format!("$UNDERCROFT mkfs -q --force ext4 b.img --size 64M; $UNDERCROFT tar-in b.img {source} /");
        script(&format!("{unpack}; $UNDERCROFT diff b.img root.tar")).succeeded();
    }
    script("$UNDERCROFT mkdir b.img /raw; $UNDERCROFT tar-in b.img tar:save.tar /raw").succeeded();
    script("$UNDERCROFT cat b.img /raw/manifest.json | cmp - save/manifest.json").succeeded();
    let told = script("$UNDERCROFT tar-in b.img tree /").failed(8);
    assert_eq!(told, "tree is a directory and no archive; `undercroft put` copies directories");
}
