//! Known damage: each field of each structure in turn changed by xfs_db, which mends the checksum, and our verdict
//! against that of `xfs_repair -n`.
//!
//! `UNDERCROFT_XFS_FIELDS=N` tries one case in N, so 1 tries every field with every value; [`ONE_IN`] by default. Which of
//! N it is follows `UNDERCROFT_SEED`.

use std::sync::atomic::{AtomicUsize, Ordering};

use undercroft_oracle::{Image, MkfsXfs, Tool, XfsRecipe};

use crate::compare::{our_check, told};

const ONE_IN: usize = 400;

/// Of what xfs_repair calls wrong so much must be found, in percent.
const FOUND_PERCENT: usize = 95;

/// An image, and the commands of xfs_db that lead to its structures.
struct Victim {
    name: &'static str,
    image: Image,
    places: Vec<Vec<String>>,
}

impl Victim {
    fn new(name: &'static str, args: &str) -> Self {
        let recipe = XfsRecipe::new(MkfsXfs::new(96, args)).plan(|plan| {
            plan.many = 900;
            plan.attributes = 120;
        });
        let image = recipe.make().unwrap();
        let mut places: Vec<Vec<String>> = Vec::new();
        let mut place = |commands: &[&str]| places.push(commands.iter().map(|&c| c.to_owned()).collect());
        for header in ["sb 0", "sb 1", "agf 0", "agf 2", "agi 0", "agi 1", "agfl 0"] {
            place(&[header]);
        }
        for (header, root) in [
            ("agf 0", "bnoroot"),
            ("agf 0", "cntroot"),
            ("agf 0", "rmaproot"),
            ("agf 0", "refcntroot"),
            ("agi 0", "root"),
            ("agi 0", "free_root"),
        ] {
            place(&[header, &format!("addr {root}")]);
        }
        let paths = [
            "/",
            "/content/fragmented",
            "/content/sparse",
            "/content/shared/clone-1",
            "/content/unwritten-around",
            "/names/many",
            "/names/growing/0",
            "/names/growing/3",
            "/names/growing/20",
            "/names/emptied",
            "/names/by-turns-1",
            "/nodes/symlinks/500",
            "/nodes/targets/1023",
            "/nodes/fifo",
            "/nodes/char-255-255",
            "/nodes/links-1/first",
            "/xattrs/homes/in-inode",
            "/xattrs/many/12-12",
            "/xattrs/many/40-13",
            "/xattrs/many/120-120",
            "/xattrs/many/value-30000",
            "/attributes/hints/extent-size",
            "/attributes/hints/directory-extent-size",
        ];
        for path in paths {
            place(&[&format!("path {path}")]);
        }
        let blocks = |image: &Image| {
            image
                .xfs_number(&["sb 0", "print blocksize"], "blocksize")
                .map(|bytes| (32_u64 << 30) / bytes)
                .unwrap()
        };
        let space = blocks(&image);
        for path in ["/names/growing/20", "/names/many", "/names/emptied", "/names/by-turns-1"] {
            for block in [0, 1, space, space + 1, 2 * space] {
                place(&[&format!("path {path}"), &format!("dblock {block}")]);
            }
        }
        place(&["path /nodes/targets/1023", "dblock 0"]);
        place(&["path /content/fragmented", "addr u3.bmbt.ptrs[1]"]);
        for path in ["/xattrs/many/40-40", "/xattrs/many/120-120", "/xattrs/many/value-30000"] {
            for block in 0..3 {
                place(&[&format!("path {path}"), &format!("ablock {block}")]);
            }
        }
        Self { name, image, places }
    }

    /// The fields of a structure that hold a number, with their values, as xfs_db prints them.
    fn fields(&self, place: &[String]) -> Vec<(String, u64)> {
        let mut commands: Vec<&str> = place.iter().map(String::as_str).collect();
        commands.push("print");
        let told = self.image.xfs_db(&commands).unwrap();
        let mut fields = Vec::new();
        let mut record: Option<(String, Vec<String>)> = None;
        for line in told.lines() {
            // A table of records: its heading names their fields, and the lines after it have them.
            if let Some(found) = heading(line) {
                record = Some(found);
                continue;
            }
            if let Some((name, columns)) = &record
                && let Some((number, values)) = line.trim().split_once(":[")
            {
                let values: Vec<&str> = values.trim_end_matches(']').split(',').collect();
                for (column, value) in columns.iter().zip(values) {
                    if let Some(value) = number_of(value) {
                        fields.push((format!("{name}[{number}].{column}"), value));
                    }
                }
                record = None;
                continue;
            }
            record = None;
            let Some((name, value)) = line.split_once(" = ") else { continue };
            let is_left_out = ["crc", "lsn", "uuid", "fname", "bno"].iter().any(|end| name.ends_with(end));
            if !is_left_out && let Some(value) = number_of(value) {
                fields.push((name.to_owned(), value));
            }
        }
        fields
    }
}

/// `recs[1-2] = [startblock,blockcount]`: the name, and the names of the columns.
fn heading(line: &str) -> Option<(String, Vec<String>)> {
    let (name, columns) = line.split_once(" = [")?;
    let (name, _) = name.split_once('[')?;
    let columns = columns.trim_end().strip_suffix(']')?;
    let is_heading = columns.split(',').all(|column| column.starts_with(|c: char| c.is_ascii_alphabetic()));
    is_heading.then(|| (name.to_owned(), columns.split(',').map(str::to_owned).collect()))
}

fn number_of(text: &str) -> Option<u64> {
    let text = text.split_whitespace().next()?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text == "null" => Some(u64::from(u32::MAX)),
        None => text.parse().ok(),
    }
}

/// What a field is changed to.
fn values(old: u64) -> Vec<u64> {
    let mut values = vec![old.wrapping_add(1), old ^ 0x10, 0, 0x7f];
    values.retain(|&value| value != old);
    values.dedup();
    values
}

#[derive(Default)]
struct Tally {
    tried: usize,
    wrong: usize,
    missed: Vec<String>,
    more: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.tried += other.tried;
        self.wrong += other.wrong;
        self.missed.extend(other.missed);
        self.more.extend(other.more);
    }
}

#[test]
fn what_xfs_repair_calls_wrong_is_found() {
    let one_in = std::env::var("UNDERCROFT_XFS_FIELDS").map_or(ONE_IN, |text| text.parse().unwrap());
    let chosen = std::env::var("UNDERCROFT_SEED").map_or(0, |text| text.parse::<usize>().unwrap() % one_in);
    let victims =
        [Victim::new("4 KiB", "-m rmapbt=1 -i nrext64=1"), Victim::new("1 KiB", "-b size=1024 -d agcount=3")];
    let mut cases = Vec::new();
    for victim in &victims {
        for place in &victim.places {
            for (field, old) in victim.fields(place) {
                cases.extend(values(old).into_iter().map(|new| Case {
                    victim,
                    place,
                    field: field.clone(),
                    old,
                    new,
                }));
            }
        }
    }
    println!("{} cases, one in {one_in} tried", cases.len());
    let cases: Vec<Case<'_>> = cases.into_iter().skip(chosen).step_by(one_in).collect();
    let next = AtomicUsize::new(0);
    let try_cases = || {
        let mut tally = Tally::default();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            case.try_it(&mut tally);
        }
        tally
    };
    let mut all = Tally::default();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(try_cases)).collect();
        for thread in threads {
            all.add(thread.join().unwrap());
        }
    });
    let Tally { tried, wrong, mut missed, mut more } = all;
    missed.sort();
    more.sort();
    println!("{tried} changes, {wrong} of them wrong to xfs_repair, {} of those not found:", missed.len());
    println!("{}", missed.join("\n"));
    println!("found by us alone: {}\n{}", more.len(), more.join("\n"));
    assert!(wrong > 20, "xfs_repair finds only {wrong} of {tried} changes wrong");
    let found = wrong - missed.len();
    assert!(found * 100 >= wrong * FOUND_PERCENT, "{found} of {wrong} found; missed:\n{}", missed.join("\n"));
}

/// A field, what it holds, and what it is changed to.
struct Case<'a> {
    victim: &'a Victim,
    place: &'a [String],
    field: String,
    old: u64,
    new: u64,
}

impl Case<'_> {
    fn try_it(&self, tally: &mut Tally) {
        let Self { victim, place, field, old, new } = self;
        let copy = victim.image.copy().unwrap();
        let write = format!("write -d {field} {new}");
        let mut commands: Vec<&str> = place.iter().map(String::as_str).collect();
        commands.push(&write);
        let answer = copy.xfs_db_write(&commands).unwrap();
        let written = answer.lines().find_map(|line| line.strip_prefix(&**field)?.strip_prefix(" = "));
        // A field too narrow for the value keeps what it had, or xfs_db refuses.
        if written.is_none_or(|written| number_of(written) == Some(*old)) {
            return;
        }
        let theirs = Tool::new("xfs_repair").args(["-n", "-o", "force_geometry"]).arg(copy.path()).run_text();
        let ours = our_check(copy.path());
        let ours_clean = ours.as_ref().is_ok_and(undercroft_xfs::CheckReport::is_clean);
        let case = format!("{}: {} {field}: {old} became {new}", victim.name, place.join(", "));
        tally.tried += 1;
        tally.wrong += usize::from(theirs.is_err());
        match theirs {
            Err(said) if ours_clean => {
                let said: Vec<String> = said
                    .to_string()
                    .lines()
                    .filter(|line| {
                        !line.contains("Phase")
                            && !line.starts_with("        - ")
                            && !line.contains("host filesystem")
                    })
                    .take(6)
                    .map(str::to_owned)
                    .collect();
                tally.missed.push(format!("{case}\n    xfs_repair: {}", said.join("\n    ")));
            }
            Ok(_) if !ours_clean => {
                let ours = ours.map_or_else(|error| error.to_string(), |report| told(&report));
                tally.more.push(format!("{case}\n    ours: {}", ours.lines().next().unwrap_or_default()));
            }
            _ => {}
        }
    }
}
