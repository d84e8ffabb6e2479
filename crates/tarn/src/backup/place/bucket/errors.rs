//! What failed in a bucket, for the person at the terminal.

use std::io;

use object_store::Error;
use tarn_base::plain;

/// The most characters of what a server says that are shown.
const MAX_SHOWN: usize = 300;

/// The codes of responses to an access key that is wrong, or that may not do what was asked.
const REFUSED: [&str; 6] = [
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AuthorizationHeaderMalformed",
];

/// Describes an error of a call to a server. Only what is not in the bucket has the kind `NotFound`.
pub(super) fn describe(error: &Error, bucket: &str, server: &str) -> io::Error {
    let text = error.to_string();
    let code = between(&text, "<Code>", "</Code>").unwrap_or_default();
    let said = match between(&text, "<Message>", "</Message>") {
        Some(message) => format!("{code}: {message}"),
        None => innermost(error),
    };
    let said = plain(&said, MAX_SHOWN);
    let is_refused = matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. });
    match error {
        _ if code == "NoSuchBucket" => {
            io::Error::new(io::ErrorKind::NotConnected, format!("there is no bucket {bucket} at {server}"))
        }
        _ if is_refused || REFUSED.contains(&code) => {
            // A response without a body has no code.
            let code = if code.is_empty() { "access denied".into() } else { plain(code, MAX_SHOWN) };
            let why = format!(
                "{server} refuses the access key ({code}): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, the region and \
                 what the key may do in bucket {bucket}"
            );
            io::Error::new(io::ErrorKind::PermissionDenied, why)
        }
        Error::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, "it is not there"),
        Error::NotImplemented { .. } | Error::NotSupported { .. } => {
            io::Error::new(io::ErrorKind::Unsupported, format!("{server}: {said}"))
        }
        _ => io::Error::new(io::ErrorKind::NotConnected, format!("bucket {bucket} at {server}: {said}")),
    }
}

/// The part of a text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

/// The innermost cause of an error, which is the shortest useful message.
fn innermost(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
