//! The last changes to a response: what S3 says in it and s3s does not.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderValue, StatusCode, response};
use s3s::{Body, HttpResponse};
use tarn_model::buckets::BadBucketName;

use crate::s3::REGION;
use crate::s3::shared::errors::UNMET_CONDITION;

/// The errors of a key that does not work, and of a signature that is not that of the key, with what the event log
/// calls them.
const REFUSED_KEYS: [(&[u8], &str); 2] =
    [(b"<Code>InvalidAccessKeyId<", "invalid_key"), (b"<Code>SignatureDoesNotMatch<", "invalid_signature")];

/// Returns why the key of a call was refused, if it was.
pub(in crate::s3) fn why_key_refused(response: &HttpResponse) -> Option<&'static str> {
    if response.status() != StatusCode::FORBIDDEN {
        return None;
    }
    let body = response.body().bytes()?;
    let says = |code: &[u8]| body.windows(code.len()).any(|window| window == code);
    REFUSED_KEYS.iter().find(|(code, _)| says(code)).map(|(_, reason)| *reason)
}

/// Returns whether s3s could not parse the XML of a request. It reports that as an internal error without a message,
/// while our errors have one.
pub(in crate::s3) fn is_unparsed_xml(response: &HttpResponse) -> bool {
    let has_no_message = |body: &[u8]| !body.windows(9).any(|window| window == b"<Message>");
    response.status() == StatusCode::INTERNAL_SERVER_ERROR
        && response.body().bytes().is_some_and(|body| has_no_message(&body))
}

/// Removes the quotes around the ETag of GetObjectAttributes. In every other response the ETag has quotes, and s3s
/// writes them here, too.
pub(in crate::s3) fn unquote_etag(response: HttpResponse) -> HttpResponse {
    let (mut parts, body) = response.into_parts();
    let text = body.bytes().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    let unquoted = text.as_deref().filter(|text| text.contains("<GetObjectAttributes")).and_then(|text| {
        let (start, rest) = text.split_once("<ETag>\"")?;
        let (etag, end) = rest.split_once("\"</ETag>")?;
        Some(format!("{start}<ETag>{etag}</ETag>{end}"))
    });
    let Some(unquoted) = unquoted else {
        return HttpResponse::from_parts(parts, body);
    };
    parts.headers.remove(CONTENT_LENGTH);
    HttpResponse::from_parts(parts, Body::from(unquoted))
}

/// Adds the request id to a response, and to an error the other elements of S3's errors.
pub(in crate::s3) fn add_request_id(response: HttpResponse, request_id: &str, resource: &str) -> HttpResponse {
    let (mut parts, mut body) = response.into_parts();
    let condition = parts.headers.remove(UNMET_CONDITION);
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        parts.headers.insert(s3s::header::X_AMZ_REQUEST_ID, request_id);
    }
    if parts.status == StatusCode::NOT_MODIFIED {
        body = Body::empty();
    } else if parts.status == StatusCode::OK && parts.headers.contains_key(CONTENT_RANGE) {
        // s3s does not set this status for HEAD.
        parts.status = StatusCode::PARTIAL_CONTENT;
    } else if parts.status.is_client_error() || parts.status.is_server_error() {
        let condition = condition.as_ref().and_then(|condition| condition.to_str().ok());
        body = complete_error_body(&mut parts, body, condition, request_id, resource);
    }
    HttpResponse::from_parts(parts, body)
}

fn complete_error_body(
    parts: &mut response::Parts,
    body: Body,
    condition: Option<&str>,
    request_id: &str,
    resource: &str,
) -> Body {
    let text = body.bytes().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    let Some(text) = text.as_deref().and_then(|text| text.strip_suffix("</Error>")) else {
        return body;
    };
    let text = &strip_default_message(text);
    let message = if text.contains("<Message>") {
        String::new()
    } else {
        format!("<Message>{}</Message>", default_message(text))
    };
    let region = if text.contains("<Code>AuthorizationHeaderMalformed<") {
        format!("<Region>{REGION}</Region>")
    } else {
        String::new()
    };
    let condition = condition.map(|header| format!("<Condition>{header}</Condition>")).unwrap_or_default();
    let resource = resource.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = format!(
        "{text}{message}{region}{condition}<Resource>{resource}</Resource><RequestId>{request_id}</RequestId></Error>"
    );
    parts.headers.remove(CONTENT_LENGTH);
    Body::from(text)
}

/// Removes the message of s3s for missing operations: it says "not implemented yet", and some will never be
/// implemented.
fn strip_default_message(error: &str) -> String {
    const PROMISE: &str = " is not implemented yet</Message>";
    let found = error.split_once("<Message>").and_then(|(start, rest)| Some((start, rest.split_once(PROMISE)?.1)));
    match found {
        Some((start, end)) if error.contains("<Code>NotImplemented<") => format!("{start}{end}"),
        _ => error.to_owned(),
    }
}

/// Returns the message for errors for which s3s has only a code.
fn default_message(error: &str) -> String {
    let code = error.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map_or("", |(code, _)| code);
    let text = match code {
        "InvalidBucketName" => return format!("The specified bucket is not valid: {BadBucketName}."),
        "KeyTooLongError" => "Your key is too long: a key has at most 1024 bytes.",
        "InvalidURI" => "The URI cannot be parsed. Escape it as UTF-8.",
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your secret access key \
             and how you sign."
        }
        "MalformedXML" => "The XML you provided was not well-formed or is not what this operation accepts.",
        "MaxMessageLengthExceeded" => "Your request was too big.",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "IncompleteBody" => "You did not provide the number of bytes specified by the Content-Length HTTP header.",
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "NotImplemented" => "This is not implemented; docs/object-storage-operations.md lists what is.",
        _ => "The call was refused.",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The default message of s3s for missing operations is removed.
    #[test]
    fn default_message_is_stripped() {
        let of_s3s = "<Error><Code>NotImplemented</Code><Message>GetBucketWebsite is not implemented yet</Message>";
        assert_eq!(strip_default_message(of_s3s), "<Error><Code>NotImplemented</Code>");
        let ours = "<Error><Code>NotImplemented</Code><Message>Object Lock is not implemented.</Message>";
        assert_eq!(strip_default_message(ours), ours);
    }
}
