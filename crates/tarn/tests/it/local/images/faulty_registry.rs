//! A registry that misbehaves on purpose: it sends wrong bytes, breaks off, or sends invalid responses.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::image_builder::{TestImage, digest};

/// The response to a request.
#[derive(Clone)]
pub(crate) struct CannedResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// Whether the connection breaks off in the middle whenever more than half of the body is left to send.
    pub(crate) is_cut: bool,
    /// Whether the response stalls in the middle until the test is over.
    pub(crate) is_held: bool,
    /// How many bytes are sent in a second, until the rest is released; all at once if absent.
    pub(crate) rate: Option<usize>,
    pub(crate) is_released: Arc<AtomicBool>,
    /// Whether the response does not identify itself as that of a registry.
    pub(crate) is_anonymous: bool,
    /// How many connections are closed without a response afterwards.
    pub(crate) then_away: usize,
    /// Additional header lines.
    pub(crate) head: Vec<String>,
    /// The only `Authorization` that is accepted, and the challenge for all others.
    pub(crate) wants: Option<(String, String)>,
}

type Responses = Arc<Mutex<HashMap<String, VecDeque<CannedResponse>>>>;

pub(crate) struct FaultyRegistry {
    pub(crate) address: String,
    responses: Responses,
    /// The requested paths, with the range and the authorization if there was one.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl FaultyRegistry {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1").await
    }

    /// Starts a registry at another loopback address, which is another site.
    pub(crate) async fn start_at(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (responses, requests) = (Responses::default(), Arc::<Mutex<Vec<String>>>::default());
        let (known, log) = (responses.clone(), requests.clone());
        let task = tokio::spawn(async move {
            let away = Arc::<AtomicUsize>::default();
            while let Ok((stream, _)) = listener.accept().await {
                if away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    log.lock().unwrap().push("away".to_owned());
                    continue;
                }
                tokio::spawn(serve(stream, known.clone(), log.clone(), away.clone()));
            }
        });
        FaultyRegistry { address, responses, requests, task }
    }

    /// Adds an image, and returns its reference.
    pub(crate) fn add(&self, name: &str, image: &TestImage) -> String {
        for blob in &image.blobs {
            self.respond(&format!("/v2/{name}/blobs/{}", digest(blob)), blob, |_| ());
        }
        for tag in ["1".to_owned(), digest(&image.manifest)] {
            self.respond(&format!("/v2/{name}/manifests/{tag}"), &image.manifest, |_| ());
        }
        format!("{}/{name}:1", self.address)
    }

    /// Sets the response for a path.
    pub(crate) fn respond(&self, path: &str, body: &[u8], how: impl FnOnce(&mut CannedResponse)) {
        self.responses.lock().unwrap().remove(path);
        self.respond_next(path, body, how);
    }

    /// Adds a response after the existing ones for the path; the last one is repeated.
    pub(crate) fn respond_next(&self, path: &str, body: &[u8], how: impl FnOnce(&mut CannedResponse)) {
        let mut response = plain_response(200, body);
        how(&mut response);
        self.responses.lock().unwrap().entry(path.to_owned()).or_default().push_back(response);
    }

    /// Requires an authorization for every path with this prefix; requests without it get the challenge.
    pub(crate) fn require_authorization(&self, beginning: &str, authorization: &str, challenge: &str) {
        for (_, responses) in self.responses.lock().unwrap().iter_mut().filter(|(path, _)| path.starts_with(beginning))
        {
            for response in responses {
                response.wants = Some((authorization.to_owned(), challenge.to_owned()));
            }
        }
    }

    /// How many requests contain this text.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|requests| requests.contains(part)).count()
    }
}

fn plain_response(status: u16, body: &[u8]) -> CannedResponse {
    CannedResponse {
        status,
        body: body.to_vec(),
        is_cut: false,
        is_held: false,
        rate: None,
        is_released: Arc::default(),
        is_anonymous: false,
        then_away: 0,
        head: Vec::new(),
        wants: None,
    }
}

impl Drop for FaultyRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    responses: Responses,
    requests: Arc<Mutex<Vec<String>>>,
    away: Arc<AtomicUsize>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut path, mut from, mut proof) = (String::new(), 0, String::new());
    loop {
        let mut line = String::new();
        (&mut stream).take(8 << 10).read_line(&mut line).await.ok()?;
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next()?.to_owned();
        } else if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            from = range.trim().trim_end_matches('-').parse().ok()?;
        } else if line.to_ascii_lowercase().starts_with("authorization: ") {
            proof = line["authorization: ".len()..].trim().to_owned();
        } else if line.trim().is_empty() {
            break;
        }
    }
    let range = if from > 0 { format!(" from {from}") } else { String::new() };
    let by = if proof.is_empty() { String::new() } else { format!(" by {proof}") };
    requests.lock().unwrap().push(format!("{path}{range}{by}"));
    let response = match responses.lock().unwrap().get_mut(&path) {
        Some(known) if known.len() > 1 => known.pop_front()?,
        Some(known) => known.front()?.clone(),
        None => plain_response(404, b""),
    };
    let response = match &response.wants {
        Some((wanted, challenge)) if *wanted != proof => {
            CannedResponse { head: vec![format!("www-authenticate: {challenge}")], ..plain_response(401, b"") }
        }
        _ => response,
    };
    away.fetch_add(response.then_away, Ordering::Relaxed);
    let (status, from) = match response.status {
        200 if from > 0 => (206, from),
        status => (status, 0),
    };
    let body = &response.body[from..];
    let mut head: String = response.head.iter().map(|line| format!("{line}\r\n")).collect();
    if !response.is_anonymous {
        head.push_str("docker-distribution-api-version: registry/2.0\r\n");
    }
    let head = format!("HTTP/1.1 {status} X\r\n{head}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.ok()?;
    let half = response.body.len() / 2;
    let sent = if (response.is_cut || response.is_held) && from < half { &body[..half - from] } else { body };
    match response.rate {
        None => stream.write_all(sent).await.ok()?,
        Some(rate) => {
            for piece in sent.chunks(rate / 10) {
                stream.write_all(piece).await.ok()?;
                stream.flush().await.ok()?;
                if !response.is_released.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
    if response.is_held {
        std::future::pending::<()>().await;
    }
    stream.flush().await.ok()?;
    stream.shutdown().await.ok()
}
