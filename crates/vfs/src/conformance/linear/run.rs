//! Makes a schedule from a seed, runs it, and has it checked.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_sync::atomic::{AtomicU64, Ordering};
use undercroft_sync::thread;

use super::history::Event;
use super::model::{Answer, Name, Operation, Refusal, State};
use super::search::{explain, wrong_listing};
use crate::conformance::remove::remove_all;
use crate::conformance::tree::mix;
use crate::{Credentials, DirOffset, FileType, Ino, NewObject, Node, RenameFlags, Result, Vfs};

/// How large a schedule is.
#[derive(Clone, Copy, Debug)]
pub struct LinearOptions {
    /// Threads, at most 8.
    pub threads: usize,
    /// Operations of each; all together at most 60.
    pub operations: usize,
    /// Different names.
    pub names: u8,
}

/// Runs the schedule of `seed` in an empty directory of a filesystem, removes what is left, and checks the answers.
///
/// # Errors
/// A sentence with the history, when no order explains it, or when the filesystem refused what it must not.
pub fn check_schedule(
    vfs: &Arc<Vfs>,
    top: &Arc<Node>,
    seed: u64,
    options: LinearOptions,
) -> std::result::Result<(), String> {
    let caller = Credentials::root();
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("seed {seed}: {what}: {error}");
    let tops = [b"p", b"q"].map(|name| vfs.create(&caller, top, name, &NewObject::directory(0o755)));
    let [p, q] = tops;
    let tops =
        [p.map_err(|error| failed("making p", &error))?, q.map_err(|error| failed("making q", &error))?];

    let clock = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..options.threads)
        .map(|number| {
            let worker = Worker {
                vfs: Arc::clone(vfs),
                clock: Arc::clone(&clock),
                number,
                random: mix(seed ^ (number as u64) << 56),
                names: options.names,
                directories: tops.to_vec(),
                files: Vec::new(),
                events: Vec::new(),
            };
            thread::spawn(move || worker.run(options.operations))
        })
        .collect();
    let (mut events, mut met) = (Vec::new(), Vec::new());
    for worker in workers {
        let done = worker.join().map_err(|_| format!("seed {seed}: a thread panicked"))?;
        let (its_events, its_nodes) = done.map_err(|error| failed("an operation failed", &error))?;
        events.extend(its_events);
        met.extend(its_nodes);
    }
    events.sort_by_key(|event| event.began);

    let show = |what: &str| {
        let lines: Vec<String> = events.iter().map(|event| format!("  {event}")).collect();
        format!("seed {seed}: {what}\n{}", lines.join("\n"))
    };
    if let Some(wrong) = wrong_listing(&events) {
        return Err(show(&wrong));
    }
    let start = State::new(&[tops[0].ino(), tops[1].ino()]);
    explain(start, &events, |end| check_end(vfs, end)).map_err(|wrong| show(&wrong))?;
    drop(met);
    for top_name in [b"p", b"q"] {
        remove_all(vfs, top, top_name).map_err(|error| failed("removing what is left", &error))?;
    }
    Ok(())
}

/// Whether the filesystem holds what the model holds.
fn check_end(vfs: &Vfs, end: &State) -> std::result::Result<(), String> {
    let mut links = BTreeMap::new();
    for (dir, names) in end.directories() {
        let node = vfs.node(dir).map_err(|error| format!("directory {dir} at the end: {error}"))?;
        let listed = list(&node).map_err(|error| format!("listing {dir} at the end: {error}"))?;
        let listed: BTreeMap<Name, Ino> = listed.into_iter().collect();
        if listed != *names {
            return Err(format!("at the end directory {dir} holds {listed:?}, not {names:?}"));
        }
        let mut subdirectories = 0;
        for ino in names.values() {
            let attr = vfs.node(*ino).map_err(|error| format!("inode {ino} at the end: {error}"))?.attr();
            subdirectories += u32::from(attr.kind == FileType::Directory);
            links.insert(*ino, attr);
        }
        if node.attr().links != 2 + subdirectories {
            return Err(format!(
                "directory {dir} counts {} links, not {}",
                node.attr().links,
                2 + subdirectories
            ));
        }
    }
    for (ino, count) in end.links() {
        if count > 0 && links.get(&ino).is_none_or(|attr| attr.links != count) {
            return Err(format!("file {ino} should have {count} links: {:?}", links.get(&ino)));
        }
        if count == 0 && vfs.node(ino).is_ok_and(|node| node.attr().links != 0) {
            return Err(format!("file {ino} has lost its names and still counts links"));
        }
    }
    Ok(())
}

/// One thread of a schedule.
struct Worker {
    vfs: Arc<Vfs>,
    clock: Arc<AtomicU64>,
    number: usize,
    random: u64,
    names: u8,
    /// Directories it has met.
    directories: Vec<Arc<Node>>,
    /// Everything else it has met.
    files: Vec<Arc<Node>>,
    events: Vec<Event>,
}

impl Worker {
    /// What happened, and every node that was met: while they are held, no number is used a second time.
    fn run(mut self, operations: usize) -> Result<(Vec<Event>, Vec<Arc<Node>>)> {
        for _ in 0..operations {
            let operation = self.choose();
            for _ in 0..self.below(3) * self.below(3) {
                thread::yield_now();
            }
            let began = self.clock.fetch_add(1, Ordering::SeqCst);
            let answer = self.perform(&operation);
            let ended = self.clock.fetch_add(1, Ordering::SeqCst);
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => Answer::Refused(Refusal::of(&error).ok_or(error)?),
            };
            self.events.push(Event { thread: self.number, began, ended, operation, answer });
        }
        self.files.append(&mut self.directories);
        Ok((self.events, self.files))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = mix(self.random);
        (self.random >> 20) as usize % bound
    }

    fn choose(&mut self) -> Operation {
        let (dir, name) = (self.directory(), self.name());
        match self.below(20) {
            0..4 => Operation::Create { dir, name },
            4..7 => Operation::Mkdir { dir, name },
            7..9 => match self.files.len() {
                0 => Operation::Lookup { dir, name },
                met => {
                    let at = self.below(met);
                    Operation::Link { node: self.files[at].ino(), dir, name }
                }
            },
            9..11 => Operation::Unlink { dir, name },
            11..13 => Operation::Rmdir { dir, name },
            13..17 => {
                let ways = [
                    RenameFlags::empty(),
                    RenameFlags::empty(),
                    RenameFlags::NO_REPLACE,
                    RenameFlags::EXCHANGE,
                ];
                let flags = ways[self.below(ways.len())];
                Operation::Rename { from: dir, name, to: self.directory(), to_name: self.name(), flags }
            }
            17..19 => Operation::Lookup { dir, name },
            _ => Operation::List { dir },
        }
    }

    fn directory(&mut self) -> Ino {
        let at = self.below(self.directories.len());
        self.directories[at].ino()
    }

    fn name(&mut self) -> Name {
        let names = self.names.into();
        self.below(names) as Name
    }

    fn handle(&self, ino: Ino) -> Arc<Node> {
        let mut met = self.directories.iter().chain(&self.files);
        Arc::clone(met.find(|node| node.ino() == ino).expect("only what was met is used"))
    }

    fn meet(&mut self, node: Arc<Node>) -> Answer {
        let ino = node.ino();
        let met = if node.kind() == FileType::Directory { &mut self.directories } else { &mut self.files };
        if met.iter().all(|other| other.ino() != ino) {
            met.push(node);
        }
        Answer::Node(ino)
    }

    fn perform(&mut self, operation: &Operation) -> Result<Answer> {
        let caller = Credentials::root();
        match *operation {
            Operation::Lookup { dir, name } => {
                let node = self.vfs.lookup(&self.handle(dir), &name_bytes(name))?;
                Ok(self.meet(node))
            }
            Operation::Create { dir, name } => {
                let file = NewObject::file(0o644);
                let node = self.vfs.create(&caller, &self.handle(dir), &name_bytes(name), &file)?;
                Ok(self.meet(node))
            }
            Operation::Mkdir { dir, name } => {
                let new = NewObject::directory(0o755);
                let node = self.vfs.create(&caller, &self.handle(dir), &name_bytes(name), &new)?;
                Ok(self.meet(node))
            }
            Operation::Link { node, dir, name } => {
                let (node, dir) = (self.handle(node), self.handle(dir));
                self.vfs.link(&caller, &node, &dir, &name_bytes(name)).map(|()| Answer::Done)
            }
            Operation::Unlink { dir, name } => {
                self.vfs.unlink(&caller, &self.handle(dir), &name_bytes(name)).map(|()| Answer::Done)
            }
            Operation::Rmdir { dir, name } => {
                self.vfs.rmdir(&caller, &self.handle(dir), &name_bytes(name)).map(|()| Answer::Done)
            }
            Operation::Rename { from, name, to, to_name, flags } => {
                let (from, to) = (self.handle(from), self.handle(to));
                let (name, to_name) = (name_bytes(name), name_bytes(to_name));
                self.vfs.rename(&caller, (&from, &name), (&to, &to_name), flags).map(|()| Answer::Done)
            }
            Operation::List { dir } => {
                let mut names = list(&self.handle(dir))?;
                names.sort_unstable();
                Ok(Answer::Names(names))
            }
        }
    }
}

/// A name that may come right before or after another one's hash, as it likes.
fn name_bytes(name: Name) -> Vec<u8> {
    vec![b'a' + name]
}

fn list(dir: &Node) -> Result<Vec<(Name, Ino)>> {
    let mut names = Vec::new();
    dir.read_dir(DirOffset(0), &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((entry.name[0] - b'a', entry.ino));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}
