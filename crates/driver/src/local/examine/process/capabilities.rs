//! The capabilities of the engine, and the restrictions of its environment. Without a running engine, those of this
//! process.

use std::path::Path;

use crate::findings::Finding;
use crate::local::examine::ExaminedProcess;

/// A capability: its number in the kernel, its name, and what does not work without it. Those with `None` are needed by
/// every instance.
type Privilege = (u8, &'static str, Option<&'static str>);

const PRIVILEGES: [Privilege; 16] = [
    (0, "CHOWN", None),
    (1, "DAC_OVERRIDE", None),
    (3, "FOWNER", None),
    (5, "KILL", None),
    (6, "SETGID", None),
    (7, "SETUID", None),
    (8, "SETPCAP", None),
    (12, "NET_ADMIN", None),
    (18, "SYS_CHROOT", None),
    (19, "SYS_PTRACE", None),
    (21, "SYS_ADMIN", None),
    (27, "MKNOD", None),
    (9, "LINUX_IMMUTABLE", Some("files cannot be protected from removal")),
    (10, "NET_BIND_SERVICE", Some("ports below 1024 cannot be listened on")),
    (23, "SYS_NICE", Some("the first process of an instance has no priority")),
    (
        24,
        "SYS_RESOURCE",
        Some("reserved blocks of a disk and limits of root cannot be exceeded, which the engine does not need"),
    ),
];

/// Checks a process.
pub fn capabilities(of: ExaminedProcess) -> Vec<Finding> {
    let status = of.proc_file("status");
    let container = ["/.dockerenv", "/run/.containerenv"].into_iter().find(|path| Path::new(path).exists());
    vec![check_root(), check_capabilities(&status, of.name()), check_environment(&status, container, of.name())]
}

fn check_root() -> Finding {
    const CHECK: &str = "process.root";
    if crate::local::examine::is_root() {
        Finding::ok(CHECK, "this is root, which the local driver needs")
    } else {
        Finding::skipped(
            CHECK,
            "this is not root: checks that need root are skipped",
            "run `tarn doctor` as the user that runs the engine; the local driver needs root",
        )
    }
}

fn check_capabilities(status: &str, who: &str) -> Finding {
    const CHECK: &str = "process.capabilities";
    let is_root = status_field(status, "Uid").is_none_or(|ids| ids.split_whitespace().nth(1) == Some("0"));
    if !is_root {
        return Finding::skipped(
            CHECK,
            format!("{who} is not root, and lacks the capabilities of root"),
            crate::local::examine::AS_ROOT,
        );
    }
    let Some(effective) = status_field(status, "CapEff").and_then(|text| u64::from_str_radix(text, 16).ok()) else {
        return Finding::skipped(CHECK, format!("the kernel does not report the capabilities of {who}"), "mount /proc");
    };
    let missing = || PRIVILEGES.iter().filter(|(number, ..)| effective & (1 << number) == 0);
    let needed: Vec<_> =
        missing().filter(|(.., without)| without.is_none()).map(|(_, name, _)| format!("CAP_{name}")).collect();
    let todo =
        "grant them where the engine is started: CapabilityBoundingSet= of the service, or --cap-add of the container";
    if !needed.is_empty() {
        return Finding::failure(CHECK, format!("instances cannot be created without {}", needed.join(", ")), todo);
    }
    let without: Vec<_> =
        missing().filter_map(|(_, name, without)| Some(format!("without CAP_{name} {}", (*without)?))).collect();
    if without.is_empty() {
        Finding::ok(CHECK, format!("{who} has every capability that it needs"))
    } else {
        Finding::note(CHECK, without.join("; "), todo)
    }
}

fn check_environment(status: &str, container: Option<&str>, who: &str) -> Finding {
    const CHECK: &str = "process.environment";
    let filtered = status_field(status, "Seccomp") == Some("2");
    if status_field(status, "NoNewPrivs") == Some("1") {
        return Finding::failure(
            CHECK,
            format!(
                "{who} may gain no privileges, and what it starts inherits that: `sudo` would not work in instances"
            ),
            "start the engine without NoNewPrivileges= or --security-opt=no-new-privileges",
        );
    }
    match (filtered, container) {
        (true, _) => Finding::warning(
            CHECK,
            format!("the environment filters system calls of {who}, and instances inherit that"),
            "start it without a filter: --security-opt seccomp=unconfined, or no SystemCallFilter= in the service",
        ),
        (false, Some(mark)) => Finding::note(
            CHECK,
            format!("this is a container ({mark}): devices, control groups and modules are what it was given"),
            "run the engine on the host itself, if you can",
        ),
        (false, None) => Finding::ok(CHECK, format!("nothing restricts {who}")),
    }
}

fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;

    #[test]
    fn missing_capabilities_are_named() {
        let with = |mask: u64| check_capabilities(&format!("Name:\tx\nCapEff:\t{mask:016x}\n"), "it");
        assert_eq!(with(u64::MAX).level, Level::Ok);
        let resource = with(!(1 << 24));
        assert!(resource.level == Level::Note && resource.found.contains("CAP_SYS_RESOURCE"), "{resource:?}");
        let none = with(0);
        assert!(none.level == Level::Failure && none.found.contains("CAP_SYS_ADMIN"), "{none:?}");
        assert_eq!(check_capabilities("", "it").level, Level::Skipped);
    }

    #[test]
    fn non_root_process_is_skipped() {
        let status = |effective: u32| format!("Uid:\t1000\t{effective}\t0\t0\nCapEff:\tffffffffffffffff\n");
        assert_eq!(check_capabilities(&status(1000), "the engine").level, Level::Skipped);
        assert_eq!(check_capabilities(&status(0), "the engine").level, Level::Ok);
    }

    #[test]
    fn restricting_environments_are_reported() {
        assert_eq!(check_environment("Seccomp:\t0\nNoNewPrivs:\t0\n", None, "it").level, Level::Ok);
        assert_eq!(check_environment("Seccomp:\t2\nSeccomp_filters:\t1\n", None, "it").level, Level::Warning);
        assert_eq!(check_environment("Seccomp:\t0\n", Some("/.dockerenv"), "it").level, Level::Note);
        assert_eq!(check_environment("NoNewPrivs:\t1\n", None, "it").level, Level::Failure);
    }
}
