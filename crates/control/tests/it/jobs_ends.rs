//! What jobs leave behind, and what ends with them or ends them: outputs, files, clusters, nodes.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use rstest::rstest;
use tarn_control::jobs::{outputs, upload};
use tarn_control::operations::clusters;
use tarn_control::operations::jobs::{self, NewJob};
use tarn_control::reconcilers;
use tarn_control::runner::Runner;
use tarn_control::{JobSettings, Settings};
use tarn_driver::End;
use tarn_link::JobEnd;
use tarn_model::jobs::{Outcome, Teardown};
use tarn_store::testing::DatabaseKind;

use crate::jobs_support::{Attempt, DEADLINE, Stage, State, eventually};
use crate::support::world;

/// Runs the requests of a stage until something is so.
async fn working<T>(stage: &Stage, until: impl Future<Output = T>) -> T {
    let runner = tokio::spawn(Runner::new(stage.world.control.clone()).serve(std::future::pending(), DEADLINE));
    let done = until.await;
    runner.abort();
    done
}

async fn cluster_state(stage: &Stage) -> &'static str {
    stage.world.info(&stage.cluster).await.cluster.state.name()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn destroying_a_cluster_ends_its_jobs(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let running = stage.run("commands = ['echo begun', 'wait']").await;
    stage.in_state(&running, "RUNNING").await;
    let pending = stage.run("commands = ['echo never']").await;
    let destroyed = clusters::destroy(&stage.world.control, &stage.world.caller, stage.cluster.as_str());
    let request = destroyed.await.unwrap().request;
    assert_eq!(stage.job(&pending).await.job.state.status(), "failed", "what waits ends at once");
    working(&stage, stage.ended(&running)).await;
    for view in [&running, &pending] {
        match stage.job(view).await.job.state.outcome().unwrap() {
            Outcome::Failed { reason } if reason.contains("was destroyed") => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stage.text(&running).await, "begun\n");
    stage.world.settle().await;
    assert!(stage.world.request(&request).await.request.status.is_terminal());
    assert_eq!(cluster_state(&stage).await, "DESTROYED");
    stage.world.assert_agreement("after the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_end_does_not_keep_its_cluster() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let settings = Settings { step_timeout: Duration::from_secs(1), ..Settings::default() };
    let stage = Stage::on(world.with_settings(settings), 1, 1).await;
    let view = stage.run("commands = ['echo begun', 'wait']").await;
    stage.in_state(&view, "RUNNING").await;
    eventually("its output is written down", || {
        stage.guest(0).state.lock().unwrap().attempts.values().all(|attempt| attempt.acknowledged > 0)
    })
    .await;
    stage.guest(0).change(|state| state.is_stubborn = true);
    clusters::destroy(&stage.world.control, &stage.world.caller, stage.cluster.as_str()).await.unwrap();
    stage.world.settle().await;
    assert_eq!(cluster_state(&stage).await, "DESTROYED");
    let ended = stage.ended(&view).await.job;
    assert_eq!(ended.state.status(), "failed");
    assert_eq!(stage.text(&view).await, "begun\n", "what was written down stays");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_destroyed_after_its_last_job(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(stage) = Stage::open(engine, 1, 2).await else { return };
    let other = stage.run("commands = ['wait']").await;
    stage.in_state(&other, "RUNNING").await;
    let last = stage.run_with("commands = ['echo bye']", true).await;
    let refused = jobs::run(
        &stage.world.control,
        &stage.world.caller,
        NewJob {
            config: "commands = ['echo late']".into(),
            cluster: stage.cluster.to_string(),
            teardown: false,
            has_files: false,
        },
    );
    assert_eq!(refused.await.unwrap_err().code, "cluster_torn_down");
    stage.ended(&last).await;
    assert_eq!(cluster_state(&stage).await, "RUNNING", "another job is open");
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    stage.ended(&other).await;
    assert_eq!(cluster_state(&stage).await, "DESTROYING");
    assert_eq!(stage.job(&last).await.job.teardown, Teardown::Over);
    stage.world.settle().await;
    assert_eq!(cluster_state(&stage).await, "DESTROYED");
    assert_eq!(stage.text(&last).await, "bye\n", "its log outlives the cluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn protection_that_came_later_keeps_the_cluster() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run_with("commands = ['wait']", true).await;
    stage.in_state(&view, "RUNNING").await;
    let edit = clusters::ClusterEdit { deletion_protection: Some(true), ..Default::default() };
    clusters::edit(&stage.world.control, &stage.world.caller, stage.cluster.as_str(), edit).await.unwrap();
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.teardown, cluster_state(&stage).await), (Teardown::Over, "RUNNING"));
    assert!(ended.note.unwrap().contains("deletion protection"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_ends_its_job() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run("commands = ['echo begun', 'wait']").await;
    stage.in_state(&view, "RUNNING").await;
    eventually("its output is written down", || {
        stage.guest(0).state.lock().unwrap().attempts.values().all(|attempt| attempt.acknowledged > 0)
    })
    .await;
    stage.world.driver.fake.kill(&stage.nodes[0], End::OutOfMemory).await.unwrap();
    stage.guest(0).change(|state| state.is_silent = true);
    stage.guest(0).cut();
    reconcilers::instances::tick(&stage.world.control).await.unwrap();
    match stage.ended(&view).await.job.state.outcome().unwrap() {
        Outcome::Failed { reason } if reason.contains("ran out of memory") => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.text(&view).await, "begun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_says_what_was_lost() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run("commands = ['echo begun', 'wait']\nretries = 1").await;
    stage.in_state(&view, "RUNNING").await;
    clusters::restart(&stage.world.control, &stage.world.caller, stage.cluster.as_str()).await.unwrap();
    stage.guest(0).change(|state| state.is_silent = true);
    stage.guest(0).cut();
    stage.world.settle().await;
    stage.guest(0).end_all(&JobEnd::Lost);
    stage.guest(0).change(|state| state.is_silent = false);
    eventually("the second attempt runs", || {
        stage.guest(0).state.lock().unwrap().attempts.contains_key(&(view.job.id.to_string(), 2))
    })
    .await;
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.state.status(), ended.attempt), ("completed", 2));
    assert_eq!(stage.text(&view).await, "begun\nbegun\n");
}

/// An archive with one file of so many random bytes.
fn archive(bytes: usize) -> Vec<u8> {
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

#[tokio::test(flavor = "multi_thread")]
async fn files_reach_the_node_once_and_are_forgotten() {
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
    upload::receive(control, &view.job.id, None, body).await.unwrap();
    jobs::start(control, caller, view.job.id.as_str()).await.unwrap();
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.state.status(), ended.attempt), ("completed", 2));
    assert!(stage.guest(0).state.lock().unwrap().files[view.job.id.as_str()] == files);
    assert_eq!(ended.archive_bytes, Some(0));
    assert_eq!(stage.text(&view).await, "try\ntry\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_kept_up_to_a_limit() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let jobs = JobSettings { max_output_bytes: 500_000, max_log_bytes: 1_000, ..JobSettings::default() };
    let stage = Stage::on(world.with_settings(Settings { jobs, ..Settings::default() }), 1, 1).await;
    let files = [("a/b.txt", 10), ("large.bin", 300_000), ("too-large.bin", 300_000)];
    stage.guest(0).state.lock().unwrap().outputs =
        files.iter().map(|(path, size)| ((*path).to_owned(), vec![b'x'; *size])).collect();
    let view = stage.run("commands = ['count 1000', 'exit 4']\noutputs = ['**']").await;
    let ended = stage.ended(&view).await.job;
    assert_eq!(ended.state.outcome().unwrap().exit_code(), Some(4), "outputs are kept however it ended");
    let note = ended.note.unwrap();
    assert!(note.contains("too-large.bin") && note.contains("cut off"), "{note}");
    let kept = outputs::list(&stage.world.control, &stage.world.caller, view.job.id.as_str(), &[]).await.unwrap();
    let kept: Vec<_> = kept.files.iter().map(|file| (file.path.as_str(), file.size)).collect();
    assert_eq!(kept, [("a/b.txt", 10), ("large.bin", 300_000)]);
    assert_eq!(stage.log(&view).await.len(), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_what_is_over() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let (control, caller) = (&stage.world.control, &stage.world.caller);
    let view = stage.run("commands = ['echo kept']").await;
    stage.ended(&view).await;
    let guest = stage.guest(0);
    eventually("it was told", || guest.state.lock().unwrap().attempts.is_empty()).await;

    // What no row knows, what should not run any more, and what was not told.
    let stray = |state: &mut State, job: &str| state.attempts.insert((job.to_owned(), 1), Attempt::default());
    guest.change(|state| {
        stray(state, "j-zzzzzzzzzzzz");
        stray(state, view.job.id.as_str());
    });
    for _ in 0..2 {
        reconcilers::jobs::sweep_nodes(control).await.unwrap();
    }
    eventually("nothing is left there", || guest.state.lock().unwrap().attempts.is_empty()).await;
    assert_eq!(guest.state.lock().unwrap().forgotten, ["j-zzzzzzzzzzzz"]);

    jobs::delete(control, caller, view.job.id.as_str()).await.unwrap();
    reconcilers::jobs::tidy(control).await.unwrap();
    assert!(guest.state.lock().unwrap().forgotten.contains(&view.job.id.to_string()));
    assert_eq!(stage.world.rows_of_job(&view.job.id).await, 0);
    reconcilers::jobs::sweep_shelf(control).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn old_jobs_and_drafts_are_forgotten() {
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
    assert_eq!(stage.job(&draft).await.job.state.name(), "DRAFT", "it is young");
    stage.world.clock.advance(JobSettings::default().draft_timeout);
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.world.rows_of_job(&draft.job.id).await, 0);
    assert_eq!(stage.job(&view).await.job.state.name(), "ENDED", "what ended is kept longer");
    stage.world.clock.advance(JobSettings::default().keep);
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.world.rows_of_job(&view.job.id).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_that_waited_lets_its_cluster_go() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let running = stage.run("commands = ['wait']").await;
    stage.in_state(&running, "RUNNING").await;
    let waiting = stage.run_with("commands = ['echo never']", true).await;
    stage.guest(0).change(|state| state.is_stubborn = true);
    stage.cancel(&waiting).await;
    assert_eq!(stage.job(&waiting).await.job.state.status(), "canceled");
    assert_eq!(cluster_state(&stage).await, "RUNNING", "another job is open");
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    stage.ended(&running).await;
    assert_eq!(cluster_state(&stage).await, "DESTROYING");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_without_guests_run_no_jobs() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    *stage.world.driver.dial.lock().unwrap() = None;
    let view = stage.run("commands = ['echo hi']").await;
    match stage.ended(&view).await.job.state.outcome().unwrap() {
        Outcome::Failed { reason } if reason.contains("the fake driver") => {}
        other => panic!("{other:?}"),
    }
}

/// The paths of what was kept of a job.
async fn kept(stage: &Stage, view: &jobs::JobView) -> Vec<String> {
    let listed = outputs::list(&stage.world.control, &stage.world.caller, view.job.id.as_str(), &[]).await.unwrap();
    listed.files.into_iter().map(|file| file.path).collect()
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_does_not_wait_for_a_forgotten_draft(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let (control, caller) = (&stage.world.control, &stage.world.caller);
    let new = NewJob {
        config: "commands = ['echo draft']".into(),
        cluster: stage.cluster.to_string(),
        teardown: true,
        has_files: true,
    };
    let draft = jobs::create(control, caller, new).await.unwrap();
    stage.world.clock.advance(JobSettings::default().draft_timeout);
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.world.rows_of_job(&draft.job.id).await, 0);
    let view = stage.run("commands = ['echo next']").await;
    assert_eq!(stage.ended(&view).await.job.state.status(), "completed");
    assert_eq!(cluster_state(&stage).await, "RUNNING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_the_only_copy_of_outputs_is_left() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    stage.guest(0).state.lock().unwrap().outputs = vec![("a".into(), b"1".to_vec()), ("a".into(), b"2".to_vec())];
    let view = stage.run_with("commands = ['echo hi']\noutputs = ['*']", true).await;
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.state.status(), ended.teardown), ("completed", Teardown::Over));
    let note = ended.note.unwrap();
    assert!(note.contains("could be kept: it sent \"a\" twice"), "{note}");
    assert!(note.contains(&format!("cluster {} was left", stage.cluster)), "{note}");
    assert_eq!(cluster_state(&stage).await, "RUNNING");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_file_is_no_output() {
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

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_to_run_again_is_collected_when_it_is_cancelled(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    stage.guest(0).state.lock().unwrap().outputs = vec![("checkpoint".into(), vec![7; 1_000])];
    let view = stage.run("commands = ['echo try', 'wait']\noutputs = ['*']\nretries = 1").await;
    stage.in_state(&view, "RUNNING").await;
    let guest = stage.guest(0);
    eventually("its output is written down", || {
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

#[rstest]
#[case(6, None)]
#[case(5, Some("cut off"))]
#[tokio::test(flavor = "multi_thread")]
async fn output_is_said_to_be_cut_when_it_is(#[case] most: u64, #[case] said: Option<&str>) {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let jobs = JobSettings { max_log_bytes: most, ..JobSettings::default() };
    let stage = Stage::on(world.with_settings(Settings { jobs, ..Settings::default() }), 1, 1).await;
    let view = stage.run("commands = ['echo hello', 'fail-first 9']\nretries = { count = 1, exit_codes = [9] }").await;
    let ended = stage.ended(&view).await.job;
    // Of the second attempt nothing is kept in either case.
    let note = ended.note.unwrap();
    assert!(note.contains("attempt 1 ended: exit code 9") && note.contains("cut off"), "{note}");
    let once = stage.run("commands = ['echo hello']").await;
    let note = stage.ended(&once).await.job.note;
    assert_eq!(note.is_some_and(|note| note.contains("cut off")), said.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_keeps_no_job() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let (control, caller) = (&stage.world.control, &stage.world.caller);
    let view = stage.run("commands = ['echo old']").await;
    stage.ended(&view).await;
    let guest = stage.guest(0);
    eventually("it was told", || guest.state.lock().unwrap().attempts.is_empty()).await;
    guest.change(|state| {
        state.remembered.push(view.job.id.to_string());
        state.is_silent = true;
    });
    jobs::delete(control, caller, view.job.id.as_str()).await.unwrap();
    reconcilers::jobs::tidy(control).await.unwrap();
    assert_eq!(stage.world.rows_of_job(&view.job.id).await, 0);
    guest.change(|state| state.is_silent = false);
    reconcilers::jobs::sweep_nodes(control).await.unwrap();
    assert_eq!(guest.state.lock().unwrap().forgotten, [view.job.id.to_string()], "it forgets it later");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_are_no_jobs_no_place_is_made_for_them() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    reconcilers::jobs::tidy(&world.control).await.unwrap();
    reconcilers::jobs::sweep_shelf(&world.control).await.unwrap();
    let bucket = world.store.read(|tx| tarn_store::buckets::find(tx, &tarn_objects::internal::account(), "jobs")).await;
    assert_eq!(bucket.unwrap(), None);
}
