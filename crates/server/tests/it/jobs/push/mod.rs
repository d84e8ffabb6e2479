//! Pushing by WebSocket as the stock client does it, with real commands in a real directory.

mod limits;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tarn_objects::find::VersionSelector;
use tarn_objects::internal;
use tempfile::TempDir;

use crate::jobs::lifecycle::CONFIG;
use crate::support::harness::{DatabaseKind, World};
use crate::support::sockets::{Peer, Received, Served, run};

/// What is in an archive or a directory: the content of files, and where links lead.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn write(directory: &Path, name: &[u8], content: &[u8]) {
    let path = directory.join(OsString::from_vec(name.to_vec()));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn tree(archive: &[u8]) -> Tree {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let mut tree = Tree::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        match entry.link_name_bytes() {
            Some(link) => content.extend_from_slice(&link),
            None => drop(entry.read_to_end(&mut content).unwrap()),
        }
        let path = entry.path().unwrap().into_owned();
        tree.insert(path.strip_prefix(".").unwrap_or(&path).to_owned(), content);
    }
    tree
}

/// What was uploaded for a job, if anything was.
async fn uploaded(world: &World, job: &str) -> Option<Vec<u8>> {
    let (objects, key) = (world.control.objects(), format!("{job}/files"));
    let object = objects.find(&internal::account(), "jobs", &key, &VersionSelector::Current).await.ok()?;
    let mut reading = objects.read(&object, 0..object.size).await.unwrap();
    let mut data = Vec::new();
    while let Some(piece) = reading.next().await {
        data.extend_from_slice(&piece.unwrap());
    }
    Some(data)
}

/// A world with a cluster `box`, and a socket in front of it.
async fn start() -> (World, Served) {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    world.cluster(&world.admin, "box").await;
    let served = Served::new(&world);
    (world, served)
}

/// A socket on which the parameters were sent.
async fn push(served: &Served, key: &str, parameters: Value) -> Peer {
    let mut peer = served.open("/job/push", key).await;
    peer.say(&parameters).await;
    peer
}

fn parameters(config: &str) -> Value {
    json!({ "tp_config": config, "system": "Linux", "cluster_id": "box", "teardown_cluster": false })
}

async fn jobs(world: &World) -> Vec<Value> {
    let listed = world.get(&world.admin, "/job/list?all=true").await;
    listed.body["jobs"].as_array().unwrap().clone()
}

/// Waits until nothing is left of any job.
async fn until_nothing_is_left(world: &World) {
    for _ in 0..600 {
        if jobs(world).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("still there: {:?}", jobs(world).await);
}

/// Pushed files arrive as they are.
#[tokio::test(flavor = "multi_thread")]
async fn pushed_files_arrive() {
    let (world, served) = start().await;
    let directory = TempDir::new().unwrap();
    let expected: [(&[u8], &[u8]); 8] = [
        (b"main.py", b"print(1)\n"),
        (b"with space/it's \"quoted\"", b"a"),
        (b"new\nline", b"b"),
        (b"-rf", b"c"),
        (b"caf\xe9", b"no text"),
        (b"data/keep.bin", b"kept"),
        (b"$(touch bad)", b"d"),
        (b"empty", b""),
    ];
    for (name, content) in expected {
        write(directory.path(), name, content);
    }
    std::os::unix::fs::symlink("main.py", directory.path().join("link")).unwrap();
    for name in [&b".git/config"[..], b"sub/.git/HEAD", b"data/large.bin", b"a.pyc", b"sub/b.pyc"] {
        write(directory.path(), name, b"left out");
    }
    for name in ["hollow/inside", "data/hollow", "sub/.git/refs"] {
        std::fs::create_dir_all(directory.path().join(name)).unwrap();
    }
    let config = "commands = ['true']\nignore = ['data/*', '!data/keep.bin', '.git/', '*.pyc']\n";
    let mut peer = push(&served, &world.admin, parameters(config)).await;

    let listing = peer.frame().await;
    assert!(listing["command_show_stdout"] == json!(false) && listing["message"].is_string(), "{listing}");
    let listed = peer.obey(&listing, directory.path()).await;
    assert!(listed.status.success() && listed.stderr.is_empty(), "{listed:?}");
    let packing = peer.frame().await;
    assert_eq!(packing["message"], "Packing 9 files");
    let packed = peer.obey(&packing, directory.path()).await;
    let (told, progress) = (String::from_utf8_lossy(&packed.stdout), String::from_utf8_lossy(&packed.stderr));
    assert!(packed.status.success() && told.starts_with("Uploading 9 files, 1 kB packed"), "{told} {progress}");
    assert!(progress.contains("100.0%"), "{progress:?}");

    let (frames, code) = peer.rest().await;
    let [last] = frames.as_slice() else { panic!("{frames:?}") };
    let job = last["job_id"].as_str().unwrap().to_owned();
    assert_eq!(code, 1000);
    assert!(last["message"].as_str().unwrap().ends_with(&format!("Listen with `tp job listen {job}`")), "{last}");
    let mut tree = tree(&uploaded(&world, &job).await.unwrap());
    assert_eq!(tree.remove(Path::new("link")).unwrap(), b"main.py");
    assert_eq!(tree.remove(Path::new("hollow/inside")).unwrap(), b"", "empty directories, too");
    let expected = expected.map(|(name, content)| (OsString::from_vec(name.to_vec()).into(), content.to_vec()));
    assert_eq!(tree, Tree::from(expected));
    let info = world.get(&world.admin, &format!("/job/info/{job}")).await;
    assert_eq!(info.body["job_info"]["status"], "pending");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 13, "nothing was added to the directory: {left:?}");
}

/// A job without files needs no upload.
#[tokio::test(flavor = "multi_thread")]
async fn push_without_files_needs_no_upload() {
    let (world, served) = start().await;
    let directory = TempDir::new().unwrap();
    write(directory.path(), b"large.bin", b"left out");
    let mut peer = push(&served, &world.admin, parameters("commands = ['true']\nignore = ['*']\n")).await;
    let listing = peer.frame().await;
    peer.obey(&listing, directory.path()).await;
    let (frames, code) = peer.rest().await;
    assert_eq!((frames.len(), code), (2, 1000), "{frames:?}");
    let job = frames[1]["job_id"].as_str().unwrap();
    assert!(frames.iter().all(|frame| frame.get("command").is_none() && frame["message"].is_string()), "{frames:?}");
    assert_eq!(uploaded(&world, job).await, None);
    assert_eq!(jobs(&world).await.len(), 1);
}

/// Every refusal of a push has its close code.
#[tokio::test(flavor = "multi_thread")]
async fn push_refusals_have_close_codes() {
    let (world, served) = start().await;
    let ada = world.user("ada@example.org", None).await;
    let theirs = world.get(&world.admin, "/cluster/list").await.body["clusters"][0]["id"].clone();
    let with = |field: &str, value: Value| {
        let mut parameters = parameters(CONFIG);
        parameters[field] = value;
        parameters
    };
    let cases = [
        ("tp-wrong", parameters(CONFIG), 4401, "the API key is not valid"),
        (&ada, with("cluster_id", theirs.clone()), 4403, "belongs to someone else"),
        (&ada, parameters(CONFIG), 4404, "not found"),
        (&world.admin, with("cluster_id", json!("nowhere")), 4404, "not found"),
        (&world.admin, parameters("commands = 7"), 4422, "line 1"),
        (&world.admin, parameters("commands = ['true']\nignore = ['[z-a]']"), 4422, "'[z-a]' is not a pattern"),
        (&world.admin, json!({ "tp_config": CONFIG }), 4400, "unexpected frame"),
        (&world.admin, json!([]), 4400, "unexpected frame"),
    ];
    for (key, parameters, code, words) in cases {
        let (message, closed) = push(&served, key, parameters.clone()).await.refusal().await;
        assert!(closed == code && message.contains(words), "{closed} {message} for {parameters}");
    }
    let protect = json!({ "deletion_protection": true });
    world.patch(&world.admin, "/cluster/edit/box", protect).await;
    let teardown = push(&served, &world.admin, with("teardown_cluster", json!(true))).await.refusal().await;
    assert_eq!(teardown.1, 4409, "{}", teardown.0);
    for first in ["{}", "nonsense", "{\"TENSORPOOL_KEY\": 7}", "[]"] {
        let mut peer = served.silent("/job/push").await;
        peer.say_text(first).await;
        assert_eq!(peer.refusal().await.1, 4401, "{first}");
    }
    assert!(jobs(&world).await.is_empty(), "{:?}", jobs(&world).await);
}

/// A push that fails at the client reports why and leaves no job.
#[tokio::test(flavor = "multi_thread")]
async fn failed_push_leaves_no_job() {
    let (world, served) = start().await;
    let directory = TempDir::new().unwrap();
    write(directory.path(), b"a", b"a");
    let begin = async || {
        let mut peer = push(&served, &world.admin, parameters(CONFIG)).await;
        let listing = peer.frame().await;
        (peer, listing)
    };

    // The command fails.
    let (mut peer, listing) = begin().await;
    let failed = run("exit 3", directory.path(), |_| {}).await;
    peer.answer(listing["command"].as_str().unwrap(), &failed).await;
    let (message, code) = peer.refusal().await;
    assert!(code == 4400 && message.contains("could not be listed (exit code 3)"), "{message}");

    // The client sends another output than the command has.
    let (mut peer, _) = begin().await;
    peer.say(&json!({ "exit_code": 0, "command_stdout": "hello" })).await;
    let (message, code) = peer.refusal().await;
    assert!(code == 4400 && message.contains("damaged in transit"), "{message}");

    // It has no curl.
    let (mut peer, listing) = begin().await;
    peer.obey(&listing, directory.path()).await;
    let packing = peer.frame().await;
    let command = packing["command"].as_str().unwrap();
    let bare = TempDir::new().unwrap();
    let output = run(command, directory.path(), |shell| {
        shell.env("PATH", bare.path());
    })
    .await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("curl is needed to upload files"), "{words}");
    peer.answer(command, &output).await;
    assert_eq!(peer.refusal().await.1, 4400);

    // A file is gone when it is packed.
    let (mut peer, listing) = begin().await;
    peer.obey(&listing, directory.path()).await;
    let packing = peer.frame().await;
    std::fs::remove_file(directory.path().join("a")).unwrap();
    let output = peer.obey(&packing, directory.path()).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("the files could not be packed"), "{words}");
    assert_eq!(peer.refusal().await.1, 4400);
    write(directory.path(), b"a", b"a");

    // The engine has forgotten the job meanwhile.
    let (mut peer, listing) = begin().await;
    peer.obey(&listing, directory.path()).await;
    let packing = peer.frame().await;
    let job = jobs(&world).await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.delete(&world.admin, &format!("/job/delete/{job}")).await.status, 200);
    let output = peer.obey(&packing, directory.path()).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("the list of the files could not be fetched"), "{words}");
    assert_eq!(peer.refusal().await.1, 4400);

    // It does not take the files.
    let (mut peer, listing) = begin().await;
    peer.obey(&listing, directory.path()).await;
    let packing = peer.frame().await;
    let first = run(packing["command"].as_str().unwrap(), directory.path(), |_| {}).await;
    assert!(first.status.success(), "{first:?}");
    let output = peer.obey(&packing, directory.path()).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("has its files already"), "{words}");
    assert!(words.contains("the engine refused the upload (HTTP status 409)"), "{words}");
    assert_eq!(peer.refusal().await.1, 4400);
    assert!(jobs(&world).await.is_empty(), "{:?}", jobs(&world).await);
}

/// A client that disconnects leaves no job.
#[tokio::test(flavor = "multi_thread")]
async fn disconnected_push_leaves_nothing() {
    let (world, served) = start().await;
    let directory = TempDir::new().unwrap();
    write(directory.path(), b"a", b"a");
    // Before the list.
    let mut peer = push(&served, &world.admin, parameters(CONFIG)).await;
    let listing = peer.frame().await;
    assert_eq!(jobs(&world).await.len(), 1);
    drop(peer);
    until_nothing_is_left(&world).await;
    // After the upload, before the client has reported it.
    let mut peer = push(&served, &world.admin, parameters(CONFIG)).await;
    peer.frame().await;
    peer.obey(&listing, directory.path()).await;
    let packing = peer.frame().await;
    let output = run(packing["command"].as_str().unwrap(), directory.path(), |_| {}).await;
    assert!(output.status.success(), "{output:?}");
    drop(peer);
    until_nothing_is_left(&world).await;
}

/// The list of files is available until the push ends.
#[tokio::test(flavor = "multi_thread")]
async fn file_list_lasts_until_push_ends() {
    let (world, served) = start().await;
    let directory = TempDir::new().unwrap();
    write(directory.path(), b"a", b"a");
    let mut peer = push(&served, &world.admin, parameters(CONFIG)).await;
    let listing = peer.frame().await;
    peer.obey(&listing, directory.path()).await;
    let packing = peer.frame().await;
    let command = packing["command"].as_str().unwrap();
    let url = command.split('\'').find(|word| word.contains("/job/files/")).unwrap().to_owned();
    let place = TempDir::new().unwrap();
    let fetch = async |options: &str| {
        let fetch = format!("curl -s {options} -o list -w '%{{http_code}}' '{url}'");
        let fetched = run(&fetch, place.path(), |_| {}).await;
        String::from_utf8_lossy(&fetched.stdout).into_owned()
    };
    assert_eq!(fetch("-I").await, "200");
    for _ in 0..2 {
        assert_eq!(fetch("").await, "200");
        assert_eq!(std::fs::read(place.path().join("list")).unwrap(), b"./a\0");
    }
    let output = peer.obey(&packing, directory.path()).await;
    assert!(output.status.success(), "{output:?}");
    let (frames, code) = peer.rest().await;
    assert_eq!((frames.len(), code), (1, 1000));
    assert_eq!(fetch("").await, "404");
    let key = format!("{}/list", frames[0]["job_id"].as_str().unwrap());
    let left = world.control.objects().find(&internal::account(), "jobs", &key, &VersionSelector::Current).await;
    assert!(left.is_err(), "nothing is kept of it");
    assert!(matches!(peer.next().await, Received::Broken), "after the close comes nothing");
}

/// A file that changes while it is packed does not fail the push.
#[tokio::test(flavor = "multi_thread")]
async fn changing_file_does_not_fail_push() {
    let (world, served) = start().await;
    let (directory, programs) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(directory.path(), b"a", b"a");
    let mut peer = push(&served, &world.admin, parameters(CONFIG)).await;
    let listing = peer.frame().await;
    peer.obey(&listing, directory.path()).await;
    let packing = peer.frame().await;
    // It packs the files and exits as GNU tar does then.
    let tar = "#!/bin/sh\nPATH=${PATH#*:}\n[ \"$1\" = --version ] && exec tar --version\ntar \"$@\" && exit 1\n";
    write(programs.path(), b"tar", tar.as_bytes());
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(programs.path().join("tar"), executable).unwrap();
    let command = packing["command"].as_str().unwrap();
    let first = format!("PATH='{}':$PATH\n{command}", programs.path().display());
    let output = run(&first, directory.path(), |_| {}).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && words.contains("Some files changed while they were packed"), "{words}");
    peer.answer(command, &output).await;
    let (frames, code) = peer.rest().await;
    assert_eq!((frames.len(), code), (1, 1000));
}

/// A member cannot push a job that tears down a cluster of another member, and can push one that does not.
#[tokio::test(flavor = "multi_thread")]
async fn push_tears_down_no_cluster_of_others() {
    let (world, served) = start().await;
    let member = world.user("member@example.org", Some("default")).await;
    let mut asked = parameters(CONFIG);
    asked["teardown_cluster"] = json!(true);
    let (message, code) = push(&served, &member, asked).await.refusal().await;
    assert_eq!(code, 4403, "{message}");
    assert!(message.contains("admin@localhost") && message.contains("tear down"), "{message}");
    assert!(world.get(&member, "/job/list?include_org=true&all=true").await.body["jobs"] == json!([]));
    let listing = push(&served, &member, parameters(CONFIG)).await.frame().await;
    assert_ne!(listing["status"], "error", "{listing}");
}
