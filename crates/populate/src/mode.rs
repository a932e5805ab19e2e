//! Modes as chmod(1) and `tar --mode` have them: octal, or clauses of letters.
//!
//! Of directories, set-user-ID and set-group-ID stay unless they are mentioned, as with GNU chmod: in octal by five digits
//! or more. A clause that names no user leaves the bits of the usual umask, 022, whatever that of the process is.

use std::str::FromStr;

/// Bits that a clause without a user does not change.
const UMASK: u16 = 0o022;
const ALL: u16 = 0o7777;
const SET_ID: u16 = 0o6000;
const EXECUTE: u16 = 0o111;

/// How a mode changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Change>);

/// What is no change of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is neither an octal number nor a change such as u=rwX,go-w")]
pub struct NoMode;

/// One operator and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    operator: Operator,
    /// The bits of the users that are named; all of them if `masked`.
    users: u16,
    /// No user is named.
    masked: bool,
    bits: Bits,
    /// Set-ID bits of directories that are mentioned.
    mentioned: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    /// These, and execution too (`X`) if it is a directory or any user may execute it.
    Plain { bits: u16, execute_if_any: bool },
    /// What the users have at this place of the mode: shifted down by so many bits.
    Copy(u32),
}

impl ModeChange {
    /// The mode that comes of another.
    #[must_use]
    pub fn apply(&self, mode: u16, is_directory: bool) -> u16 {
        self.0.iter().fold(mode & ALL, |mode, change| change.apply(mode, is_directory))
    }
}

impl FromStr for ModeChange {
    type Err = NoMode;

    fn from_str(typed: &str) -> Result<Self, NoMode> {
        let changes = match typed.bytes().all(|byte| byte.is_ascii_digit()) {
            true => octal(typed).map(|change| vec![change]),
            false => typed.split(',').map(clause).collect::<Option<Vec<_>>>().map(|clauses| clauses.concat()),
        };
        changes.filter(|changes| !changes.is_empty()).map(Self).ok_or(NoMode)
    }
}

impl Change {
    fn apply(&self, mode: u16, is_directory: bool) -> u16 {
        let stays = if is_directory { SET_ID & !self.mentioned } else { 0 };
        let bits = match self.bits {
            Bits::Plain { bits, execute_if_any } => {
                let executes = execute_if_any && (is_directory || mode & EXECUTE != 0);
                bits | if executes { EXECUTE } else { 0 }
            }
            Bits::Copy(shift) => {
                let copied = (mode >> shift) & 0o7;
                copied << 6 | copied << 3 | copied
            }
        };
        let changes = if self.masked { !UMASK } else { self.users };
        let bits = bits & changes & !stays;
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => (mode & (!self.users | stays)) | bits,
        }
    }
}

fn octal(typed: &str) -> Option<Change> {
    let bits = u16::from_str_radix(typed, 8).ok().filter(|bits| *bits <= ALL)?;
    let mentioned = if typed.len() > 4 { SET_ID } else { bits & SET_ID };
    let bits = Bits::Plain { bits, execute_if_any: false };
    Some(Change { operator: Operator::Set, users: ALL, masked: false, bits, mentioned })
}

fn clause(typed: &str) -> Option<Vec<Change>> {
    let start = typed.find(['+', '-', '='])?;
    let mut users = 0;
    for user in typed[..start].chars() {
        users |= match user {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => ALL,
            _ => return None,
        };
    }
    let masked = start == 0;
    let users = if masked { ALL } else { users };
    let mut changes = Vec::new();
    let mut rest = &typed[start..];
    while let Some(operator) = rest.chars().next() {
        let operator = match operator {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        let operand = &rest[1..end];
        rest = &rest[end..];
        if operand.starts_with(|first: char| first.is_ascii_digit()) {
            // Behind users it is none, and nothing follows it.
            let change = octal(operand).filter(|_| masked && rest.is_empty())?;
            changes.push(Change { operator, mentioned: SET_ID, ..change });
            continue;
        }
        let (bits, mentioned) = permissions(operand)?;
        changes.push(Change { operator, users, masked, bits, mentioned: mentioned & users });
    }
    Some(changes)
}

/// The bits behind an operator, and the set-ID bits that they mention.
fn permissions(typed: &str) -> Option<(Bits, u16)> {
    match typed {
        "u" => return Some((Bits::Copy(6), 0)),
        "g" => return Some((Bits::Copy(3), 0)),
        "o" => return Some((Bits::Copy(0), 0)),
        _ => {}
    }
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in typed.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= EXECUTE,
            'X' => execute_if_any = true,
            's' => bits |= SET_ID,
            't' => bits |= 0o1000,
            _ => return None,
        }
    }
    Some((Bits::Plain { bits, execute_if_any }, bits & SET_ID))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::ModeChange;

    #[test]
    fn modes_are_those_of_chmod() {
        let dir = tempfile::tempdir().unwrap();
        let (file, directory) = (dir.path().join("f"), dir.path().join("d"));
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&directory).unwrap();
        let typed = [
            "755",
            "0",
            "4755",
            "00755",
            "u+x",
            "go-rwx",
            "a=r",
            "u=rwX,go=rX",
            "+x",
            "-w",
            "=rw",
            "u+s",
            "g-s",
            "ug+s",
            "+t",
            "o=u",
            "g=o-w",
            "u+rw-x",
            "a-x+X",
            "u=",
            "=775",
            "+22",
            "-22",
            "+x=775",
            "+s",
            "=",
            "g=u,u=o",
            "a+X",
            "ug=rs",
        ];
        for typed in typed {
            let mode: ModeChange = typed.parse().unwrap();
            for before in [0o0, 0o644, 0o755, 0o7777, 0o6700, 0o2750, 0o1111] {
                for (path, is_directory) in [(&file, false), (&directory, true)] {
                    std::fs::set_permissions(path, PermissionsExt::from_mode(before)).unwrap();
                    let changed = Command::new("sh")
                        .args(["-c", "umask 022; exec chmod -- \"$1\" \"$2\"", "sh", typed])
                        .arg(path)
                        .output()
                        .unwrap();
                    // `chmod -w` complains where the umask keeps bits that it names no user for, and does it.
                    let told = String::from_utf8_lossy(&changed.stderr);
                    assert!(!told.contains("invalid mode"), "{told}");
                    let after = std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
                    let ours = u32::from(mode.apply(u16::try_from(before).unwrap(), is_directory));
                    assert_eq!(format!("{ours:o}"), format!("{after:o}"), "{typed} on {before:o} {path:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for wrong in [
            "",
            "8",
            "77777",
            "x",
            "u",
            "u+q",
            "z+x",
            "u+x,",
            ",",
            "+x,,",
            "rwxr-xr-x",
            "u+22",
            "+22-x",
            "=8",
        ] {
            assert!(wrong.parse::<ModeChange>().is_err(), "{wrong}");
            let chmod = Command::new("chmod").args(["--", wrong, "/dev/null"]).output().unwrap();
            assert!(!chmod.status.success(), "{wrong}");
        }
    }
}
