//! The HTTP service in front of s3s. It refuses requests that s3s would accept wrongly, and gives every response a
//! request id.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPECT};
use http::{HeaderValue, Method, StatusCode, Version, request, response};
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse, S3Error, StdError, s3_error};
use tarn_model::buckets::BadBucketName;

use crate::Objects;
use crate::s3::REGION;
use crate::s3::ingress::chunks::SplitChunks;
use crate::s3::ingress::drain::DrainedBody;
use crate::s3::ingress::open_calls::{CallKey, key_ended, watch_response};
use crate::s3::ingress::{access, signing};
use crate::s3::service::MAX_XML_BYTES;
use crate::s3::shared::body;

/// S3 as a service for any HTTP server. Clones share everything.
#[derive(Clone)]
pub struct Service {
    inner: S3Service,
    objects: Objects,
}

impl Service {
    pub(in crate::s3) fn new(inner: S3Service, objects: Objects) -> Self {
        Service { inner, objects }
    }
}

impl<B> tower::Service<http::Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<HttpResponse, HttpError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let request_id = format!("{:016X}", self.objects.ids().bits());
        let resource = request.uri().path().to_owned();
        let expects_continue = request.headers().contains_key(EXPECT);
        let (parts, body) = request.into_parts();
        let (size, must_close) = (body.size_hint().lower(), expects_continue && parts.version < Version::HTTP_2);
        // A client that expects 100-continue never gets it for an empty body, and botocore then misreads the following
        // responses.
        let has_empty_body = body.is_end_stream();
        let refusal = find_refusal(&parts);
        let body = match (is_chunked(&parts), body.is_end_stream()) {
            (true, _) => Body::http_body_unsync(SplitChunks::new(DrainedBody::new(body, expects_continue))),
            (false, true) => Body::empty(),
            (false, false) => Body::http_body_unsync(DrainedBody::new(body, expects_continue)),
        };
        let (inner, objects) = (self.inner.clone(), self.objects.clone());
        Box::pin(async move {
            let response = match refusal {
                Some(refusal) => error_response(refusal)?,
                None => {
                    let key = CallKey::default();
                    let response = inner.call(http::Request::from_parts(parts, body));
                    let response = tokio::select! {
                        biased;
                        response = access::CALLER.scope(key.clone(), response) => response?,
                        () = key_ended(objects.clone(), key.clone()) => error_response(access::unknown_key())?,
                    };
                    watch_response(response, objects, key)
                }
            };
            let response = match size > 0 && is_unparsed_xml(&response) {
                true if size > MAX_XML_BYTES as u64 => error_response(s3_error!(MaxMessageLengthExceeded))?,
                true => error_response(body::sha256_mismatch())?,
                false => response,
            };
            let mut response = add_request_id(response, &request_id, &resource);
            if must_close && (has_empty_body || !response.status().is_success()) {
                // The body of a refused call was not requested, and it is unknown whether the client sends it.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

fn error_response(error: S3Error) -> Result<HttpResponse, HttpError> {
    error.to_http_response().map_err(|error| HttpError::new(StdError::from(error)))
}

/// Returns the error for a request that s3s must not see.
fn find_refusal(parts: &request::Parts) -> Option<S3Error> {
    let has_nul = |text: &str| text.contains("%00");
    let from = parts.headers.get(s3s::header::X_AMZ_COPY_SOURCE).and_then(|value| value.to_str().ok());
    if parts.uri.path_and_query().is_some_and(|all| has_nul(all.as_str())) || from.is_some_and(has_nul) {
        return Some(s3_error!(InvalidArgument, "A key cannot contain NUL."));
    }
    if parts.method == Method::POST && parts.headers.get(CONTENT_TYPE).is_some_and(is_form) {
        return Some(s3_error!(NotImplemented, "Uploads by forms are not implemented. Use a presigned PUT."));
    }
    signing::signing_refusal(&parts.headers, parts.uri.query())
}

/// Returns whether a content type is that of a form, ignoring case.
fn is_form(kind: &HeaderValue) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    kind.as_bytes().get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM))
}

/// Returns whether the body consists of chunks that announce their sizes.
fn is_chunked(parts: &request::Parts) -> bool {
    let values = parts.headers.get_all(s3s::header::X_AMZ_CONTENT_SHA256);
    values.iter().any(|value| value.as_bytes().starts_with(b"STREAMING-"))
}

/// Returns whether s3s could not parse the XML of a request. It reports that as an internal error without a message,
/// while our errors have one.
fn is_unparsed_xml(response: &HttpResponse) -> bool {
    let has_no_message = |body: &[u8]| !body.windows(9).any(|window| window == b"<Message>");
    response.status() == StatusCode::INTERNAL_SERVER_ERROR
        && response.body().bytes().is_some_and(|body| has_no_message(&body))
}

/// Adds the request id to a response, and to an error the other elements of S3's errors.
fn add_request_id(response: HttpResponse, request_id: &str, resource: &str) -> HttpResponse {
    let (mut parts, mut body) = response.into_parts();
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        parts.headers.insert(s3s::header::X_AMZ_REQUEST_ID, request_id);
    }
    if parts.status == StatusCode::NOT_MODIFIED {
        body = Body::empty();
    } else if parts.status == StatusCode::OK && parts.headers.contains_key(CONTENT_RANGE) {
        // s3s does not set this status for HEAD.
        parts.status = StatusCode::PARTIAL_CONTENT;
    } else if parts.status.is_client_error() || parts.status.is_server_error() {
        body = complete_error_body(&mut parts, body, request_id, resource);
    }
    HttpResponse::from_parts(parts, body)
}

fn complete_error_body(parts: &mut response::Parts, body: Body, request_id: &str, resource: &str) -> Body {
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
    let resource = resource.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text =
        format!("{text}{message}{region}<Resource>{resource}</Resource><RequestId>{request_id}</RequestId></Error>");
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
