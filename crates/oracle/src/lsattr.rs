//! Generations and project ids, by way of lsattr: the system calls for them have no safe wrapper.

use std::path::Path;

use crate::manifest::{Identity, Manifest};
use crate::{Result, Tool};

/// Adds what lsattr says to every entry that it reaches: regular files and directories whose path fits into a
/// system call.
///
/// # Errors
/// lsattr is missing.
pub(crate) fn add_identities(root: &Path, manifest: &mut Manifest) -> Result<()> {
    // lsattr reports a failure for every link and device that it meets, and goes on.
    let lsattr = Tool::new("lsattr").args(["-R", "-a", "-p", "-v", "."]).current_dir(root).accept(&[0, 1]);
    for line in lsattr.run()?.split(|byte| *byte == b'\n') {
        if let Some((path, identity)) = parse(line)
            && let Some(entry) = manifest.entries.get_mut(path)
        {
            entry.identity = Some(identity);
        }
    }
    Ok(())
}

/// One line: project, generation, flags, path from ".". The flags have a fixed form, which keeps headings and
/// names with spaces apart from them.
fn parse(line: &[u8]) -> Option<(&[u8], Identity)> {
    let mut rest = line;
    let mut next = || {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let (word, tail) = rest.split_at(end);
        rest = &tail[1..];
        std::str::from_utf8(word).ok()
    };
    let project = next()?.parse().ok()?;
    let generation = next()?.parse().ok()?;
    let flags = next()?;
    let path = rest.strip_prefix(b"./")?;
    let known = flags.len() >= 20 && flags.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphabetic());
    // "./." and the like stand for directories that are listed elsewhere under their own name.
    let named = !path.ends_with(b"/.") && !path.ends_with(b"/..") && path != b"." && path != b"..";
    (known && named).then_some((path, Identity { generation, project }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lsattr_are_taken_apart() {
        let line = b"    7 2936218393 --------------e------- ./dir/a name";
        let wanted = Identity { generation: 2_936_218_393, project: 7 };
        assert_eq!(parse(line), Some((&b"dir/a name"[..], wanted)));
    }

    #[test]
    fn headings_and_dots_are_not_entries() {
        assert_eq!(parse(b"./dir:"), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"    0 1 --------------e------- ./dir/."), None);
    }
}
