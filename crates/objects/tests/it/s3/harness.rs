//! A service on a fresh database and a temporary directory, and calls to it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tarn_model::ids::OrgId;
use tarn_model::users::User;
use tarn_objects::accounts;
use tarn_objects::keys::{self, Credentials};
use tarn_objects::s3::{ClientAddress, Service, service};
use tarn_objects::{Objects, Result, Settings};
use tarn_store::testing::{DatabaseKind, World};
use tarn_store::{Tx, users};
use tower::Service as _;

use crate::backend::support::{open, user};
use crate::s3::signer::{Signer, escape, names};

/// Object storage with one organization that uses it.
pub(crate) struct Harness {
    pub(crate) base: World,
    pub(crate) objects: Objects,
    pub(crate) directory: PathBuf,
    pub(crate) credentials: Credentials,
    /// Whose the credentials are.
    pub(crate) user: User,
    pub(crate) service: Service,
    /// What was refused, and from where.
    pub(crate) refused: Arc<Mutex<Vec<Refused>>>,
}

/// The reason of a refusal, and the address of the client.
pub(crate) type Refused = (&'static str, Option<IpAddr>);

/// The host of a call without another one.
pub(crate) const HOST: &str = "127.0.0.1:7071";

impl Harness {
    /// Returns `None` where no such database is available.
    pub(crate) async fn new(database: DatabaseKind) -> Option<Self> {
        Self::with(database, Settings { reserve_bytes: 0, ..Settings::default() }).await
    }

    pub(crate) async fn with(database: DatabaseKind, settings: Settings) -> Option<Self> {
        let base = World::open(database).await?;
        let (objects, directory) = open(&base, settings);
        let refused = Arc::new(Mutex::new(Vec::new()));
        let counted = refused.clone();
        let on_refusal = Arc::new(move |reason, address| counted.lock().push((reason, address)));
        let service = service(objects.clone(), vec!["s3.example.org".to_owned()], on_refusal);
        let (credentials, user) = enable(&base, &objects, "o-000000000001").await;
        Some(Harness { base, objects, directory, credentials, user, service, refused })
    }

    /// Returns the credentials of another organization.
    pub(crate) async fn other(&self) -> Credentials {
        enable(&self.base, &self.objects, "o-000000000002").await.0
    }

    /// Replaces the access key. `credentials` keeps the old one.
    pub(crate) async fn rotate(&self) {
        self.change(|tx, user| keys::rotate(tx, &user.id, user.org.as_ref().unwrap(), None).map(drop)).await;
    }

    /// Makes a change that may end the access of the user.
    pub(crate) async fn change(&self, change: fn(&mut Tx<'_>, &User) -> Result<()>) {
        let user = self.user.clone();
        self.base.store.write(move |tx| change(tx, &user)).await.unwrap();
        self.objects.forget_keys();
    }

    /// Builds a call to a path, which is already escaped, with its query.
    pub(crate) fn call(&self, method: &str, target: &str) -> Call {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Credentials { access_key_id, secret_access_key } = &self.credentials;
        Call {
            service: self.service.clone(),
            signer: Signer::new(access_key_id, secret_access_key),
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: vec![("host".to_owned(), HOST.to_owned())],
            body: Vec::new(),
            from: None,
        }
    }

    pub(crate) async fn bucket(&self, name: &str) {
        assert_eq!(self.call("PUT", &format!("/{name}")).send().await.status, 200);
    }

    pub(crate) async fn put(&self, bucket: &str, key: &str, body: impl Into<Vec<u8>>) -> Response {
        let response = self.call("PUT", &format!("/{bucket}/{}", escape(key))).body(body).send().await;
        assert_eq!(response.status, 200, "{}", response.text());
        response
    }

    pub(crate) async fn get(&self, bucket: &str, key: &str) -> Response {
        self.call("GET", &format!("/{bucket}/{}", escape(key))).send().await
    }

    pub(crate) async fn versioning(&self, bucket: &str, status: &str) {
        let body = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        assert_eq!(self.call("PUT", &format!("/{bucket}?versioning")).body(body).send().await.status, 200);
    }
}

async fn enable(base: &World, objects: &Objects, org: &str) -> (Credentials, User) {
    let org: OrgId = org.parse().unwrap();
    let user = user(&*base.ids, &org);
    let added = user.clone();
    let enable = base.store.write(move |tx| -> Result<String> {
        users::insert(tx, &added)?;
        accounts::enable(tx, &org)?;
        Ok(keys::ensure(tx, &added.id, &org)?.0.id)
    });
    (objects.credentials(&enable.await.unwrap()), user)
}

/// A call that has not been sent.
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) signer: Signer,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The address of the client, if the server knows it.
    pub(crate) from: Option<IpAddr>,
}

impl Call {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn signed_by(mut self, credentials: &Credentials) -> Self {
        self.signer = Signer::new(&credentials.access_key_id, &credentials.secret_access_key);
        self
    }

    /// Signs the call with its headers and sends it.
    pub(crate) async fn send(self) -> Response {
        let hash = hex::encode(Sha256::digest(&self.body));
        let length = self.body.len().to_string();
        let call = if self.headers.iter().any(|(name, _)| name == "content-length") || self.body.is_empty() {
            self
        } else {
            self.header("content-length", &length)
        };
        let (call, _) = call.sign(&hash);
        call.send_unchanged().await
    }

    /// Signs the call and returns the signature. `payload` is the declared hash of the body.
    pub(crate) fn sign(self, payload: &str) -> (Self, String) {
        let date = self.signer.date.clone();
        let mut call = self.header("x-amz-date", &date).header("x-amz-content-sha256", payload);
        call.headers.sort();
        let query = sorted(&call.query);
        let signature = call.signer.sign_request(&call.method, &call.path, &query, &call.headers, payload);
        let (names, scope) = (names(&call.headers), call.signer.scope());
        let key = call.signer.access_key.clone();
        let authorization =
            format!("AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}");
        (call.header("authorization", &authorization), signature)
    }

    /// Sends the body in signed chunks, after changing their bytes.
    pub(crate) async fn send_chunked(self, size: usize, change: impl FnOnce(&mut Vec<u8>)) -> Response {
        let body = self.body.clone();
        let (mut call, seed) = self
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", &body.len().to_string())
            .sign("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        call.body = call.signer.chunks(&seed, &body, size);
        change(&mut call.body);
        call.send_unchanged().await
    }

    /// Sends these bytes as a body in chunks without signatures.
    pub(crate) async fn send_unsigned_chunks(self, decoded: usize, trailer: &str, encoded: Vec<u8>) -> Response {
        let (mut call, _) = self
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", &decoded.to_string())
            .header("x-amz-trailer", trailer)
            .sign("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        call.body = encoded;
        call.send_unchanged().await
    }

    /// Moves the signature into the query.
    pub(crate) fn presigned(mut self, seconds: u64) -> Self {
        self.headers.sort();
        let (key, scope, date) =
            (&self.signer.access_key, escape(&self.signer.scope()).replace('/', "%2F"), &self.signer.date);
        let signed = names(&self.headers).replace(';', "%3B");
        let mut query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={key}%2F{scope}&X-Amz-Date={date}&X-Amz-Expires={seconds}\
             &X-Amz-SignedHeaders={signed}"
        );
        if !self.query.is_empty() {
            query = format!("{}&{query}", self.query);
        }
        let query = sorted(&query);
        let signature = self.signer.sign_request(&self.method, &self.path, &query, &self.headers, "UNSIGNED-PAYLOAD");
        self.query = format!("{query}&X-Amz-Signature={signature}");
        self
    }

    /// Signs the call by Signature Version 2 in its query. Headers that boto3 writes there as well are moved there.
    pub(crate) fn presigned_by_old_version(mut self, expires: u64) -> Self {
        let header = |name: &str| {
            self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let (md5, kind) = (header("content-md5"), header("content-type"));
        let mut amz: Vec<_> = self.headers.iter().filter(|(name, _)| name.starts_with("x-amz-")).cloned().collect();
        amz.sort();
        let lines: String = amz.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let resource = if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) };
        let text = format!("{}\n{md5}\n{kind}\n{expires}\n{lines}{resource}", self.method);
        let signature = escape(&self.signer.sign_by_old_version(&text)).replace('/', "%2F");
        let mut query = format!("AWSAccessKeyId={}&Signature={signature}&Expires={expires}", self.signer.access_key);
        let moved = |name: &str| name.starts_with("x-amz-") || name == "content-md5" || name == "content-type";
        for (name, value) in self.headers.iter().filter(|(name, _)| moved(name)) {
            query.push_str(&format!("&{name}={}", escape(value).replace('/', "%2F")));
        }
        self.headers.retain(|(name, _)| !moved(name));
        self.query = if self.query.is_empty() { query } else { format!("{}&{query}", self.query) };
        self
    }

    pub(crate) async fn send_unchanged(mut self) -> Response {
        let body = std::mem::take(&mut self.body);
        let response = self.send_body(http_body_util::Full::new(Bytes::from(body))).await;
        let (parts, mut body) = response.into_parts();
        let body = body.store_all_limited(usize::MAX).await.unwrap().to_vec();
        Response { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Sends the call with this body, and returns the response before its body is read.
    pub(crate) async fn send_body<B>(mut self, body: B) -> s3s::HttpResponse
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let query = if self.query.is_empty() { String::new() } else { format!("?{}", self.query) };
        let mut request = Request::builder().method(self.method.as_str()).uri(format!("{}{query}", self.path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(address) = self.from {
            request = request.extension(ClientAddress(address));
        }
        self.service.call(request.body(body).unwrap()).await.map_err(s3s::StdError::from).unwrap()
    }
}

/// Returns a query in the canonical form of signatures.
fn sorted(query: &str) -> String {
    let with_value = |pair: &str| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") };
    let mut pairs: Vec<String> = query.split('&').filter(|pair| !pair.is_empty()).map(with_value).collect();
    pairs.sort();
    pairs.join("&")
}

/// The response to a call.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the text of the first element with this name.
    pub(crate) fn xml(&self, element: &str) -> Option<String> {
        self.all(element).into_iter().next()
    }

    /// Returns the texts of all elements with this name.
    pub(crate) fn all(&self, element: &str) -> Vec<String> {
        let text = self.text();
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        text.split(&open).skip(1).filter_map(|rest| Some(rest.split_once(&close)?.0.to_owned())).collect()
    }

    /// Returns the status and the code of an error.
    pub(crate) fn refusal(&self) -> (u16, String) {
        (self.status, self.xml("Code").unwrap_or_default())
    }
}

/// Asserts that a call was refused with this status and code.
#[track_caller]
pub(crate) fn assert_refused(response: &Response, status: u16, code: &str) {
    assert_eq!(response.refusal(), (status, code.to_owned()), "{}", response.text());
}
