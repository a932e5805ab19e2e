//! The maps against what Linux wrote: arrays of every layout, each block of which holds its own number.
//!
//! `tests/fixtures/layouts.txt` tells what lies where on the members of small arrays, parity included; the numbered
//! arrays beside it are whole.

use std::io::Read as _;
use std::path::Path;

use super::{LinearMap, ParityMap, Raid0Map, Raid10Map, Slot};
use crate::member::Role;
use crate::parity::syndrome;
use crate::{Geometry, Layout, Level, ParityLayout, Raid10Copies};

const BLOCK: u64 = 4096;

/// An array as the file has it.
struct Recorded {
    title: String,
    geometry: Geometry,
    bytes: u64,
    /// By member and block.
    cells: Vec<Vec<&'static str>>,
}

fn recorded() -> Vec<Recorded> {
    let text = include_str!("../../tests/fixtures/layouts.txt");
    let mut arrays: Vec<Recorded> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix("array ") {
            arrays.push(begin(title));
        } else {
            let (size, cells) = line.split_once(':').unwrap();
            let array = arrays.last_mut().unwrap();
            array.geometry.members += 1;
            array.geometry.member_bytes.push(size.parse().unwrap());
            array.cells.push(cells.split_whitespace().collect());
        }
    }
    arrays
}

fn begin(title: &str) -> Recorded {
    let words: Vec<&str> = title.split(' ').collect();
    let number = |word: &str| word.split_once('=').unwrap().1.parse::<u32>().unwrap();
    let level = match words[0] {
        "linear" => Level::Linear,
        "raid0" => Level::Raid0,
        "raid4" => Level::Raid4,
        "raid5" => Level::Raid5,
        "raid6" => Level::Raid6,
        "raid10" => Level::Raid10,
        other => panic!("{other}"),
    };
    let layout = match (level, words[1]) {
        (Level::Raid10, name) => {
            let copies = name[1..].parse().unwrap();
            let (near, far) = if name.starts_with('n') { (copies, 1) } else { (1, copies) };
            Layout::Copies(Raid10Copies { near, far, offset: name.starts_with('o') })
        }
        (_, "-") => Layout::None,
        (_, "original") => Layout::Zones(1),
        (_, "alternate") => Layout::Zones(2),
        (_, name) => {
            let layouts = (0..6).map(|number| ParityLayout::from_number(level, number).unwrap());
            Layout::Parity(layouts.into_iter().find(|layout| layout.name() == name).unwrap())
        }
    };
    let chunk_bytes = number(words[2]);
    let geometry = Geometry { level, layout, members: 0, chunk_bytes, member_bytes: Vec::new() };
    Recorded { title: title.to_owned(), geometry, bytes: number(words[3]).into(), cells: Vec::new() }
}

/// Where all copies of a byte are.
fn places(geometry: &Geometry, offset: u64) -> Vec<(Role, u64)> {
    let of_run = |run: super::Run| vec![(run.role, run.member_offset)];
    match geometry.level {
        Level::Linear => of_run(LinearMap::new(geometry).locate(offset)),
        Level::Raid0 => of_run(Raid0Map::new(geometry).locate(offset)),
        Level::Raid1 => (0..geometry.members).map(|role| (Role(role), offset)).collect(),
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            let place = ParityMap::new(geometry).locate(offset);
            vec![(place.role, place.member_offset)]
        }
        Level::Raid10 => {
            let map = Raid10Map::new(geometry);
            let copies = (0..map.copies()).map(|number| map.copy(offset, number));
            copies.map(|copy| (copy.role, copy.member_offset)).collect()
        }
    }
}

/// What the blocks hold, over and over.
fn numbered(block: u64) -> [u8; 16] {
    format!("{block:015}\n").into_bytes().try_into().unwrap()
}

#[test]
fn every_block_lies_where_linux_put_it() {
    let arrays = recorded();
    assert_eq!(arrays.len(), 34);
    for array in arrays {
        array.geometry.check().unwrap();
        assert_eq!(array.geometry.array_bytes(), array.bytes, "{}", array.title);
        let mut seen = 0;
        for block in 0..array.bytes / BLOCK {
            for (role, member_offset) in places(&array.geometry, block * BLOCK) {
                let cell = array.cells[role.0 as usize][(member_offset / BLOCK) as usize];
                assert_eq!(cell, block.to_string(), "{}", array.title);
                seen += 1;
            }
        }
        // The other blocks of arrays without parity hold nothing. (Parity may look like a number.)
        if array.geometry.level.parities() == 0 {
            let left = array.cells.iter().flatten().filter(|cell| **cell != "-");
            assert_eq!(left.count(), seen, "{}", array.title);
        }
    }
}

#[test]
fn parity_is_what_linux_computed() {
    let mut compared = 0;
    for array in recorded().iter().filter(|array| array.geometry.level.parities() > 0) {
        let map = ParityMap::new(&array.geometry);
        for stripe in 0..array.geometry.sync_bytes() / map.chunk_bytes() {
            for row in 0..map.chunk_bytes() / BLOCK {
                let mut data = vec![[0; 16]; map.data_members() as usize];
                for index in 0..map.data_members() {
                    let block = map.array_offset(stripe, index) / BLOCK + row;
                    data[map.exponent(stripe, index) as usize] = numbered(block);
                }
                let chunks: Vec<&[u8]> = data.iter().map(<[u8; 16]>::as_slice).collect();
                let (mut p, mut q) = ([0; 16], [0; 16]);
                syndrome(&mut p, &mut q, &chunks);
                for role in 0..array.geometry.members {
                    let cell = array.cells[role as usize][(map.member_offset(stripe) / BLOCK + row) as usize];
                    let expected = match map.slot(stripe, Role(role)) {
                        Slot::Data(_) => continue,
                        Slot::P => p,
                        Slot::Q => q,
                    };
                    compared += 1;
                    let hex = |bytes: [u8; 16]| bytes.map(|byte| format!("{byte:02x}")).concat();
                    // Parity may look like a number.
                    let cell = match cell {
                        "-" => "00".repeat(16),
                        short if short.len() < 32 => hex(numbered(short.parse().unwrap())),
                        long => long.to_owned(),
                    };
                    let expected = hex(expected);
                    assert_eq!(cell, expected, "{} stripe {stripe} member {role}", array.title);
                }
            }
        }
    }
    assert!(compared > 300);
}

#[test]
fn whole_arrays_of_linux_hold_their_numbers() {
    let copies = Layout::Copies(Raid10Copies { near: 2, far: 1, offset: false });
    let left = Layout::Parity(ParityLayout::LeftSymmetric);
    for (name, level, layout, members) in [
        ("raid0", Level::Raid0, Layout::None, 2),
        ("raid1", Level::Raid1, Layout::None, 2),
        ("raid10", Level::Raid10, copies, 2),
        ("raid5-numbered", Level::Raid5, left, 4),
        ("raid6", Level::Raid6, left, 4),
    ] {
        let data: Vec<Vec<u8>> = (0..members).map(|member| data_area(name, member)).collect();
        let geometry = Geometry {
            level,
            layout,
            members,
            chunk_bytes: if level == Level::Raid1 { 0 } else { 65536 },
            member_bytes: data.iter().map(|bytes| bytes.len() as u64).collect(),
        };
        geometry.check().unwrap();
        assert!(geometry.array_bytes() >= 7 << 20);
        for block in 0..geometry.array_bytes() / BLOCK {
            for (role, member_offset) in places(&geometry, block * BLOCK) {
                let found = &data[role.0 as usize][member_offset as usize..][..BLOCK as usize];
                assert!(found.chunks(16).all(|part| part == numbered(block)), "block {block} of {name}");
            }
        }
    }
}

/// What lies behind the first MiB of a member.
fn data_area(array: &str, member: u32) -> Vec<u8> {
    let file = format!("tests/fixtures/{array}/d{member}.img.zst");
    let packed = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(&packed[..]).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.split_off(1 << 20)
}
