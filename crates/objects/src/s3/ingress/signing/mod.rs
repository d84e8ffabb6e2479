//! What must be signed. s3s checks that the signature matches what it covers; whether it covers enough is checked here.
//!
//! Without this check, the holder of a presigned URL for a put could add `x-amz-copy-source` and so read an object that
//! the URL does not grant.

mod authorization;
mod canonical;
mod chunk_signatures;
mod old_urls;
mod resign;

use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;
use s3s::{S3Error, s3_error};

pub(in crate::s3) use chunk_signatures::{ChunkKeys, ResignedChunks};
pub(in crate::s3) use old_urls::move_headers_from_query;
pub(in crate::s3) use resign::resign;

use crate::s3::shared::errors::custom;
use authorization::{Authorization, Credential};

/// The maximum validity of a presigned URL: a week.
const MAX_EXPIRES: u64 = 7 * 24 * 3600;

/// Headers that are always part of the signature, or that s3s checks itself.
const COVERED: [&str; 2] = ["x-amz-date", "x-amz-content-sha256"];

/// Returns the error for a request that is refused before its signature is checked.
pub(in crate::s3) fn signing_refusal(parts: &Parts) -> Option<S3Error> {
    let headers = &parts.headers;
    let query = parts.uri.query().unwrap_or_default();
    // s3s would read an escaped name differently from this check.
    if query.split('&').any(|pair| pair.split('=').next().is_some_and(|name| name.contains('%'))) {
        return Some(s3_error!(InvalidURI, "Write the names of query parameters without escapes."));
    }
    if headers.iter().any(|(name, value)| name.as_str().starts_with("x-amz-") && value.to_str().is_err()) {
        // s3s leaves those that are not UTF-8 out of the check, and the signature would seem wrong.
        return Some(s3_error!(InvalidArgument, "Headers are ASCII. Write other characters as RFC 2047 says."));
    }
    if old_urls::is_signed_by_old_version(query) {
        return old_urls::old_url_refusal(parts);
    }
    if headers.get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS ")) {
        return Some(s3_error!(
            InvalidRequest,
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."
        ));
    }
    if !is_intact(query) || is_signature_removed(parts) {
        return Some(s3_error!(SignatureDoesNotMatch));
    }
    let authorization = Authorization::of(headers);
    if let Some(service) = authorization.as_ref().map(|found| found.credential.service).filter(is_other_service) {
        return Some(s3_error!(
            AuthorizationHeaderMalformed,
            "The authorization header is malformed; incorrect service '{service}'. This endpoint belongs to 's3'."
        ));
    }
    let credential = decoded_value(query, "X-Amz-Credential");
    if credential.as_deref().and_then(Credential::parse).is_some_and(|found| is_other_service(&found.service)) {
        let message = "X-Amz-Credential is malformed; incorrect service. This endpoint belongs to 's3'.";
        return Some(custom("AuthorizationQueryParametersError", StatusCode::BAD_REQUEST, message));
    }
    let expires = parameter_value(query, "X-Amz-Expires").map(str::parse::<u64>);
    if expires.is_some_and(|seconds| !seconds.is_ok_and(|seconds| seconds <= MAX_EXPIRES)) {
        let message = "X-Amz-Expires must be a number of seconds, at most a week: 604800.";
        return Some(custom("AuthorizationQueryParametersError", StatusCode::BAD_REQUEST, message));
    }
    let presigned =
        parameter_value(query, "X-Amz-SignedHeaders").map(|list| list.replace("%3B", ";").replace("%3b", ";"));
    let signed = match (&presigned, &authorization) {
        (Some(list), _) => list.as_str(),
        (None, Some(found)) => found.signed_headers,
        (None, None) if headers.contains_key(AUTHORIZATION) => {
            return Some(s3_error!(
                AuthorizationHeaderMalformed,
                "The authorization header is malformed. It has the form: AWS4-HMAC-SHA256 \
                 Credential=KEY/DAY/REGION/s3/aws4_request, SignedHeaders=NAMES, Signature=HEX"
            ));
        }
        // An unsigned request is refused later.
        (None, None) => return None,
    };
    // s3s finds only names in lower case, and leaves others out of the check.
    let is_signed = |name: &str| signed.split(';').any(|one| one == name);
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

/// Returns whether the signature of a URL, if it has one, can be that of a request. s3s reports another one as a
/// malformed request.
fn is_intact(query: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let named = query.split('&').filter(|pair| pair.split('=').next() == Some("X-Amz-Signature"));
    let values: Vec<&str> = named.map(|pair| pair.split_once('=').map_or("", |(_, value)| value)).collect();
    match values[..] {
        [] => true,
        [signature] => signature.len() == 64 && signature.bytes().all(is_hex),
        _ => false,
    }
}

/// Returns whether a URL has everything of a signature but the signature itself. s3s reports it as a malformed request.
fn is_signature_removed(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    let is_of_url =
        ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-SignedHeaders"].iter().any(|name| has_name(query, name));
    is_of_url && !has_name(query, "X-Amz-Signature") && !parts.headers.contains_key(AUTHORIZATION)
}

/// s3s accepts signatures for another service, too.
fn is_other_service(service: &&str) -> bool {
    *service != "s3"
}

/// Returns the access key in the query of a signed URL. Nothing is verified.
pub(in crate::s3) fn key_of_url(query: &str) -> Option<String> {
    let credential = decoded_value(query, "X-Amz-Credential");
    let key = credential.as_deref().and_then(|credential| credential.split('/').next()).map(str::to_owned);
    key.or_else(|| decoded_value(query, "AWSAccessKeyId"))
}

/// Returns the value of a query parameter as s3s reads it.
fn decoded_value(query: &str, name: &str) -> Option<String> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
    pairs.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Returns whether a query has a parameter with this name, with a value or without.
pub(in crate::s3) fn has_name(query: &str, name: &str) -> bool {
    query.split('&').any(|pair| pair.split('=').next() == Some(name))
}

/// Returns the value of a query parameter, still escaped.
fn parameter_value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &str = "aaaabbbbccccddddeeeeffff00001111aaaabbbbccccddddeeeeffff00001111";

    fn code(headers: &[(&'static str, &str)], query: Option<&str>) -> Option<String> {
        let uri = query.map_or_else(|| "/a/b".to_owned(), |query| format!("/a/b?{query}"));
        let request =
            headers.iter().fold(http::Request::get(uri), |request, (name, value)| request.header(*name, *value));
        signing_refusal(&request.body(()).unwrap().into_parts().0).map(|error| error.code().as_str().to_owned())
    }

    /// Headers that change the meaning of a call must be signed.
    #[test]
    fn amz_headers_must_be_signed() {
        let signed = "AWS4-HMAC-SHA256 Credential=a/20261118/global/s3/aws4_request, \
                      SignedHeaders=host;x-amz-date;x-amz-meta-a, Signature=00";
        assert_eq!(
            code(&[("authorization", signed), ("x-amz-date", "d"), ("x-amz-meta-a", "1"), ("range", "r")], None),
            None
        );
        assert_eq!(code(&[("authorization", signed), ("x-amz-acl", "1")], None).as_deref(), Some("AccessDenied"));
        let presigned = format!("X-Amz-Signature={SIGNATURE}&X-Amz-SignedHeaders=host%3Bx-amz-meta-a&x-id=PutObject");
        assert_eq!(code(&[("x-amz-meta-a", "1"), ("content-type", "t")], Some(&presigned)), None);
        let copy = code(&[("x-amz-copy-source", "/other/secret")], Some(&presigned));
        assert_eq!(copy.as_deref(), Some("AccessDenied"));
        let escaped = "X-Amz-Signed%48eaders=host&X-Amz-Signature=0";
        assert_eq!(code(&[("x-amz-copy-source", "/other/secret")], Some(escaped)).as_deref(), Some("InvalidURI"));
        let without_host = format!("X-Amz-Signature={SIGNATURE}&X-Amz-SignedHeaders=x-amz-date");
        assert_eq!(code(&[], Some(&without_host)).as_deref(), Some("AccessDenied"));
    }

    /// A signature for another service is refused.
    #[test]
    fn other_service_is_refused() {
        let signed = |service: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential=a/20261118/global/{service}/aws4_request, SignedHeaders=host, Signature=0"
            )
        };
        let header = |value: &str| code(&[("authorization", value)], None);
        assert_eq!(header(&signed("s3")), None);
        assert_eq!(header(&signed("sts")).as_deref(), Some("AuthorizationHeaderMalformed"));
        // The first word is the algorithm for s3s, whatever it contains.
        let hidden = signed("sts").replace("SHA256 ", "SHA256Credential=a/20261118/global/s3/aws4_request, ");
        assert_eq!(header(&hidden).as_deref(), Some("AuthorizationHeaderMalformed"));
        let query = |service: &str| {
            let query =
                format!("X-Amz-SignedHeaders=host&X-Amz-Credential=a%2F20261118%2fglobal%2F{service}/aws4_request");
            code(&[], Some(&format!("{query}&X-Amz-Signature={SIGNATURE}")))
        };
        assert_eq!((query("s3"), query("s%33")), (None, None));
        for service in ["sts", "st%73", "sts%2Faws4%5Frequest&x="] {
            assert_eq!(query(service).as_deref(), Some("AuthorizationQueryParametersError"), "{service}");
        }
    }

    /// The old signature version is accepted in URLs only.
    #[test]
    fn old_signature_is_for_urls() {
        assert_eq!(code(&[("authorization", "AWS a:b")], None).as_deref(), Some("InvalidRequest"));
        assert_eq!(code(&[], Some("AWSAccessKeyId=a&Signature=b&Expires=1")).as_deref(), Some("SignatureDoesNotMatch"));
        assert_eq!(code(&[], None), None);
    }

    /// A signature in a URL that was changed in any way is a wrong signature.
    #[test]
    fn altered_signature_does_not_match() {
        let url = |signature: &str| code(&[], Some(&format!("X-Amz-SignedHeaders=host{signature}")));
        assert_eq!(url(&format!("&X-Amz-Signature={SIGNATURE}")), None);
        for altered in [
            String::new(),
            format!("&X-Amz-Other={SIGNATURE}"),
            "&X-Amz-Signature".to_owned(),
            "&X-Amz-Signature=".to_owned(),
            format!("&X-Amz-Signature={}", &SIGNATURE[1..]),
            format!("&X-Amz-Signature={SIGNATURE}0"),
            format!("&X-Amz-Signature={}", SIGNATURE.to_ascii_uppercase()),
            format!("&X-Amz-Signature=%61{}", &SIGNATURE[1..]),
            format!("&X-Amz-Signature=z{}", &SIGNATURE[1..]),
            format!("&X-Amz-Signature={SIGNATURE}&X-Amz-Signature={SIGNATURE}"),
        ] {
            assert_eq!(url(&altered).as_deref(), Some("SignatureDoesNotMatch"), "{altered}");
        }
    }
}
