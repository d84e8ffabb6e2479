//! A registry that does wrong on purpose: it sends other bytes, breaks off, or answers as nobody should.

use std::collections::HashMap;
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
}

pub(crate) struct FalseRegistry {
    pub(crate) address: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    /// What was asked for, with the range if there was one.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl FalseRegistry {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (answers, asked) = (Arc::<Mutex<HashMap<String, Answer>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (known, log) = (answers.clone(), asked.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, known.clone(), log.clone()));
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
        let mut answer = Answer { status: 200, body: body.to_vec(), is_cut: false, is_held: false };
        how(&mut answer);
        self.answers.lock().unwrap().insert(path.to_owned(), answer);
    }
}

impl Drop for FalseRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut path, mut from) = (String::new(), 0);
    loop {
        let mut line = String::new();
        (&mut stream).take(8 << 10).read_line(&mut line).await.ok()?;
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next()?.to_owned();
        } else if let Some(range) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            from = range.trim().trim_end_matches('-').parse().ok()?;
        } else if line.trim().is_empty() {
            break;
        }
    }
    asked.lock().unwrap().push(if from > 0 { format!("{path} from {from}") } else { path.clone() });
    let known = answers.lock().unwrap().get(&path).cloned();
    let answer = known.unwrap_or(Answer { status: 404, body: Vec::new(), is_cut: false, is_held: false });
    let status = if from > 0 { 206 } else { answer.status };
    let body = &answer.body[from..];
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
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
