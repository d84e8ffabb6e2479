//! In front of s3s: what it would take in too kindly is refused here, and every answer gets its number.

use std::sync::OnceLock;
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
use crate::s3::ingress::chunks::Guarded;
use crate::s3::ingress::drain::Whole;
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
        let number = format!("{:016X}", self.objects.ids().bits());
        let resource = request.uri().path().to_owned();
        let waits = request.headers().contains_key(EXPECT);
        let (parts, body) = request.into_parts();
        let (size, must_close) = (body.size_hint().lower(), waits && parts.version < Version::HTTP_2);
        // Whoever waits to be asked for nothing never is, and botocore then loses its place in the next answers.
        let asked_for_nothing = body.is_end_stream();
        let refusal = refusal(&parts);
        let body = match (is_chunked(&parts), body.is_end_stream()) {
            (true, _) => Body::http_body_unsync(Guarded::new(Whole::new(body, waits))),
            (false, true) => Body::empty(),
            (false, false) => Body::http_body_unsync(Whole::new(body, waits)),
        };
        let inner = self.inner.clone();
        Box::pin(async move {
            let answer = match refusal {
                Some(refusal) => spoken(refusal)?,
                None => {
                    let answer = inner.call(http::Request::from_parts(parts, body));
                    access::CALLER.scope(OnceLock::new(), answer).await?
                }
            };
            let answer = match size > 0 && is_unread(&answer) {
                true if size > MAX_XML_BYTES as u64 => spoken(s3_error!(MaxMessageLengthExceeded))?,
                true => spoken(body::not_as_signed())?,
                false => answer,
            };
            let mut answer = numbered(answer, &number, &resource);
            if must_close && (asked_for_nothing || !answer.status().is_success()) {
                // The body of a refused call was not asked for, and nobody knows whether it comes.
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer)
        })
    }
}

fn spoken(error: S3Error) -> Result<HttpResponse, HttpError> {
    error.to_http_response().map_err(|error| HttpError::new(StdError::from(error)))
}

/// What s3s must not see.
fn refusal(parts: &request::Parts) -> Option<S3Error> {
    let has_nul = |text: &str| text.contains("%00");
    let from = parts.headers.get(s3s::header::X_AMZ_COPY_SOURCE).and_then(|value| value.to_str().ok());
    if parts.uri.path_and_query().is_some_and(|all| has_nul(all.as_str())) || from.is_some_and(has_nul) {
        return Some(s3_error!(InvalidArgument, "A key cannot have a NUL."));
    }
    if parts.method == Method::POST && parts.headers.get(CONTENT_TYPE).is_some_and(is_form) {
        return Some(s3_error!(NotImplemented, "Uploads by forms are not implemented. Use a presigned PUT."));
    }
    signing::refusal(&parts.headers, parts.uri.query())
}

/// Whether a content type is that of a form, in any case of its letters.
fn is_form(kind: &HeaderValue) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    kind.as_bytes().get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM))
}

/// Whether the body comes in chunks that announce their sizes.
fn is_chunked(parts: &request::Parts) -> bool {
    let said = parts.headers.get_all(s3s::header::X_AMZ_CONTENT_SHA256);
    said.iter().any(|value| value.as_bytes().starts_with(b"STREAMING-"))
}

/// Whether s3s could not read the XML of a request. It calls that a failure of its own and says nothing else, while ours say
/// what to do.
fn is_unread(answer: &HttpResponse) -> bool {
    let silent = |body: &[u8]| !body.windows(9).any(|window| window == b"<Message>");
    answer.status() == StatusCode::INTERNAL_SERVER_ERROR && answer.body().bytes().is_some_and(|body| silent(&body))
}

/// Gives an answer its number, and an error what else S3's errors have.
fn numbered(response: HttpResponse, number: &str, resource: &str) -> HttpResponse {
    let (mut parts, mut body) = response.into_parts();
    if let Ok(number) = HeaderValue::from_str(number) {
        parts.headers.insert(s3s::header::X_AMZ_REQUEST_ID, number);
    }
    if parts.status == StatusCode::NOT_MODIFIED {
        body = Body::empty();
    } else if parts.status == StatusCode::OK && parts.headers.contains_key(CONTENT_RANGE) {
        // s3s forgets this for HEAD.
        parts.status = StatusCode::PARTIAL_CONTENT;
    } else if parts.status.is_client_error() || parts.status.is_server_error() {
        body = completed(&mut parts, body, number, resource);
    }
    HttpResponse::from_parts(parts, body)
}

fn completed(parts: &mut response::Parts, body: Body, number: &str, resource: &str) -> Body {
    let text = body.bytes().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    let Some(text) = text.as_deref().and_then(|text| text.strip_suffix("</Error>")) else {
        return body;
    };
    let text = &without_default(text);
    let message = match text.contains("<Message>") {
        true => String::new(),
        false => format!("<Message>{}</Message>", usual_message(text)),
    };
    let region = match text.contains("<Code>AuthorizationHeaderMalformed<") {
        true => format!("<Region>{REGION}</Region>"),
        false => String::new(),
    };
    let resource = resource.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = format!("{text}{message}{region}<Resource>{resource}</Resource><RequestId>{number}</RequestId></Error>");
    parts.headers.remove(CONTENT_LENGTH);
    Body::from(text)
}

/// Takes out what s3s says of operations that nobody wrote: it promises them ("not implemented yet"), and not all will come.
fn without_default(error: &str) -> String {
    const PROMISE: &str = " is not implemented yet</Message>";
    let found = error.split_once("<Message>").and_then(|(start, rest)| Some((start, rest.split_once(PROMISE)?.1)));
    match found {
        Some((start, end)) if error.contains("<Code>NotImplemented<") => format!("{start}{end}"),
        _ => error.to_owned(),
    }
}

/// What to say where s3s says nothing but a code.
fn usual_message(error: &str) -> String {
    let code = error.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map_or("", |(code, _)| code);
    let text = match code {
        "InvalidBucketName" => return format!("The specified bucket is not valid: {BadBucketName}."),
        "KeyTooLongError" => "Your key is too long: a key has at most 1024 bytes.",
        "InvalidURI" => "The URI cannot be understood. Escape it as UTF-8.",
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your secret access key \
             and how you sign."
        }
        "MalformedXML" => "The XML you provided was not well-formed or is not what this call takes.",
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

    #[test]
    fn nothing_is_promised_that_may_never_come() {
        let of_s3s = "<Error><Code>NotImplemented</Code><Message>GetBucketWebsite is not implemented yet</Message>";
        assert_eq!(without_default(of_s3s), "<Error><Code>NotImplemented</Code>");
        let ours = "<Error><Code>NotImplemented</Code><Message>Object Lock is not implemented.</Message>";
        assert_eq!(without_default(ours), ours);
    }
}
