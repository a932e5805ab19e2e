//! Bytes: reads at odd places, ends of files, and holes.

use super::check::{Check, show};
use super::outcome::Finds;
use super::tree::{Content, Object, mix};
use crate::File;

/// Larger files are read only around their data.
const READ_WHOLE_MAX: u64 = 4 << 20;

/// Odd reads of each file.
const ODD_READS: u64 = 40;

pub(super) fn check(check: &mut Check<'_>) {
    let tree = check.tree;
    for entry in &tree.entries {
        let Some(node) = check.node(entry) else { continue };
        let path = show(&entry.path);
        let opened = check.vfs.open_node(&node);
        match &tree.object(entry).object {
            // The many names of one file are opened often enough otherwise.
            Object::File(_) if entry.path.starts_with(b"many/") => {}
            Object::File(content) => {
                let Some(file) = check.ok(|| format!("open {path}"), opened) else { continue };
                check_reads(check, &path, &file, content);
                check_end(check, &path, &file, content.size_bytes);
                check_seeks(check, &path, &file, content);
            }
            Object::Directory => {
                check.refused(|| format!("open {path}"), opened, "IsDirectory");
                check.refused(|| format!("map {path}"), node.map(0), "IsDirectory");
            }
            _ => {
                check.refused(|| format!("open {path}"), opened, "InvalidArgument");
                check.refused(|| format!("map {path}"), node.map(0), "InvalidArgument");
            }
        }
    }
}

/// Compares one read with what the content is known to be.
pub(super) fn check_read(
    check: &mut Check<'_>,
    path: &str,
    file: &File,
    content: &Content,
    offset: u64,
    len: usize,
) {
    let what = || format!("{path}, {len} bytes from byte {offset}");
    let expected_len = content.size_bytes.saturating_sub(offset).min(len as u64) as usize;
    let mut got = vec![0xa5; len];
    let Some(count) = check.ok(what, file.read_at(offset, &mut got)) else { return };
    check.equal(|| format!("count read of {}", what()), &count, &expected_len);
    let mut expected = vec![0; expected_len];
    content.fill(offset, &mut expected);
    let first = (0..expected_len).find(|&at| got[at] != expected[at]);
    check.equal(|| format!("first byte that differs in {}", what()), &first, &None);
    check.that(got[expected_len..].iter().all(|&byte| byte == 0xa5), || {
        format!("{} wrote past the end of the file", what())
    });
}

fn check_reads(check: &mut Check<'_>, path: &str, file: &File, content: &Content) {
    let size = content.size_bytes;
    if size <= READ_WHOLE_MAX {
        check_read(check, path, file, content, 0, size as usize + 10);
        for offset in (0..size).step_by(64 * 1024) {
            check_read(check, path, file, content, offset, 64 * 1024);
        }
    }
    let mut edges = vec![0, size / 2, size];
    edges.extend(content.pieces.iter().flat_map(|piece| [piece.offset, piece.offset + piece.len]));
    for number in 0..ODD_READS {
        let random = mix(number ^ size.rotate_left(20));
        let edge = edges[random as usize % edges.len()];
        let offset = (edge + (random >> 8) % 5000).saturating_sub(2500);
        let len = match number % 4 {
            0 => (random >> 24) % 20,
            1 => (random >> 24) % 600,
            _ => (random >> 24) % 200_000,
        };
        check_read(check, path, file, content, offset, len as usize);
    }
}

fn check_end(check: &mut Check<'_>, path: &str, file: &File, size: u64) {
    for offset in [size, size + 1, size + 4096, u64::MAX - 5, u64::MAX] {
        let mut buf = [0xa5; 10];
        let count = file.read_at(offset, &mut buf);
        if let Some(count) = check.ok(|| format!("{path} from byte {offset}"), count) {
            check.equal(
                || format!("count read of {path} from byte {offset}"),
                &(count, buf),
                &(0, [0xa5; 10]),
            );
        }
        check.refused(|| format!("data in {path} from {offset}"), file.seek_data(offset), "NoSuchOffset");
        check.refused(|| format!("hole in {path} from {offset}"), file.seek_hole(offset), "NoSuchOffset");
    }
    let nothing = file.read_at(0, &mut []);
    if let Some(count) = check.ok(|| format!("{path}, no bytes"), nothing) {
        check.equal(|| format!("count read of {path} into no buffer"), &count, &0);
    }
}

fn check_seeks(check: &mut Check<'_>, path: &str, file: &File, content: &Content) {
    let size = content.size_bytes;
    let mut places = vec![0, 1, size / 2, size.saturating_sub(1)];
    for piece in &content.pieces {
        for edge in [piece.offset, piece.offset + piece.len] {
            places.extend([edge.saturating_sub(1), edge, edge + 1]);
        }
    }
    places.retain(|&place| place < size);
    for from in places {
        let what = || format!("data in {path} from byte {from}");
        match content.data_from(from) {
            Some(expected) => {
                if let Some(got) = check.ok(what, file.seek_data(from)) {
                    check.equal(what, &got, &expected);
                }
            }
            None => check.refused(what, file.seek_data(from), "NoSuchOffset"),
        }
        let what = || format!("hole in {path} from byte {from}");
        if let Some(got) = check.ok(what, file.seek_hole(from)) {
            check.equal(what, &got, &content.hole_from(from));
        }
    }
}
