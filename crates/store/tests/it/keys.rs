//! SSH keys: which key opens which cluster.

use rstest::rstest;
use tarn_model::Time;
use tarn_model::clusters::Cluster;
use tarn_model::ids::SshKeyId;
use tarn_model::lifecycle::State;
use tarn_model::ssh_keys::{ParsedKey, SshKey, parse};
use tarn_model::users::Owner;
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, Store, cluster_keys, clusters, expiry, installation, ssh_keys, users};

use crate::support::{World, cluster, raw, user, world};

const FIRST: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti first";
const SECOND: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICTUw65+u5ZIOkIOEmTaW+w/oB5xYsgvLrG3I5WZotY5 second";

fn saved(world: &World, owner: &Owner, key: &ParsedKey) -> SshKey {
    SshKey {
        id: SshKeyId::fresh(&*world.ids),
        owner: owner.clone(),
        name: "laptop".into(),
        public_key: key.public_key.clone(),
        fingerprint: key.fingerprint.clone(),
        created: Time::ZERO,
    }
}

async fn add(world: &World, cluster: &Cluster, keys: &[ParsedKey]) {
    let (cluster, keys) = (cluster.clone(), keys.to_vec());
    let write = world.store.write(move |tx| -> Result<(), Error> {
        clusters::insert(tx, &cluster)?;
        cluster_keys::save(tx, &cluster.id, &keys)
    });
    write.await.unwrap();
}

async fn opened(store: &Store, key: &ParsedKey) -> Vec<String> {
    let found = store.read(|tx| clusters::opened_by(tx, &key.fingerprint)).await.unwrap();
    found.into_iter().map(|cluster| cluster.name).collect()
}

/// A key opens the clusters of its scope and the clusters created with it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn key_opens_its_clusters(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (first, second) = (parse(FIRST).unwrap(), parse(SECOND).unwrap());
    let eve = user(&*world.ids, "eve@example.org", None);
    let theirs = cluster(&*world.ids, &eve.owner(), "theirs", 3);
    let ours = cluster(&*world.ids, &world.owner, "ours", 1);
    let gone = Cluster { state: State::Destroyed, ..cluster(&*world.ids, &world.owner, "gone", 2) };
    let key = saved(&world, &world.owner, &first);
    let (other_user, insert) = (eve.clone(), key.clone());
    let write = world.store.write(move |tx| -> Result<(), Error> {
        users::insert(tx, &other_user)?;
        ssh_keys::insert(tx, &insert)
    });
    write.await.unwrap();
    add(&world, &ours, std::slice::from_ref(&second)).await;
    add(&world, &gone, &[first.clone(), second.clone()]).await;
    add(&world, &theirs, &[first.clone(), second.clone()]).await;

    assert_eq!(opened(&world.store, &first).await, ["theirs", "ours"], "saved for ours, given to theirs; newest first");
    assert_eq!(opened(&world.store, &second).await, ["theirs", "ours"]);
    assert_eq!(world.store.read(|tx| ssh_keys::with_fingerprint(tx, &first.fingerprint)).await.unwrap(), [key]);
    let owners = world.store.read(|tx| ssh_keys::with_fingerprint(tx, &second.fingerprint)).await.unwrap();
    assert!(owners.is_empty(), "it was never saved by a user");

    let me = world.owner.user.clone();
    world.store.write(move |tx| users::set_disabled(tx, &me, true)).await.unwrap();
    assert_eq!(opened(&world.store, &first).await, ["theirs"], "a disabled user has no saved keys");
    assert_eq!(opened(&world.store, &second).await, ["theirs"], "keys given by a disabled user open nothing");
    let read = world.store.read(|tx| -> Result<_, Error> {
        Ok((ssh_keys::opening(tx, world.owner.scope())?, cluster_keys::opening(tx, &ours.id)?))
    });
    assert_eq!(read.await.unwrap(), (vec![], vec![]), "the nodes get the same keys");
}

/// A withdrawn key opens nothing in its scope.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_key_opens_nothing(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (first, second) = (parse(FIRST).unwrap(), parse(SECOND).unwrap());
    let eve = user(&*world.ids, "eve@example.org", None);
    let (both, alone) = (cluster(&*world.ids, &world.owner, "both", 1), cluster(&*world.ids, &world.owner, "alone", 2));
    let foreign = cluster(&*world.ids, &eve.owner(), "foreign", 3);
    world.store.write(move |tx| users::insert(tx, &eve)).await.unwrap();
    add(&world, &both, &[first.clone(), second.clone()]).await;
    add(&world, &alone, std::slice::from_ref(&first)).await;
    add(&world, &foreign, std::slice::from_ref(&first)).await;
    let bytes = world.store.read(|tx| cluster_keys::longest_bytes(tx, world.owner.scope())).await.unwrap();
    assert_eq!(bytes as usize, FIRST.len() + 1 + SECOND.len());

    let (scope, fingerprint) = (world.owner.scope().to_owned(), first.fingerprint.clone());
    let count = world.store.write(move |tx| cluster_keys::withdraw(tx, &scope, &fingerprint, None)).await.unwrap();
    assert_eq!(count, 2);
    assert_eq!(opened(&world.store, &first).await, ["foreign"], "another owner's cluster is left alone");
    assert_eq!(opened(&world.store, &second).await, ["both"]);
    let read = world.store.read(|tx| -> Result<_, Error> {
        Ok((cluster_keys::opening(tx, &both.id)?, cluster_keys::opening(tx, &alone.id)?))
    });
    assert_eq!(read.await.unwrap(), (vec![SECOND.to_owned()], vec![]));
}

/// Keys saved before fingerprints existed open their clusters.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn missing_fingerprints_are_filled(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let first = parse(FIRST).unwrap();
    // More than one batch, and one whose text is not a key at all.
    for n in 0..120 {
        let garbled = ParsedKey { public_key: "not a key".into(), fingerprint: "none".into() };
        let key = if n == 50 { garbled } else { first.clone() };
        add(&world, &cluster(&*world.ids, &world.owner, &format!("c{n}"), n), &[key]).await;
    }
    raw(&world.fresh.database, "delete from cluster_fingerprints").await;
    assert!(opened(&world.store, &first).await.is_empty());
    let again = Store::open(&world.fresh.database, world.clock.clone(), world.ids.clone()).await.unwrap();
    assert_eq!(opened(&again, &first).await.len(), 119);
}

/// A removed cluster leaves no keys behind.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn removed_cluster_leaves_no_keys(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let first = parse(FIRST).unwrap();
    let gone = Cluster { state: State::Destroyed, ..cluster(&*world.ids, &world.owner, "gone", 2) };
    add(&world, &gone, std::slice::from_ref(&first)).await;
    let forgotten = world.store.write(|tx| expiry::forget_ended(tx, Time::from_micros(2))).await.unwrap();
    assert_eq!(forgotten, 3, "the cluster, its keys and their fingerprints");
    let more = world.store.write(|tx| expiry::forget_ended(tx, Time::from_micros(2))).await.unwrap();
    assert_eq!(more, 0);
}

/// The first value stored for an installation is kept.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn first_installation_value_is_kept(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    for value in ["one", "two"] {
        let kept = world.store.write(move |tx| installation::remember_once(tx, "secret_key", value)).await.unwrap();
        assert_eq!(kept, "one");
    }
    assert_eq!(world.store.read(|tx| installation::get(tx, "other")).await.unwrap(), None);
}
