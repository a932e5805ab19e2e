//! `tree`: a directory and everything below it as a picture, or as a flat JSON array in the same order.
//!
//! The JSON is flat (each element has its `path` and `depth`) so that a deep tree needs no deep document.

use std::io::Write;

use serde::Serialize;
use undercroft_vfs::{FileType, Vfs};

use super::facts::Facts;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::plan::Format;
use crate::text::human;
use crate::text::names::Path;
use crate::text::out::{JsonArray, Out};
use crate::text::style;
use crate::walk::{Entry, Event, Order, Walk};

/// One name of the tree.
#[derive(Debug, Serialize)]
struct Leaf {
    #[serde(flatten)]
    path: Path,
    depth: u32,
    #[serde(flatten)]
    facts: Facts,
}

/// Draws `path`.
pub(crate) fn run(
    vfs: &Vfs,
    path: &[u8],
    levels: Option<u32>,
    all: bool,
    format: Format,
) -> Result<Option<Kind>, Failure> {
    let start = image::resolve(vfs, path, true)?;
    let facts = Facts::read(&start).map_err(|error| Failure::inside(path, &error))?;
    let mut picture = Picture::new(format);
    let is_directory = start.kind() == FileType::Directory;
    picture.root(path, facts)?;
    let mut complaints = Complaints::default();
    complaints.done_some();
    if is_directory {
        let mut walk = Walk::new(vfs, &start, path.to_vec(), Order::Name);
        if !all {
            walk = walk.without_hidden();
        }
        while let Some(event) = walk.next() {
            match event {
                Event::File(entry) => picture.entry(entry, &mut complaints)?,
                Event::Enter(entry) => {
                    let depth = entry.depth;
                    picture.open.push(entry.last);
                    picture.entry(entry, &mut complaints)?;
                    if levels.is_some_and(|levels| depth >= levels) {
                        picture.open.pop();
                        walk.pass_over();
                    }
                }
                Event::Leave => {
                    picture.open.pop();
                }
                Event::Trouble { path, error } => complaints.add(Failure::inside(&path, &error))?,
            }
        }
    }
    picture.finish()?;
    Ok(complaints.outcome())
}

struct Picture {
    out: Out,
    format: Format,
    array: JsonArray,
    /// For every directory on the way down: whether it was the last name of its own.
    open: Vec<bool>,
    directories: u64,
    files: u64,
}

impl Picture {
    fn new(format: Format) -> Self {
        Self {
            out: Out::stdout(),
            format,
            array: JsonArray::default(),
            open: Vec::new(),
            directories: 0,
            files: 0,
        }
    }

    fn root(&mut self, path: &[u8], facts: Facts) -> Result<(), Failure> {
        if self.format == Format::Json {
            let leaf = Leaf { path: path.to_vec().into(), depth: 0, facts };
            return self.array.element(&mut self.out, &leaf);
        }
        self.styled(path, &facts)?;
        self.out.write_all(b"\n")?;
        Ok(())
    }

    fn entry(&mut self, entry: Entry, complaints: &mut Complaints) -> Result<(), Failure> {
        let facts = match Facts::read(&entry.node) {
            Ok(facts) => facts,
            Err(error) => return complaints.add(Failure::inside(&entry.path, &error)),
        };
        match facts.attr.kind {
            FileType::Directory => self.directories += 1,
            _ => self.files += 1,
        }
        if self.format == Format::Json {
            let leaf = Leaf { path: entry.path.into(), depth: entry.depth, facts };
            return self.array.element(&mut self.out, &leaf);
        }
        // A directory has already pushed itself; the branch before its name belongs to its parents.
        let parents = entry.depth as usize - 1;
        let mut branch = String::new();
        for last in &self.open[..parents.min(self.open.len())] {
            branch.push_str(if *last { "    " } else { "│   " });
        }
        branch.push_str(if entry.last { "└── " } else { "├── " });
        let branch = self.out.palette.paint(style::DIM, &branch);
        self.out.write_all(branch.as_bytes())?;
        self.styled(&entry.name, &facts)?;
        if let Some(target) = &facts.target {
            let target = self.out.name(&target.raw).into_owned();
            self.out.write_all(b" -> ")?;
            self.out.write_all(&target)?;
        }
        self.out.write_all(b"\n")?;
        Ok(())
    }

    fn styled(&mut self, name: &[u8], facts: &Facts) -> Result<(), Failure> {
        let name = self.out.name(name).into_owned();
        let style = style::of_file(&facts.attr);
        if self.out.palette.colours {
            write!(self.out, "{style}")?;
            self.out.write_all(&name)?;
            write!(self.out, "{style:#}")?;
        } else {
            self.out.write_all(&name)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Failure> {
        if self.format == Format::Json {
            self.array.end(&mut self.out)?;
        } else {
            let directories = match self.directories {
                1 => "1 directory".to_owned(),
                many => format!("{} directories", human::count(many)),
            };
            writeln!(self.out, "\n{directories}, {}", human::counted(self.files, "file"))?;
        }
        self.out.finish()
    }
}
