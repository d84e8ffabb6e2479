//! The HTTP service in front of s3s. It refuses requests that s3s would accept wrongly, and gives every response a
//! request id.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE, EXPECT};
use http::{HeaderValue, Method, Version, request};
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse, S3Error, StdError, s3_error};

use crate::Objects;
use crate::s3::ingress::browsers::{ScriptCall, answer_preflight};
use crate::s3::ingress::chunks::SplitChunks;
use crate::s3::ingress::domains::Domains;
use crate::s3::ingress::drain::DrainedBody;
use crate::s3::ingress::open_calls::{Call, key_ended, watch_response};
use crate::s3::ingress::responses::{add_request_id, is_unparsed_xml, unquote_etag, why_key_refused};
use crate::s3::ingress::signing::ChunkKeys;
use crate::s3::ingress::{access, signing};
use crate::s3::service::MAX_XML_BYTES;
use crate::s3::shared::body;
use crate::s3::shared::errors::unknown_key;

/// The address of the client of a call, as an extension that the server adds to the request.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

/// Is told about every call whose key or signature is refused: why, and the address of the client if it is known.
pub type OnRefusal = Arc<dyn Fn(&'static str, Option<IpAddr>) + Send + Sync>;

/// S3 as a service for any HTTP server. Clones share everything.
#[derive(Clone)]
pub struct Service {
    inner: S3Service,
    objects: Objects,
    domains: Arc<Domains>,
    on_refusal: OnRefusal,
}

impl Service {
    pub(in crate::s3) fn new(inner: S3Service, objects: Objects, domains: Arc<Domains>, on_refusal: OnRefusal) -> Self {
        Service { inner, objects, domains, on_refusal }
    }

    /// Passes a request to s3s, unless its key stops working meanwhile.
    async fn call_s3s(&self, request: http::Request<Body>, call: &Arc<Call>) -> Result<HttpResponse, HttpError> {
        let response = access::CALL.scope(call.clone(), self.inner.call(request));
        let response = tokio::select! {
            biased;
            response = response => response?,
            () = key_ended(self.objects.clone(), call.clone()) => error_response(unknown_key())?,
        };
        Ok(watch_response(response, self.objects.clone(), call.clone()))
    }
}

/// Returns the body as s3s reads it: without large chunks, and with signatures for the region that s3s knows.
fn encoded_body<B>(parts: &request::Parts, body: DrainedBody<B>, keys: Option<ChunkKeys>) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    match (is_chunked(parts), keys) {
        (true, Some(keys)) => Body::http_body_unsync(signing::ResignedChunks::new(SplitChunks::new(body), keys)),
        (true, None) => Body::http_body_unsync(SplitChunks::new(body)),
        (false, _) if http_body::Body::is_end_stream(&body) => Body::empty(),
        (false, _) => Body::http_body_unsync(body),
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
        let address = request.extensions().get::<ClientAddress>().map(|client| client.0);
        let call = Arc::new(Call::new(format!("{:016X}", self.objects.ids().bits()), address));
        let resource = request.uri().path().to_owned();
        let expects_continue = request.headers().contains_key(EXPECT);
        let (mut parts, body) = request.into_parts();
        signing::move_headers_from_query(&mut parts);
        let (size, must_close) = (body.size_hint().lower(), expects_continue && parts.version < Version::HTTP_2);
        // A client that expects 100-continue never gets it for an empty body, and botocore then misreads the following
        // responses.
        let has_empty_body = body.is_end_stream();
        let refusal = find_refusal(&parts);
        let is_attributes = parts.uri.query().is_some_and(|query| signing::has_name(query, "attributes"));
        let body = DrainedBody::new(body, expects_continue);
        let service = self.clone();
        Box::pin(async move {
            let objects = &service.objects;
            let script = ScriptCall::of(&parts, &service.domains);
            let response = match refusal {
                Some(refusal) => error_response(refusal)?,
                None if parts.method == Method::OPTIONS => {
                    answer_preflight(objects, &service.domains, &parts).await.or_else(error_response)?
                }
                None => match signing::resign(objects, &mut parts).await {
                    Ok(chunk_keys) => {
                        let body = encoded_body(&parts, body, chunk_keys);
                        service.call_s3s(http::Request::from_parts(parts, body), &call).await?
                    }
                    Err(error) => error_response(error.into())?,
                },
            };
            let response = if size == 0 || !is_unparsed_xml(&response) {
                response
            } else if size > MAX_XML_BYTES as u64 {
                error_response(s3_error!(MaxMessageLengthExceeded))?
            } else {
                error_response(body::sha256_mismatch())?
            };
            if let Some(reason) = why_key_refused(&response) {
                (service.on_refusal)(reason, call.address);
            }
            let response = if is_attributes { unquote_etag(response) } else { response };
            let mut response = add_request_id(response, &call.id, &resource);
            if let (Some(script), Some(caller)) = (script, call.caller.get()) {
                script.admit(objects, caller.org(), &mut response).await;
            }
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
    // First, because a signature that was changed in any way is a wrong one.
    if let Some(refusal) = signing::signing_refusal(parts) {
        return Some(refusal);
    }
    let has_nul = |text: &str| text.contains("%00");
    let from = parts.headers.get(s3s::header::X_AMZ_COPY_SOURCE).and_then(|value| value.to_str().ok());
    if parts.uri.path_and_query().is_some_and(|all| has_nul(all.as_str())) || from.is_some_and(has_nul) {
        return Some(s3_error!(InvalidArgument, "A key cannot contain NUL."));
    }
    if parts.method == Method::POST && parts.headers.get(CONTENT_TYPE).is_some_and(is_form) {
        return Some(s3_error!(NotImplemented, "Uploads by forms are not implemented. Use a presigned PUT."));
    }
    None
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
