//! Limits, and clients that violate the protocol.

use std::time::Duration;

use tarn_ssh::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{TestServer, noise, text};

async fn connect(server: &TestServer) -> TcpStream {
    TcpStream::connect(("127.0.0.1", server.port)).await.unwrap()
}

/// Returns whether the other side ends the connection within a timeout.
async fn is_ended(stream: &mut TcpStream) -> bool {
    let mut all = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut all)).await.is_ok()
}

/// A connection without a login is closed.
#[tokio::test]
async fn missing_login_ends_the_connection() {
    let server = TestServer::with(Limits { grace: Duration::from_millis(200), ..Limits::default() }).await;
    let mut silent = connect(&server).await;
    let mut half = connect(&server).await;
    half.write_all(b"SSH-2.0-half\r\n").await.unwrap();
    assert!(is_ended(&mut silent).await, "a silent client");
    assert!(is_ended(&mut half).await, "a client that stops after its greeting");
}

/// A malformed connection ends, and others are not affected.
#[tokio::test]
async fn malformed_connection_ends_alone() {
    let server = TestServer::start().await;
    for nonsense in
        [noise(100_000), b"SSH-2.0-x\r\n\xff\xff\xff\xff and so on".to_vec(), b"GET / HTTP/1.1\r\n\r\n".to_vec()]
    {
        let mut stream = connect(&server).await;
        let _ = stream.write_all(&nonsense).await;
        let _ = stream.shutdown().await;
        assert!(is_ended(&mut stream).await);
    }
    assert_eq!(text(&server.run("echo in", b"").await.stdout), "in\n");
}

/// Connections above the limit get no greeting.
#[tokio::test]
async fn excess_connections_get_no_greeting() {
    let server = TestServer::with(Limits { starting: 2, ..Limits::default() }).await;
    let mut greeting = [0; 4];
    let mut first = connect(&server).await;
    let mut second = connect(&server).await;
    first.read_exact(&mut greeting).await.unwrap();
    second.read_exact(&mut greeting).await.unwrap();
    let mut third = Vec::new();
    // A connection that is dropped without a greeting may report an end or an error.
    let _ = connect(&server).await.read_to_end(&mut third).await;
    assert!(third.is_empty(), "{}", text(&third));
    drop((first, second));
    crate::server::until("there is room again", async || {
        let output = server.run("echo in", b"").await;
        (text(&output.stdout) == "in\n").then_some(())
    })
    .await;
}

/// Stopping the server ends its sessions.
#[tokio::test]
async fn stopping_ends_sessions() {
    let mut server = TestServer::start().await;
    let mut ssh = server.ssh(&["ubuntu@127.0.0.1", "echo ready; exec sleep 1000"]).spawn().unwrap();
    let mut ready = [0; 6];
    ssh.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    server.stop().await;
    assert_eq!(ssh.wait().await.unwrap().code(), Some(255));
}
