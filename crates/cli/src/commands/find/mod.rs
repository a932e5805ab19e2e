//! `find`: prints the paths of an image that an expression is true of.
//!
//! Directories come before what is in them, names in the order of their bytes.

mod evaluate;

use std::io::Write;
use std::sync::Arc;

use serde::Serialize;
use undercroft_vfs::{FileType, Node, Vfs};

use self::evaluate::{Candidate, Evaluation, Verdict};
use super::facts::Facts;
use crate::exit::Kind;
use crate::failure::{Complaints, Failure};
use crate::image;
use crate::plan::find::{Find, Output};
use crate::text::names::Path;
use crate::text::out::{JsonArray, Out};
use crate::walk::{Event, Order, Walk};

/// What was found.
#[derive(Debug, Serialize)]
struct Found {
    #[serde(flatten)]
    path: Path,
    #[serde(flatten)]
    facts: Facts,
}

struct Printer {
    out: Out,
    output: Output,
    array: JsonArray,
}

/// Looks below each start.
pub(crate) fn run(vfs: &Vfs, plan: &Find) -> Result<Option<Kind>, Failure> {
    let evaluation = Evaluation::prepare(vfs, plan)?;
    let mut printer = Printer { out: Out::stdout(), output: plan.output, array: JsonArray::default() };
    let mut complaints = Complaints::default();
    for start in &plan.starts {
        match image::resolve(vfs, start, false) {
            Ok(node) => {
                complaints.done_some();
                below(vfs, plan, start, &node, &evaluation, &mut printer, &mut complaints)?;
            }
            Err(failure) => complaints.add(failure)?,
        }
    }
    if plan.output == Output::Json {
        printer.array.end(&mut printer.out)?;
    }
    printer.out.finish()?;
    Ok(complaints.outcome())
}

fn below(
    vfs: &Vfs,
    plan: &Find,
    start: &[u8],
    node: &Arc<Node>,
    evaluation: &Evaluation<'_>,
    printer: &mut Printer,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    let mut judge = |path: &[u8], node: &Arc<Node>, depth: u32| {
        if depth < plan.depth_min {
            return Ok(false);
        }
        let Verdict { prints, prunes } =
            evaluation.judge(&Candidate { path, node }).map_err(|error| Failure::inside(path, &error))?;
        (0..prints).try_for_each(|_| printer.print(path, node))?;
        Ok(prunes)
    };
    let is_pruned = match judge(start, node, 0) {
        Ok(is_pruned) => is_pruned,
        Err(failure) => return complaints.add(failure),
    };
    if node.kind() != FileType::Directory || is_pruned || plan.depth_max == 0 {
        return Ok(());
    }
    let mut walk = Walk::new(vfs, node, start.to_vec(), Order::Name);
    while let Some(event) = walk.next() {
        match event {
            Event::File(entry) => {
                if let Err(failure) = judge(&entry.path, &entry.node, entry.depth) {
                    complaints.add(failure)?;
                }
            }
            Event::Enter(entry) => match judge(&entry.path, &entry.node, entry.depth) {
                Ok(is_pruned) => {
                    if is_pruned || entry.depth >= plan.depth_max {
                        walk.pass_over();
                    }
                }
                Err(failure) => complaints.add(failure)?,
            },
            Event::Leave => {}
            Event::Trouble { path, error } => complaints.add(Failure::inside(&path, &error))?,
        }
    }
    Ok(())
}

impl Printer {
    fn print(&mut self, path: &[u8], node: &Arc<Node>) -> Result<(), Failure> {
        match self.output {
            Output::Json => {
                let facts = Facts::read(node).map_err(|error| Failure::inside(path, &error))?;
                self.array.element(&mut self.out, &Found { path: path.to_vec().into(), facts })?;
            }
            Output::Zeroes => {
                self.out.write_all(path)?;
                self.out.write_all(b"\0")?;
            }
            Output::Lines => {
                let path = self.out.name(path).into_owned();
                self.out.write_all(&path)?;
                self.out.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}
