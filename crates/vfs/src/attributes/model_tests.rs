//! Random schedules of a `chmod` against a `setfacl`, while another thread checks permissions.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p undercroft-vfs --lib attributes::model_tests
//!
//! Whatever the order, bits and list say the same in the end, and what the node remembers is what is stored. A
//! failure prints the schedule that leads to it; `shuttle::replay` runs it again.

use std::sync::Arc;

use undercroft_sync::thread;

use super::recorder::Subject;
use crate::acl::ACCESS_XATTR;
use crate::conformance::AclEntry::{Mask, Other, Owner, OwningGroup, User};
use crate::conformance::acl_bytes;
use crate::permission::check_access;
use crate::{Access, AttrChange, Credentials, FileType};

const SCHEDULES: usize = 5000;
/// Switches of priority that PCT places in a schedule.
const PCT_DEPTH: usize = 3;

#[test]
fn a_list_comes_while_permissions_change() {
    explore(|| race(None, Some(0o6)));
}

#[test]
fn a_list_becomes_another_while_permissions_change() {
    explore(|| race(Some(0o7), Some(0o6)));
}

#[test]
fn a_list_goes_while_permissions_change() {
    explore(|| race(Some(0o7), None));
}

fn explore(property: fn()) {
    shuttle::check_random(property, SCHEDULES);
    shuttle::check_pct(property, SCHEDULES, PCT_DEPTH);
}

/// A list with this mask.
fn list(mask: u16) -> Vec<u8> {
    acl_bytes(&[Owner(6), User(5, 6), OwningGroup(4), Mask(mask), Other(0)])
}

/// A file that has a list with one mask, or none, gets a list with another, or none.
fn race(before: Option<u16>, after: Option<u16>) {
    let file = Subject::new(FileType::Regular, 0o670, 7, 9);
    let file = Arc::new(match before {
        Some(mask) => file.with_xattr(ACCESS_XATTR, &list(mask)),
        None => file,
    });
    let start = |work: Box<dyn Fn(&Subject) + Send>| {
        let file = Arc::clone(&file);
        thread::spawn(move || work(&file))
    };
    let threads = [
        start(Box::new(|file| {
            let change = AttrChange { permissions: Some(0o640), ..AttrChange::default() };
            assert_eq!(file.set_attr(&Credentials::root(), change), "ok");
        })),
        start(Box::new(move |file| {
            let list = after.map(list).unwrap_or_default();
            assert_eq!(file.set_xattr(&Credentials::root(), ACCESS_XATTR, &list), "ok");
        })),
        start(Box::new(|file| {
            for _ in 0..2 {
                let _ = check_access(&Credentials::user(5, 5, vec![]), &file.node, Access::WRITE);
            }
        })),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
    let stored = file.stored(ACCESS_XATTR);
    assert_eq!(stored, after.map(|_| list(file.permissions() >> 3 & 0o7)), "the mask is the group bits");
    let known = file.node.acl_cell().get(file.node.ino(), || file.node.inode().xattr(ACCESS_XATTR)).unwrap();
    assert_eq!(known.map(|acl| acl.to_bytes()), stored);
}
