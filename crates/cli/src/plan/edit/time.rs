//! Points in time as they are typed: dates with or without a time of day and an offset, seconds since 1970, or now.
//!
//! Without an offset a time is UTC, as `ls` and `stat` show it.

use jiff::civil;
use jiff::tz::TimeZone;
use undercroft_vfs::{NewTime, Timestamp};

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// # Errors
/// [`Kind::Usage`].
pub(crate) fn parse(typed: &str) -> Result<NewTime, Failure> {
    let trimmed = typed.trim();
    if trimmed == "now" {
        return Ok(NewTime::Now);
    }
    let time = match trimmed.strip_prefix('@') {
        Some(seconds) => since_1970(seconds),
        None => date(trimmed),
    };
    time.map(NewTime::At).ok_or_else(|| {
        Failure::new(Kind::Usage, format!("{} is no time", safe(typed.as_bytes())))
            .advise("write it as 2024-05-06, '2024-05-06 07:08:09', @1714979289 or now")
    })
}

fn date(typed: &str) -> Option<Timestamp> {
    let at = match typed.parse::<jiff::Timestamp>() {
        Ok(at) => at,
        Err(_) => {
            let day =
                || typed.parse::<civil::Date>().ok().map(|day| day.to_datetime(civil::Time::midnight()));
            let time = typed.parse::<civil::DateTime>().ok().or_else(day)?;
            TimeZone::UTC.to_timestamp(time).ok()?
        }
    };
    let nanoseconds = at.as_nanosecond();
    let seconds = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()?;
    Some(Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).ok()? })
}

/// Seconds with a fraction of at most nine digits.
fn since_1970(typed: &str) -> Option<Timestamp> {
    let (whole, fraction) = typed.split_once('.').unwrap_or((typed, "0"));
    let is_negative = whole.starts_with('-');
    let seconds: i64 = whole.parse().ok()?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u32 = format!("{fraction:0<9}").parse().ok()?;
    if is_negative && nanoseconds > 0 {
        return Some(Timestamp {
            seconds: seconds.checked_sub(1)?,
            nanoseconds: 1_000_000_000 - nanoseconds,
        });
    }
    Some(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use undercroft_vfs::{NewTime, Timestamp};

    use super::parse;

    #[test]
    fn times_are_read() {
        for (typed, seconds, nanoseconds) in [
            ("@0", 0, 0),
            ("@1.5", 1, 500_000_000),
            ("@-1.5", -2, 500_000_000),
            ("@-1", -1, 0),
            ("1970-01-02", 86_400, 0),
            ("2024-05-06 07:08:09", 1_714_979_289, 0),
            ("2024-05-06T07:08:09.25", 1_714_979_289, 250_000_000),
            ("2024-05-06T09:08:09+02:00", 1_714_979_289, 0),
            ("1969-12-31 23:59:59.75", -1, 750_000_000),
        ] {
            let at = NewTime::At(Timestamp { seconds, nanoseconds });
            assert_eq!(parse(typed).unwrap(), at, "{typed}");
        }
        assert_eq!(parse("now").unwrap(), NewTime::Now);
        for wrong in ["", "@", "@x", "yesterday", "2024-13-01", "@1.", "@1.0000000001"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
