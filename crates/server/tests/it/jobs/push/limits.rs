//! What a push may cost: frames, pushes at the same time, lists of files, and patterns.

use std::io::Read;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{jobs, parameters, push, start, until_nothing_is_left, write};
use crate::jobs::lifecycle::CONFIG;
use crate::support::sockets::{Peer, Served};

/// A frame above the limit is refused.
#[tokio::test(flavor = "multi_thread")]
async fn large_frame_is_refused() {
    let (world, served) = start().await;
    let mut peer = push(&served, &world.admin, parameters(CONFIG)).await;
    peer.frame().await;
    let large = "a".repeat(40 << 20);
    peer.say(&json!({ "exit_code": 0, "command_stdout": large })).await;
    let (message, code) = peer.refusal().await;
    assert!(code == 1009 && message.contains("the frame is too large"), "{code} {message}");
    until_nothing_is_left(&world).await;
}

/// A user can have only so many pushes at once.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_bounded_per_user() {
    let (world, served) = start().await;
    let ada = world.user("ada@example.org", None).await;
    world.cluster(&ada, "box").await;
    let mut peers = Vec::new();
    for _ in 0..8 {
        let mut peer = push(&served, &world.admin, parameters(CONFIG)).await;
        peer.frame().await;
        peers.push(peer);
    }
    let (message, code) = served.open("/job/push", &world.admin).await.refusal().await;
    assert!(code == 4400 && message.contains("you have 8 pushes at the same time"), "{code} {message}");
    push(&served, &ada, parameters(CONFIG)).await.frame().await;
    // A place is free again when its client has gone.
    drop(peers);
    for _ in 0..600 {
        if push(&served, &world.admin, parameters(CONFIG)).await.frame().await["command"].is_string() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no place became free");
}

/// The names of many files are not part of the command.
#[tokio::test(flavor = "multi_thread")]
async fn many_file_names_are_not_in_command() {
    let (world, served) = start().await;
    let mut peer = push(&served, &world.admin, parameters("commands = ['true']\nignore = ['skip/']\n")).await;
    peer.frame().await;
    let names: Vec<u8> =
        (0..200_000).flat_map(|n| format!("./{}/file {n}\0", ["skip", "data"][n % 2]).into_bytes()).collect();
    let mut gzip = flate2::read::GzEncoder::new(names.as_slice(), flate2::Compression::fast());
    let mut packed = Vec::new();
    gzip.read_to_end(&mut packed).unwrap();
    let stdout = base64_simd::STANDARD.encode_to_string(packed);
    peer.say(&json!({ "exit_code": 0, "command_stdout": stdout })).await;
    let packing = peer.frame().await;
    assert_eq!(packing["message"], "Packing 100000 files");
    assert!(packing["command"].as_str().unwrap().len() < 4096);
    let (frames, code) = {
        peer.say(&json!({ "exit_code": 1 })).await;
        peer.rest().await
    };
    assert_eq!((frames.len(), code), (1, 4400));
}

/// A push whose patterns take very long to match: as many as a job file may have, with long names.
async fn hostile_push(served: &Served, key: &str) -> Peer {
    let mut peer = push(served, key, parameters(&hostile_config())).await;
    peer.frame().await;
    peer.say(&hostile_listing()).await;
    peer
}

/// Many long names.
fn hostile_listing() -> Value {
    let mut names = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut random = 7u64;
    for _ in 0..5_000 {
        let letters: Vec<u8> = (0..1000)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                b"ab"[(random >> 40) as usize & 1]
            })
            .collect();
        std::io::Write::write_all(&mut names, &[b"./", letters.as_slice(), b"\0"].concat()).unwrap();
    }
    let listed = base64_simd::STANDARD.encode_to_string(names.finish().unwrap());
    json!({ "exit_code": 0, "command_stdout": listed })
}

/// A job file with as many wildcards as it may have.
fn hostile_config() -> String {
    let pattern = |number: u32| {
        let letters = (0..16).map(|at| if number >> (at % 8) & 1 == 0 { "*a" } else { "*b" });
        format!("'{}????'", letters.collect::<String>())
    };
    let patterns: Vec<String> = (0..200).map(pattern).collect();
    format!("commands = ['true']\nignore = [{}]\n", patterns.join(","))
}

/// While hostile patterns of one organization are matched, another organization pushes. When the engine stops, the match ends.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_patterns_do_not_block_others() {
    let (world, served) = start().await;
    // One is being matched; the others wait for it, because they are of the same organization. The client of each has
    // said which files there are before the engine asks, so that it would be matched if it could.
    let mut hostile = vec![hostile_push(&served, &world.admin).await];
    let mut early = Vec::new();
    for _ in 0..3 {
        let mut peer = push(&served, &world.admin, parameters(&hostile_config())).await;
        early.push(tokio::spawn(async move {
            peer.say(&hostile_listing()).await;
            peer
        }));
    }
    let other = world.user("eve@example.org", Some("other")).await;
    world.cluster(&other, "box").await;
    let directory = TempDir::new().unwrap();
    write(directory.path(), b"main.py", b"print(1)\n");
    let mut peer = push(&served, &other, parameters(CONFIG)).await;
    let listing = peer.frame().await;
    peer.obey(&listing, directory.path()).await;
    assert_eq!(peer.frame().await["message"], "Packing 1 file");

    world.app.stop_waiting();
    for peer in early {
        hostile.push(peer.await.unwrap());
    }
    for mut peer in hostile {
        let (frames, code) = peer.rest().await;
        let shown = format!("{frames:?} {code}");
        assert!(shown.contains("the engine is stopping"), "it was being matched, or waited for that: {shown}");
    }
    // The runtime waits for its blocking threads when this test ends.
}

/// Patterns that would take too long are refused before anything is listed.
#[tokio::test(flavor = "multi_thread")]
async fn patterns_with_many_stars_are_refused() {
    let (world, served) = start().await;
    let config = format!("commands = ['true']\nignore = ['{}']\n", "*a".repeat(80));
    let (frames, code) = push(&served, &world.admin, parameters(&config)).await.rest().await;
    let shown = format!("{frames:?} {code}");
    assert!(shown.contains("an entry of ignore has 80 stars, and 16 are allowed") && code == 4422, "{shown}");
    assert!(jobs(&world).await.is_empty());
}
