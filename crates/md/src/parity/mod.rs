//! Parity arithmetic: the XOR of many chunks, and RAID6's second syndrome, in the widest form the processor
//! has.
//!
//! *P* is the XOR of the data. *Q* is the sum of 2^e times each data chunk in GF(2^8) with the polynomial
//! 0x11d, as in "The mathematics of RAID-6" (H. Peter Anvin); the exponent e of a chunk is its place among the `data`
//! that the functions take, or is told. All functions go through their operands once and are bound by memory.
//!
//! Public, so that its speed can be measured (`cargo bench -p undercroft-md --bench parity`). `gf` is the field,
//! `wide` the loops, `recover` what follows from both. All slices of a call are equally long; anything else is the
//! caller's mistake and a panic.

mod gf;
mod recover;
mod wide;

pub use recover::{recover_data_and_p, recover_two_data};
pub use wide::Form;

/// One data chunk, which may be missing: it then counts as zeroes.
pub trait Chunk: Copy + private::Sealed {
    /// The bytes, if they are there.
    fn bytes(&self) -> Option<&[u8]>;
}

mod private {
    /// Keeps other crates from adding kinds of chunks.
    pub trait Sealed {}
    impl Sealed for &[u8] {}
    impl Sealed for Option<&[u8]> {}
}

impl Chunk for &[u8] {
    #[inline(always)]
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl Chunk for Option<&[u8]> {
    #[inline(always)]
    fn bytes(&self) -> Option<&[u8]> {
        *self
    }
}

/// `dst ^= src`.
pub fn xor_into(dst: &mut [u8], src: &[u8]) {
    Form::best().xor_into(dst, src);
}

/// `dst` becomes the XOR of all sources; zeroes where there is none.
pub fn xor_of<C: Chunk>(dst: &mut [u8], sources: &[C]) {
    Form::best().xor_of(dst, sources);
}

/// Both syndromes of the data, which come by rising exponent from 0 on.
pub fn syndrome<C: Chunk>(p: &mut [u8], q: &mut [u8], data: &[C]) {
    Form::best().syndrome(p, q, data);
}

/// `q ^= 2^exponent * delta`: what a change of one data chunk by `delta` (old ^ new) does to Q.
pub fn add_scaled(q: &mut [u8], delta: &[u8], exponent: u32) {
    Form::best().add_multiple(q, delta, gf::power(exponent));
}
