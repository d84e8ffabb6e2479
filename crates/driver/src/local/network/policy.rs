//! What instances may reach in other networks.
//!
//! The first of these that names a destination decides:
//!
//! 1. metadata services of clouds are closed;
//! 2. `denied` is closed: what an operator has closed is never opened by another line, whatever its size;
//! 3. `allowed` is open;
//! 4. the host's name servers are open, on the port of DNS;
//! 5. private networks are closed, if `closes_private` says so;
//! 6. everything else is open.
//!
//! Nodes of a cluster reach each other in any case, and nodes of other clusters never.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::addresses::prefix::Subnet;

/// Which other networks instances may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Networks that are closed.
    pub denied: Vec<Subnet>,
    /// Parts of private networks that are open all the same.
    pub allowed: Vec<Destination>,
    /// Whether private networks are closed.
    pub closes_private: bool,
}

/// A network, or one port in it: `10.1.0.0/16` or `10.1.2.3:443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    /// The network.
    pub network: Subnet,
    /// The port, of TCP and UDP; all ports and protocols when absent.
    pub port: Option<u16>,
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Destination, String> {
        let Some((network, port)) = text.rsplit_once(':') else {
            return Ok(Destination { network: text.parse()?, port: None });
        };
        match port.parse() {
            Ok(port @ 1..) => Ok(Destination { network: network.parse()?, port: Some(port) }),
            _ => Err(format!("'{text}' has no port between 1 and 65535 after its colon, such as 10.1.2.3:443")),
        }
    }
}

impl TryFrom<String> for Destination {
    type Error = String;

    fn try_from(text: String) -> Result<Destination, String> {
        text.parse()
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> String {
        destination.to_string()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => self.network.fmt(f),
            Some(port) => write!(f, "{}:{port}", self.network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_parsed() {
        for (text, shown) in [
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("10.1.2.3:443", "10.1.2.3/32:443"),
            ("10.1.0.0/16:65535", "10.1.0.0/16:65535"),
        ] {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), shown);
        }
        for (wrong, why) in [
            ("10.1.2.3:0", "has no port"),
            ("10.1.2.3:65536", "has no port"),
            ("10.1.2.3:", "has no port"),
            ("10.1.2.3:https", "has no port"),
            ("10.1.2.3/8:443", "write 10.0.0.0/8"),
            ("fd00::/8", "has no port"),
            ("lan", "not a network"),
            ("", "not a network"),
        ] {
            let refused = wrong.parse::<Destination>().unwrap_err();
            assert!(refused.contains(why), "{wrong}: {refused}");
        }
    }
}
