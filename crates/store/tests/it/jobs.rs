//! Rows of jobs, their nodes and their logs; the order of admission; and leases.

use std::time::Duration;

use rstest::rstest;
use tarn_model::Time;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::ids::JobId;
use tarn_model::job_configs::{self, Config};
use tarn_model::jobs::{Job, JobNode, Outcome, State, Teardown};
use tarn_model::lifecycle;
use tarn_store::job_status::{self, JobStatus};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, Listing, OwnerFilter, clusters, instances, job_logs, job_nodes, jobs};

use crate::support::{World, cluster, instance, world};

const LEASE: Duration = Duration::from_secs(10);

fn config() -> Config {
    let text = "commands = ['a', 'b']\noutputs = ['x']\nnodes = 'all'\ntimeout = 5\nretries = { count = 1, exit_codes = [3] }\n\
                [env]\nA = 'b'";
    job_configs::parse(text).unwrap()
}

fn job(world: &World, cluster: &Cluster, created: i64) -> Job {
    let now = Time::from_micros(created);
    Job {
        id: JobId::fresh(&*world.ids),
        owner: world.owner.clone(),
        cluster: cluster.id.clone(),
        instance_type: cluster.instance_type.clone(),
        name: "a-job".into(),
        config: config(),
        teardown: Teardown::No,
        archive_bytes: None,
        state: State::Draft,
        since: now,
        attempt: 1,
        note: None,
        log_bytes: 0,
        created: now,
        queued: None,
        started: None,
        ended: None,
        version: 0,
    }
}

async fn add(world: &World, job: &Job) {
    let job = job.clone();
    world.store.write(move |tx| jobs::insert(tx, &job)).await.unwrap();
}

async fn add_cluster(world: &World, jobs_parallel: u32) -> Cluster {
    add_cluster_in(world, &format!("c{jobs_parallel}"), lifecycle::State::Running, jobs_parallel).await
}

/// A cluster with a node, which holds capacity unless the cluster waits for it.
async fn add_cluster_in(world: &World, name: &str, state: lifecycle::State, jobs_parallel: u32) -> Cluster {
    let new = Cluster { state, jobs_parallel, ..cluster(&*world.ids, &world.owner, name, 1) };
    let holds_capacity = new.state != lifecycle::State::Pending;
    let node = Instance { holds_capacity, state: new.state.clone(), ..instance(&*world.ids, &new.id, 0) };
    let added = new.clone();
    let write = world.store.write(move |tx| -> Result<(), Error> {
        clusters::insert(tx, &added)?;
        instances::insert(tx, &node)
    });
    write.await.unwrap();
    new
}

async fn get(world: &World, id: &JobId) -> Option<Job> {
    world.store.read(|tx| jobs::get(tx, id)).await.unwrap()
}

/// A job in the queue.
async fn queued(world: &World, cluster: &Cluster, created: i64) -> Job {
    let made = Job { archive_bytes: Some(0), ..job(world, cluster, created) };
    let made = made.start(Time::from_micros(created + 1)).unwrap();
    add(world, &made).await;
    made
}

/// Admits every job that may start.
async fn admit(world: &World) -> Vec<JobId> {
    let write = world.store.write(|tx| -> Result<_, Error> {
        let mut admitted = Vec::new();
        for job in jobs::admissible(tx)? {
            let job = job.moved(tx.now(), State::admit).unwrap();
            jobs::save(tx, &job)?;
            admitted.push(job.id);
        }
        Ok(admitted)
    });
    write.await.unwrap()
}

/// Jobs are read as they were saved, until they are removed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn jobs_round_trip(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = add_cluster(&world, 1).await;
    let draft = job(&world, &cluster, 5);
    add(&world, &draft).await;
    assert_eq!(get(&world, &draft.id).await, Some(draft.clone()));

    let reason = Some("a command failed".to_owned());
    let changed = Job {
        teardown: Teardown::Wanted,
        archive_bytes: Some(7),
        state: State::Ended(Outcome::Error { exit_code: 3, reason }),
        since: Time::from_micros(9),
        attempt: 2,
        note: Some("again".into()),
        queued: Some(Time::from_micros(6)),
        started: Some(Time::from_micros(7)),
        ended: Some(Time::from_micros(9)),
        ..draft.clone()
    };
    let saved = changed.clone();
    world.store.write(move |tx| jobs::save(tx, &saved)).await.unwrap();
    assert_eq!(get(&world, &draft.id).await, Some(Job { version: 1, ..changed.clone() }));
    let stale = changed.clone();
    let lost = world.store.write(move |tx| jobs::save(tx, &stale)).await;
    assert!(matches!(lost, Err(Error::Conflict)));

    let id = draft.id.clone();
    let hidden = Job { version: 1, ..changed };
    world.store.write(move |tx| jobs::set_removing(tx, &hidden)).await.unwrap();
    assert_eq!(get(&world, &draft.id).await, None);
    assert_eq!(world.store.read(|tx| jobs::progress(tx, &id)).await.unwrap(), None);
    let removing = || world.store.read(|tx| jobs::removing(tx, None, 10));
    assert!(removing().await.unwrap().is_empty(), "its cluster has to be destroyed first");
    let of = id.clone();
    let over = world.store.write(move |tx| -> Result<(), Error> {
        let job = jobs::tearing_down(tx, None, 10)?.pop().ok_or(Error::Conflict)?;
        assert_eq!(job.id, of);
        jobs::save(tx, &Job { teardown: Teardown::Over, ..job })
    });
    over.await.unwrap();
    assert_eq!(removing().await.unwrap().len(), 1);
    let of = id.clone();
    world.store.write(move |tx| jobs::remove(tx, &of)).await.unwrap();
    let unknown = world.store.read(|tx| jobs::unknown(tx, std::slice::from_ref(&id))).await.unwrap();
    assert_eq!(unknown, [id]);
}

/// Lists of jobs are newest first, and open jobs are counted.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_listed_newest_first(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = add_cluster(&world, 1).await;
    let mut made = Vec::new();
    for created in 1..=3 {
        made.push(queued(&world, &cluster, created * 10).await.id);
    }
    made.reverse();
    let scope = world.owner.scope().to_owned();
    for owner in [OwnerFilter::Scope(&scope), OwnerFilter::User { user: world.owner.user.as_str(), scope: &scope }] {
        let listing = Listing { owner, all: false, after: None, limit: 10 };
        let listed = world.store.read(|tx| jobs::list(tx, &listing)).await.unwrap();
        assert_eq!(listed.iter().map(|job| job.id.clone()).collect::<Vec<_>>(), made);
        let rest = Listing { after: Some((listed[1].created, listed[1].id.as_str())), ..listing };
        let rest = world.store.read(|tx| jobs::list(tx, &rest)).await.unwrap();
        assert_eq!(rest.iter().map(|job| &job.id).collect::<Vec<_>>(), [&made[2]]);
    }
    assert_eq!(world.store.read(|tx| jobs::count_open_of_cluster(tx, &cluster.id)).await.unwrap(), 3);
}

/// Jobs are admitted in order, and only to free slots.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_admitted_in_order(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (one, two) = (add_cluster(&world, 1).await, add_cluster(&world, 2).await);
    add(&world, &job(&world, &one, 1)).await;
    let (mut ones, mut twos) = (Vec::new(), Vec::new());
    for created in 1..=3 {
        ones.push(queued(&world, &one, created * 100).await);
        twos.push(queued(&world, &two, created * 100).await);
    }
    let mut admitted = admit(&world).await;
    let mut expected = vec![ones[0].id.clone(), twos[0].id.clone(), twos[1].id.clone()];
    admitted.sort();
    expected.sort();
    assert_eq!(admitted, expected);
    assert!(admit(&world).await.is_empty(), "all slots are in use");
    let (placed, waiting) = world.store.read(|tx| jobs::line(tx, &one.id)).await.unwrap();
    assert_eq!((placed, waiting), (1, vec![ones[1].id.clone(), ones[2].id.clone()]));

    let first = ones[0].id.clone();
    let end = world.store.write(move |tx| -> Result<(), Error> {
        let job = jobs::get(tx, &first)?.ok_or(Error::Conflict)?;
        let job = job.moved(tx.now(), |state| state.collect(Outcome::Completed)?.end()).unwrap();
        jobs::save(tx, &job)
    });
    end.await.unwrap();
    assert_eq!(admit(&world).await, [ones[1].id.clone()]);
    let open = world.store.read(|tx| jobs::open_of_cluster(tx, &one.id)).await.unwrap();
    assert_eq!(open.len(), 3, "a draft, an admitted job and a waiting job");
}

/// Jobs start on clusters that run, wherever these are among clusters without jobs and jobs of other clusters.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn jobs_start_only_on_running_clusters(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    assert!(!world.store.read(jobs::is_any_due).await.unwrap());
    let mut expected = Vec::new();
    for number in 0..24 {
        let state = if number % 3 == 0 { lifecycle::State::Pending } else { lifecycle::State::Running };
        let runs = state == lifecycle::State::Running;
        let cluster = add_cluster_in(&world, &format!("n{number}"), state, 1).await;
        if number % 4 != 0 {
            let first = queued(&world, &cluster, 10).await;
            queued(&world, &cluster, 20).await;
            expected.extend(Some(first.id).filter(|_| runs));
        }
        assert_eq!(world.store.read(jobs::is_any_due).await.unwrap(), !expected.is_empty());
    }
    let mut admitted = admit(&world).await;
    admitted.sort();
    expected.sort();
    assert_eq!((expected.len(), admitted), (12, expected));
}

/// The holder of a lost lease can write nothing.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn lost_lease_writes_nothing(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = add_cluster(&world, 1).await;
    let id = queued(&world, &cluster, 10).await.id;
    admit(&world).await;
    let lease = || world.store.write(|tx| jobs::lease_available(tx, LEASE, 10));
    let first = lease().await.unwrap().pop().unwrap();
    assert_eq!((&first.job.id, first.epoch), (&id, 1));
    assert!(lease().await.unwrap().is_empty());
    let (of, epoch) = (id.clone(), first.epoch);
    world.store.write(move |tx| jobs::set_log_bytes(tx, &of, epoch, 42, LEASE)).await.unwrap();
    assert_eq!(world.store.read(|tx| jobs::progress(tx, &id)).await.unwrap(), Some((42, false)));

    world.clock.advance(LEASE * 2);
    let second = lease().await.unwrap().pop().unwrap();
    assert_eq!((second.job.log_bytes, second.epoch), (42, 2));
    for epoch in [first.epoch, second.epoch + 1] {
        let (one, two, three) = (id.clone(), id.clone(), id.clone());
        let wrote = world.store.write(move |tx| jobs::set_log_bytes(tx, &one, epoch, 7, LEASE)).await;
        assert!(matches!(wrote, Err(Error::Conflict)));
        let renewed = world.store.write(move |tx| jobs::renew(tx, &two, epoch, LEASE)).await;
        assert!(matches!(renewed, Err(Error::Conflict)));
        assert!(matches!(world.store.read(|tx| jobs::leased(tx, &three, epoch)).await, Err(Error::Conflict)));
    }
    let of = id.clone();
    world.store.write(move |tx| jobs::release(tx, &of, 2)).await.unwrap();
    assert_eq!(lease().await.unwrap().pop().unwrap().epoch, 3);
    assert_eq!(world.store.write(jobs::release_all).await.unwrap(), 1);
    assert_eq!(lease().await.unwrap().pop().unwrap().epoch, 5, "stopped holders can write nothing");
}

/// Nodes and logs are read as they were saved.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_logs_round_trip(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = add_cluster(&world, 1).await;
    let id = queued(&world, &cluster, 10).await.id;
    let node_instances = [instance(&*world.ids, &cluster.id, 1), instance(&*world.ids, &cluster.id, 2)];
    let node = |at: usize| JobNode {
        job: id.clone(),
        node: at as u32,
        instance: node_instances[at].id.clone(),
        boot: 1,
        log_offset: 0,
        ended: false,
    };
    let both = [node(0), node(1)];
    let further = JobNode { log_offset: 9, ended: true, ..node(1) };
    let (of, rows, moved) = (id.clone(), both.clone(), further.clone());
    let added = node_instances.clone();
    let write = world.store.write(move |tx| -> Result<(), Error> {
        for instance in &added {
            instances::insert(tx, instance)?;
        }
        job_nodes::replace(tx, &of, &rows)?;
        job_nodes::replace(tx, &of, &rows)?;
        job_nodes::advance(tx, &moved)
    });
    write.await.unwrap();
    let read = world.store.read(|tx| job_nodes::of_job(tx, &id)).await.unwrap();
    assert_eq!(read, [node(0), further.clone()]);
    assert_eq!(world.store.read(|tx| job_nodes::of_instance(tx, &node_instances[1].id)).await.unwrap(), [further]);

    let of = id.clone();
    let write = world.store.write(move |tx| -> Result<(), Error> {
        job_logs::insert(tx, &of, 0, 5, Some(b"hello"))?;
        job_logs::insert(tx, &of, 5, 2, Some(b"\0\xff"))?;
        job_logs::insert(tx, &of, 7, 100, None)?;
        job_logs::insert(tx, &of, 107, 1, Some(b"x"))
    });
    write.await.unwrap();
    let starts = |offset| {
        let id = id.clone();
        let store = world.store.clone();
        async move {
            let pieces = store.read(|tx| job_logs::from(tx, &id, offset, 10)).await.unwrap();
            pieces.into_iter().map(|piece| piece.start).collect::<Vec<_>>()
        }
    };
    assert_eq!(starts(0).await, [0, 5, 7, 107]);
    assert_eq!(starts(6).await, [5, 7, 107]);
    assert_eq!(starts(50).await, [7, 107]);
    assert_eq!(world.store.read(|tx| job_logs::inline(tx, &id)).await.unwrap(), [(0, 5), (5, 2), (107, 1)]);
    let of = id.clone();
    world.store.write(move |tx| job_logs::merge(tx, &of, 0, 7)).await.unwrap();
    assert_eq!(starts(6).await, [0, 7, 107]);
    let of = id.clone();
    world.store.write(move |tx| jobs::remove(tx, &of)).await.unwrap();
    assert!(starts(0).await.is_empty());
}

/// Expired drafts and expired jobs are found.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn expired_jobs_are_found(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = add_cluster(&world, 1).await;
    let draft = job(&world, &cluster, 5);
    add(&world, &draft).await;
    let ended =
        Job { state: State::Ended(Outcome::Canceled), ended: Some(Time::from_micros(50)), ..job(&world, &cluster, 6) };
    add(&world, &ended).await;
    let drafts = |until: i64| world.store.read(move |tx| jobs::expired_drafts(tx, Time::from_micros(until), 10));
    assert_eq!((drafts(4).await.unwrap().len(), drafts(5).await.unwrap().len()), (0, 1));
    let of = draft.id.clone();
    world.store.write(move |tx| jobs::refresh_draft(tx, &of)).await.unwrap();
    assert!(drafts(5).await.unwrap().is_empty(), "it was refreshed");
    let of = ended.id.clone();
    let refreshed = world.store.write(move |tx| jobs::refresh_draft(tx, &of)).await;
    assert!(matches!(refreshed, Err(Error::Conflict)));
    let expired = |until: i64| world.store.read(move |tx| jobs::expired(tx, Time::from_micros(until), 10));
    assert_eq!((expired(49).await.unwrap().len(), expired(50).await.unwrap().len()), (0, 1));
    let mut ids: Vec<JobId> = (0..70).map(|_| JobId::fresh(&*world.ids)).collect();
    assert!(world.store.read(|tx| job_status::of_jobs(tx, &ids)).await.unwrap().is_empty());
    ids.extend([draft.id.clone(), ended.id.clone()]);
    let mut found = world.store.read(|tx| job_status::of_jobs(tx, &ids)).await.unwrap();
    found.sort_by_key(|status| status.ended);
    let status =
        |job: &Job| JobStatus { id: job.id.clone(), attempt: 1, is_placed: false, ended: job.ended, is_hidden: false };
    assert_eq!(found, [status(&draft), status(&ended)]);
}

/// A hidden draft does not keep its cluster from being destroyed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn hidden_draft_holds_no_cluster(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let cluster = add_cluster(&world, 1).await;
    let draft = Job { teardown: Teardown::Wanted, ..job(&world, &cluster, 5) };
    add(&world, &draft).await;
    let tears_down = || world.store.read(|tx| jobs::tears_down(tx, &cluster.id));
    let is_open = || world.store.read(|tx| jobs::is_any_open(tx, &cluster.id));
    assert!(tears_down().await.unwrap().is_some() && is_open().await.unwrap());
    world.store.write(move |tx| jobs::set_removing(tx, &draft)).await.unwrap();
    assert!(tears_down().await.unwrap().is_none() && !is_open().await.unwrap());
    assert_eq!(world.store.read(|tx| jobs::removing(tx, None, 10)).await.unwrap().len(), 1);
}
