//! Numbers as mke2fs reads them, in its configuration and behind its options.

/// A number as C has it: decimal, hexadecimal behind `0x`, octal behind `0`, perhaps with a sign.
#[must_use]
pub fn c_number(text: &str) -> Option<i64> {
    let (digits, is_negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i64::from_str_radix(digits, radix).ok()?;
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::c_number;

    #[test]
    fn numbers_have_the_prefixes_of_c() {
        let numbers = ["0", "8192", "0x200", "0X1f", "020000", "-1", "+7", "00"].map(c_number);
        assert_eq!(numbers, [0, 8192, 0x200, 0x1f, 8192, -1, 7, 0].map(Some));
        for wrong in ["", "x", "8192x", "09", "0x", "--1", "0x-1", " 1", "1 ", "99999999999999999999"] {
            assert_eq!(c_number(wrong), None, "{wrong:?}");
        }
    }
}
