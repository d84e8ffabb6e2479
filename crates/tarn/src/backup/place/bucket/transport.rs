//! HTTP for the client of S3: that of the rest of the program, with its one implementation of TLS.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};

use crate::failure::{Failure, Result};

/// The timeout of a connection attempt, and the time in which a server must respond or send more.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// A client for all calls of a process.
#[derive(Clone, Debug)]
pub(super) struct Transport(reqwest::Client);

impl Transport {
    /// Creates a client for a server; `None` is AWS.
    pub(super) fn new(endpoint: Option<&str>) -> Result<Transport> {
        // An error means that the same provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            // A redirect would send what is signed for one server to another.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(url) = endpoint.and_then(|url| reqwest::Url::parse(url).ok()) {
            if url.scheme() == "http" {
                // Loading the system's certificates takes longer than a whole call.
                client = client.tls_certs_only([]);
            }
            if is_loopback(&url) {
                // A proxy is not used for connections to this host.
                client = client.no_proxy();
            }
        }
        client.build().map(Transport).map_err(|e| Failure::with_cause("cannot create the HTTP client", e))
    }
}

fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl HttpConnector for Transport {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let request = request.map(reqwest::Body::wrap);
        let request = reqwest::Request::try_from(request).map_err(http_error)?;
        let response = self.0.execute(request).await.map_err(http_error)?;
        let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body.map_err(http_error))))
    }
}

/// Says which failed calls may be tried again.
fn http_error(error: reqwest::Error) -> HttpError {
    let kind = if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_builder() {
        HttpErrorKind::Unknown
    } else {
        HttpErrorKind::Interrupted
    };
    HttpError::new(kind, io::Error::other(innermost(&error.without_url())))
}

/// The innermost cause of an error, which is the shortest useful message.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    match error.source() {
        Some(_) => cause.to_string(),
        None => error.to_string(),
    }
}
