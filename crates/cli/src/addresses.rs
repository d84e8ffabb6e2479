//! Addresses of engines, as people write them.

use std::net::IpAddr;

use reqwest::Url;

use crate::failure::{Failure, Result};

/// The engine of who says nothing: one on this machine.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:7070";

/// The address without the slashes that may follow it.
pub(crate) fn checked(address: &str) -> Result<String> {
    let address = address.trim().trim_end_matches('/');
    let refused = || Failure::usage(format!("the engine must be an address such as {DEFAULT}, not {address:?}"));
    // The parser is more patient than people should be with a mistake.
    let rest = ["http://", "https://"].iter().find_map(|scheme| address.strip_prefix(scheme)).ok_or_else(refused)?;
    if rest.starts_with('/') || address.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(refused());
    }
    let url = Url::parse(address).map_err(|_| refused())?;
    if !url.username().is_empty() || url.password().is_some() {
        // It is not shown: there is a password in it.
        return Err(Failure::usage("the address of the engine has a user in it; who you are is said by the API key"));
    }
    let is_plain =
        url.host_str().is_some_and(|host| !host.is_empty()) && url.query().is_none() && url.fragment().is_none();
    if is_plain { Ok(address.to_owned()) } else { Err(refused()) }
}

/// Where a signed address leads, without what makes it one: that is nobody else's business.
pub(crate) fn host_of(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.unwrap_or_else(|| "an address that is none".to_owned())
}

/// Whether an address is one of this machine.
pub(crate) fn is_here(url: &str) -> bool {
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
    fn an_engine_is_an_address() {
        assert_eq!(checked(" https://a.b:1/ ").unwrap(), "https://a.b:1");
        assert_eq!(checked("http://[::1]:7070/cloud//").unwrap(), "http://[::1]:7070/cloud");
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
            assert_eq!(checked(odd).unwrap_err().code(), 2, "{odd}");
        }
        for (url, here) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]", true),
            ("http://localhost/x", true),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_here(url), here, "{url}");
        }
        assert!(!checked("http://me:secret@a").unwrap_err().to_string().contains("secret"));
    }
}
