//! URLs of engines, as people write them.

use std::net::IpAddr;

use reqwest::Url;

use crate::failure::{Failure, Result};

/// The engine that is used when none is named: one on this host.
pub(crate) const DEFAULT_ENGINE: &str = "http://127.0.0.1:7070";

/// Checks the URL of an engine, and returns it without trailing slashes.
pub(crate) fn check_engine_address(address: &str) -> Result<String> {
    let address = address.trim().trim_end_matches('/');
    let refused = || Failure::usage(format!("the engine must be a URL such as {DEFAULT_ENGINE}, not {address:?}"));
    // The parser accepts more than is helpful, such as a missing host.
    let rest = ["http://", "https://"].iter().find_map(|scheme| address.strip_prefix(scheme)).ok_or_else(refused)?;
    if rest.starts_with('/') || address.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(refused());
    }
    let url = Url::parse(address).map_err(|_| refused())?;
    if !url.username().is_empty() || url.password().is_some() {
        // The URL is not shown, because it may contain a password.
        return Err(Failure::usage(
            "the URL of the engine contains a user; the API key identifies you, so remove the user",
        ));
    }
    let is_plain =
        url.host_str().is_some_and(|host| !host.is_empty()) && url.query().is_none() && url.fragment().is_none();
    if is_plain { Ok(address.to_owned()) } else { Err(refused()) }
}

/// The host of a signed URL, without the signature, which is secret.
pub(crate) fn host_of_url(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.unwrap_or_else(|| "an invalid URL".to_owned())
}

/// Whether a URL leads to this host.
pub(crate) fn is_loopback_url(url: &str) -> bool {
    match Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).as_deref() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_must_be_a_plain_url() {
        assert_eq!(check_engine_address(" https://a.b:1/ ").unwrap(), "https://a.b:1");
        assert_eq!(check_engine_address("http://[::1]:7070/cloud//").unwrap(), "http://[::1]:7070/cloud");
        for odd in [
            "",
            "localhost:7070",
            "ftp://x",
            "http://",
            "https:///x",
            "http://a b",
            "http://a:99999",
            "http://a?x",
            "http://a#x",
        ] {
            assert_eq!(check_engine_address(odd).unwrap_err().code(), 2, "{odd}");
        }
        for (url, here) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]", true),
            ("http://localhost/x", true),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback_url(url), here, "{url}");
        }
        assert!(!check_engine_address("http://me:secret@a").unwrap_err().to_string().contains("secret"));
    }
}
