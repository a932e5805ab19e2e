//! What is said of a command line that makes no sense.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::{Kind, Verdict};
use crate::failure::{Failure, print_failure};
use crate::text::names::safe;

/// Prints what is wrong with the command line, or the help that was asked for. `check` has e2fsck's exit code for it.
pub(crate) fn refuse(mut error: clap::Error) -> ExitCode {
    if let Some(failure) = unknown_type(&error).or_else(|| habit_of_mdadm(&error)) {
        print_failure(&failure);
        return failure.kind().into();
    }
    if error.kind() == ErrorKind::UnknownArgument {
        // That an option may be meant as a path is hardly ever what is meant.
        error.remove(ContextKind::Suggested);
    }
    // When neither output takes it there is no way left to report it.
    let _ = error.print();
    let command = std::env::args_os().skip(1).find(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    match u8::try_from(error.exit_code()) {
        Ok(0) => ExitCode::SUCCESS,
        _ if command.is_some_and(|command| command == "check" || command == "fsck") => {
            Kind::Check(Verdict::Usage).into()
        }
        _ => Kind::Usage.into(),
    }
}

/// Says of a type that `mkfs` does not make what makes it.
fn unknown_type(error: &clap::Error) -> Option<Failure> {
    let of_type = ContextValue::String("<TYPE>".to_owned());
    if error.kind() != ErrorKind::InvalidValue || error.get(ContextKind::InvalidArg) != Some(&of_type) {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidValue) else { return None };
    let shown = safe(typed.as_bytes());
    let what = format!("`mkfs` makes ext2, ext3, ext4 and xfs, and no \"{shown}\"");
    let advice = match typed.to_ascii_lowercase().as_str() {
        "xfs" | "ext2" | "ext3" | "ext4" => "it is written in small letters".to_owned(),
        "tmpfs" => "a tmpfs needs none: `undercroft mount tmpfs: DIR` makes it".to_owned(),
        "ext" => "the successor of ext is ext2".to_owned(),
        "swap" => "use `mkswap`".to_owned(),
        "qcow2" | "raw" => {
            format!("that is a format of images: `undercroft mkfs ext4 --format {typed} IMAGE`")
        }
        kind @ ("btrfs" | "vfat" | "fat" | "msdos" | "exfat" | "ntfs" | "f2fs" | "jfs" | "nilfs2"
        | "bcachefs" | "minix" | "udf" | "cramfs") => format!("use `mkfs.{kind}`"),
        "squashfs" => "use `mksquashfs`".to_owned(),
        "erofs" => "use `mkfs.erofs`".to_owned(),
        _ if typed.contains(['/', '.', ':']) || Path::new(typed).exists() => {
            format!("the type comes first: undercroft mkfs ext4 {shown}")
        }
        _ => "`undercroft mkfs --help` tells about them".to_owned(),
    };
    Some(Failure::new(Kind::Usage, what).advise(advice))
}

/// Says what takes the place of a mode or an order of mdadm's that `md` has not.
fn habit_of_mdadm(error: &clap::Error) -> Option<Failure> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_md = args.iter().find(|arg| !arg.as_encoded_bytes().starts_with(b"-"));
    if is_md.is_none_or(|command| command != "md") {
        return None;
    }
    let context = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(typed)) = error.get(context) else { return None };
    let shown = safe(typed.as_bytes());
    let advice = match typed.trim_start_matches('-') {
        "grow" | "G" => {
            "arrays keep their shape and size here: `mdadm --grow` changes them, and `undercroft grow` makes a filesystem larger"
        }
        "assemble" | "A" | "run" => {
            "nothing is to be assembled: `md:MEMBER,...` or `md:DIR` is an image for every command"
        }
        "scan" => "`md:DIR` is the array of all members in a directory",
        "monitor" | "follow" => "`undercroft mount --monitor CMD` tells of what happens to an array",
        "wait" => "a command waits for its work, unless `--no-wait` is given",
        "zero-superblock" => "`undercroft md remove --erase` takes a member out and erases that",
        "manage" | "misc" => "leave it out: the command comes first, and then the array and its members",
        array if error.kind() == ErrorKind::InvalidSubcommand && is_array(array) => {
            let mut behind = args.iter().skip_while(|arg| *arg != typed.as_str()).skip(1);
            let command = behind.find_map(|arg| command_of_mdadm(arg.to_str()?)).unwrap_or("status");
            return Some(
                Failure::new(Kind::Usage, format!("{shown} stands where a command of `md` is expected"))
                    .advise(format!("the command comes first: undercroft md {command} {shown}")),
            );
        }
        _ => return None,
    };
    Some(Failure::new(Kind::Usage, format!("there is no `undercroft md {shown}`")).advise(advice))
}

fn is_array(typed: &str) -> bool {
    typed.starts_with("md:") || typed.starts_with("/dev/") || Path::new(typed).is_dir()
}

/// What a mode of mdadm's is called here.
fn command_of_mdadm(typed: &str) -> Option<&'static str> {
    Some(match typed.trim_start_matches('-') {
        "fail" | "set-faulty" | "f" => "fail",
        "remove" | "r" => "remove",
        "add" | "re-add" | "a" => "add",
        "replace" => "replace",
        "detail" | "D" | "status" => "status",
        "stop" | "S" => "stop",
        "check" => "check",
        "repair" => "repair",
        _ => return None,
    })
}
