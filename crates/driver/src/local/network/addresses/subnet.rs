//! Subnets as people write them.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An IPv4 network, such as `10.0.0.0/8`; a single address is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    start: Ipv4Addr,
    length: u8,
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let (Ok(address), Ok(length @ 0..=32)) = (address.parse::<Ipv4Addr>(), length.parse::<u8>()) else {
            return Err(format!("'{text}' is not a network of IPv4 addresses, such as 10.0.0.0/8 or 192.0.2.7"));
        };
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let start = Ipv4Addr::from(u32::from(address) & mask);
        match start == address {
            true => Ok(Subnet { start, length }),
            // Both the address and the network may have been meant.
            false => {
                Err(format!("'{text}' is not a network: write {start}/{length}, or {address} for the address alone"))
            }
        }
    }
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> Result<Subnet, String> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(network: Subnet) -> String {
        network.to_string()
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.start, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_parsed() {
        for (text, shown) in [("10.0.0.0/8", "10.0.0.0/8"), ("192.0.2.7", "192.0.2.7/32"), ("0.0.0.0/0", "0.0.0.0/0")] {
            assert_eq!(text.parse::<Subnet>().unwrap().to_string(), shown);
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "fd00::/8", "10.0.0.0/8 accept", "10.0.0.0-10.1.0.0"]
        {
            assert!(wrong.parse::<Subnet>().is_err_and(|why| why.contains("10.0.0.0/8 or")), "{wrong}");
        }
        let slip = "10.0.3.7/8".parse::<Subnet>().unwrap_err();
        assert!(slip.contains("write 10.0.0.0/8, or 10.0.3.7"), "{slip}");
    }
}
