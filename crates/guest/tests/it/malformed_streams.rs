//! Streams that violate the protocol affect only themselves.

use tarn_link::{Purpose, Writer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixture::{DEADLINE, Fixture, exec, read_until};

/// Sends bytes and waits until the guest closes the stream.
async fn is_closed_after(fixture: &Fixture, bytes: &[u8]) -> Vec<u8> {
    let mut stream = fixture.dial();
    // The guest may close the stream before everything is sent.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the guest closes").unwrap();
    answer
}

/// A malformed stream ends, and others are not affected.
#[tokio::test]
async fn malformed_stream_ends_alone() {
    let fixture = Fixture::new();
    let mut good = fixture.begin(exec("echo on; cat")).await;
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
        assert!(is_closed_after(&fixture, bytes).await.is_empty(), "{bytes:?}");
    }
    good.1.data(b"still there\n").await.unwrap();
    read_until(&mut good, "still there").await;
}

/// Another protocol version is refused with a reason.
#[tokio::test]
async fn other_version_is_refused_with_reason() {
    let fixture = Fixture::new();
    let text = br#"{"version":99,"purpose":"health"}"#;
    let mut bytes = vec![1, 0, 0, 0, u8::try_from(text.len()).unwrap()];
    bytes.extend(text);
    let answer = is_closed_after(&fixture, &bytes).await;
    assert!(String::from_utf8_lossy(&answer).contains("version 1"), "{answer:?}");
}

/// A silent stream is closed.
#[tokio::test]
async fn silent_stream_is_closed() {
    let fixture = Fixture::new();
    assert!(is_closed_after(&fixture, b"").await.is_empty());
}

/// A malformed frame within a session ends the program.
#[tokio::test]
async fn malformed_frame_ends_the_program() {
    let fixture = Fixture::new();
    let (mut reader, writer) = fixture.begin(exec("echo on; cat")).await;
    drop(writer);
    drop(reader.read().await);
    let mut stream = fixture.dial();
    let mut writer = Writer::new(&mut stream);
    let session = serde_json::json!({ "version": 1, "purpose": Purpose::Session(Box::new(exec("sleep 1000"))) });
    writer.message(&session).await.unwrap();
    writer.message(&"no such message").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("the guest closes").unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("ready"), "{answer:?}");
}

/// Streams above the limit are refused until others end.
#[tokio::test]
async fn streams_are_limited() {
    let fixture = Fixture::new();
    let waiting: Vec<_> = (0..512).map(|_| fixture.dial()).collect();
    // Each stream is served by its own task, so it takes a moment until all have a permit.
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let refused = loop {
        match fixture.ask(Purpose::Health).await {
            Err(refused) => break refused,
            Ok(_) => assert!(tokio::time::Instant::now() < deadline, "there is no limit"),
        }
    };
    assert!(refused.to_string().contains("512 streams"), "{refused}");
    drop(waiting);
    while fixture.ask(Purpose::Health).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "places do not come back");
    }
}
