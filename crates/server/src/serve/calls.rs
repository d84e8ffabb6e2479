//! The calls of one connection: those that HTTP forbids are refused before the router sees them.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tower::Service;

use super::client_address::{ClientAddress, TrustedProxies};
use super::connections::ConnectionState;
use super::forwarded::{CallPermit, ForwardedCalls};
use super::framing::FramingFacts;
use crate::http::output::failure::Failure;

/// A response of known length up to this size is sent at once, so that its call ends with it.
const SMALL_BODY: u64 = 64 << 10;

/// The connection of a call, as an extension of it.
#[derive(Clone)]
pub(crate) struct ConnectionOfCall(pub(crate) Arc<ConnectionState>);

/// The calls of one connection.
pub(super) struct Calls {
    pub(super) router: Router,
    pub(super) state: Arc<ConnectionState>,
    pub(super) facts: Arc<FramingFacts>,
    pub(super) address: Option<IpAddr>,
    /// If the connection comes from a trusted proxy: all of them, and the calls of their clients.
    pub(super) proxies: Option<(Arc<TrustedProxies>, Arc<ForwardedCalls>)>,
    pub(super) count: AtomicU32,
}

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let number = self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if !self.state.begin_call() {
            // The task of this connection is about to end.
            return Box::pin(std::future::pending());
        }
        let mut running = RunningCall { connection: self.state.clone(), permit: None };
        if let Some(refused) = refuse_malformed(&request, self.facts.is_ambiguous(number)) {
            return Box::pin(std::future::ready(Ok(running.answer(refused))));
        }
        let address = match (self.address, &self.proxies) {
            (Some(proxy), Some((proxies, _))) => Some(proxies.client_of(proxy, request.headers())),
            (address, _) => address,
        };
        // A proxy that does not name its clients has no limit: it would be one for all of them.
        if let (Some(client), Some((proxies, forwarded))) = (address, &self.proxies)
            && !proxies.contain(client)
        {
            running.permit = forwarded.admit(client);
            if running.permit.is_none() {
                let mut refused = forwarded.refusal();
                if self.facts.is_incomplete(number) {
                    close_after(&mut refused);
                }
                return Box::pin(std::future::ready(Ok(running.answer(refused))));
            }
        }
        if let Some(address) = address {
            request.extensions_mut().insert(ClientAddress(address));
        }
        request.extensions_mut().insert(ConnectionOfCall(self.state.clone()));
        let (handled, facts) = (self.router.clone().call(request), self.facts.clone());
        Box::pin(async move {
            let Ok(mut response) = handled.await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                facts.mark_upgraded();
                return Ok(response);
            }
            // What is left of the body must not be read as the next call, and the client must know that.
            if facts.is_incomplete(number) || running.connection.closes_after_call() {
                close_after(&mut response);
            }
            Ok(running.answer(response))
        })
    }
}

/// Returns the refusal of a call that two programs could understand differently.
fn refuse_malformed<B>(request: &Request<B>, is_ambiguous: bool) -> Option<Response> {
    if is_ambiguous {
        let message = "the call has both Content-Length and Transfer-Encoding; send one of them";
        return Some(refuse(&Failure::invalid("ambiguous_length", message)));
    }
    let hosts = request.headers().get_all(header::HOST).iter().take(2).count();
    // HTTP/1.0 does not know the header.
    if hosts == 1 || hosts == 0 && request.version() == Version::HTTP_10 {
        return None;
    }
    let message = "HTTP/1.1 needs exactly one Host header: the address of this engine";
    Some(refuse(&Failure::invalid("host_missing", message)))
}

/// Returns a response that ends the connection.
fn refuse(failure: &Failure) -> Response {
    let Failure { message, code, status, .. } = failure;
    let body = serde_json::json!({ "message": message, "detail": message, "code": code }).to_string();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = *status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    close_after(&mut response);
    response
}

fn close_after(response: &mut Response) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// A call that runs until this is dropped.
struct RunningCall {
    connection: Arc<ConnectionState>,
    /// For a client behind a trusted proxy.
    permit: Option<CallPermit>,
}

impl RunningCall {
    /// Lets the call run until its response has been sent.
    fn answer(self, response: Response) -> Response {
        match response.body().size_hint().exact() {
            Some(..=SMALL_BODY) => response,
            _ => response.map(|body| Body::new(RunningBody { body, _call: self })),
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.connection.end_call();
    }
}

/// The body of a response, which is a part of its call.
struct RunningBody {
    body: Body,
    _call: RunningCall,
}

impl HttpBody for RunningBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(ctx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
