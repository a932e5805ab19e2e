//! Filesystems that we tune: dumpe2fs shows what it shows of a twin that tune2fs tuned, e2fsck finds nothing, and the kernel
//! mounts them with every file as it was.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::{
    CheckOptions, HashAlgorithm, MountDefault, OnError, OpenOptions, Reserved, Tuning, check, tune,
};
use undercroft_oracle::{Differences, Image, Manifest, Mke2fs, MountMode, Tool, kernel_manifest};
use undercroft_vfs::{Error, Result};

fn device(path: &Path) -> Device {
    Arc::new(FileDevice::open(path, FileOptions::read_write()).unwrap())
}

fn tuned(image: &Image, tuning: &Tuning) -> Result<()> {
    tune(&device(image.path()), OpenOptions::default(), tuning)
}

/// What dumpe2fs shows of the superblock, but for times, what is random, and what each program counts by itself.
fn facts(image: &Path) -> BTreeMap<String, String> {
    const LEFT_OUT: [&str; 10] = [
        // Those that its last writer used.
        "Journal features",
        "Last mount time",
        "Last write time",
        "Last checked",
        "Next check after",
        "Lifetime writes",
        "Directory Hash Seed",
        "Checksum",
        "Journal checksum",
        "Journal sequence",
    ];
    let dump = Tool::new("dumpe2fs").arg("-h").arg(image).run_text().unwrap();
    dump.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| !LEFT_OUT.contains(name))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn assert_sound(image: &Image, what: &str) {
    image.check().unwrap_or_else(|error| panic!("{what}: {error}"));
    let report = check(device(image.path()), &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
}

fn filled(mke2fs: &Mke2fs) -> Image {
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    for number in 0..300_u32 {
        std::fs::write(mount.path().join(format!("file {number}")), vec![number as u8; number as usize * 37])
            .unwrap();
    }
    mount.unmount().unwrap();
    image
}

fn tree(image: &Image) -> Manifest {
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    let tree = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    Manifest { space: None, ..tree }
}

fn kib(features: &str) -> Mke2fs {
    let mke2fs = Mke2fs::new("ext4", 40).block_bytes(1024);
    if features.is_empty() { mke2fs } else { mke2fs.features(features) }
}

#[test]
fn fields_are_what_tune2fs_makes_them() {
    let named = |name| MountDefault::by_name(name).unwrap();
    let features = |list: &str| Tuning { features: list.into(), ..Tuning::default() };
    let cases: Vec<(&str, &[&str], Tuning)> = vec![
        ("", &["-m", "1.5"], Tuning { reserved: Some(Reserved::Percent(1.5)), ..Tuning::default() }),
        ("", &["-r", "700"], Tuning { reserved: Some(Reserved::Blocks(700)), ..Tuning::default() }),
        (
            "",
            &["-u", "7", "-g", "8"],
            Tuning { reserved_user: Some(7), reserved_group: Some(8), ..Tuning::default() },
        ),
        ("", &["-e", "remount-ro"], Tuning { on_error: Some(OnError::RemountReadOnly), ..Tuning::default() }),
        ("", &["-e", "panic"], Tuning { on_error: Some(OnError::Panic), ..Tuning::default() }),
        (
            "",
            &["-c", "20", "-C", "3"],
            Tuning { mounts_most: Some(20), mounts: Some(3), ..Tuning::default() },
        ),
        ("", &["-c", "-1"], Tuning { mounts_most: Some(0), ..Tuning::default() }),
        ("", &["-i", "2w"], Tuning { check_interval_s: Some(2 * 7 * 86_400), ..Tuning::default() }),
        (
            "",
            &["-o", "^acl,debug,journal_data_writeback,nodelalloc"],
            Tuning {
                mount_defaults: vec![
                    (named("acl"), false),
                    (named("debug"), true),
                    (named("journal_data_writeback"), true),
                    (named("nodelalloc"), true),
                ],
                ..Tuning::default()
            },
        ),
        (
            "",
            &["-E", "stride=16,stripe_width=64"],
            Tuning { stride: Some(16), stripe_width: Some(64), ..Tuning::default() },
        ),
        (
            "",
            &["-E", "hash_alg=tea"],
            Tuning { hash_algorithm: Some(HashAlgorithm::Tea), ..Tuning::default() },
        ),
        (
            "",
            &["-E", "mount_opts=discard"],
            Tuning { mount_options: Some(b"discard".to_vec()), ..Tuning::default() },
        ),
        ("^dir_index", &["-O", "dir_index"], features("dir_index")),
        ("", &["-O", "metadata_csum_seed,large_dir"], features("metadata_csum_seed,large_dir")),
        ("^huge_file,^dir_nlink", &["-O", "huge_file,dir_nlink"], features("huge_file,dir_nlink")),
    ];
    for (made_with, args, tuning) in cases {
        let ours = filled(&kib(made_with));
        let theirs = ours.copy().unwrap();
        Tool::new("tune2fs").args(args).arg(theirs.path()).run().unwrap();
        tuned(&ours, &tuning).unwrap_or_else(|error| panic!("{args:?}: {error}"));
        assert_eq!(facts(ours.path()), facts(theirs.path()), "{args:?}");
        let before = tree(&theirs);
        assert_sound(&ours, &format!("{args:?}"));
        Differences::between(&before, &tree(&ours)).assert_none(&format!("{args:?}"));
    }
}

#[test]
fn a_journal_is_added_and_removed() {
    for features in
        ["^has_journal", "^has_journal,^metadata_csum,^extent,^64bit", "^has_journal,meta_bg,^resize_inode"]
    {
        let image = filled(&kib(features));
        let before = tree(&image);
        let theirs = image.copy().unwrap();
        Tool::new("tune2fs").args(["-O", "has_journal"]).arg(theirs.path()).run().unwrap();
        tuned(&image, &Tuning { features: "has_journal".into(), ..Tuning::default() }).unwrap();
        assert_sound(&image, features);
        let (ours_now, theirs_now) = (facts(image.path()), facts(theirs.path()));
        for fact in [
            "Filesystem features",
            "Journal inode",
            "Total journal size",
            "Total journal blocks",
            "Free inodes",
        ] {
            assert_eq!(ours_now.get(fact), theirs_now.get(fact), "{features}: {fact}");
        }
        Differences::between(&before, &tree(&image)).assert_none(features);
        // The kernel writes to it.
        let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
        std::fs::create_dir(mount.path().join("new")).unwrap();
        mount.unmount().unwrap();
        assert_sound(&image, features);
        let free = facts(image.path())["Free blocks"].clone();
        tuned(&image, &Tuning { features: "^has_journal".into(), ..Tuning::default() }).unwrap();
        assert_sound(&image, features);
        let now = facts(image.path());
        assert!(!now["Filesystem features"].contains("has_journal"), "{now:?}");
        assert!(now["Free blocks"].parse::<u64>().unwrap() > free.parse::<u64>().unwrap() + 1000);
        assert!(tree(&image).entries.contains_key(&b"new"[..]));
    }
    let image = filled(&kib("^has_journal"));
    let tuning = Tuning { features: "has_journal".into(), journal_bytes: Some(2 << 20), ..Tuning::default() };
    tuned(&image, &tuning).unwrap();
    assert_eq!(facts(image.path())["Total journal size"], "2048k");
}

#[test]
fn an_orphan_file_is_added_and_removed() {
    let switched = |list: &str| Tuning { features: list.into(), ..Tuning::default() };
    for features in ["^orphan_file", "^orphan_file,^metadata_csum", "^orphan_file,^has_journal"] {
        let image = filled(&kib(features));
        let before = tree(&image);
        let theirs = image.copy().unwrap();
        Tool::new("tune2fs").args(["-O", "has_journal,orphan_file"]).arg(theirs.path()).run().unwrap();
        tuned(&image, &switched("has_journal,orphan_file")).unwrap();
        assert_sound(&image, features);
        let (ours_now, theirs_now) = (facts(image.path()), facts(theirs.path()));
        for fact in ["Filesystem features", "Free blocks", "Free inodes", "Mount count"] {
            assert_eq!(ours_now.get(fact), theirs_now.get(fact), "{features}: {fact}");
        }
        Differences::between(&before, &tree(&image)).assert_none(features);
        // The kernel uses it.
        let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
        std::fs::remove_file(mount.path().join("file 7")).unwrap();
        mount.unmount().unwrap();
        tuned(&image, &switched("^orphan_file,^has_journal")).unwrap();
        assert_sound(&image, features);
        let now = facts(image.path());
        assert!(!now["Filesystem features"].contains("orphan_file"), "{now:?}");
        assert_eq!(tree(&image).entries.len() + 1, before.entries.len(), "{features}");
    }
}

#[test]
fn what_cannot_be_tuned_is_refused_by_name_and_stays_as_it_is() {
    let image = filled(&kib("orphan_file"));
    let before = image.sha256().unwrap();
    let features = |list: &str| Tuning { features: list.into(), ..Tuning::default() };
    for (tuning, word) in [
        (features("^metadata_csum"), "tune2fs"),
        (features("^64bit"), "resize2fs"),
        (features("^dir_index"), "clears the indexes"),
        (features("bigalloc"), "when the filesystem is made"),
        (features("nothing"), "no feature nothing"),
        (features("^has_journal"), "orphan_file too"),
        (Tuning { journal_bytes: Some(1 << 20), ..Tuning::default() }, "means nothing"),
        (Tuning { reserved: Some(Reserved::Percent(51.0)), ..Tuning::default() }, "0 to 50"),
        (Tuning { reserved: Some(Reserved::Blocks(39_000)), ..Tuning::default() }, "half"),
    ] {
        let error = tuned(&image, &tuning).unwrap_err();
        let is_misuse = ["orphan_file too", "means nothing", "0 to 50", "half"].contains(&word);
        let is_told = match error {
            Error::InvalidArgument(_) => is_misuse,
            Error::Unsupported(_) => !is_misuse,
            _ => false,
        };
        assert!(is_told && error.to_string().contains(word), "{word}: {error}");
        assert_eq!(image.sha256().unwrap(), before, "{word}");
    }
}
