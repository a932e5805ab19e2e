//! `xattr`: shows and changes extended attributes.

use std::io::{self, Write};
use std::sync::Arc;

use undercroft_vfs::{Error, Node, Vfs, XattrMode};

use super::session::CALLER;
use super::tree::each;
use super::write;
use crate::commands::stat::shown_value;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::edit::{Xattr, XattrUse, XattrValue};
use crate::text::names::safe;
use crate::text::out::Out;
use crate::xattrs::listed_xattr;

/// Longest value in bytes, as Linux has it.
const VALUE_MAX_BYTES: usize = 65536;

pub(super) fn run(vfs: &Vfs, plan: &Xattr) -> Result<Option<Kind>, Failure> {
    let stdin = match &plan.what {
        XattrUse::Set(_, XattrValue::Stdin) => write::whole_stdin(VALUE_MAX_BYTES)?,
        _ => Vec::new(),
    };
    let mut out = Out::stdout();
    let outcome = each(&plan.paths, |path| {
        let node = image::resolve(vfs, path, plan.follow)?;
        let inside = |error: Error| Failure::inside(path, &error);
        match &plan.what {
            XattrUse::List => list(&mut out, path, &node, plan.paths.len() > 1),
            XattrUse::Get(name) => get(vfs, path, &node, name),
            XattrUse::Set(name, value) => {
                let value = match value {
                    XattrValue::Given(value) => value,
                    XattrValue::Stdin => &stdin,
                };
                vfs.set_xattr(&CALLER, &node, name, value, XattrMode::Set).map_err(inside)
            }
            XattrUse::Remove(name) => vfs.remove_xattr(&CALLER, &node, name).map_err(inside),
        }
    })?;
    out.finish()?;
    Ok(outcome)
}

fn list(out: &mut Out, path: &[u8], node: &Arc<Node>, headed: bool) -> Result<(), Failure> {
    let mut names = node.list_xattrs().map_err(|error| Failure::inside(path, &error))?;
    names.sort_unstable();
    if headed {
        let path = out.name(path).into_owned();
        out.write_all(&path)?;
        writeln!(out, ":")?;
    }
    for name in names {
        let value = listed_xattr(node, &name).map_err(|error| Failure::inside(path, &error))?;
        writeln!(out, "{} = {}", safe(&name), shown_value(&name, &value))?;
    }
    Ok(())
}

/// Writes a value as it is.
fn get(vfs: &Vfs, path: &[u8], node: &Node, name: &[u8]) -> Result<(), Failure> {
    let inside = |error: Error| Failure::inside(path, &error);
    let value = vfs.xattr(&CALLER, node, name).map_err(inside)?;
    let value = value.ok_or_else(|| {
        Failure::new(Kind::Path, format!("{} has no attribute {}", safe(path), safe(name)))
            .advise("`xattr list` names those that it has")
    })?;
    let mut stdout = io::stdout();
    stdout.write_all(&value)?;
    Ok(stdout.flush()?)
}
