//! `info`, `ls`, `tree`, `stat`, `cat`: what they show is what Linux's tools show, and the JSON says the same.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use undercroft_oracle::{Mke2fs, MountMode};

use crate::support::{PROGRAM, Run, rich, run, small, tool};

fn look(command: &str, image: &Path, rest: &[&str]) -> Run {
    run(Command::new(PROGRAM)
        .arg(command)
        .args(rest.iter().filter(|arg| arg.starts_with('-')))
        .arg(image)
        .args(rest.iter().filter(|arg| !arg.starts_with('-'))))
}

#[test]
fn info_agrees_with_dumpe2fs() {
    let image = Mke2fs::new("ext4", 64)
        .args(["-L", "a label", "-U", "b8a7c1de-36c5-4f0f-9d5e-0123456789ab", "-b", "1024"])
        .make()
        .unwrap();
    let dump = tool(&format!("dumpe2fs {}", image.path().display()), Path::new("/"));
    let field = |label: &str| {
        let line =
            dump.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("no {label}"));
        line.trim().to_owned()
    };
    let info = look("info", image.path(), &["--json"]).json();
    let number = |name: &str| info[name].as_u64().unwrap().to_string();
    assert_eq!(info["filesystem"], "ext4");
    assert_eq!(info["label"], "a label");
    assert_eq!(info["uuid"], "b8a7c1de-36c5-4f0f-9d5e-0123456789ab");
    assert_eq!(number("blocks"), field("Block count:"));
    assert_eq!(number("block_bytes"), field("Block size:"));
    assert_eq!(number("blocks_free"), field("Free blocks:"));
    assert_eq!(number("inodes"), field("Inode count:"));
    assert_eq!(number("inodes_free"), field("Free inodes:"));
    assert_eq!(number("inode_bytes"), field("Inode size:"));
    assert_eq!(number("blocks_per_group"), field("Blocks per group:"));
    assert_eq!(info["journal"]["inode"].as_u64().unwrap().to_string(), field("Journal inode:"));
    assert_eq!(info["state"]["clean"], true);
    let features: Vec<&str> =
        info["features"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(features.join(" "), field("Filesystem features:"));
    let groups =
        dump.lines().filter(|line| line.starts_with("Group ") && line.contains(": (Blocks ")).count();
    assert_eq!(info["groups"], groups);
    assert_eq!(info["group_map_percent"].as_array().unwrap().len(), groups);

    let text = look("info", image.path(), &[]).text();
    for part in
        ["ext4 \"a label\"", "b8a7c1de-36c5-4f0f-9d5e-0123456789ab", "clean", "64 MiB", "metadata_csum"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// Names, kinds, links, owners, sizes as the kernel's own ls shows them under a mount.
#[test]
fn ls_agrees_with_ls() {
    let mount = rich().mount();
    for dir in ["/", "/names/odd", "/attributes/modes", "/attributes/owners", "/nodes", "/content"] {
        let theirs = Command::new("ls")
            .args(["-lan", "--time-style=+%Y-%m-%d %H:%M", "--quoting-style=literal"])
            .arg(mount.path().join(&dir[1..]))
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .output()
            .unwrap();
        assert!(theirs.status.success());
        let ours = look("ls", rich().path(), &["-la", dir]).succeeded();
        let words = |listing: &[u8]| -> BTreeSet<Vec<Vec<u8>>> {
            listing
                .split(|byte| *byte == b'\n')
                .filter(|line| {
                    !line.starts_with(b"total ") && !line.ends_with(b" .") && !line.ends_with(b" ..")
                })
                .map(|line| {
                    line.split(|byte| *byte == b' ')
                        .filter(|word| !word.is_empty())
                        .map(<[u8]>::to_vec)
                        .collect()
                })
                .collect()
        };
        let (ours, theirs) = (words(&ours), words(&theirs.stdout));
        let different: Vec<_> = ours
            .symmetric_difference(&theirs)
            .map(|line| String::from_utf8_lossy(&line.join(&b' ')).into_owned())
            .collect();
        assert!(different.is_empty(), "{dir}: {different:#?}");
    }
}

#[test]
fn ls_and_tree_see_every_name_that_find_sees() {
    let mount = rich().mount();
    let found = Command::new("find")
        .arg(mount.path())
        .args(["-mindepth", "1", "-printf", "/%P\\0"])
        .output()
        .unwrap();
    assert!(found.status.success());
    let expected: BTreeSet<&[u8]> =
        found.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();

    let tree = look("tree", rich().path(), &["-a", "--json"]).json();
    let paths: Vec<Vec<u8>> =
        tree.as_array().unwrap().iter().skip(1).map(|leaf| exact(leaf, "path")).collect();
    assert_eq!(paths.iter().map(Vec::as_slice).collect::<BTreeSet<_>>(), expected);

    let listings = look("ls", rich().path(), &["-Ra", "--json"]).json();
    let mut listed = Vec::new();
    for listing in listings.as_array().unwrap() {
        let dir = exact(listing, "path");
        for entry in listing["entries"].as_array().unwrap() {
            let slash = if dir == b"/" { &b""[..] } else { b"/" };
            listed.push([&dir, slash, &exact(entry, "name")].concat());
        }
    }
    assert_eq!(listed.iter().map(Vec::as_slice).collect::<BTreeSet<_>>(), expected);
}

/// The bytes of a name, from `name_bytes` where there is one.
fn exact(value: &Value, field: &str) -> Vec<u8> {
    match value.get(format!("{field}_bytes")) {
        Some(hex) => {
            let digits = hex.as_str().unwrap();
            (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
                .collect()
        }
        None => value[field].as_str().unwrap().as_bytes().to_vec(),
    }
}

#[test]
fn tree_draws_and_counts() {
    let image = small(&[("/a/b/deep", ""), ("/a/file", ""), ("/z", "")]);
    let text = look("tree", image.path(), &[]).text();
    assert_eq!(
        text,
        "/\n├── a\n│   ├── b\n│   │   └── deep\n│   └── file\n├── lost+found\n└── z\n\n3 directories, 3 files\n"
    );
    let text = look("tree", image.path(), &["-L1", "/a"]).text();
    assert_eq!(text, "/a\n├── b\n└── file\n\n1 directory, 1 file\n");
}

#[test]
fn stat_agrees_with_stat() {
    let mount = rich().mount();
    for path in
        ["/attributes/owners/1000-100", "/nodes/fifo", "/nodes/symlinks/159", "/attributes/modes/file-4755"]
    {
        let theirs = tool(
            &format!("stat --printf=%i|%h|%u|%g|%s|%a|%Y {}", mount.path().join(&path[1..]).display()),
            Path::new("/"),
        );
        let stat = look("stat", rich().path(), &["--json", path]).json();
        let seconds = tool(&format!("date -d {} +%s", stat["modified"].as_str().unwrap()), Path::new("/"));
        let mode = stat["mode"].as_str().unwrap().trim_start_matches('0');
        let ours =
            ["inode", "links", "uid", "gid", "size_bytes"].map(|name| stat[name].to_string()).join("|");
        assert_eq!(format!("{ours}|{mode}|{}", seconds.trim()), theirs, "{path}");
    }
}

#[test]
fn stat_shows_attributes_lists_and_holes() {
    let image = Mke2fs::new("ext4", 16).block_bytes(4096).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let file = mount.path().join("sparse");
    std::fs::write(&file, "begin").unwrap();
    let shown = file.display();
    tool(&format!("truncate -s 1M {shown}"), Path::new("/"));
    tool(&format!("setfattr -n user.word -v stone {shown}"), Path::new("/"));
    tool(&format!("setfattr -n user.bytes -v 0x00ff {shown}"), Path::new("/"));
    tool(&format!("setfacl -m u:1000:rw {shown}"), Path::new("/"));
    mount.unmount().unwrap();
    let text = look("stat", image.path(), &["/sparse"]).text();
    for line in [
        "  xattr      user.word = \"stone\"\n",
        "  xattr      user.bytes = 0x00ff\n",
        "  xattr      system.posix_acl_access = user::rw-,user:1000:rw-,group::r--,mask::rw-,other::r--\n",
        "  data       4 KiB at byte 0\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let json = look("stat", image.path(), &["--json", "/sparse"]).json();
    assert_eq!(json["data"], serde_json::json!([{"offset_bytes": 0, "length_bytes": 4096}]));
}

#[test]
fn cat_gives_the_bytes() {
    let mount = rich().mount();
    let content = mount.path().join("content");
    let mut compared = 0;
    for entry in std::fs::read_dir(&content).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        if meta.is_file() && meta.len() < 64 << 20 {
            let path = [b"/content/", entry.file_name().as_bytes()].concat();
            let ours = run(Command::new(PROGRAM)
                .arg("cat")
                .arg(rich().path())
                .arg(std::ffi::OsStr::from_bytes(&path)));
            assert!(ours.succeeded() == std::fs::read(entry.path()).unwrap(), "{}", entry.path().display());
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn a_qcow2_image_is_recognised() {
    let image = small(&[("/hello", "from inside\n")]);
    let dir = tempfile::tempdir().unwrap();
    tool(&format!("qemu-img convert -f raw -O qcow2 {} disk.qcow2", image.path().display()), dir.path());
    assert_eq!(look("cat", &dir.path().join("disk.qcow2"), &["/hello"]).text(), "from inside\n");
}

#[test]
fn looking_changes_nothing() {
    let image = small(&[("/a/b", "x")]);
    let before = image.sha256().unwrap();
    for (command, rest) in
        [("info", &[][..]), ("ls", &["-R"]), ("tree", &[]), ("stat", &["/a"]), ("cat", &["/a/b"])]
    {
        look(command, image.path(), rest).succeeded();
    }
    assert_eq!(image.sha256().unwrap(), before);
}

/// Sizes with units, several paths, and directories themselves, as the kernel's tree is shown by ls.
#[test]
fn ls_takes_what_a_user_of_ls_types() {
    let image = Mke2fs::new("ext4", 64).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let inside = mount.path();
    std::fs::create_dir_all(inside.join("dir")).unwrap();
    std::fs::create_dir_all(inside.join("other/.hidden")).unwrap();
    for size in [0, 1, 1023, 1024, 1025, 10188, 10189, 10240, 10241, 1047552, 1047553, (1 << 20) + 1, 7 << 30]
    {
        let file = std::fs::File::create(inside.join(format!("dir/{size}"))).unwrap();
        file.set_len(size).unwrap();
    }
    mount.unmount().unwrap();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let theirs = |args: &str| {
        tool(&format!("ls -n --time-style=long-iso --quoting-style=literal {args}"), mount.path())
    };
    let ours = |args: &str| {
        let args: Vec<&str> = args.split(' ').collect();
        let text = look("ls", image.path(), &args).text();
        // Paths are reported from the root on.
        let lines = text.lines().map(|line| match line.rsplit_once(' ') {
            Some((start, path)) => format!("{start} {}", path.trim_start_matches('/')),
            None => line.trim_start_matches('/').to_owned(),
        });
        lines.map(|line| line + "\n").collect::<String>()
    };
    // Without the line `total`, and without the time, which is not in UTC everywhere.
    let columns = |text: String| -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| !line.starts_with("total "));
        lines
            .map(|line| {
                line.split_whitespace()
                    .enumerate()
                    .filter(|(at, _)| ![5, 6].contains(at))
                    .map(|(_, word)| word.to_owned())
                    .collect()
            })
            .collect()
    };
    for args in ["-lh dir", "-hl dir", "-dlh dir other", "-dl .", "-l dir/1 dir/1024 other dir"] {
        assert_eq!(columns(ours(args)), columns(theirs(args)), "{args}");
    }
    let plain = |args: &str| tool(&format!("ls -1 --quoting-style=literal {args}"), mount.path());
    for args in ["-h dir", "dir/1 dir other", "other dir", "-d dir other"] {
        assert_eq!(ours(args), plain(args), "{args}");
    }
    assert!(ours("-a other").contains(".hidden"));
    let partly = look("ls", image.path(), &["none", "dir/1"]);
    assert_eq!((partly.code, partly.stdout.as_slice()), (1, &b"/dir/1\n"[..]));
    assert_eq!(partly.stderr, "undercroft: /none: no such file or directory\n");
}

#[test]
fn stat_tells_of_several_files() {
    let image = small(&[("/a", "1"), ("/b", "22")]);
    let stat = |args: &[&str]| look("stat", image.path(), args);
    let json = stat(&["--json", "/a", "/b"]).json();
    let sizes: Vec<u64> =
        json.as_array().unwrap().iter().map(|file| file["size_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [1, 2]);
    assert_eq!(stat(&["--json", "/a"]).json()["path"], "/a");
    let text = stat(&["/a", "/none", "/b"]);
    assert_eq!((text.code, text.stderr.as_str()), (1, "undercroft: /none: no such file or directory\n"));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("/a\n") && text.contains("/b\n"), "{text}");
}
