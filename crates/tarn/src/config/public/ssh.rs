//! The address of the SSH gateway that clients are told.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A host, and a port if it differs from the listener. It is checked, because it becomes part of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PublicSsh {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
}

impl FromStr for PublicSsh {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("'{text}' is not a host such as cloud.example.org, 192.0.2.7:7022 or [2001:db8::7]:7022");
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
            None => match text.split_once(':') {
                // More than one colon outside of brackets is an IPv6 address without a port.
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || host.len() > 253 || host.starts_with('-') || !host.chars().all(plain) {
            return Err(wrong());
        }
        let port = port.map(|port| port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)).transpose()?;
        Ok(PublicSsh { host: host.to_owned(), port })
    }
}

impl From<PublicSsh> for String {
    fn from(PublicSsh { host, port }: PublicSsh) -> String {
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        port.map_or(host.clone(), |port| format!("{host}:{port}"))
    }
}

impl TryFrom<String> for PublicSsh {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_optional() {
        let parsed = |text: &str| text.parse::<PublicSsh>().map(|public| (public.host, public.port));
        assert_eq!(parsed("cloud.example.org"), Ok(("cloud.example.org".into(), None)));
        assert_eq!(parsed("192.0.2.7:22"), Ok(("192.0.2.7".into(), Some(22))));
        assert_eq!(parsed("[2001:db8::7]:22"), Ok(("2001:db8::7".into(), Some(22))));
        assert_eq!(parsed("2001:db8::7"), Ok(("2001:db8::7".into(), None)));
        for wrong in ["", ":22", "-oProxyCommand=x", "a b", "host:0", "host:99999", "[::1]22", "a;b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
