//! What jobs leave behind: outputs, files, and the attempts that guests know.

use std::io::Write as _;

use bytes::Bytes;
use rstest::rstest;
use tarn_control::jobs::{outputs, upload};
use tarn_control::operations::jobs::{self, NewJob};
use tarn_control::reconcilers;
use tarn_control::testing::world;
use tarn_control::{JobSettings, Settings};
use tarn_store::testing::DatabaseKind;

use super::guests::{Attempt, State};
use super::support::{DEADLINE, Stage, eventually};

/// Returns an archive with one file of random bytes.
pub(super) fn archive(bytes: usize) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let (mut content, mut word) = (Vec::new(), 7u64);
    while content.len() < bytes {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        content.write_all(&word.to_le_bytes()).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_entry_type(tar::EntryType::Regular);
    tar.append_data(&mut header, "data.bin", content.as_slice()).unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

/// The files of a job are sent to its node once, and removed at its end.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_sent_once() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let (control, caller) = (&stage.world.control, &stage.world.caller);
    let new = NewJob {
        config: "commands = ['echo try', 'fail-first 5']\nretries = { count = 1, exit_codes = [5] }".into(),
        cluster: stage.cluster.to_string(),
        teardown: false,
        has_files: true,
    };
    let view = jobs::create(control, caller, new).await.unwrap();
    let files = archive(700_000);
    let body = futures::stream::iter([Ok(Bytes::from(files.clone()))]);
    upload::receive(control, caller, &view.job.id, None, body).await.unwrap();
    jobs::start(control, caller, view.job.id.as_str()).await.unwrap();
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.state.status(), ended.attempt), ("completed", 2));
    assert!(stage.guest(0).state.lock().unwrap().files[view.job.id.as_str()] == files);
    assert_eq!(ended.archive_bytes, Some(0));
    assert_eq!(stage.text(&view).await, "try\ntry\n");
}

/// Outputs and logs are stored up to their limits.
#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_limited() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let jobs = JobSettings { max_output_bytes: 500_000, max_log_bytes: 1_000, ..JobSettings::default() };
    let stage = Stage::on(world.with_settings(Settings { jobs, ..Settings::default() }), 1, 1).await;
    let files = [("a/b.txt", 10), ("large.bin", 300_000), ("too-large.bin", 300_000)];
    stage.guest(0).state.lock().unwrap().outputs =
        files.iter().map(|(path, size)| ((*path).to_owned(), vec![b'x'; *size])).collect();
    let view = stage.run("commands = ['count 1000', 'exit 4']\noutputs = ['**']").await;
    let ended = stage.ended(&view).await.job;
    assert_eq!(ended.state.outcome().unwrap().exit_code(), Some(4), "outputs are stored for every outcome");
    let note = ended.note.unwrap();
    assert!(note.contains("too-large.bin") && note.contains("cut off"), "{note}");
    let kept = outputs::list(&stage.world.control, &stage.world.caller, view.job.id.as_str(), &[]).await.unwrap();
    let kept: Vec<_> = kept.files.iter().map(|file| (file.path.as_str(), file.size)).collect();
    assert_eq!(kept, [("a/b.txt", 10), ("large.bin", 300_000)]);
    assert_eq!(stage.log(&view).await.len(), 1_000);
}

/// Nothing is left of attempts without a row and of deleted jobs.
#[tokio::test(flavor = "multi_thread")]
async fn ended_jobs_leave_nothing() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let (control, caller) = (&stage.world.control, &stage.world.caller);
    let view = stage.run("commands = ['echo kept']").await;
    stage.ended(&view).await;
    let guest = stage.guest(0);
    eventually("the attempt is dismissed", || guest.state.lock().unwrap().attempts.is_empty()).await;

    // Adds an attempt without a row, and one that must not run any more.
    let stray = |state: &mut State, job: &str| state.attempts.insert((job.to_owned(), 1), Attempt::default());
    guest.change(|state| {
        stray(state, "j-zzzzzzzzzzzz");
        stray(state, view.job.id.as_str());
    });
    // A sweep asks the attempt to stop, and a later one dismisses it. How many come in between depends on the guest.
    let swept = async {
        while !guest.state.lock().unwrap().attempts.is_empty() {
            reconcilers::jobs::sweep_nodes(control).await.unwrap();
        }
    };
    tokio::time::timeout(DEADLINE, swept).await.expect("the attempts are gone");
    assert_eq!(guest.state.lock().unwrap().forgotten, ["j-zzzzzzzzzzzz"]);

    jobs::delete(control, caller, view.job.id.as_str()).await.unwrap();
    reconcilers::jobs::tidy(control).await.unwrap();
    assert!(guest.state.lock().unwrap().forgotten.contains(&view.job.id.to_string()));
    assert_eq!(stage.world.rows_of_job(&view.job.id).await, 0);
    reconcilers::jobs::sweep_objects(control).await.unwrap();
}

/// Expired drafts and expired jobs are removed.
#[tokio::test(flavor = "multi_thread")]
async fn expired_jobs_are_removed() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let (control, caller) = (&stage.world.control, &stage.world.caller);
    let view = stage.run("commands = ['echo old']").await;
    stage.ended(&view).await;
    let new = NewJob {
        config: "commands = ['echo draft']".into(),
        cluster: stage.cluster.to_string(),
        teardown: false,
        has_files: true,
    };
    let draft = jobs::create(control, caller, new).await.unwrap();
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.job(&draft).await.job.state.name(), "DRAFT", "the draft has not expired");
    stage.world.clock.advance(JobSettings::default().draft_timeout);
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.world.rows_of_job(&draft.job.id).await, 0);
    assert_eq!(stage.job(&view).await.job.state.name(), "ENDED", "ended jobs are kept longer");
    stage.world.clock.advance(JobSettings::default().keep);
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.world.rows_of_job(&view.job.id).await, 0);
}

/// Returns the paths of the stored outputs of a job.
async fn kept(stage: &Stage, view: &jobs::JobView) -> Vec<String> {
    let listed = outputs::list(&stage.world.control, &stage.world.caller, view.job.id.as_str(), &[]).await.unwrap();
    listed.files.into_iter().map(|file| file.path).collect()
}

/// A file that the guest could not read to its end is not stored.
#[tokio::test(flavor = "multi_thread")]
async fn partial_file_is_no_output() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    stage.guest(0).change(|state| {
        state.outputs = ["a", "b", "c"].map(|path| (path.to_owned(), vec![7; 100_000])).to_vec();
        state.unreadable = vec!["b".into()];
    });
    let view = stage.run("commands = ['echo hi']\noutputs = ['*']").await;
    let note = stage.ended(&view).await.job.note.unwrap();
    assert!(note.contains("b (it cannot be read)"), "{note}");
    assert_eq!(kept(&stage, &view).await, ["a", "c"]);
}

/// A job that is canceled while it waits for its next attempt is collected.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn canceled_retry_is_collected(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    stage.guest(0).state.lock().unwrap().outputs = vec![("checkpoint".into(), vec![7; 1_000])];
    let view = stage.run("commands = ['echo try', 'wait']\noutputs = ['*']\nretries = 1").await;
    stage.in_state(&view, "RUNNING").await;
    let guest = stage.guest(0);
    eventually("its output is stored", || {
        guest.state.lock().unwrap().attempts.values().all(|attempt| attempt.acknowledged > 0)
    })
    .await;
    stage.crash().await;
    let id = view.job.id.clone();
    let write = stage.world.store.write(move |tx| -> Result<(), tarn_store::Error> {
        let job = tarn_store::jobs::get(tx, &id)?.ok_or(tarn_store::Error::Conflict)?;
        let job = job.moved(tx.now(), tarn_model::jobs::State::again).unwrap();
        tarn_store::jobs::save(tx, &tarn_model::jobs::Job { attempt: 2, ..job })
    });
    write.await.unwrap();
    stage.cancel(&view).await;
    assert_eq!(stage.job(&view).await.job.state.status(), "canceling");
    stage.begin().await;
    assert_eq!(stage.ended(&view).await.job.state.status(), "canceled");
    assert_eq!(kept(&stage, &view).await, ["checkpoint"]);
    assert_eq!(stage.world.inline_pieces(&view.job.id).await, 0);
    let events = stage.world.events_of(view.job.id.as_str()).await;
    assert_eq!(events.iter().filter(|verb| *verb == "job.ended").count(), 1, "{events:?}");
}

/// The note of a job says whether its output is cut off.
#[rstest]
#[case(6, None)]
#[case(5, Some("cut off"))]
#[tokio::test(flavor = "multi_thread")]
async fn truncated_output_is_noted(#[case] most: u64, #[case] expected: Option<&str>) {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let jobs = JobSettings { max_log_bytes: most, ..JobSettings::default() };
    let stage = Stage::on(world.with_settings(Settings { jobs, ..Settings::default() }), 1, 1).await;
    let view = stage.run("commands = ['echo hello', 'fail-first 9']\nretries = { count = 1, exit_codes = [9] }").await;
    let ended = stage.ended(&view).await.job;
    // In both cases nothing of the second attempt is stored.
    let note = ended.note.unwrap();
    assert!(note.contains("attempt 1 ended: exit code 9") && note.contains("cut off"), "{note}");
    let once = stage.run("commands = ['echo hello']").await;
    let note = stage.ended(&once).await.job.note;
    assert_eq!(note.is_some_and(|note| note.contains("cut off")), expected.is_some());
}

/// A node that does not reply does not prevent the removal of a job, and forgets it later.
#[tokio::test(flavor = "multi_thread")]
async fn silent_node_forgets_job_later() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let (control, caller) = (&stage.world.control, &stage.world.caller);
    let view = stage.run("commands = ['echo old']").await;
    stage.ended(&view).await;
    let guest = stage.guest(0);
    eventually("the attempt is dismissed", || guest.state.lock().unwrap().attempts.is_empty()).await;
    guest.change(|state| {
        state.remembered.push(view.job.id.to_string());
        state.is_silent = true;
    });
    jobs::delete(control, caller, view.job.id.as_str()).await.unwrap();
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.world.rows_of_job(&view.job.id).await, 0);
    guest.change(|state| state.is_silent = false);
    reconcilers::jobs::sweep_nodes(control).await.unwrap();
    assert_eq!(guest.state.lock().unwrap().forgotten, [view.job.id.to_string()], "the node forgets the job later");
}

/// Without jobs the bucket of their files is not created.
#[tokio::test(flavor = "multi_thread")]
async fn bucket_is_created_on_demand() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    reconcilers::jobs::tidy(&world.control).await.unwrap();
    reconcilers::jobs::sweep_objects(&world.control).await.unwrap();
    let bucket = world.store.read(|tx| tarn_store::buckets::find(tx, &tarn_objects::internal::account(), "jobs")).await;
    assert_eq!(bucket.unwrap(), None);
}
