//! The disguise in which encrypted names are shown while their key is missing.
//!
//! An encrypted name may hold any byte, a slash included, so it cannot be shown as it is. Linux shows it in
//! base64url: the two words of its hash in the directory, then the encrypted bytes. What would be longer than a
//! name may be is cut, and SHA-256 of the rest added. Source: `Documentation/filesystems/fscrypt.rst` ("Access
//! semantics, without the key", "Filenames encryption") and what Linux shows for encrypted directories.

use sha2::{Digest, Sha256};

use super::hash::NameHash;

const HASH_BYTES: usize = 8;
/// Encrypted bytes that are shown.
const SHOWN_BYTES: usize = 149;
const DIGEST_BYTES: usize = 32;
const MAX_BYTES: usize = HASH_BYTES + SHOWN_BYTES + DIGEST_BYTES;
/// The longest disguise.
pub(super) const MAX_NAME_BYTES: usize = (MAX_BYTES * 4).div_ceil(3);
const _: () = assert!(MAX_NAME_BYTES == 252);

/// The shortest name that encryption makes: shorter ones are padded before.
pub(crate) const ENCRYPTED_MIN_BYTES: usize = 16;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a disguise contains of the encrypted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NokeyName {
    pub(super) hash: NameHash,
    shown: Vec<u8>,
    /// SHA-256 of what is not shown.
    digest: Option<[u8; DIGEST_BYTES]>,
}

impl NokeyName {
    /// `None` for what is no disguise of anything.
    pub(super) fn decode(name: &[u8]) -> Option<Self> {
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
        let bytes = decode(name)?;
        let (major, rest) = bytes.split_first_chunk()?;
        let (minor, rest) = rest.split_first_chunk()?;
        let hash = NameHash { major: u32::from_le_bytes(*major), minor: u32::from_le_bytes(*minor) };
        if rest.len() <= SHOWN_BYTES {
            return Some(Self { hash, shown: rest.to_vec(), digest: None });
        }
        let (shown, digest) = rest.split_at(SHOWN_BYTES);
        Some(Self { hash, shown: shown.to_vec(), digest: Some(digest.try_into().ok()?) })
    }

    pub(super) fn stands_for(&self, encrypted: &[u8]) -> bool {
        let Some(digest) = &self.digest else { return self.shown == encrypted };
        let rest = encrypted.strip_prefix(&*self.shown);
        rest.is_some_and(|rest| Sha256::digest(rest)[..] == digest[..])
    }
}

/// The disguise of an encrypted name, written into `space`.
pub(super) fn disguise<'a>(
    hash: NameHash,
    encrypted: &[u8],
    space: &'a mut [u8; MAX_NAME_BYTES],
) -> &'a [u8] {
    let mut bytes = [0; MAX_BYTES];
    bytes[..4].copy_from_slice(&hash.major.to_le_bytes());
    bytes[4..HASH_BYTES].copy_from_slice(&hash.minor.to_le_bytes());
    let (shown, rest) = encrypted.split_at(encrypted.len().min(SHOWN_BYTES));
    let mut len = HASH_BYTES + shown.len();
    bytes[HASH_BYTES..len].copy_from_slice(shown);
    if !rest.is_empty() {
        bytes[len..].copy_from_slice(&Sha256::digest(rest));
        len = MAX_BYTES;
    }
    encode(&bytes[..len], space)
}

/// The disguise of an encrypted symbolic link's target: as of a name without a hash.
pub(crate) fn disguise_target(encrypted: &[u8]) -> Vec<u8> {
    disguise(NameHash { major: 0, minor: 0 }, encrypted, &mut [0; MAX_NAME_BYTES]).to_vec()
}

/// How long the disguise of so many encrypted bytes is.
pub(crate) const fn disguised_bytes(encrypted_bytes: u64) -> u64 {
    if encrypted_bytes > SHOWN_BYTES as u64 {
        MAX_NAME_BYTES as u64
    } else {
        ((HASH_BYTES as u64 + encrypted_bytes) * 4).div_ceil(3)
    }
}

fn encode<'a>(bytes: &[u8], space: &'a mut [u8; MAX_NAME_BYTES]) -> &'a [u8] {
    let mut len = 0;
    for group in bytes.chunks(3) {
        let word =
            group.iter().enumerate().fold(0, |word, (i, &byte)| word | u32::from(byte) << (16 - 8 * i));
        for digit in 0..=group.len() {
            space[len] = ALPHABET[(word >> (18 - 6 * digit) & 63) as usize];
            len += 1;
        }
    }
    &space[..len]
}

/// The bytes behind unpadded base64url; `None` for what no encoder makes.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut word = 0;
        for (i, digit) in group.iter().enumerate() {
            let value = ALPHABET.iter().position(|symbol| symbol == digit)?;
            word |= (value as u32) << (18 - 6 * i);
        }
        let [_, group_bytes @ ..] = word.to_be_bytes();
        let (kept, cut) = group_bytes.split_at(group.len() - 1);
        if group.len() == 1 || cut.iter().any(|&byte| byte != 0) {
            return None;
        }
        bytes.extend(kept);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: NameHash = NameHash { major: 0x0403_0200, minor: 0x0807_0605 };

    #[test]
    fn short_names_are_base64url_of_hash_and_bytes() {
        let mut space = [0; MAX_NAME_BYTES];
        let shown = disguise(HASH, &[0xff; 16], &mut space);
        // `base64` of 00 02 03 04 05 06 07 08 and sixteen ff, with its last two symbols replaced.
        assert_eq!(shown, b"AAIDBAUGBwj_____________________");
        let name = NokeyName::decode(shown).unwrap();
        assert_eq!(name.hash, HASH);
        assert!(name.stands_for(&[0xff; 16]));
        assert!(!name.stands_for(&[0xff; 17]));
    }

    #[test]
    fn every_length_comes_back() {
        for len in 1..=255_u64 {
            let encrypted: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut space = [0; MAX_NAME_BYTES];
            let shown = disguise(HASH, &encrypted, &mut space);
            let name = NokeyName::decode(shown).unwrap();
            assert!(name.stands_for(&encrypted), "{len}");
            assert_eq!(disguised_bytes(len), shown.len() as u64);
            let mut other = encrypted.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!name.stands_for(&other), "{len}");
        }
    }

    #[test]
    fn other_names_are_no_disguise() {
        for name in
            [&b"a"[..], b"AAIDBAUGBw", b"AAIDBAUGBwj_=", b"AAIDBAUGBw/_", b"AAIDBAUGBwj_B", &[b'A'; 255]]
        {
            assert_eq!(NokeyName::decode(name), None, "{name:?}");
        }
        // Longer than what is shown, too short for a digest.
        assert_eq!(NokeyName::decode(&[b'A'; 248]), None);
    }
}
