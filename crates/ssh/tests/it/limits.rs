//! Limits, and clients that do not keep to the protocol.

use std::time::Duration;

use tarn_ssh::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::front::{Front, noise, text};

async fn connect(front: &Front) -> TcpStream {
    TcpStream::connect(("127.0.0.1", front.port)).await.unwrap()
}

/// Whether the other side has ended the connection, within the deadline of the test.
async fn is_ended(stream: &mut TcpStream) -> bool {
    let mut all = Vec::new();
    tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut all)).await.is_ok()
}

#[tokio::test]
async fn whoever_does_not_log_in_is_sent_away() {
    let front = Front::with(Limits { grace: Duration::from_millis(200), ..Limits::default() }).await;
    let mut silent = connect(&front).await;
    let mut half = connect(&front).await;
    half.write_all(b"SSH-2.0-half\r\n").await.unwrap();
    assert!(is_ended(&mut silent).await, "one that says nothing");
    assert!(is_ended(&mut half).await, "one that stops after its greeting");
}

#[tokio::test]
async fn nonsense_ends_its_own_connection_only() {
    let front = Front::start().await;
    for nonsense in
        [noise(100_000), b"SSH-2.0-x\r\n\xff\xff\xff\xff and so on".to_vec(), b"GET / HTTP/1.1\r\n\r\n".to_vec()]
    {
        let mut stream = connect(&front).await;
        let _ = stream.write_all(&nonsense).await;
        let _ = stream.shutdown().await;
        assert!(is_ended(&mut stream).await);
    }
    assert_eq!(text(&front.run("echo in", b"").await.stdout), "in\n");
}

#[tokio::test]
async fn too_many_at_a_time_are_not_greeted() {
    let front = Front::with(Limits { starting: 2, ..Limits::default() }).await;
    let mut greeting = [0; 4];
    let mut first = connect(&front).await;
    let mut second = connect(&front).await;
    first.read_exact(&mut greeting).await.unwrap();
    second.read_exact(&mut greeting).await.unwrap();
    let mut third = Vec::new();
    // Being dropped without a word may look like an end or like an error.
    let _ = connect(&front).await.read_to_end(&mut third).await;
    assert!(third.is_empty(), "{}", text(&third));
    drop((first, second));
    crate::front::until("there is room again", async || {
        let output = front.run("echo in", b"").await;
        (text(&output.stdout) == "in\n").then_some(())
    })
    .await;
}

#[tokio::test]
async fn stopping_ends_sessions() {
    let mut front = Front::start().await;
    let mut ssh = front.ssh(&["ubuntu@127.0.0.1", "echo ready; exec sleep 1000"]).spawn().unwrap();
    let mut ready = [0; 6];
    ssh.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    front.stop().await;
    assert_eq!(ssh.wait().await.unwrap().code(), Some(255));
}
