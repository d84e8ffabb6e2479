//! The `[network]` section: which networks instances may reach.

use serde::{Deserialize, Serialize};
use tarn_driver::local::network::{Destination, Policy, Subnet};

/// The `[network]` section.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Network {
    /// Whether instances reach private networks; absent: what the installation was set up with.
    pub(crate) private: Option<PrivateNetworks>,
    /// Parts of private networks that instances reach although the others are closed.
    allow: Vec<Destination>,
    /// Networks that instances and pulls from unlisted registries cannot reach.
    pub(super) deny: Vec<Subnet>,
}

/// Whether instances reach private networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PrivateNetworks {
    Closed,
    Open,
}

impl Network {
    /// Returns the policy of the driver. `keeps_open` says whether the installation is older than the rule that private
    /// networks are closed; the configuration overrides it.
    pub(crate) fn policy(&self, keeps_open: bool) -> Policy {
        let default = if keeps_open { PrivateNetworks::Open } else { PrivateNetworks::Closed };
        Policy {
            denied: self.deny.clone(),
            allowed: self.allow.clone(),
            closes_private: self.private.unwrap_or(default) == PrivateNetworks::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn parsed(text: &str) -> Result<Config, toml::de::Error> {
        toml::from_str(&format!("[network]\n{text}"))
    }

    #[test]
    fn networks_are_checked() {
        let config = parsed("deny = ['10.0.0.0/8', '192.0.2.7']\nallow = ['10.1.0.0/16:443']").unwrap();
        let shown: Vec<String> = config.network.deny.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.0/8", "192.0.2.7/32"]);
        assert_eq!(config.network.allow[0].to_string(), "10.1.0.0/16:443");
        assert!(Config::default().network.deny.is_empty());
        for (wrong, why) in [
            ("deny = ['10.1.2.3/8']", "write 10.0.0.0/8"),
            ("deny = ['lan']", "not a network"),
            ("deny = [7]", "string"),
            ("deny = ['10.1.2.3:443']", "not a network"),
            ("allow = ['10.1.2.3:0']", "has no port"),
            ("allow = ['lan']", "not a network"),
            ("private = 'ajar'", "closed"),
            ("private = true", "private"),
        ] {
            let refused = parsed(wrong).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    /// New installations close private networks, older ones keep them open, and the configuration overrides both.
    #[test]
    fn default_depends_on_installation() {
        for (text, keeps_open, closes) in [
            ("", false, true),
            ("", true, false),
            ("private = 'closed'", true, true),
            ("private = 'open'", false, false),
        ] {
            assert_eq!(parsed(text).unwrap().network.policy(keeps_open).closes_private, closes, "{text} {keeps_open}");
        }
    }
}
