//! `acl`: shows and changes access control lists, in the words of getfacl and setfacl.

use std::io::Write;
use std::sync::Arc;

use undercroft_vfs::{Corruption, Error, FileType, Node, Vfs, XattrMode};

use super::acl_list::{GROUP, List, MASK, NO_ID, OTHER, OWNER, OWNING_GROUP, USER};
use super::session::CALLER;
use super::tree::each_with_below;
use super::{metadata, names};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::edit::{Acl, AclChange, AclEntry, Permissions, Subject};
use crate::text::out::Out;

/// An entry whose names were looked up.
struct Entry {
    default: bool,
    key: (u16, u32),
    permissions: Option<Permissions>,
}

pub(super) fn run(vfs: &Vfs, plan: &Acl) -> Result<Option<Kind>, Failure> {
    if plan.change.is_none() {
        let mut out = Out::stdout();
        let outcome =
            each_with_below(vfs, &plan.paths, true, plan.recursive, |path, node| match node.kind() {
                FileType::Symlink => Ok(()),
                _ => show(&mut out, path, node),
            })?;
        out.finish()?;
        return Ok(outcome);
    }
    let find = |entries: &[AclEntry]| {
        entries.iter().map(|entry| find_names(vfs, entry)).collect::<Result<Vec<_>, Failure>>()
    };
    let (remove, modify) = (find(&plan.change.remove)?, find(&plan.change.modify)?);
    each_with_below(vfs, &plan.paths, true, plan.recursive, |path, node| {
        if node.kind() == FileType::Symlink {
            return Ok(());
        }
        let is_directory = node.kind() == FileType::Directory;
        let only_default = remove.iter().chain(&modify).all(|entry| entry.default);
        if !is_directory && !plan.recursive && modify.iter().any(|entry| entry.default) {
            return Err(Failure::inside(path, &Error::NotDirectory)
                .advise("only a directory has a list that new files get"));
        }
        if !is_directory && only_default && !plan.change.remove_all {
            return Ok(());
        }
        change(vfs, node, &plan.change, &remove, &modify).map_err(|error| Failure::inside(path, &error))
    })
}

fn find_names(vfs: &Vfs, entry: &AclEntry) -> Result<Entry, Failure> {
    let key = match &entry.subject {
        Subject::Owner => (OWNER, NO_ID),
        Subject::User(id) => (USER, names::user(vfs, id)?),
        Subject::OwningGroup => (OWNING_GROUP, NO_ID),
        Subject::Group(id) => (GROUP, names::group(vfs, id)?),
        Subject::Mask => (MASK, NO_ID),
        Subject::Other => (OTHER, NO_ID),
    };
    Ok(Entry { default: entry.default, key, permissions: entry.permissions })
}

/// The list that governs access, and the one that new files of a directory get.
fn read(node: &Node) -> Result<(List, Option<List>), Error> {
    let list = |name: &[u8]| match node.xattr(name)? {
        None => Ok(None),
        Some(value) => List::parse(&value).map(Some).ok_or_else(|| {
            let detail = "the list cannot be read".into();
            let ino = Some(node.ino());
            Error::from(Corruption { structure: "access control list", ino, block: None, detail })
        }),
    };
    let [access, default] = metadata::LISTS;
    let from_mode = || List::of_mode(node.ownership().permissions);
    let default = if node.kind() == FileType::Directory { list(default)? } else { None };
    Ok((list(access)?.unwrap_or_else(from_mode), default))
}

fn change(
    vfs: &Vfs,
    node: &Arc<Node>,
    change: &AclChange,
    remove: &[Entry],
    modify: &[Entry],
) -> Result<(), Error> {
    let (access_before, default_before) = read(node)?;
    let is_directory = node.kind() == FileType::Directory;
    let mut access = access_before.clone();
    let mut default = default_before.clone();
    if change.remove_all {
        access = access.base();
    }
    if change.remove_all || change.remove_default {
        default = None;
    }
    let of = |entries: &[Entry], is_default: bool| entries.iter().any(|entry| entry.default == is_default);
    if is_directory && of(modify, true) && default.is_none() {
        default = Some(access.base());
    }
    edit(&mut access, false, remove, modify, is_directory);
    if let Some(default) = &mut default {
        edit(default, true, remove, modify, is_directory);
    }
    let [access_name, default_name] = metadata::LISTS;
    if access != access_before {
        vfs.set_xattr(&CALLER, node, access_name, &access.to_bytes(), XattrMode::Set)?;
    }
    match default {
        default if default == default_before => Ok(()),
        Some(default) => vfs.set_xattr(&CALLER, node, default_name, &default.to_bytes(), XattrMode::Set),
        None => vfs.remove_xattr(&CALLER, node, default_name),
    }
}

/// Removes and changes entries of a list, and lets the mask follow unless it is given.
fn edit(list: &mut List, is_default: bool, remove: &[Entry], modify: &[Entry], is_directory: bool) {
    let mine = |entries: &'_ [Entry]| -> Vec<usize> {
        (0..entries.len()).filter(|&at| entries[at].default == is_default).collect()
    };
    let (removed, modified) = (mine(remove), mine(modify));
    if removed.is_empty() && modified.is_empty() {
        return;
    }
    let executes = is_directory || list.any_executes();
    for at in removed {
        list.0.remove(&remove[at].key);
    }
    let mut has_mask = false;
    for at in modified {
        let Entry { key, permissions, .. } = &modify[at];
        let Some(Permissions { bits, execute_if_any }) = permissions else { continue };
        has_mask |= key.0 == MASK;
        list.0.insert(*key, bits | u16::from(*execute_if_any && executes));
    }
    if list.is_extended() && !has_mask {
        list.set_mask();
    }
}

fn show(out: &mut Out, path: &[u8], node: &Arc<Node>) -> Result<(), Failure> {
    let (access, default) = read(node).map_err(|error| Failure::inside(path, &error))?;
    let attr = node.ownership();
    out.write_all(b"# file: ")?;
    let path = out.name(path).into_owned();
    out.write_all(&path)?;
    writeln!(out, "\n# owner: {}\n# group: {}", attr.uid, attr.gid)?;
    if attr.permissions & 0o7000 != 0 {
        let flag = |bit, letter| if attr.permissions & bit != 0 { letter } else { '-' };
        writeln!(out, "# flags: {}{}{}", flag(0o4000, 's'), flag(0o2000, 's'), flag(0o1000, 't'))?;
    }
    let default = default.map(|default| default.lines("default:")).unwrap_or_default();
    for line in access.lines("").into_iter().chain(default) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    Ok(())
}
