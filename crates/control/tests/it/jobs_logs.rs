//! Reading the logs of jobs, wherever their pieces are.

use std::time::Duration;

use rstest::rstest;
use tarn_control::jobs::logs::{self, Followed, Follower, MAX_PART};
use tarn_control::operations::jobs;
use tarn_link::JobEnd;
use tarn_model::ids::JobId;
use tarn_model::jobs::{Outcome, State};
use tarn_model::objects::Details;
use tarn_objects::files::Sums;
use tarn_objects::internal;
use tarn_objects::put::{Condition, ObjectLocation};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, job_logs};

use crate::jobs_operations::{move_on, place, queued};
use crate::jobs_support::{DEADLINE, Stage};
use crate::support::{World, world};

/// Writes a piece down as whoever drives the job would: in a row, or as an object.
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

/// A job that runs and has written a megabyte and a bit, in all sorts of pieces.
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

/// All that a follower gets, and how it ended.
async fn to_the_end(mut follower: Follower) -> (Vec<u8>, State) {
    let mut data = Vec::new();
    loop {
        match follower.next().await.unwrap() {
            Followed::Data(piece) => {
                assert!(!piece.is_empty() && piece.len() <= 256 << 10);
                data.extend_from_slice(&piece);
            }
            Followed::Ended(view) => return (data, view.job.state),
        }
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn every_part_is_read_from_wherever_it_is(
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

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_all_of_it_and_the_end(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(world) = world(engine).await else { return };
    let (job, mut all) = written(&world).await;
    let follow = || logs::follow(&world.control, &world.caller, job.as_str());
    let mut early = follow().await.unwrap();
    let mut got = Vec::new();
    while got.len() < all.len() {
        let Followed::Data(piece) = early.next().await.unwrap() else { panic!("it has not ended") };
        got.extend_from_slice(&piece);
    }
    assert!(got == all);
    // Who waits and is called away misses nothing.
    assert!(tokio::time::timeout(Duration::from_millis(50), early.next()).await.is_err());
    let at = all.len() as u64;
    write(&world, &job, at, b"the rest", false).await;
    all.extend_from_slice(b"the rest");
    end(&world, &job).await;
    let (rest, state) = to_the_end(early).await;
    assert_eq!((rest.as_slice(), state), (b"the rest".as_slice(), State::Ended(Outcome::Completed)));
    let (late, _) = to_the_end(follow().await.unwrap()).await;
    assert!(late == all);
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_of_a_job_that_never_ran_hear_of_its_end() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let job = queued(&world, &cluster).await.id;
    let follow = || logs::follow(&world.control, &world.caller, job.as_str());
    let mut followers = Vec::new();
    for _ in 0..100 {
        followers.push(tokio::spawn(to_the_end(follow().await.unwrap())));
    }
    jobs::cancel(&world.control, &world.caller, job.as_str()).await.unwrap();
    for follower in followers {
        let heard = tokio::time::timeout(Duration::from_secs(60), follower).await.unwrap().unwrap();
        assert_eq!(heard, (Vec::new(), State::Ended(Outcome::Canceled)));
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn many_follow_a_running_job_and_each_gets_every_byte(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(stage) = Stage::open(engine, 1, 1).await else { return };
    let view = stage.run("commands = ['wait']").await;
    stage.in_state(&view, "RUNNING").await;
    let mut expected = String::new();
    let mut followers = Vec::new();
    for round in 0..40 {
        // Some come in the middle and begin all the same with the first byte.
        for _ in 0..10 {
            let follower = logs::follow(&stage.world.control, &stage.world.caller, view.job.id.as_str()).await.unwrap();
            followers.push(tokio::spawn(to_the_end(follower)));
        }
        let text = format!("{round}: {}\n", "x".repeat(round * 1000));
        stage.guest(0).print(&text);
        expected.push_str(&text);
        tokio::task::yield_now().await;
    }
    stage.guest(0).end_all(&JobEnd::Exited { code: 0 });
    for follower in followers {
        let (heard, state) = tokio::time::timeout(DEADLINE, follower).await.unwrap().unwrap();
        assert!(heard == expected.as_bytes(), "{} bytes instead of {}", heard.len(), expected.len());
        assert_eq!(state, State::Ended(Outcome::Completed));
    }
}
