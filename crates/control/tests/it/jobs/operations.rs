//! The operations on jobs, and the explanations they return.

use rstest::rstest;
use tarn_control::operations::clusters::{self, ClusterEdit};
use tarn_control::operations::jobs::{self, JobView, MAX_OPEN, NewJob};
use tarn_control::testing::{World, world};
use tarn_control::{Caller, Idempotency, Listing, Result};
use tarn_model::clusters::Cluster;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, JobNode, Outcome, State, Teardown};
use tarn_model::{Refused, Time};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, instances, job_nodes};

pub(crate) const CONFIG: &str = "commands = ['true']\noutputs = ['results/**']";

pub(crate) fn new(cluster: &ClusterId) -> NewJob {
    NewJob { config: CONFIG.into(), cluster: cluster.to_string(), teardown: false, has_files: false }
}

/// Returns a job in the queue of a cluster.
pub(crate) async fn queued(world: &World, cluster: &ClusterId) -> Job {
    jobs::run(&world.control, &world.caller, new(cluster)).await.unwrap().job
}

/// Moves a job as the task that runs it would.
pub(crate) async fn move_on(world: &World, id: &JobId, transition: fn(State) -> std::result::Result<State, Refused>) {
    let id = id.clone();
    let write = world.store.write(move |tx| -> std::result::Result<(), Error> {
        let job = tarn_store::jobs::get(tx, &id)?.ok_or(Error::Conflict)?;
        let job = job.moved(tx.now(), transition).unwrap();
        tarn_store::jobs::save(tx, &job)
    });
    write.await.unwrap();
}

/// Admits a job to the first node of its cluster.
pub(crate) async fn place(world: &World, job: &Job) {
    let (id, cluster) = (job.id.clone(), job.cluster.clone());
    let write = world.store.write(move |tx| -> std::result::Result<(), Error> {
        let first = instances::of_cluster(tx, &cluster)?.remove(0);
        let (instance, boot) = (first.id, first.boot);
        let node = JobNode { job: id.clone(), node: 0, instance, boot, log_offset: 0, ended: false };
        job_nodes::replace(tx, &id, &[node])
    });
    write.await.unwrap();
    move_on(world, &job.id, State::admit).await;
}

async fn info(world: &World, id: &JobId) -> JobView {
    jobs::info(&world.control, &world.caller, id.as_str()).await.unwrap()
}

fn code<T>(result: Result<T>) -> &'static str {
    result.map(drop).unwrap_err().code
}

/// Another member cannot start a draft that tears down a cluster which is not theirs.
#[tokio::test(flavor = "multi_thread")]
async fn teardown_draft_is_started_by_its_creator() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let draft = NewJob { teardown: true, ..new(&cluster) };
    let draft = jobs::create(&world.control, &world.caller, draft).await.unwrap().job;
    let member = world.member("member@example.org", Some("default")).await;
    assert_eq!(code(jobs::start(&world.control, &member, draft.id.as_str()).await), "not_yours");
    assert_eq!(info(&world, &draft.id).await.job.state.name(), "DRAFT");
    jobs::start(&world.control, &world.caller, draft.id.as_str()).await.unwrap();
}

/// A job waits for its files, and then in the queue of its cluster.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn job_waits_for_files_then_in_queue(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(world) = world(engine).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let (control, me) = (&world.control, &world.caller);
    let draft = jobs::create(control, me, NewJob { has_files: true, ..new(&cluster) }).await.unwrap();
    assert_eq!((draft.job.state.status(), draft.job.archive_bytes), ("pending", None));
    assert!(draft.explanation.starts_with("Waits for its files since "), "{}", draft.explanation);
    let id = draft.job.id.as_str();
    assert_eq!(code(jobs::start(control, me, id).await), "job_without_files");

    jobs::without_files(control, me, &draft.job.id).await.unwrap();
    assert!(info(&world, &draft.job.id).await.explanation.starts_with("Waits for its start since "));
    let started = jobs::start(control, me, id).await.unwrap();
    assert_eq!(started.job.state, State::Pending);
    assert!(started.explanation.starts_with("It is next on cluster "), "{}", started.explanation);
    let again = jobs::start(control, me, id).await.unwrap();
    assert_eq!(again.job, started.job, "a started job is unchanged");

    let second = jobs::run(control, me, new(&cluster)).await.unwrap();
    assert!(second.explanation.starts_with("Waits for 1 job ahead of it on cluster "), "{}", second.explanation);
    let names: Vec<_> = world.events("job.create").await.into_iter().map(|event| event.object).collect();
    assert_eq!(names, [id, second.job.id.as_str()]);
    assert_eq!(world.events("job.start").await.len(), 2);
    let page = jobs::list(control, me, Listing::default()).await.unwrap();
    assert_eq!(page.items.iter().map(|view| &view.job.id).collect::<Vec<_>>(), [&second.job.id, &draft.job.id]);
    let first = jobs::list(control, me, Listing { limit: Some(1), ..Listing::default() }).await.unwrap();
    let rest = Listing { cursor: first.next_cursor, ..Listing::default() };
    assert_eq!(jobs::list(control, me, rest).await.unwrap().items.len(), 1);
}

/// A job that cannot run is refused at its creation.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn impossible_job_is_refused(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let (control, me) = (&world.control, &world.caller);
    let waiting = world.create("1xCPU", 1).await.0;
    assert_eq!(code(jobs::create(control, me, new(&waiting)).await), "cluster_not_running");
    world.settle().await;
    let cluster = waiting;
    let wrong = NewJob { config: "commands = 'a'".into(), ..new(&cluster) };
    let error = jobs::create(control, me, wrong).await.unwrap_err();
    assert_eq!(error.code, "invalid_config");
    assert!(error.message.starts_with("line 1: commands is a list"), "{}", error.message);
    let nowhere = NewJob { cluster: "nowhere".into(), ..new(&cluster) };
    assert_eq!(code(jobs::create(control, me, nowhere).await), "not_found");
    let stranger = world.other_tenant().await;
    assert_eq!(code(jobs::create(control, &stranger, new(&cluster)).await), "access_denied");

    let protect = |on| ClusterEdit { deletion_protection: Some(on), ..ClusterEdit::default() };
    clusters::edit(control, me, cluster.as_str(), protect(true)).await.unwrap();
    let teardown = || NewJob { teardown: true, ..new(&cluster) };
    assert_eq!(code(jobs::create(control, me, teardown()).await), "deletion_protected");
    clusters::edit(control, me, cluster.as_str(), protect(false)).await.unwrap();
    let last = jobs::create(control, me, teardown()).await.unwrap().job;
    assert_eq!(last.teardown, Teardown::Wanted);
    assert_eq!(code(jobs::run(control, me, new(&cluster)).await), "cluster_torn_down");
    // A discarded draft blocks no other job.
    jobs::discard(control, &last.id).await.unwrap();
    jobs::discard(control, &last.id).await.unwrap();
    let name = world.info(&cluster).await.cluster.name;
    let by_name = jobs::run(control, me, NewJob { cluster: name.clone(), ..new(&cluster) }).await.unwrap();
    assert_eq!((by_name.job.cluster, by_name.cluster_name), (cluster, Some(name)));
}

/// The queue of a cluster is limited.
#[tokio::test(flavor = "multi_thread")]
async fn queue_is_limited() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let runs = (0..MAX_OPEN).map(|_| jobs::run(&world.control, &world.caller, new(&cluster)));
    let made: Vec<_> = futures::future::join_all(runs).await.into_iter().map(|made| made.unwrap().job).collect();
    assert_eq!(code(jobs::run(&world.control, &world.caller, new(&cluster)).await), "too_many_jobs");
    jobs::cancel(&world.control, &world.caller, made[5].id.as_str()).await.unwrap();
    queued(&world, &cluster).await;
}

/// Only its owner can use a job.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn job_is_visible_to_owner_only(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let id = queued(&world, &cluster).await.id;
    let stranger = world.other_tenant().await;
    let (control, id) = (&world.control, id.as_str());
    assert_eq!(code(jobs::info(control, &stranger, id).await), "access_denied");
    assert_eq!(code(jobs::start(control, &stranger, id).await), "access_denied");
    assert_eq!(code(jobs::cancel(control, &stranger, id).await), "access_denied");
    assert_eq!(code(jobs::delete(control, &stranger, id).await), "access_denied");
    assert!(jobs::list(control, &stranger, Listing::default()).await.unwrap().items.is_empty());
    assert_eq!(code(jobs::info(control, &world.caller, "j-000000000000").await), "not_found");
    assert_eq!(code(jobs::info(control, &world.caller, "nonsense").await), "invalid_id");
}

/// Canceling ends a queued job and stops a running one.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_or_stops_job(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let (control, me) = (&world.control, &world.caller);
    let waits = queued(&world, &cluster).await;
    let ended = jobs::cancel(control, me, waits.id.as_str()).await.unwrap();
    assert_eq!((ended.job.state.status(), ended.explanation.as_str()), ("canceled", "Canceled before it ran."));
    assert_eq!(code(jobs::cancel(control, me, waits.id.as_str()).await), "job_ended");
    let restarted = jobs::start(control, me, waits.id.as_str()).await.unwrap();
    assert_eq!(restarted.job, ended.job, "a started job is unchanged");

    let runs = queued(&world, &cluster).await;
    place(&world, &runs).await;
    let starting = info(&world, &runs.id).await;
    assert!(
        starting.explanation.starts_with(&format!("Is starting on {cluster}-0 since ")),
        "{}",
        starting.explanation
    );
    move_on(&world, &runs.id, State::run).await;
    let running = info(&world, &runs.id).await;
    assert!(running.explanation.starts_with(&format!("Runs on {cluster}-0 since ")), "{}", running.explanation);
    let stopping = jobs::cancel(control, me, runs.id.as_str()).await.unwrap();
    assert_eq!(stopping.job.state, State::Stopping(Outcome::Canceled));
    assert!(
        stopping.explanation.contains("processes that do not end within 10 s are killed"),
        "{}",
        stopping.explanation
    );
    let again = jobs::cancel(control, me, runs.id.as_str()).await.unwrap();
    assert_eq!(again.job, stopping.job, "it is being stopped already");
    assert_eq!(code(jobs::delete(control, me, runs.id.as_str()).await), "job_not_ended");
    move_on(&world, &runs.id, |state| state.collect(Outcome::Completed)).await;
    let collecting = info(&world, &runs.id).await;
    assert_eq!(collecting.job.state.status(), "canceling");
    move_on(&world, &runs.id, State::end).await;
    assert!(info(&world, &runs.id).await.explanation.starts_with("Canceled after 0.0 s."));
    assert_eq!(world.events("job.cancel").await.len(), 2);
    assert_eq!(world.events("job.ended").await.len(), 1, "the code that ends a job records it");
}

/// A deleted job is gone.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn deleted_job_is_gone(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let (control, me) = (&world.control, &world.caller);
    let job = queued(&world, &cluster).await;
    assert_eq!(code(jobs::delete(control, me, job.id.as_str()).await), "job_not_ended");
    jobs::cancel(control, me, job.id.as_str()).await.unwrap();
    assert_eq!(jobs::delete(control, me, job.id.as_str()).await.unwrap(), job.id);
    assert_eq!(code(jobs::info(control, me, job.id.as_str()).await), "not_found");
    assert_eq!(code(jobs::delete(control, me, job.id.as_str()).await), "not_found");
    assert!(jobs::list(control, me, Listing { all: true, ..Listing::default() }).await.unwrap().items.is_empty());

    let draft = jobs::create(control, me, NewJob { teardown: true, ..new(&cluster) }).await.unwrap().job;
    jobs::delete(control, me, draft.id.as_str()).await.unwrap();
    queued(&world, &cluster).await;
    assert_eq!(world.events("job.delete").await.len(), 2);
    // Discarding does not remove a job that was started.
    let started = queued(&world, &cluster).await;
    jobs::discard(control, &started.id).await.unwrap();
    info(&world, &started.id).await;
}

/// A repeated call creates one job.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn repeated_call_creates_one_job(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let idempotency = Idempotency { key: "again".into(), fingerprint: [1; 32], seal: [2; 32] };
    let me = Caller { idempotency: Some(idempotency), ..world.caller.clone() };
    let calls = (0..8).map(|_| jobs::run(&world.control, &me, new(&cluster)));
    let made: Vec<_> = futures::future::join_all(calls).await.into_iter().map(|made| made.unwrap().job.id).collect();
    assert!(made.iter().all(|id| *id == made[0]));
    assert_eq!(jobs::list(&world.control, &world.caller, Listing::default()).await.unwrap().items.len(), 1);
}

/// An ended job explains how it ended.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn ended_job_is_explained(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let failed = |reason: &str| Outcome::Failed { reason: reason.into() };
    let error = |reason: Option<&str>| Outcome::Error { exit_code: 3, reason: reason.map(str::to_owned) };
    let cases = [
        (Outcome::Completed, None, "Completed in 12 s."),
        (error(None), None, "Error: exit code 3 after 12 s."),
        (error(Some("out of memory")), None, "Error: exit code 3 after 12 s: out of memory."),
        (
            failed("the node was lost"),
            Some("2 files were left out"),
            "Failed after 12 s: the node was lost. 2 files were left out.",
        ),
    ];
    for (outcome, note, expected) in cases {
        let job = queued(&world, &cluster).await;
        let id = job.id.clone();
        let ended = Job {
            state: State::Ended(outcome),
            note: note.map(str::to_owned),
            started: Some(Time::from_micros(1_000_000)),
            ended: Some(Time::from_micros(13_500_000)),
            ..job
        };
        world.store.write(move |tx| tarn_store::jobs::save(tx, &ended)).await.unwrap();
        assert_eq!(info(&world, &id).await.explanation, expected);
    }
}

/// A queued job waits for a cluster that is not running, and a draft of a destroyed cluster cannot start.
#[tokio::test(flavor = "multi_thread")]
async fn job_waits_for_absent_cluster() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let job = queued(&world, &cluster).await;
    let draft = jobs::create(&world.control, &world.caller, new(&cluster)).await.unwrap().job;
    clusters::restart(&world.control, &world.caller, cluster.as_str()).await.unwrap();
    let explanation = info(&world, &job.id).await.explanation;
    assert!(explanation.contains("which is RESTARTING, since "), "{explanation}");
    world.settle().await;
    let id = cluster.clone();
    let gone = world.store.write(move |tx| -> std::result::Result<(), Error> {
        let cluster = tarn_store::clusters::get(tx, &id)?.ok_or(Error::Conflict)?;
        tarn_store::clusters::save(tx, &Cluster { state: tarn_model::lifecycle::State::Destroyed, ..cluster })
    });
    gone.await.unwrap();
    assert_eq!(code(jobs::start(&world.control, &world.caller, draft.id.as_str()).await), "cluster_gone");
}
