//! Frames and the opening of streams, over a stream in memory.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use proptest::prelude::*;
use tarn_link::frames::{MAX_DATA, MAX_MESSAGE};
use tarn_link::opening::{accept, open};
use tarn_link::{Endpoint, Error, Frame, Program, Purpose, Reader, Reply, Session, Writer};
use tokio::io::AsyncWriteExt;

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// A stream is opened with a purpose.
#[test]
fn stream_opens_with_a_purpose() {
    run(async {
        let (engine, guest) = tokio::io::duplex(100);
        let purpose =
            Purpose::Session(Box::new(Session { program: Program::Exec(vec![0, 255]), ..Session::default() }));
        let wanted = purpose.clone();
        let guest = async move {
            let (reader, writer) = tokio::io::split(guest);
            let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
            assert_eq!(accept(&mut reader, &mut writer).await.unwrap(), wanted);
            writer.message(&Reply::Ready).await.unwrap();
            writer.stderr(b"oh").await.unwrap();
            writer.eof().await.unwrap();
        };
        let engine = async move {
            let (answer, (mut reader, _writer)) = open(engine, purpose).await.unwrap();
            assert_eq!(answer, Reply::Ready);
            assert_eq!(reader.read().await.unwrap(), Some(Frame::Stderr("oh".into())));
            assert_eq!(reader.read().await.unwrap(), Some(Frame::Eof));
            assert_eq!(reader.read().await.unwrap(), None);
        };
        tokio::join!(guest, engine);
    });
}

/// A refusal and a wrong version are reported.
#[test]
fn refusal_and_version_mismatch_are_reported() {
    run(async {
        let (engine, guest) = tokio::io::duplex(1000);
        let answer = async {
            let mut writer = Writer::new(guest);
            writer.message(&Reply::Refused { reason: "no room".into() }).await.unwrap();
            writer
        };
        let purpose = Purpose::Connect(Endpoint::Tcp { host: "localhost".into(), port: 1 });
        let (opened, _guest) = tokio::join!(open(engine, purpose), answer);
        assert!(matches!(opened, Err(Error::Refused(reason)) if reason == "no room"));

        let (mut engine, guest) = tokio::io::duplex(1000);
        let text = br#"{"version":9,"purpose":"health"}"#;
        engine.write_all(&[1, 0, 0, 0, text.len() as u8]).await.unwrap();
        engine.write_all(text).await.unwrap();
        let (reader, writer) = tokio::io::split(guest);
        let refused = accept(&mut Reader::new(reader), &mut Writer::new(writer)).await;
        assert!(matches!(refused, Err(Error::Refused(reason)) if reason.contains("version 1")));
    });
}

/// Frames that are too long or truncated are rejected.
#[test]
fn oversized_and_truncated_frames_are_rejected() {
    let read = |bytes: Vec<u8>| run(async move { Reader::new(bytes.as_slice()).read().await });
    let header = |kind: u8, length: usize| [&[kind], (length as u32).to_be_bytes().as_slice()].concat();
    for bytes in [header(1, MAX_MESSAGE + 1), header(2, MAX_DATA + 1), header(4, 1), header(9, 0)] {
        assert!(matches!(read(bytes.clone()), Err(Error::Protocol(_))), "{bytes:?}");
    }
    assert!(matches!(read(header(2, 5)), Err(Error::Stream(_))), "dying within a frame is not a protocol error");
    assert!(read(Vec::new()).unwrap().is_none());
}

proptest! {
    /// Random bytes on a stream lead to frames or an error, never to a panic.
    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>) {
        run(async {
            let mut reader = Reader::new(bytes.as_slice());
            while let Ok(Some(frame)) = reader.read().await {
                if let Frame::Message(message) = frame {
                    let _ = Frame::parse::<Purpose>(&message);
                }
            }
        });
    }

    /// Data arrives as it was sent.
    #[test]
    fn data_round_trips(data in proptest::collection::vec(any::<u8>(), 0..300_000), buffer in 1_usize..100_000) {
        run(async {
            let (left, right) = tokio::io::duplex(buffer);
            let sent = async { let mut writer = Writer::new(left); writer.data(&data).await.unwrap(); };
            let got = async {
                let (mut reader, mut all) = (Reader::new(right), Vec::new());
                while let Some(Frame::Data(piece)) = reader.read().await.unwrap() { all.extend(piece); }
                all
            };
            let ((), got) = tokio::join!(sent, got);
            assert_eq!(got, data);
        });
    }
}
