//! File names are bytes, and may come from a hostile image.
//!
//! - On a terminal and in messages a name is shown escaped: control characters, characters that change the
//!   direction of text, bytes that are not UTF-8, and the backslash itself become `\n`, `\x1b`, `\u{202e}`, `\\`,
//!   so that no name can move the cursor, fake other output or be two names at once.
//! - In a pipe or file a name is its bytes.
//! - In JSON a name that is UTF-8 is a string in the field `name`. Any other has U+FFFD in `name` where bytes do
//!   not fit, and its exact bytes in hexadecimal in a second field `name_bytes`; the same for `path`, `target`.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A name that is safe to show to a person.
pub(crate) fn safe(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                c if c.is_ascii_control() => push_escape(&mut text, format_args!("\\x{:02x}", u32::from(c))),
                c if c.is_control() || is_invisible_or_directional(c) => {
                    push_escape(&mut text, format_args!("\\u{{{:x}}}", u32::from(c)));
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            push_escape(&mut text, format_args!("\\x{byte:02x}"));
        }
    }
    text
}

/// Whether a name has nothing that could move a cursor or reorder what is around it.
pub(crate) fn is_harmless(name: &str) -> bool {
    !name.chars().any(|c| c.is_control() || is_invisible_or_directional(c))
}

fn push_escape(text: &mut String, escape: std::fmt::Arguments<'_>) {
    text.write_fmt(escape).expect("writing to a String does not fail");
}

/// Characters of Unicode that show nothing, or reorder what is around them.
const fn is_invisible_or_directional(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Hexadecimal, two digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        push_escape(&mut text, format_args!("{byte:02x}"));
    }
    text
}

/// The exact bytes, when the lossy form is not exact.
fn exact(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| hex(bytes))
}

macro_rules! json_bytes {
    ($(#[$doc:meta])* $type:ident, $text:ident, $bytes:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) struct $type {
            $text: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            $bytes: Option<String>,
            /// What the text output shows.
            #[serde(skip)]
            pub(crate) raw: Vec<u8>,
        }

        impl From<Vec<u8>> for $type {
            fn from(raw: Vec<u8>) -> Self {
                Self { $text: String::from_utf8_lossy(&raw).into_owned(), $bytes: exact(&raw), raw }
            }
        }
    };
}

json_bytes!(
    /// A name in a directory.
    Name,
    name,
    name_bytes
);
json_bytes!(
    /// A path from the root of the image.
    Path,
    path,
    path_bytes
);
json_bytes!(
    /// Where a symbolic link points.
    Target,
    target,
    target_bytes
);
json_bytes!(
    /// The label of a filesystem.
    Label,
    label,
    label_bytes
);
json_bytes!(
    /// Where a filesystem was mounted.
    MountedOn,
    mounted_on,
    mounted_on_bytes
);
json_bytes!(
    /// The value of an extended attribute.
    Value,
    value,
    value_bytes
);

/// Appends a name to a path.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = path.to_vec();
    if !joined.is_empty() && joined.last() != Some(&b'/') {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

#[cfg(test)]
mod tests {
    use super::{Name, join, safe};

    #[test]
    fn what_could_move_a_cursor_is_escaped() {
        assert_eq!(safe(b"plain-\xc3\xa9.txt"), "plain-\u{e9}.txt");
        assert_eq!(safe(b"a\nb\x1b[31m\x7f\\"), "a\\nb\\x1b[31m\\x7f\\\\");
        assert_eq!(safe(b"caf\xe9"), "caf\\xe9");
        assert_eq!(safe("\u{202e}gpj.exe".as_bytes()), "\\u{202e}gpj.exe");
        assert_eq!(safe("\u{9b}31m".as_bytes()), "\\u{9b}31m");
    }

    #[test]
    fn json_keeps_the_exact_bytes_of_a_name_that_is_not_utf8() {
        let json = |bytes: &[u8]| serde_json::to_string(&Name::from(bytes.to_vec())).unwrap();
        assert_eq!(json(b"ok"), r#"{"name":"ok"}"#);
        assert_eq!(json(b"caf\xe9"), "{\"name\":\"caf\u{fffd}\",\"name_bytes\":\"636166e9\"}");
    }

    #[test]
    fn paths_join_with_one_slash() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"", b"b"), b"b");
    }
}
