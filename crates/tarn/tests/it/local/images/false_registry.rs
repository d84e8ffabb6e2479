//! A registry that does wrong on purpose: it sends other bytes, breaks off, or answers as nobody should.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::maker::{Made, digest};

/// How something is answered.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// Whether the connection is broken off in the middle of it whenever there is more than half of it to send.
    pub(crate) is_cut: bool,
    /// Whether it waits in the middle of it until the test is over.
    pub(crate) is_held: bool,
    /// So many connections are closed without a word after it.
    pub(crate) then_away: usize,
    /// Lines of its head.
    pub(crate) head: Vec<String>,
    /// The only `Authorization` it is given for, and what all others are told to do.
    pub(crate) wants: Option<(String, String)>,
}

type Answers = Arc<Mutex<HashMap<String, VecDeque<Answer>>>>;

pub(crate) struct FalseRegistry {
    pub(crate) address: String,
    answers: Answers,
    /// What was asked for, with the range and the proof of who asks if there was one.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl FalseRegistry {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (answers, asked) = (Answers::default(), Arc::<Mutex<Vec<String>>>::default());
        let (known, log) = (answers.clone(), asked.clone());
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
        FalseRegistry { address, answers, asked, task }
    }

    /// Has an image, and returns its reference.
    pub(crate) fn add(&self, name: &str, image: &Made) -> String {
        for blob in &image.blobs {
            self.answer(&format!("/v2/{name}/blobs/{}", digest(blob)), blob, |_| ());
        }
        for tag in ["1".to_owned(), digest(&image.manifest)] {
            self.answer(&format!("/v2/{name}/manifests/{tag}"), &image.manifest, |_| ());
        }
        format!("{}/{name}:1", self.address)
    }

    /// Answers in a certain way.
    pub(crate) fn answer(&self, path: &str, body: &[u8], how: impl FnOnce(&mut Answer)) {
        self.answers.lock().unwrap().remove(path);
        self.then(path, body, how);
    }

    /// Answers in another way after the answers that are there for it; the last one stays.
    pub(crate) fn then(&self, path: &str, body: &[u8], how: impl FnOnce(&mut Answer)) {
        let mut answer = plain(200, body);
        how(&mut answer);
        self.answers.lock().unwrap().entry(path.to_owned()).or_default().push_back(answer);
    }

    /// Everything that begins so is given to whoever shows this, and all others are told to do something.
    pub(crate) fn want(&self, beginning: &str, authorization: &str, challenge: &str) {
        for (_, answers) in self.answers.lock().unwrap().iter_mut().filter(|(path, _)| path.starts_with(beginning)) {
            for answer in answers {
                answer.wants = Some((authorization.to_owned(), challenge.to_owned()));
            }
        }
    }

    /// How often something was asked for whose name has this in it.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.contains(part)).count()
    }
}

fn plain(status: u16, body: &[u8]) -> Answer {
    Answer { status, body: body.to_vec(), is_cut: false, is_held: false, then_away: 0, head: Vec::new(), wants: None }
}

impl Drop for FalseRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    answers: Answers,
    asked: Arc<Mutex<Vec<String>>>,
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
    asked.lock().unwrap().push(format!("{path}{range}{by}"));
    let answer = match answers.lock().unwrap().get_mut(&path) {
        Some(known) if known.len() > 1 => known.pop_front()?,
        Some(known) => known.front()?.clone(),
        None => plain(404, b""),
    };
    let answer = match &answer.wants {
        Some((wanted, challenge)) if *wanted != proof => {
            Answer { head: vec![format!("www-authenticate: {challenge}")], ..plain(401, b"") }
        }
        _ => answer,
    };
    away.fetch_add(answer.then_away, Ordering::Relaxed);
    let (status, from) = match answer.status {
        200 if from > 0 => (206, from),
        status => (status, 0),
    };
    let body = &answer.body[from..];
    let head: String = answer.head.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("HTTP/1.1 {status} X\r\n{head}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.ok()?;
    let half = answer.body.len() / 2;
    let sent = if (answer.is_cut || answer.is_held) && from < half { &body[..half - from] } else { body };
    stream.write_all(sent).await.ok()?;
    if answer.is_held {
        std::future::pending::<()>().await;
    }
    stream.flush().await.ok()?;
    stream.shutdown().await.ok()
}
