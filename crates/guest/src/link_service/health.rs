//! The health of the instance.

use std::time::Duration;

use tarn_link::Health;

/// Reads the health of the instance.
pub(super) fn read_health(uptime: Duration, sessions: u32) -> Health {
    // Not from `/proc/loadavg`: that may be a file of lxcfs, which may hang, and then this process would.
    let load_milli = rustix::system::sysinfo().loads.map(load_to_milli);
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

/// Converts a load average of the kernel, in parts of 65,536, into thousandths.
fn load_to_milli(load: impl Into<u64>) -> u32 {
    u32::try_from(load.into().saturating_mul(1000) >> 16).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Load averages are converted into thousandths.
    #[test]
    fn load_converts_to_thousandths() {
        assert_eq!([0_u64, 1966, 81_920, u64::MAX].map(load_to_milli), [0, 29, 1250, u32::MAX]);
    }
}
