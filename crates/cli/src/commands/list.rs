//! `ls`: the names in directories, and with `-R` in all directories below them.
//!
//! One directory is one [`Listing`]; JSON output is an array of them, also without `-R`.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use serde::Serialize;
use undercroft_vfs::{FileType, Node, Vfs};

use super::facts::Facts;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::plan::{Format, ListStyle};
use crate::text::human;
use crate::text::names::{Name, Path, join, safe};
use crate::text::out::{JsonArray, Out, columns};
use crate::text::style;
use crate::walk::{self, Order};

/// The names in one directory.
#[derive(Debug, Serialize)]
struct Listing {
    #[serde(flatten)]
    path: Path,
    entries: Vec<Row>,
}

/// A directory and its path.
type Subdirectory = (Arc<Node>, Vec<u8>);

/// One name.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    name: Name,
    #[serde(flatten)]
    facts: Facts,
}

/// Lists `paths`: first those that are no directories, then one directory after the other, in the
/// order of their names.
pub(crate) fn run(
    vfs: &Vfs,
    paths: &[Vec<u8>],
    style: ListStyle,
    format: Format,
) -> Result<Option<Kind>, Failure> {
    let mut complaints = Complaints::default();
    let mut files = Vec::new();
    let mut starts = Vec::new();
    for path in paths {
        // As ls has it: a link to a directory is the directory, unless -l or -d asks about the link.
        let found = image::resolve(vfs, path, !style.long && !style.itself).and_then(|node| {
            if node.kind() == FileType::Directory && !style.itself {
                starts.push((node, path.clone()));
                return Ok(());
            }
            let facts = Facts::read(&node).map_err(|error| Failure::inside(path, &error))?;
            files.push(Row { name: path.clone().into(), facts });
            Ok(())
        });
        match found {
            Ok(()) => complaints.done_some(),
            Err(failure) => complaints.add(failure)?,
        }
    }
    files.sort_by(|one, other| one.name.raw.cmp(&other.name.raw));
    starts.sort_by(|(_, one), (_, other)| one.cmp(other));
    let mut printer = Printer {
        out: Out::stdout(),
        style,
        format,
        array: JsonArray::default(),
        listings: 0,
        headings: style.recursive || paths.len() > 1,
    };
    printer.files(files)?;
    for (start, path) in starts {
        directories(vfs, start, path, &mut printer, &mut complaints)?;
    }
    printer.finish()?;
    Ok(complaints.outcome())
}

/// Lists a directory, and with `-R` those below it, parents first. A directory that a damaged or hostile image
/// gives a second name is listed once.
fn directories(
    vfs: &Vfs,
    start: Arc<Node>,
    path: Vec<u8>,
    printer: &mut Printer,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    let mut seen = HashSet::from([start.ino()]);
    let mut waiting = vec![(start, path)];
    while let Some((dir, path)) = waiting.pop() {
        let below = printer.directory(vfs, &dir, &path, complaints)?;
        if !printer.style.recursive {
            break;
        }
        for (node, path) in below.into_iter().rev() {
            if seen.insert(node.ino()) {
                waiting.push((node, path));
            } else {
                complaints.add(Failure::inside(&path, &walk::second_name(node.ino())))?;
            }
        }
    }
    Ok(())
}

struct Printer {
    out: Out,
    style: ListStyle,
    format: Format,
    array: JsonArray,
    listings: u64,
    /// Whether a directory's path stands before its names.
    headings: bool,
}

impl Printer {
    /// Lists what is no directory: as text together, as JSON one by one under its own path.
    fn files(&mut self, files: Vec<Row>) -> Result<(), Failure> {
        if self.format == Format::Json {
            for row in files {
                let path = row.name.raw.clone().into();
                self.array.element(&mut self.out, &Listing { path, entries: vec![row] })?;
            }
            return Ok(());
        }
        if !files.is_empty() {
            self.listings += 1;
            self.rows(&files)?;
        }
        Ok(())
    }

    /// Lists one directory and gives the directories in it.
    fn directory(
        &mut self,
        vfs: &Vfs,
        dir: &Node,
        path: &[u8],
        complaints: &mut Complaints,
    ) -> Result<Vec<Subdirectory>, Failure> {
        let (names, troubles) = walk::entries(vfs, dir, Order::Name, self.style.all);
        let mut entries = Vec::with_capacity(names.len());
        let mut below = Vec::new();
        for (name, ino) in names {
            let path = join(path, &name);
            let row = walk::node_of(vfs, dir, &name, ino).and_then(|node| Ok((Facts::read(&node)?, node)));
            match row {
                Ok((facts, node)) => {
                    entries.push(Row { name: name.into(), facts });
                    if node.kind() == FileType::Directory {
                        below.push((node, path));
                    }
                }
                Err(error) => complaints.add(Failure::inside(&path, &error))?,
            }
        }
        if troubles.is_empty() || !entries.is_empty() {
            complaints.done_some();
        }
        for error in troubles {
            complaints.add(Failure::inside(path, &error))?;
        }
        self.print(&Listing { path: path.to_vec().into(), entries })?;
        Ok(below)
    }

    fn print(&mut self, listing: &Listing) -> Result<(), Failure> {
        self.listings += 1;
        if self.format == Format::Json {
            return self.array.element(&mut self.out, listing);
        }
        if self.headings {
            if self.listings > 1 {
                self.out.write_all(b"\n")?;
            }
            let path = self.out.name(&listing.path.raw).into_owned();
            self.out.write_all(&path)?;
            self.out.write_all(b":\n")?;
        }
        self.rows(&listing.entries)
    }

    fn rows(&mut self, rows: &[Row]) -> Result<(), Failure> {
        if self.style.long {
            self.long(rows)
        } else if self.out.terminal && !self.style.one {
            self.grid(rows)
        } else {
            self.one_per_line(rows)
        }
    }

    fn one_per_line(&mut self, rows: &[Row]) -> Result<(), Failure> {
        for row in rows {
            if self.style.inode {
                write!(self.out, "{} ", row.facts.inode)?;
            }
            self.name(row)?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// As many columns as fit, filled downwards.
    fn grid(&mut self, rows: &[Row]) -> Result<(), Failure> {
        const GAP: usize = 2;
        let with_inode = self.style.inode;
        let prefix = |row: &Row| if with_inode { format!("{} ", row.facts.inode) } else { String::new() };
        let widths: Vec<usize> =
            rows.iter().map(|row| columns(&prefix(row)) + columns(&safe(&row.name.raw))).collect();
        let column_widths = |lines: usize| -> Vec<usize> {
            widths.chunks(lines.max(1)).map(|column| column.iter().copied().max().unwrap_or(0)).collect()
        };
        let fits = |lines: usize| {
            column_widths(lines).iter().map(|width| width + GAP).sum::<usize>() <= self.out.width + GAP
        };
        // The fewest lines that fit; doubling first keeps huge directories cheap.
        let mut lines = 1;
        while lines < rows.len() && !fits(lines) {
            lines = (lines + lines.div_ceil(8)).min(rows.len());
        }
        let layout = column_widths(lines);
        for line in 0..lines.min(rows.len()) {
            for (column, width) in layout.iter().enumerate() {
                let at = column * lines + line;
                let Some(row) = rows.get(at) else { break };
                let inode = prefix(row);
                self.out.write_all(inode.as_bytes())?;
                self.name(row)?;
                if at + lines < rows.len() {
                    write!(self.out, "{:pad$}", "", pad = width - widths[at] + GAP)?;
                }
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn long(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let cells: Vec<[String; 5]> = rows
            .iter()
            .map(|row| {
                let facts = &row.facts;
                let size = match facts.device {
                    Some(device) => format!("{}, {}", device.major, device.minor),
                    None if self.style.human => human::ls_size(facts.size_bytes),
                    None => facts.size_bytes.to_string(),
                };
                let inode = if self.style.inode { facts.inode.to_string() } else { String::new() };
                [inode, facts.links.to_string(), facts.uid.to_string(), facts.gid.to_string(), size]
            })
            .collect();
        let width = |column: usize| cells.iter().map(|cell| cell[column].len()).max().unwrap_or(0);
        let [w_inode, w_links, w_uid, w_gid, w_size] = [0, 1, 2, 3, 4].map(width);
        for (row, [inode, links, uid, gid, size]) in rows.iter().zip(&cells) {
            if self.style.inode {
                write!(self.out, "{inode:>w_inode$} ")?;
            }
            let mode = human::mode_letters(&row.facts.attr);
            let time = human::short_time(row.facts.attr.modified);
            write!(self.out, "{mode} {links:>w_links$} {uid:>w_uid$} {gid:>w_gid$} {size:>w_size$} {time} ")?;
            self.name(row)?;
            if let Some(target) = &row.facts.target {
                let target = self.out.name(&target.raw).into_owned();
                self.out.write_all(b" -> ")?;
                self.out.write_all(&target)?;
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    fn name(&mut self, row: &Row) -> Result<(), Failure> {
        let style = style::of_file(&row.facts.attr);
        if self.out.palette.colours && style != anstyle::Style::new() {
            write!(self.out, "{style}")?;
            let name = self.out.name(&row.name.raw).into_owned();
            self.out.write_all(&name)?;
            write!(self.out, "{style:#}")?;
        } else {
            let name = self.out.name(&row.name.raw).into_owned();
            self.out.write_all(&name)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Failure> {
        if self.format == Format::Json {
            self.array.end(&mut self.out)?;
        }
        self.out.finish()
    }
}
