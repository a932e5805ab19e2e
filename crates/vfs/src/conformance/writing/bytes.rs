//! Content: random changes of two files against vectors of bytes.

use super::super::outcome::Finds;
use super::ground::{Checked, Ground, read_all};
use crate::{Error, FallocateMode, File, Result};
use undercroft_block::testing::Rng;

const SEEDS: u64 = 8;
const STEPS: usize = 250;
/// The largest offset, in blocks.
const BLOCKS: u64 = 48;

/// A file and what it must hold.
struct Pair {
    file: File,
    model: Vec<u8>,
}

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    for round in 0..SEEDS {
        let seed = on.profile.seed.wrapping_mul(1000).wrapping_add(round);
        let mut random = Rng::new(seed);
        let mut pairs = Vec::new();
        for name in ["one", "other"] {
            pairs.push(Pair { file: on.open_file(&format!("{name} {round}"))?, model: Vec::new() });
        }
        for step in 0..STEPS {
            let at = random.index(2);
            let done = change(on, &mut random, &mut pairs, at)?;
            let what = || format!("round {round}, step {step}: {done}");
            for pair in &pairs {
                let got = read_all(&pair.file)?;
                let differs = got.iter().zip(&pair.model).position(|(got, expected)| got != expected);
                on.equal(
                    || format!("size and first difference after {}", what()),
                    &(got.len(), differs),
                    &(pair.model.len(), None),
                );
                holes(on, pair, &what)?;
            }
        }
    }
    Ok(())
}

/// An offset or a length: anywhere, or at a block's edge.
fn place(random: &mut Rng, block: u64) -> u64 {
    match random.below(3) {
        0 => random.below(BLOCKS) * block,
        1 => (random.below(BLOCKS) * block + random.below(5)).saturating_sub(2),
        _ => random.below(BLOCKS * block),
    }
}

/// Makes one change to both, and says which.
fn change(on: &mut Ground<'_>, random: &mut Rng, pairs: &mut [Pair], at: usize) -> Checked<String> {
    let block = on.profile.holds.block_bytes;
    let (offset, len) = (place(random, block), 1 + place(random, block) / 3);
    let byte = 1 + random.below(255) as u8;
    let Pair { file, model } = &mut pairs[at];
    let size = model.len() as u64;
    let data = vec![byte; len as usize];
    Ok(match random.below(12) {
        0..4 => {
            on.equal(|| "bytes written".to_owned(), &file.write_at(offset, &data)?, &data.len());
            store(model, offset, &data);
            format!("write {len} at {offset} of file {at}")
        }
        4 => {
            on.equal(|| "what an append tells".to_owned(), &file.append(&data)?, &(size, data.len()));
            model.extend_from_slice(&data);
            format!("append {len} to file {at}")
        }
        5 => {
            file.truncate(offset)?;
            model.resize(offset as usize, 0);
            format!("cut file {at} to {offset}")
        }
        6..10 => space(on, random, file, model, (offset, len))?,
        _ => {
            let (to, same) = (place(random, block), random.below(3) == 0);
            let to_pair = if same { at } else { 1 - at };
            let answer = pairs[at].file.copy_range(offset, &pairs[to_pair].file, to, len);
            copied(on, pairs, (at, offset), (to_pair, to), len, answer)?;
            format!("copy {len} from {offset} of file {at} to {to} of file {to_pair}")
        }
    })
}

fn store(model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (from, to) = (offset as usize, offset as usize + data.len());
    model.resize(model.len().max(to), 0);
    model[from..to].copy_from_slice(data);
}

/// Changes the space under a range.
fn space(
    on: &mut Ground<'_>,
    random: &mut Rng,
    file: &File,
    model: &mut Vec<u8>,
    (offset, len): (u64, u64),
) -> Checked<String> {
    use FallocateMode::{Allocate, Collapse, Insert, PunchHole, Zero};
    let block = on.profile.holds.block_bytes;
    let change = [Allocate, PunchHole, Zero, Collapse, Insert][random.index(5)];
    let keep_size = change == PunchHole || random.below(2) == 0;
    let (offset, len) = match change {
        Collapse | Insert => (offset / block * block, len.div_ceil(block) * block),
        Allocate | PunchHole | Zero => (offset, len),
    };
    let size = model.len() as u64;
    let what = format!("{change:?} {len} at {offset} of {size}, keeping the size: {keep_size}");
    let expected = match change {
        Collapse if offset + len >= size => "InvalidArgument",
        Insert if offset >= size => "InvalidArgument",
        change if !on.profile.fallocate_modes.contains(&change) => "Unsupported",
        _ => "",
    };
    let answer = file.fallocate(change, offset, len, keep_size);
    if !expected.is_empty() {
        on.refused(|| what.clone(), answer, expected);
        return Ok(what);
    }
    answer?;
    let (from, to) = (offset as usize, (offset + len) as usize);
    match change {
        Collapse => drop(model.drain(from..to)),
        Insert => drop(model.splice(from..from, vec![0; len as usize])),
        Allocate | Zero if !keep_size => model.resize(model.len().max(to), 0),
        Allocate | Zero | PunchHole => {}
    }
    if matches!(change, PunchHole | Zero) {
        let end = to.min(model.len());
        model[from.min(end)..end].fill(0);
    }
    Ok(what)
}

/// Applies a copy to the model.
fn copied(
    on: &mut Ground<'_>,
    pairs: &mut [Pair],
    (at, from): (usize, u64),
    (to_pair, to): (usize, u64),
    len: u64,
    answer: Result<u64>,
) -> Checked {
    let len = len.min((pairs[at].model.len() as u64).saturating_sub(from));
    if at == to_pair && len > 0 && from.abs_diff(to) < len {
        on.refused(|| "a copy onto itself".to_owned(), answer, "InvalidArgument");
        return Ok(());
    }
    on.equal(|| "bytes copied".to_owned(), &answer?, &len);
    if len > 0 {
        let bytes = pairs[at].model[from as usize..][..len as usize].to_vec();
        store(&mut pairs[to_pair].model, to, &bytes);
    }
    Ok(())
}

/// Data and holes take turns up to the end, and whatever is not zero lies in data.
fn holes(on: &mut Ground<'_>, pair: &Pair, what: &dyn Fn() -> String) -> Checked {
    let Pair { file, model } = pair;
    let size = model.len() as u64;
    let mut at = 0;
    while at < size {
        let data = match file.seek_data(at) {
            Err(Error::NoSuchOffset) => size,
            data => data?,
        };
        on.that(at <= data && data <= size, || format!("data from {at} on is at {data} after {}", what()));
        let hole = model.get(at as usize..data as usize).unwrap_or_default();
        on.that(hole.iter().all(|&byte| byte == 0), || {
            format!("bytes in the hole from {at} on after {}", what())
        });
        if data >= size {
            break;
        }
        let end = file.seek_hole(data)?;
        on.that(data < end && end <= size, || format!("a hole from {data} on is at {end} after {}", what()));
        if end <= data {
            break;
        }
        at = end;
    }
    on.refused(|| format!("data at the end after {}", what()), file.seek_data(size), "NoSuchOffset");
    on.refused(|| format!("a hole at the end after {}", what()), file.seek_hole(size), "NoSuchOffset");
    Ok(())
}
