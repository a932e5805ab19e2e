//! Extended attributes: modes, bounds, and random changes against a map.

use std::collections::BTreeMap;

use super::super::check::show;
use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT, user};
use crate::{Error, NewKind, NewObject, XattrMode};
use undercroft_block::testing::Rng;

const STEPS: usize = 1500;

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    if !on.profile.holds.xattrs {
        return Ok(());
    }
    refusals(on)?;
    against_a_map(on)
}

fn refusals(on: &mut Ground<'_>) -> Checked {
    let file = on.file(&on.top, "file")?;
    let object = NewObject { kind: NewKind::Symlink(b"x"), permissions: 0o777, umask: 0 };
    let link = on.vfs.create(&ROOT, &on.top, b"link", &object)?;
    on.vfs.set_xattr(&ROOT, &file, b"user.there", b"first", XattrMode::Create)?;
    let long = [b"user.", &[b'n'; 251][..]].concat();
    let longest = &long[..255];
    use XattrMode::{Create, Replace, Set};
    let rows: [(_, _, &[u8], usize, _, _); 13] = [
        (&file, ROOT, b"user.there", 1, Create, "Exists"),
        (&file, ROOT, b"user.missing", 1, Replace, "NoAttribute"),
        (&file, ROOT, b"user.large", 65_537, Set, "ValueTooLarge"),
        (&file, ROOT, &long, 1, Set, "NameTooLong"),
        (&file, ROOT, b"", 1, Set, "InvalidArgument"),
        (&file, ROOT, b"user.", 1, Set, "InvalidArgument"),
        (&file, ROOT, b"strange.name", 1, Set, "Unsupported"),
        (&file, ROOT, b"nonsense", 1, Set, "Unsupported"),
        (&link, ROOT, b"user.link", 1, Set, "NotPermitted"),
        (&file, user(), b"user.there", 1, Set, "PermissionDenied"),
        (&file, user(), b"trusted.there", 1, Set, "NotPermitted"),
        (&file, user(), b"security.there", 1, Set, "NotPermitted"),
        (&link, user(), b"trusted.there", 1, Set, "NotPermitted"),
    ];
    for (node, caller, name, len, mode, refusal) in rows {
        let answer = on.vfs.set_xattr(&caller, node, name, &vec![b'v'; len], mode);
        on.refused(|| format!("{} of {len} bytes by user {}", show(name), caller.uid), answer, refusal);
    }
    let removed = on.vfs.remove_xattr(&ROOT, &file, b"user.missing");
    on.refused(|| "removing what is missing".to_owned(), removed, "NoAttribute");
    on.equal(|| "names after refusals".to_owned(), &file.list_xattrs()?, &vec![b"user.there".to_vec()]);
    on.equal(|| "the value after refusals".to_owned(), &file.xattr(b"user.there")?, &Some(b"first".to_vec()));

    on.vfs.set_xattr(&ROOT, &file, longest, b"", Set)?;
    on.equal(|| "the longest name".to_owned(), &file.xattr(longest)?, &Some(Vec::new()));
    on.vfs.set_xattr(&ROOT, &link, b"trusted.link", b"of the link", Set)?;
    on.equal(|| "of a link".to_owned(), &link.xattr(b"trusted.link")?, &Some(b"of the link".to_vec()));
    let seen = on.vfs.xattr(&user(), &link, b"trusted.link")?;
    on.equal(|| "a trusted attribute to a user".to_owned(), &seen, &None);
    on.vfs.remove_xattr(&ROOT, &file, longest)?;
    on.vfs.remove_xattr(&ROOT, &file, b"user.there")?;
    on.equal(|| "names after removals".to_owned(), &file.list_xattrs()?, &Vec::new());
    Ok(())
}

fn against_a_map(on: &mut Ground<'_>) -> Checked {
    let file = on.file(&on.top, "model")?;
    let mut random = Rng::new(on.profile.seed);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in 0..STEPS {
        let space = ["user", "trusted", "security"][random.index(3)];
        let name = format!("{space}.{}", random.below(5)).into_bytes();
        let (len, byte) = (random.index(60), random.below(256) as u8);
        let value = vec![byte; len];
        let mode = [XattrMode::Set, XattrMode::Create, XattrMode::Replace][random.index(3)];
        let remove = random.below(4) == 0;
        let answer = if remove {
            on.vfs.remove_xattr(&ROOT, &file, &name)
        } else {
            on.vfs.set_xattr(&ROOT, &file, &name, &value, mode)
        };
        let expected = match (model.contains_key(&name), remove, mode) {
            (false, true, _) | (false, false, XattrMode::Replace) => "no attribute",
            (true, false, XattrMode::Create) => "exists",
            (_, true, _) => {
                model.remove(&name);
                "done"
            }
            _ => {
                model.insert(name.clone(), value);
                "done"
            }
        };
        let got = match answer {
            Ok(()) => "done",
            Err(Error::Exists) => "exists",
            Err(Error::NoAttribute) => "no attribute",
            Err(error) => return Err(error.into()),
        };
        on.equal(|| format!("step {step}: {} ({mode:?}, remove {remove})", show(&name)), &got, &expected);
        let mut names = file.list_xattrs()?;
        names.sort();
        let known: Vec<Vec<u8>> = model.keys().cloned().collect();
        on.equal(|| format!("names after step {step}"), &names, &known);
        let got = file.xattr(&name)?;
        on.equal(|| format!("{} after step {step}", show(&name)), &got.as_ref(), &model.get(&name));
    }
    Ok(())
}
