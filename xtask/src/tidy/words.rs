//! Words that must not be there, or only where they are expected.
//!
//! The words are put together from parts, since this file is looked at like any other.

use super::Source;

/// Where `unsafe` may be written, and why it is needed there.
const UNSAFE: &[(&str, &str)] = &[
    ("crates/block/src/file/exclusion/loops.rs", "an ioctl that the system call crate does not know"),
    ("crates/block/src/file/ring.rs", "the kernel transfers requests' buffers by their addresses"),
    ("crates/block/src/image/on_device.rs", "methods of a trait that imago calls unsafe"),
    ("crates/block/src/image/ordered.rs", "methods of a trait that imago calls unsafe, which are passed on"),
    ("crates/fuse/src/transport/device.rs", "an ioctl that the system call crate does not know"),
    ("crates/fuse/src/transport/ring.rs", "the kernel reads and writes areas of memory by their addresses"),
    ("crates/oracle/src/operations/kernel.rs", "an ioctl that the system call crate does not know"),
    ("crates/oracle/tests/fuse_lost.rs", "descriptors of the server are broken on purpose"),
    ("crates/md/src/fan_out.rs", "helper threads borrow what their caller lends them"),
    ("crates/md/src/parity/wide.rs", "vector instructions, in loops that are bound by memory"),
    ("crates/sync/src/striped_rwlock.rs", "a lock cell"),
    ("crates/sync/src/prefetch.rs", "an instruction that the language does not have"),
    ("crates/vfs/src/name_table/leaf.rs", "readers without locks: what they reach is freed by epochs"),
];

/// Marks of unfinished or silenced code.
const UNFINISHED: &[(&str, &str)] = &[
    (concat!("to", "do!("), "unfinished code"),
    (concat!("unimple", "mented!("), "unfinished code"),
    (concat!("db", "g!("), "a debugging aid that was left behind"),
    (concat!("#[ign", "ore"), "a test that never runs"),
    (
        concat!("#[al", "low("),
        "a lint is silenced; `expect` with a reason says so when it is no longer needed",
    ),
    (
        concat!("#![al", "low("),
        "a lint is silenced; `expect` with a reason says so when it is no longer needed",
    ),
];

/// Hosts of package registries: what the project needs is found through the tools' own configuration.
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".com"),
    concat!("npmjs", ".org"),
    concat!("rubygems", ".org"),
    concat!("proxy.golang", ".org"),
];

pub(super) fn unfinished(source: &Source) -> Vec<String> {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate().filter(|(_, line)| code(line)) {
        for (word, what) in UNFINISHED.iter().filter(|(word, _)| line.contains(word)) {
            findings.push(source.at(number + 1, &format!("`{word}`: {what}")));
        }
    }
    findings
}

pub(super) fn unlisted_unsafe(source: &Source) -> Option<String> {
    if UNSAFE.iter().any(|(path, _)| source.path.as_os_str() == *path) {
        return None;
    }
    let number = source.text.lines().position(has_unsafe)?;
    Some(
        source.at(
            number + 1,
            "`unsafe` outside the modules that xtask/src/tidy/words.rs lists with their reason",
        ),
    )
}

/// Whether a line of code opens an unsafe block, function, trait or implementation, or allows one.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let openers =
        ["{", "fn", "impl", "trait", "extern"].map(|next| format!("{} {next}", concat!("uns", "afe")));
    openers.iter().any(|opener| code.contains(opener)) || code.contains(concat!("expect(uns", "afe_code"))
}

pub(super) fn forbidden(source: &Source) -> Vec<String> {
    // Cargo writes the lock file, and names the registry in it.
    if source.path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for host in HOSTS.iter().filter(|host| line.contains(*host)) {
            findings.push(source.at(number + 1, &format!("names the package registry {host}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn unsafe_is_found_in_code_and_not_in_comments() {
        assert!(has_unsafe(concat!("    let x = uns", "afe { y };")));
        assert!(!has_unsafe(concat!("// uns", "afe { y }")));
        assert!(!has_unsafe("deny(unsafe_code)"));
        let listed = source(UNSAFE[0].0, concat!("uns", "afe { y }"));
        assert_eq!(unlisted_unsafe(&listed), None);
    }

    #[test]
    fn forbidden_words_are_found_with_their_line() {
        let text = format!("one\ntwo {}", HOSTS[0]);
        assert_eq!(forbidden(&source("a.md", &text)).len(), 1);
        assert!(forbidden(&source("a.md", &text))[0].starts_with("a.md:2:"));
        assert!(forbidden(&source("Cargo.lock", &text)).is_empty());
    }

    #[test]
    fn unfinished_code_is_found() {
        assert_eq!(unfinished(&source("a.rs", &format!("fn f() {{ {}) }}", UNFINISHED[0].0))).len(), 1);
        assert!(unfinished(&source("a.rs", &format!("// {}", UNFINISHED[0].0))).is_empty());
    }
}
