//! Checksums of bodies: which one a call requests, whether it matches, and how responses report it.
//!
//! A client sends the checksum in a header or in a trailer after the body, or requests one by its algorithm only. The
//! sums are computed while the bytes are received; nothing is read again here.

use http::StatusCode;
use s3s::dto::{ChecksumAlgorithm, ChecksumType};
use s3s::{S3Error, S3Request, S3Result, TrailingHeaders, s3_error};
use tarn_model::objects::{Algorithm, Checksum, Scope};

use crate::files::{Received, Sums};
use crate::s3::shared::errors::custom;

/// The checksum that a call requests.
#[derive(Debug, Default)]
pub(in crate::s3) struct RequestedChecksum {
    /// The algorithm, if any.
    pub(in crate::s3) algorithm: Option<Algorithm>,
    expected: ExpectedValue,
}

/// The checksum value that the client sends.
#[derive(Debug, Default)]
enum ExpectedValue {
    /// The client sends none.
    #[default]
    None,
    /// The value of a header, in base64.
    Value(String),
    /// The value follows in a trailer.
    Trailer(Option<TrailingHeaders>),
}

/// Parses the checksum that a call with a body requests.
pub(in crate::s3) fn requested_checksum<T>(request: &S3Request<T>) -> S3Result<RequestedChecksum> {
    let (mut claimed, mut trailer, mut named) = (None, None, None);
    for (name, value) in &request.headers {
        let text = || value.to_str().map_err(|_| invalid_value(name.as_str()));
        match name.as_str() {
            "x-amz-checksum-type" | "x-amz-checksum-mode" => {}
            "x-amz-sdk-checksum-algorithm" | "x-amz-checksum-algorithm" => named = Some(parse_algorithm(text()?)?),
            "x-amz-trailer" => {
                for announced in text()?.split(',').map(|part| part.trim().to_ascii_lowercase()) {
                    if let Some(algorithm) = announced.strip_prefix(PREFIX) {
                        set_once(&mut trailer, parse_algorithm(algorithm)?)?;
                    }
                }
            }
            other => {
                if let Some(algorithm) = other.strip_prefix(PREFIX) {
                    let algorithm = parse_algorithm(algorithm)?;
                    set_once(&mut claimed, (algorithm, check_encoding(algorithm, text()?)?))?;
                }
            }
        }
    }
    let (algorithm, expected) = match (claimed, trailer) {
        (Some(_), Some(_)) => return Err(multiple_checksums()),
        (Some((algorithm, value)), None) => (Some(algorithm), ExpectedValue::Value(value)),
        (None, Some(algorithm)) => (Some(algorithm), ExpectedValue::Trailer(request.trailing_headers.clone())),
        (None, None) => (named, ExpectedValue::None),
    };
    match (named, algorithm) {
        (Some(named), Some(algorithm)) if named != algorithm => Err(invalid_value("x-amz-sdk-checksum-algorithm")),
        _ => Ok(RequestedChecksum { algorithm, expected }),
    }
}

impl RequestedChecksum {
    /// Returns the sums to compute: always the MD5, which becomes the ETag.
    pub(in crate::s3) fn sums(&self) -> Sums {
        Sums::with(self.algorithm)
    }

    /// Compares the received body with the client's checksum. Must be called after the whole body was received. Returns
    /// the checksum in base64.
    pub(in crate::s3) fn verify(&self, received: &Received) -> S3Result<Option<String>> {
        let Some(algorithm) = self.algorithm else {
            return Ok(None);
        };
        let right = received_checksum(received, algorithm);
        let claimed = match &self.expected {
            ExpectedValue::None => return Ok(right),
            ExpectedValue::Value(value) => value.clone(),
            ExpectedValue::Trailer(trailers) => read_trailer(algorithm, trailers.as_ref())?,
        };
        if right.as_ref() == Some(&claimed) {
            Ok(right)
        } else {
            Err(s3_error!(BadDigest, "The {} you specified did not match the calculated checksum.", algorithm.name()))
        }
    }

    /// Like [`RequestedChecksum::verify`], but returns the checksum of a whole object.
    pub(in crate::s3) fn checksum(&self, received: &Received) -> S3Result<Option<Checksum>> {
        let value = self.verify(received)?;
        let whole = |(algorithm, value)| Checksum { algorithm, scope: Scope::Full, value };
        Ok(self.algorithm.zip(value).map(whole))
    }
}

/// Returns a checksum of the received body in base64, if it was computed.
pub(in crate::s3) fn received_checksum(received: &Received, algorithm: Algorithm) -> Option<String> {
    let encoded = |sum: &[u8]| base64_simd::STANDARD.encode_to_string(sum);
    match algorithm {
        Algorithm::Crc32 => received.crc32.as_ref().map(|sum| encoded(sum)),
        Algorithm::Crc32c => received.crc32c.as_ref().map(|sum| encoded(sum)),
        Algorithm::Crc64Nvme => received.crc64nvme.as_ref().map(|sum| encoded(sum)),
        Algorithm::Sha1 => received.sha1.as_ref().map(|sum| encoded(sum)),
        Algorithm::Sha256 => received.sha256.as_ref().map(|sum| encoded(sum)),
    }
}

/// Parses the name of an algorithm, ignoring case.
pub(in crate::s3) fn parse_algorithm(name: &str) -> S3Result<Algorithm> {
    Algorithm::from_name(&name.to_ascii_uppercase()).ok_or_else(|| {
        s3_error!(
            InvalidRequest,
            "Checksum algorithm provided is unsupported. Please try again with any of the valid types: \
             [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]"
        )
    })
}

/// Checks that a text is a checksum of this algorithm in base64.
pub(in crate::s3) fn check_encoding(algorithm: Algorithm, value: &str) -> S3Result<String> {
    let length = match algorithm {
        Algorithm::Crc32 | Algorithm::Crc32c => 4,
        Algorithm::Crc64Nvme => 8,
        Algorithm::Sha1 => 20,
        Algorithm::Sha256 => 32,
    };
    match base64_simd::STANDARD.decode_to_vec(value) {
        Ok(sum) if sum.len() == length => Ok(value.to_owned()),
        _ => Err(invalid_value(&format!("{PREFIX}{}", algorithm.name().to_ascii_lowercase()))),
    }
}

/// The error for a call whose algorithm differs from that of its upload.
pub(in crate::s3) fn algorithm_mismatch(wanted: Algorithm, given: Algorithm) -> S3Error {
    let name = |algorithm: Algorithm| algorithm.name().to_ascii_lowercase();
    s3_error!(
        InvalidRequest,
        "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
        name(wanted),
        name(given)
    )
}

/// The name of an algorithm in responses.
pub(in crate::s3) fn algorithm_name(algorithm: Algorithm) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from_static(algorithm.name())
}

/// The type of a checksum in responses.
pub(in crate::s3) fn scope_name(scope: Scope) -> ChecksumType {
    ChecksumType::from_static(scope.name())
}

/// Returns the one checksum among the five fields that inputs have for it. Several are refused.
macro_rules! given_checksum {
    ($input:expr) => {
        $crate::s3::shared::checksums::single_checksum([
            (tarn_model::objects::Algorithm::Crc32, $input.checksum_crc32.as_deref()),
            (tarn_model::objects::Algorithm::Crc32c, $input.checksum_crc32c.as_deref()),
            (tarn_model::objects::Algorithm::Crc64Nvme, $input.checksum_crc64nvme.as_deref()),
            (tarn_model::objects::Algorithm::Sha1, $input.checksum_sha1.as_deref()),
            (tarn_model::objects::Algorithm::Sha256, $input.checksum_sha256.as_deref()),
        ])
    };
}
pub(in crate::s3) use given_checksum;

/// Sets the one of the five checksum fields of an output that belongs to the algorithm.
macro_rules! set_checksum {
    ($output:expr, $algorithm:expr, $value:expr) => {
        match $algorithm {
            tarn_model::objects::Algorithm::Crc32 => $output.checksum_crc32 = Some($value),
            tarn_model::objects::Algorithm::Crc32c => $output.checksum_crc32c = Some($value),
            tarn_model::objects::Algorithm::Crc64Nvme => $output.checksum_crc64nvme = Some($value),
            tarn_model::objects::Algorithm::Sha1 => $output.checksum_sha1 = Some($value),
            tarn_model::objects::Algorithm::Sha256 => $output.checksum_sha256 = Some($value),
        }
    };
}
pub(in crate::s3) use set_checksum;

/// Returns the only value that is set.
pub(in crate::s3) fn single_checksum(fields: [(Algorithm, Option<&str>); 5]) -> S3Result<Option<(Algorithm, String)>> {
    let mut found = None;
    for (algorithm, value) in fields {
        if let Some(value) = value {
            set_once(&mut found, (algorithm, value.to_owned()))?;
        }
    }
    Ok(found)
}

const PREFIX: &str = "x-amz-checksum-";

fn read_trailer(algorithm: Algorithm, trailers: Option<&TrailingHeaders>) -> S3Result<String> {
    let name = format!("{PREFIX}{}", algorithm.name().to_ascii_lowercase());
    let value = trailers.and_then(|trailers| trailers.read(|headers| headers.get(&name).cloned())).flatten();
    match value.as_ref().map(|value| value.to_str()) {
        Some(Ok(value)) => check_encoding(algorithm, value.trim()),
        Some(Err(_)) => Err(invalid_value(&name)),
        None => Err(custom(
            "MalformedTrailerError",
            StatusCode::BAD_REQUEST,
            &format!("The request announces the trailer {name}, but does not contain it."),
        )),
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> S3Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(multiple_checksums()),
    }
}

fn multiple_checksums() -> S3Error {
    s3_error!(InvalidRequest, "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
}

fn invalid_value(header: &str) -> S3Error {
    s3_error!(InvalidRequest, "Value for {header} header is invalid.")
}

#[cfg(test)]
mod tests {
    use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};

    use super::*;
    use crate::files::ReceivedBody;

    fn parse_headers(headers: &[(&'static str, &'static str)]) -> S3Result<RequestedChecksum> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        requested_checksum(&S3Request {
            input: (),
            method: Method::PUT,
            uri: Uri::from_static("/"),
            headers,
            extensions: Extensions::new(),
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        })
    }

    /// A received body with the CRC32 of "123456789".
    fn received_digits() -> Received {
        let (body, crc32) = (ReceivedBody::Inline(b"123456789".to_vec()), Some([0xcb, 0xf4, 0x39, 0x26]));
        Received { size: 9, md5: None, crc32, crc32c: None, crc64nvme: None, sha1: None, sha256: None, body }
    }

    fn code<T: std::fmt::Debug>(result: S3Result<T>) -> (String, u16) {
        let error = result.unwrap_err();
        (error.code().as_str().to_owned(), error.status_code().unwrap().as_u16())
    }

    /// One checksum can be requested in many ways.
    #[test]
    fn checksum_is_requested_in_many_ways() {
        assert_eq!(
            parse_headers(&[("content-type", "a/b"), ("x-amz-checksum-mode", "ENABLED")]).unwrap().algorithm,
            None
        );
        for headers in [
            [("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-sdk-checksum-algorithm", "CRC32")],
            [("x-amz-sdk-checksum-algorithm", "crc32"), ("x-amz-date", "now")],
            [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "FULL_OBJECT")],
            [("x-amz-trailer", "X-Amz-Checksum-Crc32, x-other"), ("x-amz-sdk-checksum-algorithm", "CRC32")],
        ] {
            assert_eq!(parse_headers(&headers).unwrap().algorithm, Some(Algorithm::Crc32), "{headers:?}");
        }
    }

    /// More than one checksum, or an unknown one, is refused.
    #[test]
    fn multiple_or_unknown_checksums_are_refused() {
        for headers in [
            [("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-checksum-crc32c", "y/Q5Jg==")],
            [("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-trailer", "x-amz-checksum-crc32")],
            [("x-amz-trailer", "x-amz-checksum-crc32,x-amz-checksum-sha1"), ("x-amz-date", "now")],
            [("x-amz-checksum-crc32", "y/Q5Jg=="), ("x-amz-sdk-checksum-algorithm", "SHA1")],
            [("x-amz-checksum-crc32", "y/Q5"), ("x-amz-date", "now")],
            [("x-amz-checksum-crc32", "bad"), ("x-amz-date", "now")],
            [("x-amz-checksum-adler", "y/Q5Jg=="), ("x-amz-date", "now")],
            [("x-amz-sdk-checksum-algorithm", "MD4"), ("x-amz-date", "now")],
        ] {
            assert_eq!(code(parse_headers(&headers)), ("InvalidRequest".to_owned(), 400), "{headers:?}");
        }
    }

    /// The received body is compared with the client's checksum.
    #[test]
    fn received_body_is_compared() {
        let right = parse_headers(&[("x-amz-checksum-crc32", "y/Q5Jg==")]).unwrap();
        let checksum = right.checksum(&received_digits()).unwrap().unwrap();
        assert_eq!((checksum.value.as_str(), checksum.scope), ("y/Q5Jg==", Scope::Full));
        let wrong = parse_headers(&[("x-amz-checksum-crc32", "AAAAAA==")]).unwrap();
        assert_eq!(code(wrong.verify(&received_digits())), ("BadDigest".to_owned(), 400));
        let missing = parse_headers(&[("x-amz-trailer", "x-amz-checksum-crc32")]).unwrap();
        assert_eq!(code(missing.verify(&received_digits())), ("MalformedTrailerError".to_owned(), 400));
        let named = parse_headers(&[("x-amz-sdk-checksum-algorithm", "CRC32")]).unwrap();
        assert_eq!(named.verify(&received_digits()).unwrap().as_deref(), Some("y/Q5Jg=="));
        assert_eq!(parse_headers(&[]).unwrap().verify(&received_digits()).unwrap(), None);
    }
}
