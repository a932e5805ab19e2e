//! Mounting, and the commands about what is mounted, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Subcommand, ValueHint};

use super::{DangerArgs, ImageArgs, JsonArg};

#[derive(Debug, Subcommand)]
pub(crate) enum MountCommand {
    /// Mount an image, or a filesystem in memory, through FUSE
    #[command(
        after_help = "Returns once the files can be read, and serves them in the background until `undercroft unmount DIR`.

An image is mounted read-only, and not a byte of it changes, unless `-o rw` says otherwise. With `--snapshot` changes \
can be made and are gone after unmounting: they lie in a temporary file (in TMPDIR), and the image stays as it is.

An image has one writer. With `-o rw` it is refused while the kernel has it mounted, or attached to a loop device, while \
QEMU has it open, or another program has locked it.

Options of an image: rw, ro, norecovery (read-only, without what its journal holds), commit=SECONDS (changes \
reach the disk after so long at the latest; 5), commit_pause=MILLISECONDS (and once there has been no change for about so \
long; 30, 0 for never), sync (each change is on the disk when the call returns), discard (the image is told of space that \
is free again; `fstrim DIR` does it once; not on XFS), pdirops=off (a lock for each directory), orphan=list|locked (ext4), \
finobt=off (XFS) and overwrite=journaled (older ways, to measure against).

With `tmpfs:` in the image's place, an empty filesystem in memory is mounted, which goes when it is unmounted. It takes \
the options of Linux's tmpfs (size, nr_blocks, nr_inodes, mode, uid, gid) and pdirops=off, which gives each directory \
one lock.

Options of every mount: ro, rw, allow_other, dev, suid, noexec, noatime (the default: reading \
changes nothing) or relatime (a read sets the time of access if the file has changed since, or after a day; a read that the \
kernel's cache answers does not reach the server and sets nothing), fakeroot \
(see below; no_default_permissions is the same), no_writeback_cache (each write is a request of its own), direct_io (past the kernel's cache), no_io_uring (requests come over /dev/fuse, \
also where the kernel has been told to offer io_uring: echo 1 > /sys/module/fuse/parameters/enable_uring), threads=N, readdirplus=always|auto|never, \
poll_idle (as root: while requests come quickly, all idle processors of this machine poll instead of halting, which in a \
virtual machine answers up to three times as fast and costs the whole machine processor time), \
attr_timeout=SECONDS, entry_timeout=SECONDS, fsname=NAME.

The kernel checks owners, modes and ACLs as on a local filesystem. With `-o fakeroot` it does not: you have root's rights in \
an image of your own, for example to build one in a container without root. New files belong to you, as with fuse2fs, until you \
`chown` them. No other user has access (`allow_other` is refused with `fakeroot`). These still need root: making device nodes, \
attributes that begin with \"trusted.\" or \"security.\", and flags (chattr) and ACLs of files that are not yours.

A program that reads a damaged file is told no more than \"Structure needs cleaning\". What exactly is wrong stands in \
the log: FILE, or else /var/log/undercroft.log for root and $XDG_STATE_HOME/undercroft/mount.log (usually \
~/.local/state/undercroft/mount.log) for other users. In the foreground it is said on standard error.

Examples:
  undercroft mount disk.img /mnt
  undercroft mount --log faults.log disk.img /mnt
  undercroft mount 'disk.img?part=2' ~/disk
  undercroft mount -o rw disk.img /mnt
  undercroft mount --snapshot disk.img /mnt
  undercroft mount -o allow_other disk.img /mnt
  undercroft mount -o rw,fakeroot disk.img ~/disk
  undercroft mount -o size=1G,mode=755 tmpfs: /mnt"
    )]
    Mount {
        /// As for mount(8): what is in an image is recognised, so this is only compared with what can be mounted
        #[arg(short = 't', hide = true, value_parser = ["auto", "ext2", "ext3", "ext4", "xfs", "tmpfs"])]
        kind: Option<String>,
        #[command(flatten)]
        image: ImageArgs,
        /// Directory to mount on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// Mount options, separated by commas
        #[arg(short, value_name = "OPTS", value_delimiter = ',')]
        options: Vec<String>,
        /// Take changes, and forget them when it is unmounted: the image stays as it is
        #[arg(long)]
        snapshot: bool,
        /// Add to this file what turns out to be wrong with the image
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        log: Option<PathBuf>,
        /// Run this program on each event of the array, with the event (Fail, SpareActive and so on, as mdadm's PROGRAM),
        /// the array and the member as arguments; UNDERCROFT_EVENT holds the event as a sentence
        #[arg(long, value_name = "CMD", value_hint = ValueHint::CommandName)]
        monitor: Option<PathBuf>,
        #[command(flatten)]
        danger: DangerArgs,
        /// Stay in the foreground until unmounted
        #[arg(short, long)]
        foreground: bool,
        /// Set by the parent of the background process: say on standard output when ready
        #[arg(long, hide = true, requires = "foreground")]
        announce: bool,
    },

    /// Unmount what `mount` mounted
    #[command(
        visible_alias = "umount",
        after_help = "Examples:
  undercroft unmount /mnt"
    )]
    Unmount {
        /// Directory it is mounted on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },

    /// Let `mount -t undercroft` and /etc/fstab find this program
    #[command(
        after_help = "Makes the links mount.undercroft, mount.fuse.undercroft and umount.fuse.undercroft to this program, in \
/sbin, where mount(8) and umount(8) look for them. Then work `mount -t undercroft IMAGE DIR`, lines of /etc/fstab and mount units of \
systemd, and `umount DIR` returns when the image is closed.

Examples:
  undercroft install-helper
  mount -t undercroft disk.img /mnt"
    )]
    InstallHelper {
        /// Directory that has the `sbin` for the links
        #[arg(long, value_name = "DIR", default_value = "/", value_hint = ValueHint::DirPath)]
        prefix: PathBuf,
    },

    /// Hold back what is written to a mounted image, so that it can be copied
    #[command(
        after_help = "What was written before is on the disk when this returns, and the image stays as it is until `undercroft \
thaw`: a copy of it is what a power cut at that moment would leave, with a journal to replay. Programs that write \
wait meanwhile, and once they occupy all event loops of the mount (threads=), those that read, too. Unmounting thaws.

Examples:
  undercroft freeze /mnt && cp --reflink=auto disk.img copy.img; undercroft thaw /mnt"
    )]
    Freeze {
        /// Directory it is mounted on, or any inside; or an image that is mounted for writing
        #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
        image: OsString,
    },

    /// Let go on what `freeze` holds back
    #[command(after_help = "Examples:
  undercroft thaw /mnt")]
    Thaw {
        /// Directory it is mounted on, or any inside; or an image that is mounted for writing
        #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
        image: OsString,
    },

    /// Make everything durable that was written through a mount
    #[command(
        after_help = "This includes what programs have written to files that are still open. sync(2) and syncfs(2) do not reach a \
FUSE mount. Without this command, names, attributes and the content of closed files are on the disk once there has been no \
change for a moment (commit_pause= of `undercroft mount`), or after commit= seconds at the latest.

Examples:
  undercroft sync /mnt
  undercroft sync disk.img"
    )]
    Sync {
        /// Directory it is mounted on, or any inside; or an image that is mounted for writing
        #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
        image: OsString,
    },

    /// List what is mounted with `mount`, and how it is doing
    #[command(
        after_help = "Lists the mounts of this user; as root those of all users, as far as their runtime directories are in the usual \
places. A mount is read-only (ro), for writing (rw) or on trial (snapshot). Beside that stands what is to be known: an array \
that is degraded or being filled, a filesystem that takes no more changes after a failure, and why.

Examples:
  undercroft mounts
  undercroft mounts --json"
    )]
    Mounts {
        #[command(flatten)]
        json: JsonArg,
    },

    /// Show how much space filesystems have and use, as df does
    #[command(
        disable_help_flag = true,
        after_help = "An image that is mounted for writing is asked for its state now; another one is opened read-only. Without an \
argument, what this user has mounted is shown. Sizes are in blocks of 1 KiB, rounded up.

Examples:
  undercroft df
  undercroft df -h disk.img md:a.img,b.img,c.img
  undercroft df -i /mnt
  undercroft df --json disk.img"
    )]
    Df {
        /// Disk images, block devices or arrays; or directories of mounts
        #[arg(value_name = "IMAGE|DIR", value_hint = ValueHint::AnyPath)]
        images: Vec<OsString>,
        /// Show sizes in units that fit
        #[arg(short = 'h', long)]
        human_readable: bool,
        /// Print help
        #[arg(long, action = ArgAction::Help)]
        help: Option<bool>,
        /// Show inodes in place of blocks
        #[arg(short, long)]
        inodes: bool,
        #[command(flatten)]
        json: JsonArg,
    },
}
