//! Listening on a real socket, and stopping.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use serde_json::json;
use tarn_server::Listening;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::harness::{DatabaseKind, World};

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
    let serving =
        tokio::spawn(tarn_server::serve(listener, world.router.clone(), Listening::default(), shutdown, drain));
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

/// Idle connections do not delay the shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_does_not_delay_shutdown() {
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

/// A call that does not end is cut off at shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn endless_call_is_cut_off() {
    let (world, address, stop, serving) = start(Duration::from_millis(50)).await;
    let mut stuck = TcpStream::connect(address).await.unwrap();
    let head = "POST /storage/create HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nauthorization: Bearer";
    stuck.write_all(format!("{head} {}\r\n\r\n{{", world.admin).as_bytes()).await.unwrap();
    stop.send(()).unwrap();
    tokio::time::timeout(DEADLINE, serving).await.expect("it ends").unwrap().unwrap();
}

/// A client that sends a body above the limit still gets its response.
#[tokio::test(flavor = "multi_thread")]
async fn large_body_still_gets_response() {
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

/// Events have the key and the address of a call that came through a real socket, and refused keys their address.
#[tokio::test(flavor = "multi_thread")]
async fn events_have_key_and_address() {
    let (world, address, _stop, _serving) = start(Duration::ZERO).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let call = |key: &str| {
        let body = "{\"size\": 10}";
        let head = format!("POST /storage/create HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n");
        format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let made = send(&mut stream, call(&world.admin).as_bytes()).await;
    assert!(made.starts_with("HTTP/1.1 202"), "{made}");
    let refused = send(&mut stream, call("tp-wrong").as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    tarn_control::reconcilers::access_records::tick(&world.control).await.unwrap();
    let events = world.get(&world.admin, "/admin/event/list").await.body["events"].clone();
    let find = |verb: &str| events.as_array().unwrap().iter().find(|event| event["verb"] == verb).unwrap().clone();
    let (create, refused) = (find("storage.create"), find("login.refused"));
    assert_eq!((&create["key_id"], &create["address"]), (&json!(world.caller.key.as_str()), &json!("127.0.0.1")));
    let call_id = create["call_id"].as_str().unwrap();
    assert!(made.contains(&format!("x-request-id: {call_id}\r\n")), "{call_id}: {made}");
    assert_eq!((&refused["key_id"], &refused["address"]), (&json!(null), &json!("127.0.0.1")));
    assert_eq!(refused["detail"], json!({ "via": "api", "reason": "invalid_key", "count": 1 }));
    let keys = world.get(&world.admin, "/admin/key/list").await;
    assert!(keys.body["keys"][0]["last_used_at"].is_string(), "{keys:?}");
    assert!(keys.message().contains("LAST USED"), "{keys:?}");
}
