//! A mke2fs.conf means to us what it means to mke2fs: the same text and arguments make the same filesystem.

use undercroft_ext4::{Family, Mke2fsConf, MkfsOptions, mkfs, plan_mkfs};
use undercroft_oracle::{Image, Scratch, Tool};

use crate::{MIB, TIB, device, differences, fields};

/// The beginning of every text here: what Debian's has.
const DEFAULTS: &str = "[defaults]
\tbase_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
\tdefault_mntopts = acl,user_xattr
\tenable_periodic_fsck = 0
\tblocksize = 4096
\tinode_size = 256
\tinode_ratio = 16384
";

#[derive(Clone, Copy)]
struct Case {
    /// What follows the defaults.
    text: &'static str,
    kind: &'static str,
    size_mib: u64,
    /// As both take them.
    usage: &'static str,
    features: &'static str,
    /// Further arguments of mke2fs, and the same for us.
    args: &'static [&'static str],
    change: fn(&mut MkfsOptions),
}

const fn case(kind: &'static str, size_mib: u64, text: &'static str) -> Case {
    Case { text, kind, size_mib, usage: "", features: "", args: &[], change: |_| {} }
}

impl Case {
    const fn with(self, args: &'static [&'static str], change: fn(&mut MkfsOptions)) -> Self {
        Self { args, change, ..self }
    }
}

const EXT4: &str = "[fs_types]
ext4 = {
 features = has_journal,extents,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
";

/// Every tag that is read, in the defaults, in a family's types and in those of a usage.
const CASES: [Case; 51] = [
    case("ext4", 600, EXT4),
    case("ext4", 64, EXT4),
    case("ext4", 2, EXT4),
    case("ext3", 600, "[fs_types]\next3 = {\nfeatures = has_journal\n}\n"),
    case("ext2", 600, ""),
    case("ext2", 600, "[fs_types]\nsmall = {\n}\n"),
    case(
        "ext4",
        64,
        "[fs_types]\next4 = {\nfeatures = extent\nblocksize = 2048\n}\nsmall = {\nblocksize = 1024\n}\n",
    ),
    case(
        "ext4",
        64,
        "[fs_types]\next4 = {\nfeatures = extent\n}\nsmall = {\nblocksize = -1\nfeatures = ^resize_inode\n}\n",
    ),
    case(
        "ext4",
        2,
        "[fs_types]\next4 = {\nfeatures = extent\n}\nfloppy = {\nblocksize = 1024\ninode_size = 128\n}\n",
    ),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nbase_features = filetype\nfeatures = \"extent, ^64bit\"\ninode_size = 512\n}\n",
    ),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nfeatures = extent\ninode_ratio = 4096\ninode_ratio = 65536\n}\n",
    ),
    case("ext4", 600, "inode_ratio = 8192\n[fs_types]\next4 = {\nfeatures = extent\n}\n"),
    case(
        "ext4",
        600,
        "reserved_ratio = 1.5\n[fs_types]\next4 = {\nfeatures = extent,flex_bg\nflex_bg_size = 8\n}\n",
    ),
    case("ext4", 600, "errors = remount-ro\nhash_alg = tea\n[fs_types]\next4 = {\nfeatures = extent\n}\n"),
    case("ext4", 600, "[fs_types]\next4 = {\nerrors = panic\nhash_alg = legacy\nfeatures = extent\n}\n"),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nfeatures = extent\ndefault_mntopts = journal_data_writeback,discard,^acl\n}\n",
    ),
    case("ext4", 600, "[fs_types]\next4 = {\nfeatures = extent\nenable_periodic_fsck = yes\n}\n"),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nfeatures = extent\ndefault_features = has_journal,dir_nlink\n}\n",
    ),
    case("ext4", 600, "[fs_types]\next4 = {\nfeatures = extent,bigalloc\ncluster_size = 32768\n}\n"),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nfeatures = extent,bigalloc\ncluster_size = 0\ninode_ratio = 32768\n}\n",
    ),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nfeatures = extent,bigalloc\ncluster_size = 1536\ninode_ratio = 65536\n}\n",
    ),
    case("ext4", 600, "[fs_types]\next4 = {\nfeatures = extent,bigalloc\ncluster_size = 100000\n}\n"),
    case("ext4", 600, "[fs_types]\next4 = {\nfeatures = extent,uninit_groups\nlazy_itable_init = false\n}\n"),
    case("ext4", 17 << 20, "[fs_types]\next4 = {\nfeatures = extent\nauto_64-bit_support = 1\n}\n"),
    case(
        "ext4",
        5 << 20,
        "[fs_types]\next4 = {\nfeatures = extent,64bit\n}\nbig = {\ninode_ratio = 131072\n}\n",
    ),
    case(
        "ext4",
        600,
        "[options]\nproceed_delay = 5\n[fs_types]\next4* = {\nfeatures = extent\n}\n[devices]\nx = y\n",
    ),
    Case {
        usage: "news",
        ..case(
            "ext4",
            600,
            "[fs_types]\next4 = {\nfeatures = extent\n}\nnews = {\ninode_ratio = 2048\nfeatures = large_dir\n}\n",
        )
    },
    Case {
        usage: "a,b",
        ..case(
            "ext4",
            64,
            "[fs_types]\next4 = {\nfeatures = extent\n}\na = {\nblocksize = 2048\ninode_size = 1024\n}\nb = {\ninode_size = 128\n}\n",
        )
    },
    Case { usage: "default", ..case("ext4", 64, EXT4) },
    Case {
        features: "^extent,dir_nlink",
        ..case("ext4", 600, "[fs_types]\next4 = {\nfeatures = extent\ndefault_features = large_dir\n}\n")
    },
    case("ext4", 600, SMALL_RATIO),
    case("ext4", 600, SMALL_RATIO).with(&["-b", "1024"], |o| o.block_bytes = Some(1024)),
    case("ext4", 600, SMALL_RATIO).with(&["-i", "2048"], |o| o.bytes_per_inode = Some(2048)),
    case("ext4", 600, SMALL_RATIO).with(&["-N", "0"], |o| o.inodes = Some(0)),
    case("ext4", 600, "[fs_types]\next4 = {\nfeatures = extent,bigalloc\ninode_ratio = 2048\n}\n"),
    case("ext4", 600, "[fs_types]\next4 = {\nfeatures = extent\ninode_ratio = 134217728\n}\n"),
    case("ext4", 64, DEFAULT_FEATURES).with(&["-j"], |o| o.implied_features = "has_journal".into()),
    case("ext4", 64, DEFAULT_FEATURES)
        .with(&["-E", "encoding=utf8"], |o| o.implied_features = "casefold".into()),
    case("ext4", 64, DEFAULT_FEATURES).with(&["-O", ""], |o| o.features = " ".into()),
    Case { features: "dir_nlink", ..case("ext4", 64, DEFAULT_FEATURES) }
        .with(&["-E", "encoding=utf8"], |o| o.implied_features = "casefold".into()),
    case("ext4", 64, "[fs_types] # a\next4 = { # b\nfeatures = extent # c\ninode_size = 512;d\n} # e\n"),
    case(
        "ext4",
        64,
        "[fs_types] a\next4 =\n{ b\nfeatures = \"extent, large_dir\" c\n}d\nsmall = {\ninode_size=512",
    ),
    case("ext4", 64, "[fs_types]\next4 = {\nfeatures = \"extent,large_dir\n}\n"),
    case(
        "ext4",
        64,
        "[fs_types]\next4 = {\nx = {\nfeatures = large_dir\n}\nfeatures = extent\ninode_size = 512\n}\n",
    ),
    case("ext4", 64, "[ fs_types ]\next4 = {\nfeatures = extent\nx = {\n"),
    case("ext4", 64, "[fs_types]\next4 = {\nfeatures = \"extent, Large_Dir,+FEATURE_R5 -dir_index\"\n}\n"),
    case(
        "ext4",
        64,
        "[fs_types]\next4 = {\nfeatures = extent\ninode_size = 0x200\ninode_ratio = 020000\n}\n",
    ),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nfeatures = extent,flex_bg\nflex_bg_size = 24\nmake_hugefiles = False\n}\n",
    ),
    case(
        "ext4",
        600,
        "[fs_types]\next4 = {\nfeatures = extent\ncreator_os = LINUX\nnum_backup_sb = 1\nhash_alg = TEA\n}\n",
    ),
    case(
        "ext4",
        64,
        "[fs_types]\next4 = {\nfeatures = extent\ndefault_mntopts = \"journal_data_writeback,ACL +debug,-journal_data\"\n}\n",
    ),
    Case {
        features: "^64bit",
        ..case("ext4", 17 << 20, "[fs_types]\next4 = {\nfeatures = extent\nauto_64-bit_support = 1\n}\n")
    },
];

const SMALL_RATIO: &str = "[fs_types]\next4 = {\nfeatures = extent\ninode_ratio = 2048\n}\n";
const DEFAULT_FEATURES: &str =
    "[fs_types]\next4 = {\nfeatures = extent\ndefault_features = large_dir,has_journal\n}\n";

impl Case {
    fn name(&self) -> String {
        format!(
            "{} of {} MiB, -T {}, -O {}, {:?}, {}",
            self.kind, self.size_mib, self.usage, self.features, self.args, self.text
        )
    }

    fn ours(&self, text: &str) -> Image {
        let image = Image::empty(self.kind, self.size_mib * MIB).unwrap();
        let family = match self.kind {
            "ext2" => Family::Ext2,
            "ext3" => Family::Ext3,
            _ => Family::Ext4,
        };
        let words = |list: &str| list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let mut options = MkfsOptions {
            conf: Mke2fsConf::parse("the test's", text).unwrap().into(),
            usage: words(self.usage),
            features: self.features.to_owned(),
            uuid: Some(UUID.parse().unwrap()),
            device_is_zeroed: true,
            ..MkfsOptions::new(family)
        };
        (self.change)(&mut options);
        mkfs(&device(image.path()), &options).unwrap_or_else(|error| panic!("{}: {error}", self.name()));
        image
    }

    fn theirs(&self, text: &str) -> Image {
        let image = Image::empty(self.kind, self.size_mib * MIB).unwrap();
        let scratch = Scratch::new("conf").unwrap();
        let conf = scratch.path().join("mke2fs.conf");
        std::fs::write(&conf, text).unwrap();
        let mut args = vec!["-q", "-F", "-U", UUID, "-t", self.kind];
        for (letter, list) in [("-T", self.usage), ("-O", self.features)] {
            if !list.is_empty() {
                args.extend([letter, list]);
            }
        }
        args.extend(self.args);
        let config = format!("MKE2FS_CONFIG={}", conf.display());
        let mke2fs = Tool::new("env").arg(config).arg("mke2fs").args(args).arg(image.path()).run();
        mke2fs.unwrap_or_else(|error| panic!("{}: {error}", self.name()));
        image
    }
}

/// After how many mounts a check is due follows from it.
const UUID: &str = "0f3a9c1e-5b7d-4e2f-8a6b-c0d1e2f30415";

#[test]
fn a_configuration_means_what_it_means_to_mke2fs() {
    let mut found = Vec::new();
    for case in &CASES {
        let text = format!("{DEFAULTS}{}", case.text);
        let (ours, theirs) = (case.ours(&text), case.theirs(&text));
        if case.size_mib < TIB / MIB {
            ours.check().unwrap_or_else(|error| panic!("{}: {error}", case.name()));
        }
        found.extend(differences(
            &case.name(),
            &fields(&ours),
            &fields(&theirs),
            case.text.contains("bigalloc"),
        ));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Without a section of defaults, and without anything.
#[test]
fn what_is_not_in_a_configuration_is_as_mke2fs_has_it() {
    for text in ["", "[fs_types]\n", "[defaults]\nfs_type = ext4\n"] {
        let case = case("ext2", 600, "");
        let found = differences(text, &fields(&case.ours(text)), &fields(&case.theirs(text)), false);
        assert!(found.is_empty(), "{text:?}: {}", found.join("\n"));
    }
}

#[test]
fn what_mke2fs_refuses_in_a_configuration_is_refused() {
    for text in [
        "[fs_types\n",
        "[fs_types]\next4 = {\nfeatures = extent large_dir\n}\n",
        "[fs_types]\next4 = {\nfeatures =\n}\n",
        "[fs_types]\next4 = { features = extent\n}\n",
        "[fs_types]\next4 = {\nfeatures = extent\n}\n}\n",
        "[fs_types]\next4 = {\n[defaults]\n",
        "[fs_types]\next4 = {\nfeatures\n}\n",
        "[fs_types]\next4 = {\nblocksize * = 1024\n}\n",
        "[fs_types]\next4 = {\nblock#size = 1024\n}\n",
    ] {
        assert!(Mke2fsConf::parse("the test's", text).is_err(), "{text}");
        let scratch = Scratch::new("conf").unwrap();
        let conf = scratch.path().join("mke2fs.conf");
        std::fs::write(&conf, text).unwrap();
        let image = Image::empty("ext4", 64 * MIB).unwrap();
        let config = format!("MKE2FS_CONFIG={}", conf.display());
        let mke2fs = Tool::new("env").arg(config).arg("mke2fs").args(["-q", "-F", "-t", "ext4"]);
        assert!(mke2fs.arg(image.path()).run().is_err(), "mke2fs takes {text}");
    }
    let text = "[fs_types]\next3 = {\nfeatures = has_journal\nauto_64-bit_support = 1\n}\n";
    let image = Image::empty("ext3", (17 << 20) * MIB).unwrap();
    let conf = Mke2fsConf::parse("the test's", text).unwrap().into();
    let options = MkfsOptions { conf, ..MkfsOptions::new(Family::Ext3) };
    let refusal = plan_mkfs(&device(image.path()), &options).unwrap_err().to_string();
    assert!(refusal.contains("takes extent"), "{refusal}");
}
