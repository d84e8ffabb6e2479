//! Access keys: whose they are, and when they stop working.

use std::time::Duration;

use rstest::rstest;
use tarn_model::Refused;
use tarn_model::s3_keys::{MAX_ENDED, S3Key};
use tarn_model::users::User;
use tarn_objects::keys::{self, create, ensure, revoke, rotate, working};
use tarn_objects::{Error, Result, Settings, accounts};
use tarn_store::testing::{DatabaseKind, move_user, set_legacy_key};
use tarn_store::{Tx, expiry, s3_keys, users};

use crate::backend::support::{self, World, with};

const HOUR: Duration = Duration::from_secs(3600);

/// Object storage with a user who has a key.
async fn world(database: DatabaseKind) -> Option<(World, User, S3Key)> {
    let world = support::world(database).await?;
    let user = support::user(&*world.ids, &world.org);
    let added = user.clone();
    world.store.write(move |tx| users::insert(tx, &added)).await.unwrap();
    let key = change(&world, &user, |tx, user| Ok(ensure(tx, &user.id, user.org.as_ref().unwrap())?.0)).await.unwrap();
    Some((world, user, key))
}

/// Makes a change, without telling the cache.
async fn change<T: Send + 'static>(
    world: &World,
    user: &User,
    work: impl Fn(&mut Tx<'_>, &User) -> Result<T> + Send + Sync + 'static,
) -> Result<T> {
    let user = user.clone();
    world.store.write(move |tx| work(tx, &user)).await
}

async fn works(world: &World, key: &str) -> bool {
    world.objects.holder_of(key).await.unwrap().is_some()
}

/// A rotation ends the old keys of the user at once, and those of others not at all.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn key_works_until_replaced(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some((world, user, key)) = world(database).await else { return };
    let first = world.objects.credentials(&key.id);
    assert_eq!((first.access_key_id.len(), first.secret_access_key.len()), (20, 40));
    assert!(!format!("{first:?}").contains(&first.secret_access_key), "secrets are not printed");
    let holder = world.objects.holder_of(&key.id).await.unwrap().unwrap();
    assert_eq!((holder.org, holder.user.as_ref()), (world.org.clone(), Some(&user.id)));
    let again = change(&world, &user, |tx, user| ensure(tx, &user.id, user.org.as_ref().unwrap())).await.unwrap();
    assert_eq!(again, (key.clone(), false), "a second call changes nothing");
    let other = support::user(&*world.ids, &world.org);
    let theirs = change(&world, &other, |tx, user| {
        users::insert(tx, user)?;
        create(tx, &user.id, user.org.as_ref().unwrap(), "theirs")
    });
    let theirs = theirs.await.unwrap();
    let rotated = change(&world, &user, |tx, user| rotate(tx, &user.id, user.org.as_ref().unwrap(), None));
    let (second, replaced) = rotated.await.unwrap();
    world.objects.forget_keys();
    assert_ne!(world.objects.credentials(&second.id).secret_access_key, first.secret_access_key);
    assert_eq!(replaced.iter().map(|key| &key.id).collect::<Vec<_>>(), [&key.id]);
    assert!(!works(&world, &key.id).await && works(&world, &second.id).await && works(&world, &theirs.id).await);
}

/// A replaced key that is kept ends by itself, also while it is in the cache.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn kept_key_ends_by_itself(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some((world, user, key)) = world(database).await else { return };
    let keep = |tx: &mut Tx<'_>, user: &User| rotate(tx, &user.id, user.org.as_ref().unwrap(), Some(HOUR));
    let (second, replaced) = change(&world, &user, keep).await.unwrap();
    assert!(works(&world, &key.id).await && works(&world, &second.id).await);
    let third = change(&world, &user, keep).await;
    assert!(matches!(third, Err(Error::Refused(Refused::TooManyS3Keys { limit: 2 }))), "{third:?}");
    world.clock.move_to(replaced[0].ends.unwrap().before(Duration::from_millis(1)));
    assert!(works(&world, &key.id).await, "it is in the cache now");
    world.clock.move_to(replaced[0].ends.unwrap());
    assert!(!works(&world, &key.id).await && works(&world, &second.id).await);
}

/// A key stops with the access of its user. Other replicas see that at once, and a process that missed it in a second.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn key_stops_with_its_user(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(disable, leave, end)] stop: fn(&mut Tx<'_>, &User) -> Result<()>,
) {
    let Some((world, user, key)) = world(database).await else { return };
    assert!(works(&world, &key.id).await);
    change(&world, &user, stop).await.unwrap();
    if database == DatabaseKind::Sqlite {
        world.clock.advance(Duration::from_secs(1));
    }
    assert!(!works(&world, &key.id).await);
}

fn disable(tx: &mut Tx<'_>, user: &User) -> Result<()> {
    Ok(users::set_disabled(tx, &user.id, true)?)
}

fn leave(tx: &mut Tx<'_>, user: &User) -> Result<()> {
    Ok(move_user(tx, &user.id, None)?)
}

fn end(tx: &mut Tx<'_>, user: &User) -> Result<()> {
    let key = working(tx, &user.id, user.org.as_ref().unwrap())?.remove(0);
    revoke(tx, &key).map(drop)
}

/// A key that was ended at once does not work on a replica whose clock is behind.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn ended_key_does_not_wait_for_slow_clocks(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some((world, user, key)) = world(database).await else { return };
    change(&world, &user, end).await.unwrap();
    world.clock.set_back(Duration::from_secs(60));
    assert!(!works(&world, &key.id).await);
}

/// The keys of a user who left do not work again when they return.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn key_stays_ended_when_user_returns(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some((world, user, key)) = world(database).await else { return };
    let ended = change(&world, &user, |tx, user| {
        move_user(tx, &user.id, None)?;
        let (ended, last) = s3_keys::end_of_departed(tx, "", 1)?;
        move_user(tx, &user.id, user.org.as_ref())?;
        let last = last.unwrap_or_default();
        Ok((ended, s3_keys::end_of_departed(tx, "", 2)?, s3_keys::end_of_departed(tx, &last, 1)?))
    });
    assert_eq!(ended.await.unwrap(), (1, (0, None), (0, None)));
    assert!(!works(&world, &key.id).await);
}

/// A user has two keys that work, and what is remembered of ended ones is bounded and expires.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_user_are_bounded(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some((world, user, _)) = world(database).await else { return };
    let new = |tx: &mut Tx<'_>, user: &User| create(tx, &user.id, user.org.as_ref().unwrap(), "another");
    change(&world, &user, new).await.unwrap();
    let third = change(&world, &user, new).await;
    assert!(matches!(third, Err(Error::Refused(Refused::TooManyS3Keys { limit: 2 }))), "{third:?}");
    let remembered = change(&world, &user, move |tx, user| {
        for _ in 0..MAX_ENDED + 5 {
            end(tx, user)?;
            new(tx, user)?;
        }
        Ok(s3_keys::of_user(tx, &user.id, user.org.as_ref().unwrap())?.len())
    });
    assert_eq!(remembered.await.unwrap(), MAX_ENDED + 2);
    world.clock.advance(HOUR);
    let left = change(&world, &user, |tx, user| {
        expiry::forget_ended(tx, tx.now())?;
        Ok(s3_keys::of_user(tx, &user.id, user.org.as_ref().unwrap())?.len())
    });
    assert_eq!(left.await.unwrap(), 2, "those that work stay");
}

/// The key that an organization had before works until its date or until it is retired.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn legacy_key_works_until_its_end(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(false, true)] is_retired: bool,
) {
    let until = tarn_model::Time::from_micros(1_800_000_000_000_000).after(HOUR);
    let settings = Settings { reserve_bytes: 0, legacy_keys_until: Some(until), ..Settings::default() };
    let Some(world) = with(database, settings).await else { return };
    let of = world.org.clone();
    world.store.write(move |tx| set_legacy_key(tx, &of, "TARNSHARED")).await.unwrap();
    let holder = world.objects.holder_of("TARNSHARED").await.unwrap();
    assert_eq!(holder, Some(world.holder()));
    if is_retired {
        let of = world.org.clone();
        world.store.write(move |tx| tarn_store::accounts::retire_legacy_key(tx, &of)).await.unwrap();
        world.objects.forget_keys();
    } else {
        world.clock.move_to(until.before(Duration::from_millis(1)));
        assert!(works(&world, "TARNSHARED").await, "it is in the cache now");
        world.clock.move_to(until);
    }
    assert!(!works(&world, "TARNSHARED").await);
    let left = world.store.read(|tx| world.objects.legacy_key(tx, &world.org)).await.unwrap();
    assert_eq!(left, None);
}

/// Disabling object storage ends all keys, also for the time after it is enabled again.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn disabled_account_ends_keys(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some((world, user, key)) = world(database).await else { return };
    change(&world, &user, |tx, user| accounts::disable(tx, user.org.as_ref().unwrap(), true)).await.unwrap();
    world.objects.forget_keys();
    assert!(!works(&world, &key.id).await);
    world.objects.empty_closed().await.unwrap();
    let again = change(&world, &user, |tx, user| {
        accounts::enable(tx, user.org.as_ref().unwrap())?;
        keys::ensure(tx, &user.id, user.org.as_ref().unwrap())
    });
    let (again, new) = again.await.unwrap();
    assert!(new && again.id != key.id);
    assert!(!works(&world, &key.id).await && works(&world, &again.id).await);
}

/// S3 calls are counted, and the last use of each key is saved with the counts.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some((world, _, key)) = world(database).await else { return };
    let of = world.org.clone();
    world.store.write(move |tx| set_legacy_key(tx, &of, "TARNSHARED")).await.unwrap();
    let holder = world.objects.holder_of(&key.id).await.unwrap().unwrap();
    for _ in 0..5 {
        world.objects.count_request(&key.id, &holder);
    }
    world.objects.count_request("TARNSHARED", &world.holder());
    let used = |id: String| world.store.read(move |tx| s3_keys::get(tx, &id));
    assert_eq!(used(key.id.clone()).await.unwrap().unwrap().last_used, None, "no call writes");
    for _ in 0..2 {
        world.objects.save_counts().await.unwrap();
    }
    let account = world.store.read(|tx| accounts::get(tx, &world.org)).await.unwrap();
    assert_eq!(account.requests, 6);
    let last = used(key.id.clone()).await.unwrap().unwrap().last_used.unwrap();
    assert!(key.created < last && last < account.legacy_used.unwrap());
}
