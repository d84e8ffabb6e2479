//! The `Authorization` header of Signature Version 4, split exactly as s3s splits it.
//!
//! s3s ignores the algorithm and the names of headers that are not there. A check that found the list of signed headers
//! elsewhere than s3s would take headers for signed that are not.

use http::HeaderMap;
use http::header::AUTHORIZATION;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

const BLANKS: [char; 2] = [' ', '\t'];

/// What a signature is for.
pub(super) struct Credential<'t> {
    pub(super) access_key: &'t str,
    pub(super) day: &'t str,
    pub(super) region: &'t str,
    pub(super) service: &'t str,
}

impl<'t> Credential<'t> {
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        Self::split(text).filter(|(_, rest)| rest.is_empty()).map(|(credential, _)| credential)
    }

    /// Splits a text that begins with a credential. A region may contain anything but a slash.
    fn split(text: &'t str) -> Option<(Self, &'t str)> {
        let mut parts = text.splitn(5, '/');
        let (access_key, day, region, service) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let rest = parts.next()?.strip_prefix("aws4_request")?;
        Some((Credential { access_key, day, region, service }, rest))
    }
}

/// The parts of the header.
pub(super) struct Authorization<'t> {
    pub(super) credential: Credential<'t>,
    /// The names of the signed headers, with semicolons between them.
    pub(super) signed_headers: &'t str,
    pub(super) signature: &'t str,
}

impl<'t> Authorization<'t> {
    /// Returns the header of a request; `None` where it is missing or malformed, or there are several.
    pub(super) fn of(headers: &'t HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next().filter(|_| values.next().is_none())?;
        Self::parse(value.to_str().ok()?)
    }

    fn parse(text: &'t str) -> Option<Self> {
        let rest = text.strip_prefix(ALGORITHM)?.strip_prefix(BLANKS)?.trim_start_matches(BLANKS);
        let (credential, rest) = Credential::split(rest.strip_prefix("Credential=")?)?;
        let rest = rest.strip_prefix(',')?.trim_start_matches(BLANKS);
        let (signed_headers, rest) = rest.strip_prefix("SignedHeaders=")?.split_once(',')?;
        let signature = rest.trim_start_matches(BLANKS).strip_prefix("Signature=")?.trim_end_matches(BLANKS);
        Some(Authorization { credential, signed_headers, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_split() {
        for blank in ["", " ", " \t "] {
            let text = format!(
                "AWS4-HMAC-SHA256 {blank}Credential=key/20261119/a,b c/s3/aws4_request,{blank}SignedHeaders=host;range,\
                 {blank}Signature=0a{blank}"
            );
            let found = Authorization::parse(&text).unwrap();
            let Credential { access_key, day, region, service } = found.credential;
            assert_eq!([access_key, day, region, service], ["key", "20261119", "a,b c", "s3"]);
            assert_eq!((found.signed_headers, found.signature), ("host;range", "0a"));
        }
    }

    #[test]
    fn other_forms_are_malformed() {
        let good = "AWS4-HMAC-SHA256 Credential=a/20261119/b/s3/aws4_request, SignedHeaders=host, Signature=0";
        assert!(Authorization::parse(good).is_some());
        for (from, to) in [
            ("SHA256 ", "SHA256"),
            ("SHA256 ", "SHA256SignedHeaders=x, "),
            ("AWS4", " AWS4"),
            ("Credential", "SignedHeaders=x, Credential"),
            ("aws4_request", "aws4_request/x"),
            ("/b/", "/"),
            ("SignedHeaders=host, ", ""),
            ("Signature", "signature"),
        ] {
            assert!(Authorization::parse(&good.replacen(from, to, 1)).is_none(), "{to}");
        }
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, http::HeaderValue::from_static(good));
        assert!(Authorization::of(&headers).is_some());
        headers.append(AUTHORIZATION, http::HeaderValue::from_static(good));
        assert!(Authorization::of(&headers).is_none(), "s3s reads none of several");
    }
}
