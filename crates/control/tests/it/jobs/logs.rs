//! Reading the logs of jobs from rows, objects and memory.

use std::time::Duration;

use rstest::rstest;
use tarn_control::jobs::logs::{self, Followed, Follower, MAX_PART, PIECE};
use tarn_control::operations::jobs;
use tarn_control::testing::{World, world};
use tarn_link::JobEnd;
use tarn_model::ids::JobId;
use tarn_model::jobs::{Outcome, State};
use tarn_model::objects::Details;
use tarn_objects::files::Sums;
use tarn_objects::internal;
use tarn_objects::put::{Condition, ObjectLocation};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, job_logs};

use super::operations::{move_on, place, queued};
use super::support::{DEADLINE, Stage};

/// Stores a piece as the task that runs the job would: in a row, or as an object.
async fn write(world: &World, job: &JobId, start: u64, data: &[u8], as_object: bool) {
    if as_object {
        let objects = world.control.objects();
        objects.ensure_internal("jobs").await.unwrap();
        let place =
            ObjectLocation { org: internal::account(), bucket: "jobs".into(), key: format!("{job}/log/{start:020}") };
        let mut intake = objects.intake(&place, None, Sums::default()).await.unwrap();
        intake.push(bytes::Bytes::copy_from_slice(data)).await.unwrap();
        let received = intake.finish().await.unwrap();
        objects.put(&place, received, Details::default(), Condition::default()).await.unwrap();
    }
    let (job, data) = (job.clone(), data.to_vec());
    let write = world.store.write(move |tx| -> Result<(), Error> {
        job_logs::insert(tx, &job, start, data.len() as u64, (!as_object).then_some(&data))?;
        tarn_store::jobs::release_all(tx)?;
        let lease = Duration::from_secs(10);
        let leased =
            tarn_store::jobs::lease_available(tx, lease, 1000)?.into_iter().find(|leased| leased.job.id == job);
        let epoch = leased.ok_or(Error::Conflict)?.epoch;
        tarn_store::jobs::set_log_bytes(tx, &job, epoch, start + data.len() as u64, lease)
    });
    write.await.unwrap();
}

/// Returns a running job that has written more than a megabyte, in pieces of many sizes.
async fn written(world: &World) -> (JobId, Vec<u8>) {
    let cluster = world.running("1xCPU", 1).await;
    let job = queued(world, &cluster).await;
    place(world, &job).await;
    move_on(world, &job.id, State::run).await;
    let all: Vec<u8> = (0..1_200_000_u32).map(|at| (at % 251) as u8).collect();
    let mut at = 0;
    for (length, as_object) in [(1, false), (10, false), (700_000, true), (5_000, true), (300_000, false), (7, false)] {
        write(world, &job.id, at as u64, &all[at..at + length], as_object).await;
        at += length;
    }
    for length in std::iter::repeat_n(100, 30) {
        write(world, &job.id, at as u64, &all[at..at + length], false).await;
        at += length;
    }
    write(world, &job.id, at as u64, &all[at..], true).await;
    (job.id, all)
}

async fn end(world: &World, job: &JobId) {
    move_on(world, job, |state| state.collect(Outcome::Completed)?.end()).await;
}

/// Reads everything that a follower returns, and the final state.
async fn read_to_end(mut follower: Follower) -> (Vec<u8>, State) {
    let mut data = Vec::new();
    loop {
        match follower.next().await.unwrap() {
            Followed::Data(piece) => {
                assert!(!piece.is_empty() && piece.len() as u64 <= PIECE);
                data.extend_from_slice(&piece);
            }
            Followed::Ended(view) => return (data, view.job.state),
        }
    }
}

/// Every part of a log is read, from rows and from objects.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn parts_are_read_from_rows_and_objects(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(world) = world(engine).await else { return };
    let (job, all) = written(&world).await;
    let total = all.len() as u64;
    for (offset, limit) in
        [(0, total), (0, 1), (5, 20), (10, 2), (700_011, 10), (705_000, 400_000), (total - 1, 9), (1_005_100, 150)]
    {
        let part = logs::read(&world.control, &world.caller, job.as_str(), offset, limit).await.unwrap();
        let to = all.len().min((offset + limit) as usize);
        assert!(part.data == all[offset as usize..to], "{limit} bytes from {offset} on");
        assert_eq!((part.start, part.total, part.ended), (offset, total, false));
    }
    for offset in [total, total + 5, u64::MAX] {
        let part = logs::read(&world.control, &world.caller, job.as_str(), offset, MAX_PART).await.unwrap();
        assert!(part.data.is_empty() && part.total == total);
    }
    end(&world, &job).await;
    let part = logs::read(&world.control, &world.caller, job.as_str(), 0, u64::MAX).await.unwrap();
    assert!(part.ended && part.data == all);
    let stranger = world.other_tenant().await;
    assert_eq!(logs::read(&world.control, &stranger, job.as_str(), 0, 1).await.unwrap_err().code, "access_denied");
    let followed = logs::follow(&world.control, &stranger, job.as_str()).await.map(drop);
    assert_eq!(followed.unwrap_err().code, "access_denied");
}

/// Followers of the same job share what was read for one of them, and output that was taken back comes again.
#[tokio::test(flavor = "multi_thread")]
async fn followers_share_output() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let (job, all) = written(&world).await;
    let follow = async || logs::follow(&world.control, &world.caller, job.as_str()).await.unwrap();
    let (mut one, mut other) = (follow().await, follow().await);
    let mut at = 0;
    for _ in 0..8 {
        let (Followed::Data(first), Followed::Data(second)) = (one.next().await.unwrap(), other.next().await.unwrap())
        else {
            panic!("there is more output");
        };
        assert_eq!((first.as_ptr(), first.len()), (second.as_ptr(), second.len()), "it is in memory once");
        one.return_again(&first);
        let Followed::Data(again) = one.next().await.unwrap() else { panic!("it comes again") };
        assert!(again == first && first == all[at..at + first.len()]);
        at += first.len();
    }
}

/// A follower reads the whole log and the end of the job.
#[tokio::test(start_paused = true)]
async fn follower_reads_all_and_end_on_sqlite() {
    follower_reads_all_and_end(DatabaseKind::Sqlite).await;
}

/// The same in an engine that may have replicas.
#[tokio::test(flavor = "multi_thread")]
async fn follower_reads_all_and_end_on_postgresql() {
    follower_reads_all_and_end(DatabaseKind::Postgres).await;
}

async fn follower_reads_all_and_end(engine: DatabaseKind) {
    let Some(world) = world(engine).await else { return };
    let (job, mut all) = written(&world).await;
    let follow = || logs::follow(&world.control, &world.caller, job.as_str());
    let mut early = follow().await.unwrap();
    let mut got = Vec::new();
    while got.len() < all.len() {
        let Followed::Data(piece) = early.next().await.unwrap() else { panic!("the job has not ended") };
        got.extend_from_slice(&piece);
    }
    assert!(got == all);
    // A follower whose future is dropped misses nothing.
    assert!(tokio::time::timeout(Duration::from_millis(50), early.next()).await.is_err());
    let at = all.len() as u64;
    write(&world, &job, at, b"the rest", false).await;
    all.extend_from_slice(b"the rest");
    end(&world, &job).await;
    let (rest, state) = read_to_end(early).await;
    assert_eq!((rest.as_slice(), state), (b"the rest".as_slice(), State::Ended(Outcome::Completed)));
    let (late, _) = read_to_end(follow().await.unwrap()).await;
    assert!(late == all);
}

/// Followers of a job that never ran receive its end.
#[tokio::test(flavor = "multi_thread")]
async fn followers_see_end_without_run() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let job = queued(&world, &cluster).await.id;
    let follow = || logs::follow(&world.control, &world.caller, job.as_str());
    let mut followers = Vec::new();
    for _ in 0..100 {
        followers.push(tokio::spawn(read_to_end(follow().await.unwrap())));
    }
    jobs::cancel(&world.control, &world.caller, job.as_str()).await.unwrap();
    for follower in followers {
        let received = tokio::time::timeout(Duration::from_secs(60), follower).await.unwrap().unwrap();
        assert_eq!(received, (Vec::new(), State::Ended(Outcome::Canceled)));
    }
}

/// Many followers of a running job each read every byte.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn many_followers_read_every_byte(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let view = stage.run("commands = ['wait']").await;
    stage.in_state(&view, "RUNNING").await;
    let mut expected = String::new();
    let mut followers = Vec::new();
    for round in 0..40 {
        // Followers that start later also begin with the first byte.
        for _ in 0..10 {
            let follower = logs::follow(&stage.world.control, &stage.world.caller, view.job.id.as_str()).await.unwrap();
            followers.push(tokio::spawn(read_to_end(follower)));
        }
        let text = format!("{round}: {}\n", "x".repeat(round * 1000));
        stage.guest(0).print(&text);
        expected.push_str(&text);
        tokio::task::yield_now().await;
    }
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    for follower in followers {
        let (received, state) = tokio::time::timeout(DEADLINE, follower).await.unwrap().unwrap();
        assert!(received == expected.as_bytes(), "{} bytes instead of {}", received.len(), expected.len());
        assert_eq!(state, State::Ended(Outcome::Completed));
    }
}
