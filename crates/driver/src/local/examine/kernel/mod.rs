//! What the kernel must support.

use std::fs::{self, File};
use std::path::Path;

use rustix::mount::{FsOpenFlags, fsopen};

use super::{ExaminedProcess, read_number, read_setting};
use crate::findings::Finding;

/// The first version that supports id-mapped mounts below an overlay.
const LEAST: (u32, u32) = (5, 19);

/// Checks the kernel, and the security modules that confine a process.
pub fn kernel(of: ExaminedProcess) -> Vec<Finding> {
    let mut findings = vec![check_kernel_version(rustix::system::uname().release().to_str().unwrap_or_default())];
    findings.push(check_overlay(&read_setting("/proc/filesystems"), Path::new("/lib/modules").exists()));
    findings.push(check_user_namespaces());
    findings.push(check_seccomp());
    findings.push(check_xfs());
    findings.push(check_loop_devices());
    findings.push(judge_modules(&State::read(of)));
    findings
}

fn check_kernel_version(release: &str) -> Finding {
    const CHECK: &str = "kernel.version";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    let todo = format!("use a kernel of {}.{} or later: instances map user ids below an overlay", LEAST.0, LEAST.1);
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= LEAST => Finding::ok(CHECK, format!("Linux {release}")),
        (Some(_), Some(_)) => Finding::failure(CHECK, format!("Linux {release} is too old"), todo),
        _ => Finding::warning(CHECK, format!("the version of this kernel is not recognised: {release:?}"), todo),
    }
}

fn check_overlay(filesystems: &str, has_modules: bool) -> Finding {
    const CHECK: &str = "kernel.overlay";
    if filesystems.lines().any(|line| line.trim_start_matches("nodev").trim() == "overlay") {
        Finding::ok(CHECK, "the overlay filesystem is available")
    } else if has_modules {
        Finding::note(
            CHECK,
            "the overlay filesystem is not loaded; the first mount loads it, if the kernel has it as a module",
            "modprobe overlay",
        )
    } else {
        Finding::failure(
            CHECK,
            "the kernel does not support the overlay filesystem",
            "use a kernel with CONFIG_OVERLAY_FS: the root of every instance is one",
        )
    }
}

fn check_user_namespaces() -> Finding {
    const CHECK: &str = "kernel.user_namespaces";
    let most = read_number("/proc/sys/user/max_user_namespaces");
    if !Path::new("/proc/self/ns/user").exists() {
        return Finding::failure(CHECK, "the kernel has no user namespaces", "use a kernel with CONFIG_USER_NS");
    }
    match most {
        Some(0) => {
            Finding::failure(CHECK, "user namespaces are switched off", "sysctl -w user.max_user_namespaces=65536")
        }
        Some(most) if most < 1024 => Finding::warning(
            CHECK,
            format!("only {most} user namespaces are allowed, and every instance needs one"),
            "sysctl -w user.max_user_namespaces=65536",
        ),
        Some(most) => {
            let closed = read_setting("/proc/sys/kernel/unprivileged_userns_clone") == "0"
                || read_setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1";
            let beside =
                if closed { "; ordinary users cannot create them, which does not affect an engine" } else { "" };
            Finding::ok(CHECK, format!("up to {most} user namespaces{beside}"))
        }
        None => Finding::warning(CHECK, "the kernel does not report how many user namespaces it allows", "mount /proc"),
    }
}

fn check_seccomp() -> Finding {
    const CHECK: &str = "kernel.seccomp";
    let known = read_setting("/proc/sys/kernel/seccomp/actions_avail");
    if known.split_whitespace().any(|action| action == "errno") {
        Finding::ok(CHECK, "system calls can be filtered")
    } else {
        Finding::failure(
            CHECK,
            "the kernel cannot filter system calls",
            "use a kernel with CONFIG_SECCOMP_FILTER: no instance starts without its filter",
        )
    }
}

fn check_xfs() -> Finding {
    const CHECK: &str = "kernel.xfs";
    // The call makes the kernel load the module; only root may do that.
    let is_known = if super::is_root() {
        fsopen("xfs", FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
    } else {
        read_setting("/proc/filesystems").lines().any(|line| line.trim() == "xfs")
    };
    if is_known {
        Finding::ok(CHECK, "the filesystem XFS is available")
    } else if super::is_root() {
        Finding::failure(
            CHECK,
            "the kernel does not support the filesystem XFS: there can be no volumes",
            "install the kernel's extra modules, or use a kernel with CONFIG_XFS_FS",
        )
    } else {
        Finding::skipped(CHECK, "XFS is not loaded, and only root may load it", super::AS_ROOT)
    }
}

fn check_loop_devices() -> Finding {
    const CHECK: &str = "kernel.loop_devices";
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path());
    let all: Vec<_> =
        names.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("loop"))).collect();
    let used = all.iter().filter(|path| path.join("loop/backing_file").exists()).count();
    match File::open("/dev/loop-control") {
        Ok(_) => match read_number("/sys/module/loop/parameters/max_loop").unwrap_or(0) {
            // Zero means that the kernel creates as many as needed.
            most if most > 0 && used as u64 >= most => Finding::failure(
                CHECK,
                format!("all {most} loop devices are in use"),
                "losetup --list shows by whom; boot with max_loop=0 for as many as are needed",
            ),
            _ => Finding::ok(CHECK, format!("{used} loop devices are in use, and more can be created")),
        },
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Finding::skipped(CHECK, "loop devices are for root only", super::AS_ROOT)
        }
        Err(error) => Finding::failure(
            CHECK,
            format!("/dev/loop-control cannot be opened ({error}): there can be no volumes"),
            "modprobe loop; in a container, give it the device",
        ),
    }
}

const CHECK: &str = "kernel.security_modules";

/// The state of the security modules.
#[derive(Clone, Debug, Default)]
struct State {
    pub(in crate::local::examine) modules: String,
    /// `1` if SELinux enforces, `0` if it is permissive, empty if it is absent.
    selinux: String,
    /// The AppArmor profile that confines the process.
    profile: String,
    pub(in crate::local::examine) who: &'static str,
}

impl State {
    fn read(of: ExaminedProcess) -> State {
        State {
            modules: read_setting("/sys/kernel/security/lsm"),
            selinux: read_setting("/sys/fs/selinux/enforce"),
            profile: of.proc_file("attr/apparmor/current"),
            who: of.name(),
        }
    }
}

fn judge_modules(state: &State) -> Finding {
    let State { modules, selinux, profile, who } = state;
    if selinux == "1" {
        return Finding::warning(
            CHECK,
            "SELinux denies what its policy does not allow, and it has no policy for Tarn",
            "look for denials with `ausearch -m avc -c tarn`; run the engine as unconfined_service_t, \
             or set SELinux to permissive",
        );
    }
    if !profile.is_empty() && profile != "unconfined" {
        return Finding::warning(
            CHECK,
            format!(
                "AppArmor confines {who} to the profile {profile}; an engine started the same way is confined, too"
            ),
            "start it unconfined, or allow mount, userns and network in that profile",
        );
    }
    let shown = if modules.is_empty() { "none visible" } else { modules };
    Finding::ok(CHECK, format!("security modules: {shown}; none interferes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, level) in [
            ("6.18.44-fc-v490", Level::Ok),
            ("5.19.0", Level::Ok),
            ("5.4.0-190-generic", Level::Failure),
            ("4.20", Level::Failure),
            ("nonsense", Level::Warning),
        ] {
            assert_eq!(check_kernel_version(release).level, level, "{release}");
        }
    }

    #[test]
    fn filesystems_match_by_whole_name() {
        assert_eq!(check_overlay("nodev\tsysfs\nnodev\toverlay\n\text4", false).level, Level::Ok);
        assert_eq!(check_overlay("nodev\toverlayish\n\text4", true).level, Level::Note);
        assert_eq!(check_overlay("\text4", false).level, Level::Failure);
    }

    #[test]
    fn only_enforcing_modules_are_reported() {
        let plain = State { modules: "capability,apparmor".into(), ..State::default() };
        assert_eq!(judge_modules(&plain).level, Level::Ok);
        assert_eq!(judge_modules(&State { selinux: "0".into(), ..plain.clone() }).level, Level::Ok);
        assert_eq!(judge_modules(&State { selinux: "1".into(), ..plain.clone() }).level, Level::Warning);
        assert_eq!(judge_modules(&State { profile: "unconfined".into(), ..plain.clone() }).level, Level::Ok);
        assert_eq!(judge_modules(&State { profile: "docker-default (enforce)".into(), ..plain }).level, Level::Warning);
    }
}
