//! What creating and unlinking a file costs, by one thread and by two, in parallel and in the plain form.
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Credentials, NewObject, RenameFlags, Vfs, VfsOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OPS: u64 = 1_000_000;

fn run(threads: u64, parallel: bool, ops: u64) -> f64 {
    let options = VfsOptions { parallel_directory_operations: parallel, ..VfsOptions::default() };
    let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), options);
    let root = vfs.root().unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (vfs, root) = (&vfs, &root);
            scope.spawn(move || {
                let who = Credentials::root();
                let name = format!("worker-{thread}").into_bytes();
                for _ in 0..ops {
                    vfs.create(&who, root, &name, &NewObject::file(0o644)).unwrap();
                    vfs.unlink(&who, root, &name).unwrap();
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / ops as f64
}

fn renames(threads: u64) -> f64 {
    let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default());
    let root = vfs.root().unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (vfs, root) = (&vfs, &root);
            scope.spawn(move || {
                let who = Credentials::root();
                for n in 0..OPS {
                    let a = format!("w{thread}-{}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).into_bytes();
                    let b = format!("w{thread}x{}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).into_bytes();
                    vfs.create(&who, root, &a, &NewObject::file(0o644)).unwrap();
                    vfs.rename(&who, (root, &a), (root, &b), RenameFlags::empty()).unwrap();
                    vfs.unlink(&who, root, &b).unwrap();
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / OPS as f64
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("many") {
        return many();
    }
    if std::env::args().nth(1).as_deref() == Some("one") {
        run(1, true, 3_000_000);
        return;
    }
    if std::env::args().nth(1).as_deref() == Some("two") {
        run(2, true, 3_000_000);
        return;
    }
    if std::env::args().nth(1).as_deref() == Some("rename") {
        renames(1);
        return;
    }
    for round in 0..3 {
        let one = run(1, true, OPS);
        let two = run(2, true, OPS);
        let plain = run(2, false, OPS / 4);
        println!(
            "{round}: one {one:.0} ns a pair, two x{:.2}, plain two {plain:.0} ns, against plain x{:.2}",
            2.0 * one / two,
            plain / two
        );
        let (one, two) = (renames(1), renames(2));
        println!("   rename {one:.0} ns, two x{:.2}", 2.0 * one / two);
    }
    many();
}

fn many() {
    let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default());
    let root = vfs.root().unwrap();
    let who = Credentials::root();
    let rss = || {
        std::fs::read_to_string("/proc/self/statm")
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 4096
    };
    let before = rss();
    for tenth in 0..10 {
        let start = Instant::now();
        for n in 0..100_000 {
            let _: Arc<_> = vfs
                .create(&who, &root, format!("file-{tenth}-{n}").as_bytes(), &NewObject::file(0o644))
                .unwrap();
        }
        print!("{} ", start.elapsed().as_nanos() / 100_000);
    }
    println!("\n{} bytes a file", (rss() - before) / 1_000_000);
    for tenth in 0..10 {
        for n in 0..100_000 {
            vfs.unlink(&who, &root, format!("file-{tenth}-{n}").as_bytes()).unwrap();
        }
    }
    println!("{} KiB left", (rss() - before) / 1024);
    std::thread::sleep(std::time::Duration::from_millis(300));
    for round in 0..3 {
        for n in 0..100_000 {
            vfs.create(&who, &root, format!("again-{n}").as_bytes(), &NewObject::file(0o644)).unwrap();
        }
        for n in 0..100_000 {
            vfs.unlink(&who, &root, format!("again-{n}").as_bytes()).unwrap();
        }
        println!("{round}: {} KiB left", (rss() - before) / 1024);
    }
}
