//! `mkfs xfs`: options as mkfs.xfs has them, xfs_repair checks what is made, and nothing is overwritten by mistake.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{tool, undercroft};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn is_sound(dir: &Path, image: &str) {
    tool(&format!("xfs_repair -n -o force_geometry {image}"), dir);
    undercroft(["check", image]).text();
}

#[test]
fn an_image_is_made_sparse_and_sound() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new.img");
    let path = image.to_str().unwrap();
    let report = undercroft(["mkfs", "xfs", path, "--size", "10G", "-L", "new", "--json"]).json();
    assert_eq!((&report["filesystem"], &report["size_bytes"]), (&"xfs".into(), &(10_u64 << 30).into()));
    assert_eq!(report["geometry"]["agcount"], 4);
    let metadata = fs::metadata(&image).unwrap();
    assert_eq!(metadata.len(), 10 << 30);
    assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks are allocated", metadata.blocks());
    is_sound(dir.path(), path);
    let info = undercroft(["info", "--json", path]).json();
    assert_eq!((&info["label"], &info["uuid"]), (&"new".into(), &report["uuid"]));
    assert_eq!(undercroft(["ls", path, "/"]).text(), "");
}

#[test]
fn options_are_those_of_mkfs_xfs() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new.img");
    let path = image.to_str().unwrap();
    let options =
        "-b size=2k -i size=1024,nrext64=1 -d agcount=3,su=64k,sw=2 -l size=80m -n size=8k -s size=1024";
    let uuid = format!("rmapbt=1,uuid={UUID}");
    let mut args = vec!["mkfs", "xfs", path, "--size", "1G", "-m", &uuid];
    args.extend(options.split(' '));
    let text = undercroft(args).text();
    let told = tool(&format!("mkfs.xfs -N -f -m rmapbt=1 {options} {path}"), dir.path());
    // All but the first line, which names the image.
    assert!(text.starts_with(&format!("xfs of 1 GiB on {path}, UUID {UUID}\n")), "{text}");
    for line in told.lines().skip(1).filter(|line| !line.starts_with("log")) {
        assert!(text.contains(line.trim_end()), "{line} in {text}");
    }
    is_sound(dir.path(), path);
}

#[test]
fn what_is_there_is_overwritten_with_force_only() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    undercroft(["mkfs", "ext4", path, "--size", "300M"]).succeeded();
    let before = fs::read(&image).unwrap();
    let refusal = undercroft(["mkfs", "xfs", path]).failed(8);
    assert!(refusal.contains("an ext4 filesystem") && refusal.contains("--force"), "{refusal}");
    assert!(fs::read(&image).unwrap() == before, "a refusal wrote to the image");
    for flags in [&["mkfs", "xfs", path, "-f"][..], &["mkfs", "-t", "xfs", path, "--force", "-K", "-q"]] {
        undercroft(flags).succeeded();
        is_sound(dir.path(), path);
    }
}

#[test]
fn what_cannot_be_made_is_refused_by_name_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("none.img");
    let path = image.to_str().unwrap();
    let refused = |args: &[&str], code: i32, word: &str| {
        let mut all = vec!["mkfs", "xfs", path];
        all.extend(args);
        let refusal = undercroft(all).failed(code);
        assert!(refusal.contains(word), "{word}: {refusal}");
        assert!(!image.exists(), "{args:?} left a file behind");
    };
    refused(&[], 3, "--size");
    refused(&["--size", "10Q"], 2, "no size");
    refused(&["--size", "1G", "-d", "size=1g"], 2, "twice");
    refused(&["--size", "299M"], 2, "300 MiB is not supported; `--small` makes it all the same");
    refused(&["--size", "1G", "-d", "agcount=1"], 2, "`--small` makes it all the same");
    refused(&["--size", "8M", "--small"], 2, "16 MiB at least");
    refused(&["--size", "8M"], 2, "16 MiB at least");
    refused(&["--size", "1G", "-m", "crc=0"], 2, "version 4 is not made; mkfs.xfs makes it");
    refused(&["--size", "1G", "-r", "rtdev=/dev/x"], 2, "real-time");
    refused(&["--size", "1G", "-l", "logdev=/dev/x"], 2, "external log");
    refused(&["--size", "1G", "-n", "version=ci"], 2, "case");
    refused(&["--size", "1G", "-p", "files"], 2, "prototype");
    refused(&["--size", "1G", "-b", "size=3000"], 2, "power of two");
    refused(&["--size", "1G", "-d", "stripes=4"], 2, "no such option");
    refused(&["--size", "1G", "-m", "uuid=x"], 2, "UUID");
    refused(&["--size", "1G", "-L", "thirteen byte"], 2, "12");
}

#[test]
fn a_small_one_is_made_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("small.img");
    let path = image.to_str().unwrap();
    undercroft(["mkfs", "xfs", path, "--size", "16M", "--small"]).succeeded();
    is_sound(dir.path(), path);
}

#[test]
fn a_dry_run_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("none.img");
    let path = image.to_str().unwrap();
    let text = undercroft(["mkfs", "xfs", path, "--size", "1T", "-N"]).text();
    assert!(text.contains("xfs of 1 TiB") && text.contains("blocks=131072"), "{text}");
    assert!(!image.exists());
    fs::write(&image, vec![7; 300 << 20]).unwrap();
    let report = undercroft(["mkfs", "xfs", path, "-N", "--json"]).json();
    assert_eq!(report["geometry"]["blocks"], 76_800);
    assert!(fs::read(&image).unwrap().iter().all(|&byte| byte == 7), "a dry run wrote to the image");
}

/// Of a new image in the other format, and of an array, whose chunk and stripe are followed.
#[test]
fn a_qcow2_and_an_array_get_one() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new.qcow2");
    let path = image.to_str().unwrap();
    undercroft(["mkfs", "xfs", path, "--size", "300M"]).succeeded();
    tool("qemu-img check -q new.qcow2", dir.path());
    tool("qemu-img convert -O raw new.qcow2 new.img", dir.path());
    is_sound(dir.path(), dir.path().join("new.img").to_str().unwrap());

    let members: Vec<String> =
        ["a", "b", "c"].iter().map(|name| dir.path().join(name).to_str().unwrap().to_owned()).collect();
    let mut create =
        vec!["md", "create", "-l", "5", "--chunk", "64K", "--member-size", "600M", "--assume-clean"];
    create.extend(members.iter().map(String::as_str));
    undercroft(create).succeeded();
    let array = format!("md:{}", members.join(","));
    let report = undercroft(["mkfs", "xfs", &array, "--json"]).json();
    assert_eq!((&report["geometry"]["sunit"], &report["geometry"]["swidth"]), (&16.into(), &32.into()));
    undercroft(["check", &array]).text();
}
