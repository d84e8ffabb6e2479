//! Uploads of job files, and the signatures that permit them.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use futures::{StreamExt, stream};
use rstest::rstest;
use tarn_control::jobs::signed::{Grant, Signature, sign, verify};
use tarn_control::jobs::{file_lists, upload};
use tarn_control::operations::admin;
use tarn_control::operations::jobs::{self, NewJob};
use tarn_control::reconcilers::revocations;
use tarn_control::testing::{World, world};
use tarn_control::{JobSettings, Kind, Result, Settings};
use tarn_model::ids::JobId;
use tarn_objects::find::VersionSelector;
use tarn_objects::internal;
use tarn_store::testing::DatabaseKind;

use super::operations::new;
use super::support::eventually;

type Pieces = Vec<std::io::Result<bytes::Bytes>>;

/// Returns an archive with an incompressible file, so that it does not fit into a row.
fn archive(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    let data: Vec<u8> = (0..bytes).map(|_| noise()).collect();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "data/noise.bin", data.as_slice()).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&builder.into_inner().unwrap()).unwrap();
    encoder.finish().unwrap()
}

fn pieces(data: &[u8]) -> Pieces {
    data.chunks(30_000).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect()
}

async fn send(world: &World, job: &JobId, data: &[u8]) -> Result<u64> {
    upload::receive(&world.control, &world.caller, job, Some(data.len() as u64), stream::iter(pieces(data))).await
}

async fn draft(world: &World) -> JobId {
    let cluster = world.running("1xCPU", 1).await;
    let wanted = NewJob { has_files: true, ..new(&cluster) };
    jobs::create(&world.control, &world.caller, wanted).await.unwrap().job.id
}

/// Returns the stored archive of a job.
async fn kept(world: &World, job: &JobId) -> Option<Vec<u8>> {
    let objects = world.control.objects();
    let found =
        objects.find(&internal::account(), "jobs", &format!("{job}/files"), &VersionSelector::Current).await.ok()?;
    let mut reading = objects.read(&found, 0..found.size).await.unwrap();
    let mut data = Vec::new();
    while let Some(piece) = reading.next().await {
        data.extend_from_slice(&piece.unwrap());
    }
    Some(data)
}

/// Counts the files of object storage on disk.
fn files(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let count = |path: std::path::PathBuf| if path.is_dir() { files(&path) } else { 1 };
    entries.map(|entry| count(entry.unwrap().path())).sum()
}

/// Waits until object storage has no file on disk.
async fn assert_nothing_is_left(world: &World) {
    let dir = world.fresh.dir.path().join("objects");
    eventually("no files are left", || files(&dir) == 0).await;
}

/// A job accepts one archive.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn archive_is_accepted_once(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let job = draft(&world).await;
    let data = archive(1, 500_000);
    assert_eq!(send(&world, &job, &data).await.unwrap(), data.len() as u64);
    assert_eq!(kept(&world, &job).await.as_deref(), Some(data.as_slice()));
    let again = send(&world, &job, &archive(2, 100)).await.unwrap_err();
    assert_eq!(again.code, "already_uploaded");
    assert_eq!(kept(&world, &job).await.as_deref(), Some(data.as_slice()), "the first one stays");
    let started = jobs::start(&world.control, &world.caller, job.as_str()).await.unwrap().job;
    assert_eq!(started.archive_bytes, Some(data.len() as u64));
    assert_eq!(send(&world, &job, &data).await.unwrap_err().code, "job_started");
    let unknown = send(&world, &"j-000000000000".parse().unwrap(), &data).await.unwrap_err();
    assert_eq!(unknown.code, "not_found");
}

/// Of several concurrent uploads, one is stored as a whole.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_store_one_archive(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(world) = world(engine).await else { return };
    let job = draft(&world).await;
    let archives: Vec<Vec<u8>> = (1..5).map(|seed| archive(seed, 60_000 + seed as usize * 1000)).collect();
    let sent = futures::future::join_all(archives.iter().map(|data| send(&world, &job, data))).await;
    let winners: Vec<usize> = (0..sent.len()).filter(|at| sent[*at].is_ok()).collect();
    assert_eq!(winners.len(), 1, "{sent:?}");
    assert!(sent.iter().flat_map(Result::as_ref).count() == 1);
    assert_eq!(kept(&world, &job).await.as_ref(), Some(&archives[winners[0]]));
    let view = jobs::info(&world.control, &world.caller, job.as_str()).await.unwrap();
    assert_eq!(view.job.archive_bytes, Some(archives[winners[0]].len() as u64));
}

/// An upload that breaks off leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn broken_upload_leaves_nothing() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let job = draft(&world).await;
    let data = archive(3, 900_000);
    let half = stream::iter(pieces(&data[..600_000])).chain(stream::pending());
    let receiving = upload::receive(&world.control, &world.caller, &job, None, half);
    assert!(
        tokio::time::timeout(Duration::from_millis(300), receiving).await.is_err(),
        "the upload waits for the rest"
    );
    assert_nothing_is_left(&world).await;

    let mut broken = pieces(&data[..600_000]);
    broken.push(Err(std::io::Error::other("reset by peer")));
    let error = upload::receive(&world.control, &world.caller, &job, None, stream::iter(broken)).await.unwrap_err();
    assert_eq!(error.code, "upload_broken");
    let short = upload::receive(&world.control, &world.caller, &job, Some(1_000_000), stream::iter(pieces(&data)))
        .await
        .unwrap_err();
    assert_eq!(short.code, "upload_broken");
    let cut = upload::receive(&world.control, &world.caller, &job, None, stream::iter(pieces(&data[..600_000])))
        .await
        .unwrap_err();
    assert_eq!(cut.code, "invalid_archive");
    assert_nothing_is_left(&world).await;
    assert_eq!(kept(&world, &job).await, None);
    send(&world, &job, &data).await.unwrap();
}

/// An archive above a limit is refused.
#[tokio::test(flavor = "multi_thread")]
async fn oversized_archive_is_refused() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let jobs = JobSettings { max_upload_bytes: 100_000, max_unpacked_bytes: 80_000, ..JobSettings::default() };
    let world = world.with_settings(Settings { jobs, ..Settings::default() });
    let job = draft(&world).await;
    let declared =
        upload::receive(&world.control, &world.caller, &job, Some(100_001), stream::iter(Pieces::new())).await;
    assert_eq!(declared.unwrap_err().code, "archive_too_large");
    let large = archive(4, 200_000);
    let streamed = upload::receive(&world.control, &world.caller, &job, None, stream::iter(pieces(&large))).await;
    assert_eq!(streamed.unwrap_err().code, "archive_too_large");
    let unpacked = send(&world, &job, &archive(4, 90_000)).await.unwrap_err();
    assert_eq!(unpacked.code, "archive_too_large");
    assert_nothing_is_left(&world).await;
}

/// A discarded draft accepts no files.
#[tokio::test(flavor = "multi_thread")]
async fn discarded_draft_accepts_no_files() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let job = draft(&world).await;
    let (control, id) = (world.control.clone(), job.clone());
    let data = archive(5, 400_000);
    // The draft is discarded when most of the archive has arrived.
    let body = stream::iter(pieces(&data)).enumerate().then(move |(at, piece)| {
        let (control, id) = (control.clone(), id.clone());
        async move {
            if at == 10 {
                jobs::discard(&control, &id).await.unwrap();
            }
            piece
        }
    });
    let error = upload::receive(&world.control, &world.caller, &job, None, Box::pin(body)).await.unwrap_err();
    assert_eq!(error.code, "not_found");
    assert_eq!(kept(&world, &job).await, None);
    assert_nothing_is_left(&world).await;
}

/// A signature permits one action until it expires.
#[tokio::test(flavor = "multi_thread")]
async fn signature_permits_one_action_until_expiry() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let control = &world.control;
    let (job, other): (JobId, JobId) = ("j-000000000001".parse().unwrap(), "j-000000000002".parse().unwrap());
    let good = sign(control, &world.caller, Grant::Output, &job, "a/b");
    let code = async |grant, job, subject, signature: &Signature| {
        verify(control, grant, job, subject, signature).await.err().map(|error| error.code)
    };
    assert_eq!(code(Grant::Output, &job, "a/b", &good).await, None);
    let refused = Some("invalid_signature");
    assert_eq!(code(Grant::Upload, &job, "a/b", &good).await, refused);
    assert_eq!(code(Grant::Output, &other, "a/b", &good).await, refused);
    assert_eq!(code(Grant::Output, &job, "a/c", &good).await, refused);
    let stranger = world.other_tenant().await;
    let later = good.expires.after(Duration::from_secs(1));
    for changed in [
        Signature { expires: later, ..good.clone() },
        Signature { user: stranger.user.id, ..good.clone() },
        Signature { key: stranger.key, ..good.clone() },
    ] {
        assert_eq!(code(Grant::Output, &job, "a/b", &changed).await, refused, "{changed:?}");
    }
    let mac = &good.mac;
    let flipped = if mac.starts_with('0') { "1" } else { "0" }.to_owned() + &mac[1..];
    for bad in ["", "0", "zz", &mac[1..], flipped.as_str(), &"0".repeat(64), &mac.repeat(2)] {
        let bad = Signature { mac: bad.to_owned(), ..good.clone() };
        assert_eq!(code(Grant::Output, &job, "a/b", &bad).await, refused, "{bad:?}");
    }
    world.wait(Duration::from_secs(3600)).await;
    assert_eq!(code(Grant::Output, &job, "a/b", &good).await, refused, "it has expired");
}

/// An upload ends when the key of its caller is revoked, nothing of it is left, and its URL is refused.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn upload_ends_with_access(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let (control, org) = (&world.control, Some("default"));
    let (ada, ben) = (world.member("ada@example.org", org).await, world.member("ben@example.org", org).await);
    let wanted = || NewJob { has_files: true, ..new(&cluster) };
    let job = jobs::create(control, &ada, wanted()).await.unwrap().job.id;
    let other = jobs::create(control, &ben, wanted()).await.unwrap().job.id;
    let [mine, theirs] = [(&ada, &job), (&ben, &other)].map(|(of, job)| sign(control, of, Grant::Upload, job, ""));
    // The client sends a part and then nothing more.
    let waits = tokio::sync::Notify::new();
    let silence = stream::once(async {
        waits.notify_one();
        std::future::pending().await
    });
    let part = stream::iter(pieces(&archive(1, 90_000)).into_iter().take(2)).chain(silence);
    let uploading = upload::receive(control, &ada, &job, None, Box::pin(part));
    let revoking = async {
        waits.notified().await;
        admin::revoke_key(control, &world.caller, ada.key.as_str()).await.unwrap();
        admin::disable_user(control, &world.caller, ben.user.id.as_str(), true).await.unwrap();
        loop {
            revocations::tick(control).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = tokio::select! {
        ended = uploading => ended.unwrap_err(),
        () = revoking => unreachable!("the loop does not end"),
    };
    assert_eq!(ended.code, "url_revoked");
    for (job, signature) in [(&job, mine), (&other, theirs)] {
        let refused = verify(control, Grant::Upload, job, "", &signature).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (Kind::Forbidden, "url_revoked"));
    }
    assert_eq!(kept(&world, &job).await, None);
    assert_nothing_is_left(&world).await;
    // A caller who was authenticated before changes nothing, even if no check has ended them yet.
    let data = archive(2, 100);
    let body = || stream::iter(pieces(&data));
    assert_eq!(upload::receive(control, &ben, &other, None, body()).await.unwrap_err().code, "url_revoked");
    let list = bytes::Bytes::from_static(b"a");
    assert_eq!(file_lists::keep(control, &ben, &other, list).await.unwrap_err().code, "user_disabled");
    assert_eq!(jobs::without_files(control, &ben, &other).await.unwrap_err().code, "user_disabled");
    assert_eq!(jobs::refresh_draft(control, &ben, &other).await.unwrap_err().code, "user_disabled");
}
