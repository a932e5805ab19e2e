//! A name as a table of names holds it: in place while it is short, which nearly all names are, so that it is no
//! allocation of its own.

use std::ops::Deref;

/// The longest name that is held in place; chosen so that a name is three words, whichever way it is held.
const SHORT: usize = 22;

/// A name that does not change.
pub(crate) enum OwnedName {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<OwnedName>() == 24);

impl From<&[u8]> for OwnedName {
    fn from(name: &[u8]) -> Self {
        if name.len() > SHORT {
            return Self::Long(name.into());
        }
        let mut bytes = [0; SHORT];
        bytes[..name.len()].copy_from_slice(name);
        Self::Short { len: name.len() as u8, bytes }
    }
}

impl Deref for OwnedName {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_reads_back() {
        let longest: Vec<u8> = (0..=255).collect();
        for len in 0..=longest.len() {
            assert_eq!(*OwnedName::from(&longest[..len]), longest[..len]);
        }
    }

    #[test]
    fn short_names_are_held_in_place() {
        let within = |len: usize| {
            let name = OwnedName::from(&[b'n'; 64][..len]);
            let here = std::ptr::from_ref(&name).cast::<u8>();
            (here..here.wrapping_add(size_of::<OwnedName>())).contains(&name.as_ptr())
        };
        assert!(within(SHORT));
        assert!(!within(SHORT + 1));
    }
}
