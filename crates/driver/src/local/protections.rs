//! What protects the machine and the neighbours from an instance, by name.
//!
//! All of it is always there. Only a build with debug assertions can be told to leave something out, so that a test can show
//! that an attempt which is refused otherwise would succeed: a check that cannot fail proves nothing. No other build knows how.

use serde::{Deserialize, Serialize};

/// One of the walls around an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// The list of system calls.
    Seccomp,
    /// The few capabilities that `root` inside has.
    Capabilities,
    /// The ids of the instance, which are nobody's outside.
    UserNamespace,
    /// What of `/proc` is hidden or read-only.
    Masks,
    /// The devices that there are, and the list of those that may be opened.
    Devices,
    /// The limits of processes, memory and processor time.
    CgroupLimits,
    /// The rules between clusters, the machine and the world.
    Firewall,
    /// The rules of the bridge: nobody sends under another's address.
    Addresses,
    /// The size of the disk.
    DiskLimit,
}

/// Which walls stand: every one, except in tests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Protections {
    #[cfg(debug_assertions)]
    without: std::collections::BTreeSet<Protection>,
}

impl Protections {
    /// Leaves out what is named, with commas between; for tests only.
    #[cfg(debug_assertions)]
    pub fn without(names: &str) -> Result<Self, String> {
        let parse = |name: &str| {
            let value = serde_json::Value::String(name.to_owned());
            serde_json::from_value(value).map_err(|_| format!("there is no protection '{name}'"))
        };
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let without: std::collections::BTreeSet<_> = names.map(parse).collect::<Result<_, String>>()?;
        if !without.is_empty() {
            tracing::warn!(
                ?without,
                "INSTANCES ARE NOT ISOLATED: this engine was told to leave protections out, for a test"
            );
        }
        Ok(Protections { without })
    }

    /// Whether a wall stands.
    #[cfg(debug_assertions)]
    pub(crate) fn have(&self, protection: Protection) -> bool {
        !self.without.contains(&protection)
    }

    /// Whether a wall stands: each does.
    #[cfg(not(debug_assertions))]
    #[allow(clippy::unused_self, reason = "in builds for tests it is used")]
    pub(crate) fn have(&self, _protection: Protection) -> bool {
        true
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_left_out() {
        let all = Protections::default();
        let weak = Protections::without("seccomp, disk-limit,").unwrap();
        assert!(all.have(Protection::Seccomp) && weak.have(Protection::Firewall));
        assert!(!weak.have(Protection::Seccomp) && !weak.have(Protection::DiskLimit));
        assert!(Protections::without("seccomp,walls").is_err_and(|why| why.contains("walls")));
    }
}
