//! The server of a read-write mount is killed while programs work: what they were promised is there afterwards, by
//! our recovery and by the kernel's, and Linux's checker finds nothing: on ext4 and on XFS.
//!
//! A promise is a transaction that SQLite has committed, or a change that an fsync followed; the clients keep account
//! of theirs outside the mount. What comes after the last promise may be there or not, since the kernel's cache ends
//! with the server.
//!
//! `UNDERCROFT_KILLS` says how often a server is killed; `UNDERCROFT_SEED` decides when, and what is written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use undercroft_block::testing::Rng;
use undercroft_oracle::{
    How, Image, Load, LoadOptions, Make, Mix, Mke2fs, MkfsXfs, MountMode, Served, populate,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_serve_image");

/// Databases, by their journal's mode, each with clients of its own.
const DATABASES: [&str; 2] = ["wal", "delete"];
const CLIENTS: u64 = 2;
/// Threads that replace files, and the names that each has.
const REPLACERS: u64 = 2;
const NAMES: u64 = 40;

/// What the clients were promised so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Promises {
    /// By database and client: rows `1..=.0` are committed, and none after `.1` was tried.
    rows: BTreeMap<(&'static str, u64), (u64, u64)>,
    /// By replacer.
    files: BTreeMap<u64, Vec<Promise>>,
}

/// What may lie under a name: what was durable last, or anything tried since.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Promise {
    may_be: Vec<Version>,
}

/// What a file holds: nothing, because there is none, or the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Absent,
    Bytes(u64),
}

#[test]
fn what_was_promised_outlives_the_server_of_an_ext4() {
    what_was_promised_outlives_the_server(&Make::Ext4(Mke2fs::new("ext4", 384).inodes(16_384)));
}

#[test]
fn what_was_promised_outlives_the_server_of_an_xfs() {
    what_was_promised_outlives_the_server(&Make::Xfs(MkfsXfs::new(512, "-m rmapbt=1")));
}

fn what_was_promised_outlives_the_server(make: &Make) {
    let how = How::usual(make);
    let seed = number("UNDERCROFT_SEED").unwrap_or(1);
    let kills = number("UNDERCROFT_KILLS").unwrap_or(4);
    eprintln!("UNDERCROFT_SEED={seed}");
    let image = make.make().unwrap();
    let mut random = Rng::new(seed << 8 | 1);
    let mut promises = Promises::default();

    let server = Served::image(PROGRAM, &image).unwrap();
    for name in DATABASES {
        let made = sqlite(server.path(), name)
            .arg(format!(
                "pragma journal_mode={name}; create table rows(client, number, text, primary key (client, number));"
            ))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    server.unmount().unwrap();

    for kill in 0..kills {
        let server = Served::image(PROGRAM, &image).unwrap();
        let after = Duration::from_millis(300 + random.below(1500));
        work_until_killed(server, after, kill, random.below(1 << 40), &mut promises);
        let told = || format!("{}, UNDERCROFT_SEED={seed}, kill {kill} after {after:?}", how.kind());

        // Linux is given nothing that our recovery finds fault with.
        recovers(&image).unwrap_or_else(|why| panic!("{}: our recovery: {why}", told()));
        let kernels = image.copy().unwrap();
        let mount = kernels.mount(MountMode::ReadWrite, how.mounted()).unwrap();
        let by_kernel = promises.check(mount.path());
        let by_kernel = by_kernel.unwrap_or_else(|why| panic!("{}: the kernel's recovery: {why}", told()));
        mount.unmount().unwrap();
        let sound = how.check(kernels.path());
        sound.unwrap_or_else(|why| panic!("{}: after the kernel's recovery: {why}", told()));

        let server = Served::image(PROGRAM, &image).unwrap();
        promises =
            promises.check(server.path()).unwrap_or_else(|why| panic!("{}: our recovery: {why}", told()));
        server.unmount().unwrap();
        assert_eq!(promises, by_kernel, "{}: we and the kernel recover different trees", told());
        let sound = how.check(image.path());
        sound.unwrap_or_else(|why| panic!("{}: after our recovery and a look: {why}", told()));
    }
    for ((database, client), (committed, _)) in &promises.rows {
        eprintln!("{}, {database}, client {client}: {committed} transactions", how.kind());
    }
    // Of two clients of a database one may wait for the other most of the time: SQLite's locks are not fair.
    let done_in = |name| -> u64 {
        let rows = promises.rows.iter().filter(|((database, _), _)| *database == name);
        rows.map(|(_, &(committed, _))| committed).sum()
    };
    assert!(DATABASES.iter().all(|name| done_in(*name) >= kills), "too little was done");
}

/// Recovery leaves nothing to mend.
fn recovers(image: &Image) -> undercroft_oracle::Result<()> {
    let copy = image.copy()?;
    Served::image(PROGRAM, &copy)?.unmount()?;
    How::of(&copy).check(copy.path())
}

/// All clients work; after a while the server is killed, and the clients end.
fn work_until_killed(server: Served, after: Duration, round: u64, seed: u64, promises: &mut Promises) {
    let root = server.path().to_owned();
    let ending = AtomicBool::new(false);
    let crowd = root.join(format!("crowd-{}", round % 2));
    if crowd.exists() {
        fs::remove_dir_all(&crowd).unwrap();
    }
    fs::create_dir(&crowd).unwrap();
    let options = LoadOptions { seed, sync_one_in: 20, mix: Mix::Everything };
    let crowd = Load::start(&crowd, options).unwrap();
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for database in DATABASES {
            for client in 0..CLIENTS {
                let first = promises.rows.get(&(database, client)).map_or(0, |rows| rows.0) + 1;
                let (root, ending) = (&root, &ending);
                let work = move || insert_rows(root, database, client, first, ending);
                clients.push(((database, client), scope.spawn(work)));
            }
        }
        let mut replacers = Vec::new();
        for replacer in 0..REPLACERS {
            let (root, ending) = (&root, &ending);
            let untouched = || vec![Promise { may_be: vec![Version::Absent] }; NAMES as usize];
            let mut files = promises.files.remove(&replacer).unwrap_or_else(untouched);
            replacers.push(scope.spawn(move || {
                let mut random = Rng::new(seed ^ replacer << 50 | 1);
                let outcome = replace_files(root, replacer, &mut files, &mut random);
                assert!(ending.load(Ordering::Acquire), "replacer {replacer} ended by itself: {outcome:?}");
                (replacer, files)
            }));
        }
        thread::sleep(after);
        ending.store(true, Ordering::Release);
        server.kill().unwrap();
        for (key, client) in clients {
            promises.rows.insert(key, client.join().unwrap());
        }
        for replacer in replacers {
            let (replacer, files) = replacer.join().unwrap();
            promises.files.insert(replacer, files);
        }
    });
    // Its operations fail in whatever way the kernel finds for files of a server that is gone.
    drop(crowd);
}

fn sqlite(dir: &Path, database: &str) -> Command {
    // Lines are reported as they come, and not when a buffer is full.
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "sqlite3", "-bail", "-cmd", ".timeout 60000"]);
    // Otherwise the last transaction may come undone: it is committed by removing the journal, and that is not synced.
    command.args(["-cmd", "pragma synchronous=extra"]).arg(dir.join(database));
    command
}

/// One transaction after the other, each noted when SQLite says that it is committed, until the server is gone. Gives
/// the last row that is committed, and the last one that was tried.
fn insert_rows(root: &Path, database: &str, client: u64, first: u64, ending: &AtomicBool) -> (u64, u64) {
    let mut shell = sqlite(root, database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut commands = shell.stdin.take().unwrap();
    let mut answers = BufReader::new(shell.stdout.take().unwrap());
    let mut row = first;
    loop {
        let insert = format!(
            "begin immediate; insert into rows values ({client}, {row}, printf('%0700d', {row})); commit; select {row};"
        );
        let mut answer = String::new();
        let told = writeln!(commands, "{insert}").and_then(|()| answers.read_line(&mut answer));
        // An answer that comes with the end may be wrong: a directory that cannot be opened any more is not synced, and
        // SQLite takes that for a filesystem that does not know how.
        if told.is_err() || answer != format!("{row}\n") || ending.load(Ordering::Acquire) {
            break;
        }
        row += 1;
    }
    drop(commands);
    let complaint = end_of(shell);
    assert!(ending.load(Ordering::Acquire), "{database}, client {client} ended by itself: {complaint}");
    (row - 1, row)
}

/// A shell whose database is gone does not always end by itself.
fn end_of(mut shell: Child) -> String {
    shell.kill().unwrap();
    let output = shell.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Replaces files as editors do (write beside it, fsync, rename over it), removes and moves them, and makes some of
/// that durable, until an operation fails.
fn replace_files(root: &Path, replacer: u64, files: &mut [Promise], random: &mut Rng) -> io::Result<()> {
    let home = root.join(format!("files-{replacer}"));
    if !home.exists() {
        fs::create_dir(&home)?;
        File::open(root)?.sync_all()?;
    }
    let directory = File::open(&home)?;
    let path = |name: u64| home.join(format!("file-{name:02}"));
    // What is under each name now.
    let mut now: Vec<Version> = files.iter().map(|promise| promise.may_be[0]).collect();
    loop {
        let name = random.below(NAMES);
        let (at, from) = (name as usize, random.below(NAMES));
        match random.below(8) {
            0..=4 => {
                let number = random.below(1 << 40);
                let beside = home.join("beside");
                let mut file = File::create(&beside)?;
                file.write_all(&bytes(number))?;
                file.sync_all()?;
                files[at].may_be.push(Version::Bytes(number));
                fs::rename(&beside, path(name))?;
                now[at] = Version::Bytes(number);
            }
            5 if now[at] != Version::Absent => {
                files[at].may_be.push(Version::Absent);
                fs::remove_file(path(name))?;
                now[at] = Version::Absent;
            }
            6 if now[from as usize] != Version::Absent && from != name => {
                files[at].may_be.push(now[from as usize]);
                files[from as usize].may_be.push(Version::Absent);
                fs::rename(path(from), path(name))?;
                now[at] = now[from as usize];
                now[from as usize] = Version::Absent;
            }
            _ => {
                directory.sync_all()?;
                for (promise, &now) in files.iter_mut().zip(&now) {
                    promise.may_be = vec![now];
                }
            }
        }
    }
}

/// The bytes of a number: their count follows from it too.
fn bytes(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; number as usize % 30_000];
    populate::noise(number, &mut bytes);
    bytes
}

impl Promises {
    /// Looks for everything below a mount. Gives what is there, which is what the next promises build on.
    fn check(&self, root: &Path) -> Result<Self, String> {
        let mut found = Self::default();
        for name in DATABASES {
            let ask =
                "pragma integrity_check; select count(*) from rows where text != printf('%0700d', number);";
            let answer = ask_sqlite(root, name, ask)?;
            if answer != "ok\n0\n" {
                return Err(format!("the database {name}: {answer}"));
            }
        }
        for (&(database, client), &(committed, tried)) in &self.rows {
            let ask = format!("select count(*), ifnull(max(number), 0) from rows where client = {client};");
            let answer = ask_sqlite(root, database, &ask)?;
            let last = (committed..=tried).find(|last| answer == format!("{last}|{last}\n"));
            let last = last.ok_or_else(|| {
                format!(
                    "{database}, client {client}: {committed} rows committed, {tried} tried, found {answer}"
                )
            })?;
            found.rows.insert((database, client), (last, last));
        }
        for (&replacer, files) in &self.files {
            let look = |(name, promise): (usize, &Promise)| {
                promise.check(&root.join(format!("files-{replacer}/file-{name:02}")))
            };
            found.files.insert(replacer, files.iter().enumerate().map(look).collect::<Result<_, _>>()?);
        }
        Ok(found)
    }
}

impl Promise {
    fn check(&self, path: &Path) -> Result<Self, String> {
        let found = match fs::read(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let is = |version: &&Version| match (version, &found) {
            (Version::Absent, None) => true,
            (Version::Bytes(number), Some(found)) => bytes(*number) == *found,
            _ => false,
        };
        match self.may_be.iter().find(is) {
            Some(&version) => Ok(Self { may_be: vec![version] }),
            None => {
                let len = found.map(|found| found.len());
                Err(format!("{}: {len:?} bytes, which is none of {:?}", path.display(), self.may_be))
            }
        }
    }
}

fn ask_sqlite(root: &Path, database: &str, ask: &str) -> Result<String, String> {
    let output = sqlite(root, database).arg(ask).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{database}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
