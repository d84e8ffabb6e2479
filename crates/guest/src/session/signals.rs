//! The SSH names of signals.

use rustix::process::Signal;

/// Signals by their SSH name, and some more that programs die of or clients send although SSH has no name for them.
const NAMES: [(&str, Signal); 20] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ILL", Signal::ILL),
    ("TRAP", Signal::TRAP),
    ("ABRT", Signal::ABORT),
    ("BUS", Signal::BUS),
    ("FPE", Signal::FPE),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("SEGV", Signal::SEGV),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
    ("ALRM", Signal::ALARM),
    ("TERM", Signal::TERM),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
    ("TSTP", Signal::TSTP),
    ("XCPU", Signal::XCPU),
    ("SYS", Signal::SYS),
];

/// Parses the name of a signal, with or without SIG.
pub(crate) fn parse_signal(name: &str) -> Option<Signal> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

/// Returns the name of a signal; for real-time signals, the number.
pub(crate) fn signal_name(number: i32) -> String {
    match NAMES.iter().find(|(_, signal)| signal.as_raw() == number) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("{number}"),
    }
}
