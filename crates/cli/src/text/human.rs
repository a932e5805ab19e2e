//! Sizes, times, modes and bars for people. Times are in UTC: an image belongs to no time zone.

use undercroft_vfs::{Attr, FileType, InodeFlags, Timestamp};

/// A number of bytes in the largest binary unit that leaves at least 1: `1.5 MiB`, `512 B`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let unit = (bytes.ilog2() / 10) as usize;
    let mut tenths = tenths_of(bytes, unit);
    let mut unit = unit;
    if tenths >= 10_240 && unit < UNITS.len() {
        unit += 1;
        tenths = tenths_of(bytes, unit);
    }
    let name = UNITS[unit - 1];
    if tenths.is_multiple_of(10) || tenths >= 1000 {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

/// A number of bytes as `ls -h` has it: rounded up, with one decimal below ten of a unit: `1.5K`, `12M`, `512`.
pub(crate) fn ls_size(bytes: u64) -> String {
    const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];
    if bytes < 1024 {
        return bytes.to_string();
    }
    for (place, unit) in (1..).zip(UNITS) {
        let one = 1_u128 << (10 * place);
        let (tenths, whole) = ((u128::from(bytes) * 10).div_ceil(one), u128::from(bytes).div_ceil(one));
        if tenths < 100 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        if whole < 1024 || unit == 'E' {
            return format!("{whole}{unit}");
        }
    }
    bytes.to_string()
}

/// The size in tenths of the unit `1024^unit`, rounded to nearest.
fn tenths_of(bytes: u64, unit: usize) -> u64 {
    let one = 1_u128 << (10 * unit);
    ((u128::from(bytes) * 10 + one / 2) / one) as u64
}

/// A count with a thin separator between thousands: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `2 files`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

fn civil(time: Timestamp) -> Option<jiff::Timestamp> {
    let nanoseconds = i32::try_from(time.nanoseconds).ok()?;
    // jiff wants the fraction to have the sign of the seconds.
    if time.seconds < 0 && nanoseconds > 0 {
        jiff::Timestamp::new(time.seconds + 1, nanoseconds - 1_000_000_000).ok()
    } else {
        jiff::Timestamp::new(time.seconds, nanoseconds).ok()
    }
}

/// RFC 3339 with nanoseconds; seconds since 1970 after an `@` for years that a calendar does not show.
pub(crate) fn exact_time(time: Timestamp) -> String {
    civil(time).map_or_else(
        || format!("@{}.{:09}", time.seconds, time.nanoseconds),
        |time| time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string(),
    )
}

/// To the minute, for lists.
pub(crate) fn short_time(time: Timestamp) -> String {
    civil(time)
        .map_or_else(|| format!("@{}", time.seconds), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// To the second; `never` for the epoch, with which filesystems say so.
pub(crate) fn second_or_never(time: Timestamp) -> String {
    if time.seconds == 0 {
        return "never".to_owned();
    }
    civil(time).map_or_else(
        || format!("@{}", time.seconds),
        |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// The time, for logs.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The letter of a kind of file in the first column of `ls -l`.
pub(crate) const fn kind_letter(kind: FileType) -> char {
    match kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Socket => 's',
    }
}

/// A kind of file in words, also its name in JSON.
pub(crate) const fn kind_word(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Socket => "socket",
    }
}

/// The ten letters of `ls -l`.
pub(crate) fn mode_letters(attr: &Attr) -> String {
    let mode = u32::from(attr.permissions);
    let mut text = String::with_capacity(10);
    text.push(kind_letter(attr.kind));
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The letters of `lsattr`, in its order; a dash when there are none.
pub(crate) fn flag_letters(flags: InodeFlags) -> String {
    const LETTERS: [(InodeFlags, char); 21] = [
        (InodeFlags::SECURE_DELETION, 's'),
        (InodeFlags::UNDELETE, 'u'),
        (InodeFlags::SYNC, 'S'),
        (InodeFlags::DIRSYNC, 'D'),
        (InodeFlags::IMMUTABLE, 'i'),
        (InodeFlags::APPEND, 'a'),
        (InodeFlags::NODUMP, 'd'),
        (InodeFlags::NOATIME, 'A'),
        (InodeFlags::COMPRESSED, 'c'),
        (InodeFlags::ENCRYPTED, 'E'),
        (InodeFlags::JOURNAL_DATA, 'j'),
        (InodeFlags::INDEXED, 'I'),
        (InodeFlags::NOTAIL, 't'),
        (InodeFlags::TOPDIR, 'T'),
        (InodeFlags::EXTENTS, 'e'),
        (InodeFlags::NOCOW, 'C'),
        (InodeFlags::DAX, 'x'),
        (InodeFlags::CASEFOLD, 'F'),
        (InodeFlags::INLINE_DATA, 'N'),
        (InodeFlags::PROJECT_INHERIT, 'P'),
        (InodeFlags::VERITY, 'V'),
    ];
    let text: String =
        LETTERS.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, letter)| *letter).collect();
    if text.is_empty() { "-".to_owned() } else { text }
}

/// A bar that is filled to `part` of `whole`, to an eighth of a column.
pub(crate) fn bar(part: u64, whole: u64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let steps = width as u128 * 8;
    let filled =
        if whole == 0 { 0 } else { (u128::from(part.min(whole)) * steps / u128::from(whole)) as usize };
    let mut text: String = std::iter::repeat_n('█', filled / 8).collect();
    if filled % 8 > 0 {
        text.push(EIGHTHS[filled % 8]);
    }
    let drawn = filled.div_ceil(8);
    text.extend(std::iter::repeat_n('·', width - drawn));
    text
}

/// A percentage; `<1%` and `>99%` rather than a false 0 or 100.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0%".to_owned();
    }
    let rounded = (u128::from(part) * 100 + u128::from(whole) / 2) / u128::from(whole);
    match rounded {
        0 if part > 0 => "<1%".to_owned(),
        100 if part < whole => ">99%".to_owned(),
        rounded => format!("{rounded}%"),
    }
}

#[cfg(test)]
mod tests {
    use undercroft_vfs::Timestamp;

    use super::{bar, count, exact_time, percent, second_or_never, size};

    #[test]
    fn sizes_take_the_unit_that_reads_best() {
        let shown: Vec<String> = [0, 1023, 1024, 1536, 10 << 20, 123 << 20, (1 << 20) - 1, u64::MAX]
            .into_iter()
            .map(size)
            .collect();
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "10 MiB", "123 MiB", "1 MiB", "16 EiB"]);
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn times_before_1970_and_beyond_calendars_are_exact() {
        let shown = |seconds, nanoseconds| exact_time(Timestamp { seconds, nanoseconds });
        assert_eq!(shown(0, 1), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(shown(-1, 500_000_000), "1969-12-31T23:59:59.500000000Z");
        assert_eq!(shown(i64::MIN, 0), "@-9223372036854775808.000000000");
        assert_eq!(second_or_never(Timestamp::default()), "never");
        assert_eq!(
            second_or_never(Timestamp { seconds: 1 << 31, nanoseconds: 0 }),
            "2038-01-19 03:14:08 UTC"
        );
    }

    #[test]
    fn bars_and_percentages_do_not_pretend() {
        assert_eq!(bar(1, 2, 4), "██··");
        assert_eq!(bar(1, 16, 4), "▎···");
        assert_eq!(bar(9, 2, 2), "██");
        assert_eq!(bar(0, 0, 2), "··");
        assert_eq!(
            [percent(1, 1000), percent(999, 1000), percent(1, 2), percent(0, 5)],
            ["<1%", ">99%", "50%", "0%"]
        );
    }
}
