//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), in which 2 generates all but zero.

/// What is left of x^8.
const FOLD: u8 = 0x1d;

/// The product of two.
pub(super) const fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a = twice(a);
        b >>= 1;
    }
    sum
}

pub(super) const fn twice(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { FOLD }
}

/// 2 to the power of `exponent`.
pub(super) fn power(exponent: u32) -> u8 {
    POWERS[exponent as usize % POWERS.len()]
}

/// What makes 1 of a number that is not zero.
pub(super) fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "zero has no inverse");
    let exponent = POWERS.iter().position(|&power| power == a).unwrap_or_default();
    POWERS[(POWERS.len() - exponent) % POWERS.len()]
}

static POWERS: [u8; 255] = {
    let mut powers = [1; 255];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = twice(powers[at - 1]);
        at += 1;
    }
    powers
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field_that_two_generates() {
        let mut met = [false; 256];
        for exponent in 0..255 {
            met[power(exponent) as usize] = true;
        }
        assert_eq!(met.iter().filter(|&&met| met).count(), 255);
        assert_eq!((power(0), power(1), power(8), power(255)), (1, 2, 0x1d, 1));
        for a in 1..=255 {
            assert_eq!(product(a, inverse(a)), 1);
            for b in 0..=255_u8 {
                assert_eq!(product(a, b), product(b, a));
                assert_eq!(product(a, b ^ 0x5a), product(a, b) ^ product(a, 0x5a));
            }
        }
    }
}
