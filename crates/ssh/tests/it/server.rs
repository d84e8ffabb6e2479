//! An SSH server with one authorized key, and clients for it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tarn_ssh::{Authorizer, Denied, Limits, Login, Settings, Target};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::target::LocalTarget;

/// The deadline after which a test counts as stuck.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct TestServer {
    pub(crate) port: u16,
    directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

/// Authorizes one key for the user `ubuntu`.
struct OneKey(String);

impl Authorizer for OneKey {
    fn authorize<'a>(&'a self, login: Login<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>> {
        Box::pin(async move {
            if login.user == "ubuntu" && login.key.fingerprint == self.0 {
                Ok(Arc::new(LocalTarget::default()) as Arc<dyn Target>)
            } else {
                Err(Denied)
            }
        })
    }
}

impl TestServer {
    pub(crate) async fn start() -> TestServer {
        TestServer::with(Limits { refusal: Duration::from_millis(10), ..Limits::default() }).await
    }

    pub(crate) async fn with(limits: Limits) -> TestServer {
        let directory = TempDir::new().unwrap();
        for name in ["host", "key", "other"] {
            make_key(&directory.path().join(name)).await;
        }
        let fingerprint = fingerprint(&directory.path().join("key.pub")).await;
        let host_key = std::fs::read_to_string(directory.path().join("host")).unwrap();
        let mut settings = Settings::new(&host_key).unwrap();
        settings.limits = limits;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_, settings) = watch::channel(Arc::new(settings));
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(tarn_ssh::serve(listener, settings, Arc::new(OneKey(fingerprint)), async {
            let _ = stopped.await;
        }));
        TestServer { port, directory, stop: Some(stop), served }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Stops the server and waits for its end.
    pub(crate) async fn stop(&mut self) {
        drop(self.stop.take());
        tokio::time::timeout(DEADLINE, &mut self.served).await.expect("it stops").unwrap();
    }

    /// The options that all OpenSSH programs need, with the authorized key.
    pub(crate) fn options(&self) -> Vec<String> {
        self.options_with("key")
    }

    pub(crate) fn options_with(&self, key: &str) -> Vec<String> {
        let known = format!("[127.0.0.1]:{} {}", self.port, std::fs::read_to_string(self.path("host.pub")).unwrap());
        std::fs::write(self.path("known_hosts"), known).unwrap();
        let options = [
            "StrictHostKeyChecking=yes".to_owned(),
            format!("UserKnownHostsFile={}", self.path("known_hosts").display()),
            format!("IdentityFile={}", self.path(key).display()),
            format!("Port={}", self.port),
            "IdentitiesOnly=yes".to_owned(),
            "IdentityAgent=none".to_owned(),
            "BatchMode=yes".to_owned(),
        ];
        let flags = options.into_iter().flat_map(|option| ["-o".to_owned(), option]);
        ["-F".to_owned(), "none".to_owned()].into_iter().chain(flags).collect()
    }

    /// Builds `ssh` with arguments after the options.
    pub(crate) fn ssh(&self, arguments: &[&str]) -> Command {
        command("ssh", self.options(), arguments)
    }

    /// Runs a command line on the target with some input.
    pub(crate) async fn run(&self, line: &str, input: &[u8]) -> Output {
        finish(self.ssh(&["ubuntu@127.0.0.1", line]), input).await
    }
}

pub(crate) fn command(program: &str, options: Vec<String>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(options).args(arguments).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a program to its end.
pub(crate) async fn finish(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feed = async move {
        // A program need not read all of its input.
        let _ = stdin.write_all(input).await;
    };
    let both = async { tokio::join!(feed, child.wait_with_output()).1.unwrap() };
    tokio::time::timeout(DEADLINE, both).await.expect("it ends")
}

/// Polls until there is a result.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap_or_else(|_| panic!("{what}"))
}

/// Returns a free port. Ports this low are never assigned automatically, and each test process starts at another one.
pub(crate) fn free_port() -> u16 {
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    (first..).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Pseudo-random bytes.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length).collect()
}

async fn make_key(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(command.status().await.unwrap().success());
}

async fn fingerprint(path: &Path) -> String {
    let output = Command::new("ssh-keygen").arg("-lf").arg(path).output().await.unwrap();
    text(&output.stdout).split_whitespace().nth(1).unwrap().to_owned()
}
