//! Transfers of files to and from signed URLs. No API key is sent, because a URL may lead to any server, and failures
//! name that server instead of the engine.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::failure::{Failure, Result};
use crate::transport::addresses;
use crate::transport::api_client::{ApiClient, IDLE_TIMEOUT, MAX_ERROR};
use crate::transport::http_client::{innermost_cause, read_limited};
use crate::transport::responses;

/// The idle timeout of an upload. The server may have to read all of it before it responds.
const UPLOAD_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A download in progress.
pub(crate) struct Download {
    response: reqwest::Response,
    host: String,
}

impl Download {
    /// Starts to download a URL.
    pub(crate) async fn start(api: &ApiClient, url: &str) -> Result<Download> {
        let host = addresses::host_of_url(url);
        let request = api.client_for_url(url)?.get(url);
        let response = timeout(IDLE_TIMEOUT, request.send()).await.map_err(|_| transfer_timeout(&host))?;
        let response = response.map_err(|e| transfer_broken(&host, &e))?;
        match response.status() {
            status if status.is_success() => Ok(Download { response, host }),
            status => {
                let text = read_limited(response, MAX_ERROR).await.map_err(|e| transfer_broken(&host, &e))?;
                Err(transfer_refusal(api, url, status, &text))
            }
        }
    }

    /// The next chunk of the file.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        let next = timeout(IDLE_TIMEOUT, self.response.chunk()).await.map_err(|_| transfer_timeout(&self.host))?;
        next.map_err(|e| transfer_broken(&self.host, &e))
    }
}

/// Uploads chunks to a URL as they are produced, and returns the response.
pub(crate) async fn upload_stream(
    api: &ApiClient,
    url: &str,
    pieces: mpsc::Receiver<io::Result<Bytes>>,
) -> Result<Value> {
    let (taken, last) = watch::channel(Instant::now());
    let pieces = futures::stream::unfold((pieces, taken), async |(mut pieces, taken)| {
        let piece = pieces.recv().await;
        taken.send_replace(Instant::now());
        piece.map(|piece| (piece, (pieces, taken)))
    });
    let host = addresses::host_of_url(url);
    let request = api.client_for_url(url)?.put(url).body(reqwest::Body::wrap_stream(pieces));
    let sent = async {
        let response = request.send().await?;
        let status = response.status();
        Ok((status, read_limited(response, MAX_ERROR).await?))
    };
    let sent = tokio::select! {
        sent = sent => sent,
        () = wait_until_stalled(last) => return Err(transfer_timeout(&host)),
    };
    let (status, text) = sent.map_err(|e: reqwest::Error| transfer_broken(&host, &e))?;
    match (status.is_success(), serde_json::from_slice::<Value>(&text)) {
        (true, Ok(body)) if body.is_object() => Ok(body),
        _ => Err(transfer_refusal(api, url, status, &text)),
    }
}

/// Returns when no chunk was sent for too long.
async fn wait_until_stalled(last: watch::Receiver<Instant>) {
    loop {
        let taken = *last.borrow();
        sleep_until(taken + UPLOAD_IDLE_TIMEOUT).await;
        if *last.borrow() == taken {
            return;
        }
    }
}

/// The failure for a refused transfer, with the engine's own message if the server is the engine.
fn transfer_refusal(api: &ApiClient, url: &str, status: StatusCode, text: &[u8]) -> Failure {
    let address = api.address();
    let is_engine = url.strip_prefix(address).is_some_and(|rest| rest.starts_with('/'));
    match responses::parse_response(address, status, text) {
        Err(failure) if is_engine => failure,
        _ => responses::storage_refusal(&addresses::host_of_url(url), status, text),
    }
}

fn transfer_broken(host: &str, error: &reqwest::Error) -> Failure {
    Failure::temporary(format!(
        "the connection to {host}, which stores the files, broke ({}); try again",
        innermost_cause(error)
    ))
}

fn transfer_timeout(host: &str) -> Failure {
    Failure::temporary(format!("{host}, which stores the files, does not respond; try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_upload_ends() {
        let began = Instant::now();
        let (taken, last) = watch::channel(began);
        tokio::join!(wait_until_stalled(last), async {
            tokio::time::sleep(UPLOAD_IDLE_TIMEOUT / 2).await;
            taken.send_replace(Instant::now());
        });
        assert_eq!(began.elapsed(), UPLOAD_IDLE_TIMEOUT * 3 / 2);
    }
}
