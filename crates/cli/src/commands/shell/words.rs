//! Takes a line apart into commands and words, as sh quotes them.
//!
//! Single quotes, double quotes, backslashes and comments mean what they mean in sh; `;` separates commands. What sh would
//! expand or carry out otherwise (`$`, patterns, pipes and so on) is refused unless it is quoted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::text::names::is_harmless;

/// The commands of a line, each at least one word; or what is wrong with it.
pub(super) fn commands(line: &[u8]) -> Result<Vec<Vec<OsString>>, String> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<Vec<u8>> = None;
    let mut rest = line.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b' ' | b'\t' | b'\r' | b';' | b'\n' => {
                if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
                    command.push(OsString::from_vec(word));
                }
                if matches!(byte, b';' | b'\n') {
                    commands.push(Vec::new());
                }
            }
            b'#' if word.is_none() => {
                rest.by_ref().find(|byte| *byte == b'\n');
                commands.push(Vec::new());
            }
            b'\'' => single_quoted(&mut rest, word.get_or_insert_default())?,
            b'"' => double_quoted(&mut rest, word.get_or_insert_default())?,
            b'\\' => match rest.next() {
                Some(b'\n') => {}
                Some(byte) => word.get_or_insert_default().push(byte),
                None => return Err("nothing follows the backslash at its end".to_owned()),
            },
            b'|' | b'&' | b'<' | b'>' | b'(' | b')' | b'$' | b'`' | b'*' | b'?' | b'[' => {
                let what = char::from(byte);
                return Err(format!(
                    "`{what}` does here nothing of what sh does; quote it where it stands for itself"
                ));
            }
            byte => word.get_or_insert_default().push(byte),
        }
    }
    if let (Some(word), Some(command)) = (word, commands.last_mut()) {
        command.push(OsString::from_vec(word));
    }
    commands.retain(|command| !command.is_empty());
    Ok(commands)
}

fn single_quoted(rest: &mut impl Iterator<Item = u8>, word: &mut Vec<u8>) -> Result<(), String> {
    for byte in rest {
        match byte {
            b'\'' => return Ok(()),
            byte => word.push(byte),
        }
    }
    Err("a single quote has no end".to_owned())
}

fn double_quoted(rest: &mut impl Iterator<Item = u8>, word: &mut Vec<u8>) -> Result<(), String> {
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return Ok(()),
            b'$' | b'`' => {
                let what = char::from(byte);
                return Err(format!("`{what}` stands for itself in single quotes only"));
            }
            b'\\' => match rest.next() {
                Some(byte @ (b'"' | b'\\' | b'$' | b'`')) => word.push(byte),
                Some(b'\n') => {}
                Some(byte) => word.extend([b'\\', byte]),
                None => break,
            },
            byte => word.push(byte),
        }
    }
    Err("a double quote has no end".to_owned())
}

/// A name as it is typed, so that it is one word; `None` for one that a terminal must not get.
pub(super) fn quoted(name: &str) -> Option<String> {
    if !is_harmless(name) {
        return None;
    }
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if " \t\\'\"#;|&<>()$`*?[".contains(character) {
            text.push('\\');
        }
        text.push(character);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{commands, quoted};

    fn words(line: &str) -> Vec<Vec<String>> {
        let words = |command: Vec<std::ffi::OsString>| {
            command.into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        commands(line.as_bytes()).unwrap().into_iter().map(words).collect()
    }

    #[test]
    fn words_are_those_of_sh() {
        for line in [
            "a b  c",
            "'a b' \"c d\" e\\ f",
            "a'b'\"c\"d",
            "'' \"\" x",
            "\"a\\\"b\\\\c\\$d\\x\"",
            "'a\\b' # comment",
            "a#b '#c'",
            "\\'\\\"\\\\",
            "a\\\nb",
        ] {
            let script = format!("printf '%s\\0' {line}\n");
            let said = Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
            let expected: Vec<_> =
                String::from_utf8(said).unwrap().split_terminator('\0').map(str::to_owned).collect();
            assert_eq!(words(line), [expected], "{line}");
        }
    }

    #[test]
    fn a_line_may_hold_several_commands() {
        assert_eq!(words("a b; c ;; d\n# no\ne").len(), 4);
        assert!(words("  # nothing").is_empty());
        for wrong in ["'a", "\"a", "a\\", "a | b", "a > b", "$x", "\"$x\"", "rm *", "a?"] {
            assert!(commands(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let odd = "a b'c\"d\\e$f*g#";
        assert_eq!(words(&quoted(odd).unwrap()), [[odd]]);
    }

    #[test]
    fn quoted_names_hold_no_control_characters() {
        for hostile in ["a\nget\rpayload", "\x1b[31m", "a\x7f", "\u{9b}31m", "\u{202e}gpj.exe", "\0"] {
            assert_eq!(quoted(hostile), None, "{hostile:?}");
        }
    }
}
