//! One signed request, on a connection that is kept.

use bytes::Bytes;
use hmac::{Hmac, Mac};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;

const TRIES: usize = 3;
/// How much of an error's body is shown.
const SHOWN: usize = 300;
const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";

/// A bucket of a server, and the keys to it.
#[derive(Clone)]
pub struct Target {
    endpoint: String,
    pub bucket: String,
    region: String,
    access_key: String,
    secret_key: String,
}

/// A request before it is signed. `query` is as it is signed: sorted, and encoded where that is needed.
pub struct Call {
    pub method: &'static str,
    pub path: String,
    pub query: String,
    pub body: Bytes,
}

impl Target {
    /// The keys come from the environment, where a list of processes does not show them.
    pub fn new(endpoint: &str, bucket: &str, region: &str) -> Result<Self, String> {
        let key = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
        Ok(Self {
            endpoint: endpoint.into(),
            bucket: bucket.into(),
            region: region.into(),
            access_key: key("AWS_ACCESS_KEY_ID")?,
            secret_key: key("AWS_SECRET_ACCESS_KEY")?,
        })
    }

    /// A call for the bucket itself.
    pub async fn whole(&self, method: &'static str) -> Result<String, String> {
        let call = Call { method, path: format!("/{}", self.bucket), query: String::new(), body: Bytes::new() };
        Client::new(self.clone()).await?.send(&call, |_| ()).await?;
        Ok("{}".into())
    }

    fn sign(&self, call: &Call) -> Request<Full<Bytes>> {
        let now = chrono::Utc::now();
        let (time, day) = (now.format("%Y%m%dT%H%M%SZ").to_string(), now.format("%Y%m%d").to_string());
        let payload = match call.body.is_empty() {
            true => hex::encode(Sha256::digest(&call.body)),
            false => "UNSIGNED-PAYLOAD".into(),
        };
        let Call { method, path, query, .. } = call;
        let headers = format!("host:{}\nx-amz-content-sha256:{payload}\nx-amz-date:{time}\n", self.endpoint);
        let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{SIGNED}\n{payload}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
        let mut key = format!("AWS4{}", self.secret_key).into_bytes();
        for part in [day.as_str(), self.region.as_str(), "s3", "aws4_request"] {
            key = authenticate(&key, part);
        }
        let signature = hex::encode(authenticate(&key, &text));
        let credential = format!("{}/{scope}", self.access_key);
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={SIGNED}, Signature={signature}");
        Request::builder()
            .method(*method)
            .uri(if query.is_empty() { path.clone() } else { format!("{path}?{query}") })
            .header("host", &self.endpoint)
            .header("x-amz-date", time)
            .header("x-amz-content-sha256", payload)
            .header("content-length", call.body.len())
            .header("authorization", authorization)
            .body(Full::new(call.body.clone()))
            .expect("the parts of the request are well formed")
    }
}

/// A connection to a target.
pub struct Client {
    target: Target,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub async fn new(target: Target) -> Result<Self, String> {
        let sender = connect(&target.endpoint).await?;
        Ok(Self { target, sender })
    }

    /// Sends the call and gives the pieces of a success to `piece`. A connection that the server has closed is made anew.
    pub async fn send(&mut self, call: &Call, mut piece: impl FnMut(&[u8])) -> Result<(), String> {
        for _ in 0..TRIES {
            if self.sender.ready().await.is_err() {
                self.sender = connect(&self.target.endpoint).await?;
                continue;
            }
            let Ok(answer) = self.sender.send_request(self.target.sign(call)).await else {
                self.sender = connect(&self.target.endpoint).await?;
                continue;
            };
            let status = answer.status();
            let (mut body, mut words) = (answer.into_body(), Vec::new());
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                match frame.data_ref() {
                    Some(data) if status.is_success() => piece(data),
                    Some(data) if words.len() < SHOWN => words.extend_from_slice(data),
                    _ => {}
                }
            }
            if status.is_success() {
                return Ok(());
            }
            return Err(format!("{} {} was answered {status} {}", call.method, call.path, words.escape_ascii()));
        }
        Err(format!("{} {} had no answer in {TRIES} tries", call.method, call.path))
    }
}

async fn connect(endpoint: &str) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream = TcpStream::connect(endpoint).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let (sender, connection) =
        http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

fn authenticate(key: &[u8], text: &str) -> Vec<u8> {
    let mut code = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    code.update(text.as_bytes());
    code.finalize().into_bytes().to_vec()
}
