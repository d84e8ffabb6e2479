//! Listening by WebSocket as the stock client does it.

use serde_json::{Value, json};

use crate::support::harness::{DatabaseKind, World};
use crate::support::sockets::Served;

/// A world with a job that waits, and a socket in front of it.
async fn start() -> (World, Served, String) {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let cluster = world.cluster(&world.admin, "box").await;
    let job = world.pending_job(&world.admin, &cluster).await;
    let served = Served::new(&world);
    (world, served, job)
}

/// What the stock client prints of frames: each message that is not empty, with a newline.
fn printed(frames: &[Value]) -> String {
    let messages = frames.iter().filter_map(|frame| frame["message"].as_str()).filter(|message| !message.is_empty());
    messages.map(|message| format!("{message}\n")).collect()
}

async fn cancel(world: &World, job: &str) {
    assert_eq!(world.post(&world.admin, &format!("/job/cancel/{job}"), json!({})).await.status, 202);
}

/// A listener gets the whole log from its first line, and then the outcome.
#[tokio::test(flavor = "multi_thread")]
async fn listener_gets_whole_log_and_end() {
    let (world, served, job) = start().await;
    let written = b"first\n\nsecond \xff\nbar 1%\rbar 99%\r\nhalf a li";
    world.write_log(&job, 0, written).await;
    let mut early = served.open(&format!("/job/listen/{job}"), &world.admin).await;
    let first = early.frame().await;
    assert_eq!(first, json!({ "message": "first\n\nsecond \u{fffd}\nbar 99%" }));
    assert_eq!(early.frame().await, json!({ "message": "half a li" }), "it is shown although its end does not come");
    world.write_log(&job, written.len() as u64, b"ne\nlast").await;
    cancel(&world, &job).await;
    let (frames, code) = early.rest().await;
    let end = json!({ "status": "error", "message": format!("Job {job} was canceled. Fetch its outputs with `tp job pull {job}`.") });
    assert_eq!((printed(&frames[..frames.len() - 1]).as_str(), frames.last(), code), ("ne\nlast\n", Some(&end), 1000));

    let mut late = served.open(&format!("/job/listen/{job}"), &world.admin).await;
    let (frames, code) = late.rest().await;
    let (last, output) = frames.split_last().unwrap();
    assert_eq!((last, code), (&end, 1000));
    assert_eq!(printed(output), "first\n\nsecond \u{fffd}\nbar 99%\nhalf a line\nlast\n");
}

/// A long log comes in frames that clients accept.
#[tokio::test(flavor = "multi_thread")]
async fn long_log_comes_in_small_frames() {
    let (world, served, job) = start().await;
    let lines: String = (0..200_000).map(|n| format!("\u{1b}[3{}m\"line\"\t{n} ✓\u{1b}[0m\n", n % 8)).collect();
    let mut at = 0;
    for piece in lines.as_bytes().chunks(900_001) {
        world.write_log(&job, at, piece).await;
        at += piece.len() as u64;
    }
    cancel(&world, &job).await;
    let mut peer = served.open(&format!("/job/listen/{job}"), &world.admin).await;
    let (frames, code) = peer.rest().await;
    assert_eq!(code, 1000);
    assert!(printed(&frames[..frames.len() - 1]) == lines, "something is missing or different");
}

/// Many clients listen, and some leave.
#[tokio::test(flavor = "multi_thread")]
async fn listeners_come_and_go() {
    let (world, served, job) = start().await;
    let path = format!("/job/listen/{job}");
    let mut peers = Vec::new();
    for _ in 0..50 {
        peers.push(served.open(&path, &world.admin).await);
    }
    world.write_log(&job, 0, b"hello\n").await;
    peers.truncate(40);
    cancel(&world, &job).await;
    for mut peer in peers {
        let (frames, code) = peer.rest().await;
        assert_eq!((frames.len(), &frames[0], code), (2, &json!({ "message": "hello" }), 1000));
    }
}

/// A listener that does not read blocks no other listener.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_listener_blocks_no_other() {
    let (world, served, job) = start().await;
    let path = format!("/job/listen/{job}");
    let (asleep, mut awake) = (served.open(&path, &world.admin).await, served.open(&path, &world.admin).await);
    // More than the sockets and what is kept in memory can hold.
    let line = format!("{}\n", "x".repeat((1 << 20) - 1));
    for number in 0..32 {
        world.write_log(&job, number << 20, line.as_bytes()).await;
    }
    cancel(&world, &job).await;
    let (frames, code) = awake.rest().await;
    let length: usize = frames.iter().filter_map(|frame| frame["message"].as_str()).map(str::len).sum();
    assert!(length >= 31 << 20 && code == 1000, "{length} {code}");
    drop(asleep);
}

/// A client cannot listen to the job of another tenant.
#[tokio::test(flavor = "multi_thread")]
async fn listening_needs_access() {
    let (world, served, job) = start().await;
    let eve = world.user("eve@example.org", Some("evil")).await;
    let mine = format!("/job/listen/{job}");
    let cases = [
        (mine.as_str(), "tp-wrong", 4401),
        (mine.as_str(), eve.as_str(), 4403),
        ("/job/listen/j-000000000000", eve.as_str(), 4404),
        ("/job/listen/nonsense", eve.as_str(), 4400),
    ];
    for (path, key, expected) in cases {
        let (message, code) = served.open(path, key).await.refusal().await;
        assert_eq!(code, expected, "{path} {message}");
    }
    let plain = world.get(&world.admin, &mine).await;
    assert_eq!(plain.text("code"), "websocket_expected");
}
