//! The checksum of version 1: CRC-32 of Ethernet, most significant bit first, without final inversion.
//!
//! Versions 2 and 3 are the CRC-32C of the rest of ext4.

/// CRC-32, polynomial 0x04C11DB7 unreflected, starting from `seed`.
pub(super) fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, &byte| (crc << 8) ^ TABLE[((crc >> 24) ^ u32::from(byte)) as usize])
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = (n as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { (crc << 1) ^ 0x04C1_1DB7 } else { crc << 1 };
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

    /// Check value of CRC-32/MPEG-2 in the catalogue of parametrised CRC algorithms.
    #[test]
    fn published_check_value() {
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7);
    }
}
