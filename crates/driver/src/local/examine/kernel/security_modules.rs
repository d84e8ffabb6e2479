//! Security modules of the kernel that could restrict an engine.

use crate::findings::Finding;
use crate::local::examine::{ExaminedProcess, read_setting};

const CHECK: &str = "kernel.security_modules";

/// The state of the security modules.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(in crate::local::examine) modules: String,
    /// `1` if SELinux enforces, `0` if it is permissive, empty if it is absent.
    pub(super) selinux: String,
    /// The AppArmor profile that confines the process.
    pub(super) profile: String,
    pub(in crate::local::examine) who: &'static str,
}

impl State {
    pub(super) fn read(of: ExaminedProcess) -> State {
        State {
            modules: read_setting("/sys/kernel/security/lsm"),
            selinux: read_setting("/sys/fs/selinux/enforce"),
            profile: of.proc_file("attr/apparmor/current"),
            who: of.name(),
        }
    }
}

pub(super) fn judge_modules(state: &State) -> Finding {
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
    fn only_enforcing_modules_are_reported() {
        let plain = State { modules: "capability,apparmor".into(), ..State::default() };
        assert_eq!(judge_modules(&plain).level, Level::Ok);
        assert_eq!(judge_modules(&State { selinux: "0".into(), ..plain.clone() }).level, Level::Ok);
        assert_eq!(judge_modules(&State { selinux: "1".into(), ..plain.clone() }).level, Level::Warning);
        assert_eq!(judge_modules(&State { profile: "unconfined".into(), ..plain.clone() }).level, Level::Ok);
        assert_eq!(judge_modules(&State { profile: "docker-default (enforce)".into(), ..plain }).level, Level::Warning);
    }
}
