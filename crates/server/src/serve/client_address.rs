//! The address of the client of a call, also behind proxies that the operator trusts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// How many proxies a call may have passed.
const MAX_PROXIES: usize = 32;

/// The address of the client of a call, as an extension of it.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

/// An address, or a network of addresses such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrustedNetwork {
    start: IpAddr,
    length: u8,
}

impl TrustedNetwork {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.start, address.to_canonical()) {
            (IpAddr::V4(start), IpAddr::V4(address)) => {
                (start.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.length)
            }
            (IpAddr::V6(start), IpAddr::V6(address)) => {
                (start.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.length)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for TrustedNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not an address or a network, such as 192.0.2.7 or 10.0.0.0/8");
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let start = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let bits = if start.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Ok(bits), |length| length.parse::<u8>().map_err(|_| wrong()))?;
        let is_network = match start {
            IpAddr::V4(start) => start.to_bits().trailing_zeros() + u32::from(length) >= 32,
            IpAddr::V6(start) => start.to_bits().trailing_zeros() + u32::from(length) >= 128,
        };
        if length > bits {
            return Err(wrong());
        }
        if !is_network {
            return Err(format!(
                "'{text}' is not a network: its last bits must be 0; for one address leave out /{length}"
            ));
        }
        Ok(TrustedNetwork { start, length })
    }
}

impl TryFrom<String> for TrustedNetwork {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TrustedNetwork> for String {
    fn from(network: TrustedNetwork) -> String {
        network.to_string()
    }
}

impl fmt::Display for TrustedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.start, self.length)
    }
}

/// The proxies that say truly for whom they forward a call.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<TrustedNetwork>);

impl FromIterator<TrustedNetwork> for TrustedProxies {
    fn from_iter<T: IntoIterator<Item = TrustedNetwork>>(networks: T) -> Self {
        TrustedProxies(networks.into_iter().collect())
    }
}

impl TrustedProxies {
    /// Returns whether an address is that of a trusted proxy.
    pub(super) fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Returns the client behind a trusted proxy: the last address in X-Forwarded-For that is not a trusted proxy
    /// itself. Everything before it is what that client claims.
    pub(super) fn client_of(&self, proxy: IpAddr, headers: &HeaderMap) -> IpAddr {
        let values = headers.get_all(FORWARDED_FOR).iter().collect::<Vec<_>>();
        // Each entry by itself: what the client wrote before it must not hide what the proxy added.
        let entries = values.into_iter().rev().flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
        let mut nearest = proxy;
        for entry in entries.take(MAX_PROXIES) {
            let Some(address) = str::from_utf8(entry).ok().and_then(|text| parse_entry(text.trim())) else { break };
            nearest = address;
            if !self.contain(address) {
                break;
            }
        }
        nearest
    }
}

/// Parses an entry of X-Forwarded-For: an address, with or without a port.
fn parse_entry(entry: &str) -> Option<IpAddr> {
    let bare = entry.strip_prefix('[').and_then(|entry| entry.strip_suffix(']')).unwrap_or(entry);
    let address = bare.parse::<IpAddr>().ok().or_else(|| Some(entry.parse::<SocketAddr>().ok()?.ip()))?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn trusted() -> TrustedProxies {
        ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"].iter().map(|text| text.parse().unwrap()).collect()
    }

    /// The client is the last address that no trusted proxy has.
    #[test]
    fn last_untrusted_address_is_client() {
        for (forwarded, client) in [
            (&["198.51.100.1"][..], "198.51.100.1"),
            (&["6.6.6.6, 198.51.100.1, 10.1.1.1"], "198.51.100.1"),
            (&["6.6.6.6", "198.51.100.1", "10.1.1.1,192.0.2.7"], "198.51.100.1"),
            (&["198.51.100.1:4711"], "198.51.100.1"),
            (&["[2001:db9::1]:4711"], "2001:db9::1"),
            (&["::ffff:198.51.100.1"], "198.51.100.1"),
            (&[], "10.0.0.1"),
            (&["10.2.2.2"], "10.2.2.2"),
            (&["198.51.100.1, unknown, 10.3.3.3"], "10.3.3.3"),
            (&["é, 198.51.100.1"], "198.51.100.1"),
        ] {
            let mut headers = HeaderMap::new();
            for value in forwarded {
                headers.append(FORWARDED_FOR, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let proxy = "10.0.0.1".parse().unwrap();
            assert_eq!(trusted().client_of(proxy, &headers), client.parse::<IpAddr>().unwrap(), "{forwarded:?}");
        }
    }

    /// Networks are read as they are written, and slips are refused.
    #[test]
    fn networks_are_checked() {
        let contains = |address: &str| trusted().contain(address.parse().unwrap());
        assert!(
            contains("10.9.9.9") && contains("::ffff:10.9.9.9") && contains("192.0.2.7") && contains("2001:db8:1::1")
        );
        assert!(!contains("11.0.0.1") && !contains("192.0.2.8") && !contains("2001:db9::1") && !contains("::1"));
        for wrong in ["", "proxy", "10.0.0.0/33", "10.0.0.1/8", "::1/200", "10.0.0.0/", "2001:db8::1/32"] {
            assert!(wrong.parse::<TrustedNetwork>().is_err(), "{wrong}");
        }
        assert!("0.0.0.0/0".parse::<TrustedNetwork>().unwrap().contains("8.8.8.8".parse().unwrap()));
    }
}
