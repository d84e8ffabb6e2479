//! The S3 endpoint that clients are told.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The URL of an S3 endpoint. It is checked, because it is written into files that other programs read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct PublicS3 {
    /// The URL without a trailing slash.
    pub(crate) url: String,
    host: String,
}

impl PublicS3 {
    /// The domain whose subdomains are buckets; `None` if the host is an IP address.
    pub(crate) fn domain(&self) -> Option<String> {
        let is_number = self.host.starts_with('[') || self.host.parse::<IpAddr>().is_ok();
        (!is_number).then(|| self.host.clone())
    }
}

impl FromStr for PublicS3 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("'{text}' is not a URL such as https://s3.example.org or http://192.0.2.7:7071");
        let url = text.strip_suffix('/').unwrap_or(text);
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).ok_or_else(wrong)?;
        let (host, port) = match rest.split_once(']') {
            Some((number, after)) => {
                (format!("{number}]"), after.strip_prefix(':').or((!after.is_empty()).then_some("")))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => (rest.to_owned(), None),
            },
        };
        let is_six = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .is_some_and(|six| six.parse::<std::net::Ipv6Addr>().is_ok());
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
        let is_name = !host.is_empty() && host.len() <= 253 && !host.starts_with(['-', '.']) && host.chars().all(plain);
        let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
        if (is_six || is_name) && port_fits { Ok(PublicS3 { url: url.to_owned(), host }) } else { Err(wrong()) }
    }
}

impl From<PublicS3> for String {
    fn from(public: PublicS3) -> String {
        public.url
    }
}

impl TryFrom<String> for PublicS3 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_names_are_domains() {
        let parsed = |text: &str| text.parse::<PublicS3>().map(|public| (public.url.clone(), public.domain()));
        let name = Some("s3.example.org".to_owned());
        assert_eq!(parsed("https://s3.example.org"), Ok(("https://s3.example.org".into(), name.clone())));
        assert_eq!(parsed("http://s3.example.org:7071/"), Ok(("http://s3.example.org:7071".into(), name)));
        assert_eq!(parsed("http://192.0.2.7:7071"), Ok(("http://192.0.2.7:7071".into(), None)));
        assert_eq!(parsed("http://[2001:db8::7]:7071"), Ok(("http://[2001:db8::7]:7071".into(), None)));
        assert_eq!(parsed("http://[2001:db8::7]"), Ok(("http://[2001:db8::7]".into(), None)));
        for wrong in [
            "",
            "s3.example.org",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:0",
            "http://a:x",
            "http://a/b",
            "http://a?b",
            "http://u:p@a",
            "http://a\nb",
            "http://[::1",
            "http://[x]",
            "http://[::1]80",
            "http://A",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
