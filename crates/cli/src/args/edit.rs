//! The commands that change what is in an image, as typed.
//!
//! They are the same at a command line, where the image is named, and in `shell`, where it is open: `I` is
//! [`EditImageArgs`] or [`OpenImage`].

use std::ffi::OsString;

use clap::{ArgAction, Args, Subcommand, ValueHint};

use super::DangerArgs;

/// Names the image that a command changes.
#[derive(Debug, Args)]
pub(crate) struct EditImageArgs {
    /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    #[command(flatten)]
    pub(crate) danger: DangerArgs,
}

/// In `shell` the image is open.
#[derive(Debug, Args)]
pub(crate) struct OpenImage {}

/// An edit and the image that it is made in.
#[derive(Debug, Args)]
pub(crate) struct On<I: Args, W: Args> {
    #[command(flatten)]
    pub(crate) image: I,

    #[command(flatten)]
    pub(crate) what: W,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EditCommand<I: Args> {
    /// Copy files and trees of this machine into an image
    #[command(
        after_help = "As with cp, one PATH becomes DEST, or is put into DEST under its own name if that is a directory; several are \
put into DEST, which must be a directory. `DIR/.` stands for what is in DIR. Keeps modes, times, extended attributes, access control lists, \
hard links, symbolic links, device nodes, fifos, sockets and holes. All belongs to root unless --owner or --preserve is given. Directories \
that are there are filled up; any other name is replaced, in one step for each file, once all of it is there. A tree is a sequence of such \
steps. Symbolic links of the image that lead to directories are followed, within the image.

A pattern of --exclude matches the last names of a path, or all of it if it begins with a slash; `*` matches `/` too. The name of PATH \
itself is the first one then: `--exclude /site/tmp` leaves `tmp` out of `site`, and of `site/.` that is `/tmp`.

Examples:
  undercroft put disk.img ./hosts /etc/hosts
  undercroft put --owner 33:33 disk.img site/. /srv/www
  undercroft put --preserve --exclude '*.o' disk.img /usr/local /opt/tools /usr"
    )]
    Put(On<I, PutArgs>),

    /// Unpack a tar archive into an image
    #[command(
        after_help = "TAR is a file or `-` for standard input, as it is or compressed with gzip, xz, zstd or bzip2. Owners and extended \
attributes are the archive's own. Members are put one after the other, each file in one step; directories that are there stay. Symbolic links \
of the image are followed within it, and none that the archive itself has made. A slash in front of a name is left out, and `..` is refused. \
Of an archive of images (`docker save`, or of an OCI layout) the image's files are unpacked, as with `mkfs --from`; `tar:` in front of its \
name unpacks the archive as it is.

Examples:
  undercroft tar-in disk.img root.tar.zst
  tar -c site | undercroft tar-in --owner 33:33 disk.img - /srv/www"
    )]
    TarIn(On<I, TarInArgs>),

    /// Write standard input to a file in an image
    #[command(
        after_help = "The file gets its new content in one step: until all of it is there and durable, and if anything fails, it has \
the old one. It keeps owner, mode and extended attributes; what else is a name of the old file keeps the old content. A new file belongs to \
root and has mode 0644. `--append` adds in place, as `>>` does: a crash may leave a first part of what was added. \
What is typed, or added to an append-only file, is collected until it ends and then added.

Examples:
  undercroft write disk.img /etc/hostname < hostname
  echo 'PermitRootLogin no' | undercroft write --append disk.img /etc/ssh/sshd_config
  generate-key | undercroft write -m 600 disk.img /etc/key"
    )]
    Write(On<I, WriteArgs>),

    /// Make directories in an image
    #[command(after_help = "Examples:
  undercroft mkdir disk.img /srv
  undercroft mkdir -p -m 750 disk.img /srv/data/in /srv/data/out")]
    Mkdir(On<I, MkdirArgs>),

    /// Remove files and directories from an image
    #[command(
        after_help = "Each name goes in one step; `-r` is a sequence of such steps, from below upwards, and a crash may leave a part of \
a tree. Symbolic links are removed, not followed.

Examples:
  undercroft rm disk.img /etc/motd
  undercroft rm -rf disk.img /var/cache/apt /tmp/build"
    )]
    Rm(On<I, RmArgs>),

    /// Move or rename files and directories in an image
    #[command(after_help = "Each is moved in one step, and replaces what has the name in the same step.

Examples:
  undercroft mv disk.img /etc/hosts.new /etc/hosts
  undercroft mv -n disk.img /home/a /home/b /srv")]
    Mv(On<I, MvArgs>),

    /// Copy files and trees within an image
    #[command(
        after_help = "A file appears with all of its content, in one step; `-r` is a sequence of such steps. XFS shares the blocks of \
the copies. `undercroft get` copies out of an image, and `undercroft put` into it; so that none is mistaken for the other, DEST begins with a \
slash.

Examples:
  undercroft cp disk.img /etc/fstab /etc/fstab.old
  undercroft cp -a disk.img /home/anna /srv/backup"
    )]
    Cp(On<I, CpArgs>),

    /// Make links in an image
    #[command(after_help = "With -f a link takes the place of what has its name in one step.

Examples:
  undercroft ln disk.img /bin/busybox /bin/sh
  undercroft ln -sf disk.img ../usr/share/zoneinfo/UTC /etc/localtime")]
    Ln(On<I, LnArgs>),

    /// Change the modes of files in an image
    #[command(
        after_help = "MODE is as chmod has it: octal, or letters as in u+x,g=rw,o-rwx. Where it says for no user, a umask of 022 \
holds. Symbolic links are followed, except below a directory that -R goes into.

Examples:
  undercroft chmod disk.img 4755 /usr/bin/sudo
  undercroft chmod -R disk.img u=rwX,go=rX /srv/www"
    )]
    Chmod(On<I, ChmodArgs>),

    /// Change the owners of files in an image
    #[command(
        disable_help_flag = true,
        after_help = "OWNER is U, U:G, U: (with the user's own group) or :G. Names are looked up in the image's own /etc/passwd and \
/etc/group; numbers need neither. As with chown, set-user-ID bits and capabilities go.

Examples:
  undercroft chown disk.img 1000:1000 /home/anna
  undercroft chown -R disk.img www-data: /srv/www"
    )]
    Chown(On<I, ChownArgs>),

    /// Change the times of files in an image, and make missing files
    #[command(
        disable_help_flag = true,
        after_help = "TIME is as in 2024-05-06, '2024-05-06 07:08:09.5', 2024-05-06T07:08:09+02:00, @1714979289.5 (seconds since 1970) or \
now; without an offset it is UTC.

Examples:
  undercroft touch disk.img /etc/firstboot
  undercroft touch -d @0 disk.img /etc/machine-id
  undercroft touch -r /bin/sh disk.img /bin/bash"
    )]
    Touch(On<I, TouchArgs>),

    /// Change the sizes of files in an image
    #[command(
        after_help = "SIZE is as in 4096, 10M or 1G. With + or - before it the size becomes larger or smaller by it, with < at most, \
with > at least it, with / it is rounded down and with % up to a multiple of it. What is added is a hole.

Examples:
  undercroft truncate -s 0 disk.img /var/log/syslog
  undercroft truncate -s +1G disk.img /swapfile"
    )]
    Truncate(On<I, TruncateArgs>),

    /// Show and change extended attributes in an image
    #[command(
        disable_help_subcommand = true,
        after_help = "Examples:
  undercroft xattr list disk.img /usr/bin/ping
  undercroft xattr set disk.img /srv user.origin build-17"
    )]
    Xattr {
        #[command(subcommand)]
        command: XattrCommand<I>,
    },

    /// Show and change access control lists in an image
    #[command(
        after_help = "The options are setfacl's; without any of them the lists are shown as getfacl shows them, with numbers. An entry \
is [d:]u:USER:rwx, [d:]g:GROUP:rwx, [d:]m::rwx or [d:]o::rwx; without a USER or GROUP it is the owner's or the owning group's; several \
stand between commas. The mask becomes what all entries of groups and named users together need, unless an entry says what it is.

Examples:
  undercroft acl disk.img /srv
  undercroft acl -m u:1000:rwX,g:staff:r-x disk.img /srv
  undercroft acl -R -d -m g:staff:rwX disk.img /srv
  undercroft acl -b disk.img /srv/file"
    )]
    Acl(On<I, AclArgs>),

    /// Make device nodes and fifos in an image
    #[command(after_help = "Needs no root.

Examples:
  undercroft mknod -m 666 disk.img /dev/null c 1 3
  undercroft mknod disk.img /run/queue p")]
    Mknod(On<I, MknodArgs>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum XattrCommand<I: Args> {
    /// List the attributes of files, and their values
    #[command(after_help = "Examples:
  undercroft xattr list disk.img /usr/bin/ping")]
    List(On<I, XattrListArgs>),

    /// Write the value of an attribute to standard output
    #[command(after_help = "Examples:
  undercroft xattr get disk.img /usr/bin/ping security.capability | xxd")]
    Get(On<I, XattrGetArgs>),

    /// Set an attribute
    #[command(
        after_help = "VALUE is text, or hexadecimal after 0x, or base64 after 0s, as setfattr has it; `-` is standard input.

Examples:
  undercroft xattr set disk.img /srv user.origin build-17
  undercroft xattr set disk.img /usr/bin/ping security.capability 0x0100000200200000000000000000000000000000"
    )]
    Set(On<I, XattrSetArgs>),

    /// Remove an attribute
    #[command(after_help = "Examples:
  undercroft xattr remove disk.img /srv user.origin")]
    Remove(On<I, XattrGetArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// Paths on this machine, and behind them where to in the image
    #[arg(required = true, num_args = 2.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,
    /// Keep owners as they are on this machine
    #[arg(short, long, conflicts_with = "owner")]
    pub(crate) preserve: bool,
    /// Owner of all that is put, by numbers or by names of the image
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) owner: Option<OsString>,
    /// Leave out what this pattern matches, and all below it; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// Do not enter directories on other filesystems, as tar and cp -x; they stay, empty
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Take DEST as a name, also where it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// As for cp, and without effect: whole trees are put
    #[arg(short, long, hide = true, short_aliases = ['R', 'a'])]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TarInArgs {
    /// Archive, or `-`
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) tar: std::path::PathBuf,
    /// Directory inside the image
    #[arg(default_value = "/")]
    pub(crate) dir: OsString,
    /// Owner of all that is unpacked, by numbers or by names of the image
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) owner: Option<OsString>,
    /// Leave out what this pattern matches, and all below it; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// Path inside the image
    pub(crate) path: OsString,
    /// Add to the end of the file
    #[arg(short, long)]
    pub(crate) append: bool,
    /// Mode of the file, as chmod has it
    #[arg(short, long, value_name = "MODE", conflicts_with = "append")]
    pub(crate) mode: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Make missing directories above it too, and take one that is there as made
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Mode of the directory, as chmod has it (755 unless said)
    #[arg(short, long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Remove directories and everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Say nothing of what is not there
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub(crate) dir: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MvArgs {
    /// Paths inside the image; the last is where to
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Leave what is there as it is
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Take the last path as a name, also where it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// As for mv, and without effect: nothing is asked
    #[arg(short, long, hide = true)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// Paths inside the image; the last is where to
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Copy directories and everything below them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,
    /// As -r, with owners, modes, times, extended attributes, and hard links kept
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Keep owners, modes with access control lists, and times
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Copy symbolic links themselves (the default with -r)
    #[arg(short = 'P', long, visible_short_alias = 'd')]
    pub(crate) no_dereference: bool,
    /// Leave what is there as it is
    #[arg(short, long)]
    pub(crate) no_clobber: bool,
    /// Take the last path as a name, also where it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// As for cp, and without effect: nothing is asked
    #[arg(short, long, hide = true)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LnArgs {
    /// What to link to, and behind it the link's name or a directory for links of the same names
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Make symbolic links; what they lead to is stored as it is typed
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// Replace what has the name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Replace a symbolic link to a directory, and put nothing into the directory
    #[arg(short, long)]
    pub(crate) no_dereference: bool,
    /// Take the last path as a name, also where it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChmodArgs {
    /// Mode, as chmod has it
    #[arg(allow_hyphen_values = true)]
    pub(crate) mode: String,
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Change what is below directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChownArgs {
    /// User and group
    pub(crate) owner: OsString,
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Change what is below directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Change symbolic links themselves
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct TouchArgs {
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// The time to set (now unless said)
    #[arg(short, long, value_name = "TIME")]
    pub(crate) date: Option<String>,
    /// Set the times that this file of the image has
    #[arg(short, long, value_name = "PATH", conflicts_with = "date")]
    pub(crate) reference: Option<OsString>,
    /// Set the time of access only
    #[arg(short)]
    pub(crate) access: bool,
    /// Set the time of modification only
    #[arg(short)]
    pub(crate) modification: bool,
    /// Make no file
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// Change symbolic links themselves
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct TruncateArgs {
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// The size, or how it changes
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) size: String,
    /// Make no file
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
}

#[derive(Debug, Args)]
pub(crate) struct XattrListArgs {
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Of symbolic links, show their own
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,
}

#[derive(Debug, Args)]
pub(crate) struct XattrGetArgs {
    /// Path inside the image
    pub(crate) path: OsString,
    /// Full name, as in user.origin
    pub(crate) name: OsString,
    /// Of a symbolic link, take its own
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,
}

#[derive(Debug, Args)]
pub(crate) struct XattrSetArgs {
    /// Path inside the image
    pub(crate) path: OsString,
    /// Full name, as in user.origin
    pub(crate) name: OsString,
    /// What it becomes
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: OsString,
    /// Of a symbolic link, change its own
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AclArgs {
    /// Paths inside the image
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Add or change entries
    #[arg(short, long, value_name = "ENTRY,...")]
    pub(crate) modify: Vec<OsString>,
    /// Remove entries, given without their permissions
    #[arg(short = 'x', long, value_name = "ENTRY,...")]
    pub(crate) remove: Vec<OsString>,
    /// Remove all entries but those of the owner, the owning group and all others
    #[arg(short = 'b', long)]
    pub(crate) remove_all: bool,
    /// Remove the lists that new files of a directory get
    #[arg(short = 'k', long)]
    pub(crate) remove_default: bool,
    /// Let all entries be of the list that new files of a directory get
    #[arg(short, long)]
    pub(crate) default: bool,
    /// Change what is below directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MknodArgs {
    /// Path inside the image
    pub(crate) path: OsString,
    /// b for a block device, c or u for a character device, p for a fifo, s for a socket
    #[arg(value_name = "KIND", value_parser = ["b", "c", "u", "p", "s"])]
    pub(crate) kind: String,
    /// Number of the driver
    pub(crate) major: Option<u32>,
    /// Number of the device among the driver's
    pub(crate) minor: Option<u32>,
    /// Mode, as chmod has it (644 unless said)
    #[arg(short, long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
}
