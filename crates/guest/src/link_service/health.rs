//! The health of the instance.

use std::time::Duration;

use tarn_link::Health;

/// Reads the health of the instance.
pub(super) fn read_health(uptime: Duration, sessions: u32) -> Health {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut load_milli = [0; 3];
    for (milli, text) in load_milli.iter_mut().zip(load.split(' ')) {
        *milli = parse_load(text).unwrap_or(0);
    }
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let processes = std::fs::read_dir("/proc")
        .map(|entries| entries.flatten().filter(|entry| is_process(&entry.file_name())).count())
        .unwrap_or(0);
    Health {
        version: env!("CARGO_PKG_VERSION").into(),
        uptime_seconds: uptime.as_secs(),
        load_milli,
        processes: u32::try_from(processes).unwrap_or(u32::MAX),
        sessions,
    }
}

/// Parses a load average into thousandths: `1.25` is 1250.
fn parse_load(text: &str) -> Option<u32> {
    let (whole, hundredths) = text.split_once('.')?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(hundredths.parse::<u32>().ok()?.checked_mul(10)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Load averages are parsed into thousandths.
    #[test]
    fn load_parses_to_thousandths() {
        assert_eq!(parse_load("1.25"), Some(1250));
        assert_eq!(parse_load("0.03"), Some(30));
        assert_eq!(parse_load("x"), None);
        assert_eq!(parse_load("99999999999.00"), None);
    }
}
