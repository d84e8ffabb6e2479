//! The `[network]` section: networks that instances may not reach.

use serde::{Deserialize, Serialize};
use tarn_driver::local::network::Subnet;

/// The `[network]` section.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Network {
    /// Networks that instances cannot reach.
    pub(crate) deny: Vec<Subnet>,
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn networks_are_checked() {
        let config: Config = toml::from_str("[network]\ndeny = ['10.0.0.0/8', '192.0.2.7']").unwrap();
        let shown: Vec<String> = config.network.deny.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.0/8", "192.0.2.7/32"]);
        assert!(Config::default().network.deny.is_empty());
        for (wrong, why) in [("'10.1.2.3/8'", "write 10.0.0.0/8"), ("'lan'", "not a network"), ("7", "string")] {
            let refused = toml::from_str::<Config>(&format!("[network]\ndeny = [{wrong}]")).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
