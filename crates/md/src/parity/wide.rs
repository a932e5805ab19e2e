//! The loops over bytes, in three forms: 64 bytes at a time (AVX-512), 32 (AVX2), and 8 on any processor.
//!
//! Each loop is written once, over [`Lanes`]. It holds some sums in registers and goes through all sources for them
//! before it moves on, so that sums are written once however many sources there are. What is left at the end, less than
//! a block, is done byte by byte.
#![expect(
    unsafe_code,
    reason = "vector instructions, and loads and stores by address, in the loops that are bound by memory"
)]

use std::ops::Range;

use super::{Chunk, gf};

/// How wide the loops are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form(Width);

// Only `Form::all` makes values, so that a width stands for the processor having it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Bytes that one step works on at once.
///
/// # Safety
/// The functions may be called only where the processor has the instructions; `load` and `store` reach over `BYTES`
/// bytes from the address, aligned or not.
unsafe trait Lanes: Copy {
    const BYTES: usize;
    /// A factor, ready for use.
    type Factor: Copy;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    unsafe fn zero() -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    /// Each byte times 2.
    unsafe fn twice(self) -> Self;
    unsafe fn factor(by: u8) -> Self::Factor;
    /// Each byte times a factor.
    unsafe fn times(self, factor: &Self::Factor) -> Self;
}

/// Sums that a loop holds in registers at once.
const HELD: usize = 4;

/// Sources that are gone through side by side: with many more, lines that the processor has fetched ahead drive each
/// other out of its first cache, since chunks lie at the same place of their pages.
const ABREAST: usize = 8;
/// How far groups of so many go before it is the next group's turn: the sums stay in cache, and the processor sees that
/// it may fetch ahead. A multiple of all blocks.
const TILE_BYTES: usize = 32768;

/// Whole blocks of a range, as offsets of their first bytes.
fn blocks<L: Lanes>(range: &Range<usize>) -> impl Iterator<Item = usize> + use<L> {
    let begin = range.start;
    (0..range.len() / (HELD * L::BYTES)).map(move |number| begin + number * HELD * L::BYTES)
}

/// What is left of a range behind its blocks.
fn tail<L: Lanes>(range: &Range<usize>) -> Range<usize> {
    range.end - range.len() % (HELD * L::BYTES)..range.end
}

/// The tiles of `len` bytes.
fn tiles(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len.div_ceil(TILE_BYTES)).map(move |tile| tile * TILE_BYTES..len.min((tile + 1) * TILE_BYTES))
}

/// # Safety
/// The processor has the lanes, `dst` and all sources are equally long.
#[inline(always)]
unsafe fn xor_of<L: Lanes, C: Chunk>(dst: &mut [u8], sources: &[C], keeps_dst: bool) {
    if sources.len() <= ABREAST {
        // SAFETY: the caller's.
        return unsafe { xor_range::<L, C>(dst, sources, keeps_dst, 0..dst.len()) };
    }
    for tile in tiles(dst.len()) {
        for (number, group) in sources.chunks(ABREAST).enumerate() {
            // SAFETY: the caller's; tiles lie within `dst`.
            unsafe { xor_range::<L, C>(dst, group, keeps_dst || number > 0, tile.clone()) };
        }
    }
}

/// # Safety
/// As for [`xor_of`]; the range lies within `dst`.
#[inline(always)]
unsafe fn xor_range<L: Lanes, C: Chunk>(dst: &mut [u8], sources: &[C], keeps_dst: bool, range: Range<usize>) {
    for block in blocks::<L>(&range) {
        // SAFETY: the block lies within `dst`, and so within every source, which is as long.
        unsafe {
            let mut sums = [L::zero(); HELD];
            if keeps_dst {
                for (number, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load(dst.as_ptr().add(block + number * L::BYTES));
                }
            }
            for source in sources {
                let Some(source) = source.bytes() else { continue };
                for (number, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.xor(L::load(source.as_ptr().add(block + number * L::BYTES)));
                }
            }
            for (number, sum) in sums.into_iter().enumerate() {
                sum.store(dst.as_mut_ptr().add(block + number * L::BYTES));
            }
        }
    }
    for at in tail::<L>(&range) {
        let sum = if keeps_dst { dst[at] } else { 0 };
        dst[at] = sources.iter().filter_map(Chunk::bytes).fold(sum, |sum, source| sum ^ source[at]);
    }
}

/// # Safety
/// The processor has the lanes, `p`, `q` and all data are equally long.
#[inline(always)]
unsafe fn syndrome<L: Lanes, C: Chunk>(p: &mut [u8], q: &mut [u8], data: &[C]) {
    if data.len() <= ABREAST {
        // SAFETY: the caller's.
        return unsafe { syndrome_range::<L, C>(p, q, data, false, 0..p.len()) };
    }
    for tile in tiles(p.len()) {
        // From the highest powers down: what comes later multiplies what is there.
        for (number, group) in data.rchunks(ABREAST).enumerate() {
            // SAFETY: the caller's; tiles lie within `p`.
            unsafe { syndrome_range::<L, C>(p, q, group, number > 0, tile.clone()) };
        }
    }
}

/// Goes on from the sums that are there, if `keeps_sums`.
///
/// # Safety
/// As for [`syndrome`]; the range lies within `p`.
#[inline(always)]
unsafe fn syndrome_range<L: Lanes, C: Chunk>(
    p: &mut [u8],
    q: &mut [u8],
    data: &[C],
    keeps_sums: bool,
    range: Range<usize>,
) {
    for block in blocks::<L>(&range) {
        // SAFETY: the block lies within `p`, and so within `q` and every chunk, which are as long.
        unsafe {
            let mut p_sums = [L::zero(); HELD];
            let mut q_sums = [L::zero(); HELD];
            if keeps_sums {
                for number in 0..HELD {
                    p_sums[number] = L::load(p.as_ptr().add(block + number * L::BYTES));
                    q_sums[number] = L::load(q.as_ptr().add(block + number * L::BYTES));
                }
            }
            // From the highest power down, so that each step needs to double only.
            for chunk in data.iter().rev() {
                match chunk.bytes() {
                    Some(bytes) => {
                        for number in 0..HELD {
                            let lanes = L::load(bytes.as_ptr().add(block + number * L::BYTES));
                            p_sums[number] = p_sums[number].xor(lanes);
                            q_sums[number] = q_sums[number].twice().xor(lanes);
                        }
                    }
                    None => {
                        for sum in &mut q_sums {
                            *sum = sum.twice();
                        }
                    }
                }
            }
            for number in 0..HELD {
                p_sums[number].store(p.as_mut_ptr().add(block + number * L::BYTES));
                q_sums[number].store(q.as_mut_ptr().add(block + number * L::BYTES));
            }
        }
    }
    for at in tail::<L>(&range) {
        let sums = if keeps_sums { (p[at], q[at]) } else { (0, 0) };
        (p[at], q[at]) = data.iter().rev().fold(sums, |(p, q), chunk| {
            let byte = chunk.bytes().map_or(0, |bytes| bytes[at]);
            (p ^ byte, gf::twice(q) ^ byte)
        });
    }
}

/// `dst ^= src * by`.
///
/// # Safety
/// The processor has the lanes, `dst` and `src` are equally long.
#[inline(always)]
unsafe fn add_multiple<L: Lanes>(dst: &mut [u8], src: &[u8], by: u8) {
    // SAFETY: the processor has the lanes.
    let factor = unsafe { L::factor(by) };
    let range = 0..dst.len();
    for block in blocks::<L>(&range) {
        for number in 0..HELD {
            let at = block + number * L::BYTES;
            // SAFETY: the block lies within `dst`, and so within `src`, which is as long.
            unsafe {
                let lanes = L::load(src.as_ptr().add(at)).times(&factor);
                L::load(dst.as_ptr().add(at)).xor(lanes).store(dst.as_mut_ptr().add(at));
            }
        }
    }
    for at in tail::<L>(&range) {
        dst[at] ^= gf::product(src[at], by);
    }
}

/// `dst *= by`.
///
/// # Safety
/// The processor has the lanes.
#[inline(always)]
unsafe fn multiply<L: Lanes>(dst: &mut [u8], by: u8) {
    // SAFETY: the processor has the lanes.
    let factor = unsafe { L::factor(by) };
    let range = 0..dst.len();
    for block in blocks::<L>(&range) {
        for number in 0..HELD {
            let at = block + number * L::BYTES;
            // SAFETY: the block lies within `dst`.
            unsafe { L::load(dst.as_ptr().add(at)).times(&factor).store(dst.as_mut_ptr().add(at)) };
        }
    }
    for byte in &mut dst[tail::<L>(&range)] {
        *byte = gf::product(*byte, by);
    }
}

// SAFETY: no special instructions; addresses are used as the trait demands.
unsafe impl Lanes for u64 {
    const BYTES: usize = 8;
    /// Every byte times the factor.
    type Factor = [u8; 256];

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    unsafe fn twice(self) -> Self {
        let high = (self >> 7) & 0x0101_0101_0101_0101;
        // No byte of the product reaches into the next: it is 0 or 0x1d.
        ((self << 1) & 0xfefe_fefe_fefe_fefe) ^ (high * 0x1d)
    }

    #[inline(always)]
    unsafe fn factor(by: u8) -> Self::Factor {
        std::array::from_fn(|byte| gf::product(byte as u8, by))
    }

    #[inline(always)]
    unsafe fn times(self, factor: &Self::Factor) -> Self {
        Self::from_ne_bytes(self.to_ne_bytes().map(|byte| factor[byte as usize]))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Lanes, gf};

    /// Products of the factor with each low, and each high, half of a byte: what a shuffle looks up.
    fn halves(by: u8) -> [[u8; 16]; 2] {
        [
            std::array::from_fn(|half| gf::product(half as u8, by)),
            std::array::from_fn(|half| gf::product((half as u8) << 4, by)),
        ]
    }

    // SAFETY: the instructions are those of AVX2; addresses are used as the trait demands, unaligned.
    unsafe impl Lanes for __m256i {
        const BYTES: usize = 32;
        type Factor = [Self; 2];

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller's.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller's.
            unsafe { _mm256_storeu_si256(to.cast(), self) }
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's.
            unsafe { _mm256_setzero_si256() }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller's.
            unsafe { _mm256_xor_si256(self, other) }
        }

        #[inline(always)]
        unsafe fn twice(self) -> Self {
            // SAFETY: the caller's.
            unsafe {
                let negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self);
                let fold = _mm256_and_si256(negative, _mm256_set1_epi8(0x1d));
                _mm256_xor_si256(_mm256_add_epi8(self, self), fold)
            }
        }

        #[inline(always)]
        unsafe fn factor(by: u8) -> Self::Factor {
            // SAFETY: the caller's; the halves are as long as what is loaded.
            halves(by)
                .map(|half| unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(half.as_ptr().cast())) })
        }

        #[inline(always)]
        unsafe fn times(self, factor: &Self::Factor) -> Self {
            // SAFETY: the caller's.
            unsafe {
                let mask = _mm256_set1_epi8(0x0f);
                let low = _mm256_and_si256(self, mask);
                let high = _mm256_and_si256(_mm256_srli_epi64::<4>(self), mask);
                _mm256_xor_si256(_mm256_shuffle_epi8(factor[0], low), _mm256_shuffle_epi8(factor[1], high))
            }
        }
    }

    // SAFETY: the instructions are those of AVX-512 F and BW; addresses are used as the trait demands, unaligned.
    unsafe impl Lanes for __m512i {
        const BYTES: usize = 64;
        type Factor = [Self; 2];

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller's.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller's.
            unsafe { _mm512_storeu_si512(to.cast(), self) }
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's.
            unsafe { _mm512_setzero_si512() }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller's.
            unsafe { _mm512_xor_si512(self, other) }
        }

        #[inline(always)]
        unsafe fn twice(self) -> Self {
            // SAFETY: the caller's.
            unsafe {
                let fold = _mm512_maskz_set1_epi8(_mm512_movepi8_mask(self), 0x1d);
                _mm512_xor_si512(_mm512_add_epi8(self, self), fold)
            }
        }

        #[inline(always)]
        unsafe fn factor(by: u8) -> Self::Factor {
            // SAFETY: the caller's; the halves are as long as what is loaded.
            halves(by).map(|half| unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(half.as_ptr().cast())) })
        }

        #[inline(always)]
        unsafe fn times(self, factor: &Self::Factor) -> Self {
            // SAFETY: the caller's.
            unsafe {
                let mask = _mm512_set1_epi8(0x0f);
                let low = _mm512_and_si512(self, mask);
                let high = _mm512_and_si512(_mm512_srli_epi64::<4>(self), mask);
                _mm512_xor_si512(_mm512_shuffle_epi8(factor[0], low), _mm512_shuffle_epi8(factor[1], high))
            }
        }
    }
}

/// Defines a method that runs one of the loops above in the form's width. The arguments have been validated.
macro_rules! dispatch {
    ($(fn $name:ident $(<$C:ident: $bound:ident>)? ($($argument:ident: $type:ty),*) = $kernel:ident;)*) => {$(
        fn $name $(<$C: $bound>)? (self, $($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2 $(<$C: $bound>)? ($($argument: $type),*) {
                // SAFETY: the function's own features, and lengths that its caller has validated.
                unsafe { $kernel::<std::arch::x86_64::__m256i $(, $C)?>($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw")]
            fn avx512 $(<$C: $bound>)? ($($argument: $type),*) {
                // SAFETY: as above.
                unsafe { $kernel::<std::arch::x86_64::__m512i $(, $C)?>($($argument),*) }
            }
            match self.0 {
                // SAFETY: every processor has these; the callers, all in this file, check the lengths.
                Width::Portable => unsafe { $kernel::<u64 $(, $C)?>($($argument),*) },
                // SAFETY: `Form::all` made the value because the processor has the instructions.
                #[cfg(target_arch = "x86_64")]
                Width::Avx2 => unsafe { avx2($($argument),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Width::Avx512 => unsafe { avx512($($argument),*) },
            }
        }
    )*};
}

impl Form {
    dispatch! {
        fn run_xor_of<C: Chunk>(dst: &mut [u8], sources: &[C], keeps_dst: bool) = xor_of;
        fn run_syndrome<C: Chunk>(p: &mut [u8], q: &mut [u8], data: &[C]) = syndrome;
        fn run_add_multiple(dst: &mut [u8], src: &[u8], by: u8) = add_multiple;
        fn run_multiply(dst: &mut [u8], by: u8) = multiply;
    }

    /// All that this processor has, the widest last.
    #[must_use]
    pub fn all() -> Vec<Self> {
        [Some(Self(Width::Portable)), Self::avx2(), Self::avx512()].into_iter().flatten().collect()
    }

    /// The widest that this processor has.
    #[must_use]
    pub fn best() -> Self {
        // What the processor has is looked up once for the process; this costs a load or two.
        Self::avx512().or_else(Self::avx2).unwrap_or(Self(Width::Portable))
    }

    fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            return Some(Self(Width::Avx2));
        }
        None
    }

    fn avx512() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            return Some(Self(Width::Avx512));
        }
        None
    }

    /// As [`xor_into`](super::xor_into).
    pub fn xor_into(self, dst: &mut [u8], src: &[u8]) {
        same_len(dst.len(), &[src]);
        self.run_xor_of(dst, &[src], true);
    }

    /// As [`xor_of`](super::xor_of).
    pub fn xor_of<C: Chunk>(self, dst: &mut [u8], sources: &[C]) {
        same_len(dst.len(), sources);
        self.run_xor_of(dst, sources, false);
    }

    /// As [`syndrome`](super::syndrome).
    pub fn syndrome<C: Chunk>(self, p: &mut [u8], q: &mut [u8], data: &[C]) {
        same_len(p.len(), &[&*q]);
        same_len(p.len(), data);
        self.run_syndrome(p, q, data);
    }

    /// `dst ^= src * by`, each byte in the field.
    pub(super) fn add_multiple(self, dst: &mut [u8], src: &[u8], by: u8) {
        same_len(dst.len(), &[src]);
        self.run_add_multiple(dst, src, by);
    }

    /// `dst *= by`, each byte in the field.
    pub(super) fn multiply(self, dst: &mut [u8], by: u8) {
        self.run_multiply(dst, by);
    }
}

/// The loops go by the length of one operand and trust the others, so this stands before all of them.
fn same_len<C: Chunk>(len: usize, chunks: &[C]) {
    for bytes in chunks.iter().filter_map(Chunk::bytes) {
        assert_eq!(bytes.len(), len, "operands of parity arithmetic differ in length");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that look random and can be had again.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        undercroft_block::testing::Rng::new(seed).bytes(len)
    }

    fn naive_syndrome(data: &[Option<&[u8]>], len: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        for (exponent, chunk) in (0..).zip(data) {
            for at in 0..len {
                let byte = chunk.map_or(0, |chunk| chunk[at]);
                p[at] ^= byte;
                q[at] ^= gf::product(gf::power(exponent), byte);
            }
        }
        (p, q)
    }

    #[test]
    fn every_form_of_every_length_and_alignment_agrees_with_a_byte_loop() {
        const SOURCES: usize = 3;
        for form in Form::all() {
            for len in (0..40).chain([63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 511, 512, 600, 1025]) {
                for shift in 0..9 {
                    let buffers: Vec<Vec<u8>> =
                        (0..SOURCES).map(|number| noise(number as u64, len + 64)).collect();
                    let data: Vec<&[u8]> = (0..SOURCES)
                        .map(|number| &buffers[number][(shift * 7 + number * 3) % 64..][..len])
                        .collect();
                    let some: Vec<Option<&[u8]>> = data.iter().copied().map(Some).collect();
                    let (p, q) = naive_syndrome(&some, len);
                    let mut found = vec![noise(9, len + 64), noise(10, len + 64)];
                    let untouched = found.clone();
                    let (one, other) = found.split_at_mut(1);
                    let (one, other) = (&mut one[0][shift..shift + len], &mut other[0][shift * 5..][..len]);
                    form.syndrome(one, other, &data);
                    assert_eq!((&*one, &*other), (&p[..], &q[..]), "{form:?} {len} {shift}");

                    one.fill(1);
                    form.xor_of(one, &data);
                    assert_eq!(one, p, "{form:?} {len} {shift}");
                    form.xor_into(one, &p);
                    assert!(one.iter().all(|&byte| byte == 0));
                    form.add_multiple(one, data[1], 0x8e);
                    let product = |byte: &u8| gf::product(*byte, 0x8e);
                    assert!(one.iter().eq(data[1].iter().map(product).collect::<Vec<_>>().iter()));
                    other.copy_from_slice(data[1]);
                    form.multiply(other, 0x8e);
                    assert_eq!(one, other, "{form:?} {len} {shift}");

                    // Nothing beside the operands was written.
                    assert_eq!(found[0][..shift], untouched[0][..shift]);
                    assert_eq!(found[0][shift + len..], untouched[0][shift + len..]);
                    assert_eq!(found[1][..shift * 5], untouched[1][..shift * 5]);
                    assert_eq!(found[1][shift * 5 + len..], untouched[1][shift * 5 + len..]);
                }
            }
        }
    }

    #[test]
    fn any_number_of_sources_some_of_them_missing() {
        for form in Form::all() {
            for count in [0, 1, 2, 5, 8, 9, 16, 32, 40, 255] {
                let buffers: Vec<Vec<u8>> = (0..count).map(|number| noise(number, 517)).collect();
                for gap in [1, 2, 7] {
                    let data: Vec<Option<&[u8]>> = buffers
                        .iter()
                        .enumerate()
                        .map(|(number, bytes)| (gap == 1 || number % gap != 0).then_some(&bytes[..]))
                        .collect();
                    let expected = naive_syndrome(&data, 517);
                    let (mut p, mut q) = (vec![5; 517], vec![5; 517]);
                    form.syndrome(&mut p, &mut q, &data);
                    assert_eq!((&p, &q), (&expected.0, &expected.1), "{form:?} {count} {gap}");
                    q.fill(7);
                    form.xor_of(&mut q, &data);
                    assert_eq!(p, q);
                }
            }
        }
    }

    #[test]
    fn many_sources_longer_than_a_tile() {
        let len = 2 * TILE_BYTES + 333;
        let buffers: Vec<Vec<u8>> = (0..19).map(|number| noise(number, len)).collect();
        let data: Vec<Option<&[u8]>> =
            buffers.iter().enumerate().map(|(number, bytes)| (number != 11).then_some(&bytes[..])).collect();
        let expected = naive_syndrome(&data, len);
        for form in Form::all() {
            let (mut p, mut q) = (vec![5; len], vec![5; len]);
            form.syndrome(&mut p, &mut q, &data);
            assert!((&p, &q) == (&expected.0, &expected.1), "{form:?}");
            form.xor_of(&mut q, &data);
            assert!(p == q, "{form:?}");
        }
    }

    #[test]
    fn every_factor_in_every_form() {
        let bytes: Vec<u8> = (0..=255).cycle().take(300).collect();
        for form in Form::all() {
            for by in 0..=255 {
                let mut found = bytes.clone();
                form.multiply(&mut found, by);
                assert!(found.iter().zip(&bytes).all(|(&found, &byte)| found == gf::product(byte, by)));
            }
        }
    }

    #[test]
    #[should_panic(expected = "differ in length")]
    fn operands_of_different_lengths_are_not_touched() {
        Form::best().xor_of(&mut [0; 256], &[&[0; 255][..]]);
    }
}
