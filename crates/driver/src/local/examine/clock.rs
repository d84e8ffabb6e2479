//! The host's clock: leases, deadlines, certificates and signatures depend on it.
#![allow(unsafe_code, reason = "adjtimex has no safe wrapper")]

use tarn_model::Time;

use crate::findings::Finding;

/// When this was written: no correct clock shows an earlier time. (2026-01-01)
const LEAST: Time = Time::from_micros(1_767_225_600_000_000);

/// A date a century later is implausible, too. (2126-01-01)
const MOST: Time = Time::from_micros(4_922_899_200_000_000);

/// The kernel's flag for an unsynchronised clock.
const UNSYNCHRONISED: i32 = 0x40;

/// Checks the clock.
pub fn clock(now: Time) -> Vec<Finding> {
    vec![check_date(now), check_synchronised(clock_status())]
}

fn check_date(now: Time) -> Finding {
    const CHECK: &str = "clock.sane";
    if (LEAST..MOST).contains(&now) {
        Finding::ok(CHECK, format!("it is {now}"))
    } else {
        Finding::failure(
            CHECK,
            format!("the clock shows {now}, which is implausible: certificates and signatures would be refused"),
            "set the clock, and let chrony or systemd-timesyncd synchronise it",
        )
    }
}

fn check_synchronised(status: Option<i32>) -> Finding {
    const CHECK: &str = "clock.synchronised";
    match status {
        Some(status) if status & UNSYNCHRONISED == 0 => Finding::ok(CHECK, "the kernel's clock is synchronised"),
        Some(_) => Finding::warning(
            CHECK,
            "the kernel's clock is not synchronised (in a virtual machine its host may do that)",
            "install chrony, or `timedatectl set-ntp true`: replicas compare their clocks with each other's leases",
        ),
        None => Finding::skipped(CHECK, "the kernel does not report whether its clock is synchronised", ""),
    }
}

/// Returns the kernel's clock status; the call changes nothing.
fn clock_status() -> Option<i32> {
    // SAFETY: the structure consists of numbers only, and all zeros is a valid value, which requests no change.
    let mut asked: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the call reads and writes only this structure, which lives until it returns.
    let answered = unsafe { libc::adjtimex(&mut asked) };
    (answered >= 0).then_some(asked.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;

    #[test]
    fn implausible_clocks_are_reported() {
        assert_eq!(check_date(Time::ZERO).level, Level::Failure);
        assert_eq!(check_date(Time::from_micros(1_794_774_000_000_000)).level, Level::Ok);
        assert_eq!(check_synchronised(Some(0x40)).level, Level::Warning);
        assert_eq!(check_synchronised(Some(0x2001)).level, Level::Ok);
        assert!(clock_status().is_some(), "the call needs no privilege");
    }
}
