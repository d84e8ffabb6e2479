//! The calls to a bucket, with retries, keys below the prefix of the place, and errors for people.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path as LocalPath;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, PutResult, RetryConfig};

use super::errors::describe;
use super::transport::Transport;
use crate::backup::place::location::BucketAddress;
use crate::failure::{Failure, Result};

/// What a client of S3 must be able to do.
pub(super) trait Client: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Client for T {}

/// The retries of a call: a server may be busy or restart. The first call of a process finds out whether there is a
/// server at all, and gives up earlier.
const RETRIES: (usize, Duration) = (10, Duration::from_secs(150));
const FIRST_RETRIES: (usize, Duration) = (3, Duration::from_secs(20));

/// The objects of a place.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) client: Arc<dyn Client>,
    bucket: String,
    prefix: String,
    server: String,
}

impl Objects {
    /// Connects to a bucket, and checks that it can be read.
    pub(super) async fn connect(address: &BucketAddress) -> Result<Objects> {
        let objects = |retries| {
            let client: Arc<dyn Client> = Arc::new(client(address, retries)?);
            Ok::<_, Failure>(Objects::new(client, &address.bucket, &address.prefix, address.server()))
        };
        let listed = objects(FIRST_RETRIES)?.is_empty_except(&[]).await;
        listed.map_err(|e| Failure::with_cause(format!("cannot use {}", address.shown()), e))?;
        objects(RETRIES)
    }

    /// The objects below a prefix of a bucket.
    pub(super) fn new(client: Arc<dyn Client>, bucket: &str, prefix: &str, server: String) -> Objects {
        Objects { client, bucket: bucket.to_owned(), prefix: prefix.to_owned(), server }
    }

    /// The key of an object of the place.
    pub(super) fn key(&self, name: &str) -> Path {
        if self.prefix.is_empty() { Path::from(name) } else { Path::from(format!("{}/{name}", self.prefix)) }
    }

    /// The key as text, and the bucket.
    pub(super) fn address(&self, name: &str) -> (String, String) {
        (self.bucket.clone(), self.key(name).to_string())
    }

    /// What messages call the server.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Describes an error of a call.
    pub(super) fn failed(&self, error: object_store::Error) -> io::Error {
        describe(&error, &self.bucket, &self.server)
    }

    /// Reads a small object; `None` if there is none.
    pub(super) async fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.read_with_tag(name).await?.map(|(content, _)| content))
    }

    /// Reads a small object and its ETag; `None` if there is none.
    pub(super) async fn read_with_tag(&self, name: &str) -> io::Result<Option<(Vec<u8>, String)>> {
        let got = match self.client.get(&self.key(name)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            got => got.map_err(|e| self.failed(e))?,
        };
        let tag = got.meta.e_tag.clone().unwrap_or_default();
        Ok(Some((got.bytes().await.map_err(|e| self.failed(e))?.into(), tag)))
    }

    /// Writes a small object.
    pub(super) async fn put(&self, name: &str, content: Vec<u8>) -> io::Result<()> {
        let put = self.client.put(&self.key(name), PutPayload::from(content)).await;
        put.map(drop).map_err(|e| self.failed(e))
    }

    /// Writes a small object on a condition.
    pub(super) async fn put_if(
        &self,
        name: &str,
        content: Vec<u8>,
        mode: PutMode,
    ) -> std::result::Result<PutResult, object_store::Error> {
        self.client.put_opts(&self.key(name), PutPayload::from(content), mode.into()).await
    }

    /// Whether there is an object.
    pub(super) async fn exists(&self, name: &str) -> io::Result<bool> {
        match self.client.head(&self.key(name)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Reads an object piece by piece, and returns its size.
    pub(super) async fn each_piece(
        &self,
        key: &Path,
        mut each: impl FnMut(&[u8]) -> io::Result<()> + Send,
    ) -> io::Result<u64> {
        let mut pieces = self.client.get(key).await.map_err(|e| self.failed(e))?.into_stream();
        let mut bytes = 0;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|e| self.failed(e))?;
            bytes += piece.len() as u64;
            each(&piece)?;
        }
        Ok(bytes)
    }

    /// Copies an object to a new local file, which only its owner can read, and syncs it.
    pub(super) async fn download(
        &self,
        key: &Path,
        to: &LocalPath,
        mut each: impl FnMut(&[u8]) + Send,
    ) -> io::Result<u64> {
        let mut pieces = self.client.get(key).await.map_err(|e| self.failed(e))?.into_stream();
        let (mut file, mut bytes) = (new_file(to)?, 0);
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|e| self.failed(e))?;
            bytes += piece.len() as u64;
            each(&piece);
            file.write_all(&piece)?;
        }
        file.sync_data()?;
        Ok(bytes)
    }

    /// Returns the names below a name, relative to it, with their sizes.
    pub(super) async fn sizes(&self, below: &str) -> io::Result<Vec<(String, u64)>> {
        let prefix = self.key(below);
        let start = prefix.as_ref().len() + 1;
        let listed = self.client.list(Some(&prefix)).map_ok(|object| {
            let name = object.location.as_ref().get(start..).unwrap_or_default().to_owned();
            (name, object.size)
        });
        listed.try_collect().await.map_err(|e| self.failed(e))
    }

    /// Returns the names of what is directly in the place and has other names below it.
    pub(super) async fn directories(&self) -> io::Result<Vec<String>> {
        let listed = self.client.list_with_delimiter(self.root().as_ref()).await.map_err(|e| self.failed(e))?;
        let name = |path: &Path| path.filename().map(str::to_owned);
        Ok(listed.common_prefixes.iter().filter_map(name).collect())
    }

    /// Whether the place has nothing but objects with these names.
    pub(super) async fn is_empty_except(&self, names: &[&str]) -> io::Result<bool> {
        let known: Vec<Path> = names.iter().map(|name| self.key(name)).collect();
        let mut listed = self.client.list(self.root().as_ref());
        while let Some(object) = listed.next().await {
            if !known.contains(&object.map_err(|e| self.failed(e))?.location) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes objects. One that does not exist is removed.
    pub(super) async fn remove(&self, names: impl IntoIterator<Item = String>) -> io::Result<()> {
        let keys: Vec<_> = names.into_iter().map(|name| Ok(self.key(&name))).collect();
        let removed: Vec<_> = self.client.delete_stream(futures::stream::iter(keys).boxed()).collect().await;
        for one in removed {
            match one {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn root(&self) -> Option<Path> {
        (!self.prefix.is_empty()).then(|| Path::from(self.prefix.as_str()))
    }
}

/// Creates a local file that only its owner can read.
pub(super) fn new_file(path: &LocalPath) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn client(address: &BucketAddress, (max_retries, retry_timeout): (usize, Duration)) -> Result<impl Client + use<>> {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(200), max_backoff: Duration::from_secs(20), base: 2.0 };
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&address.bucket)
        .with_region(&address.region)
        .with_access_key_id(&address.access_key)
        .with_secret_access_key(&address.secret)
        .with_retry(RetryConfig { backoff, max_retries, retry_timeout })
        .with_http_connector(Transport::new(address.endpoint.as_deref())?);
    if let Some(endpoint) = &address.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(token) = &address.session_token {
        builder = builder.with_token(token);
    }
    builder.build().map_err(|e| Failure::with_cause(format!("cannot use {}", address.shown()), e))
}
