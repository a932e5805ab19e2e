//! Names and bytes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::io::Errno;

use crate::sample::{HELLO, SPARSE_BYTES, SPARSE_DATA, big_byte};
use crate::support::{BIG_BYTES, FILES, Fixture};

#[test]
fn small_files_and_links_are_read() {
    let fixture = Fixture::new("");
    assert_eq!(fs::read(fixture.path("hello")).unwrap(), HELLO);
    assert_eq!(fs::read(fixture.path("also-hello")).unwrap(), HELLO);
    for _ in 0..2 {
        assert_eq!(fs::read_link(fixture.path("link")).unwrap(), Path::new("hello"));
        assert_eq!(fs::read(fixture.path("link")).unwrap(), HELLO);
    }
}

#[test]
fn a_name_that_is_not_there_is_not_there_the_second_time() {
    let fixture = Fixture::new("");
    for _ in 0..2 {
        assert_eq!(fs::metadata(fixture.path("nowhere")).unwrap_err().raw_os_error(), Some(2));
    }
    let long = fs::metadata(fixture.path("x".repeat(256))).unwrap_err();
    assert_eq!(Errno::from_io_error(&long), Some(Errno::NAMETOOLONG));
    let inside = fs::metadata(fixture.path("hello/inside")).unwrap_err();
    assert_eq!(Errno::from_io_error(&inside), Some(Errno::NOTDIR));
}

#[test]
fn a_large_file_is_read_from_front_to_back_and_here_and_there() {
    let fixture = Fixture::new("threads=3");
    let path = fixture.path("big");
    let content = fs::read(&path).unwrap();
    assert_eq!(content.len() as u64, BIG_BYTES);
    let wrong = content.iter().enumerate().find(|(at, byte)| **byte != big_byte(*at as u64));
    assert_eq!(wrong, None);
    let file = File::open(&path).unwrap();
    for offset in [0, 4095, 1 << 20, (1 << 20) - 1, BIG_BYTES - 10] {
        let mut bytes = [0; 10];
        file.read_exact_at(&mut bytes, offset).unwrap();
        assert_eq!(bytes, std::array::from_fn(|at| big_byte(offset + at as u64)));
    }
    assert_eq!(file.read_at(&mut [0; 10], BIG_BYTES - 3).unwrap(), 3);
    assert_eq!(file.read_at(&mut [0; 10], BIG_BYTES).unwrap(), 0);
}

#[test]
fn holes_are_zeroes_and_can_be_sought() {
    let fixture = Fixture::new("");
    let mut file = File::open(fixture.path("sparse")).unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    assert_eq!(content.len() as u64, SPARSE_BYTES);
    let data = SPARSE_DATA.start as usize..SPARSE_DATA.end as usize;
    assert!(content[data.clone()].iter().all(|byte| *byte == b's'));
    assert!(content[..data.start].iter().chain(&content[data.end..]).all(|byte| *byte == 0));
    let seek = |to| rustix::fs::seek(&file, to);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(SPARSE_DATA.start));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(SPARSE_DATA.start)), Ok(SPARSE_DATA.end));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(SPARSE_DATA.end)), Err(Errno::NXIO));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(SPARSE_BYTES)), Err(Errno::NXIO));
    assert_eq!((&file).seek(SeekFrom::End(-1)).unwrap(), SPARSE_BYTES - 1);
}

#[test]
fn ten_thousand_names_are_listed_with_and_without_their_attributes() {
    for way in ["always", "auto", "never"] {
        list_ten_thousand(&Fixture::new(&format!("readdirplus={way}")));
    }
}

fn list_ten_thousand(fixture: &Fixture) {
    let many = fixture.path("many");
    let expected: BTreeSet<String> = (0..FILES).map(|number| format!("{number:06}")).collect();
    for _ in 0..2 {
        let names: Vec<_> = fs::read_dir(&many).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(names.len(), FILES);
        let names: BTreeSet<String> =
            names.into_iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert_eq!(names, expected);
    }
    for entry in fs::read_dir(&many).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.file_type().unwrap().is_file());
        assert_eq!(entry.metadata().unwrap().len(), 0);
    }
}

#[test]
fn a_listing_goes_on_where_it_was_told_to() {
    let fixture = Fixture::new("");
    let dir = File::open(fixture.path("many")).unwrap();
    let mut buffer = Vec::with_capacity(2000);
    let mut list = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    let mut cookies = Vec::new();
    while let Some(entry) = list.next() {
        let entry = entry.unwrap();
        names.push(entry.file_name().to_owned());
        cookies.push(entry.next_entry_cookie());
    }
    assert_eq!(names.len(), FILES + 2);
    for at in [0, 1, 100, 5000, FILES] {
        rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(cookies[at])).unwrap();
        let mut buffer = Vec::with_capacity(2000);
        let mut list = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
        assert_eq!(list.next().unwrap().unwrap().file_name(), names[at + 1].as_c_str());
    }
}

#[test]
fn dots_have_the_numbers_of_their_directories() {
    let fixture = Fixture::new("");
    let dir = File::open(fixture.root()).unwrap();
    let mut buffer = Vec::with_capacity(4096);
    let mut list = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
    for name in [c".", c".."] {
        let entry = list.next().unwrap().unwrap();
        assert_eq!((entry.file_name(), entry.ino()), (name, 2));
    }
}

#[test]
fn threads_read_and_list_at_the_same_time() {
    let fixture = Fixture::new("threads=4");
    thread::scope(|scope| {
        for thread in 0..4 {
            let (big, many) = (fixture.path("big"), fixture.path("many"));
            scope.spawn(move || {
                let big = File::open(big).unwrap();
                for round in 0..200_u64 {
                    let offset = (round * 7919 * 4096 + thread * 1_000_003) % (BIG_BYTES - 100);
                    let mut bytes = [0; 100];
                    big.read_exact_at(&mut bytes, offset).unwrap();
                    assert_eq!(bytes, std::array::from_fn(|at| big_byte(offset + at as u64)));
                    let number = (round * 37 + thread * 2500) % FILES as u64;
                    assert!(fs::metadata(many.join(format!("{number:06}"))).unwrap().is_file());
                }
                assert_eq!(fs::read_dir(many).unwrap().count(), FILES);
            });
        }
    });
}

#[test]
fn writing_is_refused() {
    let fixture = Fixture::new("");
    let refused = |result: std::io::Result<()>| {
        assert_eq!(Errno::from_io_error(&result.unwrap_err()), Some(Errno::ROFS));
    };
    refused(fs::write(fixture.path("hello"), b"changed"));
    refused(fs::write(fixture.path("new"), b""));
    refused(fs::remove_file(fixture.path("hello")));
    refused(fs::create_dir(fixture.path("new")));
}
