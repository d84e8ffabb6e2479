//! Streams that do not keep to the protocol harm nobody but themselves.

use tarn_link::{Purpose, Writer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::lab::{DEADLINE, Lab, exec, read_until};

/// Sends bytes and waits until the guest closes the stream.
async fn is_closed_after(lab: &Lab, bytes: &[u8]) -> Vec<u8> {
    let mut stream = lab.dial();
    // The guest may close before all of it is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the guest closes").unwrap();
    answer
}

#[tokio::test]
async fn nonsense_ends_its_stream_only() {
    let lab = Lab::new();
    let mut good = lab.begin(exec("echo on; cat")).await;
    read_until(&mut good, "on").await;
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x01\xff\xff\xff\xff",
        b"\x09\x00\x00\x00\x00",
        b"\x02\x00\x00\x00\x01x",
        b"\x04\x00\x00\x00\x00",
        b"\x01\x00\x00\x00\x02{}",
        b"\x01\x00\x00\x00\x04null",
    ] {
        assert!(is_closed_after(&lab, bytes).await.is_empty(), "{bytes:?}");
    }
    good.1.data(b"still there\n").await.unwrap();
    read_until(&mut good, "still there").await;
}

#[tokio::test]
async fn another_version_is_refused_with_words() {
    let lab = Lab::new();
    let text = br#"{"version":99,"purpose":"health"}"#;
    let mut bytes = vec![1, 0, 0, 0, u8::try_from(text.len()).unwrap()];
    bytes.extend(text);
    let answer = is_closed_after(&lab, &bytes).await;
    assert!(String::from_utf8_lossy(&answer).contains("version 1"), "{answer:?}");
}

#[tokio::test]
async fn a_stream_that_says_nothing_is_closed() {
    let lab = Lab::new();
    assert!(is_closed_after(&lab, b"").await.is_empty());
}

#[tokio::test]
async fn nonsense_within_a_session_ends_the_program() {
    let lab = Lab::new();
    let (mut reader, writer) = lab.begin(exec("echo on; cat")).await;
    drop(writer);
    drop(reader.read().await);
    let mut stream = lab.dial();
    let mut writer = Writer::new(&mut stream);
    let session = serde_json::json!({ "version": 1, "purpose": Purpose::Session(Box::new(exec("sleep 1000"))) });
    writer.message(&session).await.unwrap();
    writer.message(&"no such message").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the guest closes").unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("ready"), "{answer:?}");
}

#[tokio::test]
async fn too_many_streams_are_refused_and_places_come_back() {
    let lab = Lab::new();
    let waiting: Vec<_> = (0..512).map(|_| lab.dial()).collect();
    // Each stream is served by a task of its own, so it takes a moment until all have their place.
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let refused = loop {
        match lab.ask(Purpose::Health).await {
            Err(refused) => break refused,
            Ok(_) => assert!(tokio::time::Instant::now() < deadline, "there is no limit"),
        }
    };
    assert!(refused.to_string().contains("512 streams"), "{refused}");
    drop(waiting);
    while lab.ask(Purpose::Health).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "places do not come back");
    }
}
