//! URLs that are signed by Signature Version 2, which boto3 and the tools above it use without a known region.
//!
//! That version signs the method, the path, `x-amz-*` headers, and the parameters of a list. s3s checks the signature;
//! whether the URL has anything beside what is signed is checked here. Only URLs are accepted, because every client
//! signs calls by Version 4.

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use s3s::{S3Error, s3_error};

/// The parameters that the signature covers. Those with other names select other operations.
const SIGNED: [&str; 34] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// The parameters that are the signature.
const AUTHENTICATION: [&str; 3] = ["AWSAccessKeyId", "Expires", "Signature"];

/// Parameters that only select a part of a list. S3 does not sign them either: who may list, may list everything.
const LISTING: [&str; 15] = [
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "prefix",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
];

/// The last second of the year 9999: s3s cannot represent later ones.
const MAX_EXPIRES: u64 = 253_402_300_799;

/// Returns whether the query has a signature of this version. s3s then ignores any other.
pub(super) fn is_signed_by_old_version(query: &str) -> bool {
    super::has_name(query, "Signature") || super::has_name(query, "AWSAccessKeyId")
}

/// Moves headers that boto3 writes into the query of a URL to the headers, where s3s looks for them. They are signed.
pub(in crate::s3) fn move_headers_from_query(parts: &mut Parts) {
    let query = parts.uri.query().unwrap_or_default();
    if !is_signed_by_old_version(query) {
        return;
    }
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
    for (name, value) in pairs.into_iter().filter(|(name, _)| is_header(name)) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            parts.headers.entry(name).or_insert(value);
        }
    }
}

/// Returns the error for a URL that s3s must not see. Headers were moved before.
pub(super) fn old_url_refusal(parts: &Parts) -> Option<S3Error> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(parts.uri.query()?).unwrap_or_default();
    let value = |wanted: &str| pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let [Some(_), Some(expires), Some(signature)] = AUTHENTICATION.map(value) else {
        return Some(s3_error!(
            AccessDenied,
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters"
        ));
    };
    if !expires.parse::<u64>().is_ok_and(|second| second <= MAX_EXPIRES) {
        return Some(s3_error!(AccessDenied, "Invalid date (should be seconds since epoch): Expires"));
    }
    if base64_simd::STANDARD.decode_to_vec(signature).map_or(true, |sum| sum.len() != 20) {
        return Some(s3_error!(SignatureDoesNotMatch));
    }
    for (at, (name, _)) in pairs.iter().enumerate() {
        let known = |names: &[&str]| names.contains(&name.as_str());
        let is_unsigned = !known(&SIGNED) && !known(&AUTHENTICATION) && !known(&LISTING) && !is_header(name);
        // s3s leaves a parameter that is there twice out of the check, and yet uses it to find the operation.
        if is_unsigned || pairs[..at].iter().any(|(other, _)| other == name) {
            return Some(s3_error!(
                AccessDenied,
                "Signature Version 2 does not sign the parameter {name}, or it is there twice. Sign by AWS4-HMAC-SHA256."
            ));
        }
    }
    header_refusal(parts)
}

/// Returns the error for a header that s3s would leave out of the check.
fn header_refusal(parts: &Parts) -> Option<S3Error> {
    for name in ["content-type", "content-md5"] {
        let values: Vec<&HeaderValue> = parts.headers.get_all(name).iter().collect();
        if values.len() > 1 || values.iter().any(|value| value.to_str().is_err()) {
            return Some(s3_error!(AccessDenied, "The header {name} cannot be checked. Send it once, in ASCII."));
        }
    }
    let payload = parts.headers.get(s3s::header::X_AMZ_CONTENT_SHA256)?;
    let names_hash = payload != "UNSIGNED-PAYLOAD";
    names_hash
        .then(|| s3_error!(InvalidRequest, "Signature Version 2 does not check x-amz-content-sha256. Leave it out."))
}

/// Returns whether the parameter stands for a header that the signature covers.
fn is_header(name: &str) -> bool {
    name.starts_with("x-amz-") || name == "content-type" || name == "content-md5"
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &str = "AWSAccessKeyId=a&Expires=1&Signature=AAAAAAAAAAAAAAAAAAAAAAAAAAA%3D";

    fn code(query: &str, headers: &[(&'static str, &'static str)]) -> Option<String> {
        let mut request = http::Request::get(format!("/a/b?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        move_headers_from_query(&mut parts);
        old_url_refusal(&parts).map(|error| error.code().as_str().to_owned())
    }

    /// A URL has only parameters that are signed, each once.
    #[test]
    fn unsigned_parameters_are_refused() {
        for good in ["", "&versionId=1", "&prefix=a&list-type=2", "&content-type=a%2Fb&x-amz-acl=private"] {
            assert_eq!(code(&format!("{SIGNATURE}{good}"), &[]), None, "{good}");
        }
        for bad in [
            "&attributes",
            "&tagging&tagging",
            "&legal-hold",
            "&X-Amz-Signature=0",
            "&Expires=2",
            "&Signature=AAAAAAAAAAAAAAAAAAAAAAAAAAA%3D",
            "&content-type=a&content-type=b",
        ] {
            assert_eq!(code(&format!("{SIGNATURE}{bad}"), &[]).as_deref(), Some("AccessDenied"), "{bad}");
        }
    }

    /// Parts of the signature that are missing or malformed are refused as a wrong signature is.
    #[test]
    fn malformed_signature_is_refused() {
        for (from, to, refusal) in [
            ("AWSAccessKeyId=a&", "", "AccessDenied"),
            ("Expires=1&", "", "AccessDenied"),
            ("Expires=1", "Expires=-1", "AccessDenied"),
            ("Expires=1", "Expires=99999999999999", "AccessDenied"),
            ("Expires=1", "Expires=soon", "AccessDenied"),
            ("AAA%3D", "AAA", "SignatureDoesNotMatch"),
            ("AAA%3D", "AAA%3D%3D", "SignatureDoesNotMatch"),
            ("AAA%3D", "AA%ff%3D", "SignatureDoesNotMatch"),
        ] {
            assert_eq!(code(&SIGNATURE.replace(from, to), &[]).as_deref(), Some(refusal), "{to}");
        }
    }

    /// Headers that the check of s3s would not see are refused.
    #[test]
    fn unchecked_headers_are_refused() {
        assert_eq!(code(SIGNATURE, &[("content-type", "a/b")]), None);
        assert_eq!(code(SIGNATURE, &[("x-amz-content-sha256", "UNSIGNED-PAYLOAD")]), None);
        for headers in [
            &[("content-type", "a/b"), ("content-type", "a/c")][..],
            &[("content-md5", "a"), ("content-md5", "a")],
            &[("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")],
        ] {
            assert!(code(SIGNATURE, headers).is_some(), "{headers:?}");
        }
    }
}
