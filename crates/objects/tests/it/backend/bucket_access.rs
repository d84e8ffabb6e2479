//! Who may delete a bucket through S3, by the user of the key.

use rstest::rstest;
use tarn_model::Time;
use tarn_model::access::Policy;
use tarn_model::ids::{OrgId, UserId};
use tarn_model::users::User;
use tarn_objects::{Error, Settings};
use tarn_store::testing::DatabaseKind;
use tarn_store::users;

use crate::backend::support::{World, with};

/// A member of an organization.
async fn member(world: &World, org: &OrgId, email: &str, org_admin: bool) -> UserId {
    let (id, created) = (UserId::fresh(&*world.ids), Time::ZERO);
    let org = Some(org.clone());
    let user =
        User { id: id.clone(), email: email.to_owned(), org, org_admin, engine_admin: false, disabled: false, created };
    world.store.write(move |tx| users::insert(tx, &user)).await.unwrap();
    id
}

/// A personal key deletes what its user created, an administrator's all, and another member's only where that is
/// allowed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn bucket_is_deleted_by_creator_or_administrator(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(false, true)] members_may_destroy: bool,
) {
    let settings = Settings { reserve_bytes: 0, access: Policy { members_may_destroy }, ..Settings::default() };
    let Some(world) = with(database, settings).await else { return };
    let ada = member(&world, &world.org, "ada@example.org", true).await;
    let ben = member(&world, &world.org, "ben@example.org", false).await;
    let cyd = member(&world, &world.org, "cyd@example.org", false).await;
    let eve = member(&world, &OrgId::fresh(&*world.ids), "eve@example.org", true).await;
    let remove = async |user: Option<&UserId>, name: &str| world.objects.remove_bucket(&world.org, user, name).await;
    for name in ["by-ben", "for-ada", "for-all"] {
        world.objects.create_bucket(&world.org, Some(&ben), name).await.unwrap();
    }
    assert!(matches!(remove(Some(&eve), "by-ben").await, Err(Error::NotYours)));
    let by_other = [remove(Some(&cyd), "by-ben").await, remove(Some(&cyd), "first").await];
    assert!(by_other.iter().all(|removed| match removed {
        Ok(()) => members_may_destroy,
        Err(error) => !members_may_destroy && matches!(error, Error::NotYours),
    }));
    if !members_may_destroy {
        assert_eq!(world.objects.buckets(&world.org).await.unwrap().len(), 4, "nothing was deleted");
        remove(Some(&ben), "by-ben").await.unwrap();
        let older = remove(Some(&ben), "first").await;
        assert!(matches!(older, Err(Error::NotYours)), "its creator is unknown");
        remove(Some(&ada), "first").await.unwrap();
    }
    remove(Some(&ada), "for-ada").await.unwrap();
    // The key that all members share has no more rights than any of them.
    let shared = remove(None, "for-all").await;
    assert!(if members_may_destroy { shared.is_ok() } else { matches!(shared, Err(Error::NotYours)) }, "{shared:?}");
    if !members_may_destroy {
        remove(Some(&ada), "for-all").await.unwrap();
    }
    assert_eq!(world.objects.buckets(&world.org).await.unwrap().len(), 0);
}
