//! Access that ends while a call is in progress: what the call would change is refused in its transaction.

use std::io;
use std::pin::pin;
use std::sync::mpsc;

use bytes::Bytes;
use futures::{FutureExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use rstest::rstest;
use tarn_model::users::User;
use tarn_objects::Result;
use tarn_store::testing::DatabaseKind;
use tarn_store::{Tx, users};
use tokio::sync::oneshot;

use crate::backend::support::has_files;
use crate::s3::authorization::{disable, move_away, revoke};
use crate::s3::harness::{Call, Harness, Response, assert_refused};

type Change = fn(&mut Tx<'_>, &User) -> Result<()>;

fn enable(tx: &mut Tx<'_>, user: &User) -> Result<()> {
    Ok(users::set_disabled(tx, &user.id, false)?)
}

async fn begin_upload(harness: &Harness, key: &str) -> String {
    let begun = harness.call("POST", &format!("/photos/{key}?uploads")).send().await;
    begun.xml("UploadId").unwrap_or_else(|| panic!("{}", begun.text()))
}

/// A body that is completed after the access of its sender has ended is refused, and leaves nothing. The key of a
/// running call is looked up every two seconds; this body is complete before that.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn body_completed_after_revocation_is_refused(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(revoke, disable, move_away)] change: Change,
    #[values(5, 100_000)] size: usize,
    #[values(false, true)] is_part: bool,
) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("photos").await;
    let upload = begin_upload(&harness, "slow").await;
    let target =
        if is_part { format!("/photos/slow?partNumber=1&uploadId={upload}") } else { "/photos/slow".to_owned() };
    let call = harness.call("PUT", &target).header("content-length", &size.to_string());
    let (call, _) = call.sign("UNSIGNED-PAYLOAD");
    let ((begin, begun), (finish, finished)) = (oneshot::channel(), oneshot::channel::<()>());
    let body = stream::once(async move {
        let _ = begin.send(());
        let _ = finished.await;
        Ok::<_, io::Error>(Frame::data(Bytes::from(vec![7; size])))
    });
    let call = tokio::spawn(call.send_body(StreamBody::new(body)));
    begun.await.expect("the call is admitted, and its body is read");
    harness.change(change).await;
    finish.send(()).expect("the call waits for its body");
    assert_eq!(call.await.unwrap().status(), 403);
    let org = harness.user.org.clone().unwrap();
    let account = harness.base.store.read(|tx| tarn_objects::accounts::get(tx, &org)).await.unwrap();
    assert_eq!((account.bytes, account.objects), (0, 0));
    has_files(&harness.directory, 0).await;
}

const TAGS: &str = "<Tagging><TagSet><Tag><Key>new</Key><Value>1</Value></Tag></TagSet></Tagging>";
const CORS: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
     </CORSRule></CORSConfiguration>";
const RULES: &str = "<LifecycleConfiguration><Rule><ID>new</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>\
     <Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>";
const VERSIONING: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const KEYS: &str = "<Delete><Object><Key>a</Key></Object></Delete>";

/// Everything that a member can see, as text.
async fn everything(harness: &Harness, upload: &str) -> Vec<String> {
    let parts = format!("/photos/up?uploadId={upload}");
    let mut seen = Vec::new();
    for target in [
        "/",
        "/photos?versions",
        "/photos?uploads",
        "/photos?versioning",
        "/photos?tagging",
        "/photos?cors",
        "/photos?lifecycle",
        "/photos/a?tagging",
        &parts,
    ] {
        let text = harness.call("GET", target).send().await.text();
        // Errors end with the id of their call.
        seen.push(text.split("<RequestId>").next().unwrap_or_default().to_owned());
    }
    seen
}

/// Every operation that changes something checks the key in its transaction. The writer of the database is held until
/// the access has ended, so each call is admitted before and committed after.
#[rstest]
#[case::create_bucket("PUT", "/more", "")]
#[case::delete_bucket("DELETE", "/empty", "")]
#[case::put_versioning("PUT", "/photos?versioning", VERSIONING)]
#[case::put_bucket_tagging("PUT", "/photos?tagging", TAGS)]
#[case::delete_bucket_tagging("DELETE", "/photos?tagging", "")]
#[case::put_cors("PUT", "/photos?cors", CORS)]
#[case::delete_cors("DELETE", "/photos?cors", "")]
#[case::put_lifecycle("PUT", "/photos?lifecycle", RULES)]
#[case::delete_lifecycle("DELETE", "/photos?lifecycle", "")]
#[case::put_object("PUT", "/photos/new", "hello")]
#[case::replace_object("PUT", "/photos/a", "hello")]
#[case::copy_object("PUT", "/photos/copy", "from /photos/a")]
#[case::delete_object("DELETE", "/photos/a", "")]
#[case::delete_objects("POST", "/photos?delete", KEYS)]
#[case::put_tagging("PUT", "/photos/a?tagging", TAGS)]
#[case::delete_tagging("DELETE", "/photos/a?tagging", "")]
#[case::begin_upload("POST", "/photos/new?uploads", "")]
#[case::complete_upload("POST", "/photos/up?uploadId=UPLOAD", "complete")]
#[case::abort_upload("DELETE", "/photos/up?uploadId=UPLOAD", "")]
#[tokio::test]
async fn change_is_refused_in_its_transaction(#[case] method: &str, #[case] target: &str, #[case] body: &str) {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.bucket("empty").await;
    harness.call("PUT", "/photos/a").body("1").header("x-amz-tagging", "old=1").send().await;
    for (what, body) in [("tagging", TAGS), ("cors", CORS), ("lifecycle", RULES)] {
        let body = body.replace("new", "old").replace("GET", "PUT");
        let set = harness.call("PUT", &format!("/photos?{what}")).body(body).send().await;
        assert!(set.status < 300, "{}", set.text());
    }
    let upload = begin_upload(&harness, "up").await;
    let part = harness.call("PUT", &format!("/photos/up?partNumber=1&uploadId={upload}")).body("part").send().await;
    let etag = part.header("etag").unwrap().to_owned();
    let before = everything(&harness, &upload).await;

    let call = harness.call(method, &target.replace("UPLOAD", &upload));
    let completion = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let call = match body.split_once("from ") {
        Some((_, source)) => call.header("x-amz-copy-source", source),
        None if body == "complete" => call.body(completion),
        None => call.body(body),
    };
    let response = send_while_access_ends(&harness, call).await;
    if target.ends_with("?delete") {
        assert_eq!((response.status, response.xml("Code").as_deref()), (200, Some("InvalidAccessKeyId")));
    } else {
        assert_refused(&response, 403, "InvalidAccessKeyId");
    }
    harness.change(enable).await;
    assert_eq!(everything(&harness, &upload).await, before);
}

/// Sends a call whose transaction waits behind the one that disables its user.
async fn send_while_access_ends(harness: &Harness, call: Call) -> Response {
    let (release, released) = mpsc::channel::<()>();
    let mut held = pin!(harness.base.store.write(move |_: &mut Tx<'_>| -> tarn_store::Result<()> {
        let _ = released.recv();
        Ok(())
    }));
    let (mut change, mut call) = (pin!(harness.change(disable)), pin!(call.send()));
    assert!(held.as_mut().now_or_never().is_none() && change.as_mut().now_or_never().is_none());
    // There is one thread, so that this runs all that does not wait for the writer.
    for _ in 0..100 {
        assert!(call.as_mut().now_or_never().is_none(), "the call is not refused before its transaction");
        tokio::task::yield_now().await;
    }
    release.send(()).expect("the writer waits");
    let (held, (), response) = tokio::join!(held, change, call);
    held.unwrap();
    response
}
