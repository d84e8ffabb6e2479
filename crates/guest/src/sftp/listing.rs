//! The line that describes a file in a listing, as `ls -l` writes it. Clients show it to people.

use std::path::Path;

use rustix::fs::{FileType, Stat};

use crate::accounts::Accounts;

/// Half a year, in seconds: within it the time of the day is shown, before and after it the year.
const RECENT: i64 = 182 * 86_400;

/// Writes listings.
#[derive(Debug, Default)]
pub(super) struct Listing {
    accounts: Option<Accounts>,
}

impl Listing {
    /// The line of a file. Times are UTC.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "the fields differ between architectures")]
    pub(super) fn line(&mut self, name: &[u8], stat: &Stat, now: i64) -> Vec<u8> {
        let accounts = self.accounts.get_or_insert_with(|| Accounts::read(Path::new("/")).unwrap_or_default());
        let user = accounts.name_of(stat.st_uid).map_or_else(|| stat.st_uid.to_string(), Into::into);
        let group = accounts.group_numbered(stat.st_gid).map_or_else(|| stat.st_gid.to_string(), Into::into);
        let (mode, time) = (mode(stat.st_mode), time(stat.st_mtime as i64, now));
        let line = format!("{mode} {:>4} {user:<8} {group:<8} {:>8} {time} ", stat.st_nlink, stat.st_size);
        [line.as_bytes(), name].concat()
    }
}

fn mode(mode: u32) -> String {
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

fn time(seconds: i64, now: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let month = MONTHS[usize::try_from(month - 1).unwrap_or(0) % 12];
    match (now - RECENT..=now + 60).contains(&seconds) {
        true => format!("{month} {day:>2} {:02}:{:02}", of_day / 3600, of_day % 3600 / 60),
        false => format!("{month} {day:>2}  {year}"),
    }
}

/// The date of a day that is counted from the beginning of 1970. Years are counted from March on, so that the leap day is
/// the last of them, and in cycles of 400, after which the calendar repeats.
fn date(days: i64) -> (i64, i64, i64) {
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

    #[test]
    fn dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (20_772, (2026, 11, 15)),
            (19_782, (2024, 2, 29)),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn times_and_modes_as_ls_writes_them() {
        assert_eq!(time(1_000, 2_000), "Jan  1 00:16");
        assert_eq!(time(1_000, 1_000_000_000), "Jan  1  1970");
        assert_eq!(mode(0o100_644), "-rw-r--r--");
        assert_eq!(mode(0o104_755), "-rwsr-xr-x");
        assert_eq!(mode(0o041_777), "drwxrwxrwt");
        assert_eq!(mode(0o120_777), "lrwxrwxrwx");
    }
}
