//! Hashes of names, by which an indexed directory finds the block that holds one.
//!
//! Source: kernel documentation, section "Hash Tree Directories"; details checked against `debugfs dx_hash`, whose
//! output the tests contain. There are three functions. Each takes the name's bytes as signed or unsigned numbers,
//! depending on the machine that made the filesystem; the superblock remembers which. The fourth, SipHash, needs an
//! encryption key and is not here.

use crate::superblock::HashDefaults;

/// SipHash, in directories that are both encrypted and casefolded.
pub(super) const VERSION_SIPHASH: u8 = 6;

/// Initial state where the superblock has no seed: that of MD4.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Marks the end of a directory for a reader by hash; no name has it.
const END_OF_DIRECTORY: u32 = 0xffff_fffe;

/// A name's place in the index. The lowest bit is always clear: an index entry that has it set goes on with the
/// names whose hash is one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameHash {
    pub(crate) major: u32,
    /// Tells apart names whose `major` is the same; no part of the index.
    pub(crate) minor: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

/// One of the functions with everything it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHasher {
    function: Function,
    unsigned: bool,
    seed: [u32; 4],
}

impl NameHasher {
    /// The function with the number `version`; `None` when it is not one of those here.
    pub(crate) fn new(version: u8, defaults: HashDefaults) -> Option<Self> {
        let function = match version {
            0 => Function::Legacy,
            1 => Function::HalfMd4,
            2 => Function::Tea,
            _ => return None,
        };
        let seed = if defaults.seed == [0; 4] { DEFAULT_SEED } else { defaults.seed };
        Some(Self { function, unsigned: defaults.unsigned, seed })
    }

    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = match self.function {
            Function::Legacy => (self.legacy(name), 0),
            Function::HalfMd4 => {
                let mut state = self.seed;
                for rest in tails(name, 32) {
                    half_md4(&mut state, &self.words(rest));
                }
                (state[1], state[2])
            }
            Function::Tea => {
                let mut state = self.seed;
                for rest in tails(name, 16) {
                    tea(&mut state, &self.words(rest));
                }
                (state[0], state[1])
            }
        };
        let major = match major & !1 {
            END_OF_DIRECTORY => END_OF_DIRECTORY - 2,
            major => major,
        };
        NameHash { major, minor }
    }

    /// A byte as the number that C made of a `char`.
    fn widen(&self, byte: u8) -> u32 {
        if self.unsigned { u32::from(byte) } else { byte.cast_signed() as u32 }
    }

    /// The function of the first indexed directories.
    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &byte in name {
            let mut next = before.wrapping_add(last ^ self.widen(byte).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, last) = (last, next);
        }
        last << 1
    }

    /// The first `4 * N` bytes as big-endian words. What is missing is filled up with the length.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let length = rest.len() as u32;
        let mut pad = length | length << 8;
        pad |= pad << 16;
        let mut words = [pad; N];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            *word = bytes.iter().fold(pad, |word, &byte| (word << 8).wrapping_add(self.widen(byte)));
        }
        words
    }
}

/// What is left of `name` at each step of `step` bytes.
fn tails(name: &[u8], step: usize) -> impl Iterator<Item = &[u8]> {
    (0..name.len()).step_by(step).map(|at| &name[at..])
}

/// MD4's rounds over half as many words.
fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [u32; 4], [usize; 8]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [3, 7, 11, 19], [0, 1, 2, 3, 4, 5, 6, 7]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5a82_7999, [3, 5, 9, 13], [1, 3, 5, 7, 0, 2, 4, 6]),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 9, 11, 15], [3, 7, 2, 6, 1, 5, 0, 4]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, shifts, order) in rounds {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (part, by) in state.iter_mut().zip([a, b, c, d]) {
        *part = part.wrapping_add(by);
    }
}

/// The Tiny Encryption Algorithm with sixteen rounds, the words as key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [mut left, mut right, ..] = *state;
    let mut sum = 0_u32;
    let mix = |half: u32, sum: u32, first: u32, second: u32| {
        (half << 4).wrapping_add(first) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(second)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        left = left.wrapping_add(mix(right, sum, key[0], key[1]));
        right = right.wrapping_add(mix(left, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u32; 4] = [0; 4];
    /// 9a6d3c1e-4f0b-4c8a-b7e2-51d0c6f3a987
    const SEED: [u32; 4] = [0x1e3c_6d9a, 0x8a4c_0b4f, 0xd051_e2b7, 0x87a9_f3c6];
    const THIRTY_TWO: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    const LONGER: &str = "A_name_that_is_longer_than_thirty-two_bytes.text";

    /// Answers of `debugfs -R "dx_hash -h <version> -s <seed> <name>"` (e2fsprogs 1.47), in which versions 3 to
    /// 5 are the first three with unsigned bytes.
    #[test]
    fn answers_of_debugfs() {
        for (version, unsigned, seed, name, major, minor) in [
            (0, false, NONE, "a", 0xe74b_53e2, 0x0),
            (0, false, SEED, "a", 0xe74b_53e2, 0x0),
            (0, false, NONE, "lost+found", 0x5e2a_ba24, 0x0),
            (0, false, NONE, "naïve-ümläut", 0xab64_7ed8, 0x0),
            (0, true, NONE, "naïve-ümläut", 0x7c08_1cc2, 0x0),
            (0, false, NONE, LONGER, 0xe637_39a6, 0x0),
            (1, false, NONE, "a", 0xd5fa_7d7a, 0xacb4_8187),
            (1, false, SEED, "a", 0xb166_dd56, 0xf0ab_ab02),
            (1, true, SEED, "a", 0xb166_dd56, 0xf0ab_ab02),
            (1, false, NONE, "lost+found", 0x591d_e422, 0x6ffc_56e0),
            (1, false, NONE, "naïve-ümläut", 0xd427_9db6, 0x593f_abdb),
            (1, false, SEED, "naïve-ümläut", 0x3215_2e34, 0x7873_1614),
            (1, true, SEED, "naïve-ümläut", 0x684a_5d32, 0x7472_b06c),
            (1, false, SEED, THIRTY_TWO, 0x53f9_9e46, 0xe3d0_1dc5),
            (1, false, SEED, LONGER, 0x9ad0_ced2, 0xaafe_2ca1),
            (2, false, NONE, "a", 0x6d0e_a4c0, 0xc189_22df),
            (2, false, SEED, "a", 0x8892_ca22, 0x9a35_2296),
            (2, false, NONE, "naïve-ümläut", 0x3639_1004, 0xd984_b3fc),
            (2, true, NONE, "naïve-ümläut", 0xdd73_969c, 0x86ac_a810),
            (2, true, SEED, "naïve-ümläut", 0x739c_b80a, 0xeea1_19ee),
            (2, false, SEED, THIRTY_TWO, 0x0c83_5426, 0xbf3a_e764),
            (2, false, SEED, LONGER, 0xcfda_0bfc, 0x1601_416d),
        ] {
            let defaults = HashDefaults { version, seed, unsigned };
            let hash = NameHasher::new(version, defaults).unwrap().hash(name.as_bytes());
            assert_eq!(hash, NameHash { major, minor }, "version {version}, unsigned {unsigned}, {name}");
        }
    }

    #[test]
    fn unknown_functions_are_not_guessed() {
        let defaults = HashDefaults { version: 1, seed: NONE, unsigned: false };
        for version in [3, 4, 5, VERSION_SIPHASH, 7, 255] {
            assert!(NameHasher::new(version, defaults).is_none());
        }
    }
}
