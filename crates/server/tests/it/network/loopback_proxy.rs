//! The loopback proxy in instances, with the real guest. Its instances share the network of the test, so that a port
//! inside is one at home.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tarn_driver::{Error, GuestStream};
use tarn_guest::{Children, Guest, Settings};
use tarn_model::ids::InstanceId;
use tarn_server::{InstanceConnection, LoopbackProxy, serve_loopback_proxies};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::support::harness::{World, usual};

/// How long anything may take before it counts as stuck.
const DEADLINE: Duration = Duration::from_secs(30);

/// A world with a guest, and a proxy to a listener that responds.
struct Lab {
    world: World,
    proxy: LoopbackProxy,
    engine: JoinHandle<()>,
    /// The lives of the guest: with a new number all streams to it end.
    life: watch::Sender<u32>,
    /// How often the guest was dialled.
    dials: Arc<AtomicU32>,
    /// How many bytes came through the proxy.
    heard: Arc<AtomicUsize>,
    _root: TempDir,
}

impl Lab {
    /// A world with one cluster.
    async fn open() -> Lab {
        let lab = Lab::empty().await;
        lab.world.cluster(&lab.world.admin, "box").await;
        lab
    }

    async fn empty() -> Lab {
        let root = root();
        let (children, collecting) = Children::new(false).unwrap();
        tokio::spawn(collecting);
        let settings = Settings {
            root: root.path().into(),
            user: "tester".into(),
            image: None,
            helper: "/bin/false".into(),
            is_init: false,
        };
        let guest = Guest::new(settings, children).unwrap();
        let (life, lives) = watch::channel(0);
        let dials = Arc::new(AtomicU32::new(0));
        let counted = dials.clone();
        let dial = move |_: &InstanceId| -> Result<GuestStream, Error> {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let (guest, mut lives) = (guest.clone(), lives.clone());
            lives.mark_unchanged();
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                tokio::select! {
                    () = guest.serve_stream(theirs) => {}
                    _ = lives.changed() => {}
                }
            });
            Ok(Box::new(ours))
        };
        let world = World::with_setup(usual()).await;
        world.driver.dial_guests(dial);
        let heard = Arc::new(AtomicUsize::new(0));
        let (proxy, connections) = LoopbackProxy::to(SocketAddr::from(([127, 0, 0, 1], free_port())), 0);
        tokio::spawn(answer(connections, heard.clone()));
        let engine = tokio::spawn(serve_loopback_proxies(world.control.clone(), vec![proxy.clone()]));
        Lab { world, proxy, engine, life, dials, heard, _root: root }
    }

    /// Sends a text through the proxy and returns the response.
    async fn ask(&self, words: &str) -> Option<String> {
        ask(self.proxy.port_inside, words).await
    }

    /// Waits until the proxy listens, or does not.
    async fn until_open(&self, is_open: bool) {
        eventually("the door", async || self.ask("hello").await.is_some_and(|said| said == "hello?") == is_open).await;
    }
}

/// A directory that a guest takes for `/`.
fn root() -> TempDir {
    let root = TempDir::new().unwrap();
    std::fs::create_dir_all(root.path().join("etc")).unwrap();
    std::fs::write(root.path().join("etc/passwd"), "tester:x:1000:1000::/home/tester:/bin/bash\n").unwrap();
    std::fs::write(root.path().join("etc/group"), "tester:x:1000:\n").unwrap();
    root
}

/// Stands for the engine's own server: returns each word as a question, until the connection ends.
async fn answer(mut connections: mpsc::Receiver<InstanceConnection>, heard: Arc<AtomicUsize>) {
    while let Some(InstanceConnection { mut stream, address, .. }) = connections.recv().await {
        assert!(address.is_some(), "the address of the instance is known");
        let heard = heard.clone();
        tokio::spawn(async move {
            let mut words = Vec::new();
            while let Ok(count @ 1..) = stream.read_buf(&mut words).await {
                heard.fetch_add(count, Ordering::Relaxed);
            }
            words.push(b'?');
            let _ = stream.write_all(&words).await;
        });
    }
}

/// A free port that no other process gets by chance: the kernel assigns ports so low only on request, and each process
/// of tests begins elsewhere.
fn free_port() -> u16 {
    let first = 10_000 + (std::process::id() % 20_000) as u16;
    (first..).find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

async fn ask(port: u16, words: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(words.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await.ok()?;
    Some(said)
}

async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("never so: {what}"));
}

/// The loopback proxy listens for as long as the instance runs.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_lives_as_long_as_instance() {
    let lab = Lab::empty().await;
    assert_eq!(lab.ask("hello").await, None, "without an instance nobody listens");
    let cluster = lab.world.cluster(&lab.world.admin, "box").await;
    lab.until_open(true).await;
    let long = "x".repeat(3 << 20);
    assert_eq!(lab.ask(&long).await, Some(format!("{long}?")));
    let gone = lab.world.delete(&lab.world.admin, &format!("/cluster/{cluster}")).await;
    assert_eq!(gone.status, 202, "{gone:?}");
    lab.world.settle().await;
    lab.until_open(false).await;
}

/// A broken stream is opened again.
#[tokio::test(flavor = "multi_thread")]
async fn broken_stream_is_reopened() {
    let lab = Lab::open().await;
    lab.until_open(true).await;
    let before = lab.heard.load(Ordering::Relaxed);
    let mut cut = TcpStream::connect(("127.0.0.1", lab.proxy.port_inside)).await.unwrap();
    cut.write_all(b"unfinished").await.unwrap();
    // Who is not taken yet when the streams end would be taken by the next life of the same guest.
    eventually("it is taken", async || lab.heard.load(Ordering::Relaxed) > before).await;
    lab.life.send_replace(1);
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(DEADLINE, cut.read_to_end(&mut rest)).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "what was under way ends and does not hang: {ended:?} {rest:?}");
    lab.until_open(true).await;
}

/// An engine that stops leaves no listener in the instance.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_engine_leaves_no_listener() {
    let lab = Lab::open().await;
    lab.until_open(true).await;
    lab.engine.abort();
    let port = lab.proxy.port_inside;
    eventually("the port is free", async || std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()).await;
    tokio::spawn(serve_loopback_proxies(lab.world.control.clone(), vec![lab.proxy.clone()]));
    lab.until_open(true).await;
}

/// A program in the instance that has the port keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn used_port_is_left_alone() {
    let lab = Lab::empty().await;
    let own = TcpListener::bind(("127.0.0.1", lab.proxy.port_inside)).await.unwrap();
    lab.world.cluster(&lab.world.admin, "box").await;
    eventually("the engine has tried, and tried again", async || lab.dials.load(Ordering::Relaxed) >= 2).await;
    let (mut inside, outside) =
        tokio::join!(async { own.accept().await.unwrap().0 }, TcpStream::connect(own.local_addr().unwrap()));
    inside.write_all(b"mine").await.unwrap();
    drop(inside);
    let mut said = String::new();
    outside.unwrap().read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "mine");
    drop(own);
    lab.until_open(true).await;
}

/// Connections beyond the limit wait.
#[tokio::test(flavor = "multi_thread")]
async fn excess_connections_wait() {
    let lab = Lab::open().await;
    lab.until_open(true).await;
    // As many connections as one proxy allows, which send nothing and stay open.
    let mut silent = Vec::new();
    for _ in 0..128 {
        let mut stream = TcpStream::connect(("127.0.0.1", lab.proxy.port_inside)).await.unwrap();
        stream.write_all(b"...").await.unwrap();
        silent.push(stream);
    }
    let asking = lab.ask("patience");
    tokio::pin!(asking);
    assert!(tokio::time::timeout(Duration::from_millis(500), &mut asking).await.is_err(), "there is no slot for it");
    silent.truncate(100);
    let said = tokio::time::timeout(DEADLINE, asking).await.expect("it waits no longer than it must");
    assert_eq!(said.as_deref(), Some("patience?"));
}
