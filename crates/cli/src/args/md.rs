//! The command line of `md` as typed.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};

use super::{DangerArgs, JsonArg};

pub(super) const ARRAY_HELP: &str = "\
An array of Linux software RAID (md) is an image too: `md:MEMBER,MEMBER,...`, where a member is a raw or qcow2 image, a \
block device, or a partition of one (`?part=N`); or `md:DIR` for the members that lie in a directory. All commands that \
read open its members read-only and write to none. After the last member may follow, joined by `&`: `?uuid=UUID` (selects one of several \
arrays in a directory), `?array-part=N` (partition N of the array), `?degraded` (opens for writing although members are missing \
that the superblocks list as active; the missing members are then removed from the array), `?force` (also takes members with an \
older event count, and starts an unclean degraded array; the last writes may be lost), `?member_timeout=SECONDS` (fails a member on a \
network or in another program's filesystem that does not answer for this long; 30 by default, 0 waits without limit).";

const EXAMPLES: &str = "\
An array lives as long as the program that has it open. So each command opens it, does its work, and closes it clean; \
what takes long (making the redundancy right, filling a new member) is waited for, with how far it is on a terminal. \
With --no-wait, or when the command is interrupted, the next command or mount that opens the array for writing goes on \
with it. A mount does it beside its work.

Members are those of Linux: `mdadm --assemble` takes what was made here, and what mdadm made is opened here.

Examples:
  undercroft md create --level 5 --chunk 64K --member-size 1G a.img b.img c.img d.img
  undercroft mkfs ext4 md:a.img,b.img,c.img,d.img
  undercroft mount -o rw md:a.img,b.img,c.img,d.img /mnt
  undercroft md status md:.
  undercroft md fail md:. c.img
  undercroft md add --member-size 1G md:. e.img
  undercroft md check md:.";

pub(super) fn notes() -> String {
    format!("{ARRAY_HELP}\n\n{EXAMPLES}")
}

// Each may be written as mdadm has it, as `--detail` or `-D`; the help does not list that.
#[derive(Debug, Subcommand)]
pub(crate) enum MdCommand {
    /// Make an array
    #[command(
        long_flag_alias = "create",
        short_flag_alias = 'C',
        after_help = "Everything is laid out as mdadm would do it. Members that are not there are made, as sparse files of \
--member-size; if all are, they are zero and agree with each other, so that nothing is left to do. Otherwise the \
redundancy is made right before the command ends. The word `missing` in a member's place leaves its role empty, for a \
member that is added later (a file of this name is `./missing`). A member that holds anything but zeroes is overwritten with --force \
only; of a disk the first and the last MiB are looked at.

Options are those of `mdadm --create`, with its meaning: what has no unit is in KiB there (not in bytes, as --member-size \
is). The array itself has no device here, so none stands before the members.

Levels: linear, 0, 1, 4, 5, 6, 10. Layouts: of 5 and 6 left-symmetric (the default), left-asymmetric, right-symmetric, \
right-asymmetric, parity-first, parity-last; of 10 n2 (the default), f2, o2 and the like; of 0 original, alternate.

Examples:
  undercroft md create --level 5 --chunk 64K --member-size 1G a.img b.img c.img d.img
  undercroft md create --level 1 --bitmap internal --name mirror /dev/sdb /dev/sdc
  undercroft md create --level 6 -n 5 -x 1 /dev/sd[b-g]
  undercroft md create --level 6 --spare /dev/sdg /dev/sd[b-f]
  undercroft md create --level 5 --chunk 64K /dev/sdb /dev/sdc missing"
    )]
    Create(Box<MdCreateArgs>),

    /// Show what members say of themselves and of their array
    #[command(
        long_flag_alias = "examine",
        short_flag_alias = 'E',
        after_help = "Examples:
  undercroft md examine a.img b.img
  undercroft md examine --json '/dev/sdb?part=1'"
    )]
    Examine {
        /// Disk images or block devices; `IMAGE?part=N` for a partition
        #[arg(required = true, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
        members: Vec<OsString>,
        /// Read members that another program has locked, and take no lock; what is read may change meanwhile
        #[arg(long)]
        no_lock: bool,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Show the state of an array
    #[command(
        long_flag_alias = "detail",
        short_flag_alias = 'D',
        alias = "detail",
        after_help = "Examples:
  undercroft md status md:a.img,b.img,c.img
  undercroft md status --json md:."
    )]
    Status {
        #[command(flatten)]
        array: ArrayArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Declare members failed
    #[command(
        alias = "set-faulty",
        long_flag_aliases = ["fail", "set-faulty"],
        short_flag_alias = 'f',
        after_help = "The others remember it, so that the array does without them from then on. A spare takes the place at once.

Examples:
  undercroft md fail md:a.img,b.img,c.img b.img
  undercroft md fail md:. 2"
    )]
    Fail {
        #[command(flatten)]
        array: ArrayArgs,
        /// Members, by name or by number
        #[arg(required = true, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
        members: Vec<OsString>,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Let go of spares and of failed members
    #[command(
        long_flag_alias = "remove",
        short_flag_alias = 'r',
        after_help = "A member that has failed is out of the array already; with --erase its superblock goes too, so that it is not \
taken for a member any more.

Examples:
  undercroft md remove md:. spare.img
  undercroft md remove --erase md:. b.img"
    )]
    Remove {
        #[command(flatten)]
        array: ArrayArgs,
        /// Members, by name or by number
        #[arg(required = true, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
        members: Vec<OsString>,
        /// Erase their superblocks
        #[arg(long)]
        erase: bool,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Add members: a missing one is rebuilt, others become spares
    #[command(
        alias = "re-add",
        long_flag_aliases = ["add", "re-add"],
        short_flag_alias = 'a',
        after_help = "A former member of an array with a write-intent bitmap gets no more than what it missed. One that was written to \
without the others, or is fresher than they are, is refused: open it alone (`?degraded`) to see what it holds, then \
--force adds it as a new one, and what only it holds is lost.

Examples:
  undercroft md add md:a.img,c.img /dev/sdd
  undercroft md add --member-size 1G md:. new.img"
    )]
    Add {
        #[command(flatten)]
        array: ArrayArgs,
        #[command(flatten)]
        new: NewMemberArgs,
        /// Disk images or block devices; a file that is not there is made with --member-size
        #[arg(required = true, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
        members: Vec<OsString>,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Copy a member to another device, which then takes its place
    #[command(
        long_flag_alias = "replace",
        after_help = "The old member stays in the array until the new one is complete.

Examples:
  undercroft md replace md:. b.img --with new.img --member-size 1G
  undercroft md replace md:. 1"
    )]
    Replace {
        #[command(flatten)]
        array: ArrayArgs,
        /// The member, by name or by number
        #[arg(value_name = "MEMBER", value_hint = ValueHint::FilePath)]
        member: OsString,
        /// What takes its place: a spare of the array or another device; any spare by default
        #[arg(long, value_name = "NEW", value_hint = ValueHint::FilePath)]
        with: Option<OsString>,
        #[command(flatten)]
        new: NewMemberArgs,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Compare the redundancy with the data
    #[command(
        after_help = "Ends with 0 if all agrees, and with 5 if something does not. What cannot be read is made right from the rest, \
as Linux does; what differs is only counted.

Examples:
  undercroft md check md:a.img,b.img,c.img
  undercroft md check --json --speed 100M md:."
    )]
    Check {
        #[command(flatten)]
        array: ArrayArgs,
        /// Bytes a second at most: 100M
        #[arg(long, value_name = "SIZE")]
        speed: Option<String>,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Compare the redundancy with the data, and make it right
    #[command(
        after_help = "Parity is recomputed, and of copies the first is taken: Linux cannot tell either which of them was wrong.

Examples:
  undercroft md repair md:a.img,b.img,c.img"
    )]
    Repair {
        #[command(flatten)]
        array: ArrayArgs,
        /// Bytes a second at most: 100M
        #[arg(long, value_name = "SIZE")]
        speed: Option<String>,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Mark an array clean that was not stopped cleanly
    #[command(
        long_flag_alias = "stop",
        short_flag_alias = 'S',
        after_help = "No array goes on running when a command ends, so there is nothing to stop but what a crash left: the redundancy \
is made right (by the partial parity log, the write-intent bitmap, or a resync), members that were being filled are \
completed, and the superblocks say that the array is clean. Nothing happens to one that is.

Examples:
  undercroft md stop md:a.img,b.img,c.img"
    )]
    Stop {
        #[command(flatten)]
        array: ArrayArgs,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        json: JsonArg,
    },
}

/// An array that is there.
#[derive(Debug, Args)]
pub(crate) struct ArrayArgs {
    /// `md:MEMBER,MEMBER,...`, or `md:DIR` for the members in a directory
    #[arg(value_name = "ARRAY")]
    pub(crate) array: OsString,

    /// Go past the page cache of this machine (O_DIRECT)
    #[arg(long)]
    pub(crate) direct: bool,

    /// Read members that another program has locked, and take no lock; what is read may change meanwhile
    #[arg(long)]
    pub(crate) no_lock: bool,

    #[command(flatten)]
    pub(crate) danger: DangerArgs,
}

/// What may be overwritten or made.
#[derive(Debug, Args)]
pub(crate) struct NewMemberArgs {
    /// Size of members that are not there and are made: 10G, 512M, or a number of bytes
    #[arg(long, value_name = "SIZE")]
    pub(crate) member_size: Option<String>,

    /// Overwrite what is on the new members; not what is in use
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
}

/// What happens to work that takes long.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Leave long work to the next command or mount that opens the array for writing
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Bytes a second at most: 100M
    #[arg(long, value_name = "SIZE", conflicts_with = "no_wait")]
    pub(crate) speed: Option<String>,
}

/// A new array.
#[derive(Debug, Args)]
pub(crate) struct MdCreateArgs {
    /// Level: linear, 0 (stripe), 1 (mirror), 4, 5, 6 or 10
    #[arg(short, long)]
    pub(crate) level: String,

    /// Members with a role, `missing` ones too; all that are named, but for spares, by default
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) raid_devices: Option<u32>,

    /// So many of the members that are named are spares, the last ones
    #[arg(short = 'x', long, value_name = "COUNT", conflicts_with = "spare")]
    pub(crate) spare_devices: Option<String>,

    /// Size of a chunk: 64K, or without a unit in KiB; 512K by default
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) chunk: Option<String>,

    /// Layout
    #[arg(short = 'p', long)]
    pub(crate) layout: Option<String>,

    /// Name, at most 31 bytes
    #[arg(short = 'N', long)]
    pub(crate) name: Option<String>,

    /// Host that the array belongs to, put before the name
    #[arg(long, value_name = "HOST")]
    pub(crate) homehost: Option<String>,

    /// UUID; random by default
    #[arg(short, long)]
    pub(crate) uuid: Option<String>,

    /// Version of the superblocks: 1.0 (at the end), 1.1 (at the beginning), 1.2 (4 KiB from there; also `1`, `default`)
    #[arg(short = 'e', long, value_name = "VERSION", default_value = "1.2")]
    pub(crate) metadata: String,

    /// Write-intent bitmap
    #[arg(short, long, default_value = "none", value_parser = ["internal", "none"])]
    pub(crate) bitmap: String,

    /// What keeps the redundancy right over a crash; `bitmap` is the same as --bitmap internal
    #[arg(short = 'k', long, value_name = "POLICY", value_parser = ["resync", "bitmap", "ppl"])]
    pub(crate) consistency_policy: Option<String>,

    /// Space to use of each member: 10G, or without a unit in KiB; `max`, as much as the smallest has, by default
    #[arg(short = 'z', long, value_name = "SIZE")]
    pub(crate) size: Option<String>,

    /// Believe that the members agree with each other: all zero, for example
    #[arg(long)]
    pub(crate) assume_clean: bool,

    /// A spare; may be given several times
    #[arg(long, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
    pub(crate) spare: Vec<OsString>,

    #[command(flatten)]
    pub(crate) new: NewMemberArgs,

    /// As for mdadm: do not ask. The same as --force
    #[arg(short = 'R', long)]
    pub(crate) run: bool,

    #[command(flatten)]
    pub(crate) danger: DangerArgs,

    /// Disk images or block devices, in the order of their roles; a file that is not there is made with --member-size
    #[arg(required = true, value_name = "MEMBER", value_hint = ValueHint::FilePath)]
    pub(crate) members: Vec<OsString>,

    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}
