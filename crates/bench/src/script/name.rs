//! The names that workers use: as long everywhere, so that they cost the same whatever is measured.

/// A name: its owner among the workers, and a number.
pub(super) struct Name(pub(super) [u8; 22]);

/// The owner of what is there before anything starts.
pub(super) const STANDING: u32 = 0xffff;

impl Name {
    pub(super) fn new(owner: u32, number: u64) -> Self {
        let mut bytes = *b"w0000-0000000000000000";
        hex(&mut bytes[1..5], u64::from(owner));
        hex(&mut bytes[6..], number);
        Self(bytes)
    }
}

fn hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_owner_and_number() {
        assert_eq!(Name::new(0x2a, 0xdead_beef).0, *b"w002a-00000000deadbeef");
    }
}
