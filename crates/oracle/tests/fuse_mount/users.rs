//! What each user may see.

use crate::sample::{HELLO, NOBODY};
use crate::support::{Fixture, ServerProcess, cat, command};

const STRANGER: u32 = NOBODY - 1;

fn denied(user: u32, path: &std::path::Path) -> bool {
    cat(user, path).is_err_and(|complaint| complaint.contains("Permission denied"))
}

#[test]
fn a_mount_is_its_owners_alone() {
    let fixture = Fixture::new("");
    assert_eq!(cat(0, &fixture.path("hello")).unwrap(), HELLO);
    assert!(denied(NOBODY, &fixture.path("hello")));
    let server = ServerProcess::start(NOBODY, "");
    assert_eq!(cat(NOBODY, &server.dir().join("hello")).unwrap(), HELLO);
    assert!(denied(0, &server.dir().join("hello")));
    assert!(denied(STRANGER, &server.dir().join("hello")));
}

#[test]
fn with_allow_other_permissions_and_acls_decide() {
    let fixture = Fixture::new("allow_other");
    for user in [0, NOBODY, STRANGER] {
        assert_eq!(cat(user, &fixture.path("hello")).unwrap(), HELLO);
    }
    assert!(cat(0, &fixture.path("private")).is_ok());
    assert!(denied(NOBODY, &fixture.path("private")));
    assert_eq!(cat(NOBODY, &fixture.path("shared")).unwrap(), b"shared by acl");
    assert!(denied(STRANGER, &fixture.path("shared")));
}

#[test]
fn one_may_look_into_ones_own_image_without_checks() {
    let server = ServerProcess::start(NOBODY, "");
    assert!(denied(NOBODY, &server.dir().join("private")));
    drop(server);
    let server = ServerProcess::start(NOBODY, "no_default_permissions");
    assert_eq!(cat(NOBODY, &server.dir().join("private")).unwrap(), b"for root alone");
}

#[test]
fn names_of_trusted_attributes_are_for_root() {
    let fixture = Fixture::new("allow_other");
    let names = |user| {
        let mut getfattr = command(user, "getfattr");
        let output =
            getfattr.args(["--match=-", "--absolute-names"]).arg(fixture.path("noted")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(names(0).contains("trusted.secret"));
    let seen = names(NOBODY);
    assert!(seen.contains("user.note") && !seen.contains("trusted"), "{seen}");
}
