//! What is open for a user ends when their API key is revoked or they are disabled: pushes, listeners, long polls, and
//! the URLs that they got.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::jobs::lifecycle::{CONFIG, HOST, archive, target};
use crate::support::harness::{Call, DatabaseKind, World};
use crate::support::sockets::{Peer, Served, run};

const ADA: &str = "ada@example.org";

/// A world with a user, who has the key that is returned, their cluster `box`, and a socket in front of it.
async fn start() -> (World, Served, String) {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let ada = world.user(ADA, Some("default")).await;
    world.cluster(&ada, "box").await;
    let served = Served::new(&world);
    (world, served, ada)
}

/// The jobs that an administrator of the same organization sees.
async fn jobs(world: &World) -> Vec<Value> {
    let listed = world.get(&world.admin, "/job/list?all=true&include_org=true").await;
    listed.body["jobs"].as_array().unwrap().clone()
}

/// A push that waits for how a command ended: the listing of the directory, or the upload.
async fn open_push(served: &Served, key: &str, commands: usize) -> (Peer, String) {
    let mut peer = served.open("/job/push", key).await;
    let parameters = json!({ "tp_config": CONFIG, "system": "Linux", "cluster_id": "box", "teardown_cluster": false });
    peer.say(&parameters).await;
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::write(directory.path().join("main.py"), "print(1)").unwrap();
    for _ in 1..commands {
        let frame = peer.frame().await;
        peer.obey(&frame, directory.path()).await;
    }
    let command = peer.frame().await["command"].as_str().unwrap().to_owned();
    (peer, command)
}

/// A push whose key is revoked before the client answers starts no job, and its socket is closed with 4401.
#[tokio::test(flavor = "multi_thread")]
async fn push_after_revocation_starts_no_job() {
    let (world, served, ada) = start().await;
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::write(directory.path().join("main.py"), "print(1)").unwrap();
    let (mut peer, command) = open_push(&served, &ada, 2).await;
    // The upload itself was done in time. No check has noticed the revocation when the client answers.
    let output = run(&command, directory.path(), |_| {}).await;
    assert!(output.status.success(), "{output:?}");
    world.revoke(ADA).await;
    peer.answer(&command, &output).await;
    let (message, code) = peer.refusal().await;
    assert_eq!(code, 4401, "{message}");
    assert!(jobs(&world).await.is_empty(), "{:?}", jobs(&world).await);
}

/// Sockets are closed with 4401 whatever they wait for, and long polls end.
#[tokio::test(flavor = "multi_thread")]
async fn open_sockets_end_with_access() {
    let (world, served, ada) = start().await;
    let _watch = world.watch_access();
    let job = world.pending_job(&ada, "box").await;
    world.write_log(&job, 0, b"hello\n").await;
    // One waits for the parameters, one for the listing, one for the upload; two follow a log.
    let mut peers = vec![served.open("/job/push", &ada).await];
    for commands in 1..=2 {
        peers.push(open_push(&served, &ada, commands).await.0);
    }
    let mut listener = served.open(&format!("/job/listen/{job}"), &ada).await;
    assert_eq!(listener.frame().await, json!({ "message": "hello" }));
    peers.push(listener);
    let mut other = served.open(&format!("/job/listen/{job}"), &world.admin).await;
    assert_eq!(other.frame().await, json!({ "message": "hello" }));
    let poll = Call::new(Method::GET, &format!("/job/logs/{job}?offset=6&wait=60")).key(&ada);
    // Long before the wait is over.
    let poll = tokio::time::timeout(Duration::from_secs(30), world.call(poll));
    let (polled, ()) = tokio::join!(poll, async {
        // The poll is polled first, so it has begun.
        world.disable(ADA).await;
    });
    assert_eq!(polled.expect("it ends early").refusal(), (401, "user_disabled".to_owned()));
    for (number, mut peer) in peers.into_iter().enumerate() {
        let (message, code) = peer.refusal().await;
        assert_eq!(code, 4401, "{number}: {message}");
    }
    assert_eq!(jobs(&world).await.len(), 1, "the drafts of the pushes are gone");
    world.write_log(&job, 6, b"still\n").await;
    assert_eq!(other.frame().await, json!({ "message": "still" }), "another user goes on");
}

/// Signed URLs are refused once their user is disabled, are those of a user for an hour, and are recorded as one event.
#[tokio::test(flavor = "multi_thread")]
async fn signed_urls_end_with_access() {
    let (world, _served, ada) = start().await;
    let body = json!({ "tp_config": CONFIG, "cluster_id": "box" });
    let upload = world.create_job(&ada, body).await.text("upload_url");
    let job = world.pending_job(&ada, "box").await;
    world.post(&ada, &format!("/job/cancel/{job}"), json!({})).await;
    world.keep_output(&job, "out/a", b"first").await;
    world.keep_output(&job, "out/b", b"second").await;
    let pull = Call::new(Method::GET, &format!("/job/pull/{job}")).key(&ada).header("host", HOST.as_bytes());
    let pulled = world.call(pull).await;
    let output = target(pulled.body["download_map"]["out/a"].as_str().unwrap()).to_owned();
    assert_eq!(world.raw(Method::GET, &output, &[]).await.0, 200);
    let issued: Vec<_> = world.events("job.sign_urls").await.into_iter().map(|event| event.detail).collect();
    assert_eq!(issued, [json!({ "grant": "upload", "count": 1 }), json!({ "grant": "output", "count": 2 })]);

    // What an older program signed names no user.
    let without = |name: &str, url: &str| {
        let (path, query) = url.split_once('?').unwrap();
        let rest: Vec<&str> = query.split('&').filter(|part| !part.starts_with(name)).collect();
        format!("{path}?{}", rest.join("&"))
    };
    for name in ["user=", "key="] {
        let refused = world.call(Call::new(Method::GET, &without(name, &output))).await;
        assert_eq!(refused.refusal(), (403, "invalid_signature".to_owned()));
        assert!(refused.message().contains("pull again"), "{refused:?}");
    }

    world.disable(ADA).await;
    let put = world.call(Call::new(Method::PUT, target(&upload)).raw(&archive("a", b"a"))).await;
    let get = world.call(Call::new(Method::GET, &output)).await;
    for refused in [put, get] {
        assert_eq!(refused.refusal(), (403, "url_revoked".to_owned()));
    }
    world.enable(ADA).await;
    assert_eq!(world.raw(Method::GET, &output, &[]).await.0, 200);
    world.wait(Duration::from_secs(3601)).await;
    assert_eq!(world.raw(Method::GET, &output, &[]).await.0, 403, "it has expired");
}
