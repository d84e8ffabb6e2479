//! How many calls in progress a user and an organization may have.

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tarn_model::users::User;
use tarn_objects::keys::{self, Credentials};
use tarn_store::testing::DatabaseKind;
use tarn_store::users;
use tokio::task::JoinHandle;

use crate::backend::support;
use crate::s3::harness::{Call, Harness, assert_refused};

/// The limits of a user and of an organization.
const OF_USER: usize = 1024;
const OF_ORGANIZATION: usize = 2048;

/// Another member of the organization, with a key.
async fn member(harness: &Harness) -> Credentials {
    let user: User = support::user(&*harness.base.ids, harness.user.org.as_ref().unwrap());
    let add = harness.base.store.write(move |tx| -> tarn_objects::Result<String> {
        users::insert(tx, &user)?;
        Ok(keys::ensure(tx, &user.id, user.org.as_ref().unwrap())?.0.id)
    });
    harness.objects.credentials(&add.await.unwrap())
}

/// A call whose body does not come. It stays in progress until the task is aborted.
fn hold(call: Call) -> JoinHandle<()> {
    let (call, _) = call.header("content-length", "1").sign("UNSIGNED-PAYLOAD");
    let never = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
    tokio::spawn(async move { drop(call.send_body(StreamBody::new(never)).await) })
}

/// Lets every task run until it waits: there is one thread, which runs some of them between two turns of this one.
async fn let_all_run() {
    for _ in 0..OF_ORGANIZATION {
        tokio::task::yield_now().await;
    }
}

/// A user has a number of calls in progress, and so has an organization. Others are served, and a call that ends makes
/// room.
#[tokio::test]
async fn calls_of_user_and_organization_are_limited() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let (ada, ben, cyd) = (harness.credentials.clone(), member(&harness).await, member(&harness).await);
    let stranger = harness.other().await;
    let head = async |who: &Credentials| harness.call("GET", "/photos").signed_by(who).send().await;
    let hold_all = async |who: &Credentials| {
        let held: Vec<_> = (0..OF_USER).map(|_| hold(harness.call("PUT", "/photos/a").signed_by(who))).collect();
        let_all_run().await;
        held
    };
    let mut held = hold_all(&ada).await;
    let refused = head(&ada).await;
    assert_refused(&refused, 503, "SlowDown");
    assert!(refused.text().contains("You have too many calls"), "{}", refused.text());
    assert_eq!(head(&ben).await.status, 200, "another member is served");

    held.extend(hold_all(&ben).await);
    assert_eq!(held.len(), OF_ORGANIZATION);
    let refused = head(&cyd).await;
    assert_refused(&refused, 503, "SlowDown");
    assert!(refused.text().contains("Your organization has too many calls"), "{}", refused.text());
    assert_refused(&head(&stranger).await, 404, "NoSuchBucket");

    held.remove(0).abort();
    let_all_run().await;
    assert_eq!(head(&cyd).await.status, 200, "a call that ended makes room");
    held.iter().for_each(JoinHandle::abort);
}
