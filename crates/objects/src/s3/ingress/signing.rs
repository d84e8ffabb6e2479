//! What must be signed. s3s checks that the signature fits what it covers; whether it covers enough is checked here.
//!
//! Without this, whoever holds a presigned URL for a put could add `x-amz-copy-source` and so read what the URL never gave
//! away.

use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use s3s::{S3Error, s3_error};

use crate::s3::REGION;
use crate::s3::shared::errors::custom;

/// For how long a URL can be signed: a week.
const MAX_EXPIRES: u64 = 7 * 24 * 3600;

/// Headers that are part of what is signed although no list names them, or that s3s checks by itself.
const COVERED: [&str; 2] = ["x-amz-date", "x-amz-content-sha256"];

/// Why a request is refused before its signature is looked at, if it is.
pub(in crate::s3) fn refusal(headers: &HeaderMap, query: Option<&str>) -> Option<S3Error> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let query = query.unwrap_or_default();
    // An escaped name would be one thing here and another one for s3s.
    if query.split('&').any(|pair| pair.split('=').next().is_some_and(|name| name.contains('%'))) {
        return Some(s3_error!(InvalidURI, "Write the names of query parameters without escapes."));
    }
    if authorization.is_some_and(|value| value.starts_with("AWS "))
        || has(query, "Signature")
        || has(query, "AWSAccessKeyId")
    {
        return Some(s3_error!(
            InvalidRequest,
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
        ));
    }
    let expires = value(query, "X-Amz-Expires").map(str::parse::<u64>);
    if expires.is_some_and(|seconds| !seconds.is_ok_and(|seconds| seconds <= MAX_EXPIRES)) {
        let message = "X-Amz-Expires must be a number of seconds, at most a week: 604800.";
        return Some(custom("AuthorizationQueryParametersError", StatusCode::BAD_REQUEST, message));
    }
    if headers.iter().any(|(name, value)| name.as_str().starts_with("x-amz-") && value.to_str().is_err()) {
        // s3s leaves such headers out of what it checks, and the signature would seem wrong.
        return Some(s3_error!(InvalidArgument, "Headers are ASCII. Write other characters as RFC 2047 says."));
    }
    if let Some(region) = authorization.and_then(region).filter(|region| !is_region(region)) {
        // s3s takes such a region for an error. S3 says which one is right, and s3cmd, which begins with "US", then takes that.
        return Some(s3_error!(
            AuthorizationHeaderMalformed,
            "The authorization header is malformed; the region '{region}' is wrong; expecting '{REGION}'"
        ));
    }
    let presigned = value(query, "X-Amz-SignedHeaders").map(|list| list.replace("%3B", ";").replace("%3b", ";"));
    let signed = match (&presigned, authorization) {
        (Some(list), _) => list.as_str(),
        (None, Some(value)) => value.split_once("SignedHeaders=")?.1.split([',', ' ']).next().unwrap_or_default(),
        // Nothing is signed, and so nothing is let in.
        (None, None) => return None,
    };
    let is_signed = |name: &str| signed.split(';').any(|one| one.eq_ignore_ascii_case(name));
    let needed = |name: &str| name.starts_with("x-amz-") && !COVERED.contains(&name);
    let missing = headers.keys().map(|name| name.as_str()).find(|name| needed(name) && !is_signed(name));
    match missing {
        Some(name) => Some(s3_error!(
            AccessDenied,
            "There were headers present in the request which were not signed: {name}. Sign every x-amz-* header."
        )),
        None if !is_signed("host") => Some(s3_error!(AccessDenied, "The header host is not signed. Sign it.")),
        None => None,
    }
}

/// The region in the scope of an authorization: after the key and the day.
fn region(authorization: &str) -> Option<&str> {
    authorization.split_once("Credential=")?.1.split(',').next()?.rsplit('/').nth(2)
}

fn is_region(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn has(query: &str, name: &str) -> bool {
    value(query, name).is_some()
}

/// The value of a parameter as it is written.
fn value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(headers: &[(&'static str, &str)], query: Option<&str>) -> Option<String> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        refusal(&headers, query).map(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn what_changes_the_meaning_of_a_call_must_be_signed() {
        let signed = "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;x-amz-date;x-amz-meta-a, Signature=00";
        assert_eq!(
            code(&[("authorization", signed), ("x-amz-date", "d"), ("x-amz-meta-a", "1"), ("range", "r")], None),
            None
        );
        assert_eq!(code(&[("authorization", signed), ("x-amz-acl", "1")], None).as_deref(), Some("AccessDenied"));
        let presigned = "X-Amz-Signature=0&X-Amz-SignedHeaders=host%3Bx-amz-meta-a&x-id=PutObject";
        assert_eq!(code(&[("x-amz-meta-a", "1"), ("content-type", "t")], Some(presigned)), None);
        let copy = code(&[("x-amz-copy-source", "/other/secret")], Some(presigned));
        assert_eq!(copy.as_deref(), Some("AccessDenied"));
        let escaped = "X-Amz-Signed%48eaders=host&X-Amz-Signature=0";
        assert_eq!(code(&[("x-amz-copy-source", "/other/secret")], Some(escaped)).as_deref(), Some("InvalidURI"));
        assert_eq!(code(&[], Some("X-Amz-SignedHeaders=x-amz-date")).as_deref(), Some("AccessDenied"));
    }

    #[test]
    fn the_old_signature_is_refused() {
        assert_eq!(code(&[("authorization", "AWS a:b")], None).as_deref(), Some("InvalidRequest"));
        assert_eq!(code(&[], Some("AWSAccessKeyId=a&Signature=b&Expires=1")).as_deref(), Some("InvalidRequest"));
        assert_eq!(code(&[], None), None);
    }
}
