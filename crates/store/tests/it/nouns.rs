//! Rows are read as they were saved, lists are ordered, and unique values are unique.

use rstest::rstest;
use tarn_model::ids::{ApiKeyId, VolumeId};
use tarn_model::ledger::{Account, Transfer};
use tarn_model::lifecycle::State;
use tarn_model::preferences::Preferences;
use tarn_model::ssh_keys::SshKey;
use tarn_model::storage::{Attachment, AttachmentState, Volume, VolumeRemains, VolumeState};
use tarn_model::{Money, Time};
use tarn_store::testing::DatabaseKind;
use tarn_store::users::ApiKey;
use tarn_store::{
    Error, Listing, OwnerFilter, attachments, clusters, events, idempotency, instances, ledger, ssh_keys, storage,
    users,
};

use crate::support::{cluster, granted, instance, user, world};

/// Clusters are read as they were saved, and a stale version is refused.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn clusters_round_trip_and_guard_versions(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let made = cluster(&*world.ids, &world.owner, "heron", 5);
    let (added, id) = (made.clone(), made.id.clone());
    world.store.write(move |tx| clusters::insert(tx, &added)).await.unwrap();
    let found = world.store.read(|tx| clusters::get(tx, &id)).await.unwrap();
    assert_eq!(found, Some(made.clone()));

    let changed = tarn_model::clusters::Cluster { state: State::Failed { reason: "wörld".into() }, ..made.clone() };
    let save = changed.clone();
    world.store.write(move |tx| clusters::save(tx, &save)).await.unwrap();
    let stale = world.store.write(move |tx| clusters::save(tx, &changed)).await;
    assert!(matches!(stale, Err(Error::Conflict)), "the version has moved on");
    let found = world.store.read(|tx| clusters::get(tx, &made.id)).await.unwrap().unwrap();
    assert_eq!(found.state.reason(), Some("wörld"));
}

/// The name of a destroyed cluster is free again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn destroyed_cluster_frees_its_name(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let first = cluster(&*world.ids, &world.owner, "heron", 1);
    let second = cluster(&*world.ids, &world.owner, "heron", 2);
    let (a, b) = (first.clone(), second.clone());
    world.store.write(move |tx| clusters::insert(tx, &a)).await.unwrap();
    let taken = world.store.write(move |tx| clusters::insert(tx, &b)).await;
    assert!(matches!(taken, Err(Error::Taken)));
    let gone = tarn_model::clusters::Cluster { state: State::Destroyed, ..first };
    world.store.write(move |tx| clusters::save(tx, &gone)).await.unwrap();
    world.store.write(move |tx| clusters::insert(tx, &second)).await.unwrap();
}

/// Lists are newest first, and a page continues where the previous one ended.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn pages_continue_newest_first(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let rows: Vec<_> = (0..25).map(|n| cluster(&*world.ids, &world.owner, &format!("c{n}"), 100 + n / 2)).collect();
    let nodes: Vec<_> = rows.iter().map(|row| instance(&*world.ids, &row.id, 0)).collect();
    let other = user(&*world.ids, "eve@example.org", None).owner();
    let foreign = cluster(&*world.ids, &other, "c1", 103);
    let mut expected: Vec<_> = rows.iter().map(|row| (row.created, row.id.to_string())).collect();
    expected.sort_by(|a, b| b.cmp(a));
    let write = world.store.write(move |tx| -> Result<(), Error> {
        clusters::insert(tx, &foreign)?;
        rows.iter().try_for_each(|row| clusters::insert(tx, row))?;
        nodes.iter().try_for_each(|node| instances::insert(tx, node))
    });
    write.await.unwrap();
    for owner in [
        OwnerFilter::Scope(world.owner.scope()),
        OwnerFilter::User { user: world.owner.user.as_str(), scope: world.owner.scope() },
    ] {
        for all in [false, true] {
            let mut seen: Vec<(tarn_model::Time, String)> = Vec::new();
            loop {
                let last = seen.last().cloned();
                let after = last.as_ref().map(|(time, id)| (*time, id.as_str()));
                let listing = Listing { owner, all, after, limit: 10 };
                let page = world.store.read(|tx| clusters::list(tx, &listing)).await.unwrap();
                if page.is_empty() {
                    break;
                }
                let nodes = world.store.read(|tx| instances::of_clusters(tx, &page)).await.unwrap();
                assert_eq!(nodes.len(), page.len());
                seen.extend(page.into_iter().map(|row| (row.created, row.id.to_string())));
            }
            assert_eq!(seen, expected);
        }
    }
}

/// A failed volume keeps what is left of it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn failed_volume_keeps_its_remains(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    for (left, promised_gb) in [(VolumeRemains::Nothing, 0), (VolumeRemains::Parts, 7), (VolumeRemains::Data, 14)] {
        let volume = Volume {
            id: VolumeId::fresh(&*world.ids),
            name: format!("{left:?}"),
            owner: world.owner.clone(),
            size_gb: 7,
            first_size_gb: 7,
            deletion_protection: false,
            state: VolumeState::Failed { reason: "why".into(), left },
            since: Time::from_micros(1),
            created: Time::from_micros(1),
            version: 0,
        };
        let inserted = volume.clone();
        world.store.write(move |tx| storage::insert(tx, &inserted)).await.unwrap();
        let read = world.store.read(|tx| Ok::<_, Error>((storage::get(tx, &volume.id)?, storage::promised_gb(tx)?)));
        assert_eq!(read.await.unwrap(), (Some(volume.clone()), promised_gb));
        let saved = volume.clone();
        world.store.write(move |tx| storage::save(tx, &saved)).await.unwrap();
        let again = world.store.read(|tx| storage::get(tx, &volume.id)).await.unwrap();
        assert_eq!(again, Some(Volume { version: 1, ..volume }));
    }
}

/// Volumes and attachments are read as they were saved.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn volumes_and_attachments_round_trip(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let on = cluster(&*world.ids, &world.owner, "heron", 1);
    let volume = Volume {
        id: VolumeId::fresh(&*world.ids),
        name: "data".into(),
        owner: world.owner.clone(),
        size_gb: 10,
        first_size_gb: 10,
        deletion_protection: true,
        state: VolumeState::Resizing { to_gb: 30 },
        since: on.since,
        created: on.created,
        version: 0,
    };
    let held = Attachment {
        volume: volume.id.clone(),
        cluster: on.id.clone(),
        state: AttachmentState::Attaching,
        live: true,
        since: on.since,
    };
    let (a, b, c) = (on.clone(), volume.clone(), held.clone());
    let write = world.store.write(move |tx| -> Result<(), Error> {
        clusters::insert(tx, &a)?;
        storage::insert(tx, &b)?;
        attachments::insert(tx, &c)
    });
    write.await.unwrap();
    let read = world.store.read(|tx| -> Result<_, Error> {
        let page = attachments::of_clusters(tx, &[on.id.as_str()])?;
        Ok((storage::get(tx, &volume.id)?, attachments::of_volume(tx, &volume.id)?, page, storage::promised_gb(tx)?))
    });
    let (found, of_volume, of_page, promised) = read.await.unwrap();
    assert_eq!((found, of_volume, of_page), (Some(volume.clone()), vec![held.clone()], vec![held.clone()]));
    assert_eq!(promised, 30, "a volume that grows counts with its new size");
    let second = world.store.write(move |tx| attachments::insert(tx, &held)).await;
    assert!(matches!(second, Err(Error::Taken)), "a cluster has at most one volume");
}

/// An API key authenticates until it is revoked.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_does_not_authenticate(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let key = ApiKey {
        id: ApiKeyId::fresh(&*world.ids),
        user: world.owner.user.clone(),
        created: Time::ZERO,
        revoked: None,
        last_used: None,
    };
    let (id, added) = (key.id.clone(), key.clone());
    world.store.write(move |tx| users::insert_key(tx, &added, &[7; 32])).await.unwrap();
    let (user, found) = world.store.read(|tx| users::authenticate(tx, &[7; 32])).await.unwrap().unwrap();
    assert_eq!((user.id, found), (world.owner.user.clone(), key.id));
    assert!(world.store.read(|tx| users::authenticate(tx, &[8; 32])).await.unwrap().is_none());
    world.store.write(move |tx| users::revoke_key(tx, &id)).await.unwrap();
    assert!(world.store.read(|tx| users::authenticate(tx, &[7; 32])).await.unwrap().is_none());

    let (me, wanted) =
        (world.owner.user.clone(), Preferences { notify_email_cluster_create: true, ..Preferences::default() });
    let saved = wanted.clone();
    world.store.write(move |tx| users::save_preferences(tx, &me, &saved)).await.unwrap();
    assert_eq!(world.store.read(|tx| users::preferences(tx, &world.owner.user)).await.unwrap(), wanted);
}

/// The ledger sums its entries, and the event log is ordered.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn ledger_sums_and_events_are_ordered(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    for (n, micros) in [5_000_000i64, -1_500_000, 1].into_iter().enumerate() {
        let write = world.store.write(move |tx| -> Result<(), Error> {
            let transfer = Transfer::grant("o-1", Money::from_micros(micros), "a gift".into());
            ledger::record(tx, &format!("t-{n}"), "me", &transfer)?;
            tx.record("o-1", granted(micros))
        });
        write.await.unwrap();
    }
    let read = world.store.read(|tx| -> Result<_, Error> {
        let mine = ledger::balance(tx, &Account::balance_of("o-1"))?;
        Ok((mine, ledger::balance(tx, &Account::grants())?, events::after(tx, 0, 10)?))
    });
    let (mine, engine_account, log) = read.await.unwrap();
    assert_eq!(mine, Money::from_micros(3_500_001));
    assert_eq!(engine_account, Money::from_micros(-3_500_001));
    let micros: Vec<_> = log.iter().map(|event| event.detail["micros"].as_i64().unwrap()).collect();
    assert_eq!(micros, [5_000_000, -1_500_000, 1]);
    assert!(log.windows(2).all(|pair| pair[0].number < pair[1].number));
}

/// The outcomes of idempotent calls are stored until they expire.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn idempotent_outcomes_expire(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let kept = idempotency::StoredOutcome { fingerprint: vec![1; 32], outcome: vec![2, 0, 3] };
    let (me, keep) = (world.owner.clone(), kept.clone());
    world.store.write(move |tx| idempotency::save_outcome(tx, &me, "k", &keep, tarn_model::Time::ZERO)).await.unwrap();
    let at = |since| idempotency_at(&world, since);
    assert_eq!(at(0).await, Some(kept.clone()));
    assert_eq!(at(i64::MAX).await, None, "it is too old");
    let (me, again) = (world.owner.clone(), kept);
    let twice =
        world.store.write(move |tx| idempotency::save_outcome(tx, &me, "k", &again, tarn_model::Time::ZERO)).await;
    assert!(matches!(twice, Err(Error::Conflict)));
    let forgotten =
        world.store.write(|tx| idempotency::remove_expired(tx, tarn_model::Time::from_micros(i64::MAX))).await.unwrap();
    assert_eq!(forgotten, 1);
}

async fn idempotency_at(world: &crate::support::World, since: i64) -> Option<idempotency::StoredOutcome> {
    let since = tarn_model::Time::from_micros(since);
    world.store.read(|tx| idempotency::get(tx, &world.owner.user, "k", since)).await.unwrap()
}

/// A scope keeps a limited number of proofs of SSH keys. The oldest of a key that it no longer has makes room, and that
/// of a saved key stays.
#[tokio::test(flavor = "multi_thread")]
async fn proofs_make_room_for_newer_ones() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let key = SshKey {
        id: "k-000000000001".parse().unwrap(),
        owner: world.owner.clone(),
        name: "saved".into(),
        public_key: "ssh-ed25519 AAAA saved".into(),
        fingerprint: "SHA256:saved".into(),
        created: tarn_model::Time::ZERO,
    };
    let scope = world.owner.scope().to_owned();
    let fill = world.store.write(move |tx| {
        ssh_keys::insert(tx, &key)?;
        for fingerprint in ["SHA256:saved", "SHA256:oldest"] {
            assert!(ssh_keys::save_proof(tx, fingerprint, &scope)?);
        }
        for number in 2..ssh_keys::MAX_PROOFS {
            ssh_keys::save_proof(tx, &format!("SHA256:z{number}"), &scope)?;
        }
        assert!(!ssh_keys::save_proof(tx, "SHA256:oldest", &scope)?, "nothing was forgotten yet");
        assert!(ssh_keys::save_proof(tx, "SHA256:newest", &scope)?);
        let left = ["saved", "oldest", "newest"]
            .map(|name| ssh_keys::is_proven_in(tx, &format!("SHA256:{name}"), &scope).unwrap());
        assert_eq!(left, [true, false, true]);
        Ok::<_, Error>(())
    });
    fill.await.unwrap();
}
