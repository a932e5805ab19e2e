//! What an option of `mount -o` means: one table for `undercroft mount`, mount(8) and /etc/fstab.
//!
//! Options of this program are its own. Of the others, one that describes what happens anyway, or is meant for mount(8)
//! and systemd, is ignored; so is a hint that changes no result. One that Linux would act on and this program does not
//! is refused by name, and one that is not known with the nearest that is.

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::nearest::nearest;

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is one of this program's, whose value the filesystem or the mount checks.
    Ours,
    /// As it is anyway, or for mount(8) and systemd.
    Ignored,
    /// It would change how something is done, and no result.
    Hint,
    /// Another word for it.
    Is(&'static str),
    /// Not done; why, or what to do.
    Refused(&'static str),
    /// Not an option.
    Unknown,
}

/// Options of images.
const OF_IMAGES: [&str; 11] = [
    "norecovery",
    "noload",
    "sync",
    "async",
    "discard",
    "nodiscard",
    "commit",
    "orphan",
    "overwrite",
    "finobt",
    "pdirops",
];

/// Options of `tmpfs:`.
const OF_TMPFS: [&str; 7] = ["size", "nr_blocks", "nr_inodes", "mode", "uid", "gid", "pdirops"];

/// Options of every mount.
const OF_MOUNTS: [&str; 27] = [
    "ro",
    "rw",
    "allow_other",
    "default_permissions",
    "no_default_permissions",
    "fakeroot",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "relatime",
    "noatime",
    "writeback_cache",
    "no_writeback_cache",
    "direct_io",
    "io_uring",
    "no_io_uring",
    "poll_idle",
    "no_poll_idle",
    "threads",
    "fsname",
    "readdirplus",
    "attr_timeout",
    "entry_timeout",
    "commit_pause",
];

const BARRIERS: &str = "the disk's cache is always flushed";
const QUOTA: &str = "no quota is kept";
const JOURNAL_ELSEWHERE: &str = "a journal on another device cannot be used";
const CREATORS_GROUP: &str =
    "new files have the group of their creator, or that of a directory with set-group-ID";

/// What an option means, with or without a value.
pub(crate) fn meaning(option: &str) -> Meaning {
    use Meaning::{Hint, Ignored, Is, Ours, Refused, Unknown};
    if option.starts_with("x-") || option.starts_with("X-") {
        return Ignored;
    }
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    match name {
        // For mount(8), fstab and systemd.
        "defaults" | "auto" | "noauto" | "nofail" | "user" | "nouser" | "users" | "nousers" | "owner"
        | "noowner" | "group" | "nogroup" | "_netdev" | "comment" | "helper" | "uhelper" | "loop"
        | "silent" | "loud" => Ignored,
        "remount" => Refused("unmount it and mount it again"),
        "errors" | "data" | "barrier" => match option {
            "errors=remount-ro" | "data=ordered" | "barrier=1" | "barrier" => Ignored,
            "barrier=0" => Refused(BARRIERS),
            _ if name == "errors" => {
                Refused("after an error the filesystem takes no more writes, as with \"errors=remount-ro\"")
            }
            _ => Refused("data is written as with \"data=ordered\""),
        },
        "nobarrier" => Refused(BARRIERS),
        // As it is in any case.
        "acl" | "user_xattr" | "attr2" | "delalloc" | "noquota" | "nogrpid" | "sysvgroups" | "bsddf"
        | "noiversion" | "nolazytime" | "norelatime" | "nostrictatime" | "diratime" | "nomand"
        | "auto_unmount" | "nouuid" | "block_validity" | "auto_da_alloc" | "inode64" | "nonempty"
        | "big_writes" => Ignored,
        // They change how blocks are chosen, when something is done or what is cached, and no result. Directories'
        // times of access are brought forward once a day at most.
        "lazytime"
        | "nodiratime"
        | "noinit_itable"
        | "init_itable"
        | "stripe"
        | "inode_readahead_blks"
        | "sunit"
        | "swidth"
        | "noalign"
        | "allocsize"
        | "largeio"
        | "nolargeio"
        | "swalloc"
        | "filestreams"
        | "logbufs"
        | "logbsize"
        | "inode32"
        | "ikeep"
        | "noikeep"
        | "noattr2"
        | "journal_checksum"
        | "journal_async_commit"
        | "journal_ioprio"
        | "max_batch_time"
        | "min_batch_time"
        | "nodelalloc"
        | "noauto_da_alloc"
        | "noblock_validity"
        | "dioread_lock"
        | "dioread_nolock"
        | "nombcache"
        | "huge"
        | "mpol"
        | "noswap"
        | "max_read"
        | "kernel_cache"
        | "auto_cache" => Hint,
        "atime" => Is("relatime"),
        "wsync" => Is("sync"),
        "strictatime" => Refused("use \"relatime\" or \"noatime\""),
        "dirsync" => Refused("use \"sync\", which includes it"),
        "noacl" => Refused("access control lists of an image always count"),
        "nouser_xattr" => Refused("extended attributes are always there"),
        "mand" => Refused("Linux has no mandatory locks any more"),
        "nosymfollow" | "debug" | "abort" | "iversion" | "minixdf" => Refused("leave it out"),
        "allow_root" => Refused("use \"allow_other\""),
        "sb" => Refused("name the copy of the superblock behind the image, as IMAGE?sb=BLOCK"),
        "offset" | "sizelimit" => Refused("name a partition behind the image, as IMAGE?part=N"),
        "journal_dev" | "journal_path" => Refused(JOURNAL_ELSEWHERE),
        "logdev" => Refused("name the log behind the image, as IMAGE?log=PATH"),
        "rtdev" => Refused("a real-time device cannot be used"),
        "grpid" | "bsdgroups" => Refused(CREATORS_GROUP),
        "quota" | "usrquota" | "grpquota" | "prjquota" | "uquota" | "gquota" | "pquota" | "uqnoenforce"
        | "gqnoenforce" | "pqnoenforce" | "qnoenforce" | "usrjquota" | "grpjquota" | "jqfmt" => {
            Refused(QUOTA)
        }
        "resuid" | "resgid" => Refused("reserved blocks are for the users that the superblock names"),
        "max_dir_size_kb" | "dax" | "inlinecrypt" | "test_dummy_encryption" => Refused("leave it out"),
        _ if ours().any(|known| known == name) => Ours,
        _ => Unknown,
    }
}

fn ours() -> impl Iterator<Item = &'static str> {
    OF_IMAGES.into_iter().chain(OF_TMPFS).chain(OF_MOUNTS)
}

/// The failure of an option that is not done, or not known.
pub(crate) fn refusal(option: &str, meaning: Meaning) -> Failure {
    let what = match meaning {
        Meaning::Unknown => format!("mount option \"{option}\" is unknown"),
        _ => format!("mount option \"{option}\" is not supported"),
    };
    let failure = Failure::new(Kind::Usage, what);
    if let Meaning::Refused(advice) = meaning {
        return failure.advise(advice);
    }
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    match nearest(name, ours()) {
        Some(meant) => {
            let value = value.map_or_else(String::new, |value| format!("={value}"));
            failure.advise(format!("did you mean \"{meant}{value}\""))
        }
        None => failure.advise("`undercroft mount --help` lists the options"),
    }
}

/// The failure of an option that the other kind of source has, for a `tmpfs:` or an image.
pub(crate) fn elsewhere(option: &str, is_tmpfs: bool) -> Option<Failure> {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let (own, others, whose) = if is_tmpfs {
        (&OF_TMPFS[..], &OF_IMAGES[..], "it is for images, and `tmpfs:` is in memory")
    } else {
        (&OF_IMAGES[..], &OF_TMPFS[..], "it is for `tmpfs:`")
    };
    (others.contains(&name) && !own.contains(&name)).then(|| {
        Failure::new(Kind::Usage, format!("mount option \"{option}\" is not one of this mount")).advise(whose)
    })
}

/// The list as typed after `-o` of `undercroft mount`, in terms of what this program does; with the hints that have no
/// effect.
///
/// # Errors
/// The first option that is refused or unknown.
pub(crate) fn normalise(lists: &[String]) -> Result<(Vec<String>, Vec<String>), Failure> {
    let (mut list, mut hints) = (Vec::new(), Vec::new());
    for option in lists.iter().flat_map(|list| list.split(',')).filter(|option| !option.is_empty()) {
        match meaning(option) {
            Meaning::Ours => list.push(option.to_owned()),
            Meaning::Is(word) => list.push(word.to_owned()),
            Meaning::Ignored => {}
            Meaning::Hint => hints.push(option.to_owned()),
            meaning @ (Meaning::Refused(_) | Meaning::Unknown) => return Err(refusal(option, meaning)),
        }
    }
    Ok((list, hints))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_has_one_meaning() {
        for option in ours() {
            assert_eq!(meaning(option), Meaning::Ours, "{option}");
        }
        for option in ["commit=5", "size=1M", "orphan=list", "uid=7"] {
            assert_eq!(meaning(option), Meaning::Ours, "{option}");
        }
    }

    #[test]
    fn what_is_not_known_comes_with_what_is_near() {
        let told = |option: &str| refusal(option, meaning(option)).to_string();
        assert_eq!(told("comit=5"), "mount option \"comit=5\" is unknown; did you mean \"commit=5\"");
        assert_eq!(told("noatim"), "mount option \"noatim\" is unknown; did you mean \"noatime\"");
        assert_eq!(
            told("frobnicate"),
            "mount option \"frobnicate\" is unknown; `undercroft mount --help` lists the options"
        );
        assert!(
            told("sb=32768")
                .ends_with("; name the copy of the superblock behind the image, as IMAGE?sb=BLOCK")
        );
    }

    #[test]
    fn a_list_is_put_in_terms_of_this_program() {
        let lists = ["rw,noatime,,defaults".to_owned(), "atime,stripe=4,commit=9,nofail,x-y=z".to_owned()];
        let (list, hints) = normalise(&lists).unwrap();
        assert_eq!(list, ["rw", "noatime", "relatime", "commit=9"]);
        assert_eq!(hints, ["stripe=4"]);
        assert!(normalise(&["rw,data=journal".to_owned()]).is_err());
    }

    #[test]
    fn options_of_the_other_source_are_told_as_such() {
        assert!(elsewhere("size=1M", false).unwrap().to_string().ends_with("it is for `tmpfs:`"));
        assert!(elsewhere("commit=1", true).unwrap().to_string().contains("it is for images"));
        assert!(elsewhere("rw", true).is_none() && elsewhere("pdirops=x", false).is_none());
    }
}
