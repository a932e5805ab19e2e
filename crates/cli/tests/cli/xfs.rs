//! XFS as a user meets it: `check`, `info`, `stat`, `tree` and `get` on images that mkfs.xfs made and the kernel
//! filled, against what xfsprogs and the kernel say of them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use undercroft_oracle::{Differences, Image, LoopMount, MkfsXfs, MountMode, XfsRecipe, kernel_manifest};

use crate::get::portable;
use crate::support::{PROGRAM, run, tool, undercroft};
use crate::tar::{archive, through_tar, unpack};

fn shown(image: &Image) -> &str {
    image.path().to_str().unwrap()
}

/// A small empty XFS.
fn empty(args: &str) -> Image {
    MkfsXfs::new(64, args).make().unwrap()
}

/// An XFS with one of everything, made once and changed by no test; it lies among the build's own files.
fn rich() -> &'static str {
    static RICH: OnceLock<String> = OnceLock::new();
    RICH.get_or_init(|| {
        let recipe = XfsRecipe::new(MkfsXfs::new(128, "-m rmapbt=1 -L crypt")).plan(|plan| {
            plan.many = 600;
            plan.attributes = 120;
        });
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rich-xfs.img");
        let path = path.to_str().unwrap().to_owned();
        let image = recipe.make().unwrap();
        tool(&format!("cp --sparse=always {} {path}", shown(&image)), Path::new("/"));
        path
    })
}

/// The image as it is on the disk while the kernel has it mounted: its last changes stand in the log only.
fn dirty(image: &Image) -> Image {
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    for number in 0..20 {
        let path = mount.path().join(format!("fresh-{number}"));
        std::fs::write(&path, "fresh").unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
    }
    let copy = image.copy_between_writes(&mount).unwrap();
    mount.unmount().unwrap();
    copy
}

#[test]
fn a_sound_image_checks_clean() {
    let text = undercroft(["check", rich()]).text();
    assert!(text.contains(": clean; ") && text.lines().count() == 1, "{text}");
    let report = undercroft(["fsck", "-fn", "--json", rich()]).json();
    assert_eq!(report["clean"], true);
    assert_eq!(report["findings"], serde_json::json!([]));
    assert!(report["inodes"].as_u64().unwrap() > 1000, "{report}");
    assert_eq!(report.get("recovery"), None);
}

#[test]
fn a_dirty_log_is_replayed_in_memory_before_the_check() {
    let image = dirty(&empty(""));
    let before = image.sha256().unwrap();
    let text = undercroft(["check", shown(&image)]).text();
    assert!(text.starts_with("the log was replayed in memory: "), "{text}");
    assert!(text.contains(": clean; "), "{text}");
    let report = undercroft(["check", "--json", shown(&image)]).json();
    assert!(report["recovery"]["transactions"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((&report["clean"], &report["directories"]), (&true.into(), &1.into()));
    assert!(report["inodes"].as_u64().unwrap() >= 21, "{report}");
    assert_eq!(image.sha256().unwrap(), before);
}

#[test]
fn damage_is_told_by_inode_group_and_code_and_ends_in_four() {
    for (commands, code, place) in [
        (["inode 128", "write -d core.nlinkv2 7"], "link-count", "inode"),
        (["agf 1", "write -d freeblks 9"], "", "group"),
        (["sb 0", "write -d fdblocks 12345"], "superblock-count", ""),
        (["agi 2", "write -d magicnum 0"], "", "group"),
    ] {
        let image = empty("");
        image.xfs_db_write(&commands).unwrap();
        let run = undercroft(["check", "--json", shown(&image)]);
        assert_eq!((run.code, run.stderr.as_str()), (4, ""), "{commands:?}");
        let report: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(report["clean"], false);
        let findings = report["findings"].as_array().unwrap();
        let is_it = |finding: &&Value| {
            (code.is_empty() || finding["code"] == code) && (place.is_empty() || finding[place].is_u64())
        };
        assert!(findings.iter().any(|finding| is_it(&finding)), "{commands:?}: {report}");
        let run = undercroft(["check", shown(&image)]);
        let text = String::from_utf8(run.stdout).unwrap();
        assert!(run.code == 4 && text.contains("finding") && !text.contains("clean"), "{text}");
    }
}

#[test]
fn an_unusable_superblock_and_a_damaged_log_are_findings() {
    let image = empty("");
    let mut bytes = std::fs::read(image.path()).unwrap();
    bytes[100] ^= 0xff;
    std::fs::write(image.path(), &bytes).unwrap();
    let run = undercroft(["check", shown(&image)]);
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert!(String::from_utf8(run.stdout).unwrap().contains("(unusable)"));

    let image = empty("");
    let start = image.xfs_number(&["sb 0", "print logstart"], "logstart").unwrap();
    let daddr = image.xfs_db(&[&format!("convert fsblock {start} daddr")]).unwrap();
    let daddr: u64 = daddr.trim().split(['(', ')']).nth(1).unwrap().parse().unwrap();
    let mut bytes = std::fs::read(image.path()).unwrap();
    let log = &mut bytes[daddr as usize * 512..][..64 * 512];
    // What no log looks like: cycles that go up and down.
    log.chunks_mut(512).enumerate().for_each(|(n, block)| block[..8].fill(1 + n as u8 % 3));
    std::fs::write(image.path(), &bytes).unwrap();
    let run = undercroft(["check", shown(&image)]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.code, 4, "{text}{}", run.stderr);
    assert!(text.contains("(log)"), "{text}");
}

#[test]
fn what_cannot_be_checked_ends_in_eight() {
    let dir = tempfile::tempdir().unwrap();
    for (name, mib) in [("xfs.img", 320), ("log.img", 64)] {
        tool(&format!("truncate -s {mib}M {name}"), dir.path());
    }
    tool("mkfs.xfs -q -l logdev=log.img xfs.img", dir.path());
    let here = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    let message = here(&["check", "xfs.img"]).failed(8);
    assert!(message.contains("?log=PATH"), "{message}");
    assert!(here(&["check", "xfs.img?log=log.img"]).text().contains(": clean; "));
    let message = here(&["check", "xfs.img?log=none.img"]).failed(8);
    assert!(message.contains("none.img"), "{message}");
    let message = here(&["check", &format!("{}?log=log.img", rich())]).failed(8);
    assert!(message.contains("leave ?log= out"), "{message}");
    let message = here(&["check", "xfs.img?log=xfs.img"]).failed(16);
    assert!(message.contains("own log"), "{message}");

    tool("truncate -s 40M cut.img", dir.path());
    tool(&format!("dd if={} of=cut.img bs=1M count=40 status=none", rich()), dir.path());
    assert_ne!(here(&["check", "cut.img"]).code, 0);
}

/// Each `name=value`, in order.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let words = text.split([' ', ',', '\n']).filter(|word| !word.starts_with("meta-data"));
    words.filter_map(|word| word.split_once('=')).filter(|(_, value)| !value.is_empty()).collect()
}

#[test]
fn info_prints_each_number_of_xfs_info() {
    for args in [
        "",
        "-b size=2048 -n size=16384 -i size=1024,maxpct=7 -d agcount=5",
        "-m rmapbt=1 -i nrext64=1 -s size=4096",
        "-m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0 -d su=64k,sw=4",
        "-l su=256k,lazy-count=1 -i sparse=0",
    ] {
        let image = MkfsXfs::new(160, args).make().unwrap();
        let theirs = tool(&format!("xfs_info {}", shown(&image)), Path::new("/"));
        let ours = undercroft(["info", shown(&image)]).text();
        let at = ours.find("meta-data=").unwrap_or_else(|| panic!("no geometry in {ours}"));
        let (theirs, ours) = (pairs(&theirs), pairs(&ours[at..]));
        let missing: Vec<_> = theirs.iter().filter(|pair| !ours.contains(pair)).collect();
        assert!(theirs.len() > 25 && missing.is_empty(), "{args}: {missing:?} not in {ours:?}");
        let json = undercroft(["info", "--json", shown(&image)]).json();
        for (name, value) in theirs.iter().take_while(|(name, _)| *name != "bsize") {
            assert_eq!(&json["geometry"][*name].to_string(), value, "{args}: {name}");
        }
    }
}

#[test]
fn info_shows_groups_free_space_and_log() {
    let json = undercroft(["info", "--json", rich()]).json();
    assert_eq!((&json["filesystem"], &json["label"]), (&"xfs".into(), &"crypt".into()));
    assert_eq!(json["group_map_percent"].as_array().unwrap().len(), 4);
    // Free extents as xfs_db counts them, which takes each block on a group's free list for one.
    let on_lists: u64 = (0..4)
        .map(|group| {
            let told = Command::new("xfs_db")
                .args(["-r", "-c", &format!("agf {group}"), "-c", "print flcount", rich()])
                .output()
                .unwrap();
            let told = String::from_utf8(told.stdout).unwrap();
            told.trim().strip_prefix("flcount = ").unwrap().parse::<u64>().unwrap()
        })
        .sum();
    let theirs = tool(&format!("xfs_db -r -c freesp {}", rich()), Path::new("/"));
    let mut theirs: Vec<[u64; 3]> = theirs
        .lines()
        .skip(1)
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            [0, 2, 3].map(|word| words[word].parse().unwrap())
        })
        .collect();
    let ours: Vec<[u64; 3]> = json["free_space"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| ["from_blocks", "extents", "blocks"].map(|name| part[name].as_u64().unwrap()))
        .collect();
    assert_eq!(theirs[0][0], 1, "some free extent has one block");
    theirs[0] = [1, theirs[0][1] - on_lists, theirs[0][2] - on_lists];
    assert_eq!(ours, theirs);

    for (image, state) in [(empty(""), "CLEAN"), (dirty(&empty("")), "DIRTY")] {
        let theirs = tool(&format!("xfs_logprint -t {}", shown(&image)), Path::new("/"));
        let line = theirs.lines().find(|line| line.contains("log tail:")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |word: &str| words[words.iter().position(|w| *w == word).unwrap() + 1];
        assert!(line.contains(state), "{line}");
        let json = undercroft(["info", "--json", shown(&image)]).json();
        assert_eq!(json["log_clean"], state == "CLEAN");
        assert_eq!(json["log_tail_block"].to_string(), after("tail:"));
        assert_eq!(json["log_head_block"].to_string(), after("head:"));
        let text = undercroft(["info", shown(&image)]).text();
        let words = if state == "CLEAN" { "clean, it goes on at" } else { "holds changes from" };
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn info_shows_what_is_sound_of_a_damaged_image() {
    let image = empty("");
    image.xfs_db_write(&["agf 1", "write -d freeblks 9"]).unwrap();
    let json = undercroft(["info", "--json", shown(&image)]).json();
    assert!(json["damage"].as_str().unwrap().contains("AGF"), "{json}");
    assert_eq!(json["geometry"]["agcount"], 4);
    let text = undercroft(["info", shown(&image)]).text();
    assert!(text.contains("is damaged") && text.contains("agcount=4"), "{text}");
}

/// Places, forks and flags as xfs_db has them.
#[test]
fn stat_shows_what_xfs_db_shows() {
    for path in [
        "/names/many",
        "/content/fragmented",
        "/content/shared/clone-1",
        "/nodes/fifo",
        "/nodes/symlinks/500",
        "/xattrs/many/120-120",
        "/attributes/hints/extent-size",
    ] {
        let output = Command::new("xfs_db")
            .args(["-r", "-c", &format!("path {path}"), "-c", "print", "-c", "fsblock", rich()])
            .output()
            .unwrap();
        let theirs = String::from_utf8(output.stdout).unwrap();
        let field = |name: &str| {
            let line = theirs.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.unwrap_or_else(|| panic!("{path}: no {name} in {theirs}")).to_owned()
        };
        let json = undercroft(["stat", "--json", rich(), path]).json();
        let xfs = &json["xfs"];
        assert_eq!(json["inode"].to_string(), field("v3.inumber"), "{path}");
        assert!(field("core.format").contains(xfs["data"]["form"].as_str().unwrap()), "{path}: {xfs}");
        assert_eq!(xfs["data"]["extents"].to_string(), field("core.nextents"), "{path}");
        assert_eq!(xfs["extent_size_blocks"].to_string(), field("core.extsize"), "{path}");
        assert_eq!(json["project"].to_string(), field("core.projid_lo"), "{path}");
        let flags = xfs["flags"].as_array().unwrap();
        for (name, flag) in
            [("v3.reflink", "reflink"), ("v3.bigtime", "bigtime"), ("core.extsize", "extsize")]
        {
            let is_set = field(name) != "0";
            assert_eq!(flags.iter().any(|known| known == flag), is_set, "{path}: {flag}");
        }
        if let Some(extent) = xfs["data"]["first"].as_array().and_then(|first| first.first()) {
            let output = Command::new("xfs_db")
                .args(["-r", "-c", &format!("path {path}"), "-c", "bmap", rich()])
                .output()
                .unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            let first = told.lines().next().unwrap();
            let wanted = format!(
                "data offset {} startblock {} ({}/{}) count {}",
                extent["file_block"],
                extent["block"],
                extent["group"],
                extent["block_in_group"],
                extent["blocks"]
            );
            assert!(first.starts_with(&wanted), "{path}: {first}, ours {wanted}");
        }
        let text = undercroft(["stat", rich(), path]).text();
        assert!(text.contains("data fork") && text.contains("group "), "{text}");
    }
}

/// What is copied out, as files and as an archive, is what the kernel shows, with owners, times and attributes.
#[test]
fn get_copies_what_the_kernel_shows() {
    let original = LoopMount::new(Path::new(rich()), "xfs", MountMode::ReadOnly, "noatime").unwrap();
    let scratch = MkfsXfs::new(400, "").make().unwrap();
    let mount = scratch.mount(MountMode::ReadWrite, "noatime").unwrap();
    let copy = mount.path().join("copy");
    undercroft([OsStr::new("get"), "--special".as_ref(), rich().as_ref(), "/".as_ref(), copy.as_ref()])
        .succeeded();
    let parts = ["attributes", "nodes", "xattrs", "names/many", "names/growing", "content/sizes"];
    for part in parts {
        let parent = mount.path().join(part).parent().unwrap().to_owned();
        std::fs::create_dir_all(&parent).unwrap();
        unpack(&archive(Path::new(rich()), &format!("/{part}")), &parent);
    }
    mount.unmount().unwrap();
    let mount = scratch.mount(MountMode::ReadOnly, "").unwrap();
    let expected = portable(kernel_manifest(original.path()).unwrap());
    assert!(expected.entries.len() > 1000);
    let found = portable(kernel_manifest(&mount.path().join("copy")).unwrap());
    Differences::between(&expected, &found).assert_none("the copy");
    for part in parts {
        let expected = through_tar(kernel_manifest(&original.path().join(part)).unwrap());
        let found = through_tar(kernel_manifest(&mount.path().join(part)).unwrap());
        assert!(expected.entries.len() > 3, "{part}");
        Differences::between(&expected, &found).assert_none(part);
    }
}
