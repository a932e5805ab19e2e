//! Partitioned disks, as a user makes them, judged by Linux's own tools.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{Mke2fs, MountMode};

use crate::support::{PROGRAM, Run, on_terminal, run, tool, undercroft};

/// A directory with what goes into a disk: `boot`, `tree`, and `tree.tar` of it.
fn sources() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("boot/EFI/BOOT")).unwrap();
    fs::create_dir_all(path("tree/etc")).unwrap();
    fs::write(path("boot/EFI/BOOT/BOOTX64.EFI"), vec![7; 300_000]).unwrap();
    fs::write(path("boot/EFI/a name of more than eight.conf"), "title\n").unwrap();
    fs::write(path("tree/etc/hostname"), "here\n").unwrap();
    fs::write(path("tree/large"), vec![9; 5_000_000]).unwrap();
    std::os::unix::fs::symlink("hostname", path("tree/etc/link")).unwrap();
    tool("tar --owner=7 --group=8 -cf tree.tar -C tree .", dir.path());
    dir
}

/// The program, in a directory, with a fixed time.
fn within(dir: &Path, args: &str) -> Run {
    run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir).env("SOURCE_DATE_EPOCH", "1700000000"))
}

fn output_of(command: &str, dir: &Path) -> String {
    let output = Command::new("sh").args(["-c", command]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn check_gpt(image: &str, dir: &Path) {
    let verdict = output_of(&format!("sgdisk -v {image}"), dir);
    assert!(verdict.contains("No problems found"), "{verdict}");
    let verdict = output_of(&format!("sfdisk --verify {image}"), dir);
    assert!(verdict.contains("No errors detected"), "{verdict}");
}

const PARTS: &str =
    "esp=vfat:64M:boot root=ext4:100M:tree.tar data=xfs:320M:tree swap=swap:16M tar=raw:tree.tar";

#[test]
fn a_disk_of_every_kind_is_found_good_by_linuxs_tools() {
    let sources = sources();
    let dir = sources.path();
    within(dir, &format!("disk create disk.img {PARTS}")).succeeded();
    check_gpt("disk.img", dir);
    let dump = output_of("sfdisk -d disk.img", dir);
    for (name, kind) in [
        ("esp", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"),
        ("data", "0FC63DAF-8483-4772-8E79-3D69D8477DE4"),
        ("swap", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F"),
    ] {
        let line = dump.lines().find(|line| line.contains(&format!("name=\"{name}\""))).unwrap();
        assert!(line.contains(kind), "{line}");
    }
    for part in ["esp", "root", "data", "swap", "tar"] {
        within(dir, &format!("disk extract disk.img?part={part} {part}.img")).succeeded();
    }
    let found = output_of("fsck.vfat -nv esp.img && e2fsck -fn root.img && xfs_repair -n data.img 2>&1", dir);
    assert!(found.contains("esp.img: "), "{found}");
    let listed = output_of("mdir -b -/ -i esp.img ::", dir);
    assert!(listed.contains("::/EFI/a name of more than eight.conf"), "{listed}");
    output_of("mcopy -i esp.img ::EFI/BOOT/BOOTX64.EFI copy && cmp copy boot/EFI/BOOT/BOOTX64.EFI", dir);
    let swap = output_of("swaplabel swap.img; blkid -p -o value -s TYPE swap.img esp.img", dir);
    assert!(swap.contains("LABEL: swap") && swap.contains("swap\nvfat"), "{swap}");
    output_of("cmp -n $(stat -c %s tree.tar) tar.img tree.tar", dir);
    let owner = within(dir, "stat --json disk.img?part=root /etc/hostname").json();
    assert_eq!((&owner["uid"], &owner["gid"]), (&7.into(), &8.into()));
    assert_eq!(within(dir, "cat disk.img?part=data /etc/link").text(), "here\n");
}

#[test]
fn a_seed_and_a_time_make_the_same_bytes() {
    let sources = sources();
    let dir = sources.path();
    let parts = "esp=vfat:64M:boot swap=swap:16M tar=raw:tree.tar empty=ext4:20M root=ext4:20M:tree.tar \
                 dir=ext4:20M:tree data=xfs:320M:tree";
    for image in ["a.img", "b.img"] {
        within(dir, &format!("disk create -q {image} --seed one {parts}")).succeeded();
    }
    output_of("cmp a.img b.img", dir);
    within(dir, &format!("disk create -q c.img --seed two {parts}")).succeeded();
    let same = Command::new("cmp").args(["-s", "a.img", "c.img"]).current_dir(dir).status().unwrap();
    assert!(!same.success());
}

#[test]
fn an_mbr_is_found_good_and_takes_four_partitions() {
    let sources = sources();
    let dir = sources.path();
    let parts = "boot=vfat:40M:boot root=ext4:50M:tree swap=swap:8M";
    within(dir, &format!("disk create disk.img --table mbr --id 1234abcd {parts}")).succeeded();
    let verdict = output_of("sfdisk --verify disk.img; sfdisk -d disk.img", dir);
    assert!(verdict.contains("No errors detected") && verdict.contains("label-id: 0x1234abcd"), "{verdict}");
    for kind in ["type=c", "type=83", "type=82"] {
        assert!(verdict.contains(kind), "{verdict}");
    }
    within(dir, "disk resize disk.img 200M").succeeded();
    within(dir, "disk add disk.img home=ext4:20M").succeeded();
    let full = within(dir, "disk add disk.img more=ext4:20M").failed(2);
    assert!(full.contains("an MBR has four partitions"), "{full}");
    assert_eq!(within(dir, "disk list --json disk.img").json()["partitions"].as_array().unwrap().len(), 4);
}

#[test]
fn a_disk_grows_with_its_last_filesystem_and_shrinks_to_it() {
    let sources = sources();
    let dir = sources.path();
    for image in ["disk.img", "disk.qcow2"] {
        for format in ["ext4:50M:tree", "xfs:320M:tree"] {
            within(dir, &format!("disk create {image} --force swap=swap:16M root={format}")).succeeded();
            within(dir, &format!("disk resize {image} 1G --grow")).succeeded();
            within(dir, &format!("image copy {image} raw.img --force")).succeeded();
            assert_eq!(fs::metadata(dir.join("raw.img")).unwrap().len(), 1 << 30);
            check_gpt("raw.img", dir);
            within(dir, "disk extract --force raw.img?part=root root.img").succeeded();
            assert_eq!(fs::metadata(dir.join("root.img")).unwrap().len(), (1 << 30) - (18 << 20));
            let check = if format.starts_with("ext4") { "e2fsck -fn" } else { "xfs_repair -n" };
            output_of(&format!("{check} root.img 2>&1"), dir);
            assert_eq!(within(dir, &format!("cat {image}?part=root /etc/hostname")).text(), "here\n");
        }
    }
    output_of("qemu-img check disk.qcow2", dir);
    within(dir, "disk create small.img root=ext4:50M").succeeded();
    within(dir, "disk resize small.img 200M").succeeded();
    within(dir, "disk resize small.img 52M").succeeded();
    check_gpt("small.img", dir);
    let refused = within(dir, "disk resize small.img 51M").failed(2);
    assert!(refused.contains("partition 1 ends at byte 53477376"), "{refused}");
    assert_eq!(fs::metadata(dir.join("small.img")).unwrap().len(), 52 << 20);
}

#[test]
fn a_disk_that_was_made_larger_by_other_means_gets_its_backup_back() {
    let dir = tempfile::tempdir().unwrap();
    within(dir.path(), "disk create disk.img root=ext4:20M").succeeded();
    output_of("truncate -s 100M disk.img", dir.path());
    within(dir.path(), "disk resize disk.img").succeeded();
    check_gpt("disk.img", dir.path());
    within(dir.path(), "disk add disk.img home=ext4:rest").succeeded();
    check_gpt("disk.img", dir.path());
    within(dir.path(), "disk extract disk.img?part=home home.img").succeeded();
    output_of("e2fsck -fn home.img", dir.path());
}

#[test]
fn a_damaged_table_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    within(dir.path(), "disk create disk.img root=ext4:20M home=ext4:5M").succeeded();
    let image = dir.path().join("disk.img");
    let mut bytes = fs::read(&image).unwrap();
    bytes[512 + 60] ^= 1;
    fs::write(&image, &bytes).unwrap();
    for args in ["disk add disk.img more=ext4:1M", "disk resize disk.img 100M"] {
        let refused = within(dir.path(), args).failed(5);
        assert!(refused.contains("the backup was used"), "{refused}");
    }
    assert!(fs::read(&image).unwrap() == bytes);
    // Overlapping partitions, by a table that is otherwise good.
    output_of(
        "sfdisk -q --no-reread --force disk.img <<E\nlabel: gpt\nstart=2048,size=2048\nstart=8192,size=2048\nE",
        dir.path(),
    );
    let mut bytes = fs::read(&image).unwrap();
    let place = bytes.windows(8).position(|window| window == b"EFI PART").unwrap();
    assert_eq!(place, 512);
    bytes[1024 + 128 + 32..1024 + 128 + 40].copy_from_slice(&3000_u64.to_le_bytes());
    let sum = crc32(&bytes[1024..1024 + 128 * 128]);
    bytes[512 + 88..512 + 92].copy_from_slice(&sum.to_le_bytes());
    bytes[512 + 16..512 + 20].fill(0);
    let sum = crc32(&bytes[512..512 + 92]);
    bytes[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
    fs::write(&image, &bytes).unwrap();
    let refused = within(dir.path(), "disk add disk.img more=ext4:1M").failed(5);
    assert!(refused.contains("partitions 1 and 2 overlap"), "{refused}");
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, &byte| {
        (0..8).fold(
            sum ^ u32::from(byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
        )
    })
}

#[test]
fn partitions_are_named_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    within(dir.path(), "disk create disk.img root=ext4:5M twin=ext4:5M twin=ext4:5M").succeeded();
    assert_eq!(within(dir.path(), "ls disk.img?part=root").text(), "lost+found\n");
    assert_eq!(within(dir.path(), "info --json disk.img?part=root").json()["partition"], 1);
    let missing = within(dir.path(), "ls disk.img?part=toor").failed(3);
    assert!(missing.contains("has no partition \"toor\"; it has 3 partitions"), "{missing}");
    let twice = within(dir.path(), "ls disk.img?part=twin").failed(3);
    assert!(twice.contains("several partitions of the name \"twin\""), "{twice}");
    within(dir.path(), "mkfs xfs --force disk.img?part=root --small").failed(2);
    within(dir.path(), "label disk.img?part=root fresh").succeeded();
    assert_eq!(within(dir.path(), "label disk.img?part=1").text(), "fresh\n");
}

#[test]
fn definitions_of_systemd_repart_make_the_disk_that_it_makes() {
    let sources = sources();
    let dir = sources.path();
    fs::create_dir(dir.join("repart.d")).unwrap();
    for (file, text) in [
        ("10-esp.conf", "[Partition]\nType=esp\nFormat=vfat\nSizeMinBytes=64M\nSizeMaxBytes=64M\n"),
        ("20-root.conf", "[Partition]\nType=root\nFormat=ext4\nSizeMinBytes=64M\nSizeMaxBytes=128M\n"),
        ("30-swap.conf", "[Partition]\nType=swap\nLabel=paging\nSizeMinBytes=16M\nWeight=500\nFormat=swap\n"),
        ("40-home.conf", "[Partition]\nType=home\nWeight=1500\nNoAuto=yes\n"),
    ] {
        fs::write(dir.join("repart.d").join(file), text).unwrap();
    }
    within(dir, "disk create ours.img --size 1G --definitions repart.d").succeeded();
    check_gpt("ours.img", dir);
    output_of(
        "truncate -s 1G theirs.img && systemd-repart --empty=force --dry-run=no --no-pager \
         --definitions=repart.d --seed=c1b9d5a2f16211cf9ece0020afc76f16 theirs.img 2>&1",
        dir,
    );
    let parts = |image: &str| {
        let json = output_of(&format!("sfdisk --json {image}"), dir);
        let table: serde_json::Value = serde_json::from_str(&json).unwrap();
        let parts = table["partitiontable"]["partitions"].as_array().unwrap().clone();
        parts
            .iter()
            .map(|part| {
                (
                    part["type"].clone(),
                    part["name"].clone(),
                    part["attrs"].clone(),
                    part["size"].as_u64().unwrap(),
                )
            })
            .collect::<Vec<_>>()
    };
    let (ours, theirs) = (parts("ours.img"), parts("theirs.img"));
    assert_eq!(ours.len(), 4);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!((&ours.0, &ours.1, &ours.2), (&theirs.0, &theirs.1, &theirs.2));
        // Ours begin at whole MiB.
        assert!(ours.3.abs_diff(theirs.3) <= 4096, "{ours:?} {theirs:?}");
    }
}

#[test]
fn repart_copies_files_and_blocks_below_a_root() {
    let sources = sources();
    let dir = sources.path();
    fs::create_dir(dir.join("repart.d")).unwrap();
    let root = "[Partition]\nType=root\nSizeMinBytes=64M\nCopyFiles=/tree:/\nCopyFiles=/boot/EFI/BOOT:/efi\n\
                CopyFiles=/tree/etc/hostname:/usr/name\nMakeDirectories=/var/lib /etc\n";
    fs::write(dir.join("repart.d/1.conf"), root).unwrap();
    fs::write(dir.join("repart.d/2.conf"), "[Partition]\nCopyBlocks=/tree.tar\n").unwrap();
    within(dir, "disk create disk.img --definitions repart.d --root .").succeeded();
    let listed = within(dir, "ls -R disk.img?part=1 /").text();
    for name in ["BOOTX64.EFI", "hostname", "lib"] {
        assert!(listed.contains(name), "{listed}");
    }
    assert_eq!(within(dir, "cat disk.img?part=1 /usr/name").text(), "here\n");
    within(dir, "disk extract disk.img?part=2 tar.img").succeeded();
    output_of("cmp -n $(stat -c %s tree.tar) tar.img tree.tar", dir);
    fs::write(dir.join("repart.d/3.conf"), "[Partition]\nEncrypt=tpm2\n").unwrap();
    let refused = within(dir, "disk create more.img --definitions repart.d").failed(2);
    assert!(refused.contains("repart.d/3.conf: line 2: Encrypt: this is not done"), "{refused}");
}

#[test]
fn a_toml_file_says_everything() {
    let sources = sources();
    let dir = sources.path();
    let text = "table = 'gpt'\nsize = '500M'\n\
                [[partition]]\nname = 'esp'\nformat = 'vfat'\nsource = 'boot'\nlabel = 'EFI'\n\
                [[partition]]\nname = 'top'\ntype = 'root-arm64'\nformat = 'ext4'\nmin-size = '20M'\nlabel = 'rootfs'\n\
                fs-uuid = 'c1b9d5a2-f162-11cf-9ece-0020afc76f16'\nattributes = ['read-only', 'legacy-boot']\n\
                source = ['tree.tar', 'boot']\nnumber = 7\n";
    fs::write(dir.join("disk.toml"), text).unwrap();
    within(dir, "disk create disk.img --config disk.toml").succeeded();
    check_gpt("disk.img", dir);
    let list = within(dir, "disk list --json disk.img").json();
    let (esp, root) = (&list["partitions"][0], &list["partitions"][1]);
    assert_eq!((&esp["size_bytes"], &esp["holds"]["label"]), (&(34 << 20).into(), &"EFI".into()));
    assert_eq!((&root["number"], &root["type"]), (&7.into(), &"b921b045-1df0-41c3-af44-4c6f280d3fae".into()));
    assert_eq!(root["holds"]["uuid"], "c1b9d5a2-f162-11cf-9ece-0020afc76f16");
    // What is left goes to the one that may grow.
    assert_eq!(root["size_bytes"], (500 - 36) << 20);
    assert!(root["bootable"].as_bool().unwrap());
    assert_eq!(within(dir, "cat disk.img?part=top /etc/hostname").text(), "here\n");
    assert_eq!(within(dir, "cat disk.img?part=top /EFI/a*").code, 7);
    fs::write(dir.join("disk.toml"), "tabel = 1\n").unwrap();
    let refused = within(dir, "disk create more.img --config disk.toml").failed(2);
    assert!(refused.contains("disk.toml: line 1: unknown field"), "{refused}");
}

#[test]
fn what_cannot_be_made_leaves_nothing_behind() {
    let sources = sources();
    let dir = sources.path();
    let before = || {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let names = before();
    for (args, code, words) in [
        ("disk create disk.img root=ext4:4M:tree", 8, "make the partition larger"),
        ("disk create disk.img root=ext4:rest", 2, "`--size 10G`"),
        ("disk create disk.img --size 50M root=ext4:100M", 2, "bytes more than there are"),
        ("disk create disk.img root=ext4:4M:none", 8, "none: No such file"),
        ("disk create disk.img esp=vfat:4M:tree", 8, "symbolic links"),
        ("disk create disk.img a=none:1M b=none:1M --table gpt --id xyz", 2, "no UUID"),
        ("disk create disk.img a=raw:tree.tar:x", 8, "tree.tar:x: No such file"),
        ("disk create disk.img", 2, "has no partitions"),
        ("disk create disk.vdi a=none:1M", 4, "images of the format vdi"),
        ("disk create disk.img a=vfat:1M --sector-size 4096", 4, "sectors of 512"),
        ("disk create disk.img a=ext3:min:tree", 4, "least sizes are found for"),
        ("disk create disk.img a=none:1M --sector-size 1024", 2, "512 or 4096"),
        ("disk create disk.img a=none:1M --table mbr --sector-size 4096", 4, "an MBR in a file"),
        ("image copy tree.tar disk.img?part=2", 3, "disk.img"),
        ("image copy tree.tar x.img?sb=8", 2, "no name for a copy"),
        ("image copy tree.tar - --format qcow2", 2, "takes a raw one"),
        ("image copy tree.tar - --json", 2, "leave `--json` off"),
        ("disk create tree.tar a=none:1M", 8, "`--force` replaces it"),
        ("disk list tree.tar", 4, "no partition table"),
        ("image copy tree.tar boot", 8, "there already"),
        ("image copy tree.tar tree.tar --force", 2, "copied to itself"),
        ("disk extract tree.tar x.img", 2, "names no partition"),
    ] {
        let refused = within(dir, args).failed(code);
        assert!(refused.contains(words), "{args}: {refused}");
        assert_eq!(before(), names, "{args}");
    }
}

#[test]
fn compacting_gives_back_what_was_deleted() {
    let sources = sources();
    let dir = sources.path();
    for image in ["disk.img", "disk.qcow2"] {
        within(
            dir,
            &format!("disk create {image} root=ext4:60M:tree.tar data=xfs:320M:tree gone=raw:tree.tar"),
        )
        .succeeded();
        if image == "disk.qcow2" {
            output_of("qemu-img convert -O raw disk.qcow2 plain.img", dir);
        } else {
            output_of("cp --sparse=always disk.img plain.img", dir);
        }
        // The files go, and one partition, whose bytes stay.
        let gone = within(dir, "disk list --json plain.img").json()["partitions"][2]["start_bytes"].as_u64();
        output_of("sgdisk -d 3 plain.img", dir);
        for (name, make) in [("root", "mkfs.ext4 -qF -E nodiscard"), ("data", "mkfs.xfs -qfK")] {
            within(dir, &format!("disk extract --force plain.img?part={name} part.img")).succeeded();
            output_of(&format!("{make} part.img 2>&1"), dir);
            let list = within(dir, "disk list --json plain.img").json();
            let part =
                list["partitions"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap();
            let seek = part["start_bytes"].as_u64().unwrap() >> 20;
            // Blocks of zeroes are written too, where there were others.
            output_of(
                &format!("dd if=part.img of=plain.img bs=1M seek={seek} conv=notrunc status=none"),
                dir,
            );
        }
        let target = if image == "disk.qcow2" {
            output_of("qemu-img convert -O qcow2 -S 0 plain.img disk.qcow2", dir);
            "disk.qcow2"
        } else {
            "plain.img"
        };
        let report = within(dir, &format!("compact --json {target}")).json();
        let (now, before) =
            (report["allocated_bytes"].as_u64().unwrap(), report["allocated_bytes_before"].as_u64().unwrap());
        assert!(now + (9 << 20) < before, "{report}");
        assert_eq!(fs::metadata(dir.join(target)).unwrap().blocks() * 512, now);
        within(dir, &format!("image copy --force {target} after.img")).succeeded();
        check_gpt("after.img", dir);
        output_of(&format!("cmp -n $(stat -c %s tree.tar) after.img tree.tar {} 0", gone.unwrap()), dir);
        for (name, check) in [("root", "e2fsck -fn"), ("data", "xfs_repair -n")] {
            within(dir, &format!("disk extract --force after.img?part={name} part.img")).succeeded();
            output_of(&format!("{check} part.img 2>&1"), dir);
        }
    }
}

#[test]
fn what_has_no_certain_owner_is_not_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let refused = |code, words: &str| {
        let before = fs::read(dir.join("disk.img")).unwrap();
        let refused = within(dir, "compact disk.img").failed(code);
        assert!(refused.contains(words), "{refused}");
        assert!(fs::read(dir.join("disk.img")).unwrap() == before);
    };
    // A filesystem below the partitions.
    output_of(
        "truncate -s 64M disk.img && mkfs.ext4 -qF disk.img && echo 2048,8192 | sfdisk -q -w never disk.img",
        dir,
    );
    refused(4, "both partitions and a filesystem");
    // A mirror's half with its metadata at the end.
    within(dir, "disk create --force disk.img root=ext4:20M other=ext4:20M").succeeded();
    let mut bytes = fs::read(dir.join("disk.img")).unwrap();
    let (start, len) = (1 << 20, 20 << 20);
    let at = start + len - (8 << 10);
    let mut superblock = vec![0_u8; 256];
    superblock[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    superblock[4] = 1;
    superblock[144..152].copy_from_slice(&((len as u64 - (8 << 10)) / 512).to_le_bytes());
    bytes[at..at + 256].copy_from_slice(&superblock);
    fs::write(dir.join("disk.img"), &bytes).unwrap();
    refused(4, "a member of an md array");
    // Partitions that overlap.
    within(dir, "disk create --force disk.img --table mbr root=ext4:20M other=ext4:20M").succeeded();
    let mut bytes = fs::read(dir.join("disk.img")).unwrap();
    bytes[446 + 16 + 8..446 + 16 + 12].copy_from_slice(&4096_u32.to_le_bytes());
    fs::write(dir.join("disk.img"), &bytes).unwrap();
    refused(5, "partitions 1 and 2 overlap");
}

#[test]
fn a_qcow2_image_that_would_not_become_smaller_stays() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create disk.img root=ext4:30M:tree").succeeded();
    output_of("qemu-img convert -c -O qcow2 disk.img disk.qcow2 && cp disk.qcow2 before", dir);
    let report = within(dir, "compact --json disk.qcow2").json();
    assert_eq!(report["kept"], true, "{report}");
    output_of(
        "qemu-img check disk.qcow2 && qemu-img convert -O raw disk.qcow2 raw.img && e2fsck -fn 'raw.img?offset=1048576'",
        dir,
    );
    let names = output_of("ls -A", dir);
    assert!(!names.contains(".disk.qcow2"), "{names}");
}

#[test]
fn least_sizes_hold_the_files() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create disk.img root=ext4:min:tree.tar data=xfs:min:tree").succeeded();
    let list = within(dir, "disk list --json disk.img").json();
    for (index, name, check, most) in
        [(0, "root", "e2fsck -fn", 12 << 20), (1, "data", "xfs_repair -n", 302 << 20)]
    {
        let size = list["partitions"][index]["size_bytes"].as_u64().unwrap();
        assert!(size <= most, "{name} {size}");
        within(dir, &format!("disk extract disk.img?part={name} {name}.img")).succeeded();
        output_of(&format!("{check} {name}.img 2>&1"), dir);
        assert_eq!(within(dir, &format!("cat disk.img?part={name} /etc/hostname")).text(), "here\n");
    }
}

#[test]
fn a_disk_is_copied_whole_into_a_partition() {
    let dir = tempfile::tempdir().unwrap();
    within(dir.path(), "disk create inner.img root=ext4:5M").succeeded();
    within(dir.path(), "disk create disk.img all=raw:inner.img one=raw:inner.img?part=1").succeeded();
    within(dir.path(), "disk extract disk.img?part=all all.img").succeeded();
    output_of("cmp all.img inner.img", dir.path());
    let list = within(dir.path(), "disk list --json disk.img").json();
    assert_eq!(list["partitions"][1]["size_bytes"], 5 << 20);
}

#[test]
fn old_content_does_not_show_through_in_a_new_partition() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create disk.img root=xfs:320M").succeeded();
    for part in ["a=none:320M", "a=raw:320M:tree.tar", "a=swap:320M"] {
        output_of(
            "sgdisk -d 1 disk.img && dd if=/dev/urandom of=disk.img bs=1M seek=200 count=1 conv=notrunc",
            dir,
        );
        within(dir, &format!("disk add disk.img {part}")).succeeded();
        within(dir, "disk extract --force disk.img?part=1 part.img").succeeded();
        let found = output_of("blkid -p -o value -s TYPE part.img || true", dir);
        assert!(["", "swap\n"].contains(&&*found), "{part}: {found}");
        if part.contains("raw") {
            output_of("truncate -s 320M tree.tar && cmp part.img tree.tar", dir);
        }
        within(dir, "disk create --force disk.img root=xfs:320M").succeeded();
    }
}

#[test]
fn a_replaced_image_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    within(dir.path(), "disk create disk.img a=none:1M").succeeded();
    let mode = || output_of("stat -c %a disk.img", dir.path());
    let usual = output_of("touch new && stat -c %a new", dir.path());
    assert_eq!(mode(), usual);
    output_of("chmod 640 disk.img", dir.path());
    within(dir.path(), "disk create --force disk.img a=none:1M").succeeded();
    assert_eq!(mode(), "640\n");
}

#[test]
fn growing_goes_on_where_it_was_stopped() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create disk.img root=ext4:20M:tree").succeeded();
    // The table has been written, and the filesystem has not grown.
    output_of("truncate -s 100M disk.img && sgdisk -e -d 1 -n 1:2048:+90M -c 1:root disk.img", dir);
    within(dir, "disk resize disk.img 100M --grow").succeeded();
    within(dir, "disk extract disk.img?part=root root.img").succeeded();
    output_of("e2fsck -fn root.img", dir);
    let info = output_of("dumpe2fs -h root.img 2>&1", dir);
    let blocks = info.lines().find_map(|line| line.strip_prefix("Block count:")).unwrap();
    assert!(blocks.trim().parse::<u64>().unwrap() > 20_000, "{blocks}");
}

#[test]
fn a_qcow2_image_with_snapshots_is_not_compacted() {
    let dir = tempfile::tempdir().unwrap();
    within(dir.path(), "disk create disk.qcow2 root=ext4:20M").succeeded();
    output_of("qemu-img snapshot -c before disk.qcow2", dir.path());
    let refused = within(dir.path(), "compact disk.qcow2").failed(4);
    assert!(refused.contains("has snapshots, which would be lost"), "{refused}");
    output_of("qemu-img snapshot -d before disk.qcow2 && qemu-img bitmap --add disk.qcow2 b", dir.path());
    let refused = within(dir.path(), "compact disk.qcow2").failed(4);
    assert!(refused.contains("bitmaps"), "{refused}");
}

#[test]
fn the_same_arguments_give_the_same_qcow2_image() {
    let sources = sources();
    let dir = sources.path();
    let made = |name: &str| {
        within(dir, &format!("mkfs ext4 --no-conf --seed s --size 64M {name}.qcow2")).succeeded();
        within(dir, &format!("mkfs xfs --seed s --from tree {name}-x.qcow2")).succeeded();
        within(dir, &format!("disk create --seed s {name}-d.qcow2 root=ext4:20M:tree.tar")).succeeded();
        within(dir, &format!("image copy {name}.qcow2 {name}-c.qcow2")).succeeded();
    };
    for name in ["a", "b", "c"] {
        made(name);
    }
    for kind in ["", "-x", "-d", "-c"] {
        output_of(
            &format!(
                "cmp a{kind}.qcow2 b{kind}.qcow2 && cmp a{kind}.qcow2 c{kind}.qcow2 && qemu-img check a{kind}.qcow2"
            ),
            dir,
        );
    }
}

#[test]
fn a_partition_is_copied_onto_another_of_its_disk() {
    let sources = sources();
    let dir = sources.path();
    output_of("cp tree.tar more.tar && truncate -s +300K more.tar && printf end >> more.tar", dir);
    for image in ["disk.img", "disk.qcow2"] {
        let create = format!(
            "disk create -q {image} one=raw:6M:more.tar two=ext4:8M tree=ext4:20M:tree.tar small=none:1M"
        );
        within(dir, &create).succeeded();
        output_of(&format!("ln {image} other-{image}"), dir);
        let before: Vec<String> = ["one", "tree"].map(|part| part_sum(dir, image, part)).into();
        let copy = |args: &str| within(dir, &format!("image copy {args}"));
        let refused = copy(&format!("{image}?part=one {image}?part=two")).failed(8);
        assert!(refused.contains("ext4") && refused.contains("`--force` overwrites it"), "{refused}");
        let refused = copy(&format!("{image}?part=one {image}?part=small --force")).failed(3);
        assert!(refused.contains("has 1048576 bytes, too few for 6291456"), "{refused}");
        let refused = copy(&format!("{image}?part=one {image}?part=9 --force")).failed(3);
        assert!(refused.contains("has no partition 9; it has "), "{refused}");
        copy(&format!("{image}?part=one other-{image}?part=two --force")).succeeded();
        within(dir, &format!("disk extract --force {image}?part=two part.img")).succeeded();
        output_of("cmp -n $(stat -c %s more.tar) part.img more.tar", dir);
        let after: Vec<String> = ["one", "tree"].map(|part| part_sum(dir, image, part)).into();
        assert_eq!(after, before);
        output_of(&format!("rm other-{image}"), dir);
    }
    check_gpt("disk.img", dir);
    output_of("qemu-img check disk.qcow2", dir);
}

/// The file that an overlay names is needed to find the target by its name, too.
#[test]
fn partitions_of_an_overlay_are_copied_by_their_names() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create -q base.qcow2 one=raw:6M:tree.tar two=none:8M").succeeded();
    output_of("qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 over.qcow2", dir);
    let base = output_of("sha256sum base.qcow2", dir);
    let refused = within(dir, "image copy over.qcow2?part=one over.qcow2?part=two").failed(3);
    assert!(refused.contains("base.qcow2"), "{refused}");
    for (part, more) in [("two", ""), ("2", " --force")] {
        let copy = format!("image copy --allow-backing over.qcow2?part=one over.qcow2?part={part}{more}");
        within(dir, &copy).succeeded();
    }
    within(dir, "disk extract --allow-backing over.qcow2?part=two part.img").succeeded();
    output_of("cmp -n $(stat -c %s tree.tar) part.img tree.tar", dir);
    assert_eq!(output_of("sha256sum base.qcow2", dir), base);
    // It is allowed for the disk that is copied from, and for no other.
    output_of("qemu-img create -q -f qcow2 -b base.qcow2 -F qcow2 other.qcow2", dir);
    let other = "image copy --allow-backing over.qcow2?part=one other.qcow2?part=two --force";
    assert!(within(dir, other).failed(3).contains("base.qcow2"));
}

/// The missing end is found before anything is lost to a part of a copy.
#[test]
fn what_is_cut_short_is_not_copied_over_a_partition() {
    let sources = sources();
    let dir = sources.path();
    for disk in ["cut.img", "disk.img"] {
        within(dir, &format!("disk create -q {disk} one=ext4:20M two=raw:6M:tree.tar")).succeeded();
    }
    output_of("truncate -s 24M cut.img", dir);
    let before = output_of("sha256sum cut.img disk.img", dir);
    for to in ["disk.img?part=1", "cut.img?part=1"] {
        let refused = within(dir, &format!("image copy cut.img?part=2 {to} --force"));
        assert_eq!(refused.code, 6, "{}", refused.stderr);
        let words = format!("cannot read the end of cut.img?part=2, so nothing is written to {to}");
        assert!(refused.stderr.contains(&words), "{}", refused.stderr);
        assert!(refused.stderr.contains("cut short and ends at byte 25165824"), "{}", refused.stderr);
        assert_eq!(output_of("sha256sum cut.img disk.img", dir), before);
    }
}

/// A member of version 1.0 begins with the front of what the array holds, and is whole.
#[test]
fn a_member_of_an_array_is_copied_onto_a_partition() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    within(dir, "md create -l 5 -e 1.0 -n 3 --member-size 20M a.img b.img c.img").succeeded();
    within(dir, "mkfs ext4 -q md:a.img,b.img,c.img").succeeded();
    within(dir, "disk create -q disk.img one=none:24M").succeeded();
    within(dir, "image copy a.img disk.img?part=1").succeeded();
    within(dir, "disk extract disk.img?part=1 part.img").succeeded();
    output_of("cmp -n $(stat -c %s a.img) a.img part.img", dir);
}

/// As large as the filesystem on it was.
#[test]
fn a_filesystem_that_is_cut_short_is_not_copied_over_a_partition() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create -q disk.img one=ext4:24M two=raw:6M:tree.tar").succeeded();
    let before = output_of("sha256sum disk.img", dir);
    for make in ["mkfs ext4 -q cut.img --size 20M", "mkfs xfs -q cut.img --size 300M"] {
        within(dir, make).succeeded();
        output_of("truncate -s 10M cut.img", dir);
        let refused = within(dir, "image copy cut.img disk.img?part=1 --force");
        assert_eq!(refused.code, 6, "{}", refused.stderr);
        assert!(refused.stderr.contains("cut.img is cut short, of "), "{}", refused.stderr);
        assert_eq!(output_of("sha256sum disk.img", dir), before);
        within(dir, "image copy cut.img there.img").succeeded();
        output_of("cmp cut.img there.img && rm cut.img there.img", dir);
    }
}

/// Its first sectors are the chain of the logical partitions.
#[test]
fn an_extended_partition_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    output_of(
        "truncate -s 64M disk.img && printf 'start=2048, size=40000, type=5\nstart=45056, size=2048, type=83\n\
         start=4096, size=4096, type=83\n' | sfdisk -q --label dos disk.img && truncate -s 1M small.img",
        dir,
    );
    let before = output_of("sha256sum disk.img", dir);
    for args in [
        "image copy disk.img?part=2 disk.img?part=1 --force",
        "image copy small.img disk.img?part=1 --force",
        "mkfs ext4 --force disk.img?part=1",
        "md create --force -l 1 -n 2 small.img disk.img?part=1",
    ] {
        let refused = within(dir, args).failed(2);
        assert!(
            refused.contains("disk.img?part=1 is an extended partition, which logical partitions lie in"),
            "{args}: {refused}"
        );
        assert_eq!(output_of("sha256sum disk.img", dir), before);
    }
    within(dir, "image copy disk.img?part=2 disk.img?part=5").succeeded();
    output_of("sfdisk -q --delete disk.img 5", dir);
    let refused = within(dir, "mkfs ext4 --force disk.img?part=1").failed(2);
    assert!(refused.contains("it has none yet"), "{refused}");
}

/// The message names the image that the hint belongs to, and says why it cannot have it.
#[test]
fn hints_for_reading_are_refused_where_the_disk_is_written() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create -q disk.img one=raw:6M:tree.tar two=none:8M").succeeded();
    for (hint, words) in [
        ("&gpt=backup", "disk.img is copied from and written to, and `?gpt=backup` is for reading alone"),
        ("&sb=8193", "disk.img is copied from as it is, and `?sb=` is for reading a filesystem"),
    ] {
        let refused = within(dir, &format!("image copy disk.img?part=1{hint} disk.img?part=2")).failed(2);
        assert!(refused.contains(words), "{refused}");
        let refused = within(dir, &format!("image copy disk.img?part=1 disk.img?part=2{hint}")).failed(2);
        assert!(refused.contains("is to be written, and `?"), "{refused}");
    }
}

fn part_sum(dir: &Path, image: &str, part: &str) -> String {
    within(dir, &format!("disk extract --force {image}?part={part} part.img")).succeeded();
    output_of("sha256sum part.img", dir)
}

#[test]
fn nothing_is_copied_to_itself_under_any_name() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create disk.img one=raw:6M:tree.tar two=none:8M").succeeded();
    output_of("ln disk.img hard.img && ln -s disk.img soft.img && ln -s nothing gone.img", dir);
    let before = output_of("sha256sum disk.img && ls", dir);
    for (args, words) in [
        ("image copy disk.img soft.img --force", "soft.img is copied to itself; copy it to another file"),
        ("image copy disk.img hard.img --force", "hard.img is copied to itself"),
        ("image copy soft.img disk.img --force", "disk.img is copied to itself"),
        ("disk extract disk.img?part=1 hard.img --force", "hard.img is the disk that is copied from"),
        ("image copy disk.img?part=1 disk.img?part=1 --force", "disk.img?part=1 is copied to itself"),
        ("image copy soft.img?part=one hard.img?part=1 --force", "hard.img?part=1 is copied to itself"),
        ("image copy disk.img hard.img?part=2 --force", "is the disk that is copied from"),
    ] {
        let refused = within(dir, args).failed(2);
        assert!(refused.contains(words), "{args}: {refused}");
    }
    output_of(
        "truncate -s 32M logical.img && printf 'start=2048, size=40000, type=5\\nstart=4096, size=4096, type=83\\n' | \
         sfdisk -q --label dos logical.img",
        dir,
    );
    for args in ["logical.img?part=5 logical.img?part=1", "logical.img?part=1 logical.img?part=5"] {
        let refused = within(dir, &format!("image copy {args} --force")).failed(2);
        assert!(refused.contains(&format!("{} overlap", args.replace(' ', " and "))), "{refused}");
    }
    output_of("rm logical.img", dir);
    for args in ["image copy tree.tar gone.img", "disk create gone.img a=none:1M"] {
        let refused = within(dir, args).failed(3);
        assert!(refused.contains("gone.img is a symbolic link to nothing, which is not there"), "{refused}");
    }
    assert_eq!(output_of("sha256sum disk.img && ls", dir), before);
}

#[test]
fn a_partition_is_copied_onto() {
    let sources = sources();
    let dir = sources.path();
    for disk in ["disk.img", "disk.qcow2"] {
        within(dir, &format!("disk create {disk} esp=vfat:40M:boot root=ext4:30M data=none:4M")).succeeded();
        within(dir, "mkfs ext4 --no-conf -q --force --size 20M root.img").succeeded();
        let refused = within(dir, &format!("image copy root.img {disk}?part=root")).failed(8);
        assert!(refused.contains("`--force` overwrites it"), "{refused}");
        let copied = within(dir, &format!("image copy root.img {disk}?part=root --force")).text();
        assert!(copied.starts_with(&format!("{disk}?part=2: 20 MiB")), "{copied}");
        let refused = within(dir, &format!("image copy root.img {disk}?part=data")).failed(3);
        assert!(refused.contains(&format!("{disk}?part=3 has 4194304 bytes, too few")), "{refused}");
        within(dir, &format!("disk extract {disk}?part=2 back.img --force")).succeeded();
        output_of("truncate -s 20M back.img && cmp root.img back.img && e2fsck -fn back.img", dir);
        assert!(within(dir, &format!("disk list {disk}")).text().contains("esp"));
    }
    check_gpt("disk.img", dir);
}

#[test]
fn an_image_is_copied_to_standard_output() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create disk.qcow2 esp=vfat:40M:boot root=ext4:30M:tree").succeeded();
    output_of("qemu-img convert -O raw disk.qcow2 raw.img", dir);
    output_of(&format!("{PROGRAM} image copy disk.qcow2 - | cmp - raw.img"), dir);
    output_of(&format!("{PROGRAM} image copy raw.img - | cmp - raw.img"), dir);
    within(dir, "disk extract raw.img?part=2 root.img").succeeded();
    output_of(
        &format!("{PROGRAM} disk extract 'disk.qcow2?part=root' - > piped.img && cmp piped.img root.img"),
        dir,
    );
    assert!(!dir.join("-").exists());
    for args in ["image copy raw.img -", "disk create - root=ext4:20M"] {
        let run = run(on_terminal(&format!("{PROGRAM} {args}")).current_dir(dir));
        let shown = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.code == 2 && shown.contains("an image is not for a terminal"), "{shown:.300}");
    }
}

/// ext4 with blocks of 1 KiB has no file of 4 TiB.
#[test]
fn a_copy_that_is_too_large_for_its_place_is_told() {
    let dir = tempfile::tempdir().unwrap();
    output_of("qemu-img create -q -f qcow2 large.qcow2 20T", dir.path());
    let image = Mke2fs::new("ext4", 32).block_bytes(1024).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let copy = mount.path().join("copy.img");
    let args = format!("image copy large.qcow2 {}", copy.display());
    let refused = within(dir.path(), &args).failed(8);
    assert!(
        refused.contains(&format!("cannot make {} 21990232555520 bytes large", copy.display())),
        "{refused}"
    );
    assert!(refused.contains("its filesystem takes no file of this size"), "{refused}");
    assert!(!copy.exists());
    mount.unmount().unwrap();
}

#[test]
fn images_are_copied_with_their_holes() {
    let sources = sources();
    let dir = sources.path();
    within(dir, "disk create disk.img root=ext4:1G:tree.tar").succeeded();
    within(dir, "image copy disk.img disk.qcow2").succeeded();
    output_of("qemu-img check disk.qcow2 && qemu-img compare disk.img disk.qcow2", dir);
    within(dir, "image copy disk.qcow2 back.img").succeeded();
    output_of("cmp disk.img back.img", dir);
    let taken = |name: &str| fs::metadata(dir.join(name)).unwrap().blocks() * 512;
    assert!(
        taken("back.img") <= taken("disk.img") + (1 << 20),
        "{} {}",
        taken("back.img"),
        taken("disk.img")
    );
    let stdout = output_of(&format!("{PROGRAM} disk create - --seed s root=ext4:20M:tree.tar | wc -c"), dir);
    assert_eq!(stdout.trim(), (22 << 20).to_string());
    for (how, tool) in [("gzip", "gzip"), ("zstd", "zstd"), ("xz", "xz")] {
        let sum = |pipe: &str| output_of(&format!("{PROGRAM} disk create - {pipe} | sha256sum"), dir);
        let plain = sum("--seed s swap=swap:20M tar=raw:tree.tar");
        assert_eq!(
            sum(&format!("--compress {how} --seed s swap=swap:20M tar=raw:tree.tar | {tool} -dc")),
            plain
        );
    }
    let copied = undercroft([
        "image",
        "copy",
        "--json",
        dir.join("disk.img").to_str().unwrap(),
        dir.join("c.img").to_str().unwrap(),
    ]);
    let report = copied.json();
    assert_eq!(report["size_bytes"], 1026 << 20);
    assert!(report["read_bytes"].as_u64().unwrap() < 40 << 20, "{report}");
}

/// A source is what it is for `mkfs --from`, and the disk is no part of itself.
#[test]
fn sources_may_be_compressed_and_do_not_have_the_disk_in_them() {
    let dir = sources();
    tool("tar -czf root.tar.gz tree", dir.path());
    within(dir.path(), "disk create packed.img root=ext4:100M:root.tar.gz -q").succeeded();
    assert!(within(dir.path(), "tree packed.img?part=root /").text().contains("tree"));
    within(dir.path(), "disk create own.img root=ext4:100M:. -q").succeeded();
    within(dir.path(), "disk resize own.img 300M").succeeded();
    within(dir.path(), "disk add own.img more=ext4:100M:.").succeeded();
    let refused = within(dir.path(), "disk create piped.img root=ext4::-").failed(2);
    assert!(refused.contains("can be read only once"), "{refused}");
    let refused = within(dir.path(), "disk create empty.img root=ext4:100M:/dev/null").failed(5);
    assert!(refused.contains("the archive is empty"), "{refused}");
    for part in ["root", "more"] {
        let names = within(dir.path(), &format!("ls -a own.img?part={part} /")).text();
        assert!(names.contains("packed.img") && !names.contains("own.img"), "{names}");
    }
}

#[test]
fn a_full_disk_is_told_by_its_directory() {
    let sources = sources();
    let script = r#"
        mkdir full && mount -t tmpfs -o size=64K tmpfs full
        TMPDIR=full "$UNDERCROFT" disk create disk.img root=ext4:min:tree && exit 1
        TMPDIR=full "$UNDERCROFT" disk create disk.img root=xfs:min:tree && exit 1
        cd full && "$UNDERCROFT" mkfs ext4 a.img --from ../tree && exit 1
        ls -A
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", script]).current_dir(sources.path()).env("UNDERCROFT", PROGRAM);
    let told = run(&mut command);
    assert_eq!((told.code, &told.stdout[..]), (0, &b""[..]), "{}", told.stderr);
    let lines: Vec<_> = told.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{}", told.stderr);
    for (line, part) in lines.iter().zip(["partition \"root\": ", "partition \"root\": ", ""]) {
        let (directory, advice) = match part {
            "" => (".", "make room there, or give the image's `--size`"),
            _ => ("full", "set TMPDIR to a directory with more room"),
        };
        assert!(
            line.contains(part) && line.contains(&format!("the scratch file in {directory} failed")),
            "{line}"
        );
        assert!(line.ends_with(&format!("No space left on device; {advice}")), "{line}");
    }
    assert!(!sources.path().join("disk.img").exists());
}
