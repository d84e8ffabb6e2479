//! GPU errors in the kernel log: `NVRM: Xid (PCI:0000:3b:00): 79, …`.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use tarn_model::gpus::meaning;
use tarn_model::{Clock, Time};

/// The maximum length of a record of the kernel.
const RECORD: usize = 8192;

/// How many records are read at once; the next call reads the rest.
const AT_ONCE: usize = 10_000;

/// How many errors are remembered: the newest of each kind of each GPU.
const REMEMBERED: usize = 256;

/// The error that reports which recovery a GPU needs, and the text by which it reports that it needs none any more.
const RECOVERY: u32 = 154;
const RECOVERED: &str = " to 0x0 (None)";

/// An error after which a GPU must not be given to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Xid {
    /// The PCI address of the GPU: `0000:3b:00`.
    pub(super) bus: String,
    /// The Xid code.
    pub(super) code: u32,
    pub(super) at: Time,
}

/// The kernel log since the last boot of the host.
pub(super) struct KernelLog {
    device: Option<Box<dyn Read + Send>>,
    found: VecDeque<Xid>,
}

impl KernelLog {
    /// Opens it. Where that is not allowed, as in a container, no errors are known from it.
    pub(super) fn open() -> Self {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = File::options().read(true).custom_flags(flags).open("/dev/kmsg");
        if let Err(error) = &opened {
            tracing::info!(%error, "the kernel log cannot be read: GPU errors that only it reports stay unknown");
        }
        KernelLog { device: opened.ok().map(|file| Box::new(file) as _), found: VecDeque::new() }
    }

    /// A log over any reader that returns one record per read, as the kernel does.
    #[cfg(test)]
    pub(super) fn over(device: impl Read + Send + 'static) -> Self {
        KernelLog { device: Some(Box::new(device)), found: VecDeque::new() }
    }

    /// Reads new records, and returns all remembered errors.
    pub(super) fn read(&mut self, clock: &dyn Clock) -> impl Iterator<Item = &Xid> {
        let started = uptime_us().map(|uptime| clock.now().as_micros().saturating_sub(uptime));
        if let (Some(device), Some(started)) = (&mut self.device, started) {
            let mut record = [0; RECORD];
            for _ in 0..AT_ONCE {
                match device.read(&mut record) {
                    Ok(0) => break,
                    Ok(length) => {
                        let text = String::from_utf8_lossy(&record[..length]);
                        let Some((bus, code, us)) = parse_xid(&text) else { continue };
                        let at = Time::from_micros(started.saturating_add(us));
                        // An error that a program causes again and again must not displace the only error of another
                        // GPU.
                        self.found.retain(|known| known.bus != bus || known.code != code);
                        self.found.push_back(Xid { bus, code, at });
                    }
                    // Records were overwritten before they were read; reading continues with the oldest one left.
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                    Err(_) => break,
                }
            }
        }
        while self.found.len() > REMEMBERED {
            self.found.pop_front();
        }
        self.found.iter()
    }
}

/// Returns the PCI address, the Xid code and the time since boot in microseconds, if a record reports an error that has
/// a meaning. Only records of the kernel itself count: programs write to the log with another facility.
fn parse_xid(record: &str) -> Option<(String, u32, i64)> {
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let (priority, _number, us) = (fields.next()?.parse::<u32>().ok()?, fields.next()?, fields.next()?);
    if priority >> 3 != 0 {
        return None;
    }
    let rest = text.strip_prefix("NVRM: Xid (PCI:")?;
    let (place, rest) = rest.split_once("): ")?;
    // An error of a slice names it after the address: `0000:01:00 GPU-I:05`. All slices share the faults of their GPU.
    let bus = place.split(' ').next().unwrap_or(place);
    let plain = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    if bus.is_empty() || bus.len() > 20 || !bus.chars().all(plain) {
        return None;
    }
    let digits: &str = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
    let code = digits.parse().ok().filter(|code| meaning(*code).is_some())?;
    if code == RECOVERY && rest.lines().next().is_some_and(|line| line.trim_end().ends_with(RECOVERED)) {
        return None;
    }
    Some((normalise_bus(bus), code, us.parse().ok()?))
}

/// Normalises a PCI address to the form of the kernel log: no function, four digits of the domain. NVML writes
/// `00000000:3B:00.0`.
pub(super) fn normalise_bus(bus: &str) -> String {
    let bus = bus.split('.').next().unwrap_or(bus).to_ascii_lowercase();
    let parts: Vec<&str> = bus.split(':').collect();
    match parts.as_slice() {
        [domain, bus, device] => {
            let domain = u32::from_str_radix(domain, 16).unwrap_or_default();
            format!("{domain:04x}:{bus:0>2}:{device:0>2}")
        }
        _ => bus,
    }
}

fn uptime_us() -> Option<i64> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some((seconds * 1e6) as i64)
}

#[cfg(test)]
mod tests {
    use std::io;

    use tarn_model::testing::ManualClock;

    use super::*;

    /// Returns one record per read, and the errors of an overwritten log and of one at its end.
    struct Records(VecDeque<Result<String, ErrorKind>>);

    impl Read for Records {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let record = self.0.pop_front().unwrap_or(Err(ErrorKind::WouldBlock))?;
            into[..record.len()].copy_from_slice(record.as_bytes());
            Ok(record.len())
        }
    }

    fn line(us: u32, place: &str, text: &str) -> Result<String, ErrorKind> {
        Ok(format!("4,{us},{us},-;NVRM: Xid (PCI:{place}): {text}\n"))
    }

    #[test]
    fn xids_are_parsed() {
        let found = |record: &str| parse_xid(record);
        let error = "4,1234,98765432,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n";
        assert_eq!(found(error), Some(("0000:3b:00".into(), 79, 98_765_432)));
        let older = "3,7,5,-,caller=T1;NVRM: Xid (PCI:0000:AF:00): 48, Ch 0000\n SUBSYSTEM=pci\n";
        assert_eq!(found(older), Some(("0000:af:00".into(), 48, 5)));
        for place in ["0000:01:00 GPU-I:05", "0000:01:00 GPU-I:05 GPU-CI:00"] {
            let slice = format!("4,1,2,-;NVRM: Xid (PCI:{place}): 95, pid=1, name=x, Uncontained");
            assert_eq!(found(&slice), Some(("0000:01:00".into(), 95, 2)), "{place}");
        }
        for other in [
            "",
            ";",
            "4,1,2,-;eth0: link up",
            "12,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, written by a program",
            "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): x",
            "4,1,2,-;NVRM: Xid (PCI:../../etc): 79,",
            "4,1,2,-;NVRM: Xid (PCI:): 79,",
            "4,1,2,-;NVRM: Xid (PCI: GPU-I:05): 79,",
            "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 99999999999999,",
            "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 13, a fault of a program",
            "4,1,2,-;NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, one that stayed with its program",
            "x,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79,",
            "4,1;NVRM: Xid (PCI:0000:3b:00): 79,",
        ] {
            assert_eq!(found(other), None, "{other:?}");
        }
    }

    #[test]
    fn finished_recovery_is_no_error() {
        let record = |from: &str, to: &str| {
            let text = format!("154, GPU recovery action changed from {from} to {to}\n");
            parse_xid(&line(1, "0000:3b:00", &text).unwrap())
        };
        let (none, reset) = ("0x0 (None)", "0x1 (GPU Reset Required)");
        assert_eq!(record(none, reset), Some(("0000:3b:00".into(), 154, 1)));
        assert_eq!(record(reset, none), None);
    }

    #[test]
    fn flood_of_errors_displaces_no_other_gpu() {
        let flood =
            |code: u32| (0..4 * REMEMBERED as u32).map(move |us| line(us, "0000:3b:00", &format!("{code}, again")));
        let mut records: VecDeque<_> = [line(1, "0000:01:00", "79, gone"), Err(ErrorKind::BrokenPipe)].into();
        records.extend(flood(13));
        records.extend(flood(48));
        let mut log = KernelLog::over(Records(records));
        let clock = ManualClock::default();
        let found: Vec<_> = log.read(&clock).map(|xid| (xid.bus.clone(), xid.code)).collect();
        assert_eq!(found, [("0000:01:00".into(), 79), ("0000:3b:00".into(), 48)]);
        assert_eq!(log.read(&clock).count(), 2, "they are remembered");
        let newest = log.read(&clock).map(|xid| xid.at).collect::<Vec<_>>();
        assert!(newest[0] < newest[1] && newest[1] <= clock.now(), "the time of the log is made one of the clock");
    }

    #[test]
    fn pci_addresses_are_normalised() {
        for place in ["00000000:3B:00.0", "0000:3b:00", "0000:3b:00.0", "0:3b:0"] {
            assert_eq!(normalise_bus(place), "0000:3b:00", "{place}");
        }
    }
}
