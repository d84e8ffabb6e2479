//! What is kept for jobs is counted exactly, and limited for each organization.

use bytes::Bytes;
use futures::stream;
use rstest::rstest;
use tarn_control::jobs::{outputs, upload};
use tarn_control::operations::jobs::{self, JobView, NewJob};
use tarn_control::testing::{World, world};
use tarn_control::{JobSettings, Settings, reconcilers};
use tarn_model::ids::JobId;
use tarn_model::limits::Limits;
use tarn_store::testing::DatabaseKind;
use tarn_store::usage;

use super::after_end::archive;
use super::support::Stage;

/// Returns the bytes that are counted for the caller's jobs, after comparing them with what the rows say.
async fn counted(world: &World) -> u64 {
    let scope = world.caller.user.org.as_ref().map_or(world.caller.user.id.as_str(), |org| org.as_str());
    let read =
        world.store.read(|tx| Ok::<_, tarn_store::Error>((usage::counters(tx, scope)?, usage::recount(tx, scope)?)));
    let (counters, recount) = read.await.unwrap();
    assert_eq!(counters, recount, "the counters are those of the rows");
    counters[0]
}

/// A stage on which the jobs of an organization may have so many bytes.
async fn limited(database: DatabaseKind, job_bytes: u64) -> Option<Stage> {
    let limits = Limits { job_bytes: Some(job_bytes), ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    Some(Stage::on(world(database).await?.with_settings(settings), 1, 1).await)
}

async fn draft(stage: &Stage, config: &str) -> JobView {
    let new = NewJob { config: config.into(), cluster: stage.cluster.to_string(), teardown: false, has_files: true };
    jobs::create(&stage.world.control, &stage.world.caller, new).await.unwrap()
}

async fn send(stage: &Stage, job: &JobId, declared: Option<u64>, data: &[u8]) -> tarn_control::Result<u64> {
    let pieces: Vec<_> = data.chunks(50_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    upload::receive(&stage.world.control, &stage.world.caller, job, declared, stream::iter(pieces)).await
}

/// The counter follows a job through its upload, its run, its log, its outputs, a crash, its deletion and its expiry.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn kept_bytes_are_counted(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(stage) = Stage::open(database, 1, 1).await else { return };
    let (world, control, caller) = (&stage.world, &stage.world.control, &stage.world.caller);
    let files = archive(300_000);
    let view = draft(&stage, "commands = ['count 60000', 'wait']\noutputs = ['**']").await;
    assert_eq!(counted(world).await, 0);
    send(&stage, &view.job.id, None, &files).await.unwrap();
    assert_eq!(counted(world).await, files.len() as u64);

    stage.guest(0).state.lock().unwrap().outputs = vec![("a".into(), vec![1; 200_000]), ("b".into(), vec![2; 10])];
    jobs::start(control, caller, view.job.id.as_str()).await.unwrap();
    stage.in_state(&view, "RUNNING").await;
    let log: u64 = (0..60_000).map(|n| format!("line {n}\n").len() as u64).sum();
    loop {
        // Pieces of the log are merged meanwhile, and every state is exact.
        let bytes = counted(world).await;
        if bytes == files.len() as u64 + log {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    stage.crash().await;
    counted(world).await;
    stage.begin().await;
    stage.guest(0).end_all(&tarn_link::JobEnd::Exited { code: 0 });
    stage.ended(&view).await;
    assert_eq!(counted(world).await, log + 200_010, "the archive is removed at the end");

    let expiring = stage.run("commands = ['echo old']").await;
    stage.ended(&expiring).await;
    assert_eq!(counted(world).await, log + 200_010 + 4);
    jobs::delete(control, caller, view.job.id.as_str()).await.unwrap();
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(counted(world).await, 4);
    world.clock.advance(JobSettings::default().keep);
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(counted(world).await, 0);
}

/// An upload beyond the limit is refused with the numbers, and leaves nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn upload_beyond_limit_is_refused(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(false, true)] is_declared: bool,
) {
    let Some(stage) = limited(database, 500_000).await else { return };
    let files = archive(300_000);
    let declared = is_declared.then_some(files.len() as u64);
    let [first, second] = [draft(&stage, "commands = ['wait']").await, draft(&stage, "commands = ['wait']").await];
    send(&stage, &first.job.id, declared, &files).await.unwrap();
    let refused = send(&stage, &second.job.id, declared, &files).await.unwrap_err();
    assert_eq!((refused.code, refused.kind), ("limit_reached", tarn_control::Kind::Conflict));
    assert!(refused.message.contains("0.5 MB of job files, logs and outputs"), "{}", refused.message);
    assert_eq!(counted(&stage.world).await, files.len() as u64);
    jobs::discard(&stage.world.control, &first.job.id).await.unwrap();
    reconcilers::jobs::tidy(&stage.world.control).await.unwrap();
    send(&stage, &second.job.id, declared, &files).await.unwrap();

    let stranger = stage.world.other_tenant().await;
    let theirs =
        tarn_control::operations::limits::info(&stage.world.control, &stage.world.caller, stranger.user.id.as_str());
    assert_eq!(theirs.await.unwrap().used.job_bytes, 0, "it affects only its owner");
}

/// Uploads that arrive at the same time share the limit.
#[tokio::test(flavor = "multi_thread")]
async fn arriving_uploads_share_limit() {
    let Some(stage) = limited(DatabaseKind::Sqlite, 500_000).await else { return };
    let files = archive(300_000);
    let [first, second] = [draft(&stage, "commands = ['wait']").await, draft(&stage, "commands = ['wait']").await];
    let (control, caller) = (stage.world.control.clone(), stage.world.caller.clone());
    let (sender, receiver) = futures::channel::mpsc::unbounded();
    sender.unbounded_send(Ok(Bytes::copy_from_slice(&files[..1000]))).unwrap();
    let (id, size) = (first.job.id.clone(), files.len() as u64);
    let arriving = tokio::spawn(async move { upload::receive(&control, &caller, &id, Some(size), receiver).await });
    let other = draft(&stage, "commands = ['wait']").await;
    let refused = async {
        loop {
            // The first upload may not have begun yet.
            match send(&stage, &other.job.id, Some(size), &files[..10]).await.unwrap_err().code {
                "limit_reached" => return,
                code => assert_eq!(code, "upload_broken"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::support::DEADLINE, refused).await.expect("what arrives is counted");
    drop(sender);
    assert_eq!(arriving.await.unwrap().unwrap_err().code, "upload_broken");
    send(&stage, &second.job.id, Some(size), &files).await.expect("nothing is left of the first");
}

/// At the limit the log is cut off and the job says so; the job itself is not affected.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn log_is_cut_at_limit(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(stage) = limited(database, 100_000).await else { return };
    let view = stage.run("commands = ['count 60000', 'exit 4']").await;
    let ended = stage.ended(&view).await.job;
    assert_eq!(ended.state.outcome().unwrap().exit_code(), Some(4));
    let note = ended.note.unwrap();
    assert!(note.contains("the limit of job files, logs and outputs is reached"), "{note}");
    let log = stage.text(&view).await;
    let whole: String = (0..60_000).map(|n| format!("line {n}\n")).collect();
    assert!(log.len() <= 100_000 && whole.starts_with(&log), "{}", log.len());
    assert_eq!(counted(&stage.world).await, log.len() as u64);
    let again = stage.run("commands = ['echo never', 'exit 5']").await;
    let ended = stage.ended(&again).await.job;
    assert_eq!(ended.state.outcome().unwrap().exit_code(), Some(5), "a job runs without room for its log");
}

/// Outputs beyond the limit are not kept and the job says so. Outputs that a crashed task stored do not count twice.
#[tokio::test(flavor = "multi_thread")]
async fn outputs_beyond_limit_are_not_kept() {
    let Some(stage) = limited(DatabaseKind::Sqlite, 500_000).await else { return };
    let files = [("a", 300_000), ("b", 300_000)];
    stage.guest(0).state.lock().unwrap().outputs =
        files.iter().map(|(path, size)| ((*path).to_owned(), vec![b'x'; *size])).collect();
    let view = stage.run("commands = ['exit 3']\noutputs = ['**']").await;
    let ended = stage.ended(&view).await.job;
    let note = ended.note.unwrap();
    assert!(note.contains("some outputs were not kept: b (the limit of job files"), "{note}");
    let kept = outputs::list(&stage.world.control, &stage.world.caller, view.job.id.as_str(), &[]).await.unwrap();
    assert_eq!(kept.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(counted(&stage.world).await, 300_000);
}
