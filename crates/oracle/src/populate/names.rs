//! Directories: very large, very deep, very wide, worn by use, and with names that are not text.

use std::os::unix::fs::FileExt;

use super::Plan;
use crate::dir::Dir;
use crate::error::Context;
use crate::{Features, Result};

pub(super) fn populate(top: &Dir, features: &Features, plan: &Plan) -> Result<()> {
    odd(&top.dir("odd")?)?;
    deep(&top.dir("deep")?)?;
    many(&top.dir("many")?, plan)?;
    worn(&top.dir("worn")?, plan.many.min(3000))?;
    growing(top, features)?;
    let wide = top.dir("wide")?;
    for number in 0..plan.subdirectories {
        wide.dir(format!("{number:x}"))?;
    }
    Ok(())
}

/// Legal names that programs stumble over.
fn odd(dir: &Dir) -> Result<()> {
    let longest_text = "\u{e4}".repeat(127);
    let names: [&[u8]; 16] = [
        &[b'n'; 255],
        &[0xff; 255],
        longest_text.as_bytes(),
        b" ",
        b"...",
        b"-rf",
        b"~",
        b"back\\slash",
        b"new\nline",
        b"\x01\x7f control",
        b"\xff\xfe",
        b"latin1-\xe4\xf6\xfc",
        b"cut-utf8-\xe2\x82",
        "nfc-\u{e9}".as_bytes(),
        "nfd-e\u{301}".as_bytes(),
        "\u{1f4be}".as_bytes(),
    ];
    for (number, name) in names.iter().enumerate() {
        dir.file_with(name, number as u64, number)?;
    }
    dir.dir([0x80; 255])?.file("inside")?;
    Ok(())
}

/// 200 levels, and a path of over 8,000 bytes, twice what a system call takes.
fn deep(dir: &Dir) -> Result<()> {
    let mut at = dir.dir("level")?;
    for level in 0..200_u32 {
        at = at.dir(format!("{level:03}-{}", "deep".repeat(9)))?;
        if level % 50 == 49 {
            at.file_with("file", level.into(), 100)?;
        }
    }
    at.symlink("up", b"../..")
}

/// The large directory. One name in seven has bytes above 127, for which the signed and the unsigned hash
/// differ; every 50th file has content.
fn many(dir: &Dir, plan: &Plan) -> Result<()> {
    for number in 0..plan.many {
        let mut name = format!("{number:x}").into_bytes();
        if number % 7 == 0 {
            name.extend_from_slice(b"-\xe4\xff\x80");
        }
        if name.len() < plan.many_name_bytes {
            name.push(b'.');
            name.resize(plan.many_name_bytes.max(name.len()), b'a' + (number % 26) as u8);
        }
        let file = dir.file(&name)?;
        if number % 50 == 0 {
            file.write_all_at(format!("file {number}\n").as_bytes(), 0).context("write", &name)?;
        }
    }
    Ok(())
}

/// A directory with gaps: most names removed again, some renamed over others.
fn worn(dir: &Dir, names: usize) -> Result<()> {
    let name = |number: usize| format!("worn-{number:05}-{}", "x".repeat(number % 90));
    for number in 0..names {
        dir.file(name(number))?;
    }
    for number in (0..names).filter(|number| number % 8 != 0) {
        dir.unlink(name(number))?;
    }
    for number in (0..names).step_by(24) {
        dir.rename(name(number), format!("renamed-{number}"))?;
    }
    for number in (8..names.saturating_sub(8)).step_by(48) {
        dir.rename(name(number), name(number + 8))?;
    }
    Ok(())
}

/// Directories of every size between an empty one and a few blocks, where the place of the entries changes.
fn growing(top: &Dir, features: &Features) -> Result<()> {
    let growing = top.dir("growing")?;
    let few = [0, 1, 2, 3, 4, 5, 8, 12, 20];
    let block = features.block_bytes as usize;
    for count in few.into_iter().chain([block / 20, block / 16, block / 10]) {
        let dir = growing.dir(format!("{count}"))?;
        for number in 0..count {
            dir.symlink(format!("entry-{number:05}"), b"t")?;
        }
    }
    Ok(())
}
