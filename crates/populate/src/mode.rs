//! Changes of permission bits, as chmod(1) and `tar --mode` write them: `0644`, `u=rwX,go-w`, `a+X`.

use std::str::FromStr;

/// Permission bits that are set, or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Step>);

/// What is no change of permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is neither an octal number nor a change such as u=rwX,go-w")]
pub struct NoMode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// The bits of those that it is about.
    of: u16,
    operator: Operator,
    bits: u16,
    /// `X`: to search directories, and to execute what some user may execute already.
    execute_if_any: bool,
    /// The bits that another class has (`g=u`), as the shift to its lowest bit.
    like: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

impl ModeChange {
    /// The bits that come of `permissions`.
    #[must_use]
    pub fn apply(&self, permissions: u16, is_directory: bool) -> u16 {
        self.0.iter().fold(permissions & 0o7777, |bits, step| step.apply(bits, is_directory))
    }
}

impl Step {
    fn apply(self, permissions: u16, is_directory: bool) -> u16 {
        let mut bits = self.bits;
        if self.execute_if_any && (is_directory || permissions & 0o111 != 0) {
            bits |= 0o111;
        }
        if let Some(shift) = self.like {
            bits |= (permissions >> shift & 7) * 0o111;
        }
        let bits = bits & self.of;
        match self.operator {
            Operator::Add => permissions | bits,
            Operator::Remove => permissions & !bits,
            // A directory's set-ID bits stay unless they are named, as GNU's chmod has it.
            Operator::Set if is_directory => permissions & (!self.of | 0o6000) | bits,
            Operator::Set => permissions & !self.of | bits,
        }
    }
}

impl FromStr for ModeChange {
    type Err = NoMode;

    fn from_str(text: &str) -> Result<Self, NoMode> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok().filter(|&bits| bits <= 0o7777).ok_or(NoMode)?;
            let all = Step { of: 0o7777, operator: Operator::Set, bits, execute_if_any: false, like: None };
            // Said in whole, these bits go from directories too.
            let first = Step { operator: Operator::Remove, bits: 0o7777, ..all };
            return Ok(Self(vec![first, all]));
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let end = clause.find(['+', '-', '=']).ok_or(NoMode)?;
            let (who, mut actions) = clause.split_at(end);
            let mut of = 0;
            for class in who.chars() {
                of |= match class {
                    'u' => 0o4700,
                    'g' => 0o2070,
                    'o' => 0o1007,
                    'a' => 0o7777,
                    _ => return Err(NoMode),
                };
            }
            if who.is_empty() {
                of = 0o7777;
            }
            while let Some(operator) = actions.chars().next() {
                let operator = match operator {
                    '+' => Operator::Add,
                    '-' => Operator::Remove,
                    _ => Operator::Set,
                };
                let rest = &actions[1..];
                let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
                let step = Step { of, operator, bits: 0, execute_if_any: false, like: None };
                steps.push(permissions(step, &rest[..end])?);
                actions = &rest[end..];
            }
        }
        Ok(Self(steps))
    }
}

/// The letters behind an operator.
fn permissions(mut step: Step, letters: &str) -> Result<Step, NoMode> {
    for letter in letters.chars() {
        match letter {
            'r' => step.bits |= 0o444,
            'w' => step.bits |= 0o222,
            'x' => step.bits |= 0o111,
            's' => step.bits |= 0o6000,
            't' => step.bits |= 0o1000,
            'X' => step.execute_if_any = true,
            'u' if letters.len() == 1 => step.like = Some(6),
            'g' if letters.len() == 1 => step.like = Some(3),
            'o' if letters.len() == 1 => step.like = Some(0),
            _ => return Err(NoMode),
        }
    }
    // The sticky bit belongs to no class but all.
    if step.bits & 0o1000 != 0 && step.of & 0o1000 == 0 {
        step.bits &= !0o1000;
    }
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As GNU's chmod 9.1 changed a file and a directory.
    #[test]
    fn bits_change_as_by_chmod() {
        for (change, before, file, directory) in [
            ("644", 0o7777, 0o644, 0o644),
            ("02755", 0o0, 0o2755, 0o2755),
            ("u=rwX,go=rX", 0o600, 0o644, 0o755),
            ("u=rwX,go=rX", 0o700, 0o755, 0o755),
            ("go-w", 0o666, 0o644, 0o644),
            ("a+X", 0o600, 0o600, 0o711),
            ("+x", 0o600, 0o711, 0o711),
            ("g=u", 0o640, 0o660, 0o660),
            ("o=", 0o777, 0o770, 0o770),
            ("u+s,g+s", 0o755, 0o6755, 0o6755),
            ("u-s", 0o6755, 0o2755, 0o2755),
            ("+t", 0o755, 0o1755, 0o1755),
            ("u=r", 0o4755, 0o455, 0o4455),
            ("u+r-w+x", 0o200, 0o500, 0o500),
        ] {
            let change: ModeChange = change.parse().unwrap();
            assert_eq!(change.apply(before, false), file, "{change:?} of a file");
            assert_eq!(change.apply(before, true), directory, "{change:?} of a directory");
        }
        for wrong in ["", "8", "10000", "u", "u=z", "z=r", "u=rg", "u=r,"] {
            assert!(wrong.parse::<ModeChange>().is_err(), "{wrong}");
        }
    }
}
