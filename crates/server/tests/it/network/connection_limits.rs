//! How many connections a user and an organization may have, on a real socket.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};
use tarn_server::Limits;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

use crate::jobs::lifecycle::{HOST, target};
use crate::support::harness::{Call, DatabaseKind, World, unlimited};
use crate::support::sockets::Served;

const FEW: usize = 2;
const OF_ORGANIZATION: usize = 3;

/// A connection on which one call was made, with the head and the body of its response.
struct Connection {
    _stream: BufStream<TcpStream>,
    head: String,
    body: Vec<u8>,
}

impl Connection {
    /// Makes a GET call on a new connection, which stays open as long as the server leaves it open.
    async fn open(address: SocketAddr, path: &str, key: Option<&str>) -> Connection {
        let mut stream = BufStream::new(TcpStream::connect(address).await.unwrap());
        let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {HOST}\r\n{key}\r\n").as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).await.unwrap() > 0, "{head}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        Connection { _stream: stream, head, body }
    }

    fn is_served(&self) -> bool {
        self.head.starts_with("HTTP/1.1 200")
    }

    /// Asserts that the call was refused because of the limit, and that the connection ends.
    #[track_caller]
    fn assert_over(self, limit: &str) {
        assert!(self.head.starts_with("HTTP/1.1 429") && self.head.contains("connection: close"), "{}", self.head);
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(body["code"], "too_many_connections");
        assert!(body["message"].as_str().unwrap().contains(limit), "{body}");
    }
}

/// The connections of a user and of an organization are limited, also those of calls with a signed URL. Others are
/// served, and a connection that ends makes room.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_user_and_organization_are_limited() {
    let limits = Limits { user_connections: FEW, organization_connections: OF_ORGANIZATION, ..unlimited() };
    let world = World::with_limits(DatabaseKind::Sqlite, limits).await.unwrap();
    let ada = world.user("ada@example.org", Some("x")).await;
    let ben = world.user("ben@example.org", Some("x")).await;
    let eve = world.user("eve@example.org", Some("y")).await;
    world.cluster(&ada, "box").await;
    let job = world.pending_job(&ada, "box").await;
    world.post(&ada, &format!("/job/cancel/{job}"), json!({})).await;
    world.keep_output(&job, "out/a", b"first").await;
    let pull = Call::new(Method::GET, &format!("/job/pull/{job}")).key(&ada).header("host", HOST.as_bytes());
    let pulled = world.call(pull).await;
    let output = target(pulled.body["download_map"]["out/a"].as_str().unwrap()).to_owned();

    let served = Served::new(&world);
    let me = async |key: &str| Connection::open(served.address, "/me", Some(key)).await;
    let download = async || Connection::open(served.address, &output, None).await;
    let mut open = Vec::new();
    for _ in 0..FEW {
        open.push(me(&ada).await);
    }
    assert!(open.iter().all(Connection::is_served));
    me(&ada).await.assert_over("you have 2 connections");
    download().await.assert_over("you have 2 connections");
    open.push(me(&ben).await);
    assert!(open[FEW].is_served(), "{}", open[FEW].head);
    me(&ben).await.assert_over("your organization have 3 connections");
    assert!(me(&eve).await.is_served(), "another organization is served");

    open.remove(0);
    // The server notices the end of the connection a moment later.
    let freed = async {
        loop {
            let downloading = download().await;
            if downloading.is_served() {
                return downloading;
            }
        }
    };
    let downloading = tokio::time::timeout(Duration::from_secs(20), freed).await.expect("its place is free");
    assert_eq!(downloading.body, b"first");
    me(&ada).await.assert_over("you have 2 connections");
}
