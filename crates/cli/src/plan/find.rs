//! What `find` means: an expression in find's words, taken apart.
//!
//! Tests are joined by `-a` (which may be left out), `-o`, `!` and parentheses, as in find. What find has and this program has
//! not is refused by name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use undercroft_vfs::{FileType, NewTime, Timestamp};

use super::edit::{Id, parse_mode, parse_time};
use super::{Base, InsidePath};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::pattern::Wildcard;
use crate::text::names::safe;
use crate::text::nearest::nearest;

/// Deeper than this no expression is nested.
const DEPTH_MAX: usize = 100;

/// What is looked for, and where.
#[derive(Debug)]
pub(crate) struct Find {
    pub(crate) starts: Vec<InsidePath>,
    pub(crate) expression: Expression,
    /// So many levels below a start is looked, at most.
    pub(crate) depth_max: u32,
    /// What is nearer to its start is passed.
    pub(crate) depth_min: u32,
    pub(crate) output: Output,
}

/// How what is found is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Lines,
    /// With a NUL byte behind each.
    Zeroes,
    Json,
}

#[derive(Debug)]
pub(crate) enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
    /// Does not go into a directory, and is true.
    Prune,
    /// Prints the path, and is true.
    Print,
}

#[derive(Debug)]
pub(crate) enum Test {
    Name(Wildcard),
    Path(Wildcard),
    /// Of one of these kinds.
    Kind(Vec<FileType>),
    /// In units of so many bytes, rounded up.
    Size(Number, u64),
    Empty,
    /// Modified after this file of the image.
    Newer(InsidePath),
    /// Modified after this time.
    NewerThan(Timestamp),
    /// Modified so many units of so many seconds ago, rounded down.
    Age(Number, i64),
    User(Id),
    Group(Id),
    Uid(Number),
    Gid(Number),
    Links(Number),
    Inode(Number),
    Permissions(Permissions, u16),
    /// Has an extended attribute of a name like this.
    Xattr(Wildcard),
    True,
    False,
}

/// `N`, `+N` or `-N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Is(u64),
    Above(u64),
    Below(u64),
}

impl Number {
    pub(crate) const fn has(self, number: u64) -> bool {
        match self {
            Self::Is(is) => number == is,
            Self::Above(limit) => number > limit,
            Self::Below(limit) => number < limit,
        }
    }

    /// The same of a number that may be negative.
    pub(crate) fn has_signed(self, number: i64) -> bool {
        u64::try_from(number).map_or(matches!(self, Self::Below(_)), |number| self.has(number))
    }

    fn parse(typed: &str) -> Option<Self> {
        let (kind, digits): (fn(u64) -> Self, _) = match typed.split_at_checked(1)? {
            ("+", rest) => (Self::Above, rest),
            ("-", rest) => (Self::Below, rest),
            _ => (Self::Is, typed),
        };
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok().map(kind))?
    }
}

/// How permissions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permissions {
    Exactly,
    /// `-MODE`: all of these bits.
    AllOf,
    /// `/MODE`: one of these bits.
    OneOf,
}

/// The words that take an argument, and those that take none.
const WITH_ARGUMENT: [&str; 22] = [
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-type",
    "-size",
    "-newer",
    "-newermt",
    "-mtime",
    "-mmin",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-links",
    "-inum",
    "-perm",
    "-xattr",
    "-maxdepth",
    "-mindepth",
    "-regextype",
];
const ALONE: [&str; 8] = ["-empty", "-print", "-print0", "-prune", "-true", "-false", "-xdev", "-mount"];

impl Find {
    /// Takes the words behind the image apart.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn from_words(words: Vec<OsString>, json: bool, base: &Base) -> Result<Self, Failure> {
        let begins = |word: &OsString| {
            let bytes = word.as_bytes();
            bytes.starts_with(b"-") && bytes.len() > 1 || matches!(bytes, b"!" | b"(")
        };
        let end = words.iter().position(begins).unwrap_or(words.len());
        let mut words = words;
        let rest = words.split_off(end);
        let output = if json { Output::Json } else { Output::Lines };
        let mut parser =
            Parser { words: rest, at: 0, depth_max: u32::MAX, depth_min: 0, output, prints: false, base };
        let mut expression = match parser.words.is_empty() {
            true => Expression::All(Vec::new()),
            false => parser.any(0)?,
        };
        if let Some(word) = parser.peek() {
            let what = format!("{} closes nothing", safe(word.as_bytes()));
            return Err(Failure::new(Kind::Usage, what));
        }
        if !parser.prints {
            expression = Expression::All(vec![expression, Expression::Print]);
        }
        let Parser { depth_max, depth_min, output, .. } = parser;
        let starts = if words.is_empty() { vec![base.here()] } else { base.paths(words)? };
        Ok(Self { starts, expression, depth_max, depth_min, output })
    }
}

struct Parser<'a> {
    words: Vec<OsString>,
    at: usize,
    depth_max: u32,
    depth_min: u32,
    output: Output,
    /// The expression says what is printed.
    prints: bool,
    base: &'a Base,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&OsStr> {
        self.words.get(self.at).map(OsString::as_os_str)
    }

    fn takes(&mut self, words: [&str; 2]) -> bool {
        let found = self.peek().is_some_and(|word| words.iter().any(|known| word == *known));
        self.at += usize::from(found);
        found
    }

    fn any(&mut self, depth: usize) -> Result<Expression, Failure> {
        let mut parts = vec![self.all(depth)?];
        while self.takes(["-o", "-or"]) {
            parts.push(self.all(depth)?);
        }
        Ok(Expression::Any(parts))
    }

    fn all(&mut self, depth: usize) -> Result<Expression, Failure> {
        let mut parts = vec![self.one(depth)?];
        loop {
            let joined = self.takes(["-a", "-and"]);
            match self.peek() {
                Some(word) if joined || !(word == "-o" || word == "-or" || word == ")") => {
                    parts.push(self.one(depth)?);
                }
                None if joined => return Err(self.missing("an expression")),
                _ => return Ok(Expression::All(parts)),
            }
        }
    }

    fn one(&mut self, depth: usize) -> Result<Expression, Failure> {
        if depth > DEPTH_MAX {
            return Err(Failure::new(Kind::Usage, "the expression is nested too deeply"));
        }
        if self.takes(["!", "-not"]) {
            return Ok(Expression::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes(["(", "("]) {
            let inner = self.any(depth + 1)?;
            return if self.takes([")", ")"]) { Ok(inner) } else { Err(self.missing("`)`")) };
        }
        let Some(word) = self.words.get(self.at).cloned() else { return Err(self.missing("an expression")) };
        self.at += 1;
        let name = word.to_string_lossy().into_owned();
        if ALONE.contains(&&name[..]) {
            return Ok(self.alone(&name));
        }
        if name == "--json" {
            self.output = Output::Json;
            return Ok(Expression::Test(Test::True));
        }
        if !WITH_ARGUMENT.contains(&&name[..]) || name == "-regextype" {
            return Err(unknown(&name));
        }
        let Some(argument) = self.words.get(self.at).cloned() else {
            return Err(self.missing(&format!("what {name} looks for")));
        };
        self.at += 1;
        let wrong = || {
            let shown = safe(argument.as_bytes());
            Failure::new(Kind::Usage, format!("{name} does not take \"{shown}\""))
        };
        self.test(&name, &argument, wrong).map(Expression::Test)
    }

    fn alone(&mut self, name: &str) -> Expression {
        match name {
            "-print" | "-print0" => {
                self.prints = true;
                if name == "-print0" && self.output == Output::Lines {
                    self.output = Output::Zeroes;
                }
                Expression::Print
            }
            "-prune" => Expression::Prune,
            "-empty" => Expression::Test(Test::Empty),
            "-false" => Expression::Test(Test::False),
            // An image is one filesystem.
            _ => Expression::Test(Test::True),
        }
    }

    fn test(&mut self, name: &str, argument: &OsStr, wrong: impl Fn() -> Failure) -> Result<Test, Failure> {
        let text = argument.to_str();
        let number = || text.and_then(Number::parse).ok_or_else(&wrong);
        Ok(match name {
            "-name" | "-iname" => Test::Name(Wildcard::parse(argument, name == "-iname")?),
            "-path" | "-ipath" | "-wholename" => Test::Path(Wildcard::parse(argument, name == "-ipath")?),
            "-xattr" => Test::Xattr(Wildcard::parse(argument, false)?),
            "-type" => Test::Kind(kinds(text.ok_or_else(&wrong)?).ok_or_else(&wrong)?),
            "-size" => {
                let (number, unit) = text.and_then(size).ok_or_else(&wrong)?;
                Test::Size(number, unit)
            }
            "-newer" => Test::Newer(self.base.path(argument.to_owned())?),
            "-newermt" => match parse_time(text.ok_or_else(&wrong)?)? {
                NewTime::At(time) | NewTime::NowAs(time) => Test::NewerThan(time),
                NewTime::Now => Test::NewerThan(Timestamp::from(std::time::SystemTime::now())),
            },
            "-mtime" => Test::Age(number()?, 86_400),
            "-mmin" => Test::Age(number()?, 60),
            "-user" => Test::User(Id::parse(argument.as_bytes())?),
            "-group" => Test::Group(Id::parse(argument.as_bytes())?),
            "-uid" => Test::Uid(number()?),
            "-gid" => Test::Gid(number()?),
            "-links" => Test::Links(number()?),
            "-inum" => Test::Inode(number()?),
            "-perm" => permissions(text.ok_or_else(&wrong)?)?,
            "-maxdepth" => {
                self.depth_max = text.and_then(|text| text.parse().ok()).ok_or_else(&wrong)?;
                Test::True
            }
            _ => {
                self.depth_min = text.and_then(|text| text.parse().ok()).ok_or_else(&wrong)?;
                Test::True
            }
        })
    }

    fn missing(&self, what: &str) -> Failure {
        let behind = match self.at.checked_sub(1).and_then(|at| self.words.get(at)) {
            Some(word) => format!(" behind {}", safe(word.as_bytes())),
            None => String::new(),
        };
        Failure::new(Kind::Usage, format!("{what} is missing{behind}"))
    }
}

fn kinds(typed: &str) -> Option<Vec<FileType>> {
    let kind = |letter: &str| {
        Some(match letter {
            "f" => FileType::Regular,
            "d" => FileType::Directory,
            "l" => FileType::Symlink,
            "p" => FileType::Fifo,
            "c" => FileType::CharDevice,
            "b" => FileType::BlockDevice,
            "s" => FileType::Socket,
            _ => return None,
        })
    };
    typed.split(',').map(kind).collect()
}

/// A number of units, blocks of 512 bytes unless said.
fn size(typed: &str) -> Option<(Number, u64)> {
    let unit = match typed.chars().last()? {
        'c' => 1,
        'w' => 2,
        'b' => 512,
        'k' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        _ => return Number::parse(typed).map(|number| (number, 512)),
    };
    Number::parse(&typed[..typed.len() - 1]).map(|number| (number, unit))
}

fn permissions(typed: &str) -> Result<Test, Failure> {
    let (how, mode) = match typed.split_at_checked(1) {
        Some(("-", rest)) => (Permissions::AllOf, rest),
        Some(("/", rest)) => (Permissions::OneOf, rest),
        _ => (Permissions::Exactly, typed),
    };
    Ok(Test::Permissions(how, parse_mode(mode)?.apply(0, false)))
}

fn unknown(word: &str) -> Failure {
    let shown = safe(word.as_bytes());
    let failure = Failure::new(Kind::Usage, format!("`find` has no {shown} here"));
    let known = WITH_ARGUMENT.iter().chain(&ALONE).copied().filter(|word| *word != "-regextype");
    match word {
        "-exec" | "-execdir" | "-ok" | "-delete" => failure.advise(
            "use what it prints: `find ... -print0` gives names to xargs -0, or to a script of `shell`",
        ),
        "-ls" | "-printf" | "-fprint" => failure.advise("`--json` prints all about what is found"),
        _ => match nearest(word, known) {
            Some(meant) => failure.advise(format!("did you mean {meant}")),
            None => failure.advise("`undercroft find --help` names the tests"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Base, Find, Number, Output, size};

    fn parse(line: &str) -> Result<Find, crate::failure::Failure> {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        Find::from_words(words, false, &Base::Root)
    }

    #[test]
    fn expressions_are_those_of_find() {
        for line in [
            "",
            "/etc usr",
            "-name *.c",
            "/ -type f,l -size +10k -o ! -user 5 -print0",
            "( -name a -o -name b ) -a -perm -u+x",
            "-not ( -newermt 2024-01-01 -mtime -5 )",
            "-maxdepth 2 -mindepth 1 -path */x/* -prune -o -print",
        ] {
            let found = parse(line);
            assert!(found.is_ok(), "{line}: {:?}", found.err().map(|failure| failure.to_string()));
        }
        assert_eq!(parse("-print0").unwrap().output, Output::Zeroes);
        assert_eq!(parse("etc -maxdepth 3").unwrap().depth_max, 3);
        assert_eq!(parse("etc").unwrap().starts, [b"/etc".to_vec()]);
        for (line, words) in [
            ("-exec rm", "xargs -0"),
            ("-nam x", "did you mean -name"),
            ("-name", "what -name looks for is missing"),
            ("( -name a", "`)` is missing"),
            ("-name a )", "closes nothing"),
            ("-type q", "-type does not take"),
            ("-size x", "-size does not take"),
            ("-perm 9", "is no mode"),
            ("-uid root", "-uid does not take \"root\""),
            ("-gid +", "-gid does not take"),
            ("-name a -o", "an expression is missing"),
            ("!", "an expression is missing"),
            ("-frobnicate", "names the tests"),
        ] {
            let failure = parse(line).unwrap_err().to_string();
            assert!(failure.contains(words), "{line}: {failure}");
        }
        let nested = "( ".repeat(300) + "-true" + &" )".repeat(300);
        assert!(parse(&nested).unwrap_err().to_string().contains("too deeply"));
    }

    #[test]
    fn numbers_have_signs_and_units() {
        assert_eq!(size("+3k"), Some((Number::Above(3), 1024)));
        assert_eq!(size("-3"), Some((Number::Below(3), 512)));
        assert_eq!(size("7c"), Some((Number::Is(7), 1)));
        assert_eq!((size("k"), size("+"), size("1x")), (None, None, None));
        assert!(Number::Above(3).has(4) && !Number::Above(3).has(3) && Number::Below(3).has(2));
        assert!(Number::Below(0).has_signed(-1) && !Number::Below(0).has_signed(0));
        assert!(!Number::Is(0).has_signed(-1) && !Number::Above(0).has_signed(-1));
        assert!(Number::Is(2).has_signed(2));
    }
}
