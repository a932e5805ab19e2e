//! Paths: dots, slashes, symbolic links and their limits.

use super::check::{Check, show};
use super::outcome::Finds;
use super::tree::Object;
use crate::{Credentials, Follow};

pub(super) fn check(check: &mut Check<'_>) {
    check_entries(check);
    if check.tree.get(b"links/chain 40").is_some() {
        check_links(check);
    }
}

/// Ways to write the path of each entry.
fn check_entries(check: &mut Check<'_>) {
    let caller = Credentials::root();
    let tree = check.tree;
    for entry in tree.entries.iter().skip(1) {
        let Some(node) = check.node(entry) else { continue };
        let plain = check.path(&entry.path);
        let is_directory = entry.object == Object::Directory;
        let is_link = matches!(entry.object, Object::Symlink(_));
        let slashes: Vec<u8> = plain
            .iter()
            .flat_map(|&b| if b == b'/' { &b"//./"[..] } else { std::slice::from_ref(&b) }.to_vec())
            .collect();
        let ways = [plain[1..].to_vec(), [b"/../..", &plain[..]].concat(), slashes];
        for way in ways.iter().filter(|way| way.len() <= 4095) {
            if let Some(got) = check.ok(|| show(way), check.vfs.resolve(&caller, way, Follow::NoFollow)) {
                check.equal(|| show(way), &got.ino(), &node.ino());
            }
        }
        if is_directory {
            for end in ["/", "//", "/.", "/./"] {
                let way = [&plain[..], end.as_bytes()].concat();
                if let Some(got) = check.ok(|| show(&way), check.vfs.resolve(&caller, &way, Follow::NoFollow))
                {
                    check.equal(|| show(&way), &got.ino(), &node.ino());
                }
            }
        } else if !is_link {
            for end in ["/", "/.", "/..", "/x"] {
                let way = [&plain[..], end.as_bytes()].concat();
                check.refused(|| show(&way), check.vfs.resolve(&caller, &way, Follow::Last), "NotDirectory");
            }
        }
        let missing = [&plain[..], if is_directory { b"/no such" } else { b" no such" }].concat();
        if entry.name().len() < 200 {
            check.refused(|| show(&missing), check.vfs.resolve(&caller, &missing, Follow::Last), "NotFound");
        }
    }
    for (path, refusal) in
        [(&b""[..], "NotFound"), (&[b'/'; 4096], "NameTooLong"), (b"/\0", "InvalidArgument")]
    {
        check.refused(|| show(path), check.vfs.resolve(&caller, path, Follow::Last), refusal);
    }
}

/// The links of the standard tree.
fn check_links(check: &mut Check<'_>) {
    use Follow::{Last, NoFollow};
    let found: [(&str, Follow, &str); 21] = [
        ("links/file", Last, "content/100"),
        ("links/file", NoFollow, "links/file"),
        ("links/directory", Last, "content"),
        ("links/directory", NoFollow, "links/directory"),
        ("links/directory/", NoFollow, "content"),
        ("links/directory/.", NoFollow, "content"),
        ("links/directory/..", NoFollow, ""),
        ("links/directory/100", NoFollow, "content/100"),
        ("links/directory slash", Last, "content"),
        ("links/directory slash", NoFollow, "links/directory slash"),
        ("links/directory slash/100", Last, "content/100"),
        ("links/through", Last, "content/100"),
        ("links/dot", Last, "links"),
        ("links/dot/dot/dot/file", Last, "content/100"),
        ("links/up", Last, ""),
        ("links/up/links/up/links", Last, "links"),
        ("links/58 bytes", Last, "content/100"),
        ("links/61 bytes", Last, "content/100"),
        ("links/1000 bytes", Last, "content/100"),
        // 39 links of the chain and the one it ends in: 40, as many as may be.
        ("links/chain 38", Last, "content/100"),
        ("links/chain 40", NoFollow, "links/chain 40"),
    ];
    let caller = Credentials::root();
    for (path, follow, expected) in found {
        let Some(target) = check.tree.get(expected.as_bytes()) else { continue };
        let Some(target) = check.node(target) else { continue };
        let what = || format!("{path} ({follow:?})");
        let got = check.vfs.resolve(&caller, check.path(path.as_bytes()), follow);
        if let Some(got) = check.ok(what, got) {
            check.equal(what, &got.ino(), &target.ino());
        }
    }
    for (path, follow, refusal) in [
        ("links/dangling", Last, "NotFound"),
        ("links/dangling/", NoFollow, "NotFound"),
        ("links/not UTF-8", Last, "NotFound"),
        ("links/self", Last, "TooManySymlinks"),
        ("links/self/", NoFollow, "TooManySymlinks"),
        ("links/ping", Last, "TooManySymlinks"),
        ("links/chain 39", Last, "TooManySymlinks"),
        ("links/file/", NoFollow, "NotDirectory"),
        ("links/file/x", NoFollow, "NotDirectory"),
        ("links/file slash", Last, "NotDirectory"),
    ] {
        let got = check.vfs.resolve(&caller, check.path(path.as_bytes()), follow);
        check.refused(|| format!("{path} ({follow:?})"), got, refusal);
    }
}
