//! The protections of the host and of other tenants against an instance, by name.
//!
//! All of them are always active. Only a build with debug assertions can leave some out, so that a test can show that
//! an attack which is otherwise refused would succeed: a check that cannot fail proves nothing.

use serde::{Deserialize, Serialize};

/// A protection against what runs in an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// The list of permitted system calls.
    Seccomp,
    /// The reduced capabilities of `root` in an instance.
    Capabilities,
    /// The ids of an instance, which belong to no user of the host.
    UserNamespace,
    /// The hidden and read-only parts of `/proc`.
    Masks,
    /// The devices in an instance, and the list of those that may be opened.
    Devices,
    /// The limits on processes, memory and CPU time.
    CgroupLimits,
    /// The packet rules between clusters, the host and the internet.
    Firewall,
    /// The bridge rules that keep an instance from using another's address.
    Addresses,
    /// The size limit of the disk.
    DiskLimit,
    /// What the kernel counts for a user, such as file watchers, counted for each instance separately.
    OwnCounts,
    /// The kinds of sockets that programs may create: none that sends or receives whole packets.
    RawSockets,
}

/// The active protections: all of them, except in tests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Protections {
    #[cfg(debug_assertions)]
    without: std::collections::BTreeSet<Protection>,
}

impl Protections {
    /// Leaves out the named protections, separated by commas; for tests only.
    #[cfg(debug_assertions)]
    pub fn without(names: &str) -> Result<Self, String> {
        let parse = |name: &str| {
            let value = serde_json::Value::String(name.to_owned());
            serde_json::from_value(value).map_err(|_| format!("there is no protection '{name}'"))
        };
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let without: std::collections::BTreeSet<_> = names.map(parse).collect::<Result<_, String>>()?;
        if !without.is_empty() {
            tracing::warn!(?without, "INSTANCES ARE NOT ISOLATED: protections are turned off for a test");
        }
        Ok(Protections { without })
    }

    /// Returns whether a protection is active.
    #[cfg(debug_assertions)]
    pub(crate) fn have(&self, protection: Protection) -> bool {
        !self.without.contains(&protection)
    }

    /// Returns whether a protection is active; in this build each one is.
    #[cfg(not(debug_assertions))]
    #[allow(clippy::unused_self, reason = "it is used in builds with debug assertions")]
    pub(crate) fn have(&self, _protection: Protection) -> bool {
        true
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    /// Only the named protections are left out.
    #[test]
    fn only_named_protections_are_left_out() {
        let all = Protections::default();
        let weak = Protections::without("seccomp, disk-limit,").unwrap();
        assert!(all.have(Protection::Seccomp) && weak.have(Protection::Firewall));
        assert!(!weak.have(Protection::Seccomp) && !weak.have(Protection::DiskLimit));
        assert!(Protections::without("seccomp,walls").is_err_and(|why| why.contains("walls")));
    }
}
