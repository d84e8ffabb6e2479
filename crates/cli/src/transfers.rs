//! Files to and from signed addresses. They get no key, because an address may be anybody's, and whoever is there is not blamed on
//! the engine.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::connections::{read, reason};
use crate::engine::{Engine, MAX_ERROR, SILENCE};
use crate::failure::{Failure, Result};
use crate::{addresses, answers};

/// How long an upload may stand still. Whoever takes it may have to look at all of it before he answers.
const STALLED: Duration = Duration::from_secs(600);

/// A file on its way.
pub(crate) struct Download {
    answer: reqwest::Response,
    host: String,
}

impl Download {
    /// Begins to fetch what is at an address.
    pub(crate) async fn begin(engine: &Engine, url: &str) -> Result<Download> {
        let host = addresses::host_of(url);
        let request = engine.client_of(url)?.get(url);
        let answer = timeout(SILENCE, request.send()).await.map_err(|_| silent(&host))?;
        let answer = answer.map_err(|e| broken(&host, &e))?;
        match answer.status() {
            status if status.is_success() => Ok(Download { answer, host }),
            status => {
                let text = read(answer, MAX_ERROR).await.map_err(|e| broken(&host, &e))?;
                Err(refused(engine, url, status, &text))
            }
        }
    }

    /// The next piece of it.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        let next = timeout(SILENCE, self.answer.chunk()).await.map_err(|_| silent(&self.host))?;
        next.map_err(|e| broken(&self.host, &e))
    }
}

/// Sends something to an address as it is made; what is said to it.
pub(crate) async fn upload(engine: &Engine, url: &str, pieces: mpsc::Receiver<io::Result<Bytes>>) -> Result<Value> {
    let (taken, last) = watch::channel(Instant::now());
    let pieces = futures::stream::unfold((pieces, taken), async |(mut pieces, taken)| {
        let piece = pieces.recv().await;
        taken.send_replace(Instant::now());
        piece.map(|piece| (piece, (pieces, taken)))
    });
    let host = addresses::host_of(url);
    let request = engine.client_of(url)?.put(url).body(reqwest::Body::wrap_stream(pieces));
    let sent = async {
        let answer = request.send().await?;
        let status = answer.status();
        Ok((status, read(answer, MAX_ERROR).await?))
    };
    let sent = tokio::select! {
        sent = sent => sent,
        () = stalled(last) => return Err(silent(&host)),
    };
    let (status, text) = sent.map_err(|e: reqwest::Error| broken(&host, &e))?;
    match (status.is_success(), serde_json::from_slice::<Value>(&text)) {
        (true, Ok(body)) if body.is_object() => Ok(body),
        _ => Err(refused(engine, url, status, &text)),
    }
}

/// Returns when nothing was taken for too long.
async fn stalled(last: watch::Receiver<Instant>) {
    loop {
        let taken = *last.borrow();
        sleep_until(taken + STALLED).await;
        if *last.borrow() == taken {
            return;
        }
    }
}

/// Why something is not given or taken: in the engine's own words, if it is the engine.
fn refused(engine: &Engine, url: &str, status: StatusCode, text: &[u8]) -> Failure {
    let address = engine.address();
    let is_engine = url.strip_prefix(address).is_some_and(|rest| rest.starts_with('/'));
    match answers::understand(address, status, text) {
        Err(failure) if is_engine => failure,
        _ => answers::withheld(&addresses::host_of(url), status, text),
    }
}

fn broken(host: &str, error: &reqwest::Error) -> Failure {
    Failure::passing(format!("the line to {host}, where the files are, broke ({}); try again", reason(error)))
}

fn silent(host: &str) -> Failure {
    Failure::passing(format!("{host}, where the files are, does not answer; try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_stands_still_is_given_up() {
        let began = Instant::now();
        let (taken, last) = watch::channel(began);
        tokio::join!(stalled(last), async {
            tokio::time::sleep(STALLED / 2).await;
            taken.send_replace(Instant::now());
        });
        assert_eq!(began.elapsed(), STALLED * 3 / 2);
    }
}
