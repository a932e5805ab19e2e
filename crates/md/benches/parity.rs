//! The speed of parity arithmetic, beside what memory gives to plain loops in the same run.
//!
//! `cargo bench -p undercroft-md --bench parity`. Stripes lie one after the other in buffers far larger than any cache,
//! and once in one small enough for the second-level cache; each row is measured in turn for some rounds, and the
//! median is printed as GB of *data* in a second.

use std::hint::black_box;
use std::time::Instant;

use undercroft_md::parity::Form;

const CHUNK: usize = 64 << 10;
const ROUNDS: usize = 7;

fn main() {
    println!("| data chunks | data in all | what | GB/s of data |");
    println!("|---:|---:|---|---:|");
    for chunks in [4, 8, 30] {
        for (total, copies) in [(512 << 20, 1), (chunks * CHUNK, 500)] {
            measure(chunks, total, copies);
        }
    }
}

/// Goes through `total` bytes of data, `repeats` times, by every form and by plain loops.
fn measure(chunks: usize, total: usize, repeats: usize) {
    let stripe = chunks * CHUNK;
    let data: Vec<u8> = (0..total / stripe * stripe).map(|at| ((at * 7) >> 3) as u8).collect();
    let (mut p, mut q) = (vec![0_u8; CHUNK], vec![0_u8; CHUNK]);
    let mut whole = vec![0_u8; stripe];
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..ROUNDS {
        let mut note = |name: String, run: &mut dyn FnMut(&[&[u8]])| {
            let begin = Instant::now();
            for _ in 0..repeats {
                for stripe in data.chunks_exact(stripe) {
                    run(&stripe.chunks_exact(CHUNK).collect::<Vec<_>>());
                }
            }
            let speed = (data.len() * repeats) as f64 / begin.elapsed().as_secs_f64() / 1e9;
            match rows.iter_mut().find(|(known, _)| *known == name) {
                Some((_, speeds)) => speeds.push(speed),
                None => rows.push((name, vec![speed])),
            }
        };
        note("copy to one stripe".to_owned(), &mut |stripe| {
            for (to, from) in whole.chunks_exact_mut(CHUNK).zip(stripe) {
                to.copy_from_slice(from);
            }
            black_box(&whole);
        });
        note("xor, one source after the other".to_owned(), &mut |stripe| {
            p.copy_from_slice(stripe[0]);
            for source in &stripe[1..] {
                p.iter_mut().zip(*source).for_each(|(sum, byte)| *sum ^= byte);
            }
            black_box(&p);
        });
        note("read only".to_owned(), &mut |stripe| {
            let words = stripe.iter().flat_map(|chunk| chunk.as_chunks::<8>().0);
            black_box(words.fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word)));
        });
        for form in Form::all() {
            note(format!("P, {form:?}"), &mut |stripe| {
                form.xor_of(&mut p, stripe);
                black_box(&p);
            });
            note(format!("P and Q, {form:?}"), &mut |stripe| {
                form.syndrome(&mut p, &mut q, stripe);
                black_box((&p, &q));
            });
        }
    }
    for (name, mut speeds) in rows {
        speeds.sort_by(f64::total_cmp);
        println!("| {chunks} | {} MiB | {name} | {:.1} |", total >> 20, speeds[ROUNDS / 2]);
    }
}
