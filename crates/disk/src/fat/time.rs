//! Times as FAT has them: from 1980 to 2107, in UTC, in steps of two seconds.

const EARLIEST: i64 = 315_532_800;
const LATEST: i64 = 4_354_819_198;

/// Date and time of seconds since 1970, or the nearest that FAT can have.
pub(super) fn fat_time(seconds: i64) -> (u16, u16) {
    let seconds = seconds.clamp(EARLIEST, LATEST);
    let (days, second) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let (mut year, mut day) = (1970, days);
    while day >= days_of(year) {
        day -= days_of(year);
        year += 1;
    }
    let mut month = 1;
    while day >= days_of_month(year, month) {
        day -= days_of_month(year, month);
        month += 1;
    }
    let date = ((year - 1980) << 9) | (month << 5) | (day as u16 + 1);
    let time = ((second / 3600) << 11) | ((second / 60 % 60) << 5) | (second % 60 / 2);
    (date, time as u16)
}

fn is_leap(year: u16) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u16) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u16, month: u16) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, [year, month, day, hour, minute, second]) in [
            (0, [1980, 1, 1, 0, 0, 0]),
            (951_782_400, [2000, 2, 29, 0, 0, 0]),
            (1_700_000_000, [2023, 11, 14, 22, 13, 20]),
            (1_735_689_599, [2024, 12, 31, 23, 59, 58]),
            (i64::MAX, [2107, 12, 31, 23, 59, 58]),
        ] {
            let (date, time) = fat_time(seconds);
            let found =
                [(date >> 9) + 1980, date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, (time & 31) * 2];
            assert_eq!(found, [year, month, day, hour, minute, second]);
        }
    }
}
