//! The checksums of ext4.
//!
//! Source: kernel documentation, "ext4 Data Structures and Algorithms", section "Checksums", and observation
//! of images made by mke2fs. ext4 keeps CRC-32C values without the final inversion that the polynomial's
//! common form has, so a running value can seed the next call.

/// CRC-32C (Castagnoli) in ext4's form: starts from `seed`, no inversion at either end.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// CRC-32C of a structure that holds its own checksum: the bytes in `hole` count as zeroes.
pub(crate) fn crc32c_around(seed: u32, bytes: &[u8], hole: std::ops::Range<usize>) -> u32 {
    const ZEROES: [u8; 8] = [0; 8];
    let before = crc32c(seed, &bytes[..hole.start]);
    let within = crc32c(before, &ZEROES[..hole.len()]);
    crc32c(within, &bytes[hole.end..])
}

/// CRC-16 (polynomial 0x8005, reflected) as group descriptors carried it before `metadata_csum`.
pub(crate) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &byte| (crc >> 8) ^ CRC16[((crc ^ u16::from(byte)) & 0xff) as usize])
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xA001 } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values from the catalogue of parametrised CRC algorithms.
    #[test]
    fn published_check_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283, "CRC-32/ISCSI");
        assert_eq!(crc16(0, b"123456789"), 0xBB3D, "CRC-16/ARC");
    }

    #[test]
    fn a_hole_counts_as_zeroes() {
        let mut bytes = *b"a structure of some length";
        let around = crc32c_around(7, &bytes, 4..8);
        bytes[4..8].fill(0);
        assert_eq!(around, crc32c(7, &bytes));
    }
}
