//! The line that describes a file in a listing, as `ls -l` prints it. Clients show it to people.

use std::path::Path;

use rustix::fs::{FileType, Stat};

use crate::users::Accounts;

/// Half a year, in seconds: newer times are shown with the time of day, others with the year.
const RECENT: i64 = 182 * 86_400;

/// Formats listings.
#[derive(Debug, Default)]
pub(super) struct Listing {
    accounts: Option<Accounts>,
}

impl Listing {
    /// Formats the line of a file. Times are UTC.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "the fields differ between architectures")]
    pub(super) fn format_entry(&mut self, name: &[u8], stat: &Stat, now: i64) -> Vec<u8> {
        let accounts = self.accounts.get_or_insert_with(|| Accounts::load(Path::new("/")).unwrap_or_default());
        let user = accounts.user_name(stat.st_uid).map_or_else(|| stat.st_uid.to_string(), Into::into);
        let group = accounts.group_name(stat.st_gid).map_or_else(|| stat.st_gid.to_string(), Into::into);
        let (mode, time) = (format_mode(stat.st_mode), format_time(stat.st_mtime as i64, now));
        let format_entry = format!("{mode} {:>4} {user:<8} {group:<8} {:>8} {time} ", stat.st_nlink, stat.st_size);
        [format_entry.as_bytes(), name].concat()
    }
}

fn format_mode(mode: u32) -> String {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

fn format_time(seconds: i64, now: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = civil_date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let month = MONTHS[usize::try_from(month - 1).unwrap_or(0) % 12];
    if (now - RECENT..=now + 60).contains(&seconds) {
        format!("{month} {day:>2} {:02}:{:02}", of_day / 3600, of_day % 3600 / 60)
    } else {
        format!("{month} {day:>2}  {year}")
    }
}

/// Converts days since 1970-01-01 to a date. Years start in March, so that the leap day comes last, in cycles of 400
/// years, after which the calendar repeats.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (cycle, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days are converted to dates.
    #[test]
    fn civil_date_converts_days() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (20_772, (2026, 11, 15)),
            (19_782, (2024, 2, 29)),
        ] {
            assert_eq!(civil_date(days), expected);
        }
    }

    /// Times and modes are formatted like `ls -l`.
    #[test]
    fn times_and_modes_match_ls() {
        assert_eq!(format_time(1_000, 2_000), "Jan  1 00:16");
        assert_eq!(format_time(1_000, 1_000_000_000), "Jan  1  1970");
        assert_eq!(format_mode(0o100_644), "-rw-r--r--");
        assert_eq!(format_mode(0o104_755), "-rwsr-xr-x");
        assert_eq!(format_mode(0o041_777), "drwxrwxrwt");
        assert_eq!(format_mode(0o120_777), "lrwxrwxrwx");
    }
}
