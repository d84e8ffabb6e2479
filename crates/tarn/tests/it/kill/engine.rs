//! The real program as a child process.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::Value;
use tarn_control::audit;
use tarn_driver::fake::{FakeDriver, Settings, read_world};
use tarn_model::capacity::Inventory;
use tarn_store::testing::{Fresh, ManualClock, SeededIds};
use tarn_store::{Database, Store};

const CONFIG: &str = r#"
simulated_gpus = "8xH100"
log = "warn"

[rate_limit]
per_second = 0

[limits]
waiting = 0

[capacity]
cpus = 16.0
memory_mib = 16384

[requests]
lease_seconds = 1
"#;

/// A running `tarn serve`.
pub(crate) struct Tarn {
    child: Mutex<Child>,
    client: Client,
    url: String,
    key: String,
    /// Another hand on the program's fake world.
    fake: FakeDriver,
}

impl Tarn {
    /// Starts the program and waits until it answers.
    pub(crate) async fn start(home: &Fresh, seed: u64) -> Self {
        let data = home.dir.path();
        let fake = format!("[fake]\nlatency_ms = [0, 25]\nfault_rate = 0.05\nseed = {}\n", seed >> 1);
        std::fs::write(data.join("config.toml"), format!("{CONFIG}{fake}")).unwrap();
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--driver", "fake", "--s3-listen", "none"]);
        command.arg("--data").arg(data).arg("--config").arg(data.join("config.toml")).stdout(Stdio::null());
        if let Database::Postgres(url) = &home.database {
            command.args(["--database", url]);
        }
        let child = command.spawn().unwrap();
        // A client wants one, although nothing is encrypted here; whoever was first has chosen the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (client, url) = (Client::new(), format!("http://127.0.0.1:{port}"));
        let fake = FakeDriver::open(data, Inventory::default(), Settings::default()).unwrap();
        let mut tarn = Tarn { child: Mutex::new(child), client, url, key: String::new(), fake };
        // A minute: on a busy machine it takes seconds to begin.
        for _ in 0..6000 {
            let healthy = tarn.client.get(format!("{}/healthz", tarn.url)).send().await;
            if healthy.is_ok_and(|answer| answer.status().is_success()) {
                tarn.key = std::fs::read_to_string(data.join("admin.key")).unwrap();
                return tarn;
            }
            assert!(tarn.child.lock().unwrap().try_wait().unwrap().is_none(), "tarn ended instead of starting");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("tarn does not answer");
    }

    /// Makes a call; `None` when the program died meanwhile.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let call = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key);
        let call = body.iter().fold(call, |call, body| call.json(body));
        let answer = call.send().await.ok()?;
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.ok()?;
        assert!(status < 500, "{path} was answered {status}: {body}");
        Some((status, body))
    }

    /// Lets a process use a volume in an instance, if it is mounted there.
    pub(crate) async fn hold(&self, volume: &str, instance: &str) {
        if let (Ok(volume), Ok(instance)) = (volume.parse(), instance.parse()) {
            let _ = self.fake.hold(&volume, &instance, "python3").await;
        }
    }

    /// `kill -9`, by the id of the process that we started.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// What the fake's world file and the database disagree about, and the database with its own counts.
    pub(crate) async fn differences(&self, home: &Fresh) -> Vec<String> {
        let (clock, ids) = (Arc::new(ManualClock::default()), Arc::new(SeededIds::new(1)));
        let store = Store::open(&home.database, clock, ids).await.unwrap();
        let found = audit::differences(&store, &read_world(home.dir.path()).unwrap()).await.unwrap();
        let miscounts = audit::miscounts(&store).await.unwrap();
        found.iter().map(ToString::to_string).chain(miscounts.iter().map(ToString::to_string)).collect()
    }
}

/// A free port that nobody gets before the program does: those so low are given to nobody who does not ask for them, and each
/// process of tests begins elsewhere.
fn free_port() -> u16 {
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    (first..).find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Whatever happens to the test, the program does not outlive it.
impl Drop for Tarn {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
