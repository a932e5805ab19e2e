//! What RAID6 does when two chunks of a stripe are gone, one of them data.
//!
//! With x and y the exponents of the missing data, and P', Q' the syndromes of the data that is left:
//!
//! ```text
//! P + P' = Dx + Dy
//! Q + Q' = 2^x Dx + 2^y Dy    so    Dx = (Q + Q' + 2^y (P + P')) / (2^x + 2^y)
//! ```
//!
//! Without P and one chunk of data, Dx = (Q + Q') / 2^x, and P follows. One chunk of data alone, or data and Q, is the
//! XOR of what is left, and then [`syndrome`](super::syndrome): nothing of its own.

use super::{Form, gf, xor_into};

/// Fills in the two missing chunks of `data` (by rising exponent, `None` where one is missing): `first` is the one of
/// the lower exponent.
///
/// # Panics
/// If not two are missing, or operands differ in length.
pub fn recover_two_data(data: &[Option<&[u8]>], p: &[u8], q: &[u8], first: &mut [u8], second: &mut [u8]) {
    let mut missing = (0..).zip(data).filter(|(_, chunk)| chunk.is_none()).map(|(exponent, _)| exponent);
    let (Some(x), Some(y), None) = (missing.next(), missing.next(), missing.next()) else {
        panic!("two chunks of data are missing, no more and no less");
    };
    let (x, y) = (gf::power(x), gf::power(y));
    let form = Form::best();
    form.syndrome(second, first, data);
    form.xor_into(second, p);
    form.xor_into(first, q);
    // Now `second` is Dx + Dy, and `first` what the numerator begins with.
    form.add_multiple(first, second, y);
    form.multiply(first, gf::inverse(x ^ y));
    form.xor_into(second, first);
}

/// Fills in the one missing chunk of `data` (by rising exponent), and P, from Q.
///
/// # Panics
/// If not one is missing, or operands differ in length.
pub fn recover_data_and_p(data: &[Option<&[u8]>], q: &[u8], missing: &mut [u8], p: &mut [u8]) {
    let mut gaps = (0..).zip(data).filter(|(_, chunk)| chunk.is_none()).map(|(exponent, _)| exponent);
    let (Some(x), None) = (gaps.next(), gaps.next()) else {
        panic!("one chunk of data is missing, no more and no less");
    };
    let form = Form::best();
    form.syndrome(p, missing, data);
    form.xor_into(missing, q);
    form.multiply(missing, gf::inverse(gf::power(x)));
    xor_into(p, missing);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::{add_scaled, syndrome, xor_of};

    fn data(count: usize, len: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|chunk| (0..len).map(|at| (at * 31 + chunk * 77 + (at >> 3) * chunk) as u8).collect())
            .collect()
    }

    #[test]
    fn every_pair_of_missing_chunks_comes_back() {
        for count in [2, 3, 4, 8, 30, 255] {
            let len = if count == 255 { 67 } else { 1000 };
            let data = data(count, len);
            let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let (mut p, mut q) = (vec![0; len], vec![0; len]);
            syndrome(&mut p, &mut q, &slices);
            for x in 0..count {
                let (mut first, mut second) = (vec![1; len], vec![2; len]);
                let mut left: Vec<Option<&[u8]>> = slices.iter().copied().map(Some).collect();
                left[x] = None;
                recover_data_and_p(&left, &q, &mut first, &mut second);
                assert_eq!((&first, &second), (&data[x], &p), "{x} of {count} and P");
                // Data and Q: the XOR of what is left.
                left[x] = Some(&p);
                xor_of(&mut second, &left);
                assert_eq!(second, data[x]);
                left[x] = None;
                for y in x + 1..count {
                    left[y] = None;
                    recover_two_data(&left, &p, &q, &mut first, &mut second);
                    assert_eq!((&first, &second), (&data[x], &data[y]), "{x} and {y} of {count}");
                    left[y] = Some(slices[y]);
                }
            }
        }
    }

    #[test]
    fn a_change_of_one_chunk_changes_q_as_computing_it_anew_does() {
        let mut data = data(9, 500);
        let (mut p, mut q) = (vec![0; 500], vec![0; 500]);
        syndrome(&mut p, &mut q, &data.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for exponent in 0..9 {
            let delta: Vec<u8> = (0..500).map(|at| (at * 7 + exponent) as u8).collect();
            crate::parity::xor_into(&mut data[exponent], &delta);
            xor_into(&mut p, &delta);
            add_scaled(&mut q, &delta, exponent as u32);
            let (mut new_p, mut new_q) = (vec![0; 500], vec![0; 500]);
            syndrome(&mut new_p, &mut new_q, &data.iter().map(Vec::as_slice).collect::<Vec<_>>());
            assert_eq!((&p, &q), (&new_p, &new_q));
        }
    }
}
