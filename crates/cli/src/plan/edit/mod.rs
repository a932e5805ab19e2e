//! What the edits of an image mean: paths are complete, and modes, times, sizes, owners and lists are read.

mod acl;
mod mode;
mod order;
mod owner;
mod put;
mod size;
mod time;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;
use undercroft_populate::ModeChange;
use undercroft_vfs::{DeviceNumber, NewKind, NewTime};

pub(crate) use acl::{AclChange, AclEntry, Permissions, Subject};
pub(crate) use mode::parse as parse_mode;
pub(crate) use order::refuse_image_behind;
pub(crate) use owner::{GroupSpec, Id, OwnerSpec};
pub(crate) use put::{Put, PutOwner, TarIn};
pub(crate) use size::SizeChange;
pub(crate) use time::parse as parse_time;

use super::{Base, InsidePath};
use crate::args::edit::{
    AclArgs, ChmodArgs, ChownArgs, CpArgs, EditCommand, LnArgs, MkdirArgs, MknodArgs, MvArgs, On, RmArgs,
    TouchArgs, TruncateArgs, WriteArgs, XattrCommand, XattrGetArgs, XattrListArgs, XattrSetArgs,
};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// One edit.
#[derive(Debug)]
pub(crate) enum Edit {
    Put(Put),
    TarIn(TarIn),
    Write(Write),
    Mkdir(Mkdir),
    Rm(Rm),
    Mv(Mv),
    Cp(Cp),
    Ln(Ln),
    Chmod(Chmod),
    Chown(Chown),
    Touch(Touch),
    Truncate(Truncate),
    Xattr(Xattr),
    Acl(Acl),
    Mknod(Mknod),
}

/// Standard input becomes the content of a file.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) path: InsidePath,
    pub(crate) append: bool,
    pub(crate) mode: Option<ModeChange>,
}

#[derive(Debug)]
pub(crate) struct Mkdir {
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) parents: bool,
    pub(crate) mode: Option<ModeChange>,
}

#[derive(Debug)]
pub(crate) struct Rm {
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) recursive: bool,
    pub(crate) force: bool,
    pub(crate) dir: bool,
}

#[derive(Debug)]
pub(crate) struct Mv {
    pub(crate) sources: Vec<InsidePath>,
    pub(crate) dest: InsidePath,
    pub(crate) no_clobber: bool,
    /// The destination is a name, also where it is a directory.
    pub(crate) as_name: bool,
}

#[derive(Debug)]
pub(crate) struct Cp {
    pub(crate) sources: Vec<InsidePath>,
    pub(crate) dest: InsidePath,
    pub(crate) recursive: bool,
    pub(crate) keep: CpKeep,
    pub(crate) follow: bool,
    pub(crate) no_clobber: bool,
    /// The destination is a name, also where it is a directory.
    pub(crate) as_name: bool,
}

/// What of the originals their copies get, besides the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CpKeep {
    /// The mode that a new file gets.
    Mode,
    /// Owner, mode with lists, times.
    Main,
    /// Extended attributes and hard links too.
    All,
}

#[derive(Debug)]
pub(crate) struct Ln {
    /// As typed.
    pub(crate) targets: Vec<Vec<u8>>,
    /// The same inside of the image.
    pub(crate) sources: Vec<InsidePath>,
    pub(crate) dest: InsidePath,
    pub(crate) symbolic: bool,
    pub(crate) force: bool,
    /// A symbolic link to a directory is replaced.
    pub(crate) no_dereference: bool,
    pub(crate) as_name: bool,
}

#[derive(Debug)]
pub(crate) struct Chmod {
    pub(crate) mode: ModeChange,
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) recursive: bool,
}

#[derive(Debug)]
pub(crate) struct Chown {
    pub(crate) owner: OwnerSpec,
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) recursive: bool,
    pub(crate) follow: bool,
}

#[derive(Debug)]
pub(crate) struct Touch {
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) time: TouchTime,
    pub(crate) access: bool,
    pub(crate) modification: bool,
    pub(crate) create: bool,
    pub(crate) follow: bool,
}

#[derive(Debug)]
pub(crate) enum TouchTime {
    Given(NewTime),
    /// The times of this file.
    Of(InsidePath),
}

#[derive(Debug)]
pub(crate) struct Truncate {
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) size: SizeChange,
    pub(crate) create: bool,
}

#[derive(Debug)]
pub(crate) struct Xattr {
    pub(crate) paths: Vec<InsidePath>,
    pub(crate) what: XattrUse,
    pub(crate) follow: bool,
}

/// What to do with extended attributes; names are full.
#[derive(Debug)]
pub(crate) enum XattrUse {
    List,
    Get(Vec<u8>),
    Set(Vec<u8>, XattrValue),
    Remove(Vec<u8>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum XattrValue {
    Given(Vec<u8>),
    Stdin,
}

#[derive(Debug)]
pub(crate) struct Acl {
    pub(crate) paths: Vec<InsidePath>,
    /// The lists are shown if nothing is changed.
    pub(crate) change: AclChange,
    pub(crate) recursive: bool,
}

#[derive(Debug)]
pub(crate) struct Mknod {
    pub(crate) path: InsidePath,
    pub(crate) kind: NewKind<'static>,
    pub(crate) mode: Option<ModeChange>,
}

impl Edit {
    /// What was typed, with the image that it is about.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn from_typed<I: Args>(typed: EditCommand<I>, base: &Base) -> Result<(I, Self), Failure> {
        Ok(match typed {
            EditCommand::Put(On { image, what }) => (image, Self::Put(Put::from_typed(what, base)?)),
            EditCommand::TarIn(On { image, what }) => (image, Self::TarIn(TarIn::from_typed(what, base)?)),
            EditCommand::Write(On { image, what }) => (image, Self::Write(Write::from_typed(what, base)?)),
            EditCommand::Mkdir(On { image, what }) => (image, Self::Mkdir(Mkdir::from_typed(what, base)?)),
            EditCommand::Rm(On { image, what }) => (image, Self::Rm(Rm::from_typed(what, base)?)),
            EditCommand::Mv(On { image, what }) => (image, Self::Mv(Mv::from_typed(what, base)?)),
            EditCommand::Cp(On { image, what }) => (image, Self::Cp(Cp::from_typed(what, base)?)),
            EditCommand::Ln(On { image, what }) => (image, Self::Ln(Ln::from_typed(what, base)?)),
            EditCommand::Chmod(On { image, what }) => (image, Self::Chmod(Chmod::from_typed(what, base)?)),
            EditCommand::Chown(On { image, what }) => (image, Self::Chown(Chown::from_typed(what, base)?)),
            EditCommand::Touch(On { image, what }) => (image, Self::Touch(Touch::from_typed(what, base)?)),
            EditCommand::Truncate(On { image, what }) => {
                (image, Self::Truncate(Truncate::from_typed(what, base)?))
            }
            EditCommand::Xattr { command } => {
                let (image, what) = Xattr::from_typed(command, base)?;
                (image, Self::Xattr(what))
            }
            EditCommand::Acl(On { image, what }) => (image, Self::Acl(Acl::from_typed(what, base)?)),
            EditCommand::Mknod(On { image, what }) => (image, Self::Mknod(Mknod::from_typed(what, base)?)),
        })
    }

    /// Whether it changes anything, or only shows.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Xattr(xattr) => matches!(xattr.what, XattrUse::Set(..) | XattrUse::Remove(_)),
            Self::Acl(acl) => !acl.change.is_none(),
            _ => true,
        }
    }

    /// Whether it takes standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        match self {
            Self::Write(_) => true,
            Self::TarIn(plan) => plan.is_stdin(),
            Self::Xattr(xattr) => matches!(xattr.what, XattrUse::Set(_, XattrValue::Stdin)),
            _ => false,
        }
    }
}

fn mode(typed: Option<&str>) -> Result<Option<ModeChange>, Failure> {
    typed.map(parse_mode).transpose()
}

/// All paths but the last, and the last.
fn split_last(base: &Base, paths: Vec<OsString>) -> Result<(Vec<InsidePath>, InsidePath), Failure> {
    let mut paths = base.paths(paths)?;
    match paths.pop() {
        Some(dest) if !paths.is_empty() => Ok((paths, dest)),
        _ => {
            Err(Failure::new(Kind::Usage, "where to is not said")
                .advise("name a destination behind the path"))
        }
    }
}

impl Write {
    fn from_typed(typed: WriteArgs, base: &Base) -> Result<Self, Failure> {
        let WriteArgs { path, append, mode: typed_mode } = typed;
        Ok(Self { path: base.path(path)?, append, mode: mode(typed_mode.as_deref())? })
    }
}

impl Mkdir {
    fn from_typed(typed: MkdirArgs, base: &Base) -> Result<Self, Failure> {
        let MkdirArgs { paths, parents, mode: typed_mode } = typed;
        Ok(Self { paths: base.paths(paths)?, parents, mode: mode(typed_mode.as_deref())? })
    }
}

impl Rm {
    fn from_typed(typed: RmArgs, base: &Base) -> Result<Self, Failure> {
        let RmArgs { paths, recursive, force, dir } = typed;
        Ok(Self { paths: base.paths(paths)?, recursive, force, dir })
    }
}

impl Mv {
    fn from_typed(typed: MvArgs, base: &Base) -> Result<Self, Failure> {
        let MvArgs { paths, no_clobber, no_target_directory, force: _ } = typed;
        let (sources, dest) = split_last(base, paths)?;
        let as_name = one_name("mv", sources.len(), no_target_directory)?;
        Ok(Self { sources, dest, no_clobber, as_name })
    }
}

fn one_name(command: &str, sources: usize, as_name: bool) -> Result<bool, Failure> {
    if as_name && sources > 1 {
        let what = format!("`{command} -T` takes two paths, and there are {}", sources + 1);
        return Err(Failure::new(Kind::Usage, what));
    }
    Ok(as_name)
}

impl Cp {
    fn from_typed(typed: CpArgs, base: &Base) -> Result<Self, Failure> {
        let recursive = typed.recursive || typed.archive;
        if base.is_root() {
            refuse_host_path(typed.paths.last().map_or(OsStr::new(""), OsString::as_os_str))?;
        }
        let (sources, dest) = split_last(base, typed.paths)?;
        let as_name = one_name("cp", sources.len(), typed.no_target_directory)?;
        let keep = match (typed.archive, typed.preserve) {
            (true, _) => CpKeep::All,
            (false, true) => CpKeep::Main,
            (false, false) => CpKeep::Mode,
        };
        let follow = !recursive && !typed.no_dereference;
        Ok(Self { sources, dest, recursive, keep, follow, no_clobber: typed.no_clobber, as_name })
    }
}

/// Earlier versions copied out of the image by this name.
fn refuse_host_path(dest: &OsStr) -> Result<(), Failure> {
    if dest.as_bytes().starts_with(b"/") {
        return Ok(());
    }
    let shown = safe(dest.as_bytes());
    let what = format!("`cp` copies within the image, and \"{shown}\" begins with no slash");
    let advice = format!("`undercroft get` copies out of the image; within it the path is /{shown}");
    Err(Failure::new(Kind::Usage, what).advise(advice))
}

impl Ln {
    fn from_typed(typed: LnArgs, base: &Base) -> Result<Self, Failure> {
        let LnArgs { paths, symbolic, force, no_dereference, no_target_directory } = typed;
        let targets: Vec<_> =
            paths.iter().take(paths.len() - 1).map(|path| path.as_bytes().to_vec()).collect();
        if symbolic && targets.iter().any(Vec::is_empty) {
            return Err(Failure::new(Kind::Usage, "a symbolic link cannot lead to an empty path"));
        }
        let (sources, dest) = split_last(base, paths)?;
        let as_name = one_name("ln", sources.len(), no_target_directory)?;
        Ok(Self { targets, sources, dest, symbolic, force, no_dereference, as_name })
    }
}

impl Chmod {
    fn from_typed(typed: ChmodArgs, base: &Base) -> Result<Self, Failure> {
        let ChmodArgs { mode, paths, recursive } = typed;
        Ok(Self { mode: parse_mode(&mode)?, paths: base.paths(paths)?, recursive })
    }
}

impl Chown {
    fn from_typed(typed: ChownArgs, base: &Base) -> Result<Self, Failure> {
        let ChownArgs { owner, paths, recursive, no_dereference, help: _ } = typed;
        let (owner, paths) = (OwnerSpec::parse(&owner)?, base.paths(paths)?);
        Ok(Self { owner, paths, recursive, follow: !no_dereference && !recursive })
    }
}

impl Touch {
    fn from_typed(typed: TouchArgs, base: &Base) -> Result<Self, Failure> {
        let TouchArgs { paths, date, reference, access, modification, no_create, no_dereference, help: _ } =
            typed;
        let time = match (date, reference) {
            (_, Some(path)) => TouchTime::Of(base.path(path)?),
            (Some(date), None) => TouchTime::Given(time::parse(&date)?),
            (None, None) => TouchTime::Given(NewTime::Now),
        };
        Ok(Self {
            paths: base.paths(paths)?,
            time,
            access: access || !modification,
            modification: modification || !access,
            create: !no_create && !no_dereference,
            follow: !no_dereference,
        })
    }
}

impl Truncate {
    fn from_typed(typed: TruncateArgs, base: &Base) -> Result<Self, Failure> {
        let TruncateArgs { paths, size, no_create } = typed;
        Ok(Self { paths: base.paths(paths)?, size: SizeChange::parse(&size)?, create: !no_create })
    }
}

impl Xattr {
    fn from_typed<I: Args>(typed: XattrCommand<I>, base: &Base) -> Result<(I, Self), Failure> {
        let one = |path, what, no_dereference: bool| {
            Ok::<_, Failure>(Self { paths: vec![base.path(path)?], what, follow: !no_dereference })
        };
        Ok(match typed {
            XattrCommand::List(On { image, what: XattrListArgs { paths, no_dereference } }) => {
                (image, Self { paths: base.paths(paths)?, what: XattrUse::List, follow: !no_dereference })
            }
            XattrCommand::Get(On { image, what: XattrGetArgs { path, name, no_dereference } }) => {
                (image, one(path, XattrUse::Get(name.into_vec()), no_dereference)?)
            }
            XattrCommand::Set(On { image, what: XattrSetArgs { path, name, value, no_dereference } }) => {
                (image, one(path, XattrUse::Set(name.into_vec(), xattr_value(&value)?), no_dereference)?)
            }
            XattrCommand::Remove(On { image, what: XattrGetArgs { path, name, no_dereference } }) => {
                (image, one(path, XattrUse::Remove(name.into_vec()), no_dereference)?)
            }
        })
    }
}

/// As setfattr reads it.
fn xattr_value(typed: &OsStr) -> Result<XattrValue, Failure> {
    let bytes = typed.as_bytes();
    let wrong = |what| Failure::new(Kind::Usage, format!("{} is no {what}", safe(bytes)));
    Ok(match bytes {
        b"-" => XattrValue::Stdin,
        [b'0', b'x' | b'X', digits @ ..] => {
            XattrValue::Given(hex(digits).ok_or_else(|| wrong("hexadecimal value"))?)
        }
        [b'0', b's' | b'S', text @ ..] => {
            XattrValue::Given(base64(text).ok_or_else(|| wrong("base64 value"))?)
        }
        text => XattrValue::Given(text.to_vec()),
    })
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let (groups, []) = text.as_chunks::<4>() else { return None };
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (at, group) in groups.iter().enumerate() {
        let is_last = at + 1 == groups.len();
        let mut value = 0;
        for (place, byte) in group.iter().enumerate() {
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                b'=' if is_last && padding <= 2 && place >= 4 - padding => 0,
                _ => return None,
            };
            value = value << 6 | u32::from(digit);
        }
        bytes.extend(&value.to_be_bytes()[1..]);
    }
    bytes.truncate(bytes.len() - padding);
    Some(bytes)
}

impl Acl {
    fn from_typed(typed: AclArgs, base: &Base) -> Result<Self, Failure> {
        let AclArgs { paths, modify, remove, remove_all, remove_default, default, recursive } = typed;
        let all = |typed: &[OsString], is_removal| {
            let lists = typed.iter().map(|typed| acl::entries(typed, is_removal, default));
            lists.collect::<Result<Vec<_>, _>>().map(|lists| lists.concat())
        };
        let change = AclChange {
            remove_all,
            remove_default,
            remove: all(&remove, true)?,
            modify: all(&modify, false)?,
        };
        Ok(Self { paths: base.paths(paths)?, change, recursive })
    }
}

impl Mknod {
    fn from_typed(typed: MknodArgs, base: &Base) -> Result<Self, Failure> {
        let MknodArgs { path, kind: letter, major, minor, mode: typed_mode } = typed;
        let device = || match (major, minor) {
            (Some(major), Some(minor)) => Ok(DeviceNumber { major, minor }),
            _ => Err(Failure::new(Kind::Usage, "a device node needs a major and a minor number")),
        };
        let kind = match &letter[..] {
            "b" => NewKind::BlockDevice(device()?),
            "c" | "u" => NewKind::CharDevice(device()?),
            _ if major.is_some() => {
                return Err(Failure::new(Kind::Usage, "only device nodes have numbers"));
            }
            "s" => NewKind::Socket,
            _ => NewKind::Fifo,
        };
        Ok(Self { path: base.path(path)?, kind, mode: mode(typed_mode.as_deref())? })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{XattrValue, base64, xattr_value};

    #[test]
    fn values_are_read_as_setfattr_reads_them() {
        let given = |typed: &str| xattr_value(OsStr::new(typed)).unwrap();
        assert_eq!(given("plain"), XattrValue::Given(b"plain".to_vec()));
        assert_eq!(given(""), XattrValue::Given(Vec::new()));
        assert_eq!(given("0x00fF"), XattrValue::Given(vec![0, 255]));
        assert_eq!(given("0sAP8="), XattrValue::Given(vec![0, 255]));
        assert_eq!(given("-"), XattrValue::Stdin);
        for wrong in ["0x0", "0xzz", "0sA", "0s=AAA", "0s===="] {
            assert!(xattr_value(OsStr::new(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(base64(b"c3RvbmU=").unwrap(), b"stone");
    }
}
