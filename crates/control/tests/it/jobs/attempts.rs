//! Attempts of jobs on simulated guests: order, logs, ends, retries, and tasks that die in the middle.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use rstest::rstest;
use tarn_control::operations::jobs;
use tarn_link::JobEnd;
use tarn_model::jobs::Outcome;
use tarn_store::testing::DatabaseKind;

use super::support::{Stage, eventually};

/// A job runs and leaves nothing on its node.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn job_runs_and_leaves_nothing_on_node(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let view = stage.run("commands = ['echo hello', 'echo world']").await;
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.state.status(), ended.attempt), ("completed", 1));
    assert!(ended.started.is_some() && ended.ended.is_some());
    assert_eq!(stage.text(&view).await, "hello\nworld\n");
    eventually("the guest was dismissed", || !stage.guest(0).state.lock().unwrap().done.is_empty()).await;
    let mut events = stage.world.events_of(view.job.id.as_str()).await;
    events.retain(|verb| verb != "job.started");
    assert_eq!(events, ["job.create", "job.start", "job.ended"]);
}

/// A failed job has an exit code or a reason.
#[rstest]
#[case("commands = ['echo a', 'exit 3', 'echo b']", "error", Some(3), None)]
#[case("commands = ['refuse always']", "failed", None, Some("no room"))]
#[tokio::test(flavor = "multi_thread")]
async fn failed_job_has_outcome(
    #[case] config: &str,
    #[case] status: &str,
    #[case] exit_code: Option<u8>,
    #[case] fragment: Option<&str>,
) {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run(config).await;
    let ended = stage.ended(&view).await.job;
    let outcome = ended.state.outcome().unwrap();
    assert_eq!((outcome.status(), outcome.exit_code()), (status, exit_code));
    assert_eq!(ended.started.is_some(), exit_code.is_some(), "whether it ever ran");
    if let Some(fragment) = fragment {
        assert!(matches!(outcome, Outcome::Failed { reason } if reason.contains(fragment)), "{outcome:?}");
    }
}

/// The outcome explains how the commands ended.
#[rstest]
#[case(JobEnd::Killed { signal: 9 }, 137, "signal 9 (KILL)")]
#[case(JobEnd::TimedOut, 124, "its timeout of 1h 1s")]
#[tokio::test(flavor = "multi_thread")]
async fn outcome_explains_end(#[case] end: JobEnd, #[case] exit_code: u8, #[case] fragment: &str) {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run("commands = ['wait']\ntimeout = 3601").await;
    stage.in_state(&view, "RUNNING").await;
    stage.guest(0).end_all(&end);
    match stage.ended(&view).await.job.state.outcome().unwrap() {
        Outcome::Error { exit_code: code, reason: Some(reason) } if *code == exit_code && reason.contains(fragment) => {
        }
        other => panic!("{other:?}"),
    }
}

/// A running job can be canceled.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn running_job_is_canceled(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let view = stage.run("commands = ['echo begun', 'wait']").await;
    stage.in_state(&view, "RUNNING").await;
    stage.cancel(&view).await;
    assert_eq!(stage.ended(&view).await.job.state.status(), "canceled");
    assert_eq!(stage.text(&view).await, "begun\n");
}

/// Broken streams lose no output and repeat none.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn broken_streams_lose_no_output(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    stage.guest(0).breaks_after.store(30_000, Ordering::SeqCst);
    let view = stage.run("commands = ['count 50000']").await;
    assert_eq!(stage.ended(&view).await.job.state.status(), "completed");
    let expected: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
    assert!(stage.text(&view).await == expected, "the log is what was written");
}

/// A task that dies in any state of its job is replaced.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn dead_task_is_replaced(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    stage.guest(0).state.lock().unwrap().outputs = vec![("model.bin".into(), vec![7; 300_000])];
    for round in 0..30u64 {
        let view = stage.run("commands = ['count 20000']\noutputs = ['*.bin']").await;
        // Each round the task dies at other moments.
        for death in 0..3 {
            tokio::time::sleep(std::time::Duration::from_millis((round * 3 + death * 7) % 23)).await;
            stage.crash().await;
            stage.begin().await;
        }
        let ended = stage.ended(&view).await;
        assert_eq!((ended.job.state.status(), ended.job.attempt), ("completed", 1), "round {round}: {ended:?}");
        let expected: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        assert!(stage.text(&view).await == expected, "round {round}: the log is what was written");
        let outputs =
            tarn_control::jobs::outputs::list(&stage.world.control, &stage.world.caller, view.job.id.as_str(), &[]);
        let outputs = outputs.await.unwrap().files;
        assert_eq!(
            outputs.iter().map(|file| (file.path.as_str(), file.size)).collect::<Vec<_>>(),
            [("model.bin", 300_000)]
        );
        jobs::delete(&stage.world.control, &stage.world.caller, view.job.id.as_str()).await.unwrap();
    }
}

/// A job that is canceled without a running task is stopped by the next one.
#[tokio::test(flavor = "multi_thread")]
async fn next_task_sees_cancel() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run("commands = ['wait']").await;
    stage.in_state(&view, "RUNNING").await;
    stage.crash().await;
    stage.cancel(&view).await;
    assert_eq!(stage.job(&view).await.job.state.name(), "STOPPING");
    stage.begin().await;
    assert_eq!(stage.ended(&view).await.job.state.status(), "canceled");
}

/// A job is retried after the configured exit codes.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn job_is_retried(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let config = "commands = ['echo try', 'fail-first 9', 'echo good']\nretries = { count = 2, exit_codes = [9] }";
    let view = stage.run(config).await;
    let ended = stage.ended(&view).await.job;
    assert_eq!((ended.state.status(), ended.attempt), ("completed", 2));
    assert!(ended.note.unwrap().contains("attempt 1 ended: exit code 9"));
    assert_eq!(stage.text(&view).await, "try\ntry\ngood\n");
    let unlisted = stage.run("commands = ['exit 8']\nretries = { count = 2, exit_codes = [9] }").await;
    assert_eq!(stage.ended(&unlisted).await.job.attempt, 1, "other exit codes are final");
}

/// A lost node fails the job, or causes a retry.
#[tokio::test(flavor = "multi_thread")]
async fn lost_node_fails_or_retries_job() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let once = stage.run("commands = ['echo here', 'wait']").await;
    stage.in_state(&once, "RUNNING").await;
    stage.guest(0).end_all(&JobEnd::Lost);
    let ended = stage.ended(&once).await.job;
    assert_eq!(ended.state.status(), "failed");
    assert_eq!(stage.text(&once).await, "here\n");

    let again = stage.run("commands = ['wait']\nretries = 1").await;
    stage.in_state(&again, "RUNNING").await;
    stage.guest(0).end_all(&JobEnd::Lost);
    eventually("the second attempt runs", || {
        stage.guest(0).state.lock().unwrap().attempts.contains_key(&(again.job.id.to_string(), 2))
    })
    .await;
    stage.in_state(&again, "RUNNING").await;
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    assert_eq!(stage.ended(&again).await.job.state.status(), "completed");
}

/// Jobs of a cluster run in the order of their start.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_in_order(#[values(1, 2)] parallel: usize) {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, parallel as u32).await else { return };
    let mut views = Vec::new();
    for _ in 0..4 {
        stage.world.clock.advance(std::time::Duration::from_millis(1));
        views.push(stage.run("commands = ['wait']").await);
    }
    for at in 0..views.len() {
        stage.in_state(&views[at], "RUNNING").await;
        for later in views.iter().skip(at + parallel) {
            assert_eq!(stage.job(later).await.job.state.name(), "PENDING", "with {parallel} at the same time");
        }
        if let Some(next) = views.get(at + parallel) {
            stage.in_state(&views[at + parallel - 1], "RUNNING").await;
            let explanation = stage.job(next).await.explanation;
            assert!(explanation.starts_with("Waits for 1 job ahead of it"), "{explanation}");
        }
        stage.guest(0).change(|state| {
            let key = (views[at].job.id.to_string(), 1);
            state.attempts.get_mut(&key).unwrap().end = Some(JobEnd::Exited { code: 0 });
        });
        stage.ended(&views[at]).await;
    }
}

/// The start of a job waits for a guest that does not reply yet.
#[tokio::test(flavor = "multi_thread")]
async fn silent_guest_delays_start() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    stage.guest(0).change(|state| state.is_silent = true);
    let view = stage.run("commands = ['echo late']").await;
    stage.in_state(&view, "STARTING").await;
    stage.guest(0).change(|state| state.is_silent = false);
    assert_eq!(stage.ended(&view).await.job.state.status(), "completed");
}

/// A large log becomes objects and is read as it was written.
#[tokio::test(flavor = "multi_thread")]
async fn large_log_becomes_objects() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run("commands = ['wait']").await;
    stage.in_state(&view, "RUNNING").await;
    let mut expected = String::new();
    for round in 0..40 {
        let text = format!("round {round} {}\n", "x".repeat(if round % 3 == 0 { 1_500_000 } else { 10_000 }));
        stage.guest(0).print(&text);
        expected.push_str(&text);
        tokio::task::yield_now().await;
    }
    // The same in many small pieces.
    for round in 0..1_500 {
        let text = format!("small {round}\n");
        stage.guest(0).print(&text);
        expected.push_str(&text);
        if round % 10 == 0 {
            let length = expected.len() as u64;
            eventually("it is acknowledged", || {
                let state = stage.guest(0);
                let state = state.state.lock().unwrap();
                state.attempts.values().all(|attempt| attempt.acknowledged == length)
            })
            .await;
        }
    }
    assert_eq!(stage.job(&view).await.job.state.name(), "RUNNING");
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    stage.ended(&view).await;
    assert!(stage.text(&view).await == expected, "the log is what was written");
    assert_eq!(stage.world.inline_pieces(&view.job.id).await, 0, "everything is an object");
}

/// A job runs on all nodes of its cluster at the same time.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn nodes_run_concurrently(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 2, 1).await else { return };
    let view =
        stage.run("commands = ['env NODE_RANK', 'env NNODES', 'env MASTER_ADDR', 'count 3000']\nnodes = 'all'").await;
    assert_eq!(stage.ended(&view).await.job.state.status(), "completed");
    let text = stage.text(&view).await;
    let mut lines: HashMap<&str, u32> = HashMap::new();
    text.lines().for_each(|line| *lines.entry(line).or_default() += 1);
    assert_eq!((lines["NODE_RANK=0"], lines["NODE_RANK=1"], lines["NNODES=2"]), (1, 1, 2));
    for n in 0..3_000 {
        assert_eq!(lines[format!("line {n}").as_str()], 2, "lines stay whole");
    }
    assert_eq!(lines.len(), 3_004, "both know the address of the first one, and nothing else was written");
    assert!(!lines.contains_key("MASTER_ADDR="));
}

/// The cause decides the outcome, whichever node reports first.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cause_decides_in_any_order(#[values(0, 1)] first: usize) {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 2, 1).await else { return };
    let view = stage.run("commands = ['wait']\nnodes = 'all'").await;
    stage.in_state(&view, "RUNNING").await;
    stage.crash().await;
    // One node has failed, and the other was stopped for it, when the task died.
    stage.guest(0).end_all(&JobEnd::Stopped);
    stage.guest(1).end_all(&JobEnd::Exited { code: 7 });
    stage.guest(1 - first).change(|state| state.is_silent = true);
    stage.begin().await;
    let dialled = stage.guest(first);
    eventually("the first node is followed", || dialled.dials.load(Ordering::SeqCst) > 1).await;
    tokio::task::yield_now().await;
    stage.guest(1 - first).change(|state| state.is_silent = false);
    match stage.ended(&view).await.job.state.outcome().unwrap() {
        Outcome::Error { exit_code: 7, .. } => {}
        other => panic!("{other:?}"),
    }
}

/// A job fails if its guest violates the protocol.
#[tokio::test(flavor = "multi_thread")]
async fn protocol_violation_fails_job() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    stage.guest(0).change(|state| state.is_confused = true);
    let view = stage.run("commands = ['wait']").await;
    match stage.ended(&view).await.job.state.outcome().unwrap() {
        Outcome::Failed { reason } if reason.contains("does not follow the protocol") => {}
        other => panic!("{other:?}"),
    }
}

/// The engine makes room on a guest that knows too many jobs.
#[tokio::test(flavor = "multi_thread")]
async fn full_guest_gets_room() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let old = ["j-zzzzzzzzzzz1", "j-zzzzzzzzzzz2"];
    stage.guest(0).change(|state| state.remembered = old.map(str::to_owned).to_vec());
    let view = stage.run("commands = ['echo hi']").await;
    assert_eq!(stage.ended(&view).await.job.state.status(), "completed");
    assert_eq!(stage.guest(0).state.lock().unwrap().forgotten, old);
}

/// The rest of a small log becomes an object if a part of it was one already.
#[tokio::test(flavor = "multi_thread")]
async fn small_log_ends_as_objects() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 1, 1).await else { return };
    let view = stage.run("commands = ['echo first', 'wait']").await;
    stage.in_state(&view, "RUNNING").await;
    let acknowledged = |length: u64| {
        let guest = stage.guest(0);
        move || guest.state.lock().unwrap().attempts.values().all(|attempt| attempt.acknowledged == length)
    };
    eventually("it is stored", acknowledged(6)).await;
    stage.crash().await;
    stage.world.make_object(&view.job.id).await;
    stage.begin().await;
    stage.guest(0).print("second\n");
    eventually("it is stored", acknowledged(13)).await;
    assert_eq!(stage.world.inline_pieces(&view.job.id).await, 1);
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    stage.ended(&view).await;
    assert_eq!(stage.world.inline_pieces(&view.job.id).await, 0, "everything is an object");
    assert_eq!(stage.text(&view).await, "first\nsecond\n");
}

/// The first failure stops the job on the other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn first_failure_stops_other_nodes() {
    let Some(stage) = Stage::open(DatabaseKind::Sqlite, 3, 1).await else { return };
    let view = stage.run("commands = ['wait-unless-rank 1']\nnodes = 'all'").await;
    match stage.ended(&view).await.job.state.outcome().unwrap() {
        Outcome::Error { exit_code: 7, reason: Some(reason) } if reason.contains("-1") => {}
        other => panic!("{other:?}"),
    }
    // Another node may not have started when the first one failed: then it never starts, and there is nothing to
    // dismiss.
    for node in 0..3 {
        eventually("no guest has the attempt any more", || stage.guest(node).state.lock().unwrap().attempts.is_empty())
            .await;
    }
}
