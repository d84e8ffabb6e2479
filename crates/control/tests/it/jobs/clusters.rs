//! What the ends of jobs and of their cluster do to each other.

use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::clusters;
use tarn_control::operations::jobs::{self, NewJob};
use tarn_control::reconcilers;
use tarn_control::runner::Runner;
use tarn_control::testing::world;
use tarn_control::{JobSettings, Settings};
use tarn_driver::End;
use tarn_link::JobEnd;
use tarn_model::jobs::{Outcome, Teardown};
use tarn_store::testing::DatabaseKind;

use super::support::{DEADLINE, Stage, eventually};

/// Runs the requests of a stage until a future completes.
async fn with_runner<T>(stage: &Stage, until: impl Future<Output = T>) -> T {
    let runner = tokio::spawn(Runner::new(stage.world.control.clone()).serve(std::future::pending(), DEADLINE));
    let done = until.await;
    runner.abort();
    done
}

async fn cluster_state(stage: &Stage) -> &'static str {
    stage.world.info(&stage.cluster).await.cluster.state.name()
}

/// Destroying a cluster ends its jobs.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cluster_destruction_ends_jobs(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let running = stage.run("commands = ['echo begun', 'wait']").await;
    stage.in_state(&running, "RUNNING").await;
    let pending = stage.run("commands = ['echo never']").await;
    let destroyed = clusters::destroy(&stage.world.control, &stage.world.caller, stage.cluster.as_str());
    let request = destroyed.await.unwrap().request;
    assert_eq!(stage.job(&pending).await.job.state.status(), "failed", "a queued job ends at once");
    with_runner(&stage, stage.ended(&running)).await;
    for view in [&running, &pending] {
        match stage.job(view).await.job.state.outcome().unwrap() {
            Outcome::Failed { reason } if reason.contains("was destroyed") => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stage.text(&running).await, "begun\n");
    stage.world.settle().await;
    assert!(stage.world.request(&request).await.request.status().is_terminal());
    assert_eq!(cluster_state(&stage).await, "DESTROYED");
    stage.world.assert_agreement("after the end").await;
}

/// A job that does not end does not prevent the destruction of its cluster.
#[tokio::test(flavor = "multi_thread")]
async fn stubborn_job_does_not_keep_cluster() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let settings = Settings { step_timeout: Duration::from_secs(1), ..Settings::default() };
    let stage = Stage::on(world.with_settings(settings), 1, 1).await;
    let view = stage.run("commands = ['echo begun', 'wait']").await;
    stage.in_state(&view, "RUNNING").await;
    eventually("its output is stored", || {
        stage.guest(0).state.lock().unwrap().attempts.values().all(|attempt| attempt.acknowledged > 0)
    })
    .await;
    stage.guest(0).change(|state| state.is_stubborn = true);
    clusters::destroy(&stage.world.control, &stage.world.caller, stage.cluster.as_str()).await.unwrap();
    stage.world.settle().await;
    assert_eq!(cluster_state(&stage).await, "DESTROYED");
    let ended = stage.ended(&view).await.job;
    assert_eq!(ended.state.status(), "failed");
    assert_eq!(stage.text(&view).await, "begun\n", "stored output stays");
}

/// A cluster with a teardown is destroyed after its last job.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn teardown_follows_last_job(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
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

/// Deletion protection that is switched on later prevents the teardown.
#[tokio::test(flavor = "multi_thread")]
async fn late_protection_keeps_cluster() {
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

/// A job ends when its node dies.
#[tokio::test(flavor = "multi_thread")]
async fn dead_node_ends_job() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run("commands = ['echo begun', 'wait']").await;
    stage.in_state(&view, "RUNNING").await;
    eventually("its output is stored", || {
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

/// A restarted node reports that the attempt was lost, and the job is retried.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_node_reports_lost_attempt() {
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

/// A canceled job that was queued still tears its cluster down.
#[tokio::test(flavor = "multi_thread")]
async fn canceled_pending_job_tears_down() {
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

/// A job fails on an instance without a guest.
#[tokio::test(flavor = "multi_thread")]
async fn instance_without_guest_fails_jobs() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    *stage.world.driver.dial.lock().unwrap() = None;
    let view = stage.run("commands = ['echo hi']").await;
    match stage.ended(&view).await.job.state.outcome().unwrap() {
        Outcome::Failed { reason } if reason.contains("the fake driver") => {}
        other => panic!("{other:?}"),
    }
}

/// A removed draft with a teardown does not block its cluster.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn removed_draft_does_not_block_cluster(
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

/// A cluster with the only copy of outputs is not torn down.
#[tokio::test(flavor = "multi_thread")]
async fn only_copy_of_outputs_keeps_cluster() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    stage.guest(0).state.lock().unwrap().outputs = vec![("a".into(), b"1".to_vec()), ("a".into(), b"2".to_vec())];
    let view = stage.run_with("commands = ['echo hi']\noutputs = ['*']", true).await;
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.state.status(), ended.teardown), ("completed", Teardown::Over));
    let note = ended.note.unwrap();
    assert!(note.contains("could be kept: the guest sent \"a\" twice"), "{note}");
    assert!(note.contains(&format!("cluster {} was kept", stage.cluster)), "{note}");
    assert_eq!(cluster_state(&stage).await, "RUNNING");
}
