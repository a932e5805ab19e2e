//! The commands that the documents show, run as they stand there: by an ordinary user, without `/dev/fuse`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::support::{Run, copy_program, run, tool};

const IMAGES: &str = include_str!("../../../../docs/IMAGES.md");
const COMING_FROM: &str = include_str!("../../../../docs/COMING-FROM.md");

/// A script that makes everything that the documents' commands take for granted. `docker` is a stand-in that writes what docker
/// would.
pub(crate) const INPUTS: &str = r#"
    mkdir -p tree/etc/ssh tree/etc/systemd tree/srv/data tree/srv/www tree/var/cache/apt/archives tree/bin tree/usr
    echo here > tree/etc/hostname
    echo 'www-data:x:33:33::/var/www:/bin/false' > tree/etc/passwd
    echo 'www-data:x:33:' > tree/etc/group
    echo key > 'tree/etc/ssh/host key'
    echo page > tree/srv/www/index.html
    head -c 3000000 /dev/zero | tr '\0' x > tree/usr/large
    echo echo > tree/bin/tool
    chmod 4755 tree/bin/tool
    mkdir -p overlay/etc data more site boot/EFI/BOOT repart.d bin
    echo above > overlay/etc/motd
    cp tree/usr/large data/
    echo more > more/more
    echo page > site/index.html
    cp tree/usr/large boot/EFI/BOOT/BOOTX64.EFI
    echo 127.0.0.1 localhost > hosts
    printf '[Match]\nName=lan\n' > 10-lan.network
    tar --owner=7 --group=8 --numeric-owner -cf root.tar -C tree .
    cp root.tar rootfs.tar
    zstd -q rootfs.tar
    tar -cf site.tar site
    zstd -q site.tar
    printf "[[partition]]\nname = 'root'\nformat = 'ext4'\nsize = '64M'\nsource = ['rootfs.tar', 'overlay']\n" > disk.toml
    printf '[Partition]\nType=esp\nFormat=vfat\nSizeMinBytes=64M\nSizeMaxBytes=64M\n' > repart.d/10-esp.conf
    printf '[Partition]\nType=root\nFormat=ext4\nMakeDirectories=/var/lib\n' > repart.d/20-root.conf
    printf 'mkdir -p /srv/app\nput hosts /srv/app/\nchmod 600 /srv/app/hosts\n' > commands

    digest() { sha256sum "$1" | cut -c -64; }
    layer=$(digest root.tar)
    echo '{"architecture":"arm64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:'$layer'"]}}' > config
    config=$(digest config)
    described() { echo '{"mediaType":"'$1'","digest":"sha256:'$(digest $2)'","size":'$(stat -c %s $2)${3-}'}'; }
    type=application/vnd.oci.image
    echo '{"schemaVersion":2,"config":'$(described $type.config.v1+json config)',"layers":['$(described $type.layer.v1.tar root.tar)']}' > manifest
    tag=',"platform":{"architecture":"arm64","os":"linux"},"annotations":{"org.opencontainers.image.ref.name":"1.2"}'
    mkdir -p layout/blobs/sha256
    echo '{"schemaVersion":2,"manifests":['$(described $type.manifest.v1+json manifest $tag)']}' > layout/index.json
    echo '{"imageLayoutVersion":"1.0.0"}' > layout/oci-layout
    for blob in root.tar config manifest; do cp $blob layout/blobs/sha256/$(digest $blob); done
    mkdir -p save/$layer
    cp root.tar save/$layer/layer.tar
    cp config save/$config.json
    echo '[{"Config":"'$config'.json","RepoTags":["debian:12"],"Layers":["'$layer'/layer.tar"]}]' > save/manifest.json
    (cd save && tar -cf ../save.tar *)
    printf '#!/bin/sh\ncase $1 in export) cat rootfs.tar;; save) cat save.tar;; esac\n' > bin/docker
    chmod 755 bin/docker
"#;

/// What a section has before its first command, besides.
const BEFORE: [(&str, &str); 5] = [
    ("Edits", "undercroft mkfs ext4 disk.img --from rootfs.tar --size 64M"),
    ("Size and labels afterwards", "undercroft mkfs ext4 disk.img --from rootfs.tar --size 256M"),
    (
        "Images copied and made smaller",
        "undercroft disk create disk.qcow2 root=ext4:100M:rootfs.tar && undercroft rm -r 'disk.qcow2?part=root' /usr",
    ),
    ("debugfs", "undercroft mkfs ext4 root.img --from root.tar --size 64M"),
    (
        "guestfish, virt-copy-in and others",
        "zstd -q -d -f site.tar.zst; undercroft disk create disk.img root=ext4:100M:root.tar && cp disk.img other.img",
    ),
];

/// A section that needs a network and minutes: a test of its own runs it.
const ELSEWHERE: &str = "A disk that boots";

/// A block of code, or the commands of a table, under the last heading of the second order.
struct Piece {
    section: String,
    script: String,
}

/// The blocks of a kind, each by itself.
fn blocks(document: &str, kind: &str) -> Vec<Piece> {
    let (mut pieces, mut section, mut block) = (Vec::new(), String::new(), None::<String>);
    for line in document.lines() {
        match &mut block {
            Some(_) if line == "```" => {
                let script = block.take().unwrap();
                pieces.push(Piece { section: section.clone(), script });
            }
            Some(script) => *script += &format!("{line}\n"),
            None if line == format!("```{kind}") => block = Some(String::new()),
            None => section = line.strip_prefix("## ").map_or(section, str::to_owned),
        }
    }
    pieces
}

/// The commands in the last column of each section's table.
fn tables(document: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut section = String::new();
    for line in document.lines() {
        section = line.strip_prefix("## ").map_or(section, str::to_owned);
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
        let Some(command) = row.rsplit(" | ").next().and_then(|cell| cell.strip_suffix('`')) else {
            continue;
        };
        // A bar in a cell has a backslash in front.
        let command = command.strip_prefix('`').expect("a cell is a command").replace("\\|", "|");
        match pieces.last_mut().filter(|piece| piece.section == section) {
            Some(piece) => piece.script += &format!("{command}\n"),
            None => pieces.push(Piece { section: section.clone(), script: format!("{command}\n") }),
        }
    }
    pieces
}

/// Runs each piece in a directory of its own.
fn run_pieces(pieces: Vec<Piece>) -> usize {
    let mut commands = 0;
    for Piece { section, script } in pieces {
        if section == ELSEWHERE {
            continue;
        }
        // There is no such disk.
        let lines = script.lines().filter(|line| !line.contains("/dev/sdb1")).map(|line| {
            // Differences are told by the exit code.
            if line.starts_with("undercroft diff") {
                format!("{line} || test $? = 1\n")
            } else {
                format!("{line}\n")
            }
        });
        let script: String = lines.collect();
        commands += script.lines().filter(|line| line.contains("undercroft ")).count();
        let dir = own_directory();
        let before = BEFORE.iter().find(|(known, _)| *known == section).map_or("", |(_, before)| before);
        let whole = format!("{INPUTS}\n{before}\nset -x\n{script}");
        let done = as_ordinary_user(dir.path(), &whole, None);
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(done.code, 0, "{section}: {said}\n{}", done.stderr);
        are_sound(dir.path());
    }
    commands
}

/// A directory of the ordinary user, with the program in it.
pub(crate) fn own_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    chown(dir.path(), Some(65534), Some(65534)).unwrap();
    fs::create_dir(dir.path().join(".program")).unwrap();
    copy_program(&dir.path().join(".program/undercroft"));
    dir
}

/// Runs a script in such a directory, until its first failure: without privileges, and without the device of FUSE. `root_tar` is
/// there by this name.
pub(crate) fn as_ordinary_user(dir: &Path, script: &str, root_tar: Option<&Path>) -> Run {
    fs::write(dir.join(".script"), script).unwrap();
    let mut own = String::from("set -e; mount --bind /dev/null /dev/fuse; ");
    if let Some(tar) = root_tar.filter(|tar| *tar != dir.join("root.tar")) {
        own += &format!("touch root.tar; mount --bind {} root.tar; ", tar.display());
    }
    own += "exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -eu .script";
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &own])
        .current_dir(dir)
        .env("LC_ALL", "C")
        .env("GITHUB_SHA", "0f1e2d");
    command
        .env("HOME", dir)
        .env("TMPDIR", dir)
        .env("PATH", format!("{0}/.program:{0}/bin:{path}", dir.display()));
    run(&mut command)
}

/// Linux's own checks find nothing in what the commands have made.
fn are_sound(dir: &Path) {
    for file in fs::read_dir(dir).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        if !name.ends_with(".img") {
            continue;
        }
        match tool(&format!("blkid -o export -p {name}"), dir).lines().find_map(|line| {
            line.strip_prefix("TYPE=").or_else(|| line.strip_prefix("PTTYPE=")).map(str::to_owned)
        }) {
            Some(kind) if kind.starts_with("ext") => tool(&format!("e2fsck -fn {name}"), dir),
            Some(kind) if kind == "xfs" => tool(&format!("xfs_repair -n {name}"), dir),
            Some(kind) if kind == "gpt" => tool(&format!("sgdisk -v {name}"), dir),
            other => panic!("{name} holds {other:?}"),
        };
    }
}

#[test]
fn the_examples_of_disk_images_do_what_they_say() {
    assert!(run_pieces(blocks(IMAGES, "sh")) > 30);
}

#[test]
fn the_job_of_continuous_integration_does_what_it_says() {
    let [job] = &blocks(IMAGES, "yaml")[..] else { panic!("there is one job") };
    let (_, steps) = job.script.split_once("run: |\n").unwrap();
    let indent = steps.find(|letter| letter != ' ').unwrap();
    let script =
        steps.lines().map_while(|line| line.get(indent..).filter(|_| line.starts_with(&" ".repeat(indent))));
    let script: String = script.map(|line| format!("{line}\n")).collect();
    assert!(script.contains("make_disk again.img"), "{script}");
    assert!(run_pieces(vec![Piece { section: job.section.clone(), script }]) > 5);
}

#[test]
fn the_jobs_of_other_tools_are_done() {
    assert!(run_pieces(tables(COMING_FROM)) > 45);
}
