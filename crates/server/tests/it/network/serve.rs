//! Listening on a real socket, and stopping.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::harness::{DatabaseKind, World};

/// Nothing here takes so long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

async fn start(drain: Duration) -> (World, SocketAddr, oneshot::Sender<()>, JoinHandle<std::io::Result<()>>) {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let serving = tokio::spawn(tarn_server::serve(listener, world.router.clone(), None, shutdown, drain));
    (world, address, stop, serving)
}

async fn send(stream: &mut TcpStream, text: &[u8]) -> String {
    stream.write_all(text).await.unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap();
        answer.extend_from_slice(&buffer[..count]);
        if count == 0 || answer.ends_with(b"}") {
            return String::from_utf8(answer).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_up_the_end() {
    let (_world, address, stop, serving) = start(Duration::from_secs(600)).await;
    let silent = TcpStream::connect(address).await.unwrap();
    let mut idle = TcpStream::connect(address).await.unwrap();
    let answer = send(&mut idle, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("{\"status\":\"ok\""), "{answer}");
    stop.send(()).unwrap();
    tokio::time::timeout(DEADLINE, serving).await.expect("it ends").unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_never_ends_is_cut_off() {
    let (world, address, stop, serving) = start(Duration::from_millis(50)).await;
    let mut stuck = TcpStream::connect(address).await.unwrap();
    let head = "POST /storage/create HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nauthorization: Bearer";
    stuck.write_all(format!("{head} {}\r\n\r\n{{", world.admin).as_bytes()).await.unwrap();
    stop.send(()).unwrap();
    tokio::time::timeout(DEADLINE, serving).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_still_gets_its_answer() {
    let (world, address, _stop, _serving) = start(Duration::ZERO).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = vec![b' '; 3 << 20];
    let head = format!(
        "POST /storage/create HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nauthorization: Bearer {}\r\n\r\n",
        body.len(),
        world.admin
    );
    let answer = send(&mut stream, &[head.as_bytes(), &body].concat()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}
