//! The engine at the other end: one call at a time, and for everything that can go wrong one clear line.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use crate::connections::{client_for, is_encrypted, read, reason};
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::settings::{Key, Settings};
use crate::waits::Progress;
use crate::{answers, output};

/// How long an answer may take to come.
const ANSWERING: Duration = Duration::from_secs(60);

/// How much of an answer is read. Logs and files do not come this way.
const MAX_ANSWER: usize = 16 << 20;

/// How many pages of a list are asked for.
const MAX_PAGES: usize = 20;

/// After how long it is told what is waited for.
const UNTOLD: Duration = Duration::from_secs(1);

/// How much of an error is read.
pub(crate) const MAX_ERROR: usize = 1 << 20;

/// How long nothing may come of something that is read piece by piece. An engine may be asked to wait for less than that.
pub(crate) const SILENCE: Duration = Duration::from_secs(90);

/// The headers by which a log is known: how long it is, and whether that is all.
pub(crate) const LOG_SIZE: &str = "x-log-size";
pub(crate) const LOG_ENDED: &str = "x-log-ended";

/// An engine.
#[derive(Clone)]
pub(crate) struct Engine {
    client: reqwest::Client,
    address: String,
    key: Option<Key>,
    /// Who calls does not have to wait for the answer, unless there is something to be ended properly.
    interrupts: Option<Interrupts>,
    /// Whether nobody wants to know what is waited for, or somebody else tells it.
    is_silent: bool,
}

impl Engine {
    /// An engine that has not been spoken to yet.
    pub(crate) fn new(settings: Settings, interrupts: Interrupts, is_silent: bool) -> Result<Engine> {
        let client = client_for(&settings.engine)?;
        Ok(Engine { client, address: settings.engine, key: settings.key, interrupts: Some(interrupts), is_silent })
    }

    /// The same engine for what must be done although somebody has pressed Ctrl-C.
    pub(crate) fn uninterrupted(&self) -> Engine {
        Engine { interrupts: None, ..self.clone() }
    }

    /// The same engine for who tells by himself what is waited for.
    pub(crate) fn silent(&self) -> Engine {
        Engine { is_silent: true, ..self.clone() }
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Asks for something.
    pub(crate) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value> {
        self.call(Method::GET, path, query, None::<&()>).await
    }

    /// Asks for a list, which may come in pages; all of it in the body of the first one.
    pub(crate) async fn list(&self, path: &str, query: &[(&str, String)], name: &str) -> Result<Value> {
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
            output::tell("There is more than this.");
        }
        Ok(body)
    }

    /// Sends something.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &impl Serialize) -> Result<Value> {
        self.call(method, path, &[], Some(body)).await
    }

    /// Does something that needs no words.
    pub(crate) async fn act(&self, method: Method, path: &str) -> Result<Value> {
        self.call(method, path, &[], None::<&()>).await
    }

    /// Asks for a log, which is read piece by piece.
    pub(crate) async fn open_log(&self, path: &str, query: &[(&str, String)]) -> Result<reqwest::Response> {
        let request = self.client.get(format!("{}{path}", self.address)).query(query);
        let sent = request.header(header::AUTHORIZATION, self.authorization()?).send();
        let answer = tokio::time::timeout(SILENCE, sent).await.map_err(|_| self.unanswered())?;
        let answer = answer.map_err(|e| self.unreachable(&e))?;
        let is_log = [LOG_SIZE, LOG_ENDED].iter().any(|name| answer.headers().contains_key(*name));
        match answer.status() {
            status if status.is_success() && is_log => Ok(answer),
            status => {
                let text = read(answer, MAX_ERROR).await.map_err(|e| self.unreachable(&e))?;
                Err(self
                    .understand(status, &text)
                    .err()
                    .unwrap_or_else(|| answers::strange(&self.address, status, &text)))
            }
        }
    }

    /// The next piece of it.
    pub(crate) async fn next(&self, answer: &mut reqwest::Response) -> Result<Option<Bytes>> {
        let next = tokio::time::timeout(SILENCE, answer.chunk()).await.map_err(|_| self.unanswered())?;
        next.map_err(|e| self.unreachable(&e))
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&impl Serialize>,
    ) -> Result<Value> {
        let is_question = method == Method::GET;
        let mut request = self.client.request(method, format!("{}{path}", self.address)).timeout(ANSWERING);
        request = request.header(header::AUTHORIZATION, self.authorization()?).query(query);
        if let Some(body) = body {
            request = request.json(body);
        }
        let called = async {
            let answer = request.send().await?;
            let status = answer.status();
            let limit = if status.is_success() { MAX_ANSWER } else { MAX_ERROR };
            Ok((status, read(answer, limit).await?))
        };
        let called = self.unless_interrupted(self.shown(called), is_question).await?;
        let (status, text) = called.map_err(|e: reqwest::Error| self.unreachable(&e))?;
        self.understand(status, &text)
    }

    /// What an answer means. A key that is not known is somewhere, and that is said.
    fn understand(&self, status: StatusCode, text: &[u8]) -> Result<Value> {
        answers::understand(&self.address, status, text).map_err(|failure| match (&self.key, status) {
            (Some(key), StatusCode::UNAUTHORIZED) if failure.body().is_some() => {
                failure.saying(format!("{} does not know the API key {}; {}", self.address, key.origin, key.remedy))
            }
            _ => failure,
        })
    }

    /// Who speaks to a signed address, which may be of another kind than the engine's.
    pub(crate) fn client_of(&self, url: &str) -> Result<reqwest::Client> {
        if is_encrypted(url) == is_encrypted(&self.address) { Ok(self.client.clone()) } else { client_for(url) }
    }

    async fn unless_interrupted<T>(&self, work: impl Future<Output = T>, is_question: bool) -> Result<T> {
        let Some(interrupts) = &self.interrupts else { return Ok(work.await) };
        tokio::select! {
            biased;
            () = interrupts.pressed() => Err(Failure::interrupted(match is_question {
                true => "interrupted",
                false => "interrupted; it may have been accepted all the same: see `tarn request list`",
            })),
            done = work => Ok(done),
        }
    }

    /// Tells what is waited for when it takes long.
    async fn shown<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        match tokio::time::timeout(UNTOLD, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                let progress = if self.is_silent { Progress::hidden() } else { Progress::shown() };
                progress.tell(&format!("Waits for an answer of {}", self.address));
                work.await
            }
        }
    }

    fn authorization(&self) -> Result<HeaderValue> {
        let key = self.key.as_ref().ok_or_else(|| {
            let address = &self.address;
            Failure::new(format!(
                "there is no API key for {address}: set TENSORPOOL_KEY, or give it once with `tarn login`"
            ))
        })?;
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.secret))
            .map_err(|_| Failure::new("the API key has characters that no key has; give it again with `tarn login`"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Why the line broke.
    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        if error.is_timeout() {
            return self.unanswered();
        }
        let address = &self.address;
        let reason = reason(error);
        if reason.contains("certificate") {
            return Failure::new(format!(
                "{address} has a certificate that is not trusted here ({reason}); if it is your own, set SSL_CERT_FILE to its file"
            ));
        }
        let hint = "is it running (`tarn serve`), and is TENSORPOOL_ENGINE right?";
        Failure::passing(format!("{address} cannot be reached ({reason}); {hint}"))
    }

    fn unanswered(&self) -> Failure {
        Failure::passing(format!("{} does not answer; try again, or set another TENSORPOOL_ENGINE", self.address))
    }
}
