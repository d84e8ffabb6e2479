//! A real registry on a loopback address: Debian's `docker-registry`, which ends with the test.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::image_builder::{TestImage, digest};

/// How long it may take to respond.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The accounts where a login is required; the password is `hunter2`.
const LOGINS: &str = "anna:$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.\n";

pub(crate) struct DockerRegistry {
    child: Child,
    _directory: tempfile::TempDir,
    pub(crate) address: String,
    login: Option<(&'static str, &'static str)>,
}

impl DockerRegistry {
    /// Starts a registry without logins.
    pub(crate) async fn start() -> Self {
        start(None).await
    }

    /// Starts a registry that requires a login.
    pub(crate) async fn with_login() -> Self {
        start(Some(("anna", "hunter2"))).await
    }

    /// Pushes an image, and returns its reference.
    pub(crate) async fn push(&self, name: &str, image: &TestImage) -> String {
        let (client, base) = (client(), format!("http://{}/v2/{name}", self.address));
        let allowed = |call: reqwest::RequestBuilder| match self.login {
            Some((user, password)) => call.basic_auth(user, Some(password)),
            None => call,
        };
        for blob in &image.blobs {
            let begun = allowed(client.post(format!("{base}/blobs/uploads/"))).send().await.unwrap();
            let place = begun.headers()["location"].to_str().unwrap().to_owned();
            let put = client.put(place).query(&[("digest", digest(blob))]).body(blob.clone());
            assert!(allowed(put).send().await.unwrap().status().is_success(), "a blob is taken");
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let put = client.put(format!("{base}/manifests/1")).header("content-type", kind).body(image.manifest.clone());
        let put = allowed(put).send().await.unwrap();
        assert!(put.status().is_success(), "the manifest is taken: {}", put.text().await.unwrap());
        format!("{}/{name}:1", self.address)
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _collected = self.child.wait();
    }
}

pub(crate) fn client() -> reqwest::Client {
    // Another test may have installed the same provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

async fn start(login: Option<(&'static str, &'static str)>) -> DockerRegistry {
    // Another process may take the port in between; then another port is tried.
    for _ in 0..20 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let (path, logins) = (directory.path().join("config.yml"), directory.path().join("logins"));
        fs::write(&logins, LOGINS).unwrap();
        let auth = format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", logins.display());
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}/data}}}}\n\
             http: {{addr: '127.0.0.1:{port}', secret: test}}\n{}",
            directory.path().display(),
            login.map_or("", |_| auth.as_str())
        );
        fs::write(&path, text).unwrap();
        let command =
            Command::new("docker-registry").arg("serve").arg(&path).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = command.expect("docker-registry is installed: scripts/install-missing test");
        let mut registry = DockerRegistry { child, _directory: directory, address: format!("127.0.0.1:{port}"), login };
        let url = format!("http://{}/v2/", registry.address);
        let answers = async {
            while client().get(&url).send().await.is_err() {
                if registry.child.try_wait().unwrap().is_some() {
                    return false;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            true
        };
        if tokio::time::timeout(TIMEOUT, answers).await.expect("the registry answers") {
            return registry;
        }
    }
    panic!("no port is free for a registry");
}
