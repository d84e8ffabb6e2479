//! The client of the API: one call at a time, and a clear failure for everything that can go wrong.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::settings::{Key, Settings};
use crate::terminal::interrupts::Interrupts;
use crate::terminal::output;
use crate::terminal::progress::Progress;
use crate::transport::http_client::{build_client, innermost_cause, is_https, read_limited};
use crate::transport::responses;

/// The timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum size of a response. Logs and files are not read this way.
const MAX_RESPONSE: usize = 16 << 20;

/// The maximum number of pages of a list.
const MAX_PAGES: usize = 20;

/// The time after which a spinner is shown.
const SPINNER_DELAY: Duration = Duration::from_secs(1);

/// The maximum size of an error response.
pub(crate) const MAX_ERROR: usize = 1 << 20;

/// The idle timeout of a streamed response. The engine holds log calls for less than that.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The headers of a log response: the size of the log, and whether it is complete.
pub(crate) const LOG_SIZE: &str = "x-log-size";
pub(crate) const LOG_ENDED: &str = "x-log-ended";

/// The client of one engine. Clones share the connections.
#[derive(Clone)]
pub(crate) struct ApiClient {
    client: reqwest::Client,
    address: String,
    key: Option<Key>,
    /// Ends calls after Ctrl-C; `None` for calls that must complete, such as cleanup.
    interrupts: Option<Interrupts>,
    /// Whether no spinner is shown.
    is_silent: bool,
}

impl ApiClient {
    /// A client that has not called yet.
    pub(crate) fn new(settings: Settings, interrupts: Interrupts, is_silent: bool) -> Result<ApiClient> {
        let client = build_client(&settings.engine)?;
        Ok(ApiClient { client, address: settings.engine, key: settings.key, interrupts: Some(interrupts), is_silent })
    }

    /// A client whose calls complete after Ctrl-C as well.
    pub(crate) fn uninterrupted(&self) -> ApiClient {
        ApiClient { interrupts: None, ..self.clone() }
    }

    /// A client without a spinner, for callers that show progress themselves.
    pub(crate) fn without_progress(&self) -> ApiClient {
        ApiClient { is_silent: true, ..self.clone() }
    }

    /// The URL of the engine.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Calls with GET.
    pub(crate) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value> {
        self.call(Method::GET, path, query, None::<&()>).await
    }

    /// Gets all pages of a list, in the body of the first one.
    pub(crate) async fn get_all_pages(&self, path: &str, query: &[(&str, String)], name: &str) -> Result<Value> {
        let mut body = self.get(path, query).await?;
        for _ in 1..MAX_PAGES {
            let Some(cursor) = body["next_cursor"].as_str().map(str::to_owned) else { break };
            let mut query = query.to_vec();
            query.push(("cursor", cursor));
            let mut page = self.get(path, &query).await?;
            if let (Some(all), Some(more)) = (body[name].as_array_mut(), page[name].as_array_mut()) {
                all.append(more);
            }
            body["next_cursor"] = page["next_cursor"].take();
        }
        if body["next_cursor"].is_string() {
            output::print_note("The list is longer; only its first part is shown.");
        }
        Ok(body)
    }

    /// Calls with a JSON body.
    pub(crate) async fn send_json(&self, method: Method, path: &str, body: &impl Serialize) -> Result<Value> {
        self.call(method, path, &[], Some(body)).await
    }

    /// Calls without a body.
    pub(crate) async fn send_empty(&self, method: Method, path: &str) -> Result<Value> {
        self.call(method, path, &[], None::<&()>).await
    }

    /// Opens a log, which is read in chunks.
    pub(crate) async fn open_log(&self, path: &str, query: &[(&str, String)]) -> Result<reqwest::Response> {
        let request = self.client.get(format!("{}{path}", self.address)).query(query);
        let sent = request.header(header::AUTHORIZATION, self.authorization_header()?).send();
        let response = tokio::time::timeout(IDLE_TIMEOUT, sent).await.map_err(|_| self.timeout_failure())?;
        let response = response.map_err(|e| self.connection_failure(&e))?;
        let is_log = [LOG_SIZE, LOG_ENDED].iter().any(|name| response.headers().contains_key(*name));
        match response.status() {
            status if status.is_success() && is_log => Ok(response),
            status => {
                let text = read_limited(response, MAX_ERROR).await.map_err(|e| self.connection_failure(&e))?;
                Err(self
                    .parse_response(status, &text)
                    .err()
                    .unwrap_or_else(|| responses::unexpected_response(&self.address, status, &text)))
            }
        }
    }

    /// The next chunk of a log.
    pub(crate) async fn next_chunk(&self, response: &mut reqwest::Response) -> Result<Option<Bytes>> {
        let next = tokio::time::timeout(IDLE_TIMEOUT, response.chunk()).await.map_err(|_| self.timeout_failure())?;
        next.map_err(|e| self.connection_failure(&e))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&impl Serialize>,
    ) -> Result<Value> {
        let is_question = method == Method::GET;
        let mut request = self.client.request(method, format!("{}{path}", self.address)).timeout(CALL_TIMEOUT);
        request = request.header(header::AUTHORIZATION, self.authorization_header()?).query(query);
        if let Some(body) = body {
            request = request.json(body);
        }
        let called = async {
            let response = request.send().await?;
            let status = response.status();
            let limit = if status.is_success() { MAX_RESPONSE } else { MAX_ERROR };
            Ok((status, read_limited(response, limit).await?))
        };
        let called = self.unless_interrupted(self.with_progress(called), is_question).await?;
        let (status, text) = called.map_err(|e: reqwest::Error| self.connection_failure(&e))?;
        self.parse_response(status, &text)
    }

    /// Parses a response. The failure for a refused API key names the origin of the key.
    fn parse_response(&self, status: StatusCode, text: &[u8]) -> Result<Value> {
        responses::parse_response(&self.address, status, text).map_err(|failure| match (&self.key, status) {
            (Some(key), StatusCode::UNAUTHORIZED) if failure.body().is_some() => failure
                .with_message(format!("{} does not accept the API key {}; {}", self.address, key.origin, key.remedy)),
            _ => failure,
        })
    }

    /// The HTTP client for a signed URL, whose scheme may differ from the engine's.
    pub(crate) fn client_for_url(&self, url: &str) -> Result<reqwest::Client> {
        if is_https(url) == is_https(&self.address) { Ok(self.client.clone()) } else { build_client(url) }
    }

    async fn unless_interrupted<T>(&self, work: impl Future<Output = T>, is_question: bool) -> Result<T> {
        let Some(interrupts) = &self.interrupts else { return Ok(work.await) };
        tokio::select! {
            biased;
            () = interrupts.pressed() => Err(Failure::interrupted(if is_question { "interrupted" } else { "interrupted; the engine may have accepted the request, see `tarn request list`" })),
            done = work => Ok(done),
        }
    }

    /// Shows a spinner when the work takes long.
    async fn with_progress<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        match tokio::time::timeout(SPINNER_DELAY, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                let progress = if self.is_silent { Progress::hidden() } else { Progress::spinner() };
                progress.set_message(&format!("Waiting for a response of {}", self.address));
                work.await
            }
        }
    }

    fn authorization_header(&self) -> Result<HeaderValue> {
        let key = self.key.as_ref().ok_or_else(|| {
            let address = &self.address;
            Failure::new(format!(
                "there is no API key for {address}; set TENSORPOOL_KEY, or save a key with `tarn login`"
            ))
        })?;
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.secret))
            .map_err(|_| Failure::new("the API key contains invalid characters; save it again with `tarn login`"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The failure of a connection.
    fn connection_failure(&self, error: &reqwest::Error) -> Failure {
        if error.is_timeout() {
            return self.timeout_failure();
        }
        let address = &self.address;
        let reason = innermost_cause(error);
        if reason.contains("certificate") {
            return Failure::new(format!(
                "{address} has a certificate that is not trusted ({reason}); if it is yours, set SSL_CERT_FILE to it"
            ));
        }
        let hint = "check that it is running (`tarn serve`) and that TENSORPOOL_ENGINE is right";
        Failure::temporary(format!("cannot reach {address} ({reason}); {hint}"))
    }

    fn timeout_failure(&self) -> Failure {
        Failure::temporary(format!("{} does not respond; try again, or set another TENSORPOOL_ENGINE", self.address))
    }
}
